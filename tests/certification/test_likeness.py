"""A finding is like a public bug only where operation, symptom and profile agree."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.certification.finding_collector import FORMS, form_of, public_bugs_like
from poolproof.contract.commands import Allocate, Cache, Free, Touch
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace, read_trace
from poolproof.contract.violation import Severity
from poolproof.harness.replay import replay
from poolproof.impl.block_pool import BlockPool

GOLDEN = Path(__file__).resolve().parent.parent / "bugs" / "golden"
EVERYWHERE = {**SPECIMENS, **MANAGER_SPECIMENS}
PUBLIC = [found for found in EVERYWHERE.values() if found.thread]
AGAIN = "; if that is meant: .venv/bin/python tests/bugs/make_golden.py"


def golden(specimen_id):
    return read_trace(GOLDEN / f"{specimen_id}.jsonl")


def ids(trace):
    return [found.id for found in public_bugs_like(trace)]


def test_the_forms_are_those_of_the_public_bugs():
    assert sorted(json.loads(FORMS.read_text())) == sorted(found.id for found in PUBLIC), AGAIN


@pytest.mark.parametrize("found", PUBLIC, ids=lambda found: found.id)
def test_the_finding_of_a_public_bug_is_like_it(found):
    trace = golden(found.id)
    assert form_of(trace) in json.loads(FORMS.read_text())[found.id], AGAIN
    alike = ids(trace)
    if trace.violation.invariant == "CRASH":
        assert alike == []
    else:
        # Where too many bugs read alike nothing is said; whatever is said has it.
        assert found.id in alike or alike == []
        assert len(alike) <= 3


def test_most_public_bugs_are_told_by_their_findings():
    silent = [f for f in PUBLIC if golden(f.id).violation.invariant != "CRASH"]
    named = [found for found in silent if found.id in ids(golden(found.id))]
    assert len(named) >= 0.8 * len(silent)


@pytest.mark.parametrize("found", EVERYWHERE.values(), ids=EVERYWHERE)
def test_whatever_a_finding_is_like_does_and_shows_the_same(found):
    trace = golden(found.id)
    for other in public_bugs_like(trace):
        assert other.level == trace.level
        assert other.is_bug_under(trace.profile)
        assert form_of(trace) in json.loads(FORMS.read_text())[other.id]


@pytest.mark.parametrize(
    ("change", "value"),
    [("commands", (Allocate(1), Touch((0,)))), ("level", "queue"), ("enable_caching", False)],
)
def test_another_operation_is_not_like_it(change, value):
    trace = golden("A12")
    assert "A12" in ids(trace)
    assert ids(replace(trace, **{change: value})) == []


@pytest.mark.parametrize(
    ("change", "value"),
    [("invariant", "OWN"), ("severity", Severity.LEAK), ("sentence", "the pool is on fire")],
)
def test_another_symptom_is_not_like_it(change, value):
    trace = golden("A12")
    assert ids(replace(trace, violation=replace(trace.violation, **{change: value}))) == []


def test_a_profile_under_which_it_is_no_bug_is_not_like_it():
    trace = golden("D7")
    assert "D7" in ids(trace)
    assert not SPECIMENS["D7"].is_bug_under(Profile(duplicates="first"))
    assert ids(replace(trace, profile=replace(trace.profile, duplicates="first"))) == []


@pytest.mark.parametrize("found", MANAGER_SPECIMENS.values(), ids=MANAGER_SPECIMENS)
def test_a_manager_with_other_groups_is_not_like_it(found):
    trace = golden(found.id)
    groups = (*trace.profile.groups, CacheGroup("sliding", window=7))
    assert found.id not in ids(replace(trace, profile=replace(trace.profile, groups=groups)))


def test_names_of_blocks_hashes_and_sequences_do_not_matter():
    trace = golden("A12")
    hashes = {b: bytes([200 + b]) * 32 for b in range(9)}
    renamed = [
        replace(
            command,
            **{name: tuple(b + 5 for b in getattr(command, name)) for name in ("block_ids",)
               if hasattr(command, name)},
            **({"hashes": tuple(hashes[0] for _ in command.hashes)} if hasattr(command, "hashes")
               else {}),
        )
        for command in trace.commands
    ]  # fmt: skip
    assert ids(replace(trace, commands=tuple(renamed), num_blocks=40)) == ids(trace)


class DropsLongLists(BlockPool):
    """`cache` of so many blocks in one call forgets the last."""

    most = 4

    def cache(self, block_ids, hashes):
        if len(block_ids) >= self.most:
            super().cache(block_ids[:-1], hashes[:-1])
        else:
            super().cache(block_ids, hashes)


class TouchIsCut(BlockPool):
    """`touch` of five ids or more is cut."""

    def touch(self, block_ids):
        super().touch(list(block_ids)[:4])


class LosesTheSeventh(BlockPool):
    """Of seven blocks that go back at once one stays out of the queue."""

    def free(self, block_ids):
        super().free(block_ids if len(block_ids) < 7 else list(block_ids)[:-1])


HASHES = tuple(bytes([n]) * 16 for n in range(20))
UNRELATED = [
    *((type("Drops", (DropsLongLists,), {"most": most}),
       (Allocate(most), Cache(tuple(range(most)), HASHES[:most]))) for most in (3, 4, 6, 9)),
    (TouchIsCut, (Allocate(6), Touch((0, 1, 2, 3, 4)))),
    (LosesTheSeventh, (Allocate(9), Free((0, 1, 2, 3, 4, 5, 6)))),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "commands"), UNRELATED)
def test_a_bug_that_nobody_published_is_like_nothing(cls, commands):
    trace = Trace("planted", "pool", Profile(), 12, True, commands)
    found = replay(trace, lambda num_blocks, caching: cls(num_blocks, enable_caching=caching))
    assert found.violation is not None
    assert ids(replace(trace, violation=found.violation)) == []


def test_a_trace_without_violation_is_like_nothing():
    assert public_bugs_like(replace(golden("A12"), violation=None)) == ()
