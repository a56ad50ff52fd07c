"""What can go wrong before there is a target: `prepare` runs in the importer."""

import os
import sys
import threading
import time

import pytest

from poolproof.harness.isolation import (
    Died,
    Failed,
    Finished,
    Hung,
    ImporterError,
    Isolation,
    Limits,
    OutOfMemory,
    Unwatched,
)

pytestmark = [
    pytest.mark.skipif(not Isolation.is_available, reason="needs fork()"),
    pytest.mark.usefixtures("no_children"),
]


def failure_of(prepare, **limits):
    with pytest.raises(ImporterError) as caught, Isolation(prepare, Limits(**limits)):
        raise AssertionError("the import went well")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
    return caught.value


def raise_on_import():
    raise ModuleNotFoundError("No module named 'engine'")


def test_an_import_that_raises_tells_what():
    error = failure_of(raise_on_import)
    assert str(error) == (
        "importing the target raised ModuleNotFoundError: No module named 'engine'"
    )
    assert isinstance(error.outcome, Failed)
    assert "in raise_on_import" in error.outcome.traceback


class UnpicklableError(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")
        self.thread = threading.Lock()


def raise_what_cannot_be_pickled():
    raise UnpicklableError(1, 2)


def test_an_exception_that_cannot_be_pickled_is_told_all_the_same():
    error = failure_of(raise_what_cannot_be_pickled)
    assert str(error).endswith("UnpicklableError: 1 and 2")


def hang_on_import():
    while True:
        time.sleep(1)


def test_an_import_that_hangs_is_killed():
    error = failure_of(hang_on_import, import_timeout_s=1)
    assert str(error) == "importing the target did not return within 1 s"
    assert isinstance(error.outcome, Hung)
    assert [name for _, _, name in error.outcome.stack()] == ["hang_on_import"]


def exit_on_import():
    print("no GPU here", file=sys.stderr)
    sys.exit(3)


def test_an_import_that_exits_tells_its_status_and_its_last_words():
    error = failure_of(exit_on_import)
    assert str(error) == "importing the target ended the process with exit status 3"
    assert isinstance(error.outcome, Died)
    assert error.outcome.output_tail == "no GPU here\n"


def eat_on_import():
    hoard = []
    while True:
        hoard.append(b"x" * 100_000)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_an_import_that_eats_memory_is_killed():
    error = failure_of(eat_on_import, import_memory_mib=100)
    assert isinstance(error.outcome, OutOfMemory)


def start_threads():
    lock = threading.Lock()
    for _ in range(3):
        threading.Thread(target=lambda: [time.sleep(0.001) for _ in range(10_000)]).start()
    return lock


def use_the_lock(context, argument, beacon):
    with context:
        return threading.active_count()


def test_an_import_may_start_threads():
    with Isolation(start_threads, Limits(call_timeout_s=5)) as isolation:
        assert list(isolation.map(use_the_lock, range(5))) == [Finished(1)] * 5


def take_over_the_signals():
    import signal

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def die(context, argument, beacon):
    os._exit(argument)


def test_an_import_may_ignore_the_end_of_children():
    with Isolation(take_over_the_signals) as isolation:
        assert list(isolation.map(die, [5])) == [Died(status=5)]


def kill_the_importer(context, argument, beacon):
    os.kill(os.getppid(), 9)
    time.sleep(60)


def test_a_call_that_ends_the_importer_itself_is_told_so():
    with Isolation(dict) as isolation:
        (outcome,) = isolation.map(kill_the_importer, [None])
    assert outcome == Unwatched(status=-9, alone=True)
    assert outcome.sentence("free([1])") == (
        "free([1]) ended the process that watches over the target (killed by SIGKILL)"
    )


@pytest.mark.parametrize("name", ["call_timeout_s", "memory_mib", "import_timeout_s"])
def test_a_limit_of_nothing_is_refused_by_name(name):
    with pytest.raises(ValueError) as caught:
        Limits(**{name: 0})
    assert str(caught.value) == f"{name} must be a number above 0, not 0"
