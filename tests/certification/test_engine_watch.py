"""What an engine did, told in words: whatever it plans, each entry is named for what it is."""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.certification.engine_watch import watch_engine
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import PlanStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.trace import Trace


class Planner:
    """An engine that plans these positions of request 0, and so many drafts."""

    def __init__(self, first: int, count: int, drafts: int) -> None:
        self._entry = {"request": 0, "first": first, "count": count, "drafts": drafts}

    def submit(self, request_id: int, tokens: list[int], **named: Any) -> None:
        pass

    def plan(self) -> dict[str, Any]:
        return {"compute": [{**self._entry, "blocks": [[0]]}]}

    def answer(self, tokens: Any, drafts: Any, /) -> list[Any]:
        return []


@pytest.mark.parametrize(
    ("first", "count", "drafts", "words"),
    [
        (0, 4, 0, "computes A 0-3"),
        (3, 1, 0, "computes A 3"),
        (3, 2, 1, "computes A 3-4 (1 draft)"),
        (3, 3, 2, "computes A 3-5 (2 drafts)"),
        (0, 0, 0, "computes nothing of A"),
        (4, 0, 0, "computes nothing of A"),
        (0, -2, 1, "computes nothing of A"),
    ],
)
def test_positions_are_named_only_where_there_are_some(
    first: int, count: int, drafts: int, words: str
) -> None:
    commands = (Submit(0, TokenChain((1, 2, 3, 4)), 1, 0), PlanStep())
    profile = EngineProfile(draft_tokens=2)
    trace = Trace("", "engine", profile, 8, True, commands, options={"block_size": 4})
    watched = watch_engine(trace, lambda _num, _caching: Planner(first, count, drafts))
    assert watched.seen[-1].shown.answer == words
