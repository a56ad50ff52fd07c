"""Managers that are told the sampled token by the step, before they publish anything."""

from __future__ import annotations

import shlex
import sys
from typing import Any

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.profile_rows import HashesAllButTheLast, HashesTheLastAsWell
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Fork,
    Preempt,
    Resume,
    Schedule,
    Step,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Violation
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.harness.replay import replay
from poolproof.reference.manager_legality import as_told
from poolproof.targets.load import load_target

SIZE = 4
TOLD = ManagerProfile.from_mapping({"sampled": "with-step", "index": "exact"})


class Hearing(CleanManager):
    """It keeps what it is told, and the list that it was told with."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.heard: list[Any] = []
        self.given: Any = None

    def step(self, batch: list[tuple[int, int]], *, sampled: Any = "nothing") -> None:
        self.given = sampled
        self.heard.append(list(sampled) if isinstance(sampled, list) else sampled)
        super().step(batch)

    def accept(self, seq_id: int, num_tokens: int, *, sampled: Any = "nothing") -> None:
        self.heard.append(sampled)
        super().accept(seq_id, num_tokens)


def opened(profile: ManagerProfile = TOLD, num_blocks: int = 8) -> ManagerSession:
    target = Hearing(num_blocks, SIZE, rules=profile)
    return ManagerSession(target, profile, num_blocks, SIZE)


def play(session: ManagerSession, *commands: Any) -> Violation | None:
    found = None
    for command in commands:
        assert session.is_defined(command), command
        found = found or session.step(command)
    return found


def prompt(*tokens: int) -> TokenChain:
    return TokenChain(tokens)


def told_to(session: ManagerSession, seq_id: int) -> int | None:
    return session.model.sequences[seq_id].told


def test_a_step_tells_the_token_behind_each_sequence_that_it_computes_to_its_end() -> None:
    session = opened()
    assert play(session, Admit(0, prompt(5, 6, 7), 0), Admit(1, prompt(5, 6, 8), 0), Step()) is None
    assert [sorted(heard) for heard in session.target.heard] == [[(0, 1), (1, 0)]]
    assert (told_to(session, 0), told_to(session, 1)) == (1, 0)


def test_nothing_is_told_of_a_prompt_with_more_to_come() -> None:
    session = opened()
    assert play(session, Admit(0, prompt(5, 6, 7, 8, 9), 2), Step()) is None
    assert session.target.heard == [[]]
    assert play(session, Schedule(0, 3), Step()) is None
    assert session.target.heard[1:] == [[(0, 1)]]


def test_drafts_are_accepted_with_the_token_behind_them() -> None:
    session = opened()
    assert play(session, Admit(0, prompt(5, 6), 0), Draft(0, (1, 1)), Step()) is None
    assert session.target.heard == [[]]
    assert play(session, Accept(0, 1)) is None
    assert session.target.heard[1:] == [1]
    assert told_to(session, 0) == 1


def test_the_next_growth_begins_with_what_was_told() -> None:
    session = opened()
    play(session, Admit(0, prompt(5, 6, 7), 0), Step())
    assert not session.is_defined(AppendTokens(0, (0, 9)))
    meant = as_told(session.model, AppendTokens(0, (0, 9)))
    assert meant == AppendTokens(0, (1, 9))
    assert play(session, meant) is None
    assert told_to(session, 0) is None
    assert play(session, AppendTokens(0, (7,))) is None  # before the step nothing is told


def test_a_refused_growth_forgets_nothing() -> None:
    session = opened(num_blocks=1)
    play(session, Admit(0, prompt(5, 6, 7, 8), 0), Step(), AppendTokens(0, (0,)))
    assert session.calls.refused
    assert told_to(session, 0) == 0


@pytest.mark.parametrize(
    "commands", [(Truncate(0, 2),), (Preempt(0), Resume(0, 0))], ids=["cut", "preempted"]
)
def test_what_is_cut_or_preempted_goes_on_with_any_token(commands: tuple[Any, ...]) -> None:
    session = opened()
    play(session, Admit(0, prompt(5, 6, 7), 0), Step(), *commands)
    assert told_to(session, 0) is None
    assert play(session, AppendTokens(0, (9,))) is None


def test_a_child_goes_on_with_a_token_of_its_own() -> None:
    session = opened()
    play(session, Admit(0, prompt(5, 6, 7), 0), Step(), Fork(0, 1))
    assert (told_to(session, 0), told_to(session, 1)) == (1, None)
    assert play(session, AppendTokens(1, (9,)), AppendTokens(0, (1,)), Step()) is None


def test_the_list_that_tells_is_the_callers() -> None:
    session = opened()
    play(session, Admit(0, prompt(5, 6, 7), 0), Step())
    assert session.target.given == []


def test_a_manager_that_says_nothing_of_it_is_called_without() -> None:
    session = opened(ManagerProfile())
    play(session, Admit(0, prompt(5), 0), Draft(0, (1,)), Step(), Accept(0, 0), Step())
    assert session.target.heard == ["nothing"] * 3


def test_a_trace_of_a_block_that_is_found_too_early_shrinks_and_is_replayed() -> None:
    def make(num_blocks: int, enable_caching: bool) -> Any:
        return HashesTheLastAsWell(num_blocks, SIZE, enable_caching=enable_caching)

    profile = ManagerProfile.from_mapping(HashesTheLastAsWell.profile)
    campaign = ManagerCampaign("early", make, profile, SIZE)
    found = next(t for n in range(20) if (t := campaign.run(n).trace) is not None)
    shrunk = minimise(found, lambda trace, commands: run_candidate(trace, commands, make))
    assert shrunk.commands == (Admit(0, prompt(0, 0, 0), 0), Step())
    again = replay(shrunk, make)
    assert (again.violation, again.num_left_out) == (shrunk.violation, 0)


@pytest.mark.some(0)
def test_a_program_is_told_as_well() -> None:
    name = f"{HashesAllButTheLast.__module__}:{HashesAllButTheLast.__name__}"
    program = load_target(f"cmd:{shlex.quote(sys.executable)} -m poolproof.targets.serve {name}")
    assert program.profile.sampled == "with-step"
    campaign = ManagerCampaign(name, program.make, program.profile, SIZE)
    assert all(campaign.run(number).trace is None for number in range(6))


@pytest.mark.parametrize("lacking", ["step", "accept"])
def test_a_method_that_cannot_be_told_is_named_when_the_class_is_loaded(
    lacking: str, tmp_path: Any
) -> None:
    arguments = {"step": "batch, *, sampled=()", "accept": "seq_id, num_tokens, *, sampled=None"}
    arguments[lacking] = arguments[lacking].partition(", *")[0]
    (tmp_path / "deaf.py").write_text(
        "from poolproof.bugs.clean_manager import CleanManager\n"
        "class Manager(CleanManager):\n"
        "    profile = {'sampled': 'with-step'}\n"
        f"    def step(self, {arguments['step']}): pass\n"
        f"    def accept(self, {arguments['accept']}): pass\n"
    )
    with pytest.raises(TargetError, match=f"sampled=with-step, so that {lacking} is called with"):
        load_target(f"{tmp_path}/deaf.py:Manager")
