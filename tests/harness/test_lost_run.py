"""Which command cost a run its worker, and the trace that says so."""

import ctypes
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.contract.commands import Allocate, Free, Lookup
from poolproof.contract.misuse import MisuseFailure, MisuseKind, MisuseOutcome
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.harness import lost_run
from poolproof.harness.isolation import Died, Hung, Isolation, Limits
from poolproof.harness.lost_run import (
    Journal,
    _target_frames,
    as_violation,
    find_culprit,
    read_journal,
)
from poolproof.harness.random_driver import PoolCampaign
from poolproof.impl.block_pool import BlockPool

needs_fork = pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")

PROFILE = Profile.from_mapping({"misuse": "undefined"})
SETUP = Trace("toy", "pool", PROFILE, num_blocks=4, enable_caching=True, commands=())
HASTY = Limits(call_timeout_s=1)
PATIENT = Limits(call_timeout_s=60, memory_mib=100)


class HangsInFree(BlockPool):
    def free(self, block_ids):
        if len(list(block_ids)) > 1:
            time.sleep(60)
        super().free(block_ids)


class CrashesInTouch(BlockPool):
    def touch(self, block_ids):
        ctypes.string_at(0)


class HangsWhenRead(BlockPool):
    def ref_count(self, block_id):
        while super().ref_count(block_id):
            pass
        return 0


class EatsMemoryInAllocate(BlockPool):
    def allocate(self, n):
        hoard = []
        while n:
            hoard.append(bytes([1]) * 10_000)
        return super().allocate(n)


class HangsWhenBuilt(BlockPool):
    def __init__(self, *args, **kwargs):
        time.sleep(60)


def run_one(campaign, number, beacon):
    beacon.mark(number)
    return campaign.run(number, beacon.bump).num_steps


def repeat_one(campaign, again, beacon):
    with Journal(again.journal, beacon) as journal:
        journal.begin(campaign.setup(again.run))
        campaign.run(again.run, journal.announce)


def campaign_against(pool_class):
    def make(num_blocks, enable_caching):
        return pool_class(num_blocks, enable_caching=enable_caching, misuse="undefined")

    return PoolCampaign(pool_class.__name__, make, PROFILE)


def trace_of_first_loss(pool_class, limits):
    with Isolation(lambda: campaign_against(pool_class), limits) as isolation:
        for number, outcome in enumerate(isolation.map(run_one, range(20))):
            if not hasattr(outcome, "value"):
                return find_culprit(isolation, repeat_one, number, outcome, SETUP)
    raise AssertionError("no run was lost")


@needs_fork
def test_a_call_that_never_returns_is_a_stall_of_the_last_command():
    trace = trace_of_first_loss(HangsInFree, HASTY)
    culprit = trace.commands[-1]
    assert isinstance(culprit, Free)
    assert trace.violation.severity is Severity.STALL
    assert trace.violation.sentence == f"{culprit} did not return within 1 s"
    assert trace.violation.command_index == len(trace.commands) - 1
    (frame,) = trace.violation.frames
    assert frame.startswith("test_lost_run.py:")
    assert frame.endswith(" free")


@needs_fork
def test_a_call_that_kills_the_process_is_a_crash_of_the_last_command():
    trace = trace_of_first_loss(CrashesInTouch, PATIENT)
    assert trace.violation.severity is Severity.CRASH
    sentence = f"{trace.commands[-1]} killed the process with SIGSEGV"
    assert trace.violation.sentence == sentence
    assert trace.commands[-1].verb == "touch"
    assert trace.violation.frames[-1].endswith(" touch")


@needs_fork
def test_a_call_that_eats_memory_is_a_crash_of_the_last_command():
    trace = trace_of_first_loss(EatsMemoryInAllocate, PATIENT)
    assert trace.violation.severity is Severity.CRASH
    assert trace.violation.sentence == f"{trace.commands[-1]} used more than 100 MiB"


@needs_fork
def test_a_target_that_hangs_when_it_is_read_is_not_blamed_on_the_command():
    trace = trace_of_first_loss(HangsWhenRead, HASTY)
    sentence = f"reading the pool after {trace.commands[-1]} did not return within 1 s"
    assert trace.violation.sentence == sentence


@needs_fork
def test_a_constructor_that_hangs_is_named():
    trace = trace_of_first_loss(HangsWhenBuilt, HASTY)
    assert trace.commands == ()
    blocks = campaign_against(HangsWhenBuilt).setup(0).num_blocks
    sentence = f"constructing the target with {blocks} blocks did not return within 1 s"
    assert trace.violation.sentence == sentence


def die_unless_the_file_is_there(context, again, beacon):
    with Journal(again.journal, beacon) as journal:
        journal.begin(SETUP)
        journal.announce(Allocate(1))
        if not again.run.exists():
            os._exit(3)


@needs_fork
def test_a_loss_that_does_not_come_again_is_said_to(tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    lost = Hung(seconds=10.0)
    with Isolation(dict) as isolation:
        trace = find_culprit(isolation, die_unless_the_file_is_there, flag, lost, SETUP)
    assert trace.commands == (Allocate(1),)
    assert trace.violation.severity is Severity.STALL
    assert trace.violation.sentence == (
        "a command of this run did not return within 10 s, but the same run ended when it was "
        "repeated: the target does not behave the same way twice"
    )


@needs_fork
def test_a_loss_of_another_kind_the_second_time_tells_both(tmp_path):
    lost = Hung(seconds=10.0)
    with Isolation(dict) as isolation:
        trace = find_culprit(isolation, die_unless_the_file_is_there, tmp_path / "no", lost, SETUP)
    assert trace.violation.severity is Severity.CRASH
    assert trace.violation.sentence == (
        "allocate(1) ended the process with exit status 3 "
        "(the first time, the run did not return within 10 s)"
    )


def fail(context, again, beacon):
    raise LookupError("a bug of ours")


@needs_fork
def test_a_job_that_fails_is_our_bug_and_not_hidden():
    with Isolation(dict) as isolation, pytest.raises(RuntimeError) as caught:
        find_culprit(isolation, fail, 0, Hung(seconds=10.0), SETUP)
    assert "LookupError: a bug of ours" in str(caught.value)


class SilentBeacon:
    def bump(self):
        pass


def test_a_journal_holds_5000_commands_and_forgets_the_run_before(tmp_path):
    path = tmp_path / "journal"
    commands = tuple(Free(tuple(range(i % 60))) for i in range(5000))
    with Journal(path, SilentBeacon()) as journal:
        for _ in range(2):
            journal.begin(SETUP)
            for command in commands:
                journal.announce(command)
    assert read_journal(path) == replace(SETUP, commands=commands)


def test_a_line_that_was_cut_short_is_left_out(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, SilentBeacon()) as journal:
        journal.begin(SETUP)
        journal.announce(Allocate(1))
        journal.announce(Allocate(2))
    path.write_bytes(path.read_bytes()[:-4])
    assert read_journal(path).commands == (Allocate(1),)


@pytest.mark.parametrize("written", [None, b"", b'{"format": "poolproof-tr'])
def test_a_journal_that_was_not_begun_is_no_trace(tmp_path, written):
    path = Path(tmp_path, "journal")
    if written is not None:
        path.write_bytes(written)
    assert read_journal(path) is None


def test_the_violation_of_a_trace_can_be_made_without_a_second_run():
    trace = SETUP.with_commands([Allocate(1)])
    assert as_violation(trace, Hung(seconds=2.0)).sentence == (
        "allocate(1) did not return within 2 s"
    )


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (Free((0,)), None),
        (Free((1,)), MisuseKind.BLOCK_NOT_HELD),
        (Free((9,)), MisuseKind.BLOCK_BEYOND_THE_POOL),
        (Free((0, 0)), MisuseKind.FREED_TOO_OFTEN),
    ],
)
def test_a_loss_in_misuse_says_what_was_misused(command, kind):
    violation = as_violation(SETUP.with_commands([Allocate(1), command]), Hung(seconds=2.0))
    assert violation.misuse == (kind and MisuseFailure(kind, MisuseOutcome.LOST))


OURS = f'  File "{Path(lost_run.__file__).with_name("random_driver.py")}", line 9 in _drive'


@pytest.mark.parametrize(
    ("method", "command", "what"),
    [
        ("ref_count", Allocate(1), "reading the pool after allocate(1)"),
        ("lookup", Allocate(1), "reading the pool after allocate(1)"),
        ("lookup", Lookup(b"hash"), str(Lookup(b"hash"))),
        ("allocate", Allocate(1), "allocate(1)"),
    ],
)
def test_where_our_frames_do_not_show_the_method_tells_a_reading_from_a_command(
    method, command, what
):
    stack = [f'  File "/x/mine.py", line 3 in {name}' for name in ("helper", method)]
    tail = "\n".join(["Stack (most recent call first):", *stack, OURS])
    violation = as_violation(SETUP.with_commands([command]), Hung(seconds=2.0, output_tail=tail))
    assert violation.sentence == f"{what} did not return within 2 s"
    assert violation.frames == ("mine.py:3 helper", f"mine.py:3 {method}")


def test_of_a_program_that_is_waited_for_no_frames_are_known():
    lines = ["Stack (most recent call first):", '  File "/x/mine.py", line 3 in allocate']
    assert _target_frames(Died(status=-6, output_tail="\n".join(lines))) == ("mine.py:3 allocate",)
    lines.insert(1, '  File "/x/command_process.py", line 9 in read')
    assert _target_frames(Died(status=-6, output_tail="\n".join(lines))) == ()
