"""The grammar of manager workloads: the next command, chosen from what is legal now.

Tuned to what found real bugs: tiny pools that are nearly full, two token symbols, prompts that
begin as an earlier one did or hold its blocks under another parent, lengths at, below and above a
block's end, the same tokens under another adapter, salt or image, and ends in every state. What
matters is often what comes next: after a fork, a preemption or a load a few commands are drawn
that have to do with it (`manager_weights.py`).
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
from poolproof.harness import manager_weights as tuned
from poolproof.harness.choices import Choices
from poolproof.harness.manager_prompts import ManagerPrompts
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["ManagerWorkload"]

MOST_SEQUENCES = 5


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
        is_windowed = any(group.kind == "sliding" for group in model.groups)
        self.prompts = ManagerPrompts(choices, model.block_size, num_symbols, are_long=is_windowed)
        self.waiting: Admit | None = None
        self.forked: tuple[int, ...] = ()
        self._after: tuple[str, ...] = ()
        self._steps_after = 0
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
            "abort_loading": self.abort_loading,
        }
        self.verbs = tuple(verb for verb in self.makers if verb in can.verbs)
        self._chunks = "schedule" in can.verbs
        self._urn: tuple[str, ...] = ()
        self.set_weights({})

    def set_weights(self, weights: dict[str, int]) -> None:
        """Each verb as often as its weight says, those not named as usual."""
        self._urn = tuned.urn(self.verbs, tuple(weights.items()))

    def bias(self) -> None:
        """What comes next: the usual, one verb, or half the time prompts under other keys."""
        kind = self.below(16)
        self.prompts.be_usual()
        if kind == 0:
            self.set_weights({self.verbs[self.below(len(self.verbs))]: 30})
        elif kind & 1 or kind == 6:
            self.prompts.vary_keys()
            self.set_weights(tuned.IDENTITY)
        elif kind in {2, 10}:
            self.prompts.only_usual_blocks = True
            self.set_weights(tuned.IDENTITY)
        else:
            self.set_weights({})

    def seek_collisions(self) -> None:
        """The same blocks in every order, looked up again and again: for hashes that collide."""
        self.prompts.only_usual_blocks = True
        self.set_weights(tuned.COLLIDING)

    def next(self) -> Command:
        """The next legal command."""
        below = self.below
        if self._steps_after:
            self._steps_after -= 1
            command = self.makers[self._after[below(len(self._after))]]()
            if command is not None and undefined_for_manager(self.model, command) is None:
                return command
        makers, urn, size = self.makers, self._urn, len(self._urn)
        for _ in range(12):
            command = makers[urn[below(size)]]()
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
        pool, is_fitted = self.model.pool, False
        if self.prompts.variants and self.below(5) < 2:
            chain = self.prompts.variant()
        elif is_fitted := self.below(8) < 5:
            groups = len(self.model.groups)
            chain = self.prompts.fitting(len(pool.free), pool.num_blocks - 1, groups)
        else:
            chain = self.prompts.next()
        self.prompts.remember(chain)
        self.next_id += 1
        num_tokens = 0 if is_fitted and self.below(2) else self._chunk(len(chain.tokens))
        self.waiting = Admit(self.next_id - 1, chain, num_tokens)
        return self.waiting

    def resume(self) -> Command | None:
        sequence = self._one(self._placed("nowhere"))
        if sequence is None:
            return None
        return Resume(sequence.seq_id, self._chunk(sequence.num_tokens))

    def append_tokens(self) -> Command | None:
        """Rather to a sequence that has nothing in the next step yet."""
        found = [
            s
            for s in self._sequences()
            if s.num_computed + s.num_scheduled == s.num_tokens
            and s.place == "device"
            and not s.loading
            and not s.num_drafts
        ]
        sequence = self._rather_forked([s for s in found if not s.num_scheduled] or found)
        if sequence is None:
            return None
        count = 1 if self.below(2) else 1 + self.below(self.model.block_size)
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
        if sequence is None:
            return None
        count = self._rather_all(self.model.block_size + 1)
        return Draft(sequence.seq_id, self.prompts.tokens(count))

    def accept(self) -> Command | None:
        sequence = self._one([s for s in self._sequences() if s.drafts_computed])
        if sequence is None:
            return None
        rejected = self._rather_all(sequence.num_drafts + 1) - 1
        return Accept(sequence.seq_id, sequence.num_drafts - rejected)

    def fork(self) -> Command | None:
        if len(self.model.sequences) >= MOST_SEQUENCES:
            return None
        sequence = self._one(self._complete())
        if sequence is None:
            return None
        self.forked = (sequence.seq_id, self.next_id)
        self._follow(tuned.AFTER_FORK, 7)
        self.next_id += 1
        return Fork(sequence.seq_id, self.next_id - 1)

    def truncate(self) -> Command | None:
        sequence = self._rather_forked(self._complete())
        if sequence is None:
            return None
        self.prompts.remember(sequence.chain)
        return Truncate(sequence.seq_id, 1 + self.below(sequence.num_tokens))

    def preempt(self) -> Command | None:
        sequence = self._rather_forked(self._placed("device"))
        if sequence is None:
            return None
        self._follow(tuned.AFTER_PREEMPTION, 2)
        return Preempt(sequence.seq_id)

    def swap_out(self) -> Command | None:
        sequence = self._rather_forked(self._placed("device"))
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

    def abort_loading(self) -> Command | None:
        """A sequence whose transfer still runs."""
        sequence = self._one([s for s in self._sequences() if s.loading])
        return None if sequence is None else Abort(sequence.seq_id)

    def lookup_prefix(self) -> Command:
        """A prompt under other keys where this run is about them, or what a sequence has become."""
        kind = self.below(4)
        if kind and self.prompts.variants:
            return LookupPrefix(self.prompts.variant())
        sequence = None if kind else self._one(list(self._sequences()))
        if sequence is None:
            return LookupPrefix(self.prompts.next())
        return LookupPrefix(self.prompts.remember(sequence.chain))

    def load(self) -> Command | None:
        if len(self.model.sequences) >= MOST_SEQUENCES:
            return None
        chain = self.prompts.remember(self.prompts.next())
        if len(chain.tokens) < 2:
            return None
        self.next_id += 1
        # At most what is not cached, and one token stays to be computed.
        cached = self.model.cached_prefix(self.model.new_sequence(-1, chain))
        most = len(chain.tokens) - cached - 1
        if not most:
            return None
        self._follow(tuned.AFTER_LOAD, 2)
        return Load(self.next_id - 1, chain, self._rather_all(most))

    def loaded(self) -> Command | None:
        sequence = self._one([s for s in self._sequences() if s.loading])
        return None if sequence is None else Loaded(sequence.seq_id)

    def reset(self) -> Command | None:
        """Mostly when nobody holds a block, so that it is not refused."""
        return None if self.model.sequences and self.below(4) else Reset()

    # What commands are made of.

    def _follow(self, verbs: tuple[str, ...], count: int) -> None:
        """Draw the next `count` commands from these, where one of them is legal."""
        can = self.can.verbs
        self._after = tuple([verb for verb in verbs if verb.removesuffix("_loading") in can])
        self._steps_after = count

    def _placed(self, place: str) -> list[SequenceState]:
        return [s for s in self._sequences() if s.place == place]

    def _complete(self) -> list[SequenceState]:
        """Those that are computed to their last token."""
        return [
            s for s in self._sequences() if s.num_computed == s.num_tokens and not s.num_scheduled
        ]

    def _one(self, found: list[SequenceState]) -> SequenceState | None:
        return found[self.below(len(found))] if found else None

    def _rather_forked(self, found: list[SequenceState]) -> SequenceState | None:
        """Mostly one of the last fork, where it is among them."""
        if self.forked and self.below(4):
            found = [s for s in found if s.seq_id in self.forked] or found
        return self._one(found)

    def _rather_all(self, most: int) -> int:
        """From 1 up to `most`, and half the time just that."""
        return most if self.below(2) else 1 + self.below(most)

    def _chunk(self, num_tokens: int) -> int:
        """How much of a prompt is scheduled at once: mostly all of it (0), or a part."""
        if not self._chunks or self.below(4) or num_tokens < 2:
            return 0
        return 1 + self.below(num_tokens)
