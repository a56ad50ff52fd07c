"""The grammar of manager workloads: the next command, chosen from what is legal now.

Tuned to what found real bugs: tiny pools that are nearly full, two token symbols, prompts that
begin as an earlier one did or hold its blocks under another parent, lengths at, below and above a
block's end, the same tokens under another adapter, salt or image, and ends in every state.
"""

from __future__ import annotations

from collections.abc import Callable

from poolproof.contract.commands import Command, Reset
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
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.harness.manager_prompts import ManagerPrompts
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["ManagerWorkload"]

MOST_SEQUENCES = 5

_WEIGHTS = {
    "admit": 10,
    "append_tokens": 12,
    "step": 14,
    "schedule": 4,
    "draft": 4,
    "accept": 6,
    "fork": 4,
    "truncate": 3,
    "preempt": 3,
    "resume": 5,
    "swap_out": 2,
    "swap_in": 4,
    "finish": 5,
    "abort": 2,
    "lookup_prefix": 2,
    "load": 2,
    "loaded": 3,
    "reset": 1,
}


class ManagerWorkload:
    """Chooses commands for one run; `model` is the state that they refer to."""

    def __init__(
        self, choices: Choices, model: SequenceModel, can: Capabilities, num_symbols: int = 2
    ) -> None:
        self.below = choices.below
        self.model = model
        self._sequences = model.sequences.values
        self.can = can
        self.next_id = 0
        self.prompts = ManagerPrompts(choices, model.block_size, num_symbols)
        self.waiting: Admit | None = None
        self.makers: dict[str, Callable[[], Command | None]] = {
            "admit": self.admit,
            "append_tokens": self.append_tokens,
            "step": self.step,
            "schedule": self.schedule,
            "draft": self.draft,
            "accept": self.accept,
            "fork": self.fork,
            "truncate": self.truncate,
            "preempt": self.preempt,
            "resume": self.resume,
            "swap_out": self.swap_out,
            "swap_in": self.swap_in,
            "finish": self.finish,
            "abort": self.abort,
            "lookup_prefix": self.lookup_prefix,
            "load": self.load,
            "loaded": self.loaded,
            "reset": self.reset,
        }
        self.verbs = tuple(verb for verb in self.makers if verb in can.verbs)
        self._chunks = "schedule" in can.verbs
        self._urn: list[Callable[[], Command | None]] = []
        self.set_weights({})

    def set_weights(self, weights: dict[str, int]) -> None:
        """Each verb as often as its weight says, those not named as usual."""
        self._urn = []
        for verb in self.verbs:
            self._urn += [self.makers[verb]] * weights.get(verb, _WEIGHTS[verb])

    def bias(self) -> None:
        """Draw weights for this run: mostly the usual ones, sometimes one verb dominates."""
        if self.below(4) == 0:
            self.set_weights({self.verbs[self.below(len(self.verbs))]: 30})

    def next(self) -> Command:
        """The next legal command."""
        below, urn, size = self.below, self._urn, len(self._urn)
        for _ in range(12):
            command = urn[below(size)]()
            if command is not None and undefined_for_manager(self.model, command) is None:
                return command
        waiting = [s for s in self.model.sequences.values() if s.drafts_computed]
        return Accept(waiting[0].seq_id, 0) if waiting else Step()

    def drain(self) -> Command | None:
        """The next command on the way to a manager without sequences."""
        for sequence in self.model.sequences.values():
            if sequence.drafts_computed:
                return Accept(sequence.seq_id, 0)
        for sequence in self.model.sequences.values():
            if sequence.loading:
                return Loaded(sequence.seq_id)
            if sequence.num_scheduled and self.model.profile.publishes == "scheduled":
                return Step()
            if sequence.place == "host" and "abort" not in self.can.verbs:
                return SwapIn(sequence.seq_id)
            if sequence.place != "device":
                return Abort(sequence.seq_id) if "abort" in self.can.verbs else None
            return Finish(sequence.seq_id)
        return Step() if self.model.leaving else None

    # Commands, each None where the state offers none.

    def admit(self) -> Command | None:
        if len(self.model.sequences) >= MOST_SEQUENCES:
            return None
        waiting = self.waiting
        if waiting is not None:
            known = waiting.seq_id in self.model.sequences or waiting.seq_id in self.model.ended_ids
            # A request that was put off is asked for again, as engines do (vllm#18957).
            if not known and self.below(2):
                return Admit(waiting.seq_id, waiting.chain, self._chunk(len(waiting.chain.tokens)))
        chain = self.prompts.next()
        self.prompts.remember(chain)
        self.next_id += 1
        self.waiting = Admit(self.next_id - 1, chain, self._chunk(len(chain.tokens)))
        return self.waiting

    def resume(self) -> Command | None:
        sequence = self._one(self._placed("nowhere"))
        return (
            None if sequence is None else Resume(sequence.seq_id, self._chunk(sequence.num_tokens))
        )

    def append_tokens(self) -> Command | None:
        sequence = self._one(
            [
                s
                for s in self._sequences()
                if s.num_computed + s.num_scheduled == s.num_tokens
                and s.place == "device"
                and not s.loading
                and not s.num_drafts
            ]
        )
        if sequence is None:
            return None
        count = 1 if self.below(4) else 1 + self.below(self.model.block_size)
        return AppendTokens(sequence.seq_id, self.prompts.tokens(count))

    def step(self) -> Command | None:
        """Seldom a step of which nothing comes."""
        busy = [s for s in self._sequences() if s.num_scheduled]
        return Step() if busy or self.below(8) == 0 else None

    def schedule(self) -> Command | None:
        sequence = self._one(
            [
                s
                for s in self._sequences()
                if s.num_computed + s.num_scheduled < s.num_tokens
                and s.place == "device"
                and not s.loading
            ]
        )
        if sequence is None:
            return None
        left = sequence.num_tokens - sequence.num_computed - sequence.num_scheduled
        return Schedule(sequence.seq_id, self._chunk(left) or left)

    def draft(self) -> Command | None:
        sequence = self._one([s for s in self._sequences() if s.num_scheduled and not s.num_drafts])
        return (
            None
            if sequence is None
            else Draft(
                sequence.seq_id, self.prompts.tokens(1 + self.below(self.model.block_size + 1))
            )
        )

    def accept(self) -> Command | None:
        sequence = self._one([s for s in self._sequences() if s.drafts_computed])
        return (
            None
            if sequence is None
            else Accept(sequence.seq_id, self.below(sequence.num_drafts + 1))
        )

    def fork(self) -> Command | None:
        if len(self.model.sequences) >= MOST_SEQUENCES:
            return None
        sequence = self._one(self._complete())
        if sequence is None:
            return None
        self.next_id += 1
        return Fork(sequence.seq_id, self.next_id - 1)

    def truncate(self) -> Command | None:
        sequence = self._one(self._complete())
        if sequence is None:
            return None
        self.prompts.remember(sequence.chain)
        return Truncate(sequence.seq_id, 1 + self.below(sequence.num_tokens))

    def preempt(self) -> Command | None:
        sequence = self._one(self._placed("device"))
        return None if sequence is None else Preempt(sequence.seq_id)

    def swap_out(self) -> Command | None:
        sequence = self._one(self._placed("device"))
        return None if sequence is None else SwapOut(sequence.seq_id)

    def swap_in(self) -> Command | None:
        sequence = self._one(self._placed("host"))
        return None if sequence is None else SwapIn(sequence.seq_id)

    def finish(self) -> Command | None:
        """Mostly a running sequence, now and then one that has ended already."""
        ended = self.model.ended_ids
        if ended and self.below(8) == 0:
            return Finish(sorted(ended)[self.below(len(ended))])
        sequence = self._one(self._placed("device"))
        if sequence is None:
            return None
        self.prompts.remember(sequence.chain)
        return Finish(sequence.seq_id)

    def abort(self) -> Command | None:
        """Any sequence in any state, now and then one that was never admitted."""
        if self.below(8) == 0:
            return Abort(self.next_id + 1000)
        sequence = self._one(list(self._sequences()))
        return None if sequence is None else Abort(sequence.seq_id)

    def lookup_prefix(self) -> Command:
        return LookupPrefix(self.prompts.next())

    def load(self) -> Command | None:
        if len(self.model.sequences) >= MOST_SEQUENCES:
            return None
        chain = self.prompts.next()
        if len(chain.tokens) < 2:
            return None
        self.prompts.remember(chain)
        self.next_id += 1
        # At most what is not cached, and one token stays to be computed.
        cached = self.model.cached_prefix(self.model.new_sequence(-1, chain))
        most = len(chain.tokens) - cached - 1
        # Less than none is left where a profile with full hits has cached all of it.
        return Load(self.next_id - 1, chain, 1 + self.below(most)) if most > 0 else None

    def loaded(self) -> Command | None:
        sequence = self._one([s for s in self._sequences() if s.loading])
        return None if sequence is None else Loaded(sequence.seq_id)

    def reset(self) -> Command:
        return Reset()

    # What commands are made of.

    def _placed(self, place: str) -> list[SequenceState]:
        return [s for s in self._sequences() if s.place == place]

    def _complete(self) -> list[SequenceState]:
        """Those that are computed to their last token."""
        return [
            s for s in self._sequences() if s.num_computed == s.num_tokens and not s.num_scheduled
        ]

    def _one(self, found: list[SequenceState]) -> SequenceState | None:
        return found[self.below(len(found))] if found else None

    def _chunk(self, num_tokens: int) -> int:
        """How much of a prompt is scheduled at once: all of it (0), or a part."""
        if not self._chunks or self.below(2) or num_tokens < 2:
            return 0
        return 1 + self.below(num_tokens)
