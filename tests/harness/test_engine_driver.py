"""Seeded runs of engines: right ones hold and show facts, broken ones get short traces."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from poolproof.certification.broken_engines import BROKEN_ENGINES
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import (
    AnswerStep,
    Cancel,
    EngineCommand,
    PlanStep,
    RunStep,
    Submit,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.harness.choices import SeededChoices
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.engine_workload import EngineWorkload
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.replay import replay
from poolproof.harness.smaller_engine_traces import engine_weight
from poolproof.reference.native_engine import NativePlainEngine
from poolproof.targets.impl_engine import impl_engine_layouts

INVARIANTS = {
    "an end that keeps a block": {"LEAK", "LIVE"},
    "a table that names a block of another": {"DATA"},
    "a token that is given twice": {"OUT"},
    "a request that is forgotten": {"LIVE", "OUT"},
}
LAYOUTS = {layout.name: layout for layout in impl_engine_layouts()}


def build(
    cls: type[NativePlainEngine], profile: EngineProfile, num_blocks: int, enable_caching: bool
) -> NativePlainEngine:
    return cls(num_blocks, 4, enable_caching=enable_caching, profile=profile)


def campaign_of(cls: type[NativePlainEngine], **rows: Any) -> EngineCampaign:
    profile = EngineProfile.from_mapping(rows)
    return EngineCampaign("plain", partial(build, cls, profile), profile, 4)


def traces_of(cls: type[NativePlainEngine], **rows: Any) -> list[Trace]:
    campaign = campaign_of(cls, **rows)
    runs = (campaign.run(number).trace for number in range(12))
    return [trace for trace in runs if trace is not None]


def shortest(trace: Trace, cls: type[NativePlainEngine]) -> Trace:
    assert isinstance(trace.profile, EngineProfile)
    found = minimise(trace, execute_in_process(partial(build, cls, trace.profile)))
    assert isinstance(found, Trace)
    return found


# Runs.


def test_a_run_is_the_same_every_time() -> None:
    broken = BROKEN_ENGINES["a token that is given twice"]
    first, second = (campaign_of(broken).run(3).trace for _ in range(2))
    assert first is not None
    assert first == second


def test_runs_announce_what_they_apply() -> None:
    told: list[Any] = []
    result = campaign_of(NativePlainEngine).run(0, told.append)
    assert len(told) == result.num_steps
    assert {type(command) for command in told} >= {Submit, Cancel, RunStep}


@pytest.mark.parametrize("rows", [{}, {"steps_in_flight": 2, "draft_tokens": 1}])
@pytest.mark.parametrize("what", BROKEN_ENGINES)
def test_each_broken_engine_is_named_under_the_right_invariant(
    what: str, rows: dict[str, Any]
) -> None:
    found = {
        trace.violation and trace.violation.invariant
        for trace in traces_of(BROKEN_ENGINES[what], **rows)
    }
    assert found
    assert found <= INVARIANTS[what]


def test_a_broken_trace_breaks_again() -> None:
    broken = BROKEN_ENGINES["a table that names a block of another"]
    trace = traces_of(broken)[0]
    again = replay(trace, partial(build, broken, EngineProfile()))
    assert again.violation == trace.violation


@pytest.mark.parametrize("error", [ValueError("too small"), SystemExit(1)])
def test_an_engine_that_cannot_be_built_is_a_finding(error: BaseException) -> None:
    def make(num_blocks: int, enable_caching: bool) -> Any:
        raise error

    trace = EngineCampaign("none", make, EngineProfile(), 4).run(0).trace
    assert trace is not None
    assert trace.violation is not None
    assert trace.violation.invariant == "CRASH"
    assert "constructing the engine with" in trace.violation.sentence


def test_a_target_that_is_no_engine_is_an_error() -> None:
    with pytest.raises(TargetError, match=r"lacks submit\(\), plan\(\), answer\(\)"):
        EngineCampaign("none", lambda *_: object(), EngineProfile(), 4).run(0)


def test_most_runs_have_caching_on_and_few_blocks() -> None:
    campaign = campaign_of(NativePlainEngine, null_block=0, draft_tokens=3, groups="full+full")
    setups = [campaign.setup(number) for number in range(60)]
    assert {setup.enable_caching for setup in setups} == {True, False}
    assert min(setup.num_blocks for setup in setups) == 7
    # Three to nine blocks for each group, one time in three up to eight more, and the null block.
    assert 19 < max(setup.num_blocks for setup in setups) <= 35


# Facts.


@pytest.mark.parametrize("name", ["fcfs", "chunks", "async+drafts", "priority", "offloading"])
def test_required_facts_are_seen_with_an_engine_that_caches_and_preempts(name: str) -> None:
    layout = LAYOUTS[name]
    assert layout.make is not None
    campaign = EngineCampaign("impl", layout.make, layout.profile, 4)
    session = EngineSession(layout.make(9, True), layout.profile, 9, 4)
    missing = set(required_engine_facts(layout.profile, session.can, 4))
    for number in range(60):
        missing -= campaign.run(number).facts
        if not missing:
            break
    assert missing == set()


def required(**rows: Any) -> list[str]:
    can = EngineSession(NativePlainEngine(4), EngineProfile(), 4, 4).can
    return required_engine_facts(EngineProfile(**rows), can, 4)


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ({"steps_in_flight": 2}, {"two steps were in flight"}),
        (
            {"draft_tokens": 1},
            {
                "a draft was accepted",
                "a draft was rejected",
                "a draft ended its request, with tokens behind it",
            },
        ),
        ({"policy": "priority"}, {"a request came that goes before a running one"}),
        ({"max_batch_tokens": 16}, {"a prompt was computed in chunks"}),
        ({"max_batch_tokens": 17}, set()),
    ],
)
def test_a_row_requires_its_facts(rows: dict[str, Any], facts: set[str]) -> None:
    assert set(required(**rows)) - set(required()) == facts


# The grammar.


@pytest.mark.parametrize(
    "rows",
    [
        {},
        {"policy": "priority", "draft_tokens": 2},
        {"steps_in_flight": 3, "null_block": 0},
        {"max_request_tokens": 2},
        {"groups": "full+sliding:6", "spare_tokens": 2},
        {"instances": 2, "null_block": 0},
    ],
)
def test_only_legal_commands_are_drawn(rows: dict[str, Any]) -> None:
    profile = EngineProfile.from_mapping(rows)
    session = EngineSession(NativePlainEngine(9, profile=profile), profile, 9, 4)
    workload = EngineWorkload(SeededChoices(7), session.model, session.can)
    for place in range(300):
        if place % 24 == 0:
            workload.bias()
        command = workload.next()
        assert session.is_defined(command), command
        assert session.step(command) is None


def test_priorities_are_drawn_only_where_they_mean_something() -> None:
    def priorities(policy: str) -> set[int]:
        profile = EngineProfile(policy=policy)
        session = EngineSession(NativePlainEngine(9), profile, 9, 4)
        workload = EngineWorkload(SeededChoices(7), session.model, session.can)
        commands = (workload.draw("submit") for _ in range(40))
        return {command.priority for command in commands if isinstance(command, Submit)}

    assert priorities("fcfs") == {0}
    assert priorities("priority") == {0, 1, 2}


def test_what_the_target_lacks_is_not_drawn() -> None:
    session = EngineSession(NativePlainEngine(9), EngineProfile(), 9, 4)
    workload = EngineWorkload(SeededChoices(7), session.model, session.can)
    assert workload.draw("reset") is None
    assert workload.draw("arrive") is None
    assert workload.draw("answer") is None
    assert workload.draw("submit") is not None


# Small traces.


@pytest.mark.parametrize(
    ("what", "most"),
    [
        ("an end that keeps a block", 3),
        ("a table that names a block of another", 4),
        ("a token that is given twice", 2),
    ],
)
def test_a_long_trace_of_a_planted_mistake_becomes_the_short_one(what: str, most: int) -> None:
    broken = BROKEN_ENGINES[what]
    wanted = {"an end that keeps a block": "LEAK"}.get(what)
    traces = [
        trace
        for trace in traces_of(broken)
        if trace.violation is not None and wanted in (None, trace.violation.invariant)
    ]
    trace = max(traces, key=lambda trace: len(trace.commands))
    small = shortest(trace, broken)
    assert len(small.commands) <= most < len(trace.commands)
    assert small.violation is not None
    assert trace.violation is not None
    assert small.violation.invariant == trace.violation.invariant


def test_a_small_trace_runs_steps_at_once_and_names_requests_from_0() -> None:
    broken = BROKEN_ENGINES["a token that is given twice"]
    trace = Trace(
        target="plain",
        level="engine",
        profile=EngineProfile(),
        num_blocks=8,
        enable_caching=True,
        commands=(
            Submit(3, TokenChain((2, 1)), 4, 0),
            Submit(7, TokenChain((2, 1, 2, 1, 1)), 2, 0),
            PlanStep(),
            Cancel(3),
            AnswerStep(2, 0, 0),
            PlanStep(),
            AnswerStep(2, 0, 0),
        ),
        options={"block_size": 4},
    )
    failed = replay(trace, partial(build, broken, EngineProfile()))
    small = shortest(replace(trace, violation=failed.violation), broken)
    assert small.commands == (Submit(0, TokenChain((1,)), 1, 0), RunStep(1, 0, 0))
    assert small.num_blocks == 1


def test_a_failure_keeps_its_name_whatever_requests_are_called() -> None:
    broken = BROKEN_ENGINES["a token that is given twice"]

    def named(number: int) -> str:
        trace = Trace(
            target="plain",
            level="engine",
            profile=EngineProfile(),
            num_blocks=2,
            enable_caching=True,
            commands=(Submit(number, TokenChain((1,)), 1, 0), RunStep(1, 0, 0)),
            options={"block_size": 4},
        )
        failed = replay(trace, partial(build, broken, EngineProfile()))
        return fingerprint_of(replace(trace, violation=failed.violation))

    assert named(0) == named(5)


@pytest.mark.parametrize(
    ("heavy", "light"),
    [
        (Submit(0, TokenChain((1, 1)), 1, 0), Submit(0, TokenChain((1,)), 9, 2)),
        (Submit(0, TokenChain((1,), None, "salt"), 1, 0), Submit(0, TokenChain((2, 2)), 1, 0)),
        (Submit(0, TokenChain((1,)), 1, 1), Submit(0, TokenChain((1,)), 1, 0)),
        (RunStep(0, 0, 0), RunStep(1, 0, 0)),
        (AnswerStep(1, 1, 0), AnswerStep(1, 0, 0)),
        (AnswerStep(1, 0, 1), PlanStep()),
    ],
)
def test_what_is_plainer_weighs_less(heavy: EngineCommand, light: EngineCommand) -> None:
    assert engine_weight(heavy) > engine_weight(light)
