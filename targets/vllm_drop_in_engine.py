"""The built-in target `vllm-drop-in`: vLLM's schedulers over Poolproof's manager.

The set-ups are those of `vllm-engine`. One in which vLLM's own manager would stay is named, with
the reason.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.engine_target import engine_target
from poolproof.targets.installed_vllm import import_of_vllm, version_of_vllm
from poolproof.targets.target import EngineLayout, Target
from poolproof.targets.vllm_engine import vllm_engine_layout
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import SETUPS, EngineSetup

__all__ = ["DropInParts", "installed_vllm_drop_in", "vllm_drop_in_layouts"]

_DROP_IN = "poolproof.impl.vllm_drop_in"


class DropInParts(SchedulerParts):
    """Builds vLLM's schedulers with our manager under them."""

    def __init__(self, setup: EngineSetup) -> None:
        super().__init__(setup)
        drop_in = importlib.import_module(_DROP_IN)
        self._manager = drop_in.DropInManager
        self._reason_not_used = drop_in.reason_not_used
        self.scheduler_class = (
            drop_in.DropInAsyncScheduler if setup.is_async else drop_in.DropInScheduler
        )

    def make_scheduler(self, num_blocks: int, *, enable_caching: bool) -> Any:
        """A scheduler of its own. Raises TargetError where vLLM's manager would stay."""
        scheduler = super().make_scheduler(num_blocks, enable_caching=enable_caching)
        if not isinstance(scheduler.kv_cache_manager, self._manager):
            raise TargetError(
                f"vllm-drop-in: in the set-up {self.setup.name} vLLM's own manager stays: "
                f"{self._reason_not_used(scheduler)}"
            )
        return scheduler


def vllm_drop_in_layouts() -> list[EngineLayout]:
    """Every set-up without a connector. Raises TargetError where vLLM is none that is known."""
    return [vllm_engine_layout(setup, DropInParts(setup)) for setup in SETUPS]


def installed_vllm_drop_in(name: str, declared: Mapping[str, Any]) -> Target:
    """Poolproof's manager under the schedulers of the installed vLLM.

    Raises TargetError where it cannot be imported, and for rows.
    """
    import_of_vllm("vllm.v1.core.sched.scheduler", "Scheduler")
    drop_in = importlib.import_module(_DROP_IN)
    return engine_target(
        name,
        declared,
        vllm_drop_in_layouts(),
        drop_in.DropInManager,
        version=version_of_vllm(),
        own_modules=(_DROP_IN, "poolproof.impl.kv_cache_manager"),
    )
