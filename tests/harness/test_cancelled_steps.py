"""The row `cancelled_steps`: may a step be planned for a request after its user cancelled it?"""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.contract.engine_profile import EngineProfile
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.impl.engine import Engine
from poolproof.targets.impl_engine import engine_maker

MAY_COME = EngineProfile(null_block=0, cancelled_outputs="may-come", cancelled_steps="may-come")
NONE = EngineProfile(null_block=0, cancelled_outputs="may-come")


class CancelsWithTheResults(Engine):
    """Ends a request that was cancelled when the next results come, and gives it nothing more."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._gone: list[int] = []
        self._silent: set[int] = set()

    def cancel(self, request_id: int) -> None:
        self._gone.append(request_id)
        self._silent.add(request_id)

    def answer(self, *answers: Any) -> list[tuple[int, list[int], bool]]:
        outputs = [one for one in super().answer(*answers) if one[0] not in self._silent]
        gone, self._gone = self._gone, []
        for request_id in gone:
            super().cancel(request_id)
        return outputs


class NeverCancels(Engine):
    """Computes a request to its end, whoever has gone, and leaves it in its queue for ever."""

    def cancel(self, request_id: int) -> None:
        self._kept = [*getattr(self, "_kept", ()), request_id]

    def unfinished(self) -> list[int]:
        return [*super().unfinished(), *getattr(self, "_kept", ())]


def found(profile: EngineProfile, engine: type[Engine]) -> set[str]:
    """The invariants that are broken in a few runs."""
    campaign = EngineCampaign(engine.__name__, engine_maker(engine, profile, 4), profile, 4)
    traces = [campaign.run(number).trace for number in range(40)]
    return {t.violation.invariant for t in traces if t is not None and t.violation is not None}


def test_an_engine_that_cancels_with_the_next_results_is_right_where_it_says_so() -> None:
    assert found(MAY_COME, CancelsWithTheResults) == set()


def test_it_is_accused_where_it_does_not_say_so() -> None:
    assert found(NONE, CancelsWithTheResults) == {"PLAN"}


@pytest.mark.parametrize("profile", [MAY_COME, NONE])
def test_an_engine_that_obeys_at_once_is_right_under_both(profile: EngineProfile) -> None:
    assert found(profile, Engine) == set()


def test_a_cancelled_request_that_never_ends_is_found_at_rest() -> None:
    assert "LEAK" in found(MAY_COME, NeverCancels)
