"""Where no specimen can be planted, the specification is broken instead, and that is seen."""

from types import SimpleNamespace

import pytest

from poolproof.bugs.catalogue import manager_canaries
from poolproof.certification.broken_managers import BROKEN_MANAGERS
from poolproof.certification.description import describe
from poolproof.certification.driving import kinds_of
from poolproof.certification.options import CertifyOptions
from poolproof.certification.ruler import check_ruler
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.target import Capabilities
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.targets.load import load_target

SILENT = SimpleNamespace(bump=lambda *_: None)
UNFOLLOWED = {
    "checkpoints": {"keyed": "checkpoints", "checkpoint_tokens": 12},
    "reachable": {"keyed": "reachable"},
    "proofs": {"proof_blocks": 1, "lookahead_tokens": 3},
}
GROUPS = ["full+sliding:6", "full+sliding:12+sliding:6", "sliding:6", "full+state", "state"]
PROFILES = {
    f"{name}, {groups}": {"null_block": 0, "groups": groups, **rows}
    for name, rows in UNFOLLOWED.items()
    for groups in GROUPS
    if not ("state" in groups and name == "proofs")
} | {"states, content": {"null_block": 0, "groups": "full+state", "index": "content"}}


@pytest.mark.parametrize("rows", PROFILES.values(), ids=PROFILES)
@pytest.mark.parametrize("what", BROKEN_MANAGERS)
def test_every_broken_specification_is_caught_under_profiles_without_a_specimen(rows, what):
    profile = ManagerProfile.from_mapping({"index": "exact", **rows})
    can = Capabilities("manager", frozenset(MANAGER_METHODS), frozenset())
    assert manager_canaries(profile, can) == []
    campaign = ManagerCampaign(
        what,
        lambda n, on: BROKEN_MANAGERS[what](n, 4, enable_caching=on, profile=profile),
        profile,
        4,
    )
    traces = (campaign.run(number).trace for number in range(100))
    assert any(trace is not None for trace in traces)


def ruler(spec, layouts=()):
    about = describe(load_target(spec), None, SILENT)
    return check_ruler(about, kinds_of(about, CertifyOptions(layouts=layouts)))


def test_the_ruler_of_a_target_that_no_specimen_fits_has_the_broken_specifications():
    rows = "groups=full+sliding:12+sliding:6,null_block=0,keyed=reachable"
    caught, missed = ruler(f"reference-manager[{rows}]")
    assert caught == tuple(f"the specification with {what}" for what in BROKEN_MANAGERS)
    assert missed == ()


def test_where_specimens_can_be_planted_they_are():
    caught, missed = ruler("reference-manager[groups=full+sliding:8,null_block=0]")
    assert caught
    assert not any(name.startswith("the specification") for name in caught)
    assert missed == ()
