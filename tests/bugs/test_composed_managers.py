"""Managers of random designs hold under their own profiles and are accused under others."""

import pytest

from poolproof.bugs import composed_managers
from poolproof.bugs.composed_managers import composed, contradictions, design_of
from poolproof.certification.certificate import Verdict
from poolproof.certification.certify import certify
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.verdict import Rules, judge
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Admit,
    AppendTokens,
    Finish,
    Fork,
    LookupPrefix,
    Preempt,
    Resume,
    Step,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.targets.load import load_target

BLOCK_SIZE = 4
FEW, MANY = range(8), range(8, 200)


def first_violation(seed, other, num_runs):
    """What runs of the plain driver find in a design, with rows that replace its own."""
    design, cls = design_of(seed), composed(seed)
    profile = ManagerProfile.from_mapping({**design.rows, **other})
    campaign = ManagerCampaign(
        design.name, lambda n, on: cls(n, BLOCK_SIZE, enable_caching=on), profile, BLOCK_SIZE
    )
    traces = (campaign.run(number).trace for number in range(num_runs))
    return next((trace.violation for trace in traces if trace is not None), None)


@pytest.mark.some(4)
@pytest.mark.parametrize("seed", FEW)
def test_a_design_holds_under_its_own_profile(seed):
    assert first_violation(seed, {}, 12) is None


@pytest.mark.parametrize("seed", FEW)
def test_a_design_is_accused_under_a_profile_that_contradicts_it(seed):
    assert first_violation(seed, dict([design_of(seed).contradiction]), 600) is not None


def test_a_longer_hit_of_a_chunk_may_be_there_where_a_shorter_one_is_not():
    # Behind a chunk's edge one block is read; the block in front of it was written anew.
    design, cls = design_of(53), composed(53)
    profile = ManagerProfile.from_mapping(design.rows)
    campaign = ManagerCampaign(
        design.name, lambda n, on: cls(n, BLOCK_SIZE, enable_caching=on), profile, BLOCK_SIZE
    )
    trace = campaign.run(9010).trace
    assert trace is None or trace.violation is None


def commands_hold(seed, num_blocks, commands):
    design = design_of(seed)
    profile = ManagerProfile.from_mapping(design.rows)
    manager = composed(seed)(num_blocks, BLOCK_SIZE, enable_caching=True)
    session = ManagerSession(manager, profile, num_blocks, BLOCK_SIZE)
    return [session.step(command) for command in commands] == [None] * len(commands)


PROMPT = TokenChain((0,) * BLOCK_SIZE)
LONGER = TokenChain((0,) * (BLOCK_SIZE + 1))


def test_a_twin_that_is_held_may_have_been_cached_before():
    # Two are full of the same in one step, and the first that the manager sees gets the key.
    commands = (
        *(Admit(0, PROMPT, 0), Admit(1, PROMPT, 0), Step(), Finish(0), Step()),
        *(Fork(1, 2), AppendTokens(1, (0,)), AppendTokens(2, (0,)), Admit(3, PROMPT, 0)),
        *(Preempt(2), Step(), Truncate(1, 1), Resume(2, 0)),
    )
    assert commands_hold(25, 9, commands)


def test_a_twin_that_is_free_may_have_been_cached_before():
    # What the design cached anew it gives back, and forgets it once the next one is computed.
    commands = (
        *(Admit(0, PROMPT, 0), Step(), Admit(1, PROMPT, 0), Finish(0), AppendTokens(1, (0,))),
        *(Step(), Fork(1, 2), AppendTokens(1, (0,)), Step(), AppendTokens(1, (0, 0, 0))),
        *(Preempt(1), Finish(2), Step(), Resume(1, 0), Step(), AppendTokens(1, (0,))),
        LookupPrefix(LONGER),
    )
    assert commands_hold(25, 9, commands)


@pytest.mark.deep
@pytest.mark.parametrize("seed", MANY)
def test_many_designs_hold_and_are_accused_when_contradicted(seed):
    assert first_violation(seed, {}, 40) is None
    assert first_violation(seed, dict([design_of(seed).contradiction]), 600) is not None


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(4))
def test_a_design_is_certified_by_its_name(seed):
    options = CertifyOptions(depth="quick", workers=2)
    found = certify(lambda: load_target(design_of(seed).target), options, SilentProgress())
    certificate = judge(found, Rules())
    assert certificate.verdict is Verdict.HOLDS, certificate.findings


def test_a_seed_is_always_the_same_design():
    assert design_of(3) == design_of(3)
    assert composed_managers.Composed3.profile == dict(design_of(3).rows)
    assert composed_managers.Composed3.__name__ == "Composed3"


@pytest.mark.parametrize("name", ["Composed", "Composed-1", "Composed07", "Composedx", "Other"])
def test_other_names_are_no_designs(name):
    with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
        getattr(composed_managers, name)


def test_a_design_is_loaded_as_any_class_of_a_module():
    target = load_target("poolproof.bugs.composed_managers:Composed7")
    assert target.profile.to_json()["publishes"] == design_of(7).rows["publishes"]


def test_a_hundred_designs_have_every_layout_every_habit_and_most_values():
    designs = [design_of(seed) for seed in range(100)]
    assert len({d.layout for d in designs}) == 7
    assert len({habit for d in designs for habit in d.habits}) == 22
    values = {row: {d.rows[row] for d in designs} for row in ("publishes", "retention", "eviction")}
    assert values["publishes"] == {"computed", "scheduled", "prompts", "finish"}
    assert values["retention"] == {"exact", "may-drop", "while-held"}
    assert values["eviction"] == {
        "lru", "unhashed-first", "unhashed-lifo", "lifo", "unspecified"
    }  # fmt: skip
    assert len({d.contradiction[0] for d in designs}) >= 10


def test_every_design_serves_its_profile_and_differs_from_its_contradiction():
    for seed in range(100):
        design, cls = design_of(seed), composed(seed)
        profile = ManagerProfile.from_mapping(cls.profile)
        assert cls.serves(profile)
        row, value = design.contradiction
        assert profile.to_json()[row] != value


def test_a_hundred_designs_are_contradicted_in_every_way_that_they_are_made_of():
    tried = [contradictions(design_of(seed)) for seed in range(100)]
    rows = {row for found in tried for row, _ in found}
    assert rows >= {"publishes", "groups", "duplicates", "retention", "eviction", "index"}
    assert rows >= {"release_order", "frees", "held_blocks", "prior_sightings", "tables"}
    assert min(len(found) for found in tried) >= 4


def test_each_contradiction_is_a_value_that_the_design_does_not_have():
    for seed in range(100):
        design = design_of(seed)
        own = ManagerProfile.from_mapping(design.rows)
        for row, value in contradictions(design):
            other = ManagerProfile.from_mapping({**design.rows, row: value})
            # Under an index by content tables may merge, unless they are declared to append.
            assert other != own, (seed, row)


@pytest.mark.some(6)
@pytest.mark.parametrize(
    "row", ["groups", "index", "publishes", "duplicates", "retention", "tables"]
)
@pytest.mark.parametrize("seeds", [range(20), range(20, 40), range(40, 60)], ids=str)
def test_a_design_is_accused_where_one_of_its_own_ideas_is_contradicted(row, seeds):
    found = [(seed, dict([one])) for seed in seeds for one in contradictions(design_of(seed))]
    seed, other = next(((s, other) for s, other in found if row in other), (None, None))
    if seed is None:
        pytest.skip(f"none of these designs has {row} otherwise")
    assert first_violation(seed, other, 300) is not None
