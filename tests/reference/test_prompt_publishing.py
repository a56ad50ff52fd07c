"""`publishes: prompts`: what is appended token by token is published later, or at the end."""

from __future__ import annotations

import pytest

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.reference.native_manager import NativeSequenceManager

PROFILE = ManagerProfile(publishes="prompts")
TOKENS = [1, 2, 3, 4, 5]


def manager_with(*appended):
    """A sequence of one token whose further tokens came in these groups, each computed at once."""
    manager = NativeSequenceManager(6, 2, profile=PROFILE)
    manager.admit(0, [1])
    manager.step([(0, 1)])
    for tokens in appended:
        manager.append(0, list(tokens))
        manager.step([(0, len(tokens))])
    return manager


def test_a_prompt_is_published_after_its_step():
    manager = NativeSequenceManager(6, 2, profile=PROFILE)
    manager.admit(0, [1, 2])
    assert manager.lookup_prefix(TOKENS) == 0
    manager.step([(0, 2)])
    assert manager.lookup_prefix(TOKENS) == 2


def test_tokens_appended_together_are_published_with_those_before_them():
    assert manager_with([2]).lookup_prefix(TOKENS) == 0
    assert manager_with([2], [3, 4]).lookup_prefix(TOKENS) == 4


def test_two_tokens_appended_before_one_step_are_no_longer_sampled():
    manager = manager_with()
    manager.append(0, [2])
    manager.append(0, [3])
    manager.step([(0, 2)])
    assert manager.lookup_prefix(TOKENS) == 2


def test_a_refused_token_leaves_the_one_before_sampled():
    manager = NativeSequenceManager(1, 2, profile=PROFILE)
    manager.admit(0, [1])
    manager.step([(0, 1)])
    manager.append(0, [2])
    assert manager.append(0, [3]) == "later"
    manager.step([(0, 1)])
    assert manager.lookup_prefix(TOKENS) == 0


@pytest.mark.parametrize(("end", "cached"), [("finish", 2), ("abort", 0), ("preempt", 0)])
def test_only_a_finished_sequence_publishes_what_it_sampled(end, cached):
    manager = manager_with([2])
    getattr(manager, end)(0)
    assert manager.lookup_prefix(TOKENS) == cached


def test_a_sequence_that_finishes_before_its_step_publishes_nothing_more():
    manager = manager_with([2])
    manager.append(0, [3])
    manager.finish(0)
    assert manager.lookup_prefix(TOKENS) == 0


def test_a_fork_inherits_what_is_still_to_be_published():
    manager = manager_with([2])
    manager.fork(0, 1)
    manager.append(1, [3, 4])
    manager.step([(1, 2)])
    assert manager.lookup_prefix(TOKENS) == 4


def test_cut_tokens_are_not_published():
    manager = manager_with([2, 3, 4])
    manager.truncate(0, 1)
    manager.append(0, [2])
    manager.step([(0, 1)])
    assert manager.lookup_prefix(TOKENS) == 0


def test_the_specification_agrees_with_itself():
    runs = ManagerCampaign(
        "reference",
        lambda n, caching: NativeSequenceManager(n, 4, enable_caching=caching, profile=PROFILE),
        PROFILE,
        4,
    )
    assert all(runs.run(number).trace is None for number in range(30))


@pytest.mark.parametrize(
    ("groups", "caching", "needed"),
    [("full", True, 1), ("full", False, 3), ("full+sliding:4", True, 4), ("sliding:4", True, 3)],
)
def test_a_fork_may_take_what_is_not_full_or_cannot_be_shared(groups, caching, needed):
    rows = {"groups": groups, "null_block": None if groups == "full" else 0}
    profile = ManagerProfile.from_mapping(rows)
    manager = NativeSequenceManager(12, 2, enable_caching=caching, profile=profile)
    manager.admit(0, TOKENS)
    manager.step([(0, 5)])
    assert manager._model.num_forked(manager._model.sequences[0]) == needed
