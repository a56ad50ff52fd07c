"""On a busy machine a call takes long; only what it does with its share of a processor counts.

How crowded a processor is cannot be arranged: kernels share it by thread, by session (autogroup) or
by container. So the numbers of the kernel are given here, and what is made of them is looked at.
"""

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from poolproof.harness.isolation import Finished, Hung, Isolation, Limits, watchman
from poolproof.harness.isolation.limits import own_time_s, waited_for_processor_s

CHILDREN = f"task/{os.getpid()}/children"

needs_fork = pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")


def test_waiting_is_not_a_process_s_own_time():
    assert own_time_s(2.0, waited_s=0.0) == 2.0
    assert own_time_s(2.0, waited_s=1.5) == 0.5


def test_a_tenth_counts_however_long_a_process_waited():
    assert own_time_s(2.0, waited_s=2.0) == 0.2
    assert own_time_s(2.0, waited_s=700.0) == 0.2


def test_a_wait_that_shrank_since_a_child_ended_adds_nothing():
    assert own_time_s(2.0, waited_s=-3.0) == 2.0


def proc_of(folder, schedstats, children=()):
    """A /proc with these processes, the first of which has these children."""
    for pid, text in schedstats.items():
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "schedstat").write_text(text)
    first = next(iter(schedstats), 1)
    (folder / f"{first}/task/{first}").mkdir(parents=True)
    (folder / f"{first}/task/{first}/children").write_text(" ".join(map(str, children)))
    return folder


def test_the_wait_is_the_second_number_of_the_kernel_s_three(tmp_path):
    proc = proc_of(tmp_path, {7: "9000000000 2500000000 31\n"})
    assert waited_for_processor_s(7, proc) == 2.5


def test_the_wait_of_children_counts_with_the_process_that_waits_for_them(tmp_path):
    numbers = {7: "1 500000000 3\n", 8: "1 1500000000 3\n", 9: "1 2000000000 3\n"}
    assert waited_for_processor_s(7, proc_of(tmp_path, numbers, [8, 9])) == 4.0


@pytest.mark.parametrize("text", ["", "0\n"])
def test_a_kernel_that_keeps_no_such_numbers_says_nothing(tmp_path, text):
    assert waited_for_processor_s(7, proc_of(tmp_path, {7: text})) == 0.0


def test_the_wait_of_a_process_that_is_gone_is_unknown(tmp_path):
    assert waited_for_processor_s(7, proc_of(tmp_path, {7: "1 500000000 3\n"}, [8])) == 0.5
    assert waited_for_processor_s(8, tmp_path) == 0.0


def test_the_numbers_are_read_from_the_kernel_where_it_keeps_them():
    numbers = Path("/proc/self/schedstat")
    if not numbers.exists():
        pytest.skip("this kernel does not say how long a process has waited")

    def waited_s():
        return int(numbers.read_text().split()[1]) / 1e9

    least = waited_s()
    read = waited_for_processor_s(os.getpid())
    assert least <= read
    children = Path("/proc/self", CHILDREN)
    if not children.exists() or not children.read_text():
        assert read <= waited_s()


def sit_for(context, seconds, beacon):
    """Without a sign of progress for so long."""
    beacon.bump()
    time.sleep(seconds)
    return seconds


def outcome_of(job, argument, call_timeout_s):
    with Isolation(dict, Limits(call_timeout_s=call_timeout_s)) as isolation:
        (outcome,) = isolation.map(job, [argument])
    return outcome


@pytest.fixture
def always_waiting(monkeypatch):
    """A kernel that says of every process that it was waiting the whole time."""
    monkeypatch.setattr(watchman, "waited_for_processor_s", lambda pid: time.monotonic())


@pytest.fixture
def never_waiting(monkeypatch):
    monkeypatch.setattr(watchman, "waited_for_processor_s", lambda pid: 0.0)


@needs_fork
def test_waiting_for_a_processor_is_not_held_against_a_call(always_waiting):
    assert isinstance(outcome_of(sit_for, 1.2, call_timeout_s=0.6), Finished)


@needs_fork
def test_the_same_call_is_too_long_where_it_did_not_wait(never_waiting):
    assert isinstance(outcome_of(sit_for, 60.0, call_timeout_s=0.6), Hung)


@needs_fork
def test_a_call_that_never_ends_is_found_there_too(always_waiting):
    assert isinstance(outcome_of(sit_for, 600.0, call_timeout_s=0.1), Hung)


SPIN = "import os; os.sched_setaffinity(0, {%d})\nwhile True: pass"
PROGRAM = """
import os, time
os.sched_setaffinity(0, {%d})
used_up = time.process_time() + %f
while time.process_time() < used_up: pass
"""


@pytest.fixture
def crowded():
    """A processor that nine others want as well, each in a session of its own.

    Where the kernel shares by session, all of one session are one. How crowded the processor is
    then depends on the machine, so nothing is said about it.
    """
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("processes cannot be bound to a processor here")
    if not all(Path("/proc/self", name).exists() for name in ("schedstat", CHILDREN)):
        pytest.skip("this kernel does not say how long a process has waited")
    processor = min(os.sched_getaffinity(0))
    with ExitStack() as stack:
        for _ in range(9):
            other = subprocess.Popen(
                [sys.executable, "-c", SPIN % processor], start_new_session=True
            )
            stack.callback(other.wait)
            stack.callback(other.kill)
        yield processor


def work_for(context, argument, beacon):
    """Without a sign of progress until so many seconds of a processor are used up."""
    processor, seconds = argument
    os.sched_setaffinity(0, {processor})
    beacon.bump()
    used_up = time.process_time() + seconds
    while time.process_time() < used_up:
        pass


def let_a_program_work_for(context, argument, beacon):
    """The same in a process of its own, for which this one waits."""
    beacon.bump()
    subprocess.run([sys.executable, "-c", PROGRAM % argument], check=True)


@needs_fork
@pytest.mark.deep
@pytest.mark.parametrize("job", [work_for, let_a_program_work_for])
def test_no_call_is_blamed_for_a_processor_that_others_use(crowded, job):
    assert isinstance(outcome_of(job, (crowded, 0.3), 1.0), Finished)
