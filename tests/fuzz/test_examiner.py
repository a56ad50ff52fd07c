"""The examiner of campaigns: in pieces by the clock, with workers that some attempts cost."""

from dataclasses import replace

import pytest

from poolproof.certification.fuzz_examiner import TargetExaminer
from poolproof.contract.commands import Allocate, Cache, Evict, Free, Lookup, Touch
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Step
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.fuzz.findings import Examination, Pending, named
from poolproof.fuzz.findings import trace_of as read_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.isolation import Isolation, Limits
from poolproof.harness.minimise import Minimisation
from poolproof.harness.replay import replay
from poolproof.targets.load import load_target

pytestmark = pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")

DIES = """
import os
from poolproof.impl.block_pool import BlockPool

class Dies(BlockPool):
    "Ends its process where a block is evicted that somebody holds twice."

    def evict(self, block_ids):
        if any(self.ref_count(block) > 1 for block in block_ids):
            os._exit(3)
        super().evict(block_ids[:1])
"""
HASH = bytes(16)


@pytest.fixture(name="examiner")
def examiner_(tmp_path):
    path = tmp_path / "dies.py"
    path.write_text(DIES)
    settings = CampaignSettings(f"{path}:Dies", "pool", 4)
    limits = Limits(call_timeout_s=20.0)
    with Isolation(lambda: load_target(settings.target), limits) as isolation:
        yield TargetExaminer(isolation, settings)


def trace_of(*commands, violation=None):
    return Trace("t", "pool", Profile(), 4, True, commands, violation)


def slices(examiner, so_far, seconds, most=400):
    """All that the examination goes through until it is done."""
    for _ in range(most):
        if so_far.is_minimised:
            so_far = replace(so_far, num_searches=so_far.num_searches + 1)
        so_far = examiner.examined(so_far, seconds)
        yield so_far
        if so_far.is_done:
            return
    raise AssertionError(f"not done after {most} slices")


LEFT_IN_THE_INDEX = (
    Allocate(3), Lookup(HASH), Cache((0, 1), (HASH, b"b" * 16)), Lookup(HASH), Free((2,)),
    Evict((0, 1)),
)  # fmt: skip


@pytest.fixture(name="failing")
def failing_(examiner):
    target = load_target(examiner._settings.target)
    violation = replay(trace_of(*LEFT_IN_THE_INDEX), target.make).violation
    return trace_of(*LEFT_IN_THE_INDEX, violation=violation)


def test_pieces_without_time_get_where_one_with_time_gets(examiner, failing):
    """Each is one attempt at least."""
    at_once = examiner.examined(Examination(Minimisation(failing)), 60.0)
    pieces, so_far = [], Examination(Minimisation(failing))
    while not so_far.is_minimised:
        so_far = examiner.examined(so_far, 0.0)
        pieces.append(so_far)
    assert len(pieces) > 3
    assert so_far.trace == at_once.trace


def test_a_search_that_has_no_time_is_not_done(examiner, failing):
    so_far = examiner.examined(Examination(Minimisation(failing)), 60.0)
    assert so_far.is_minimised
    assert not so_far.is_done
    again = examiner.examined(replace(so_far, num_searches=1), 0.0)
    assert not again.is_done
    assert again.trace == so_far.trace
    assert examiner.examined(replace(so_far, num_searches=4), 0.0).is_done


def test_a_run_that_costs_its_worker_is_minimised_in_pieces_too(examiner):
    commands = (
        Allocate(2), Lookup(HASH), Touch((0,)), Cache((0,), (HASH,)), Lookup(HASH), Free((1,)),
        Evict((0,)),
    )  # fmt: skip
    died = Violation("CRASH", Severity.CRASH, "evict([0]) ended the process", (), 6)
    lost = trace_of(*commands, violation=died)
    # As if nobody had known: the first piece loses its worker, and says so.
    first = examiner.examined(Examination(Minimisation(lost)), 30.0)
    assert first.is_apart
    assert not first.is_done
    *_, last = slices(examiner, first, 0.3)
    assert [command.verb for command in last.trace.commands] == ["allocate", "touch", "evict"]
    assert last.trace.violation.invariant == "CRASH"


def test_what_does_not_fail_again_is_reported_as_it_was(examiner):
    seen = Violation("OWN", Severity.LEAK, "seen once", (), 0)
    pending = Pending(trace_of(Allocate(1), violation=seen), b"", 1, 1.0)
    done = examiner.examined(pending.begun, 5.0)
    assert done.is_done
    finding = named(replace(pending, examination=done))
    assert finding.trace.violation == seen
    assert finding.trace.commands == (Allocate(1),)


EARLY = "from poolproof.bugs.profile_rows import HashesTheLastAsWell as Manager\n"
LATE = "from poolproof.bugs.manager_oddities import CleanManager as Manager\n"


def examined_manager(tmp_path, source, *commands, **rows):
    """What the examination of a manager's failing trace comes to."""
    path = tmp_path / "early.py"
    path.write_text(source)
    settings = CampaignSettings(f"{path}:Manager", "manager", 4)
    target = load_target(settings.target)
    profile = replace(target.profile, **rows)
    options = {"layout": "full", "block_size": 4}
    setup = Trace("t", "manager", profile, 4, True, commands, options=options)
    violation = replay(setup, target.make).violation
    with Isolation(lambda: load_target(settings.target), Limits()) as isolation:
        examiner = TargetExaminer(isolation, settings)
        begun = Examination(Minimisation(replace(setup, violation=violation)))
        *_, done = slices(examiner, begun, 60.0)
    return done


def test_a_managers_finding_that_fears_wrong_data_comes_with_the_read(tmp_path):
    done = examined_manager(tmp_path, EARLY, Admit(0, TokenChain((0, 0, 0)), 0), Step())
    assert done.trace.violation.invariant == "IDX"
    assert done.harm.severity is Severity.WRONG_DATA_OF_ONES_OWN
    assert "KV that nobody has written" in done.harm.sentence
    read = read_of(done.harm.read)
    assert read.violation.sentence == done.harm.sentence
    assert replay(read, load_target(read.target).make).violation == read.violation


def test_what_fears_no_wrong_data_is_not_followed(tmp_path):
    """It refuses what another profile has room for."""
    done = examined_manager(tmp_path, LATE, Admit(0, TokenChain((0,) * 16), 0), watermark_blocks=1)
    assert done.trace.violation.invariant == "ADM"
    assert done.harm is None
