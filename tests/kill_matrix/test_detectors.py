"""The rows and columns themselves: everybody is there, examples are right, models are named."""

# Fixtures come by name; the types of tests are not checked.
# mypy: ignore-errors

import json
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_oddities import ENGINE_ODDITIES
from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.detectors import DETECTORS, INVARIANT_NAMES
from poolproof.kill_matrix.matrix_document import link_of
from poolproof.kill_matrix.models import IN_CONTRACTS, IN_PROOF
from poolproof.kill_matrix.subject import subjects
from poolproof.kill_matrix.unit import examples_for

ROOT = Path(__file__).resolve().parents[2]
SUBJECTS = subjects()
ODD = [name for name, subject in SUBJECTS.items() if subject.is_oddity]


def search(detector, name, seed=0):
    beacon = Beacon(memoryview(bytearray(64)).cast("Q"))
    return DETECTORS[detector].search(SUBJECTS[name], seed, beacon)


def test_every_specimen_is_a_row():
    planted = {name for name, subject in SUBJECTS.items() if not subject.is_oddity}
    assert planted == {*SPECIMENS, *MANAGER_SPECIMENS, *ENGINE_SPECIMENS}
    assert {SUBJECTS[name].level for name in ODD} >= {"pool", "manager", "engine"}
    assert {oddity.cls.__name__ for oddity in ENGINE_ODDITIES} <= set(ODD)


@pytest.mark.some(53)
@pytest.mark.parametrize("name", ODD)
def test_unit_examples_accuse_no_oddity(name):
    outcome = search("unit", name)
    assert not outcome.caught, outcome.note
    assert outcome.steps


def test_unit_examples_find_what_they_speak_of_and_miss_the_subtle():
    assert search("unit", "D1").note.startswith("a block that is used again is forgotten")
    assert not search("unit", "D13").caught
    assert {len(examples_for(SUBJECTS[name])) > 9 for name in ("Q1", "A1", "D13", "S9")} == {True}


@pytest.mark.some(5)
@pytest.mark.parametrize(
    ("detector", "name"),
    [
        ("plain", "A1"),
        ("hypothesis", "Q3"),
        ("hypothesis", "A1"),
        ("campaign", "Q3"),
        ("campaign", "A1"),
        ("campaign", "D13"),
        ("exhaustive", "Q3"),
        ("exhaustive", "D1"),
        ("exhaustive", "D13"),
        ("unit", "S120"),
        ("plain", "S9"),
        ("hypothesis", "S9"),
        ("campaign", "S9"),
        ("certify-quick", "S9"),
        ("certify-quick", "D13"),
        ("certify-standard", "A1"),
    ],
)
def test_each_search_catches_a_plain_bug_at_each_level(detector, name):
    outcome = search(detector, name)
    assert outcome.caught
    assert outcome.steps > 0
    assert outcome.invariant in {"ORD", "OWN", "I1", "IDX", "DATA", "PLAN", ""}


def test_hashes_are_cut_where_a_bug_needs_it():
    assert search("plain", "C3").caught


def test_an_invariant_alone_sees_its_own_and_nothing_else():
    assert search("IDX", "D1").caught
    assert not search("MISUSE", "D1").caught


@pytest.mark.parametrize(
    ("detector", "name", "why"),
    [
        ("DATA", "A1", "the pool level does not state DATA"),
        ("PLAN", "A1", "the pool level does not state PLAN"),
        ("I1", "S9", "the engine level does not state I1"),
        ("exhaustive", "S9", "a certification visits no states of an engine"),
        ("EVT", "A1", "its profile has no events"),
        ("MISUSE", "BitmapPool", "its profile promises nothing about misuse"),
        ("ORD", "BitmapPool", "its profile promises no order"),
        ("LINK", "BitmapPool", "it shows no links"),
        ("I3", "A1", "without a null block that is the caller's duty at pool level"),
        ("proof", "A7", "its mistake is not planted in a model"),
        ("symbolic", "A7", "its mistake is not in a function with a contract"),
    ],
)
def test_a_detector_that_cannot_speak_of_a_bug_says_why(detector, name, why):
    assert DETECTORS[detector].why_not(SUBJECTS[name]) == why


def test_oddities_are_certified_at_standard_elsewhere():
    assert "make test-deep" in DETECTORS["certify-standard"].why_not(SUBJECTS["BitmapPool"])
    assert DETECTORS["certify-standard"].why_not(SUBJECTS["A1"]) is None


def test_mistakes_that_models_hold_are_named_as_there():
    recorded = json.loads((ROOT / "benchmarks" / "results" / "proof.json").read_text("utf-8"))
    assert set(IN_PROOF.values()) <= {bug["name"] for bug in recorded["planted"]}
    assert set(IN_CONTRACTS.values()) <= {contract["name"] for contract in recorded["contracts"]}
    assert {*IN_PROOF, *IN_CONTRACTS} <= set(SUBJECTS)


def test_the_proof_refuses_the_mistakes_that_it_holds():
    pytest.importorskip("z3", reason="the proof needs a solver; make proof installs it")
    assert all(search("proof", name).caught for name in IN_PROOF)


def test_every_invariant_is_a_column():
    assert len(INVARIANT_NAMES) == 18
    assert set(INVARIANT_NAMES) < set(DETECTORS)


def test_threads_lead_to_their_place():
    assert link_of("vllm#6849 (B9)") == "https://github.com/vllm-project/vllm/issues/6849"
    assert link_of("nano-vllm@59aa3ff") == (
        "https://github.com/GeeeekExplorer/nano-vllm/commit/59aa3ff"
    )
    assert link_of("somewhere#1") is None
