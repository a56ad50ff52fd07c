"""Order, nesting, cleaning up: the processes behind `Isolation`."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poolproof.harness.isolation import Died, Finished, Hung, Isolation, Limits

pytestmark = [
    pytest.mark.skipif(not Isolation.is_available, reason="needs fork()"),
    pytest.mark.usefixtures("no_children"),
]

HASTY = Limits(call_timeout_s=1)


def is_alive(pid):
    """Whether the process runs; a zombie that nobody waits for does not."""
    if Path("/proc/self/stat").exists():  # small images of Linux have no ps
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
        except (FileNotFoundError, ProcessLookupError):
            state = ""
    else:
        command = ["ps", "-o", "stat=", "-p", str(pid)]
        state = subprocess.run(command, check=False, capture_output=True, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")


def wait_until(condition):
    """A minute at most, for a machine that is busy; what is waited for takes milliseconds."""
    for _ in range(6000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def num_descriptors():
    return len(list(Path("/dev/fd").iterdir()))


def misbehave(context, argument, beacon):
    """Answer, exit or crash, in turn; the answer is the number of open descriptors."""
    if argument % 3 == 1:
        os._exit(1)
    if argument % 3 == 2:
        os.abort()
    return num_descriptors()


def test_outcomes_come_in_the_order_of_the_arguments():
    with Isolation(dict, workers=3) as isolation:
        outcomes = list(isolation.map(misbehave, range(9)))
    expected = [Finished, Died, Died] * 3
    assert list(map(type, outcomes)) == expected


def wait_for_the_file(context, argument, beacon):
    while argument is not None and not argument.exists():
        time.sleep(0.01)
        beacon.bump()
    return argument


def test_outcomes_as_completed_carry_the_position_of_their_argument(tmp_path):
    late = tmp_path / "late"
    with Isolation(dict, workers=2) as isolation:
        outcomes = isolation.as_completed(wait_for_the_file, [late, None])
        pairs = [next(outcomes)]
        late.touch()
        pairs += outcomes
    assert pairs == [(1, Finished(None)), (0, Finished(late))]


def test_no_process_and_no_descriptor_is_left_after_fifty_outcomes():
    before = num_descriptors()
    with Isolation(dict, workers=2) as isolation:
        outcomes = list(isolation.map(misbehave, range(51)))
    in_workers = {outcome.value for outcome in outcomes if isinstance(outcome, Finished)}
    # A second worker may be there or not, and with it one more file that the watchman holds.
    assert max(in_workers) - min(in_workers) <= 2
    assert num_descriptors() == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def bump_for_a_while(context, argument, beacon):
    for _ in range(10):
        time.sleep(0.3)
        beacon.bump()


def test_a_job_may_take_longer_than_the_limit_of_one_call():
    with Isolation(dict, Limits(call_timeout_s=2)) as isolation:
        assert list(isolation.map(bump_for_a_while, [None])) == [Finished(None)]


def answer_much(context, argument, beacon):
    return bytes(5_000_000)


def test_a_caller_that_takes_its_time_makes_nobody_guilty():
    with Isolation(dict, HASTY, workers=2) as isolation:
        outcomes = isolation.map(answer_much, range(4))
        first = next(outcomes)
        time.sleep(1.5)
        rest = list(outcomes)
    assert [first, *rest] == [Finished(bytes(5_000_000))] * 4


def loop(context, argument, beacon):
    Path(argument).write_text(str(os.getpid()))
    while True:
        pass


def test_a_caller_that_takes_its_time_does_not_stop_the_watch(tmp_path):
    with Isolation(dict, HASTY, workers=2) as isolation:
        outcomes = isolation.as_completed(loop_if_asked, [tmp_path / "pid", None])
        next(outcomes)
        assert wait_until((tmp_path / "pid").exists)
        assert wait_until(lambda: not is_alive((tmp_path / "pid").read_text()))
        ((_, outcome),) = outcomes
    assert isinstance(outcome, Hung)


def loop_if_asked(context, argument, beacon):
    if argument is not None:
        loop(context, argument, beacon)


def test_closing_early_kills_what_still_runs(tmp_path):
    with Isolation(dict, workers=2) as isolation:
        outcomes = isolation.as_completed(loop_if_asked, [tmp_path / "pid", None])
        next(outcomes)
        assert wait_until((tmp_path / "pid").exists)
        outcomes.close()
        assert wait_until(lambda: not is_alive((tmp_path / "pid").read_text()))
        assert list(isolation.map(double, [4])) == [Finished(8)]


def double(context, argument, beacon):
    return argument * 2


def test_arguments_may_be_endless():
    with Isolation(dict, workers=2) as isolation:
        outcomes = isolation.map(double, itertools.count())
        assert list(itertools.islice(outcomes, 5)) == [Finished(2 * i) for i in range(5)]


def test_maps_may_be_nested():
    with Isolation(dict, workers=2) as isolation:
        results = [
            (outer.value, inner.value)
            for outer in isolation.map(double, range(4))
            for inner in isolation.map(double, [outer.value])
        ]
    assert results == [(0, 0), (2, 4), (4, 8), (6, 12)]


def start_a_family(context, argument, beacon):
    child = os.fork()
    if child == 0:
        time.sleep(30)
    Path(argument).write_text(str(child))
    os._exit(1)


def test_what_a_target_started_dies_with_it(tmp_path):
    with Isolation(dict) as isolation:
        list(isolation.map(start_a_family, [tmp_path / "pid"]))
        # It was killed before the outcome came, but the system takes its own time to bury it.
        assert wait_until(lambda: not is_alive((tmp_path / "pid").read_text()))


def test_a_job_without_a_name_is_refused_with_the_reason():
    with Isolation(dict) as isolation, pytest.raises(TypeError) as caught:
        list(isolation.map(lambda *_: None, [1]))
    assert "must be a function of a module" in str(caught.value)


def test_an_isolation_that_was_not_entered_says_so():
    with pytest.raises(RuntimeError) as caught:
        list(Isolation(dict).map(double, [1]))
    assert "`with`" in str(caught.value)


def process_id(context, argument, beacon):
    if argument == "die":
        os._exit(1)
    if argument == "hang":
        time.sleep(60)
    return os.getpid()


def test_a_server_keeps_its_worker_until_it_is_lost():
    with Isolation(dict) as isolation, isolation.serve(process_id, call_timeout_s=2) as call:
        first, second = call("live"), call("live")
        died, third = call("die"), call("live")
        hung, fourth = call("hang"), call("live")
    assert first == second
    assert died == Died(status=1)
    assert isinstance(hung, Hung)
    assert hung.seconds == 2
    assert len({first, third, fourth}) == 3


def test_a_worker_that_dies_between_two_calls_is_replaced():
    with Isolation(dict) as isolation:
        call = isolation.serve(process_id)
        first = call(None)
        os.kill(first.value, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(first.value))
        second = call(None)
        if isinstance(second, Died):  # it was asked before its parent was told
            second = call(None)
    assert isinstance(second, Finished)
    assert second != first


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from poolproof.harness.isolation import Isolation

# A shell that starts the tests in its background has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

def note(name):
    Path(name + ".new").write_text(str(os.getpid()))
    os.rename(name + ".new", name)

def sleep(context, argument, beacon):
    note("worker")
    while True:
        beacon.bump()
        time.sleep(0.05)

def prepare():
    note("importer")
    while sys.argv[1] == "importer":
        time.sleep(0.05)

with Isolation(prepare) as isolation:
    list(isolation.map(sleep, [None]))
"""


def end_by_signal(folder, number, busy):
    """Run the script in a folder, and end it by a signal when the process named `busy` is."""
    command = [sys.executable, "-c", SCRIPT, busy]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE) as process:
        assert wait_until((folder / busy).exists)
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode != 0
    return [file.read_text() for file in folder.iterdir()]


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_when_poolproof_is_ended_by_a_signal_nobody_stays_behind(tmp_path, number):
    for pid in end_by_signal(tmp_path, number, "worker"):
        assert wait_until(lambda pid=pid: not is_alive(pid))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the import goes on to its end")
def test_when_poolproof_is_killed_during_the_import_nobody_stays_behind(tmp_path):
    (pid,) = end_by_signal(tmp_path, signal.SIGKILL, "importer")
    assert wait_until(lambda: not is_alive(pid))
