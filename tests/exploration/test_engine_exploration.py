"""Breadth-first search over engines: right ones show nothing, planted bugs their shortest trace."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_oddities import AdmitsEveryThirdStep
from poolproof.bugs.engine_specimen import BLOCK_SIZE, FULL, build_engine
from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    RunStep,
    Submit,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.target import TargetError
from poolproof.exploration.engine_grammar import (
    EngineGrammar,
    EngineScope,
    scope_for,
    scope_of_trace,
)
from poolproof.exploration.recorded_engine import RecordedEngine
from poolproof.exploration.shortest import ShortestResult, shortest_engine_failure
from poolproof.impl.engine import Engine
from poolproof.impl.engine_state import state_of
from poolproof.reference.content_names import ContentNames
from poolproof.reference.native_engine import NativePlainEngine

ONES = TokenChain((1,) * 4)
SCOPE = EngineScope(4, 4, (Submit(0, ONES, 2, 0), Submit(0, TokenChain((1,)), 2, 0)))


def search(
    cls: type[Engine], profile: EngineProfile = FULL, scope: EngineScope = SCOPE, **bounds: Any
) -> ShortestResult:
    return shortest_engine_failure(partial(build_engine, cls, profile, 0), profile, scope, **bounds)


def unmerged(cls: type[Engine]) -> type[Engine]:
    """The same engine, which tells no state; pickle cannot write it either."""

    class TellsNothing(cls):  # type: ignore[misc, valid-type]  # of a class that is a value
        poolproof_state = None

    return TellsNothing


def session(cls: type[Engine] = Engine, names: ContentNames | None = None) -> RecordedEngine:
    target = build_engine(cls, FULL, 0, 4, True)
    return RecordedEngine(target, FULL, 4, 4, ContentNames() if names is None else names)


def after(reached: RecordedEngine, *commands: Command) -> RecordedEngine:
    for command in commands:
        assert reached.is_defined(command)
        assert reached.step_any(command) is None
    return reached


def test_a_right_engine_shows_nothing_up_to_the_bound() -> None:
    found = search(Engine, max_commands=4)
    assert (found.violation, found.depth, found.told_by) == (None, 4, "the engine")
    assert found.num_states > 100


def test_a_planted_bug_is_shown_by_a_shortest_trace() -> None:
    found = search(ENGINE_SPECIMENS["S9"].cls, max_commands=6)
    assert found.violation is not None
    assert found.violation.invariant == "PLAN"
    assert found.commands is not None
    assert len(found.commands) == 4


@pytest.mark.some(2)
@pytest.mark.parametrize("name", ["S9", "S25", "S26", "S129", "S120", "S126", "S119"])
def test_merging_states_hides_no_shorter_failure(name: str) -> None:
    found = ENGINE_SPECIMENS[name]
    results = [
        search(cls, found.profile, max_commands=4) for cls in (found.cls, unmerged(found.cls))
    ]
    lengths = [None if r.commands is None else len(r.commands) for r in results]
    assert lengths[0] == lengths[1]
    assert results[0].num_states < results[1].num_states


def test_states_that_differ_in_the_names_of_requests_alone_are_one() -> None:
    names, second = ContentNames(), Submit(0, TokenChain((2,)), 1, 0)
    one = after(session(names=names), second)
    other = after(session(names=names), Submit(0, ONES, 2, 0), Submit(1, second.chain, 1, 0))
    assert one.state() != other.state()
    assert one.state() == after(other, Cancel(0)).state()


def test_states_that_differ_in_the_names_of_blocks_alone_are_one() -> None:
    names, twos = ContentNames(), TokenChain((2,) * 4)
    one, other = (
        after(session(names=names), Submit(0, a, 2, 0), Submit(1, b, 2, 0), RunStep(1, 0, 0))
        for a, b in ((ONES, twos), (twos, ONES))
    )
    assert one.state() != other.state()
    assert after(one, Cancel(0), Cancel(1)).state() == after(other, Cancel(1), Cancel(0)).state()


def test_states_that_differ_in_what_was_sampled_are_two() -> None:
    names = ContentNames()
    one, other = (
        after(session(names=names), Submit(0, ONES, 2, 0), RunStep(token, 0, 0)) for token in (1, 2)
    )
    assert one.state() != other.state()


class Loads:
    """Plans a load, then nothing; it tells that it has nothing to tell of itself."""

    def __init__(self, **load: Any) -> None:
        move = {"id": 0, "kind": "load", "blocks": [1], "places": [0], **load}
        self.plans: list[dict[str, Any]] = [{"compute": [], "transfers": [move]}]

    def submit(self, request_id: int, tokens: list[int], **named: Any) -> None:
        """Nobody is served."""

    def plan(self) -> dict[str, Any]:
        return self.plans.pop(0) if self.plans else {"compute": []}

    def answer(self, tokens: Any, drafts: Any) -> list[Any]:
        del tokens, drafts
        return []

    def arrived(self, transfer_id: int, ok: bool) -> None:
        """It goes on as before."""

    def poolproof_state(self) -> int:
        return 0


@pytest.mark.parametrize(
    "loads",
    [
        [{}, {"rank": 0}, {"rank": 1}],
        [{"waits": True}, {"waits": True, "rank": 0}, {"waits": True, "rank": 1}],
        [{"waits": True}, {"waits": True, "fails": True}],
        [{}, {"follows": True}],
    ],
)
def test_states_that_differ_in_what_is_in_flight_are_as_many(loads: list[dict[str, Any]]) -> None:
    names, profile = ContentNames(), EngineProfile(null_block=0, ranks=2)
    sessions = [RecordedEngine(Loads(**load), profile, 4, 4, names) for load in loads]
    assert len({after(one, PlanStep()).state() for one in sessions}) == len(loads)


@pytest.mark.parametrize(("notices", "num_states"), [("once", 1), ("may-repeat", 2)])
def test_what_has_ended_is_told_where_it_may_be_told_again(notices: str, num_states: int) -> None:
    names, profile = ContentNames(), EngineProfile(null_block=0, notices=notices)
    sessions = [RecordedEngine(Loads(), profile, 4, 4, names) for _ in range(2)]
    begin = PlanStep(), AnswerStep(1, 0, 0)
    states = {after(one, *begin, Arrive(0, n)).state() for n, one in enumerate(sessions)}
    assert len(states) == num_states


def test_the_memories_of_all_ranks_are_told() -> None:
    names, profile = ContentNames(), EngineProfile(null_block=0, ranks=2)
    part = {"request": 0, "first": 0, "count": 3, "blocks": [[1]]}
    states = set()
    for rank in range(2):
        # What nobody has written is loaded over what was computed, on one rank.
        engine = Loads(rank=rank)
        engine.plans.insert(0, {"compute": [part]})
        one = RecordedEngine(engine, profile, 4, 4, names)
        step = PlanStep(), AnswerStep(1, 0, 0)
        states.add(after(one, Submit(0, ONES, 2, 0), *step, *step, Arrive(0, 0)).state())
    assert len(states) == 2


def test_an_engine_that_keeps_more_is_told_with_it_and_without_marks() -> None:
    engine = build_engine(ENGINE_SPECIMENS["S12"].cls, FULL, 0, 4, True)
    engine.submit(7, [1, 2], max_new_tokens=2)
    told = repr(state_of(engine))
    assert "_to_drop" in told
    assert "'request'" not in told
    assert "('request', 7)" in repr(state_of(_submitted(7)))


def _submitted(number: int) -> Engine:
    engine = build_engine(Engine, FULL, 0, 4, True)
    engine.submit(number, [1, 2], max_new_tokens=2)
    return engine


def test_how_many_requests_and_steps_there_were_is_not_told() -> None:
    once, twice = session(), session()
    after(twice, PlanStep(), AnswerStep(1, 0, 0))
    assert state_of(once.target) == state_of(twice.target)


def test_an_engine_to_which_a_number_means_something_tells_it() -> None:
    engines = [build_engine(AdmitsEveryThirdStep, FULL, 0, 4, True) for _ in range(2)]
    engines[0].plan()
    engines[0].answer({}, {})
    assert engines[0].poolproof_state() != engines[1].poolproof_state()


def test_states_of_an_engine_that_tells_nothing_are_those_that_pickle_writes() -> None:
    found = shortest_engine_failure(
        lambda n, caching: NativePlainEngine(n, 4, enable_caching=caching),
        EngineProfile(),
        SCOPE,
        max_commands=3,
    )
    assert (found.told_by, found.violation, found.depth) == ("pickle", None, 3)


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (
            lambda _: {}["gone"],
            r"poolproof_state\(\) raised KeyError: .*; mend it, or leave it out",
        ),
        (lambda _: ({1, 2},), r"poolproof_state\(\) tells an object of class set; it must be made"),
    ],
)
def test_a_state_that_cannot_be_read_is_named(told: Any, says: str) -> None:
    class TellsNonsense(Engine):
        poolproof_state = told

    with pytest.raises(TargetError, match=says):
        search(TellsNonsense, max_commands=1)


def test_nothing_is_merged_where_no_state_is_known() -> None:
    found = search(unmerged(Engine), max_commands=2)
    assert found.told_by == ""
    assert found.num_states == found.num_tries + 1


def test_a_small_scope_is_closed_without_a_bound_on_commands() -> None:
    scope = EngineScope(2, 4, (Submit(0, TokenChain((1,)), 1, 0),), most_live=1, tokens=(1,))
    found = search(Engine, scope=scope, max_commands=200)
    assert found.exhausted
    assert found.violation is None
    assert found.num_states < 100


@pytest.mark.parametrize(
    ("bounds", "out_of_time"), [({"max_states": 20}, False), ({"max_seconds": 1e-9}, True)]
)
def test_a_limit_ends_a_search_and_what_was_completed_is_said(
    bounds: dict[str, Any], out_of_time: bool
) -> None:
    found = search(Engine, max_commands=6, **bounds)
    assert found.depth < 6
    assert not found.exhausted
    assert found.out_of_time is out_of_time


def test_an_answer_right_behind_its_plan_is_left_to_the_run_of_both() -> None:
    reached = after(session(), Submit(0, ONES, 2, 0), PlanStep())
    verbs = {command.verb for command in EngineGrammar(SCOPE).commands(reached)}
    assert "answer" not in verbs
    after(reached, Submit(1, ONES, 2, 0))
    verbs = {command.verb for command in EngineGrammar(SCOPE).commands(reached)}
    assert "answer" in verbs


def test_the_scope_of_a_trace_has_its_requests_once_and_its_tokens() -> None:
    commands = (Submit(3, ONES, 2, 0), RunStep(STOP_TOKEN, 0, 0), Submit(5, ONES, 2, 0))
    scope = scope_of_trace(commands, 4, 4)
    assert scope.requests == (Submit(0, ONES, 2, 0),)
    assert (scope.most_live, scope.tokens) == (2, (STOP_TOKEN,))


def test_requests_that_do_not_fit_are_in_no_scope() -> None:
    assert scope_for(FULL, 2, BLOCK_SIZE).requests == ()
    longest = max(len(r.chain.tokens) + r.max_new_tokens for r in scope_for(FULL, 4, 4).requests)
    assert longest <= FULL.most_request_tokens(4, 4)
