"""The plain driver of managers: what it carries from one run to the next changes nothing."""

from dataclasses import replace

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.harness import manager_driver
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.load import load_target


def new_campaign():
    found = load_target("reference-manager")
    return ManagerCampaign("reference-manager", found.make, found.profile, found.block_size)


def outcome(campaign, number):
    commands = []
    result = campaign.run(number, commands.append)
    assert result.trace is None, result.trace
    return commands, set(result.facts)


def test_a_run_does_not_depend_on_the_runs_before_it():
    campaign = new_campaign()
    runs = [outcome(campaign, number) for number in range(6)]
    assert [outcome(new_campaign(), number) for number in range(6)] == runs


def test_names_are_kept_up_to_a_limit(monkeypatch):
    campaign = new_campaign()
    outcome(campaign, 0)
    kept = len(campaign.names)
    assert kept > 0
    outcome(campaign, 0)
    assert len(campaign.names) == kept
    monkeypatch.setattr(manager_driver, "MOST_NAMES", kept - 1)
    fresh = new_campaign()
    outcome(fresh, 1)
    outcome(campaign, 1)
    assert len(campaign.names) == len(fresh.names)


def test_a_run_can_have_another_size():
    campaign = new_campaign()
    result = campaign.run_from(replace(campaign.setup(0), num_blocks=8))
    assert result.trace is None
    assert result.num_steps > 0


def test_pools_grow_with_a_third_group_and_with_what_a_shared_hit_takes():
    def sizes(groups, **rows):
        profile = ManagerProfile.from_mapping({"null_block": 0, "groups": groups, **rows})
        campaign = ManagerCampaign("m", load_target("reference-manager").make, profile, 4)
        return {campaign.setup(number).num_blocks - 1 for number in range(200)}

    assert sizes("full") == sizes("full+full") == set(range(3, 13))
    assert sizes("full+full+full") == {n + n // 2 for n in range(3, 13)}
    assert max(sizes("full+full+full+full")) == 24
    headed = {"proof_blocks": 1, "lookahead_tokens": 3, "full_hit": "allowed"}
    assert sizes("full+sliding:6", **headed) == set(range(3, 13))
    assert max(sizes("full:0:2+sliding:6:4", **headed)) == 18
