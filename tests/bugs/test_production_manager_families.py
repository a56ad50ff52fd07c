"""Manager bugs with a constant that small runs never reach are refused at production sizes."""

import pytest

from poolproof.bugs.production_look_alikes import LOOK_ALIKES
from poolproof.bugs.production_manager_families import FAMILIES, OF_BLOCK_SIZES
from poolproof.certification.depths import BUDGETS
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.harness.block_sizes import ManagerBlockSizesCampaign, other_block_sizes
from poolproof.harness.manager_driver import ManagerCampaign, ManagerProductionCampaign
from poolproof.harness.manager_production import QUICK_SIZES, required_script_facts
from poolproof.harness.replay import replay

VARIANTS = [variant for family in FAMILIES.values() for variant in family.values()]
AT_QUICK = [variant for variant in VARIANTS if variant.depth == "quick"]
FIRST_OF_EACH = [next(iter(family.values())) for family in FAMILIES.values()]
OTHERS_OF_EACH = [variant for variant in AT_QUICK if variant not in FIRST_OF_EACH]
# The first of each family, and the others in deep runs.
IN_OTHER_BLOCKS = [
    pytest.param(variant, id=variant.name, marks=[pytest.mark.deep] if number else [])
    for family in OF_BLOCK_SIZES.values()
    for number, variant in enumerate(family.values())
]


def by_name(variant):
    return variant.name


def campaign_of(cls, sizes, seed=0):
    # Some keys go stale without being hit again in the run, and only an exact index shows them.
    profile = ManagerProfile.from_mapping({"index": "exact", **cls.profile})
    return ManagerProductionCampaign(
        cls.__name__, lambda n, on: cls(n, 4, enable_caching=on), profile, 4,
        seed=seed, sizes=sizes,
    )  # fmt: skip


def failure_of(variant, depth, seed=0, script=None):
    """The first run of a depth that fails, of one script or of all."""
    sizes = BUDGETS[depth].manager_production
    campaign = campaign_of(variant.cls, sizes, seed)
    names = sizes.scripts_for(campaign.profile)
    for number in sizes.runs(campaign.profile):
        if script in (None, names[number % len(names)]):
            trace = campaign.run(number).trace
            if trace is not None:
                return trace
    return None


@pytest.mark.deep
@pytest.mark.parametrize("variant", OTHERS_OF_EACH, ids=by_name)
def test_a_member_is_refused_at_quick_by_the_script_that_is_made_for_it(variant):
    assert failure_of(variant, "quick", script=variant.script) is not None


def block_sizes_of(cls):
    profile = ManagerProfile.from_mapping(cls.profile)

    def make_of(size):
        return lambda n, on: cls(n, size, enable_caching=on)

    return ManagerBlockSizesCampaign(cls.__name__, make_of, profile, other_block_sizes(profile, 4))


@pytest.mark.some(1)
@pytest.mark.parametrize("variant", IN_OTHER_BLOCKS)
def test_a_member_shows_in_blocks_of_another_size_and_not_of_the_usual_one(variant):
    campaign = block_sizes_of(variant.cls)
    traces = [campaign.run(number).trace for number in range(40)]
    (first, *_) = [trace for trace in traces if trace is not None]
    size = first.options["block_size"]
    again = replay(first, lambda n, on: variant.cls(n, size, enable_caching=on))
    assert again.violation is not None
    assert size != 4
    assert failure_of(variant, "quick", script="token values") is None


@pytest.mark.deep
@pytest.mark.parametrize("variant", VARIANTS, ids=by_name)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_member_is_refused_at_its_level_under_any_seed(variant, seed):
    assert failure_of(variant, variant.depth, seed) is not None


@pytest.mark.some(1)
@pytest.mark.parametrize("variant", FIRST_OF_EACH, ids=by_name)
def test_the_first_of_a_family_is_refused_in_the_same_way_and_so_is_a_replay(variant):
    trace = failure_of(variant, variant.depth, script=variant.script)
    assert trace is not None
    again = replay(trace, lambda n, on: variant.cls(n, 4, enable_caching=on))
    assert again.violation is not None
    assert again.violation.invariant == trace.violation.invariant


@pytest.mark.some(2)
@pytest.mark.parametrize(
    "name", ["bits of a key 16", "bits of a count 8", "entries of a row 64", "summary sum"]
)
def test_small_runs_do_not_find_what_begins_at_large_sizes(name):
    (cls,) = (variant.cls for variant in VARIANTS if variant.name == name)
    profile = ManagerProfile.from_mapping(cls.profile)
    campaign = ManagerCampaign(name, lambda n, on: cls(n, 4, enable_caching=on), profile, 4)
    assert all(campaign.run(number).trace is None for number in range(60)) != (
        name == "summary sum"
    )


def facts_of_what_holds(cls, sizes):
    campaign = campaign_of(cls, sizes)
    facts = set()
    for number in sizes.runs(campaign.profile):
        result = campaign.run(number)
        assert result.trace is None, result.trace.violation
        facts |= result.facts
    return facts


# The first is the clean manager.
@pytest.mark.deep
@pytest.mark.parametrize(
    "cls",
    [LOOK_ALIKES[0], *(pytest.param(cls, marks=pytest.mark.deep) for cls in LOOK_ALIKES[1:])],
    ids=lambda cls: cls.__name__,
)
def test_what_is_right_holds_and_every_script_reaches_what_it_is_for(cls):
    profile, can = ManagerProfile.from_mapping(cls.profile), manager_capabilities_of(cls(8, 4))
    facts = facts_of_what_holds(cls, QUICK_SIZES)
    assert set(required_script_facts(profile, can, QUICK_SIZES)) <= facts


@pytest.mark.some(1)
@pytest.mark.parametrize("place", range(1, len(LOOK_ALIKES)))
def test_what_looks_alike_holds_in_its_share_of_the_scripts(place):
    assert facts_of_what_holds(LOOK_ALIKES[place], QUICK_SIZES.shared(place, len(LOOK_ALIKES)))
