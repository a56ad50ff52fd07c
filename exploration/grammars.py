"""Every command that is worth trying next: the grammars of exhaustive and bounded search.

One for each level. The order of commands is fixed, simplest first: it decides which of several
shortest failures is reported. What nobody can tell apart is tried once: blocks that are held as
often, under the same keys, with the same history; blocks that no command has named yet; hashes
that no command named so far.

Pools and queues: counts up to a bound and one more than fits; lists up to a bound, with repeats
where they are legal; a few representatives of misuse where the profile defines it. Token chains
are not in this grammar.

Managers have two tiny alphabets. `ManagerGrammar`: every verb, over a handful of prompts of two
symbols that share beginnings and end at, before and behind the end of a block. `IdentityGrammar`:
what tells prompts apart (their tokens' order, adapter, salt, images), met by another prompt.
Sequences are numbered in the order of their admission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations, product
from typing import Protocol

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    AppendN,
    Cache,
    Command,
    Evict,
    Free,
    Lookup,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
    Reset,
    Touch,
)
from poolproof.contract.content import Image, Key, TokenChain
from poolproof.contract.index_commands import Clear, Contains, Get, IndexKey, Insert, Pop
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
from poolproof.exploration.recorded_session import (
    RecordedIndex,
    RecordedManager,
    RecordedPool,
    RecordedQueue,
)
from poolproof.reference.legality import misuse_of
from poolproof.reference.sequence_model import SequenceState

__all__ = [
    "IdentityGrammar",
    "IndexGrammar",
    "ManagerGrammar",
    "PoolGrammar",
    "QueueGrammar",
    "WorkloadGrammar",
    "identities_for",
    "prompts_for",
]


class QueueGrammar:
    """The commands to try in a state, for given bounds on counts and lists."""

    def __init__(self, *, max_count: int, max_list: int) -> None:
        self.max_count = max_count
        self.max_list = max_list

    def commands(self, session: RecordedQueue) -> Iterator[Command]:
        """All commands that are legal in the session's state, in a fixed order."""
        return filter(session.is_defined, self._candidates(session))

    def _candidates(self, session: RecordedQueue) -> Iterator[Command]:
        order = session.reference.order
        yield PopLeft()
        yield from map(PopLeftN, range(self.max_count + 1))
        yield from map(Remove, order)
        lists = list(self._lists_outside(session))
        yield from (Append(*ids) for ids in lists if len(ids) == 1)
        yield from map(AppendN, lists)
        yield from map(PrependN, lists)

    def _lists_outside(self, session: RecordedQueue) -> Iterator[tuple[int, ...]]:
        history, order = session.history, session.reference.order
        outside = [block for block in history if block not in order]
        for length in range(self.max_list + 1):
            seen = set()
            for ids in permutations(outside, length):
                shape = tuple(history[block] for block in ids)
                if shape not in seen:
                    seen.add(shape)
                    yield ids


class IndexGrammar:
    """The commands to try in a state, over the given keys."""

    def __init__(self, keys: Sequence[IndexKey]) -> None:
        self.keys = keys

    def commands(self, session: RecordedIndex) -> Iterator[Command]:
        """All commands that are legal in the session's state, in a fixed order."""
        return filter(session.is_defined, self._candidates(session))

    def _candidates(self, session: RecordedIndex) -> Iterator[Command]:
        named = session.named_blocks
        new = [block for block in range(session.num_blocks) if block not in named][:1]
        blocks = [*sorted(named), *new]
        for key in self.keys:
            yield from (Insert(key, block) for block in blocks)
            yield from (Pop(key, block) for block in blocks)
            yield Get(key)
            yield from (Contains(key, block) for block in blocks)
        yield Clear()


class PoolGrammar:
    """The commands to try in a state, for given hashes and bounds on counts and lists."""

    def __init__(self, hashes: Sequence[Key], *, max_count: int, max_list: int) -> None:
        self.hashes = hashes
        self.max_count = max_count
        self.max_list = max_list

    def commands(self, session: RecordedPool) -> Iterator[Command]:
        """All commands that are defined in the session's state, in a fixed order."""
        pool = session.reference
        for command in self._legal(session):
            if session.is_defined(command) and misuse_of(pool, command) is None:
                yield command
        for command in self._misuse(session):
            if session.is_defined(command) and misuse_of(pool, command) is not None:
                yield command

    def _legal(self, session: RecordedPool) -> Iterator[Command]:
        pool = session.reference
        num_free = len(pool.free)
        yield from map(Allocate, range(min(num_free, self.max_count) + 1))
        yield Allocate(num_free + 1)
        held = [b for b, holders in pool.holders.items() if holders]
        cached_free = [b for b in pool.free if pool.keys[b]]
        null = [] if pool.null_block is None else [pool.null_block]
        for ids in self._lists(session, [*held, *cached_free, *null], repeats=True):
            yield Touch(ids)
        for ids in self._lists(session, [*held, *null], repeats=True):
            yield Free(ids)
        for ids in self._lists(session, [*held, *null], repeats=False):
            yield from (Cache(ids, keys) for keys in self._hashes(session, len(ids)))
        yield from (Lookup(key) for (key,) in self._hashes(session, 1))
        for length in range(1, self.max_list + 1):
            yield from map(Acquire, self._hashes(session, length))
        for ids in self._lists(session, [*held, *cached_free], repeats=False):
            yield Evict(ids)
        yield Reset()

    def _misuse(self, session: RecordedPool) -> Iterator[Command]:
        pool = session.reference
        some = self.hashes[0]
        outside = (pool.num_blocks,)
        yield from (Allocate(-1), Touch(outside), Free(outside), Free((-1,)), Evict(outside))
        yield Cache(outside, (some,))
        yield Cache((), (some,))
        held = [b for b, holders in pool.holders.items() if holders]
        some_held = [ids[0] for ids in self._lists(session, held, repeats=False) if len(ids) == 1]
        for block in [*some_held, *list(pool.free)[-1:]]:
            yield Free((block,) * (len(pool.holders[block]) + 1))
            yield Cache((block,), (some,))
            yield Cache((block, block), (some, some))
        if pool.null_block is not None:
            null = (pool.null_block,)
            yield from (Touch(null), Free(null), Cache(null, (some,)))

    def _hashes(self, session: RecordedPool, length: int) -> Iterator[tuple[Key, ...]]:
        """Lists of hashes; those that no command named so far come in their order."""
        fresh = [key for key in self.hashes if key not in session.keys]
        for keys in product(self.hashes, repeat=length):
            new = [key for key in dict.fromkeys(keys) if key in fresh]
            if new == fresh[: len(new)]:
                yield keys

    def _lists(
        self, session: RecordedPool, blocks: Sequence[int], *, repeats: bool
    ) -> Iterator[tuple[int, ...]]:
        """Lists of the blocks, shortest first, up to the exchange of indistinguishable ones."""
        for length in range(1, self.max_list + 1):
            seen = set()
            tuples = product(blocks, repeat=length) if repeats else permutations(blocks, length)
            for ids in tuples:
                shape = session.shape_of(ids)
                if shape not in seen:
                    seen.add(shape)
                    yield ids


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
