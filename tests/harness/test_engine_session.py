"""One engine under test: its plans and outputs are judged, and the worker does what a plan says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.engine_commands import (
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.violation import Severity, Violation
from poolproof.harness.engine_session import EngineSession
from poolproof.reference.native_engine import NativePlainEngine

STEP = RunStep(5, 0, 0)


class ScriptedEngine:
    """Plans what stands in `plans`, then nothing; answers `outputs`, then what is due.

    An exception in either is raised. `calls` has what it was called with.
    """

    def __init__(self, plans: Sequence[Any] = (), outputs: Sequence[Any] = ()) -> None:
        self.plans, self.outputs = list(plans), list(outputs)
        self.calls: list[tuple[Any, ...]] = []

    def submit(self, request_id: int, tokens: list[int], **named: Any) -> None:
        self.calls.append(("submit", request_id, tokens, named))

    def cancel(self, request_id: int) -> None:
        self.calls.append(("cancel", request_id))

    def plan(self) -> Any:
        return _said(self.plans.pop(0)) if self.plans else {"compute": []}

    def answer(self, tokens: dict[int, list[int]], drafts: dict[int, list[int]], /) -> Any:
        self.calls.append(("answer", tokens, drafts))
        if self.outputs:
            return _said(self.outputs.pop(0))
        return [(number, sampled, False) for number, sampled in tokens.items()]

    def arrived(self, transfer_id: int, ok: bool) -> None:
        self.calls.append(("arrived", transfer_id, ok))

    def reset(self) -> None:
        self.calls.append(("reset",))


def _said(what: Any) -> Any:
    if isinstance(what, BaseException):
        raise what
    return what


def entry(
    request: int = 0, first: int = 0, count: int = 1, blocks: Sequence[int] = (0, 1), **more: Any
) -> dict[str, Any]:
    """An entry of compute, of one cache group."""
    return {"request": request, "first": first, "count": count, "blocks": [blocks], **more}


def computing(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A plan."""
    return {"compute": list(entries), **more}


def moving(
    kind: str, number: int, blocks: Sequence[int], places: Sequence[int], **more: Any
) -> Any:
    """A transfer."""
    return {"id": number, "kind": kind, "blocks": blocks, "places": places, **more}


def submit(number: int = 0, tokens: Sequence[int] = (1, 2, 3, 4), most: int = 9) -> Submit:
    """A request comes."""
    return Submit(number, TokenChain(tuple(tokens)), most, 0)


def session_of(target: Any, num_blocks: int = 8, **rows: Any) -> EngineSession:
    """A session of blocks of 4 tokens."""
    return EngineSession(target, EngineProfile(**rows), num_blocks, 4)


def scripted(*plans: Any, outputs: Sequence[Any] = (), **rows: Any) -> EngineSession:
    """A session of an engine that plans so, and answers so."""
    return session_of(ScriptedEngine(plans, outputs), **rows)


def first_found(session: EngineSession, *commands: Command) -> Violation:
    """What the last of these commands shows; those before show nothing."""
    *before, last = commands
    for command in before:
        assert session.is_defined(command), command
        assert session.step(command) is None, command
    assert session.is_defined(last), last
    violation = session.step(last)
    assert violation is not None
    return violation


PROMPT = entry(count=4)
CANNOT = "plan() is legal here but "


def test_an_engine_is_given_requests_as_they_come() -> None:
    engine = ScriptedEngine()
    session = session_of(engine)
    assert session.step(Submit(0, TokenChain((1, 2), None, "salt"), 3, 7)) is None
    (call,) = engine.calls
    assert call[:3] == ("submit", 0, [1, 2])
    assert (call[3]["max_new_tokens"], call[3]["priority"]) == (3, 7)
    assert call[3]["extra_keys"]


def test_a_step_is_answered_with_what_was_sampled_and_with_drafts() -> None:
    engine = ScriptedEngine([computing(PROMPT)])
    session = session_of(engine, draft_tokens=2)
    session.step(submit())
    assert session.step(RunStep(5, 0, 9)) is None
    assert engine.calls[-1] == ("answer", {0: [5]}, {0: [1, 2]})
    assert session.last.outputs == [(0, (5,), False)]


FIRST_INSTANCE = computing(entry(count=4, blocks=(1,), discards=True))
"""It computes the prompt; what it samples is thrown away."""
SECOND_INSTANCE = computing(entry(first=3, blocks=(5,)), copies=[(1, 5)])


def test_another_instance_samples_behind_a_prompt() -> None:
    session = scripted(FIRST_INSTANCE, SECOND_INSTANCE, instances=2)
    for command in (submit(), STEP, STEP):
        assert session.step(command) is None
    assert session.last.outputs == [(0, (5,), False)]


def test_two_instances_may_compute_a_request_in_one_step() -> None:
    """Its user is given once what one of them samples, and it goes on from there."""
    both = computing(entry(count=4, blocks=(1,), discards=True), entry(count=4, blocks=(5,)))
    behind = computing(entry(first=4, blocks=(5, 6)))
    session = scripted(both, behind, instances=2)
    for command in (submit(), STEP, STEP):
        assert session.step(command) is None
    assert session.last.outputs == [(0, (5,), False)]


@pytest.mark.parametrize(
    ("plans", "outputs", "invariant"),
    [
        ([FIRST_INSTANCE], [[(0, [5], False)]], "OUT"),
        ([computing(entry(count=4, blocks=(1,)))], [[]], "OUT"),
        ([FIRST_INSTANCE, computing(entry(first=4, blocks=(1, 2)))], [], "PLAN"),
        ([FIRST_INSTANCE, computing(entry(first=3, blocks=(5,)))], [], "DATA"),
    ],
    ids=["given to a user", "not said", "behind what nobody sampled", "nothing was moved"],
)
def test_what_an_instance_discards_is_nobodys(
    plans: list[Any], outputs: list[Any], invariant: str
) -> None:
    session = scripted(*plans, outputs=outputs, instances=2)
    violation = first_found(session, submit(), *[STEP] * len(plans))
    assert violation.invariant == invariant


def test_one_server_discards_nothing() -> None:
    session = scripted(FIRST_INSTANCE, SECOND_INSTANCE)
    violation = first_found(session, submit(), STEP)
    assert violation.invariant == "PLAN"
    assert "instances is 1" in violation.sentence


def test_who_ends_is_given_no_drafts() -> None:
    engine = ScriptedEngine([computing(PROMPT)], [[(0, [5], True)]])
    session = session_of(engine, draft_tokens=2)
    session.step(submit(most=1))
    assert session.step(RunStep(5, 0, 2)) is None
    assert engine.calls[-1] == ("answer", {0: [5]}, {})


# Plans.


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (computing(entry(5)), "request 5, which nobody submitted"),
        (computing(PROMPT, PROMPT), "tokens of request A twice"),
        (computing(entry(count=5)), "position 4 of request A, which has 4 tokens by then"),
        (computing(entry(count=0)), "computes nothing of request A: its count is 0"),
        (computing(entry(count=4, drafts=1)), "draft_tokens is 0"),
        (computing(entry(count=4, blocks=[8])), "request A has block 8 for position 0"),
        (computing(entry(count=4, blocks=[])), "request A has no block for position 0"),
        (computing(copies=[(0, 8)]), "copies block 0 to 8 of 8 blocks"),
        (computing(transfers=[moving("load", 1, [9], [0])]), "load 1 moves block 9"),
        (computing(preempted=[4]), "request 4 is preempted, which nobody submitted"),
        (computing({**PROMPT, "blocks": [[0], [1]]}), "of request A is 2; that of cache"),
        (computing(entry(first=-(10**30), count=10**30)), "10"),
    ],
)
def test_a_wrong_plan_breaks_plan(plan: Any, sentence: str) -> None:
    violation = first_found(scripted(plan), submit(), PlanStep())
    assert (violation.invariant, violation.command_index) == ("PLAN", 1)
    assert sentence in violation.sentence


def test_limits_of_a_step_are_those_of_the_profile() -> None:
    plan = computing(PROMPT, entry(1, count=4, blocks=[1]))
    few = first_found(scripted(plan, max_running=1), submit(), submit(1), PlanStep())
    assert "max_running is 1" in few.sentence
    small = first_found(scripted(plan, max_batch_tokens=7), submit(), submit(1), PlanStep())
    assert "max_batch_tokens is 7" in small.sentence


def test_a_request_that_was_cancelled_is_planned_no_more() -> None:
    violation = first_found(scripted(computing(PROMPT)), submit(), Cancel(0), PlanStep())
    assert violation.sentence == "the step computes tokens of request A, which has ended"


def after_a_cancel(*plans: Any) -> EngineSession:
    """A session in which a cancelled request may sample once more; two steps are in flight."""
    return scripted(computing(PROMPT), *plans, cancelled_outputs="one-more", steps_in_flight=2)


ANSWER = AnswerStep(5, 0, 0)
CANCELLED = (submit(), PlanStep(), Cancel(0), PlanStep(), ANSWER)
"""A request is cancelled in its first step, whose token it is given; a second step computes it."""


def test_a_cancelled_request_samples_once_more_where_the_profile_says_so() -> None:
    session = after_a_cancel(computing(entry(first=4)), computing(entry(first=5)))
    for command in (*CANCELLED, PlanStep()):
        assert session.step(command) is None


def test_once_the_engine_was_given_that_the_request_is_planned_no_more() -> None:
    session = after_a_cancel(computing(entry(first=4)), computing(entry(first=5)))
    violation = first_found(session, *CANCELLED, ANSWER, PlanStep())
    assert violation.sentence == "the step computes tokens of request A, which has ended"


def test_a_request_that_was_cancelled_before_it_began_is_not_planned_at_all() -> None:
    violation = first_found(after_a_cancel(), submit(), Cancel(0), PlanStep())
    assert violation.sentence == "the step computes tokens of request A, which has ended"


def test_an_engine_that_computes_a_cancelled_request_is_not_at_rest() -> None:
    session = after_a_cancel(computing(entry(first=4)))
    for command in (submit(), PlanStep(), ANSWER, Cancel(0), PlanStep(), ANSWER):
        assert session.step(command) is None
    assert not session.nobody_holds()
    assert session.step(STEP) is None
    assert session.nobody_holds()


def test_a_plan_without_sense_is_a_finding_about_the_call() -> None:
    violation = first_found(scripted([1, 2]), submit(), PlanStep())
    assert violation.invariant == "CRASH"
    assert "a plan must be a mapping, not [1, 2]" in violation.sentence


@pytest.mark.parametrize("error", [ValueError("no room"), SystemExit(3), RecursionError("deep")])
def test_a_plan_that_raises_is_a_finding(error: BaseException) -> None:
    violation = first_found(scripted(error), submit(), PlanStep())
    assert violation.invariant == "CRASH"
    assert CANNOT in violation.sentence


@pytest.mark.parametrize("method", ["submit", "cancel", "reset", "arrived"])
def test_a_method_that_raises_is_a_finding(method: str) -> None:
    engine = ScriptedEngine([computing(transfers=[moving("store", 1, [0], [0])])])
    session = session_of(engine)
    if method != "submit":
        session.step(submit())
        session.step(STEP)

    def fail(*_: Any, **__: Any) -> None:
        raise KeyError(method)

    setattr(engine, method, fail)
    command = {"submit": submit(), "cancel": Cancel(0), "reset": Reset(), "arrived": Arrive(0, 0)}
    violation = session.step(command[method])
    assert violation is not None
    assert violation.invariant == "CRASH"
    assert f"raised KeyError: '{method}'" in violation.sentence


# What users are given.


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [
        ([(0, [6], False)], "request A is given <6> and goes on; it was to be given <5>"),
        ([(0, [5], True)], "request A is given <5> and ends; it was to be given <5> and to go on"),
        ([(0, [5, 5], False)], "request A is given <5 5> and goes on"),
        ([(0, [5], False)] * 2, "request A is given tokens twice in one step"),
        ([(3, [5], False)], "request D is given <5>; nothing was sampled for it"),
        ([], "request A is given nothing; it was to be given <5> and to go on"),
        (None, "request A is given nothing"),
    ],
)
def test_wrong_outputs_break_out(outputs: Any, sentence: str) -> None:
    violation = first_found(scripted(computing(PROMPT), outputs=[outputs]), submit(), STEP)
    assert violation.invariant == "OUT"
    assert sentence in violation.sentence


@pytest.mark.parametrize(
    ("outputs", "sentence"),
    [
        ("none", "the outputs 'none' are not a list of (request, tokens, ended)"),
        (ValueError("late"), "raised ValueError: late"),
    ],
)
def test_outputs_without_sense_are_a_finding_about_the_call(outputs: Any, sentence: str) -> None:
    violation = first_found(scripted(computing(PROMPT), outputs=[outputs]), submit(), STEP)
    assert violation.invariant == "CRASH"
    assert sentence in violation.sentence


def test_nobody_is_given_anything_after_the_stop_token() -> None:
    outputs = [[(0, [0], False)]]
    violation = first_found(
        scripted(computing(PROMPT), outputs=outputs), submit(), RunStep(0, 0, 0)
    )
    assert violation.sentence.endswith("it was to be given <0> and to end")


def test_a_request_that_was_cancelled_in_flight_is_given_nothing() -> None:
    session = scripted(computing(PROMPT))
    violation = first_found(session, submit(), PlanStep(), Cancel(0), AnswerStep(5, 0, 0))
    assert violation.sentence == (
        "request A is given <5>; nothing was sampled for it that anybody waits for"
    )


STALE = (submit(), PlanStep(), PlanStep(), AnswerStep(5, 0, 0))


def test_what_was_sampled_for_a_preempted_request_must_be_given() -> None:
    plans = computing(PROMPT), computing(preempted=[0])
    violation = first_found(scripted(*plans, outputs=[[]], steps_in_flight=2), *STALE)
    assert violation.sentence.startswith("request A is given nothing")


def test_it_may_be_dropped_where_the_profile_says_so() -> None:
    plans = computing(PROMPT), computing(preempted=[0]), computing(PROMPT)
    rows: dict[str, Any] = {"steps_in_flight": 2, "stale_outputs": "may-drop"}
    session = scripted(*plans, outputs=[[], []], **rows)
    for command in STALE:
        assert session.step(command) is None
    assert session.model.requests[0].tokens == [1, 2, 3, 4]
    assert session.step(AnswerStep(5, 0, 0)) is None
    assert session.step(RunStep(6, 0, 0)) is None
    assert session.last.outputs == [(0, (6,), False)]


def two_stale_steps(*outputs: Any) -> EngineSession:
    """Request A has 8 tokens; two steps are planned for it, then it is preempted.

    The block of its first tokens leaves the window with the second of the steps.
    """
    blocks = ([1, 2, 3], [0, 2, 3])
    plans = (
        computing(entry(count=7, blocks=blocks[0])),
        computing(entry(first=7, blocks=blocks[0])),
        computing(entry(first=8, blocks=blocks[1])),
        computing(preempted=[0]),
    )
    session = scripted(
        *plans, outputs=[[(0, [5], False)], *outputs], steps_in_flight=3, null_block=0,
        stale_outputs="may-drop", groups=(CacheGroup("sliding", window=5),),
    )  # fmt: skip
    for command in (submit(tokens=(1, 2, 3, 4, 1, 2, 3)), STEP, *[PlanStep()] * 3):
        assert session.step(command) is None, command
    return session


def test_a_second_stale_step_goes_on_behind_what_the_first_has_sampled() -> None:
    session = two_stale_steps([], [])
    assert session.step(AnswerStep(6, 0, 0)) is None
    assert session.step(AnswerStep(7, 0, 0)) is None
    (executed,) = session.last.executed
    assert (executed.first, executed.tokens[-1]) == (8, 6)


def test_a_stale_token_must_not_be_given_once_the_one_before_it_was_dropped() -> None:
    session = two_stale_steps([], [(0, [7], False)])
    assert session.step(AnswerStep(6, 0, 0)) is None
    violation = first_found(session, AnswerStep(7, 0, 0))
    assert violation.invariant == "OUT"
    assert violation.sentence.startswith("request A is given <7>; nothing was sampled for it")


# What the worker reads.


def test_kv_that_nobody_computed_is_named() -> None:
    violation = first_found(scripted(computing(entry(first=2, count=2))), submit(), STEP)
    assert violation.invariant == "DATA"
    assert "request A reads at position 0" in violation.sentence
    assert "KV that nobody has computed" in violation.sentence


def test_kv_of_another_prefix_is_named() -> None:
    plans = computing(PROMPT), computing(entry(1, first=3, count=1, blocks=[0]))
    session = scripted(*plans)
    violation = first_found(session, submit(), submit(1, (1, 9, 3, 4)), STEP, STEP)
    assert violation.severity is Severity.WRONG_DATA_OF_ANOTHER
    assert "request B reads at position 1" in violation.sentence


def test_kv_of_the_same_prefix_is_shared() -> None:
    plans = computing(PROMPT), computing(entry(1, first=3, count=1, blocks=[0]))
    session = scripted(*plans)
    for command in (submit(), submit(1), STEP, STEP):
        assert session.step(command) is None
    assert "a prefix was found in the cache" in session.facts


def test_prefixes_under_another_salt_are_not_shared() -> None:
    plans = computing(PROMPT), computing(entry(1, first=3, count=1, blocks=[0]))
    salted = Submit(1, TokenChain((1, 2, 3, 4), None, "salt"), 9, 0)
    assert first_found(scripted(*plans), submit(), salted, STEP, STEP).invariant == "DATA"


def test_a_table_that_changed_is_read_as_it_is_now() -> None:
    plans = computing(PROMPT), computing(entry(first=4, blocks=[2, 1]))
    violation = first_found(scripted(*plans), submit(), STEP, STEP)
    assert "position 0 (group 0, block 2" in violation.sentence


def test_a_step_is_carried_out_only_when_it_is_answered() -> None:
    plans = computing(PROMPT), computing(entry(1, count=4, blocks=[0]))
    session = scripted(*plans, steps_in_flight=2)
    for command in (submit(), submit(1, (5, 6, 7, 8)), PlanStep(), PlanStep(), AnswerStep(5, 0, 0)):
        assert session.step(command) is None


def test_a_block_is_copied_before_anything_is_computed() -> None:
    moved = computing(entry(first=4, blocks=[3, 1]), copies=[(0, 3)])
    session = scripted(computing(PROMPT), moved)
    for command in (submit(), STEP, STEP):
        assert session.step(command) is None


def test_a_copy_the_wrong_way_round_is_seen_by_the_reader() -> None:
    moved = computing(entry(first=4, blocks=[3, 1]), copies=[(3, 0)])
    assert first_found(scripted(computing(PROMPT), moved), submit(), STEP, STEP).invariant == "DATA"


# Transfers.

STORE = computing(PROMPT, transfers=[moving("store", 1, [0], [6], waits=True)])
LATE_STORE = computing(PROMPT, transfers=[moving("store", 1, [0], [6])])
HIT = entry(first=4, blocks=[3, 1])


def load(**more: Any) -> Any:
    return moving("load", 2, [3], [6], **more)


def test_what_was_stored_is_loaded_before_the_step_that_waits() -> None:
    session = scripted(STORE, computing(HIT, transfers=[load(waits=True)]))
    for command in (submit(), STEP, STEP):
        assert session.step(command) is None


def test_a_load_that_the_step_does_not_wait_for_comes_too_late() -> None:
    session = scripted(STORE, computing(HIT, transfers=[load()]))
    assert first_found(session, submit(), STEP, STEP).invariant == "DATA"


def test_a_load_has_moved_its_blocks_once_it_has_arrived() -> None:
    engine = ScriptedEngine([STORE, computing(transfers=[load()]), computing(HIT)])
    session = session_of(engine)
    for command in (submit(), STEP, STEP, Arrive(0, 0), STEP):
        assert session.step(command) is None
    assert ("arrived", 2, True) in engine.calls
    assert "a transfer arrived" in session.facts


def test_a_load_that_was_lost_has_moved_nothing() -> None:
    engine = ScriptedEngine([STORE, computing(transfers=[load()]), computing(HIT)])
    session = session_of(engine)
    commands = (submit(), STEP, STEP, Arrive(0, 1), STEP)
    assert first_found(session, *commands).invariant == "DATA"
    assert ("arrived", 2, False) in engine.calls
    assert "a transfer was lost" in session.facts


TWO_BLOCKS = entry(count=8, blocks=[0, 1])
TWO_STORED = computing(TWO_BLOCKS, transfers=[moving("store", 1, [0, 1], [6, 7], waits=True)])
TWO_LOADED = computing(transfers=[moving("load", 2, [3, 4], [6, 7])])
EIGHT = submit(tokens=(1, 2, 3, 4, 5, 6, 7, 8))


@pytest.mark.parametrize(("num_moved", "position"), [(0, 0), (1, 4), (2, None)])
def test_a_load_that_was_lost_may_have_moved_its_first_blocks(
    num_moved: int, position: int | None
) -> None:
    session = scripted(TWO_STORED, TWO_LOADED, computing(entry(first=8, blocks=[3, 4, 5])))
    for command in (EIGHT, STEP, STEP, Arrive(0, 1, num_moved)):
        assert session.step(command) is None
    found = session.step(STEP)
    if position is None:
        assert found is None
    else:
        assert found is not None
        assert f"reads at position {position} " in found.sentence
    assert ("a transfer was lost on its way" in session.facts) == (num_moved > 0)


def test_a_store_that_was_lost_may_have_overwritten_its_first_places() -> None:
    others = computing(entry(1, count=4, blocks=[2]), transfers=[moving("store", 3, [2], [6])])
    read = computing(HIT, transfers=[moving("load", 4, [3], [6], waits=True)])
    begin = submit(), submit(1, (5, 6, 7, 8)), STEP, STEP
    whole = scripted(STORE, others, read)
    for command in (*begin, Arrive(0, 1), STEP):
        assert whole.step(command) is None
    violation = first_found(scripted(STORE, others, read), *begin, Arrive(0, 1, 1), STEP)
    assert violation.severity is Severity.WRONG_DATA_OF_ANOTHER


def test_an_engine_may_be_told_again_in_the_same_words() -> None:
    engine = ScriptedEngine([STORE, computing(transfers=[load()])])
    session = session_of(engine, notices="may-repeat")
    for command in (submit(), STEP, STEP, Arrive(0, 1), Repeat(0)):
        assert session.is_defined(command)
        assert session.step(command) is None
    assert engine.calls[-2:] == [("arrived", 2, False)] * 2
    assert "an end was told again" in session.facts


# Ranks.

STORED_BY_BOTH = computing(
    PROMPT, transfers=[moving("store", 1 + rank, [0], [6], rank=rank) for rank in range(2)]
)
LOADED_BY_BOTH = computing(
    transfers=[moving("load", 3 + rank, [3], [6], rank=rank) for rank in range(2)]
)
BEGIN = submit(), STEP, Arrive(0, 0), Arrive(0, 0), STEP


def test_what_every_rank_has_loaded_is_read() -> None:
    session = scripted(STORED_BY_BOTH, LOADED_BY_BOTH, computing(HIT), ranks=2)
    for command in (*BEGIN, Arrive(1, 0), Arrive(0, 0), STEP):
        assert session.step(command) is None


@pytest.mark.parametrize("lacking", range(2))
def test_what_one_rank_lacks_is_read_wrongly_on_it(lacking: int) -> None:
    session = scripted(STORED_BY_BOTH, LOADED_BY_BOTH, computing(HIT), ranks=2)
    violation = first_found(session, *BEGIN, Arrive(1 - lacking, 0), STEP)
    assert violation.invariant == "DATA"
    assert violation.sentence.startswith(
        f"on rank {lacking}, step 3: request A reads at position 0"
    )


def test_a_transfer_that_names_no_rank_moves_all() -> None:
    plans = STORE, computing(HIT, transfers=[load(waits=True)])
    session = scripted(*plans, ranks=3)
    for command in (submit(), STEP, STEP):
        assert session.step(command) is None


def test_a_step_waits_for_the_transfers_of_each_rank() -> None:
    of_one = computing(HIT, transfers=[load(waits=True, rank=0)])
    violation = first_found(scripted(STORE, of_one, ranks=2), submit(), STEP, STEP)
    assert violation.sentence.startswith("on rank 1, ")


def test_a_rank_that_does_not_exist_is_named() -> None:
    violation = first_found(scripted(computing(transfers=[load(rank=2)]), ranks=2), STEP)
    assert violation.invariant == "PLAN"
    assert violation.sentence == "load 2 is that of rank 2, and the ranks are 0 to 1"


def test_a_store_takes_what_its_block_holds_when_it_arrives() -> None:
    overwriting = computing(entry(1, count=4, blocks=[0]))
    plans = LATE_STORE, overwriting, computing(HIT, transfers=[load(waits=True)])
    begin = submit(), submit(1, (5, 6, 7, 8)), STEP
    violation = first_found(scripted(*plans), *begin, STEP, Arrive(0, 0), STEP)
    assert violation.severity is Severity.WRONG_DATA_OF_ANOTHER
    in_time = scripted(*plans)
    for command in (*begin, Arrive(0, 0), STEP, STEP):
        assert in_time.step(command) is None


def test_transfers_end_in_any_order() -> None:
    both = computing(transfers=[moving("store", 4, [0], [6]), moving("store", 5, [1], [7])])
    engine = ScriptedEngine([both])
    session = session_of(engine)
    session.step(STEP)
    session.step(Arrive(1, 0))
    session.step(Arrive(0, 0))
    assert engine.calls[-2:] == [("arrived", 5, True), ("arrived", 4, True)]
    assert not session.is_defined(Arrive(0, 0))


def test_a_transfer_begins_once() -> None:
    again = computing(transfers=[moving("store", 1, [0], [6])])
    violation = first_found(scripted(again, again), STEP, STEP)
    assert violation.sentence == "store 1 begins, and it is in flight already"


# Progress.


def test_an_engine_that_plans_nothing_is_stuck() -> None:
    violation = first_found(scripted(), submit(), *[STEP] * 8)
    assert violation.invariant == "LIVE"
    assert violation.severity is Severity.STALL
    assert "request A is waiting" in violation.sentence


def test_an_engine_that_waits_for_a_transfer_is_not_stuck() -> None:
    session = scripted(computing(transfers=[moving("load", 1, [0], [6])]))
    for command in (submit(), *[STEP] * 30):
        assert session.step(command) is None


def test_an_engine_that_preempts_and_begins_again_turns_in_a_circle() -> None:
    part, back = computing(entry(count=3)), computing(preempted=[0])
    plans = [part, back] * 40
    session = scripted(*plans)
    session.step(submit())
    found = [violation for _ in plans if (violation := session.step(STEP))]
    assert found[0].invariant == "LIVE"
    assert "nobody was given a token" in found[0].sentence


@pytest.mark.parametrize("rank", [None, 0, 1])
def test_an_engine_that_loads_and_loads_turns_in_a_circle(rank: int | None) -> None:
    loads = [
        computing(transfers=[moving("load", number, [0], [6], rank=rank)]) for number in range(40)
    ]
    session = scripted(*loads, ranks=2)
    session.step(submit())
    commands = (command for _ in loads for command in (STEP, Arrive(0, 0)))
    found = next(violation for command in commands if (violation := session.step(command)))
    assert found.invariant == "LIVE"
    assert "25 loads have arrived" in found.sentence


def test_an_engine_that_nobody_asks_is_idle() -> None:
    session = scripted()
    for _ in range(30):
        assert session.step(STEP) is None
    assert session.nobody_holds()


# The end.


class Counting(NativePlainEngine):
    """Says of itself what a test tells it to."""

    free: Any = None
    left: Any = None

    def num_free(self) -> Any:
        return _answer(self.free, super().num_free())

    def unfinished(self) -> Any:
        return _answer(self.left, super().unfinished())


def _answer(told: Any, right: Any) -> Any:
    if isinstance(told, Exception):
        raise told
    return right if told is None else told


def at_rest(**told: Any) -> Any:
    engine = Counting(8)
    session = session_of(engine)
    for command in (submit(most=1), STEP, PlanStep(), AnswerStep(1, 0, 0)):
        assert session.step(command) is None
    assert session.nobody_holds()
    for name, value in told.items():
        setattr(engine, name, value)
    return session


def test_an_engine_that_gave_everything_back_is_at_its_end() -> None:
    session = at_rest()
    assert session.end() is None
    assert "everything was freed at the end" in session.facts


@pytest.mark.parametrize(
    ("told", "invariant", "sentence"),
    [
        ({"free": 7}, "LEAK", "only 7 of 8 blocks are free"),
        ({"left": [0]}, "LEAK", "every request has ended, and the engine still has 1 of them"),
        ({"free": "many"}, "CRASH", "num_free()"),
        ({"free": ValueError("lost")}, "CRASH", "ValueError: lost"),
        ({"left": 3}, "CRASH", "unfinished()"),
        ({"left": ValueError("lost")}, "CRASH", "ValueError: lost"),
    ],
)
def test_what_is_left_at_the_end_is_named(
    told: dict[str, Any], invariant: str, sentence: str
) -> None:
    violation = at_rest(**told).end()
    assert violation.invariant == invariant
    assert sentence in violation.sentence
    assert violation.command_index == 3


def test_what_is_lost_is_named_where_an_engine_rests_and_not_only_at_the_end() -> None:
    engine = Counting(8)
    session = session_of(engine)
    for command in (submit(most=1), STEP):
        assert session.step(command) is None
    engine.free = 7
    assert session.step(PlanStep()) is None
    violation = session.step(AnswerStep(1, 0, 0))
    assert violation is not None
    assert (violation.invariant, violation.command_index) == ("LEAK", 3)


def test_blocks_that_are_missing_from_the_beginning_are_named() -> None:
    engine = Counting(8)
    engine.free = 7
    violation = session_of(engine).first_look()
    assert violation is not None
    assert violation.invariant == "LEAK"


def test_an_engine_that_shows_nothing_leaks_unseen() -> None:
    session = scripted()
    session.step(PlanStep())
    session.step(AnswerStep(1, 0, 0))
    assert session.first_look() is None
    assert session.end() is None


def test_an_engine_that_was_not_asked_since_is_not_at_rest() -> None:
    session = session_of(NativePlainEngine(8))
    assert not session.nobody_holds()
    session.step(submit(most=1))
    session.step(STEP)
    assert not session.nobody_holds()
    session.step(STEP)
    assert session.nobody_holds()


def test_commands_of_methods_that_the_target_lacks_are_not_defined() -> None:
    session = session_of(NativePlainEngine(8))
    assert not session.is_defined(Reset())
    assert session.is_defined(STEP)


# What workers have beside blocks.

SEEING = {"image_tokens": 4, "encoder_cache_tokens": 4}
PICTURE = Submit(0, TokenChain((1, 1, 1, 2), images=(Image("a", 0, 3),)), 9, 0)


def test_an_image_is_encoded_with_the_first_step_that_computes_it() -> None:
    session = scripted(computing(entry(count=4), encodes=["a"]), **SEEING)
    assert [session.step(command) for command in (PICTURE, STEP)] == [None, None]


def test_an_image_that_was_forgotten_is_not_there() -> None:
    session = scripted(
        computing(entry(count=2), encodes=["a"]),
        computing(entry(first=2, count=2), forgets=["a"]),
        **SEEING,
    )
    found = first_found(session, PICTURE, STEP, STEP)
    assert "in image 'a', for which the worker has no output" in found.sentence


def test_an_image_may_go_and_come_back_in_one_step() -> None:
    session = scripted(
        computing(entry(count=2), encodes=["a"]),
        computing(entry(first=2, count=2), forgets=["a"], encodes=["a"]),
        **SEEING,
    )
    assert [session.step(command) for command in (PICTURE, STEP, STEP)] == [None] * 3


def test_plans_say_nothing_of_images_where_nothing_is_kept_of_them() -> None:
    session = scripted(computing(entry(count=4)), image_tokens=4)
    assert [session.step(command) for command in (PICTURE, STEP)] == [None, None]


def test_a_step_with_more_adapters_than_workers_hold_is_named() -> None:
    plan = computing(entry(0), entry(1, blocks=(2,)))
    session = scripted(plan, max_adapters=1)
    adapters = [
        Submit(number, TokenChain((1,), (f"adapter-{number}", "path")), 9, 0) for number in (0, 1)
    ]
    found = first_found(session, *adapters, STEP)
    assert "with 2 adapters; max_adapters is 1" in found.sentence


# Resets.


class ResettingEngine(ScriptedEngine):
    """Every reset is done."""

    def reset(self) -> Any:
        return True


def resetting(*plans: Any, **rows: Any) -> EngineSession:
    return session_of(ResettingEngine(plans), **rows)


def test_after_a_reset_nothing_is_there_that_was_computed_before() -> None:
    again = entry(1, first=3, blocks=(0, 1))
    session = resetting(computing(PROMPT), computing(again))
    found = first_found(session, submit(), STEP, Cancel(0), Reset(), submit(1), STEP)
    assert found.invariant == "DATA"
    assert "KV that nobody has computed" in found.sentence


def test_who_runs_must_not_go_on_with_kv_from_before_a_reset() -> None:
    session = resetting(computing(PROMPT), computing(entry(first=4)), reset="preempts")
    assert first_found(session, submit(), STEP, Reset(), STEP).invariant == "DATA"


def test_who_runs_is_computed_anew_after_a_reset_that_preempts() -> None:
    session = resetting(computing(PROMPT), computing(entry(count=5)), reset="preempts")
    commands = (submit(), STEP, Reset(), STEP)
    assert [session.step(command) for command in commands] == [None] * 4
    assert "a reset took the blocks of requests that ran" in session.facts


def test_what_was_in_flight_at_a_reset_that_preempts_may_be_dropped() -> None:
    class DroppingEngine(ResettingEngine):
        def answer(self, tokens: dict[int, list[int]], drafts: dict[int, list[int]], /) -> Any:
            return []

    plans = (computing(PROMPT),)
    session = session_of(DroppingEngine(plans), reset="preempts")
    commands = (submit(), PlanStep(), Reset(), AnswerStep(5, 0, 0))
    assert [session.step(command) for command in commands] == [None] * 4


def test_who_had_lost_its_blocks_before_an_idle_reset_is_not_judged_by_what_it_reads() -> None:
    halves = computing(entry(count=2)), computing(entry(first=2, count=2))
    session = resetting(*halves, computing(preempted=[0]), steps_in_flight=2)
    for command in (submit(), STEP, PlanStep(), PlanStep(), Reset(), AnswerStep(5, 0, 0)):
        assert session.step(command) is None


@pytest.mark.parametrize(
    ("salts", "difference"),
    [
        ((None, None), "only the weights differ"),
        (("x", "x"), "only the weights differ"),
        (("x", "y"), "only the salt and the weights differ"),
    ],
)
def test_what_a_step_in_flight_writes_after_a_reset_is_of_other_weights(
    salts: tuple[str | None, str | None], difference: str
) -> None:
    session = resetting(
        computing(PROMPT), computing(entry(1, first=3, blocks=(0,))), reset="preempts"
    )
    one, other = (
        Submit(number, TokenChain((1, 2, 3, 4), None, salt), 9, 0)
        for number, salt in enumerate(salts)
    )
    found = first_found(session, one, PlanStep(), Reset(), AnswerStep(5, 0, 0), other, STEP)
    assert found.invariant == "DATA"
    assert "before a reset" in found.sentence
    assert found.sentence.endswith(difference)


def test_a_store_that_follows_its_step_takes_what_the_step_has_written() -> None:
    follows = computing(PROMPT, transfers=[moving("store", 1, [0], [6], follows=True)])
    session = scripted(follows, computing(HIT, transfers=[load(waits=True)]))
    session.step(submit())
    session.step(PlanStep())
    assert not session.is_defined(Arrive(0, 0))
    for command in (AnswerStep(5, 0, 0), Arrive(0, 0), STEP):
        assert session.step(command) is None


def test_a_step_waits_for_the_transfers_that_it_flushes() -> None:
    overwriting = computing(entry(1, count=4, blocks=[0]), flushes=[1])
    engine = ScriptedEngine([LATE_STORE, overwriting, computing(HIT, transfers=[load(waits=True)])])
    session = session_of(engine)
    for command in (submit(), submit(1, (5, 6, 7, 8)), STEP, STEP, STEP):
        assert session.step(command) is None
    assert ("arrived", 1, True) in engine.calls


def test_a_flush_of_what_is_not_in_flight_breaks_plan() -> None:
    violation = first_found(scripted(computing(flushes=[3])), STEP)
    assert violation.sentence == "the step waits for transfer 3, which is not in flight"


FAILS = computing(HIT, transfers=[load(waits=True, fails=True)])


def test_who_reads_what_failed_to_load_is_given_nothing() -> None:
    session = scripted(STORE, FAILS, outputs=[[(0, [5], False)], []])
    for command in (submit(), STEP, STEP):
        assert session.step(command) is None
    given = scripted(STORE, FAILS)
    assert first_found(given, submit(), STEP, STEP).invariant == "OUT"


def test_what_was_computed_over_a_failed_load_is_wrong_itself() -> None:
    again = computing(entry(first=0, count=4, blocks=[3, 1]))
    other = computing(entry(1, first=5, blocks=[3, 1]))
    session = scripted(STORE, FAILS, again, other, outputs=[[(0, [5], False)], [], [], []])
    begin = submit(), submit(1, (1, 2, 3, 4, 5, 6)), STEP, STEP, STEP
    assert first_found(session, *begin, STEP).invariant == "DATA"


def test_a_request_may_end_without_a_token_where_the_profile_says_so() -> None:
    ended = [[(0, [], True)]]
    session = scripted(computing(), outputs=list(ended), failed_loads="may-end-requests")
    for command in (submit(), STEP):
        assert session.step(command) is None
    assert not session.model.live
    assert (
        first_found(scripted(computing(), outputs=list(ended)), submit(), STEP).invariant == "OUT"
    )
