"""Which sizes of blocks a manager is driven with, and what a certificate says of the others."""

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.production_look_alikes import PowersOfTwo
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.harness.manager_block_sizes import BlockSizesCampaign, other_block_sizes
from poolproof.reference.native_manager import NativeSequenceManager
from poolproof.targets.native_target import native_target


def profile_of(**rows):
    return ManagerProfile.from_mapping(rows)


def test_no_window_is_smaller_than_a_block():
    sizes = other_block_sizes(profile_of(null_block=0, groups="full+sliding:6"), 4)
    assert sizes == (1, 2, 3, 5)


@pytest.mark.parametrize("groups", ["full:0:8", "full+sliding:6:2", "full+state"])
def test_groups_with_sizes_of_their_own_have_no_others(groups):
    assert other_block_sizes(profile_of(null_block=0, groups=groups), 4) == ()


def test_every_size_that_is_given_is_driven():
    made = []

    def make_of(size):
        made.append(size)
        return lambda n, on: CleanManager(n, size, enable_caching=on)

    campaign = BlockSizesCampaign("clean", make_of, ManagerProfile(), (2, 16, 256))
    results = [campaign.run(number) for number in range(41)]
    assert {*made} == {2, 16, 256}
    assert not any(result.trace for result in results)
    assert {campaign.setup(number).options["block_size"] for number in range(41)} == {*made}


@pytest.mark.parametrize("groups", ["full", "sliding:6", "full+sliding:70"])
def test_the_specification_holds_in_every_size(groups):
    rows = {} if groups == "full" else {"null_block": 0}
    profile = profile_of(groups=groups, **rows)

    def make_of(size):
        return lambda n, on: NativeSequenceManager(n, size, enable_caching=on, profile=profile)

    campaign = BlockSizesCampaign("reference", make_of, profile, other_block_sizes(profile, 4))
    assert not any(campaign.run(number).trace for number in range(33))


def test_a_layout_builds_other_sizes_only_where_it_can():
    layout = native_target("mine", PowersOfTwo, Level.MANAGER, {}, None).layouts[0]
    assert layout.make_with(16)(8, True).block_size == 16
    assert layout.make_with(4) is layout.make
    with pytest.raises(ValueError, match="power of two"):
        layout.make_with(3)(8, True)


def test_a_layout_without_other_sizes_says_which_one_it_has():
    layout = native_target("mine", CleanManager, Level.MANAGER, {}, None).layouts[0]
    fixed = type(layout)(layout.name, layout.profile, layout.make)
    with pytest.raises(TargetError, match="4 tokens a block"):
        fixed.make_with(16)
