"""The plainest engine, broken in four ways: planted bugs under any profile of an engine."""

from __future__ import annotations

from typing import Any

from poolproof.reference.native_engine import NativePlainEngine

__all__ = ["BROKEN_ENGINES", "NEEDS"]


class _EndKeepsBlocks(NativePlainEngine):
    """A request that has ended gives one block less back than it had."""

    def _let_go(self) -> None:
        for request in self._running:
            if request.has_ended and not request.is_in_flight and request.tables[0]:
                request.tables[0].pop()
        super()._let_go()


class _NamesAnothersBlock(NativePlainEngine):
    """The first block of a request is that of the oldest one."""

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        for part in plan["compute"]:
            part["blocks"][0][0] = plan["compute"][0]["blocks"][0][0]
        return plan


class _GivesTwice(NativePlainEngine):
    """The last token of a request is given to its user twice."""

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]], /
    ) -> list[tuple[int, list[int], bool]]:
        outputs = super().answer(tokens, drafts)
        return [(number, [*due, due[-1]] if end else due, end) for number, due, end in outputs]


class _ForgetsARequest(NativePlainEngine):
    """Who waits while another one is cancelled is never admitted."""

    def cancel(self, request_id: int) -> None:
        super().cancel(request_id)
        self._waiting.clear()


BROKEN_ENGINES: dict[str, type[NativePlainEngine]] = {
    "an end that keeps a block": _EndKeepsBlocks,
    "a table that names a block of another": _NamesAnothersBlock,
    "a token that is given twice": _GivesTwice,
    "a request that is forgotten": _ForgetsARequest,
}
"""The classes by what is wrong with them; each is called as `NativePlainEngine` is."""

NEEDS = {"a request that is forgotten": "cancel"}
"""What a target must be able to do for the mistake to show at all."""
