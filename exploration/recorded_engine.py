"""An engine session with a name for the state that it has reached, for searches that merge states.

Two states are merged if nothing can tell them apart from here on: the engine's own state, what the
model knows of requests and of what is in flight, what stands in shadow memory, and the counters of
progress. The engine's own state is known in one of three ways.

* It tells it (`poolproof_state()`, docs/engines.md), with the names of blocks, requests, places and
  transfers marked. Then they are numbered as they are met. That is sound for an engine to which a
  name means nothing but itself.
* It is what pickle writes. Nothing is replaced: states are merged only where all of it is the same.
* Neither: then no two states are the same, and nothing is merged.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from hashlib import blake2b
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.outside import shown
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Violation
from poolproof.exploration.recorded_session import contents_of
from poolproof.harness.engine_session import EngineSession
from poolproof.invariants.wording import sequence_name
from poolproof.reference.content_names import ContentNames
from poolproof.reference.engine_model import EngineRequest, PlannedStep

__all__ = ["RecordedEngine"]

_KINDS = frozenset({"block", "place", "transfer", "request"})


class RecordedEngine(EngineSession):
    """An engine session whose states can be told apart; `names` are shared by a whole search.

    `told_by` says how the last `state()` was known: "the engine", "pickle", or "" where no two
    states are the same.
    """

    def __init__(
        self,
        target: Any,
        profile: EngineProfile,
        num_blocks: int,
        block_size: int,
        names: ContentNames,
    ) -> None:
        super().__init__(target, profile, num_blocks, block_size)
        self._oracles = self._made_oracles(names)
        self.replaying = False
        self.is_exact = False
        self.told_by = ""
        self.last_command: Command | None = None

    def step_any(self, command: Command) -> Violation | None:
        self.last_command = command
        return super().step_any(command)

    def look(self) -> Violation | None:
        """What an engine at rest has lost is looked for after every step."""
        return None

    def state(self) -> Hashable:
        """The same for two sessions that need not both be continued."""
        told = self._told()
        self.is_exact = False
        self.told_by = "the engine"
        if told is None:
            told = contents_of(self.target)
            self.told_by = "" if told is None else "pickle"
            self.is_exact = told is not None
            if told is None:
                return object()
        names = _Names(self.profile.null_block)
        seen = repr((names.replaced(told), self._judged(names)))
        return blake2b(seen.encode(), digest_size=16).digest()

    def _told(self) -> Any:
        """What the engine tells of itself; None if it does not. Raises TargetError if it raises."""
        tell = getattr(self.target, "poolproof_state", None)
        if not callable(tell):
            return None
        try:
            return tell()
        except Exception as error:
            raise TargetError(
                f"poolproof_state() raised {type(error).__name__}: {shown(error)}; mend it, or "
                "leave it out"
            ) from error

    def _present(self) -> list[int]:
        """The requests that matter from here on: those that live, or that a step still computes."""
        model = self.model
        flying = {part.request_id for step in model.in_flight for part in step.plan.parts}
        return sorted({*model.live, *flying})

    def _judged(self, names: _Names) -> Any:
        """What the session judges by."""
        model = self.model
        requests = [self._of_request(model.requests[number], names) for number in self._present()]
        steps = [self._of_step(step, names) for step in model.in_flight]
        transfers = [
            (
                names.of("transfer", number), one.is_load, one.waits, one.rank,
                [names.of("block", b) for b in one.blocks],
                [names.of("place", p) for p in one.places],
            )
            for number, one in model.transfers.items()
        ]  # fmt: skip
        blocks = sorted(
            (str(names.of("block", block)), [oracle.held(block) for oracle in self._oracles])
            for block in names.in_order("block", range(model.num_blocks))
        )
        kept = [oracle.kept() for oracle in self._oracles]
        places = sorted(
            (str(names.of("place", place)), [held.get(place) for held in kept])
            for place in names.in_order("place", sorted(set().union(*kept)))
        )
        ended = [(names.of("transfer", t.transfer_id), is_done) for t, is_done in model.ended]
        if self.profile.notices == "once":  # Then nobody hears of them any more.
            ended = []
        progress = (self._num_empty, self._num_unserved, tuple(self._num_loads))
        if not model.live:  # The next request sets them to zero.
            progress = (self.num_idle_plans > 0, 0, ())
        return requests, steps, transfers, ended, blocks, places, progress

    def _of_request(self, request: EngineRequest, names: _Names) -> Any:
        tables = self._tables.get(request.request_id, ())
        return (
            names.of("request", request.request_id),
            request.chain.extra_keys(), request.max_new_tokens, request.priority,
            request.num_prompt_tokens, tuple(request.tokens), request.drafts, request.has_ended,
            request.num_preempted - request.worker_run, tuple(request.ungiven),
            tuple(tuple(names.of("block", b) for b in table) for table in tables),
            self._oracles[0].computed_of(sequence_name(request.request_id)),
        )  # fmt: skip

    def _of_step(self, step: PlannedStep, names: _Names) -> Any:
        runs = self.model.requests
        parts = [
            (
                names.of("request", part.request_id), part.first, part.count, part.num_drafts,
                [[names.of("block", b) for b in table] for table in part.blocks],
                step.assumed[part.request_id], step.samples.get(part.request_id),
                runs[part.request_id].num_preempted - step.runs[part.request_id],
                part.request_id in step.preempted,
            )
            for part in step.plan.parts
        ]  # fmt: skip
        copies = [tuple(names.of("block", b) for b in pair) for pair in step.plan.copies]
        # Those that follow the step are not in flight yet.
        moved = [
            (
                one.is_load, one.waits, one.fails, one.rank,
                None if one.waits else names.of("transfer", one.transfer_id),
                [names.of("block", b) for b in one.blocks],
                [names.of("place", p) for p in one.places],
            )
            for one in step.plan.transfers
            if one.waits or one.follows
        ]  # fmt: skip
        flushes = [names.of("transfer", number) for number in step.plan.flushes]
        zeroes = [names.of("block", block) for block in step.plan.zeroes]
        return parts, copies, moved, flushes, zeroes


class _Names:
    """New names, in the order of their mention; the null block keeps its part.

    Where an engine has marked no name, every name stays: any number might be one.
    """

    def __init__(self, null_block: int | None) -> None:
        self._new: dict[str, dict[int, Any]] = {kind: {} for kind in _KINDS}
        self._null_block = null_block
        self._has_marks = False

    def of(self, kind: str, number: int) -> Any:
        """The new name of one."""
        if not self._has_marks:
            return number
        if kind == "block" and number == self._null_block:
            return "null"
        known = self._new[kind]
        return known.setdefault(number, len(known))

    def in_order(self, kind: str, numbers: Sequence[int]) -> list[int]:
        """These names, those that were mentioned first."""
        known = self._new[kind]
        wanted = set(numbers)
        return [*(n for n in known if n in wanted), *(n for n in numbers if n not in known)]

    def replaced(self, told: Any) -> Any:
        """What an engine told, under the new names. Raises TargetError for what is not plain."""
        if type(told) is tuple or type(told) is list:
            if len(told) == 2 and type(told[0]) is str and told[0] in _KINDS:
                self._has_marks = True
                return self.of(told[0], told[1])
            return tuple([self.replaced(part) for part in told])
        if told is None or isinstance(told, (int, float, str, bytes)):
            return told
        raise TargetError(
            f"poolproof_state() tells {shown(told)}; it must be made of tuples of numbers, texts, "
            "bytes and None"
        )
