"""The grammar of manager workloads: the next command, chosen from what is legal now.

Tuned to what found real bugs: tiny pools that are nearly full, two token symbols, prompts that
begin as an earlier one did or hold its blocks under another parent, lengths at, below and above a
block's end, the same tokens under another adapter, salt or image, and ends in every state. A run
turns from one subject to another, and plays a short script after a fork, a cut, a draft or a load
(`manager_weights.py`).

The grammar also chooses the arguments of commands: which sequence, which prompt, how much.
`manager_prompts.py` makes prompts that are related only to one another.
"""

from __future__ import annotations

from collections.abc import Callable

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import TokenChain
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
from poolproof.reference.manager_legality import as_told, undefined_for_manager
from poolproof.reference.recurrent_states import has_state
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["ManagerWorkload"]


MOST_SEQUENCES = 5

_ALWAYS_LEGAL = frozenset({Admit, LookupPrefix, Reset})
"""As they are made here: a new sequence, at least one token; not where rows have a width."""

_PART_OF = {"abort_loading": "abort", "lookup_other": "lookup_prefix"}
"""The verb behind what only scripts ask for."""


class ManagerWorkload:
    """Chooses commands for one run; `model` is the state that they refer to."""

    def __init__(
        self, choices: Choices, model: SequenceModel, can: Capabilities, num_symbols: int = 2
    ) -> None:
        self.below = choices.below
        self.model = model
        self.can = can
        # What is looked up behind a window has to be longer than it; a ring has no cache.
        self.is_windowed = model.profile.publishes != "never" and any(
            group.is_sliding for group in model.groups
        )
        self.prompts = ManagerPrompts(
            choices, model.block_size, num_symbols, are_long=self.is_windowed
        )
        self.waiting: Admit | None = None
        self.forked: tuple[int, ...] = ()
        self._sequences = model.sequences.values
        self._chunks = "schedule" in can.verbs
        rows = model.profile
        self._stops_for_hits = (
            self._chunks
            and rows.proof_blocks > 0
            and rows.states == "step-end"
            and has_state(rows.groups)
        )
        self.next_id = 0
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
            "lookup_other": self.lookup_other,
        }
        self.verbs = tuple(verb for verb in self.makers if verb in can.verbs)
        self._subjects = tuned.subjects(
            is_cached=model.enable_caching,
            is_windowed=self.is_windowed,
            is_looked_up="lookup_prefix" in can.verbs,
        )
        self._always_legal: frozenset[type[Command]] = (
            frozenset() if model.profile.max_tokens else _ALWAYS_LEGAL
        )
        self._script: list[str] = []
        self._urn: tuple[str, ...] = ()
        self.set_weights({})

    def set_weights(self, weights: dict[str, int]) -> None:
        """Each verb as often as its weight says, those not named as usual."""
        self._urn = tuned.urn(self.verbs, tuple(weights.items()))

    def bias(self) -> None:
        """Turn to another subject; a run does so every few commands."""
        subject = self._subjects[self.below(len(self._subjects))]
        self.prompts.be_usual()
        if subject == "one verb":
            self.set_weights({self.verbs[self.below(len(self.verbs))]: 30})
        elif subject in {"adapters", "images"}:
            self.prompts.vary_keys(of_images=subject == "images")
            self.set_weights(tuned.IDENTITY)
        elif subject == "usual blocks":
            self.prompts.only_usual_blocks = True
            self.set_weights(tuned.CHURN)
        elif subject == "family" and "fork" in self.can.verbs:
            self.set_weights(tuned.FAMILY)
        else:
            self.set_weights(tuned.LONG if self.is_windowed else {})

    def seek_collisions(self) -> None:
        """The same blocks in every order, looked up again and again: for hashes that collide."""
        self.prompts.only_usual_blocks = True
        self.set_weights(tuned.COLLIDING)

    def next(self) -> Command:
        """The next legal command: of a script, or one that is drawn."""
        script, makers, model = self._script, self.makers, self.model
        while script:
            command = makers[script.pop()]()
            if command is not None and undefined_for_manager(model, command) is None:
                return command
        below, urn, size = self.below, self._urn, len(self._urn)
        always_legal = self._always_legal
        for _ in range(12):
            command = makers[urn[below(size)]]()
            if command is None:
                continue
            if type(command) in always_legal or undefined_for_manager(model, command) is None:
                return command
        waiting = [s for s in model.sequences.values() if s.drafts_computed]
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
        if (put_off := self._put_off()) is not None:
            return put_off
        prompts, is_whole = self.prompts, True
        if prompts.variants and self.below(4):
            chain = prompts.variant()
            self._follow(tuned.AFTER_VARIANT)
        elif self.is_windowed and prompts.earlier and self.below(4):
            chain = self._again()
            self._follow(tuned.AFTER_LONG)
        elif self.below(8) < 5:
            is_whole = self.below(2) == 0
            chain = self._filling()
        else:
            is_whole = False
            chain = prompts.next()
        prompts.remember(chain)
        self.next_id += 1
        num_tokens = 0 if is_whole and not self._stops_for_hits else self._head(len(chain.tokens))
        self.waiting = Admit(self.next_id - 1, chain, num_tokens)
        return self.waiting

    def resume(self) -> Command | None:
        sequence = self._one(self._placed("nowhere"))
        if sequence is None:
            return None
        return Resume(sequence.seq_id, self._head(sequence.num_tokens))

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
        if len(found) > 1:
            found = [s for s in found if not s.num_scheduled] or found
        sequence = self._rather_forked(found)
        if sequence is None:
            return None
        count = 1 if self.below(3) else 1 + self.below(self.model.block_size)
        return as_told(self.model, AppendTokens(sequence.seq_id, self.prompts.tokens(count)))

    def step(self) -> Command | None:
        """Rarely a step without effect."""
        for sequence in self._sequences():
            if sequence.num_scheduled:
                return Step()
        return Step() if self.below(8) == 0 else None

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
        self._follow(tuned.AFTER_DRAFT)
        most = self.model.block_size + 1
        if has_state(self.model.groups):
            most = min(most, self.model.profile.state_blocks or most)
        count = self._rather_all(most)
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
        self._follow(tuned.AFTER_FORK)
        self.next_id += 1
        return Fork(sequence.seq_id, self.next_id - 1)

    def truncate(self) -> Command | None:
        sequence = self._rather_forked(self._complete())
        if sequence is None:
            return None
        self.prompts.remember(sequence.chain)
        self._follow(tuned.AFTER_CUT)
        return Truncate(sequence.seq_id, 1 + self.below(sequence.num_tokens))

    def preempt(self) -> Command | None:
        sequence = self._rather_forked(self._placed("device"))
        if sequence is None:
            return None
        self._follow(tuned.AFTER_PREEMPTION)
        return Preempt(sequence.seq_id)

    def swap_out(self) -> Command | None:
        sequence = self._rather_forked(self._placed("device"))
        return None if sequence is None else SwapOut(sequence.seq_id)

    def swap_in(self) -> Command | None:
        sequence = self._one(self._placed("host"))
        return None if sequence is None else SwapIn(sequence.seq_id)

    def finish(self) -> Command | None:
        """Mostly a running sequence, now and then one that has ended already."""
        if self.next_id and self.below(3) == 0:
            seq_id = self.below(self.next_id)
            if seq_id in self.model.ended_ids:
                return Finish(seq_id)
        sequence = self._one(self._placed("device"))
        if sequence is None:
            return None
        self.prompts.remember(sequence.chain)
        return Finish(sequence.seq_id)

    def abort(self) -> Command | None:
        """Any sequence in any state, now and then one that was never admitted."""
        if self.below(4) == 0:
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
        # Behind a window only what is asked for again can be found too seldom.
        is_other = kind == 3 if self.is_windowed else kind
        sequence = None if is_other else self._one(list(self._sequences()))
        if sequence is None:
            return LookupPrefix(self.prompts.next())
        return LookupPrefix(self.prompts.remember(sequence.chain))

    def lookup_other(self) -> Command:
        """The prompt that was admitted last, under other keys."""
        assert self.waiting is not None, "only a script asks, and that follows an admission"
        return LookupPrefix(self.prompts.with_other_keys(self.waiting.chain))

    def load(self) -> Command | None:
        if len(self.model.sequences) >= MOST_SEQUENCES:
            return None
        chain = self._to_load()
        if len(chain.tokens) < 2:
            return None
        self.next_id += 1
        # At most what is not cached, and one token stays to be computed.
        cached = self.model.cached_prefix(self.model.new_sequence(-1, chain))
        most = len(chain.tokens) - cached - 1
        if most <= 0:
            return None
        self._follow(tuned.AFTER_LOAD)
        return Load(self.next_id - 1, chain, self._rather_all(most))

    def loaded(self) -> Command | None:
        sequence = self._one([s for s in self._sequences() if s.loading])
        return None if sequence is None else Loaded(sequence.seq_id)

    def reset(self) -> Command | None:
        """Mostly when no block is held, so that it is not refused."""
        return None if self.model.sequences and not self.below(3) else Reset()

    # What comes next.

    def _follow(self, scripts: tuple[tuple[str, ...], ...]) -> None:
        """One of these comes next, as far as it is legal then; never in the middle of another."""
        if not self._script:
            can = self.can.verbs
            script = scripts[self.below(len(scripts))]
            self._script = [verb for verb in reversed(script) if _PART_OF.get(verb, verb) in can]

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
        if self.forked and len(found) > 1 and self.below(4):
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

    def _head(self, num_tokens: int) -> int:
        """How much of a prompt is scheduled at first: up to where its hits end, or any part.

        Where a step leaves one state and a block has to prove a hit, schedulers stop there. Hits
        would be rare otherwise.
        """
        if self._stops_for_hits and self.below(2):
            return self.model.longest_hit(num_tokens)
        return self._chunk(num_tokens)

    def _put_off(self) -> Admit | None:
        """Now and then the request that was put off last, as engines ask again (vllm#18957)."""
        waiting, model = self.waiting, self.model
        if waiting is None or waiting.seq_id in model.sequences:
            return None
        if waiting.seq_id in model.ended_ids or self.below(3):
            return None
        return Admit(waiting.seq_id, waiting.chain, self._head(len(waiting.chain.tokens)))

    def _filling(self) -> TokenChain:
        """A prompt that just fits into the free blocks, or just does not, where few are free."""
        pool, groups = self.model.pool, len(self.model.groups)
        return self.prompts.fitting(len(pool.free), pool.num_blocks - 1, groups)

    def _again(self) -> TokenChain:
        """Whole blocks of an earlier prompt and what just fits behind them, or just does not."""
        prompts, model, size = self.prompts, self.model, self.model.block_size
        earlier = prompts.a_late_one()
        kept = min(len(earlier.tokens) // size, 6) * size
        chain = prompts.cut(earlier, kept, 1)
        sequence = model.new_sequence(-1, chain)
        cached = model.cached_prefix(sequence)
        sequence.num_computed, sequence.num_scheduled = cached, kept + 1 - cached
        spare = len(model.pool.free) - model.most_blocks_needed(sequence, cached)
        num_blocks = spare // len(model.groups) + (self.below(4) == 0)
        # The last block holds one token, or is full.
        more = num_blocks * size + self.below(2) * (size - 1)
        return prompts.cut(chain, kept + 1, more) if more > 0 else chain

    def _to_load(self) -> TokenChain:
        """A prompt of which some is likely to be cached already."""
        prompts = self.prompts
        return prompts.remember(prompts.longer() if self.below(2) else prompts.next())
