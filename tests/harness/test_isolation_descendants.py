"""Whatever a target starts and however it hides, it is found and ended with its worker."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from poolproof.harness.isolation import (
    Finished,
    Forked,
    Hung,
    ImporterError,
    Isolation,
    Limits,
    TooManyProcesses,
)
from poolproof.harness.isolation.process_tree import FINDS_ALL, descendants_of

pytestmark = [
    pytest.mark.skipif(not FINDS_ALL, reason="needs Linux's subreapers and /proc"),
    pytest.mark.usefixtures("no_children"),
]


def is_alive(pid):
    """Whether the process runs; a zombie that nobody waits for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def wait_until(condition):
    for _ in range(1000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def note_and_sleep(folder):
    (folder / str(os.getpid())).touch()
    while True:
        time.sleep(1)


def noted(folder):
    return [int(file.name) for file in folder.iterdir()]


def fork_child(folder):
    if not os.fork():
        note_and_sleep(folder)


def fork_daemon(folder):
    """As daemon(3) does it: a grandchild in a session of its own, whose parent has ended."""
    child = os.fork()
    if not child:
        os.setsid()
        if os.fork():
            os._exit(0)
        note_and_sleep(folder)
    os.waitpid(child, 0)


def fork_deaf_daemon(folder):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    fork_daemon(folder)


def start_program(folder):
    script = "import os, sys, time; open(f'{sys.argv[1]}/{os.getpid()}', 'w'); time.sleep(99)"
    subprocess.Popen([sys.executable, "-c", script, str(folder)], start_new_session=True)


WAYS = [fork_child, fork_daemon, fork_deaf_daemon, start_program]


def start_and_end(context, argument, beacon):
    folder, way, end = argument
    way(folder)
    wait_until(lambda: noted(folder))
    if end == "answer":
        return "answered"
    if end == "hang":
        time.sleep(60)
    os._exit(3)


@pytest.mark.some(4)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["answer", "hang", "exit"])
def test_what_a_worker_started_ends_with_it(tmp_path, way, end):
    with Isolation(dict, Limits(call_timeout_s=1)) as isolation:
        list(isolation.map(start_and_end, [(tmp_path, way, end)]))
        (pid,) = noted(tmp_path)
        assert wait_until(lambda: not is_alive(pid))
        assert list(isolation.map(double, [2])) == [Finished(4)]


def double(context, argument, beacon):
    return argument * 2


def test_the_children_of_other_workers_are_left_alone(tmp_path):
    with Isolation(dict, workers=2) as isolation:
        server = isolation.serve(start_and_end)
        assert server((tmp_path, fork_daemon, "answer")) == Finished("answered")
        (pid,) = noted(tmp_path)
        list(isolation.map(start_and_end, [(tmp_path, fork_child, "exit")]))
        assert is_alive(pid)
        server.close()
        assert wait_until(lambda: not is_alive(pid))


def start_helper(folder):
    def prepare():
        fork_daemon(folder)
        wait_until(lambda: noted(folder))

    return prepare


def test_what_the_import_started_lives_as_long_as_the_isolation(tmp_path):
    with Isolation(start_helper(tmp_path)) as isolation:
        assert list(isolation.map(double, range(3))) == [Finished(0), Finished(2), Finished(4)]
        (pid,) = noted(tmp_path)
        assert is_alive(pid)
    assert not is_alive(pid)


def come_back(context, argument, beacon):
    """A target that forks at each call, and never ends the child."""
    for _ in range(10_000):
        beacon.bump()
        os.fork()
    return "done"


def test_a_target_whose_forks_come_back_is_found_out_and_nobody_is_left():
    with Isolation(dict, Limits(call_timeout_s=5)) as isolation:
        (outcome,) = isolation.map(come_back, [None])
        assert isinstance(outcome, Forked)
        assert outcome.sentence("free([1])") == (
            "free([1]) returned in two processes: it forked, and did not end its child"
        )
        assert list(isolation.map(double, [2])) == [Finished(4)]


def test_a_server_goes_on_after_a_call_that_came_back_twice():
    with Isolation(dict) as isolation:
        server = isolation.serve(come_back_at_the_third)
        outcomes = [server(None) for _ in range(3)]
        assert isolation.serve(double)(2) == Finished(4)
    assert [type(outcome) for outcome in outcomes] == [Forked] * 3


def come_back_at_the_third(context, argument, beacon):
    for number in range(1, 100):
        beacon.bump()
        if number == 3:
            os.fork()
        time.sleep(0.01)
    return "done"


def test_the_call_that_came_back_twice_is_known():
    with Isolation(dict) as isolation:
        (outcome,) = isolation.map(come_back_at_the_third, [None])
    assert isinstance(outcome, Forked)
    assert outcome.progress == 3


def come_back_unseen(context, argument, beacon):
    """Forked past Python, so that only the end of the call shows it."""
    beacon.bump()
    ctypes.CDLL(None).fork()
    return "done"


def test_an_answer_that_comes_from_two_processes_is_none():
    with Isolation(dict) as isolation:
        server = isolation.serve(come_back_unseen)
        outcomes = [server(None) for _ in range(5)]
        assert list(isolation.map(double, [2])) == [Finished(4)]
    # Whether the copy is seen before the first has answered is a matter of luck.
    assert all(outcome in (Finished("done"), Forked(progress=1)) for outcome in outcomes)
    assert descendants_of(os.getpid()) == []


# Each process is a copy of this one, which takes its time: one test goes as far as the true limit.
FEW_PROCESSES = 40


def multiply(context, argument, beacon):
    while True:
        beacon.bump()
        if not os.fork():
            time.sleep(60)
            os._exit(0)


def explode(context, argument, beacon):
    """A bomb: each process starts two, past Python and for ever."""
    fork = ctypes.CDLL(None).fork
    while True:
        fork()


class NobodyListens:
    def bump(self):
        pass


def multiply_on_import():
    multiply(None, None, NobodyListens())


@pytest.mark.parametrize(("job", "number"), [(multiply, 64), (explode, FEW_PROCESSES)])
def test_who_starts_too_many_processes_is_ended_with_all_of_them(job, number, monkeypatch):
    monkeypatch.setattr("poolproof.harness.isolation.watchman.MOST_PROCESSES", number)
    with Isolation(dict, Limits(call_timeout_s=20)) as isolation:
        (outcome,) = isolation.map(job, [None])
        assert outcome == TooManyProcesses(number=number, progress=outcome.progress)
        assert list(isolation.map(double, [2])) == [Finished(4)]
    assert descendants_of(os.getpid()) == []


def test_a_bomb_in_an_import_is_ended(monkeypatch):
    monkeypatch.setattr("poolproof.harness.isolation.importer.MOST_PROCESSES", FEW_PROCESSES)
    with pytest.raises(ImporterError) as caught, Isolation(multiply_on_import):
        raise AssertionError("the import went well")
    assert str(caught.value) == "importing the target started more than 40 processes"
    assert descendants_of(os.getpid()) == []


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from poolproof.harness.isolation import Isolation
from ways import WAYS, wait_until, noted

folder = Path(sys.argv[2])

def start(context, argument, beacon):
    WAYS[int(sys.argv[3])](folder)
    wait_until(lambda: noted(folder))
    if sys.argv[4] == "target":
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        beacon.bump()
        time.sleep(0.05)

with Isolation(dict) as isolation:
    list(isolation.map(start, [None]))
"""


@pytest.mark.some(4)
@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("way", range(len(WAYS)))
@pytest.mark.parametrize("end", ["target", signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_nobody_stays_behind_however_poolproof_is_ended(tmp_path, way, end):
    (tmp_path / "ways.py").write_text(Path(__file__).read_text())
    (tmp_path / "noted").mkdir()
    name = end if end == "target" else "signal"
    command = [sys.executable, "-c", SCRIPT, tmp_path, tmp_path / "noted", str(way), name]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        assert wait_until(lambda: noted(tmp_path / "noted") or process.poll() is not None)
        if end != "target":
            process.send_signal(end)
        process.communicate(timeout=60)
    pids = noted(tmp_path / "noted")
    assert pids
    for pid in pids:
        assert wait_until(lambda pid=pid: not is_alive(pid))


def stop_watchman(context, argument, beacon):
    for _ in range(3):
        os.kill(os.getppid(), signal.SIGSTOP)
        beacon.bump()
    return "went on"


def hang(context, argument, beacon):
    os.kill(os.getppid(), signal.SIGSTOP)
    while True:
        time.sleep(1)


def test_a_watchman_that_the_target_stops_goes_on():
    with Isolation(lambda: None, Limits(call_timeout_s=0.5)) as isolation:
        assert list(isolation.map(stop_watchman, [None])) == [Finished("went on")]
        (outcome,) = isolation.map(hang, [None])
        assert isinstance(outcome, Hung)
