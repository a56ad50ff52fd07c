"""The managers' workload: turns, scripts, and prompts that fit; what it is worth is measured."""

import pytest

from poolproof.contract.commands import Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Fork, Step
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.harness import manager_weights as tuned
from poolproof.harness.choices import SeededChoices
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.harness.uniform_workload import UniformManagerWorkload
from poolproof.reference.native_manager import NativeSequenceManager

SLIDING = ManagerProfile(null_block=0, groups=(CacheGroup("sliding", window=4),))


def session_of(profile=None):
    profile = profile or ManagerProfile(host_blocks=6)
    return ManagerSession(NativeSequenceManager(8, 2, profile=profile), profile, 8, 2)


def workload_of(session, kind=ManagerWorkload):
    return kind(SeededChoices("workload"), session.model, session.can)


def computed(session):
    for command in (Admit(0, TokenChain((0, 1, 0)), 0), Step()):
        assert session.step(command) is None


def script_after_a_fork(workload):
    """What is to come after a fork, in order."""
    workload.next_id = 1
    assert isinstance(workload.fork(), Fork)
    return tuple(reversed(workload._script))


def test_after_a_fork_comes_one_of_its_scripts():
    session = session_of()
    computed(session)
    assert script_after_a_fork(workload_of(session)) in tuned.AFTER_FORK


def test_a_script_gives_the_next_command():
    session = session_of()
    computed(session)
    workload = workload_of(session)
    workload._follow((("lookup_prefix", "reset"),))
    assert [workload.next().verb, workload.next().verb] == ["lookup_prefix", "reset"]


def test_a_script_leaves_out_what_a_target_lacks():
    session = session_of(profile=ManagerProfile(host_blocks=0))
    computed(session)
    assert not {"swap_out", "swap_in"} & set(script_after_a_fork(workload_of(session)))


def test_a_script_is_not_interrupted_by_another():
    session = session_of()
    computed(session)
    workload = workload_of(session)
    workload._follow((("lookup_prefix",),))
    workload.truncate()
    assert workload._script == ["lookup_prefix"]


def test_the_uniform_workload_follows_no_script():
    session = session_of()
    computed(session)
    assert script_after_a_fork(workload_of(session, UniformManagerWorkload)) == ()


@pytest.mark.parametrize("is_windowed", [False, True])
@pytest.mark.parametrize("is_looked_up", [False, True])
def test_keys_are_a_subject_only_where_something_is_cached(is_windowed, is_looked_up):
    rows = {"is_windowed": is_windowed, "is_looked_up": is_looked_up}
    assert "adapters" in tuned.subjects(is_cached=True, **rows)
    assert "adapters" not in tuned.subjects(is_cached=False, **rows)


def test_every_weight_is_of_a_verb():
    verbs = set(workload_of(session_of()).makers)
    for weights in (tuned.IDENTITY, tuned.FAMILY, tuned.LONG, tuned.CHURN, tuned.COLLIDING):
        assert set(weights) <= set(tuned.USUAL) <= verbs


def test_a_run_turns_again_and_again():
    turns = []

    class Counting(ManagerWorkload):
        def bias(self):
            turns.append(None)
            super().bias()

    campaign = ManagerCampaign(
        "turns",
        lambda num_blocks, caching: NativeSequenceManager(num_blocks, 2, enable_caching=caching),
        ManagerProfile(),
        2,
        workload=Counting,
    )
    commands = []
    assert campaign.run(0, commands.append).trace is None
    assert len(turns) > 1
    assert commands[-1] == Reset()


def test_a_prompt_is_wanted_again_behind_a_window():
    session = session_of(profile=SLIDING)
    workload = workload_of(session)
    prompts = [workload.admit() for _ in range(40)]
    tokens = [command.chain.tokens for command in prompts if command is not None]
    assert any(
        a != b and b[: len(a) // 2 * 2] == a[: len(a) // 2 * 2] for a in tokens for b in tokens
    )
