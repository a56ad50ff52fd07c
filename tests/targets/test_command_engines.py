"""Engines behind a program: what they are asked, what they answer, what is wrong with an answer."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import RunStep, Submit
from poolproof.contract.engine_plan import plan_from
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import engine_capabilities_of
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Violation
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_session import EngineSession
from poolproof.targets.command_engine import CommandEngine, engine_text
from poolproof.targets.command_messages import Hello
from poolproof.targets.command_process import CommandSession, words_of
from poolproof.targets.load import load_target
from poolproof.targets.message_server import MessageServer
from poolproof.targets.serve import serve
from poolproof.targets.serve_engine import EngineServer
from poolproof.targets.target import Target

SERVE = f"cmd:{shlex.quote(sys.executable)} -m poolproof.targets.serve"
ENGINES = Path(__file__).parents[1] / "certification" / "hostile_engines.py"
PROGRAM = Path(__file__).with_name("hostile_engine.py")


def served(name: str) -> Target:
    return load_target(f"{SERVE} {shlex.quote(name)}")


def hostile(how: str) -> str:
    return f"cmd:{shlex.join([sys.executable, str(PROGRAM), how])}"


def first_violation(target: Target, runs: int) -> Violation | None:
    (layout,) = target.layouts
    assert layout.make is not None
    assert isinstance(layout.profile, EngineProfile)
    campaign = EngineCampaign(target.name, layout.make, layout.profile, layout.block_size)
    traces = (campaign.run(number).trace for number in range(runs))
    return next((trace.violation for trace in traces if trace is not None), None)


@pytest.fixture(scope="module")
def impl() -> Target:
    return served("impl-engine")


def test_a_program_says_that_it_is_an_engine(impl: Target) -> None:
    assert (impl.level, impl.shape, impl.block_size) == (Level.ENGINE, "command", 4)
    native = load_target("impl-engine")
    assert impl.profile.to_json() == native.profile.to_json()
    assert engine_capabilities_of(impl.make(4, True)) == engine_capabilities_of(
        native.make(4, True)
    )


def test_rows_and_a_block_size_can_be_set_beside_a_program() -> None:
    target = load_target(f"{SERVE} {ENGINES}:Right[max_running=2,block_size=8]")
    assert target.block_size == 8
    assert isinstance(target.profile, EngineProfile)
    assert target.profile.max_running == 2


@pytest.mark.parametrize("name", ["impl-engine", f"{ENGINES}:Right"])
def test_a_right_engine_holds_behind_a_program(name: str) -> None:
    assert first_violation(served(name), 8) is None


@pytest.mark.parametrize(
    ("name", "invariant"),
    [("KeepsABlock", "LEAK"), ("GivesTwice", "OUT"), ("ComputesTooMuch", "PLAN")],
)
def test_a_wrong_engine_is_found_behind_a_program(name: str, invariant: str) -> None:
    found = first_violation(served(f"{ENGINES}:{name}"), 20)
    assert found is not None
    assert found.invariant == invariant


def test_the_same_commands_get_the_same_answers_as_in_process(impl: Target) -> None:
    engines = [target.make(6, True) for target in (impl, load_target("impl-engine"))]
    prompt = [1, 2, 1, 2, 1]
    keys = (("lora", ("a", "/a"), 0, None),)
    told: list[list[Any]] = [[], []]
    for engine, heard in zip(engines, told, strict=True):
        engine.submit(0, prompt, max_new_tokens=2, priority=1, extra_keys=keys)
        engine.submit(1, prompt, max_new_tokens=1, priority=0, extra_keys=None)
        heard.append(plan_from(engine.plan()))
        heard.append([list(entry) for entry in engine.answer({0: [2], 1: [1]}, {0: []})])
        engine.cancel(0)
        heard.append([engine.num_free(), engine.unfinished(), engine.reset()])
    assert told[0] == told[1]


def test_a_step_is_two_questions(impl: Target) -> None:
    lines: list[str] = []
    words = words_of(impl.name.removeprefix("cmd:"))
    session = CommandSession(words, heard=lambda way, line: lines.append(f"{way} {line}"))
    hello = session.hello(timeout_s=60)
    session.begin(6, True, block_size=4, shows_state=False)
    engine = CommandEngine(hello, _Live(session))
    driven = EngineSession(engine, EngineProfile(null_block=0), 6, 4)
    assert driven.step(Submit(0, TokenChain((1, 2)), 1, 0)) is None
    lines.clear()
    assert driven.step(RunStep(1, 0, 0)) is None
    asked = [line.partition('"do":"continue"')[2] for line in lines if line.startswith("sent")]
    assert asked == [
        ',"commands":[{"do":"plan"}]}',
        ',"commands":[{"do":"answer","tokens":[[0,[1]]],"drafts":[]}]}',
    ]
    session.close()


class _Live:
    """Asks the program of a session."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session

    def ask(self, command: str) -> Any:
        return self._session.go_on([command])[0]

    def abandon(self) -> None:
        self._session.close()


def test_what_is_said_of_requests_are_pairs() -> None:
    assert (
        engine_text("answer", {0: [3], 2: [1, 0]}, {0: [4]})
        == '{"do":"answer","tokens":[[0,[3]],[2,[1,0]]],"drafts":[[0,[4]]]}'
    )
    assert engine_text("arrived", 9, False) == '{"do":"arrived","transfer_id":9,"ok":false}'


def test_an_engine_of_version_2_is_refused_in_words() -> None:
    server: MessageServer = EngineServer(load_target("impl-engine"))
    answer = server.answer({"seq": 1, "do": "start", "protocol": 2})
    assert answer["error"] == "engines need version 3"


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        ("version-2", "an engine that speaks version 2 of the protocol; engines have been in it"),
        ("no-answer", 'its "verbs" lack answer, which an engine needs'),
        ("unknown-verb", 'its "verbs" name prefetch; known are'),
        ("unknown-row", "must be one of fcfs, priority"),
        ("odd-block-size", "block_size is a number of tokens"),
    ],
)
def test_an_introduction_of_something_else(how: str, wrong: str) -> None:
    with pytest.raises(TargetError) as caught:
        load_target(hostile(how))
    assert wrong in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("how", ["fine", "blind"])
def test_the_program_of_these_tests_is_right_as_it_is(how: str) -> None:
    assert first_violation(load_target(hostile(how)), 12) is None


@pytest.mark.parametrize(
    ("how", "invariant", "wrong"),
    [
        ("dies-in-plan", "CRASH", "it ended with exit status 3; its last words: no free block"),
        ("junk-in-plan", "CRASH", "is not JSON (12 bytes, beginning with 'planning ...')"),
        ("late", "CRASH", "again, or too late, instead of message"),
        ("error", "CRASH", "the program says that it failed: no plan today"),
        ("refused", "CRASH", "the program refuses this command (no plan today)"),
        ("skipped", "CRASH", "the program skips this command (no plan today)"),
        (
            "silent",
            "CRASH",
            "plan() answered what cannot be read: a plan must be a mapping",
        ),
        ("text-for-a-number", "CRASH", "must have numbers"),
        ("half-a-position", "CRASH", "must have numbers"),
        ("unknown-key", "CRASH", "temperature"),
        ("lost-transfer", "CRASH", "moves 2 blocks and names 1 places"),
        ("unknown-request", "PLAN", "77"),
        ("block-beyond", "PLAN", "1000"),
        ("block-below", "PLAN", "-1"),
        ("no-blocks", "PLAN", "request A"),
        ("too-many", "PLAN", "1000"),
        ("two-tables", "PLAN", "2"),
        ("twice", "PLAN", "request A"),
        ("outputs-as-object", "CRASH", "are not a list of (request, tokens, ended)"),
        ("free-in-words", "CRASH", "num_free() answered 'all'; it must answer an integer"),
    ],
)
def test_a_program_that_misbehaves_is_a_finding_in_one_line(
    how: str, invariant: str, wrong: str
) -> None:
    found = first_violation(load_target(hostile(how)), 1)
    assert found is not None
    assert wrong in found.sentence
    assert (found.invariant, "\n" in found.sentence) == (invariant, False)


def test_a_run_that_is_skipped_is_no_finding() -> None:
    target = load_target(hostile("needs-caching"))
    target.make(4, True)
    with pytest.raises(TargetError, match=r"of 4 tokens, caching off: it skips this run"):
        target.make(4, False)


def test_after_a_death_the_next_engine_has_a_program_of_its_own() -> None:
    target = load_target(hostile("dies-in-plan"))
    assert first_violation(target, 1) is not None
    assert target.make(5, True).num_free() == 5


HELLO = Hello("canned", None, "engine", frozenset({"submit", "plan", "answer"}), frozenset())


def test_a_program_is_asked_only_for_what_it_announced() -> None:
    can = engine_capabilities_of(CommandEngine(HELLO, _Live(CommandSession(["true"]))))
    assert can.verbs == {"submit", "plan", "answer", "run"}
    assert not can.observers


def test_what_json_does_not_have_is_the_error_of_the_target(tmp_path: Path) -> None:
    from io import StringIO

    engine = tmp_path / "sets.py"
    engine.write_text(
        "class Engine:\n"
        "    def __init__(self, num_blocks, block_size, *, enable_caching=True): pass\n"
        "    def submit(self, request_id, tokens, **limits): pass\n"
        "    def answer(self, tokens, drafts): return []\n"
        "    def plan(self): return {'compute': [], 'preempted': {1, 2}}\n"
    )
    asked = StringIO(
        '{"seq":1,"do":"run","num_blocks":2,"block_size":4,"enable_caching":true,'
        '"show":"nothing","commands":[{"do":"plan"}]}\n'
    )
    answers = StringIO()
    serve(load_target(f"{engine}:Engine"), asked, answers)
    assert '"seq":1,"error":"an answer is not JSON: TypeError' in answers.getvalue()
