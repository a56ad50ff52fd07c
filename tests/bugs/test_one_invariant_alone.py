"""Each invariant earns its place: with all others switched off it catches what only it can see.

`ALONE` names, for each level and invariant, a specimen that runs which check nothing but that
invariant catch, and runs which check any other one do not. `IMPLIED` says of the rest why whatever
they see is seen by others as well at that level.
"""

import pytest

from poolproof.bugs.catalogue import INDEX_SPECIMENS, MANAGER_SPECIMENS, SPECIMENS
from poolproof.contract.level import Level
from poolproof.harness.single_invariant import STATED_AT
from poolproof.invariants.catalogue import STATEMENTS

EVERYWHERE = {**SPECIMENS, **INDEX_SPECIMENS, **MANAGER_SPECIMENS}

ALONE = {
    "queue": {"OWN": "Q6", "LINK": "Q4", "ORD": "Q3", "CRASH": "L8"},
    "index": {"IDX": "K1", "CRASH": "K11"},
    "pool": {
        "I1": "L1", "I2": "L2", "I3": "L3", "OWN": "L7", "LINK": "A5", "IDX": "D1", "ORD": "E1",
        "ADM": "L4", "ATOM": "L5", "EVT": "J1", "MISUSE": "L6", "CRASH": "G7",
    },
    "manager": {
        "I4": "L26", "OWN": "L27", "DATA": "F1-stale", "ORD": "E1-manager", "ADM": "B5",
        "CRASH": "B2",
    },
}  # fmt: skip

IMPLIED = {
    ("queue", "I1"): "a queue keeps its order always: who is in it wrongly, or is missing, changes "
    "the counter (OWN) or the order (ORD)",
    ("pool", "I4"): "a cached block that is not queued is lost (I1), one that lost its hash or is "
    "not found differs from the index (IDX); I4 tells which of them could be hit",
    ("pool", "LEAK"): "the counter at the end is the counter after every command (OWN); LEAK tells "
    "live, reclaimable and lost blocks apart",
    ("manager", "I1"): "tables show who holds what: a wrong queue shows in counters (OWN) or order "
    "(ORD)",
    ("manager", "I2"): "a table that changes without reason names blocks whose counts (OWN) or KV "
    "(DATA) are wrong, where the model can follow it at all",
    ("manager", "I3"): "a manager shows no hash of its null block; pool level checks it",
    ("manager", "IDX"): "what is cached wrongly is reported as cached too, and read (DATA), or "
    "fails an assertion of the manager's own; IDX sees it before anybody hits it",
    ("manager", "LINK"): "the links are the pool's; pool level and queue level check them",
    ("manager", "ATOM"): "what a refusal has changed is different afterwards (OWN, ORD, I4)",
    ("manager", "LEAK"): "as at pool level",
}

PAIRS = [(level, name) for level, rows in ALONE.items() for name in rows]
MOST_RUNS = 60


def first_caught(golden, found, only, num_runs):
    campaign = golden.campaign_of(found, only=only)
    results = (campaign.run(number) for number in range(num_runs))
    traces = (result.trace or result.collision for result in results)
    return next((trace for trace in traces if trace is not None), None)


@pytest.mark.parametrize(("level", "name"), PAIRS)
def test_the_invariant_catches_its_specimen_with_nothing_else_checked(level, name, golden):
    found = EVERYWHERE[ALONE[level][name]]
    assert found.level == level
    trace = first_caught(golden, found, name, MOST_RUNS)
    assert trace is not None
    assert trace.violation.invariant == name


@pytest.mark.some(4)
@pytest.mark.parametrize(("level", "name"), PAIRS)
def test_no_other_invariant_catches_that_specimen(level, name, golden):
    found = EVERYWHERE[ALONE[level][name]]
    for other in STATED_AT[level]:
        if other != name:
            trace = first_caught(golden, found, other, 4)
            assert trace is None, (other, trace.violation.sentence)


@pytest.mark.deep
@pytest.mark.parametrize(("level", "name"), PAIRS)
def test_no_other_invariant_catches_it_in_a_long_campaign(level, name, golden):
    found = EVERYWHERE[ALONE[level][name]]
    for other in STATED_AT[level]:
        if other != name:
            trace = first_caught(golden, found, other, 300)
            assert trace is None, (other, trace.violation.sentence)


def test_every_invariant_stands_alone_somewhere_but_the_one_that_is_known_not_to():
    alone = {name for rows in ALONE.values() for name in rows}
    # Those of engines: tests/harness/test_single_invariant.py.
    assert set(STATEMENTS) - alone - {*STATED_AT["engine"]} == set()
    assert "LEAK" not in alone


def test_whatever_a_level_can_state_stands_alone_there_or_is_implied_for_a_reason():
    stated = {
        (level, name)
        for level, names in STATED_AT.items()
        for name in names
        if level is not Level.ENGINE
    }
    assert {*PAIRS, *IMPLIED} == stated
    assert not {*PAIRS} & {*IMPLIED}


@pytest.mark.deep
@pytest.mark.parametrize(("level", "name"), IMPLIED)
def test_no_specimen_is_known_that_an_implied_invariant_catches_alone(level, name, golden):
    for found in EVERYWHERE.values():
        if found.level != level or first_caught(golden, found, name, 20) is None:
            continue
        others = [other for other in STATED_AT[level] if other != name]
        assert any(first_caught(golden, found, other, 60) for other in others), found.id
