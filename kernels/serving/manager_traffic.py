"""Drives a manager under the small engine by choices: the next command, from what is legal now.

Tokens are two symbols, prompts begin as an earlier one did or hold its blocks under another parent,
lengths end at a block's edge, and the pool is nearly full, so that sequences share, are put off
and evict one another. `choose` is backed by Hypothesis or a seeded generator.

This is not the grammar of `harness/manager_workload.py`, which asks the reference what is legal.
Here only the manager itself is followed, so that a wrong output also shows a hole in the harness.
"""

from __future__ import annotations

from collections.abc import Callable

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
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.kernels.grammar import Choose
from poolproof.kernels.serving.manager_engine import LiveSequence, ManagerEngine, extended

__all__ = ["ManagerTraffic"]

MOST_SEQUENCES = 4
MOST_PROMPTS = 6
ATTEMPTS = 12

_WEIGHTS = {
    "admit": 6,
    "append_tokens": 9,
    "step": 12,
    "schedule": 4,
    "draft": 4,
    "accept": 8,
    "fork": 3,
    "truncate": 3,
    "preempt": 2,
    "resume": 4,
    "swap_out": 3,
    "swap_in": 4,
    "finish": 3,
    "abort": 1,
    "lookup_prefix": 1,
    "reset": 1,
}


class ManagerTraffic:
    """Chooses commands for one engine. `say` gets each one before it is given."""

    def __init__(
        self,
        engine: ManagerEngine,
        choose: Choose,
        say: Callable[[Command], None] = lambda _: None,
    ) -> None:
        self.engine, self._choose, self._say = engine, choose, say
        self._prompts: list[TokenChain] = []
        self._put_off: Admit | None = None
        self._next_id = 0
        makers: dict[str, Callable[[], Command | None]] = {
            "admit": self._admit,
            "append_tokens": self._append,
            "step": Step,
            "schedule": self._schedule,
            "draft": self._draft,
            "accept": self._accept,
            "fork": self._fork,
            "truncate": self._truncate,
            "preempt": self._preempt,
            "resume": self._resume,
            "swap_out": self._swap_out,
            "swap_in": self._swap_in,
            "finish": self._finish,
            "abort": self._abort,
            "lookup_prefix": self._lookup,
            "reset": Reset,
        }
        self._urn = [
            makers[verb]
            for verb, weight in _WEIGHTS.items()
            if verb in engine.can.verbs
            for _ in range(weight)
        ]

    def run(self, operations: int) -> None:
        """Give so many commands, then one more token to every sequence, so that everything is read.

        Raises WrongOutputError and AllocatorBrokeError.
        """
        for _ in range(operations):
            self.next()
        self.look()

    def next(self) -> None:
        """One command that is legal, if some attempts find one; a step otherwise."""
        for _ in range(ATTEMPTS):
            command = self._urn[self._choose(len(self._urn))]()
            if command is not None:
                self._give(command)
                return
        self._settle_drafts()
        self._give(Step())

    def look(self) -> None:
        """Every sequence that can grow computes one token more, and so reads all that it has."""
        self._settle_drafts()
        self._give(Step())
        for sequence in list(self.engine.sequences.values()):
            if sequence.can_grow:
                self._give(AppendTokens(sequence.seq_id, (self._choose(2),)))
        self._give(Step())

    def _give(self, command: Command) -> None:
        self._say(command)
        self.engine.apply(command)

    def _settle_drafts(self) -> None:
        for sequence in list(self.engine.sequences.values()):
            if sequence.drafts_computed:
                self._give(Accept(sequence.seq_id, 0))

    def _admit(self) -> Command | None:
        if len(self.engine.sequences) >= MOST_SEQUENCES:
            return None
        again = self._put_off
        if again is not None and again.seq_id not in self.engine.sequences and self._choose(2):
            self._put_off = None
            return again
        chain = self._prompt()
        self._remember(chain)
        self._put_off = Admit(self._next_id, chain, self._chunk(len(chain.tokens)))
        self._next_id += 1
        return self._put_off

    def _prompt(self) -> TokenChain:
        """A prompt, mostly related to an earlier one."""
        choose, size = self._choose, self.engine.block_size
        kind = choose(6) if self._prompts else 0
        if kind == 0:
            length = max(1, (1 + choose(3)) * size - 1 + choose(3))
            return TokenChain(self._tokens(length))
        earlier = self._prompts[choose(len(self._prompts))]
        tokens = earlier.tokens
        if kind == 1:  # the same tokens under other keys, or none
            return self._with_other_keys(tokens)
        if kind == 2:  # its later blocks, under another parent
            tokens = tokens[size:] or tokens
        elif kind == 3:  # another first block before the same tokens
            tokens = (*self._tokens(size), *tokens[size:])
        else:  # the same beginning
            kept = max(1, len(tokens) - choose(size + 2))
            tokens = (*tokens[:kept], *self._tokens(choose(size)))
        images = tuple(i for i in earlier.images if i.offset + i.length <= len(tokens))
        return TokenChain(tokens[: 5 * size], earlier.lora, earlier.salt, images)

    def _with_other_keys(self, tokens: tuple[int, ...]) -> TokenChain:
        kind = self._choose(4)
        if kind == 0:
            return TokenChain(tokens)
        if kind == 1:
            return TokenChain(tokens, lora=("adapter", "01"[self._choose(2)]))
        if kind == 2:
            return TokenChain(tokens, salt="xy"[self._choose(2)])
        offset = self._choose(min(len(tokens), self.engine.block_size))
        return TokenChain(tokens, images=(Image("pq"[self._choose(2)], offset, 1),))

    def _remember(self, chain: TokenChain) -> None:
        self._prompts.append(chain)
        if len(self._prompts) > MOST_PROMPTS:
            del self._prompts[self._choose(MOST_PROMPTS)]

    def _append(self) -> Command | None:
        sequence = self._one(lambda s: s.can_grow)
        if sequence is None:
            return None
        count = 1 if self._choose(4) else 1 + self._choose(self.engine.block_size)
        return AppendTokens(sequence.seq_id, self._tokens(1 if self.engine.is_ring else count))

    def _schedule(self) -> Command | None:
        sequence = self._one(lambda s: s.is_running and s.num_unscheduled > 0 and not s.drafts)
        if sequence is None:
            return None
        left = sequence.num_unscheduled
        return Schedule(sequence.seq_id, self._chunk(left) or left)

    def _draft(self) -> Command | None:
        sequence = self._one(lambda s: s.can_grow and s.scheduled > 0)
        if sequence is None or self.engine.is_ring:
            return None
        tokens = self._tokens(1 + self._choose(self.engine.block_size))
        # Whoever asks for what was rejected must not find it.
        self._remember(extended(sequence.chain, tokens))
        return Draft(sequence.seq_id, tokens)

    def _accept(self) -> Command | None:
        sequence = self._one(lambda s: s.drafts_computed)
        if sequence is None:
            return None
        return Accept(sequence.seq_id, self._choose(len(sequence.drafts) + 1))

    def _fork(self) -> Command | None:
        if len(self.engine.sequences) >= MOST_SEQUENCES:
            return None
        sequence = self._one(lambda s: s.is_complete)
        if sequence is None:
            return None
        self._next_id += 1
        return Fork(sequence.seq_id, self._next_id - 1)

    def _truncate(self) -> Command | None:
        sequence = self._one(lambda s: s.is_complete)
        if sequence is None:
            return None
        self._remember(sequence.chain)
        return Truncate(sequence.seq_id, 1 + self._choose(sequence.num_tokens))

    def _preempt(self) -> Command | None:
        sequence = self._one(lambda s: s.is_running)
        return None if sequence is None else Preempt(sequence.seq_id)

    def _resume(self) -> Command | None:
        sequence = self._one(lambda s: s.place == "nowhere")
        if sequence is None:
            return None
        return Resume(sequence.seq_id, self._chunk(sequence.num_tokens))

    def _swap_out(self) -> Command | None:
        sequence = self._one(lambda s: s.is_settled)
        return None if sequence is None else SwapOut(sequence.seq_id)

    def _swap_in(self) -> Command | None:
        sequence = self._one(lambda s: s.place == "host")
        return None if sequence is None else SwapIn(sequence.seq_id)

    def _finish(self) -> Command | None:
        sequence = self._one(lambda s: s.is_running)
        if sequence is None:
            return None
        self._remember(sequence.chain)
        return Finish(sequence.seq_id)

    def _abort(self) -> Command | None:
        sequence = self._one(lambda _: True)
        return None if sequence is None else Abort(sequence.seq_id)

    def _lookup(self) -> Command:
        return LookupPrefix(self._prompt())

    def _one(self, is_able: Callable[[LiveSequence], bool]) -> LiveSequence | None:
        able = [sequence for sequence in self.engine.sequences.values() if is_able(sequence)]
        return able[self._choose(len(able))] if able else None

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._choose(2) for _ in range(count))

    def _chunk(self, num_tokens: int) -> int:
        """How much of a prompt is scheduled at once: all of it (0), or a part."""
        if "schedule" not in self.engine.can.verbs or self._choose(2) or num_tokens < 2:
            return 0
        return 1 + self._choose(num_tokens)
