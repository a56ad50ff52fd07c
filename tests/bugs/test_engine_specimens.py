"""Every engine specimen is caught by the plain driver, named rightly; no oddity is accused."""

from __future__ import annotations

from typing import Any

import pytest

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_oddities import (
    ENGINE_ODDITIES,
    ComputesTheCancelledOnceMore,
    TwoServers,
)
from poolproof.bugs.engine_specimen import BLOCK_SIZE, EngineOddity, EngineSpecimen
from poolproof.bugs.engine_step_bugs import CancelledIsServed
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.impl.engine import Engine
from poolproof.targets.impl_engine import engine_maker

MOST_RUNS = 150
HARD_TO_REACH = {"S1", "S35", "S43", "S44", "S88"}
"""They take more runs than this; benchmarks/engine_specimens.py measures how many."""

FOUND = [found for found in ENGINE_SPECIMENS.values() if found.id not in HARD_TO_REACH]


def first_failure(found: EngineSpecimen, seed: int, most_runs: int = MOST_RUNS) -> Trace | None:
    campaign = EngineCampaign(found.id, found.make, found.profile, BLOCK_SIZE, seed=seed)
    failures = (campaign.run(number).trace for number in range(most_runs))
    return next((trace for trace in failures if trace is not None), None)


@pytest.mark.some(9)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("found", FOUND, ids=lambda found: found.id)
def test_a_campaign_catches_the_specimen_by_its_invariant(found: EngineSpecimen, seed: int) -> None:
    trace = first_failure(found, seed)
    assert trace is not None, f"{found.id} survived"
    violation = trace.violation
    assert violation is not None
    assert violation.invariant in found.invariants, violation.sentence
    assert violation.severity.rank >= found.severity.rank, violation.sentence


@pytest.mark.some(2)
@pytest.mark.parametrize("oddity", ENGINE_ODDITIES, ids=lambda oddity: oddity.name)
def test_no_oddity_is_accused(oddity: EngineOddity) -> None:
    for profile, make in oddity.makes():
        campaign = EngineCampaign(oddity.name, make, profile, BLOCK_SIZE)
        for number in range(20):
            trace = campaign.run(number).trace
            assert trace is None, trace


def test_there_are_as_many_as_the_level_is_measured_with() -> None:
    threads = {found.thread for found in ENGINE_SPECIMENS.values()}
    assert len(threads) >= 30
    assert len(ENGINE_ODDITIES) >= 10


def test_a_specimen_is_built_only_where_it_is_a_bug() -> None:
    found = ENGINE_SPECIMENS["S10"]
    with pytest.raises(ValueError, match=r"S10 .* is no bug under"):
        found.make_under(ENGINE_SPECIMENS["S9"].profile)


class RepeatsLateTokens(CancelledIsServed):
    """What comes after a cancel comes twice."""

    def answer(self, *arguments: Any) -> list[tuple[int, list[int], bool]]:
        live = {number for number, request in self._requests.items() if not request.has_ended}
        return [(n, t if n in live else t * 2, ends) for n, t, ends in super().answer(*arguments)]


@pytest.mark.some(1)
@pytest.mark.parametrize("cls", [RepeatsLateTokens, ENGINE_SPECIMENS["S120"].cls])
def test_where_late_outputs_may_come_the_rest_is_checked_all_the_same(cls: type[Engine]) -> None:
    profile = EngineProfile(null_block=0, cancelled_outputs="may-come")
    make = engine_maker(cls, profile, BLOCK_SIZE)
    campaign = EngineCampaign(cls.__name__, make, profile, BLOCK_SIZE)
    found = [trace for number in range(60) if (trace := campaign.run(number).trace)]
    assert {trace.violation.invariant for trace in found if trace.violation} <= {
        "OUT",
        "LEAK",
        "LIVE",
    }
    assert found


def test_late_outputs_are_a_bug_where_none_may_come() -> None:
    found = ENGINE_SPECIMENS["S26"]
    assert not found.is_bug_under(EngineProfile(null_block=0, cancelled_outputs="may-come"))


def first_found(cls: type[Engine], profile: EngineProfile) -> Violation:
    """What the first of sixty runs that fails shows."""
    make = engine_maker(cls, profile, BLOCK_SIZE)
    campaign = EngineCampaign(cls.__name__, make, profile, BLOCK_SIZE)
    runs = (campaign.run(number).trace for number in range(60))
    trace = next(trace for trace in runs if trace is not None)
    assert trace.violation is not None
    return trace.violation


class NeverHearsOfCancels(Engine):
    """Computes the cancelled to their end."""

    def cancel(self, request_id: int) -> None:
        pass


class HearsOfCancelsTooLate(ComputesTheCancelledOnceMore):
    """Who is cancelled goes on for two tokens more."""

    def cancel(self, request_id: int) -> None:
        super().cancel(request_id)
        if request_id in self._cancelled:
            self._cancelled[request_id] += 1


@pytest.mark.parametrize(
    ("cls", "value"),
    [
        (ComputesTheCancelledOnceMore, "none"),
        (ComputesTheCancelledOnceMore, "may-come"),
        (NeverHearsOfCancels, "one-more"),
        (HearsOfCancelsTooLate, "one-more"),
    ],
)
@pytest.mark.parametrize("steps_in_flight", [1, 2])
def test_a_cancelled_request_is_computed_as_long_as_the_profile_says(
    cls: type[Engine], value: str, steps_in_flight: int
) -> None:
    profile = EngineProfile(null_block=0, cancelled_outputs=value, steps_in_flight=steps_in_flight)
    assert "computes tokens of request" in first_found(cls, profile).sentence


@pytest.mark.parametrize(
    ("row", "sentence"), [("prefix_hits", "begins request"), ("preemptions", "is preempted")]
)
def test_what_the_profile_rules_out_is_named(row: str, sentence: str) -> None:
    profile = EngineProfile.from_mapping({"null_block": 0, row: "never"})
    make = engine_maker(Engine, profile, BLOCK_SIZE)
    campaign = EngineCampaign("an engine with both", make, profile, BLOCK_SIZE)
    found = [trace for number in range(10) if (trace := campaign.run(number).trace)]
    assert found
    assert {trace.violation.invariant for trace in found if trace.violation} == {"PLAN"}
    assert all(sentence in trace.violation.sentence for trace in found if trace.violation)


@pytest.mark.parametrize("row", ["prefix_hits", "preemptions"])
def test_no_room_for_the_next_token_is_a_crash_also_where_nobody_gives_way(row: str) -> None:
    profile = EngineProfile.from_mapping({"null_block": 0, row: "never"})
    cls = ENGINE_SPECIMENS["S126"].cls
    make = engine_maker(cls, profile, BLOCK_SIZE)
    campaign = EngineCampaign(cls.__name__, make, profile, BLOCK_SIZE)
    found = [trace for number in range(40) if (trace := campaign.run(number).trace)]
    assert "CRASH" in {trace.violation.invariant for trace in found if trace.violation}


class BothHaveTheSameBlocks(TwoServers):
    """The second of two servers has the ids of the first."""

    def _shifted(self, table: list[int]) -> list[int]:
        return table


@pytest.mark.parametrize(
    ("cls", "instances", "invariant"),
    [
        (TwoServers, 1, "CRASH"),
        (BothHaveTheSameBlocks, 2, "DATA"),
    ],
)
def test_what_is_served_in_turn_is_judged_by_the_part_that_each_server_has(
    cls: type[Engine], instances: int, invariant: str
) -> None:
    profile = EngineProfile(null_block=0, instances=instances)
    assert first_found(cls, profile).invariant == invariant
