"""The specification of managers as a target: it agrees with the model under every kind of row."""

from __future__ import annotations

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.reference.native_manager import NativeSequenceManager

FULL, SLIDING = {"kind": "full"}, {"kind": "sliding", "window": 6}
CHUNKED, STATE = {"kind": "chunked", "window": 8}, {"kind": "state"}

ROWS = [
    {},
    {"publishes": "scheduled", "same_step_hit": "allowed", "full_hit": "allowed"},
    {"publishes": "never", "reserves": "sequence"},
    {"null_block": 0, "eviction": "unhashed-first", "frees": "after-step"},
    {"eviction": "unspecified", "never": "untold", "duplicates": "first"},
    {"eviction": "lifo", "watermark_blocks": 1, "lookahead_tokens": 3},
    {"host_blocks": 6},
    {"null_block": 0, "groups": [SLIDING]},
    {"null_block": 0, "groups": [FULL, SLIDING]},
    {"null_block": 0, "groups": [FULL, CHUNKED]},
    {"null_block": 0, "groups": [FULL, STATE]},
    {"null_block": 0, "groups": [FULL, {**SLIDING, "block_size": 8}]},
    {"null_block": 0, "groups": [FULL, STATE], "states": "step-end"},
    {"null_block": 0, "groups": [FULL, STATE], "state_blocks": 3, "lookahead_tokens": 3},
    {"null_block": 0, "groups": [FULL, STATE], "state_blocks": 2, "states": "step-end"},
]


def manager(num_blocks=4, enable_caching=True, **rows):
    profile = ManagerProfile.from_mapping(rows)
    return NativeSequenceManager(num_blocks, 4, enable_caching=enable_caching, profile=profile)


@pytest.mark.some(2)
@pytest.mark.parametrize("rows", ROWS, ids=lambda rows: ",".join(map(str, rows.values())) or "none")
def test_holds_and_reaches_every_required_fact(rows):
    profile = ManagerProfile.from_mapping(rows)
    campaign = ManagerCampaign("spec", lambda n, c: manager(n, c, **rows), profile, 4)
    required = set(required_manager_facts(profile, manager_capabilities_of(campaign.make(4, True))))
    facts = set()
    for number in range(160):
        result = campaign.run(number)
        assert result.trace is None, (result.trace.violation, result.trace.commands)
        facts |= result.facts
        if number > 20 and required <= facts:
            return
    assert required <= facts, required - facts


def test_refusals_say_whether_waiting_helps_and_change_nothing():
    spec = manager(2)
    spec.admit(0, [1] * 8)
    assert spec.admit(1, [1]) == "later"
    assert spec.admit(1, [1] * 9) == "never"
    assert spec.append(0, [1]) == "later"
    assert (spec.block_table(0), spec.num_free()) == ([0, 1], 0)


def test_hits_are_found_with_their_extra_keys_alone():
    chain = TokenChain((1,) * 4, ("x", "path"), "salt", (Image("p", 1, 2),))
    spec = manager()
    spec.admit(0, list(chain.tokens), extra_keys=chain.extra_keys())
    spec.step([(0, 4)])
    longer = [*chain.tokens, 2]
    assert spec.lookup_prefix(longer, extra_keys=chain.extra_keys()) == 4
    assert spec.lookup_prefix(longer) == 0


def test_a_ring_names_its_blocks_again():
    spec = manager(
        4, publishes="never", window_blocks="reused", groups=[{"kind": "sliding", "window": 8}]
    )
    spec.admit(0, [1] * 8)
    spec.step([(0, 8)])
    spec.append(0, [1])
    assert spec.block_table(0) == [0, 1, 0]


def test_without_a_profile_it_is_the_plain_one():
    assert NativeSequenceManager(2, 4).profile == ManagerProfile().to_json()
