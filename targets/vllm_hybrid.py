"""Drives vLLM V1 with recurrent layers: its scheduler, and its worker's own bookkeeping below.

Which state a request starts from is decided by the worker (`vllm_hybrid_worker.py`, and
`vllm_second_worker.py` for the second runner), when it knows what was accepted. So a step is
carried out by the worker when it is answered: `states` says what that did. The blocks of attention
follow the scheduler's tables as in `vllm_engine.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from poolproof.contract.state_use import StateUse
from poolproof.contract.target import TargetError
from poolproof.targets.engine_target import engine_target
from poolproof.targets.installed_vllm import import_of_vllm, version_of_vllm
from poolproof.targets.target import EngineLayout, Target
from poolproof.targets.vllm_engine import VllmEngine
from poolproof.targets.vllm_engine_setups import BLOCK_SIZE
from poolproof.targets.vllm_hybrid_parts import HybridParts
from poolproof.targets.vllm_hybrid_setups import HYBRID_SETUPS, HybridSetup

__all__ = [
    "OWN_MODULES",
    "VllmHybridEngine",
    "installed_vllm_hybrid",
    "vllm_hybrid_layouts",
]

OWN_MODULES = (
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.core.sched.async_scheduler",
    "vllm.v1.worker.mamba_utils",
    "vllm.v1.worker.gpu.model_runner",
    "vllm.v1.worker.gpu.model_states.mamba_hybrid",
)


class VllmHybridEngine(VllmEngine):
    """A scheduler and a worker; the worker carries out what the scheduler has planned."""

    _parts: HybridParts

    def __init__(self, parts: HybridParts, num_blocks: int, *, enable_caching: bool) -> None:
        scheduler, self.worker = parts.make_pair(num_blocks, enable_caching=enable_caching)
        super().__init__(parts, num_blocks, enable_caching=enable_caching, scheduler=scheduler)

    def _next_drafts(self, ids: list[str], drafts: dict[int, list[int]]) -> Any:
        """The second runner says itself how many there are, and keeps them on the device."""
        setup = self._parts.setup
        if setup.is_second_runner and not setup.cuts_drafts:
            return self.worker.runner.take_draft_token_ids()
        return super()._next_drafts(ids, drafts)

    def states(self, accepted: Mapping[int, int]) -> dict[int, list[StateUse]]:
        """Carry out the oldest step, in which requests have got so many tokens."""
        by_name = {str(request_id): number for request_id, number in accepted.items()}
        uses = self.worker.step(self._in_flight[0], by_name)
        return {int(name): used for name, used in uses.items()}


def vllm_hybrid_layouts(setups: tuple[HybridSetup, ...] = HYBRID_SETUPS) -> list[EngineLayout]:
    """The set-ups of the installed vLLM. Raises TargetError where it is none that is known."""
    return [
        EngineLayout(setup.name, setup.profile(), partial(_made, HybridParts(setup)), BLOCK_SIZE)
        for setup in setups
    ]


def _made(parts: HybridParts, num_blocks: int, enable_caching: bool, /) -> VllmHybridEngine:
    return VllmHybridEngine(parts, num_blocks, enable_caching=enable_caching)


def _left_out(setup: HybridSetup) -> str | None:
    """Why a release has no such set-up: it has other parts, or vLLM itself refuses it."""
    if not setup.is_second_runner:
        return None
    try:
        return HybridParts(setup).refused()
    except TargetError as error:
        return str(error)


def installed_vllm_hybrid(name: str, declared: Mapping[str, Any]) -> Target:
    """The real schedulers and workers. Raises TargetError where vLLM lacks a part, or for rows.

    Where the second runner of a release cannot have a set-up, a note says why it is left out.
    """
    scheduler = import_of_vllm("vllm.v1.core.sched.scheduler", "Scheduler")
    why = {setup.name: _left_out(setup) for setup in HYBRID_SETUPS}
    setups = tuple(setup for setup in HYBRID_SETUPS if why[setup.name] is None)
    notes = [f"{setup} is left out: {said}" for setup, said in why.items() if said is not None]
    return engine_target(
        name,
        declared,
        vllm_hybrid_layouts(setups),
        scheduler,
        version=version_of_vllm(),
        own_modules=OWN_MODULES,
        notes=notes,
    )
