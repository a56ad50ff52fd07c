"""What the worker that is simulated for an engine does with recurrent states, step by step.

The tables say it, or the plan, or the engine itself once it is known which drafts were right: see
`state_moves` in `contract/engine_profile.py`. What cannot be done is reported; whether it is right
is for the oracle to say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from poolproof.contract.engine_plan import PlannedPart
from poolproof.contract.engine_target import ENGINE_STATES
from poolproof.contract.state_use import StateUse, StateUseError, uses_by_request
from poolproof.contract.violation import Violation, ViolationError
from poolproof.harness.target_call import crash
from poolproof.invariants.engine_plans import (
    part_can_leave_states,
    part_tells_states,
    unreadable_answer,
)
from poolproof.reference.engine_model import EngineModel, Executed
from poolproof.reference.recurrent_states import uses_by_table

__all__ = ["StateUses", "Uses", "first_read"]

Uses = dict[int, tuple[StateUse, ...]]
"""By request, what a step does with its states."""


class StateUses:
    """Follows what `target` says of states; `report` is given what is wrong with it, or None."""

    def __init__(
        self, target: Any, model: EngineModel, report: Callable[[Violation | None], None]
    ) -> None:
        self._target = target
        self._model = model
        self._profile = model.profile
        self._report = report
        self._has_states = model.profile.has_states
        self._tells_late = self._profile.state_moves == "told" and callable(
            getattr(target, ENGINE_STATES, None)
        )

    def judge_plan(self, part: PlannedPart) -> None:
        """Where the plan says it: is it complete, and possible?"""
        if self._has_states and not self._tells_late:
            self._judge(part, part.first, part.states)

    def of_step(self, executed: Sequence[Executed]) -> Uses:
        """What the oldest step does with states, now that it is carried out."""
        if not self._has_states:
            return {}
        if self._tells_late:
            return self._told_late(executed)
        return {e.part.request_id: self._of_plan(e) for e in executed}

    def _of_plan(self, executed: Executed) -> tuple[StateUse, ...]:
        part, profile = executed.part, self._profile
        if profile.state_moves == "told":
            return tuple(use.shifted(part.first - executed.first) for use in part.states)
        return uses_by_table(
            profile.groups,
            self._model.block_sizes,
            part.blocks,
            executed.first,
            part.count,
            every_block=profile.states == "every-block",
        )

    def _told_late(self, executed: Sequence[Executed]) -> Uses:
        """What the engine says, once the worker knows which drafts were right.

        Of a request that has ended it need not say anything: then nothing is left of it.
        """
        accepted = {e.part.request_id: len(e.sampled) for e in executed}
        call = f"{ENGINE_STATES}({accepted})"
        try:
            answer = getattr(self._target, ENGINE_STATES)(accepted)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(call, error)) from error
        try:
            told = uses_by_request(answer)
        except StateUseError as error:
            raise ViolationError(unreadable_answer(call, str(error))) from error
        uses = {}
        for e in executed:
            mine = told.get(e.part.request_id, ())
            if not mine and not e.is_read:
                mine = self._nothing()
            self._judge(e.part, e.first, mine)
            uses[e.part.request_id] = mine
        return uses

    def _nothing(self) -> tuple[StateUse, ...]:
        groups = enumerate(self._profile.groups)
        return tuple(StateUse(number, None) for number, group in groups if group.is_state)

    def _judge(self, part: PlannedPart, first: int, uses: tuple[StateUse, ...]) -> None:
        model, profile = self._model, self._profile
        self._report(part_tells_states(part, uses, profile, model.num_blocks))
        self._report(part_can_leave_states(part, first, uses, profile, model.block_sizes))


def first_read(
    executed: Executed, model: EngineModel, blocks: Collection[int], uses: Sequence[StateUse]
) -> int | None:
    """The first position before those computed now of which something stands in these blocks."""
    groups = zip(executed.part.blocks, model.profile.groups, model.block_sizes, strict=True)
    starts = [
        entry * size
        for table, group, size in groups
        for entry, block in enumerate(table)
        if block in blocks and not group.is_state
    ]
    if any(block in blocks for use in uses for block in use.reads()):
        starts.append(max(0, executed.first - 1))
    first = min(starts, default=executed.first)
    return first if first < executed.first else None
