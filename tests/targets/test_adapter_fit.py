"""A class that an adapter does not fit is never accused: what differs is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolproof.contract.target import TargetError, capabilities_of
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets.adapter_fit import Call, misfit, tried
from poolproof.targets.load import load_target

MISFITS = Path(__file__).with_name("misfits.py")


def load(name):
    return load_target(f"{MISFITS}:{name}")


@pytest.mark.parametrize(
    ("name", "difference"),
    [
        (
            "AsksForMore",
            "`can_allocate` takes (self, seq, num_tokens), the adapter calls it with (self, seq)",
        ),
        ("AnswersAPair", "`can_allocate` answered (True, "),
        ("AllocatesByItself", "AllocatesByItself.allocate() takes 2 positional arguments but 3"),
        ("ReadsMore", "'StandInSequence' object has no attribute 'tenant'"),
        ("NamesItsPages", "`get_new_blocks` answers [1, 2], and the adapter"),
        (
            "FreesForSomebody",
            "`free_blocks` takes (self, ordered_blocks, owner), the adapter calls it with (self, ",
        ),
        (
            "FreesTwoThings",
            "`free` takes (self, seq, reason), the adapter calls it with (self, seq)",
        ),
    ],
)
def test_what_differs_is_named_when_the_class_is_loaded(name, difference):
    with pytest.raises(TargetError) as refusal:
        load(name)
    assert difference in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_an_optional_method_with_other_arguments_is_left_out():
    target = load("ResetsDevices")
    assert "reset" not in capabilities_of(target.make(4, True)).verbs
    assert any(
        note.startswith("reset_prefix_cache() is not driven, because `reset_prefix_cache` takes "
                        "(self, device)")
        for note in target.notes
    )  # fmt: skip


def test_a_fork_with_other_arguments_is_left_out():
    target = load("ForksOnDevices")
    assert not hasattr(target.make(4, True), "fork")
    assert any("not driven: forks, because `fork` takes" in note for note in target.notes)


def test_a_narrower_domain_is_left_out():
    target = load("InsideAlone")
    assert "cache_partial" not in capabilities_of(target.make(4, True)).verbs
    assert any("forbids a prefix that ends with its block" in note for note in target.notes)
    assert target.profile.keys == "block"


def campaign_of(target):
    if target.layouts:
        return ManagerCampaign(target.name, target.make, target.profile, target.block_size)
    return PoolCampaign(
        name=target.name, make=target.make_chained or target.make, profile=target.profile,
        chain_block_size=target.block_size, hash_block_size=target.hash_block_size,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "attribute"),
    [("PinsThirdBlocks", "'tenant'"), ("ReadsThePriority", "'priority_class'")],
)
def test_what_shows_only_in_a_run_ends_the_run_without_a_finding(name, attribute):
    campaign = campaign_of(load(name))

    def run():
        for number in range(60):
            assert campaign.run(number).trace is None

    with pytest.raises(TargetError) as refusal:
        run()
    assert "Poolproof's adapter does not fit this target, of which nothing is said" in str(
        refusal.value
    )
    assert attribute in str(refusal.value)


@pytest.mark.parametrize("name", ["AsksForMore", "PinsThirdBlocks", "ReadsThePriority"])
def test_the_command_says_one_line_and_ends_with_2(poolproof, name):
    result = poolproof("certify", f"{MISFITS}:{name}", "--depth", "quick", "--workers", "1")
    assert result.exit_code == 2
    said = result.stderr.strip().splitlines()[-1]
    assert said.startswith("poolproof: ")
    assert "adapter" in said


class Shape:
    def __init__(self, num_blocks, *, eager=False):
        self.eager = eager

    def free(self, blocks, owner=None):
        del blocks, owner

    @staticmethod
    def pure(first):
        return first

    def anything(self, *arguments, **named):
        return arguments, named


@pytest.mark.parametrize(
    "call",
    [
        Call("__init__", ("num_blocks",), ("eager",)), Call("free", ("blocks",)),
        Call("pure", ("first",)), Call("anything", ("a", "b"), ("c",)), Call("no_such_method"),
    ],
)  # fmt: skip
def test_a_call_that_binds_fits(call):
    assert misfit(Shape, call) is None


def test_a_misfit_shows_both_signatures():
    assert misfit(Shape, Call("free", ("blocks",), ("when",))) == (
        "`free` takes (self, blocks, owner=...), the adapter calls it with (self, blocks, when=...)"
    )
    assert misfit(Shape, Call("__init__")) == (
        "the constructor takes (self, num_blocks, eager=...), the adapter calls it with (self)"
    )


def test_what_the_target_raises_in_a_trial_is_left_for_the_run():
    def raises():
        raise ValueError("its own affair")

    assert tried(raises) is None
    assert tried(lambda: None) is None
