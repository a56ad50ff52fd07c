"""Engines that go wrong in one way each; `reference/native_engine.py` is what is right."""

# The names say what each does.
# ruff: noqa: D101

from __future__ import annotations

from typing import Any, ClassVar

from poolproof.contract.engine_profile import EngineProfile
from poolproof.reference.native_engine import NativePlainEngine

Outputs = list[tuple[int, list[int], bool]]


class _Plain(NativePlainEngine):
    """Keeps the limits of a class that declares no rows."""

    profile: ClassVar[dict[str, Any]] = {}  # type: ignore[misc, assignment]  # as it is declared

    def __init__(self, num_blocks: int, block_size: int, *, enable_caching: bool = True) -> None:
        limits = EngineProfile()
        super().__init__(num_blocks, block_size, enable_caching=enable_caching, profile=limits)


class Right(_Plain):
    pass


class KeepsABlock(_Plain):
    def _let_go(self) -> None:
        for request in self._running:
            if request.has_ended and not request.is_in_flight and request.tables[0]:
                request.tables[0].pop()
        super()._let_go()


class NamesAnothersBlock(_Plain):
    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        for part in plan["compute"]:
            part["blocks"][0][0] = plan["compute"][0]["blocks"][0][0]
        return plan


class GivesTwice(_Plain):
    def answer(self, tokens: Any, drafts: Any, /) -> Outputs:
        outputs = super().answer(tokens, drafts)
        return [(n, [*due, due[-1]] if end else due, end) for n, due, end in outputs]


class NeverAdmits(_Plain):
    def _admit(self) -> None:
        pass


class ComputesTooMuch(_Plain):
    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        for part in plan["compute"]:
            part["count"] += 1
        return plan


class SaysNothing(_Plain):
    def plan(self) -> Any:
        super().plan()


class CannotCancel(_Plain):
    cancel = None  # type: ignore[assignment]  # hidden


class Half(_Plain):
    answer = None  # type: ignore[assignment]  # hidden


class WrongRow(_Plain):
    profile: ClassVar[dict[str, Any]] = {"policy": "lottery"}
