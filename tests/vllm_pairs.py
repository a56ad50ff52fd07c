"""Runs of a prefill and a decode instance of vLLM, and faults that are planted in any such pair."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from poolproof.contract.violation import Violation
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.random_driver import RunResult
from poolproof.targets.target import EngineLayout

MOVES = {"a load arrived", "a store arrived"}


def runs_of(layout: EngineLayout, numbers: Iterable[int]) -> list[RunResult]:
    """The runs of those numbers."""
    assert layout.make is not None
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    return [campaign.run(number) for number in numbers]


def first_finding(layout: EngineLayout, numbers: Iterable[int]) -> Violation | None:
    """The violation of the first run that fails; None where all hold."""
    for number in numbers:
        (result,) = runs_of(layout, [number])
        if result.trace is not None:
            return result.trace.violation
    return None


def hear_nothing_of_sent(cls: Any, patch: pytest.MonkeyPatch) -> None:
    """The scheduler is not told of what was sent, which ends one that keeps nothing."""
    update = cls._update_from_kv_xfer_finished

    def updated(self: Any, output: Any) -> None:
        output.finished_sending = set()
        update(self, output)

    patch.setattr(cls, "_update_from_kv_xfer_finished", updated)


def compute_before_anything_comes(cls: Any, patch: pytest.MonkeyPatch) -> None:
    """The decode instance does not wait for what it is given."""
    matched = cls.get_num_new_matched_tokens

    def at_once(self: Any, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        count, _ = matched(self, request, num_computed_tokens)
        return max(0, min(count, request.num_tokens - 1 - num_computed_tokens)), False

    patch.setattr(cls, "get_num_new_matched_tokens", at_once)
