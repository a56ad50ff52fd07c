"""Managers that go wrong in one way each; `bugs/clean_manager.py` is what is right."""

# The names say what each does, and a signature is the contract's even where it is not used.
# ruff: noqa: D101, ARG002

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.manager_profile import ManagerProfile


class Good(CleanManager):
    profile: ClassVar[dict[str, Any]] = {"eviction": "lru"}


class BlackBox(Good):
    num_free = free_order = ref_count = is_cached = None  # type: ignore[assignment]  # hidden


class KeepsStaleKeys(Good):
    """Finds a block that was handed out again by its old key."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lru", "index": "exact"}

    def __init__(self, num_blocks: int, block_size: int, **named: Any) -> None:
        super().__init__(num_blocks, block_size, **named)
        pool, allocate = self.pool, self.pool.allocate

        def allocate_and_keep(n: int) -> list[int]:
            keys = {block: pool.block_hash(block) for block in range(num_blocks)}
            taken = allocate(n)
            for block in taken:
                key = keys[block]
                if key is not None:
                    pool.cache([block], [key])
            return taken

        pool.allocate = allocate_and_keep  # type: ignore[method-assign]  # that is the bug


class StaleBlackBox(KeepsStaleKeys):
    num_free = free_order = ref_count = is_cached = None  # type: ignore[assignment]  # hidden


class ReusesNewestFirst(Good):
    """Its rows say lifo, its pool keeps another order."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lifo"}

    def __init__(self, num_blocks: int, block_size: int, **named: Any) -> None:
        super().__init__(num_blocks, block_size, rules=ManagerProfile(), **named)


class Dies(Good):
    def finish(self, seq_id: int) -> None:
        os._exit(7)


class Hangs(Good):
    def finish(self, seq_id: int) -> None:
        time.sleep(60)


class CannotBeBuilt(Good):
    def __init__(self, num_blocks: int, block_size: int, **named: Any) -> None:
        raise ZeroDivisionError("no blocks today")


class DiesWhenBuilt(Good):
    def __init__(self, num_blocks: int, block_size: int, **named: Any) -> None:
        os._exit(9)


class ShowsNonsense(Good):
    def block_table(self, seq_id: int, group: int = 0) -> Any:
        raise KeyError(seq_id)

    def free_order(self) -> Any:
        return ["first", "second"]


class AnswersNonsense(Good):
    def append(self, seq_id: int, tokens: list[int]) -> Any:
        return 3.5


class LacksStep(Good):
    step = None  # type: ignore[assignment]  # a method that is missing
