"""Correct oddities of engines with recurrent states: nobody may accuse them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from poolproof.bugs.clean_states import (
    AlignedStatesEngine,
    EarlyStateKeysEngine,
    RecomputingEngine,
    SeparateLoadsEngine,
    ShorterHitsEngine,
    ZeroedSlabsEngine,
)
from poolproof.bugs.engine_specimen import (
    HYBRID,
    HYBRID_ASYNC_DRAFTS,
    HYBRID_DRAFTS,
    HYBRID_LAST,
    HYBRID_STEP_END,
    HYBRID_TOLD,
    EngineOddity,
)
from poolproof.impl.engine import Engine, LiveRequest

__all__ = ["ENGINE_STATE_ODDITIES"]


class ExactBoundariesOnly(Engine):
    """Every chunk ends with a block, though the kernel could leave states on the way."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **{**arguments, "states_in_between": False})


class KeepsEveryOtherState(Engine):
    """A state is kept every two blocks; what was left at the others is forgotten."""

    def _keep(self, request: LiveRequest) -> None:
        super()._keep(request)
        tables = self.manager.get_block_ids(request.request_id)
        for group in self._state_groups:
            for entry, block in enumerate(tables[group.index] if request.is_running else ()):
                if entry % 2 == 0 and block:
                    self.manager.evict_blocks([block])


class TellsInThePlan(Engine):
    """Nothing is in flight when a step is planned, so the plan can say all of it."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self.states = None  # type: ignore[method-assign,assignment]  # nobody has to ask

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        for told, part in zip(plan["compute"], self._steps[-1].parts, strict=True):
            told["states"] = self._states_of(part, int(part.samples))
        return plan

    def answer(self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]) -> Any:
        for part in self._steps[0].parts:
            rejected = part.num_drafts + 1 - len(tokens.get(part.request.number, ()))
            if part.samples:
                part.states.num_computed += part.num_drafts - rejected
        return super().answer(tokens, drafts)


class StatesAlsoWhereNobodyLooks(Engine):
    """What nobody needs is copied into a block of scratch, before and after."""

    def states(self, accepted: Mapping[int, int]) -> dict[int, list[dict[str, Any]]]:
        told = super().states(accepted)
        parts = {part.request.number: part for part in self._steps[0].parts}
        for number, uses in told.items():
            for use in uses:
                scratch = parts[number].tables[use["group"]][-1]
                (_, last) = use["leaves"][-1]
                if use["starts"] != scratch and last != scratch:
                    use["before"] = [[last, scratch]] if use["starts"] is None else []
                    use["after"] = [[last, scratch]] if not parts[number].num_drafts else []
        return told


class StoresFewStates(Engine):
    """The host keeps all of attention, and the state at the end of every other block."""

    def _offered(self, first: int, end: int) -> list[tuple[int, int]]:
        states = {group.index for group in self._state_groups}
        offered = super()._offered(first, end)
        return [(group, entry) for group, entry in offered if entry % 2 or group not in states]


class StoresLastStates(Engine):
    """A request is stored once it is over: what is left of its states, the last ones."""

    def _keep(self, request: LiveRequest) -> None:
        kept, self.offloader = self.offloader, None
        super()._keep(request)
        self.offloader = kept

    def _end(self, request: LiveRequest) -> None:
        if self.offloader is not None and request.is_running and not request.is_loading:
            self._store(request, min(request.num_settled, request.num_tokens))
        super()._end(request)


_HOST = (HYBRID, HYBRID_TOLD, replace(HYBRID_STEP_END, policy="priority"), HYBRID_ASYNC_DRAFTS)
_ALL = (HYBRID, HYBRID_TOLD, HYBRID_STEP_END, HYBRID_DRAFTS, HYBRID_ASYNC_DRAFTS)

ENGINE_STATE_ODDITIES = (
    EngineOddity(
        "copy forward", "each start is its own state", AlignedStatesEngine,
        (HYBRID_TOLD, HYBRID_DRAFTS, HYBRID_ASYNC_DRAFTS),
    ),
    EngineOddity(
        "zeroed slabs", "zero is where it starts", ZeroedSlabsEngine,
        (HYBRID_TOLD, HYBRID_DRAFTS, HYBRID_ASYNC_DRAFTS),
    ),
    EngineOddity("exact boundaries only", "a chunk may be shorter", ExactBoundariesOnly, _ALL),
    EngineOddity("every other state", "a cache may keep less", KeepsEveryOtherState, _ALL),
    EngineOddity("last block of states again", "a hit may be shorter", ShorterHitsEngine, _ALL),
    EngineOddity(
        "recomputes", "it starts from an earlier state", RecomputingEngine,
        (HYBRID_LAST, replace(HYBRID_LAST, policy="priority")),
    ),
    EngineOddity(
        "early keys of states", "steps keep their order", EarlyStateKeysEngine,
        (HYBRID, replace(HYBRID, policy="priority", max_batch_tokens=10)),
    ),
    EngineOddity(
        "tells in the plan", "nothing is in flight", TellsInThePlan, (HYBRID_TOLD, HYBRID_DRAFTS)
    ),
    EngineOddity(
        "idle copies", "nobody starts from them", StatesAlsoWhereNobodyLooks,
        (HYBRID_DRAFTS, HYBRID_ASYNC_DRAFTS),
    ),
    EngineOddity("separate loads", "both are waited for", SeparateLoadsEngine, _HOST, 9),
    EngineOddity("few states on the host", "a hit may be shorter", StoresFewStates, _HOST, 9),
    EngineOddity("stored at the end", "states that are left are right", StoresLastStates, _HOST, 9),
)  # fmt: skip
