"""The canaries are real bugs under the profile they are given for, and are caught there."""

from poolproof.bugs.catalogue import canaries, queue_canaries
from poolproof.harness.random_driver import PoolCampaign


def test_every_profile_has_six_to_eight_canaries_of_several_kinds(profile):
    found = canaries(profile)
    assert 6 <= len(found) <= 8
    assert len({invariant for canary in found for invariant in canary.invariants}) >= 3


def test_each_canary_is_caught_under_the_profile(profile):
    for canary in canaries(profile):
        campaign = PoolCampaign(canary.id, canary.make_under(profile), profile)
        traces = (campaign.run(number).trace for number in range(60))
        trace = next((trace for trace in traces if trace is not None), None)
        assert trace is not None, f"{canary.id} survived under {profile}"
        assert trace.violation.invariant in canary.invariants, trace.violation.sentence


def test_misuse_and_events_have_canaries_where_the_profile_speaks_of_them(profile):
    names = {canary.id for canary in canaries(profile)}
    assert ("A25" in names) == (profile.misuse != "undefined")
    assert ("J1" in names) == (profile.events != "none" and profile.duplicates != "first")


def test_queues_have_canaries():
    assert {canary.level for canary in queue_canaries()} == {"queue"}
