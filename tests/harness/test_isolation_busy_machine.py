"""On a busy machine a call takes long; only what it does with its share of a processor counts."""

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest

from poolproof.harness.isolation import Finished, Hung, Isolation, Limits
from poolproof.harness.isolation.limits import waited_for_processor_s

pytestmark = pytest.mark.skipif(
    not Isolation.is_available or waited_for_processor_s(os.getpid()) == 0.0,
    reason="needs fork() and a kernel that says how long a process has waited",
)

SPIN = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"
PROGRAM = """
import os, time
os.sched_setaffinity(0, {%d})
used_up = time.process_time() + %f
while time.process_time() < used_up: pass
"""


@pytest.fixture
def crowded():
    """A processor that nine others want as well."""
    processor = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        for _ in range(9):
            other = subprocess.Popen([sys.executable, "-c", SPIN % processor])
            stack.callback(other.wait)
            stack.callback(other.kill)
        time.sleep(0.3)
        yield processor


def work_for(context, argument, beacon):
    """Without a sign of progress until so many seconds of a processor are used up."""
    processor, seconds = argument
    os.sched_setaffinity(0, {processor})
    beacon.bump()
    began, used_up = time.monotonic(), time.process_time() + seconds
    while time.process_time() < used_up:
        pass
    return time.monotonic() - began


def let_a_program_work_for(context, argument, beacon):
    """The same in a process of its own, for which this one waits."""
    beacon.bump()
    began = time.monotonic()
    program = [sys.executable, "-c", PROGRAM % argument]
    subprocess.run(program, check=True)
    return time.monotonic() - began


def outcome_of(job, argument, call_timeout_s):
    with Isolation(dict, Limits(call_timeout_s=call_timeout_s)) as isolation:
        (outcome,) = isolation.map(job, [argument])
    return outcome


@pytest.mark.parametrize("job", [work_for, let_a_program_work_for])
def test_waiting_for_a_processor_is_not_held_against_a_call(crowded, job):
    outcome = outcome_of(job, (crowded, 0.3), 1.0)
    assert isinstance(outcome, Finished)
    assert outcome.value > 1.0, "the processor was not crowded, so this shows nothing"


def test_a_call_that_never_ends_is_found_there_too(crowded):
    assert isinstance(outcome_of(work_for, (crowded, 600.0), 0.5), Hung)


def test_the_wait_of_a_process_that_is_gone_is_unknown():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert waited_for_processor_s(child.pid) == 0.0
