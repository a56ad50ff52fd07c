"""Every command that is worth trying next on a manager: the grammars of bounded exploration.

Two tiny alphabets. `ManagerGrammar`: every verb, over a handful of prompts of two symbols that
share beginnings and end at, before and behind the end of a block. `IdentityGrammar`: what tells
prompts apart (their tokens' order, adapter, salt, images), met by another prompt. Sequences are
numbered in the order of their admission; the order of commands is fixed, simplest first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.exploration.recorded_manager import RecordedManager
from poolproof.reference.sequence_model import SequenceState

__all__ = ["IdentityGrammar", "ManagerGrammar", "WorkloadGrammar", "identities_for", "prompts_for"]


def prompts_for(block_size: int) -> tuple[TokenChain, ...]:
    """Prompts over two symbols: a shared first block, its twin behind another parent, whole blocks.

    Each ends where it differs from the others or needs a block of its own; one is less than a
    block, one fills it.
    """
    zeros, ones = (0,) * block_size, (1,) * block_size
    return (
        TokenChain((0,)),
        TokenChain(zeros),
        TokenChain((*zeros, 0)),
        TokenChain((*zeros, *zeros, 0)),
        TokenChain((*ones, *zeros, 0)),
        TokenChain((*zeros, *ones)),
    )


def identities_for(block_size: int) -> tuple[TokenChain, ...]:
    """Prompts of a block and a token that differ in one thing, so that none may hit another's.

    The salt reads as the adapter's name does (vllm#44701); adapters share a name and not the path
    (vllm#30931); images differ in place (vllm#56655) or in what they show.
    """
    same = (0,) * (block_size + 1)
    last = block_size - 1
    return (
        TokenChain(same),
        TokenChain((1, *same[1:])),
        TokenChain((*same[:last], 1, 0)),
        TokenChain(same, lora=("x", "0")),
        TokenChain(same, lora=("x", "1")),
        TokenChain(same, salt="x"),
        TokenChain(same, salt="y"),
        TokenChain(same, images=(Image("p1", 0, 1),)),
        TokenChain(same, images=(Image("p1", last, 1),)),
        TokenChain(same, images=(Image("q1", last, 1),)),
    )


class WorkloadGrammar(Protocol):
    """The commands to try in a state, in a fixed order."""

    def commands(self, session: RecordedManager) -> Iterator[Command]:
        """All of its commands that are legal in the session's state."""
        ...


class ManagerGrammar:
    """Every verb that the target has; at most `most_sequences` live at once."""

    def __init__(self, block_size: int, *, most_sequences: int = 2) -> None:
        self.prompts = prompts_for(block_size)
        self.most_sequences = most_sequences

    def commands(self, session: RecordedManager) -> Iterator[Command]:
        return filter(session.is_defined, self._candidates(session))

    def _candidates(self, session: RecordedManager) -> Iterator[Command]:
        model = session.model
        yield Step()
        new = len(model.sequences) + len(model.ended_ids)
        if len(model.sequences) < self.most_sequences:
            yield from self._beginnings(new, model.block_size, session)
        for sequence in list(model.sequences.values()):
            yield from _goings_on(sequence, new, model.block_size)
        for seq_id in sorted(model.ended_ids)[:1]:
            yield Finish(seq_id)
        yield Abort(new)
        yield LookupPrefix(self.prompts[2])
        yield Reset()

    def _beginnings(self, new: int, block_size: int, session: RecordedManager) -> Iterator[Command]:
        for chain in self.prompts:
            yield Admit(new, chain, 0)
            if "schedule" in session.can.verbs and len(chain.tokens) > 2 * block_size:
                yield Admit(new, chain, block_size)
        yield Admit(new, self._too_long(session), 0)
        yield Load(new, self.prompts[3], block_size)

    def _too_long(self, session: RecordedManager) -> TokenChain:
        """A prompt that no admission can hold (vllm#17834)."""
        model = session.model
        return TokenChain((0,) * (model.pool.num_blocks * model.block_size + 1))


def _goings_on(sequence: SequenceState, new: int, block_size: int) -> Iterator[Command]:
    """What may happen to a sequence that there is."""
    seq_id = sequence.seq_id
    yield Finish(seq_id)
    yield AppendTokens(seq_id, (0,))
    yield AppendTokens(seq_id, (1,))
    to_block_end = block_size - sequence.num_tokens % block_size
    if to_block_end > 1:
        yield AppendTokens(seq_id, (0,) * to_block_end)
    left = sequence.num_tokens - sequence.num_computed - sequence.num_scheduled
    yield Schedule(seq_id, left)
    yield Draft(seq_id, (1,) * (block_size + 1))
    yield Accept(seq_id, 0)
    yield Accept(seq_id, 1)
    yield Fork(seq_id, new)
    yield Truncate(seq_id, 1)
    if sequence.num_tokens > 2:
        yield Truncate(seq_id, sequence.num_tokens - 2)
    yield Preempt(seq_id)
    yield Resume(seq_id, 0)
    yield SwapOut(seq_id)
    yield SwapIn(seq_id)
    yield Loaded(seq_id)
    yield Abort(seq_id)


class IdentityGrammar:
    """Sequences come, are computed and end; their prompts alone differ."""

    def __init__(self, block_size: int, *, most_sequences: int = 2) -> None:
        self.prompts = identities_for(block_size)
        self.most_sequences = most_sequences

    def commands(self, session: RecordedManager) -> Iterator[Command]:
        return filter(session.is_defined, self._candidates(session))

    def _candidates(self, session: RecordedManager) -> Iterator[Command]:
        model = session.model
        yield Step()
        if len(model.sequences) < self.most_sequences:
            new = len(model.sequences) + len(model.ended_ids)
            yield from (Admit(new, chain, 0) for chain in self.prompts)
        for seq_id in model.sequences:
            yield Finish(seq_id)
        for chain in self.prompts:
            yield LookupPrefix(chain)
