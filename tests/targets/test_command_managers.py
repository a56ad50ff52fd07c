"""Managers behind a program: what they show, what they answer, and what is wrong with an answer."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import TargetError
from poolproof.contract.violation import ViolationError
from poolproof.harness.block_sizes import ManagerBlockSizesCampaign
from poolproof.harness.careful_session import CAREFUL, ONE_AT_A_TIME, open_manager_session
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.command_manager import CommandManager, manager_text
from poolproof.targets.command_messages import Hello
from poolproof.targets.load import load_target
from poolproof.targets.serve_manager import ManagerServer
from poolproof.targets.target import Target

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SERVE = f"cmd:{shlex.quote(sys.executable)} -m poolproof.targets.serve"
SIMPLE = f"{EXAMPLES}/simple_manager.py:Manager"
HYBRID = f"{EXAMPLES}/hybrid_manager.py:Manager"


def served(name: str) -> Target:
    return load_target(f"{SERVE} {shlex.quote(name)}")


@pytest.fixture(scope="module")
def simple() -> Target:
    return served(SIMPLE)


def test_a_program_says_that_it_is_a_manager(simple: Target) -> None:
    assert (simple.level, simple.shape, simple.block_size) == (Level.MANAGER, "command", 4)
    native = load_target(SIMPLE)
    assert isinstance(native.profile, ManagerProfile)
    assert {**simple.profile.to_json()} == native.profile.to_json()
    assert manager_capabilities_of(simple.make(4, True)) == manager_capabilities_of(
        native.make(4, True)
    )


def test_rows_and_a_block_size_can_be_set_beside_a_program() -> None:
    target = load_target(f"{SERVE} {SIMPLE}[eviction=unspecified,block_size=8]")
    assert target.block_size == 8
    assert target.profile.eviction == "unspecified"


@pytest.mark.parametrize("num_blocks", [4, 100])
def test_an_instance_answers_and_shows_what_the_manager_behind_it_does(
    simple: Target, num_blocks: int
) -> None:
    """Up to 64 blocks everything is shown; in larger pools it is asked for."""
    manager, native = (t.make(num_blocks, True) for t in (simple, load_target(SIMPLE)))

    def look() -> list[Any]:
        return [
            [
                m.num_free(),
                m.free_order(),
                [m.ref_count(block) for block in range(num_blocks)],
                [m.is_cached(block) for block in range(num_blocks)],
            ]
            for m in (manager, native)
        ]

    for verb, given in (
        ("admit", (0, [1, 2, 3, 4, 5])),
        ("step", ([(0, 5)],)),
        ("admit", (1, [1, 2, 3, 4, 6])),
        ("append", (0, [7, 8, 9, 9])),
        ("admit", (2, list(range(16)))),
        ("admit", (3, list(range(17)))),
        ("finish", (0,)),
    ):
        answer, wanted = (getattr(m, verb)(*given) for m in (manager, native))
        assert answer == wanted
        seen, there = look()
        assert seen == there
        for seq_id in native.sequences:
            assert manager.block_table(seq_id) == native.block_table(seq_id)


@pytest.mark.some(2)
@pytest.mark.parametrize("name", [SIMPLE, HYBRID, "impl-manager", "impl-vllm-v0"])
def test_a_right_manager_holds_behind_a_program(name: str) -> None:
    layout = served(name).layouts[0]
    assert layout.make is not None
    assert isinstance(layout.profile, ManagerProfile)
    campaign = ManagerCampaign(name, layout.make, layout.profile, layout.block_size)
    for number in range(8):
        trace = campaign.run(number).trace
        assert trace is None, trace.violation


def test_other_block_sizes_are_asked_of_the_program(simple: Target) -> None:
    (layout,) = simple.layouts
    assert isinstance(layout.profile, ManagerProfile)
    campaign = ManagerBlockSizesCampaign("simple", layout.make_with, layout.profile, (1, 3, 8))
    for number in range(1, 5):
        assert campaign.run(number).trace is None


def test_a_wrong_manager_is_found_behind_a_program() -> None:
    target = served("poolproof.bugs.manager_index_bugs:NoAdapterInKey")
    layout = target.layouts[0]
    assert layout.make is not None
    assert isinstance(layout.profile, ManagerProfile)
    campaign = ManagerCampaign("wrong", layout.make, layout.profile, layout.block_size)
    assert any(campaign.run(number).trace is not None for number in range(20))


def test_a_careful_run_has_no_second_instance(simple: Target) -> None:
    assert isinstance(simple.profile, ManagerProfile)
    session = open_manager_session(
        simple.make, simple.profile, 6, 4, enable_caching=True, options={CAREFUL: True}
    )
    assert session.first_look() is None
    assert session.remarks == {ONE_AT_A_TIME}


def test_copies_at_an_admission_come_as_a_tuple() -> None:
    manager = instance([{"result": [6, [[0, 2, 2]]], "tables": {"0": [[1, 2]]}}])
    assert manager.admit(0, [1, 2, 3, 4, 5, 6, 7]) == (6, [[0, 2, 2]])


def test_the_verbs_have_the_names_of_the_contract() -> None:
    assert (
        manager_text("admit", seq_id=0, tokens=[1], extra_keys=(("lora", ("a", "/a"), 0, None),))
        == '{"do":"admit","seq_id":0,"tokens":[1],"extra_keys":[["lora",["a","/a"],0,null]]}'
    )


class Canned:
    """Answers that stand ready, whatever is asked."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def ask(self, command: str) -> dict[str, Any]:
        self.asked.append(command)
        return self.answers.pop(0)

    def abandon(self) -> None:
        pass


HELLO = Hello(
    name="canned",
    version=None,
    level="manager",
    verbs=frozenset({"admit", "append", "step", "finish"}),
    observers=frozenset({"num_free", "ref_count"}),
)
STATE = {"num_free": 4, "ref_counts": [0, 0, 0, 0]}


def instance(answers: list[dict[str, Any]], state: Any = STATE) -> Any:
    return CommandManager(HELLO, 4, Canned(answers), state)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": "it panicked"}, "says that it failed: it panicked"),
        ({"skipped": "never heard of it"}, "skips this command"),
        ({"tables": [[0]]}, '"tables" is no object'),
        ({"tables": {"0": [0]}}, "no list with a table for each group"),
        ({"ref_counts": [1]}, "an entry for each block"),
        ({"ref_counts": None}, "an entry for each block"),
    ],
)
def test_an_answer_that_means_nothing_is_a_finding(answer: dict[str, Any], words: str) -> None:
    with pytest.raises(ViolationError) as found:
        instance([answer]).append(0, [1])
    assert words in found.value.violation.sentence


def test_what_was_never_shown_is_a_finding() -> None:
    with pytest.raises(ViolationError, match="has not shown the table of sequence 3"):
        instance([]).block_table(3)
    with pytest.raises(ViolationError, match="lacks ref_counts"):
        instance([], {"num_free": 4})


def test_an_observer_is_named_by_its_name() -> None:
    manager = instance([])
    assert (manager.num_free.__name__, manager.ref_count.__name__) == ("num_free", "ref_count")


def test_a_manager_of_version_1_is_refused_in_words() -> None:
    server = ManagerServer(load_target(SIMPLE))
    answer = server.answer({"seq": 1, "do": "start", "protocol": 1})
    assert answer["error"] == "managers need version 2"


def test_a_manager_that_lacks_a_verb_cannot_be_driven(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        'print(\'{"seq":1,"protocol":2,"name":"x","level":"manager","verbs":["admit","step"],\''
        "'\"observers\":[]}', flush=True)\ninput()\n"
    )
    with pytest.raises(TargetError, match='"verbs" lack append, finish, which a manager needs'):
        load_target(f"cmd:{shlex.quote(sys.executable)} {shlex.quote(str(program))}")
