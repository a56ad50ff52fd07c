"""A run that checks one invariant reports that one, passes over others, and accuses nobody else."""

import pytest

from poolproof.bugs.catalogue import manager_specimen, specimen
from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_queue import CleanQueue
from poolproof.bugs.manager_oddities import MANAGER_ODDITIES
from poolproof.bugs.oddities import ODDITIES
from poolproof.certification.broken_engines import BROKEN_ENGINES
from poolproof.contract.commands import Allocate, Free, Reset
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.single_invariant import (
    STATED_AT,
    SingleManagerSession,
    SinglePoolSession,
    verdict,
)
from poolproof.impl.block_pool import BlockPool
from poolproof.invariants.catalogue import STATE_INVARIANTS, STATEMENTS, broken_in_state
from poolproof.reference.native_engine import NativePlainEngine

PAIRS = [(level, name) for level, names in STATED_AT.items() for name in names]


def pool_campaign(cls, only, **profile):
    rules = Profile(**profile)
    return PoolCampaign(
        cls.__name__,
        lambda n, on: cls(n, enable_caching=on, rules=rules),
        rules,
        only=only,
    )


def caught(campaign, num_runs=30):
    """The name under which the first run of a campaign that fails does so, as a set; or none."""
    results = (campaign.run(number) for number in range(num_runs))
    traces = (result.trace or result.collision for result in results)
    return next(({trace.violation.invariant} for trace in traces if trace is not None), set())


def clean_campaign(level, only):
    if level == "queue":
        return QueueCampaign("clean", lambda n, _on: CleanQueue(n), only=only)
    if level == "index":
        return IndexCampaign("clean", lambda _n, _on: CleanIndex(), Profile(), only=only)
    if level == "pool":
        return pool_campaign(CleanPool, only, events="per-copy")
    if level == "engine":
        return EngineCampaign(
            "clean", lambda n, _on: NativePlainEngine(n), EngineProfile(), 4, only=only
        )
    make = lambda n, on: CleanManager(n, 4, enable_caching=on)  # noqa: E731 - one expression
    return ManagerCampaign("clean", make, ManagerProfile(), 4, only=only)


@pytest.mark.parametrize(("level", "only"), PAIRS)
def test_what_is_right_passes_whichever_invariant_is_checked(level, only):
    assert not caught(clean_campaign(level, only), 3)


@pytest.mark.some(10)
@pytest.mark.parametrize("only", STATED_AT["pool"])
def test_no_pool_oddity_is_accused_by_any_single_invariant(only):
    for cls in ODDITIES:
        profile = Profile.from_mapping(cls.profile)
        campaign = PoolCampaign(
            cls.__name__, lambda n, on, cls=cls: cls(n, enable_caching=on), profile, only=only
        )
        assert not caught(campaign, 1), cls


@pytest.mark.some(2)
@pytest.mark.parametrize("only", ["DATA", "I2", "ATOM", "OWN"])
def test_no_manager_oddity_is_accused_by_any_single_invariant(only):
    for cls in MANAGER_ODDITIES:
        profile = ManagerProfile.from_mapping(cls.profile)
        campaign = ManagerCampaign(
            cls.__name__, lambda n, on, cls=cls: cls(n, 4, enable_caching=on), profile, 4, only=only
        )
        assert not caught(campaign, 1), cls


@pytest.mark.parametrize("name", ["A1", "B14", "D6", "A25"])
def test_a_single_invariant_reports_under_its_own_name_only(name):
    found = specimen(name)
    for only in STATED_AT["pool"]:
        campaign = PoolCampaign(name, found.make, found.profile, only=only)
        assert caught(campaign, 3) <= {only}


@pytest.mark.parametrize("name", ["A9", "H9", "C3"])
def test_a_single_invariant_of_managers_reports_under_its_own_name_only(name):
    found = manager_specimen(name)
    options = {"weak_hashes": found.weak_hashes} if found.weak_hashes else {}
    for only in STATED_AT["manager"]:
        campaign = ManagerCampaign(
            name, found.make, found.profile, found.block_size, options=options, only=only
        )
        assert caught(campaign, 2) <= {only}


@pytest.mark.parametrize(
    ("name", "sees"),
    [
        ("A12", {"I1", "I2", "OWN", "LINK"}),  # I2 only because the reference goes on after OWN
        ("B14", {"ATOM", "OWN"}),
        ("A21", {"I1", "I2", "OWN"}),
        ("D21", {"I3", "IDX"}),
    ],
)
def test_several_invariants_see_one_bug_each_by_itself(name, sees):
    found = specimen(name)
    for only in sees:
        assert caught(PoolCampaign(name, found.make, found.profile, only=only), 120) == {only}


@pytest.mark.parametrize(
    ("name", "sees"), [("A9", {"DATA", "I2", "OWN"}), ("C4", {"DATA", "IDX"}), ("H9", {"DATA"})]
)
def test_misread_kv_is_seen_after_what_broke_before_it(name, sees):
    found = manager_specimen(name)
    for only in sees:
        campaign = ManagerCampaign(name, found.make, found.profile, found.block_size, only=only)
        assert caught(campaign, 30) == {only}


@pytest.mark.parametrize(
    ("level", "only"), [("queue", "DATA"), ("pool", "DATA"), ("manager", "EVT"), ("pool", "I5")]
)
def test_what_a_level_does_not_state_cannot_be_asked_for(level, only):
    with pytest.raises(ValueError) as refused:
        clean_campaign(level, only)
    assert str(refused.value).startswith(f"the {level} level does not state '{only}'; it states I1")


def test_a_refusal_that_changes_nothing_is_told_from_a_state_that_was_wrong_before():
    class ForgetsAReference(CleanPool):
        def _take_first_reference(self, block_id):
            pass

    campaign = pool_campaign(ForgetsAReference, "ATOM", misuse="undefined")
    assert not caught(campaign)
    assert caught(pool_campaign(ForgetsAReference, "OWN", misuse="undefined")) == {"OWN"}


def test_misuse_that_goes_through_is_passed_over_and_what_it_breaks_is_not():
    found = specimen("A25")
    sees = [
        only for only in ("MISUSE", "I1", "OWN")
        if caught(PoolCampaign("A25", found.make, found.profile, only=only), 40)
    ]  # fmt: skip
    assert sees == ["MISUSE", "I1", "OWN"]


def test_only_crash_reads_all_that_is_shown():
    class RaisesWhenLookedAt(CleanPool):
        def ref_count(self, block_id):
            raise OSError("no statistics")

    assert caught(pool_campaign(RaisesWhenLookedAt, "CRASH"), 1) == {"CRASH"}
    assert not caught(pool_campaign(RaisesWhenLookedAt, "I1"), 1)


@pytest.mark.parametrize(("only", "num_failing"), [("CRASH", 1), ("OWN", 0), (None, 1)])
def test_a_target_that_cannot_be_built_is_a_crash_and_nothing_else(only, num_failing):
    def make(*_sizes):
        raise OSError("no memory")

    campaigns = [
        PoolCampaign("broken", make, Profile(), only=only),
        QueueCampaign("broken", make, only=only),
        ManagerCampaign("broken", make, ManagerProfile(), 4, only=only),
    ]
    for campaign in campaigns:
        assert (campaign.run(0).trace is not None) == num_failing


def test_a_block_that_is_handed_out_twice_has_two_owners_from_then_on():
    pool = CleanPool(3)
    session = SinglePoolSession(pool, Profile(), 3, only="OWN")
    assert session.step(Allocate(2)) is None
    pool.queue.prepend_n([0])
    assert session.step(Allocate(1)) is None
    assert session.reference.holders[0] == [1, 2]
    assert session.reference.release([0, 0, 0]) == [0]
    assert session.reference.allocate(1) == [2]


def test_a_violation_of_another_name_is_no_verdict():
    session = SinglePoolSession(BlockPool(2), Profile(), 2, only="I1")
    crashed = SinglePoolSession(
        type("Raises", (CleanPool,), {"free": lambda *_: 1 / 0})(2), Profile(), 2, only="I1"
    )
    assert verdict("I1", crashed, lambda: crashed.step(Allocate(1)) or crashed.step(Free((0,)))) \
        is None  # fmt: skip
    assert verdict("I1", session, lambda: session.step(Reset())) is None


def test_an_error_of_ours_is_passed_on_unless_something_was_passed_over_before():
    session = SinglePoolSession(BlockPool(2), Profile(), 2, only="I1")

    def drive():
        return session.reference.release([7])

    with pytest.raises(KeyError):
        verdict("I1", session, drive)
    session.invariants.has_passed_over = True
    assert verdict("I1", session, drive) is None


def test_the_predicates_are_those_of_the_ordinary_diagnosis():
    for only in STATEMENTS:
        if only in STATED_AT["manager"]:
            session = SingleManagerSession(CleanManager(4, 4), ManagerProfile(), 4, 4, only=only)
            assert session.first_look() is None
    pool = CleanPool(2)
    pool.ref_counts[1] = 1
    session = SinglePoolSession(pool, Profile(), 2, only="OWN")
    seen, known = session.diagnosis.observe(), session.reference.ledger()
    found = [judge(seen, known) for judge in STATE_INVARIANTS.values()]
    names = {violation.invariant for violation in found if violation}
    assert names == {"I1", "OWN"}
    for only in names:
        alone = SinglePoolSession(pool, Profile(), 2, only=only).diagnose()
        assert alone in found
    assert broken_in_state(seen, known).invariant == "I1"


class ComputesTooMuch(NativePlainEngine):
    """A step has one draft more than there is."""

    def plan(self):
        plan = super().plan()
        for part in plan["compute"]:
            part["drafts"] += 1
        return plan


ENGINES_ALONE = {
    "DATA": BROKEN_ENGINES["a table that names a block of another"],
    "OUT": BROKEN_ENGINES["a token that is given twice"],
    "LIVE": BROKEN_ENGINES["a request that is forgotten"],
    "LEAK": BROKEN_ENGINES["an end that keeps a block"],
    "PLAN": ComputesTooMuch,
}
"""For each invariant an engine that breaks it; CRASH is what any of them may end with."""


@pytest.mark.parametrize("only", ENGINES_ALONE)
def test_the_invariant_of_an_engine_catches_what_breaks_it_with_nothing_else_checked(only):
    cls = ENGINES_ALONE[only]
    campaign = EngineCampaign("broken", lambda n, _on: cls(n), EngineProfile(), 4, only=only)
    assert caught(campaign) == {only}


def test_every_invariant_of_engines_is_tried_alone():
    assert {*ENGINES_ALONE, "CRASH"} == {*STATED_AT["engine"]}
