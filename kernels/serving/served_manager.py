"""A manager that a kernel is certified with: how it is built, and runs of it that were recorded.

Which managers there are is decided by whoever certifies: kernels know no allocator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.kernels.batch import PagedBatch
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.serving.manager_engine import ManagerEngine
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.serving.served_groups import why_not_served, windows_of
from poolproof.kernels.target import KernelTarget

__all__ = ["ServedManager"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedManager:
    """`make(num_blocks, block_size)` builds one; `block_size` None: of whatever size is asked for.

    `record(seed, block_size)` is a run of it that a campaign of the allocator's harness made.
    """

    name: str
    profile: ManagerProfile
    make: Callable[[int, int], Any]
    record: Callable[[int, int], Trace]
    block_size: int | None = None

    def fits(self, declared: Declaration) -> bool:
        """Whether a kernel with this declaration can serve it."""
        profile = self.profile
        has_window = any(windows_of(profile))
        sizes = {group.block_size for group in profile.groups} - {0}
        return (
            why_not_served(profile) is None
            and not sizes
            and (self.block_size is None or self.block_size in declared.block_sizes)
            and (not has_window or "sliding_window" in declared.features)
        )

    def engine(
        self,
        target: KernelTarget,
        num_blocks: int,
        block_size: int,
        model: TinyModel,
        watch: Callable[[PagedBatch], None] | None = None,
    ) -> ManagerEngine:
        """A fresh manager of so many blocks under an engine."""
        manager = self.make(num_blocks, block_size)
        return ManagerEngine(
            target, manager, self.profile, num_blocks, block_size, model, watch=watch
        )
