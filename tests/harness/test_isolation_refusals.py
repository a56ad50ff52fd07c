"""What the isolation says when it cannot go on: no workers, no importer, no fork, no context."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from poolproof.harness.isolation import (
    Died,
    Failed,
    Finished,
    ImporterError,
    InProcess,
    Isolation,
    Unwatched,
    importer,
    watchman,
)
from poolproof.harness.isolation.beacon import BeaconArena
from poolproof.harness.isolation.child_process import MOST_OUTPUT_BYTES

pytestmark = [
    pytest.mark.skipif(not Isolation.is_available, reason="needs fork()"),
    pytest.mark.usefixtures("no_children"),
]


def double(context, argument, beacon):
    return argument * 2


def ids(context, argument, beacon):
    return os.getpid(), os.getppid()


def wait_until_gone(pid):
    """Until nobody has to wait for the process any more."""
    for _ in range(2000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} is still there")


def test_without_fork_it_says_what_to_do(monkeypatch):
    monkeypatch.setattr(Isolation, "is_available", False)
    with pytest.raises(OSError, match="run the target in process instead"):
        Isolation(dict)


def test_there_is_at_least_one_worker():
    with pytest.raises(ValueError, match="workers must be 1 or more, not 0"):
        Isolation(dict, workers=0)


def test_it_states_that_targets_run_in_child_processes():
    assert Isolation(dict).statement.startswith("in child processes, 10 s for each call, ")


def test_closing_twice_does_no_harm():
    isolation = Isolation(dict)
    isolation.close()
    with isolation:
        server = isolation.serve(double)
        assert server(1) == Finished(2)
        server.close()
        server.close()
        assert server(2) == Finished(4)
    isolation.close()


def end_another(context, argument, beacon):
    os.kill(argument, signal.SIGKILL)
    wait_until_gone(argument)
    # The caller hears of it before it hears of this call.
    time.sleep(0.3)
    return "done"


def test_news_of_another_worker_do_not_end_a_wait():
    with Isolation(dict) as isolation:
        first, second = isolation.serve(ids), isolation.serve(end_another)
        pid, _ = first(None).value
        assert second(pid) == Finished("done")
        assert first(None).value[0] != pid


def end_the_importer(context, argument, beacon):
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)


def test_a_server_tells_of_a_call_that_ended_the_importer_and_goes_on():
    with Isolation(dict) as isolation:
        server = isolation.serve(end_the_importer)
        first, second = server(None), server(None)
        assert list(isolation.map(double, [4])) == [Finished(8)]
    assert first == second == Unwatched(status=-signal.SIGKILL, alone=True)


def end_the_importer_or_double(context, argument, beacon):
    time.sleep(0.2)
    if argument < 0:
        os.kill(os.getppid(), signal.SIGKILL)
    return argument * 2


def test_only_the_call_that_ends_the_importer_is_blamed_not_those_that_ran_beside_it():
    with Isolation(dict, workers=3) as isolation:
        outcomes = list(isolation.map(end_the_importer_or_double, [1, 2, -1, 3, -1, 4]))
    blamed = Unwatched(status=-signal.SIGKILL, alone=True)
    assert outcomes == [Finished(2), Finished(4), blamed, Finished(6), blamed, Finished(8)]


def test_without_an_importer_there_are_no_further_workers():
    with Isolation(dict) as isolation:
        _, pid = isolation.serve(ids)(None).value
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.2)
        with pytest.raises(ImporterError) as caught:
            list(isolation.map(double, range(100)))
    assert caught.value.outcome == Died(status=-signal.SIGKILL)


def test_more_workers_than_there_is_room_for_are_refused(monkeypatch):
    monkeypatch.setattr(BeaconArena, "NUM_SLOTS", 1)
    with Isolation(dict) as isolation:
        crew = isolation.crew(double)
        crew.give(0, 1)
        with pytest.raises(RuntimeError, match="more than 1 workers at once"):
            crew.give(1, 1)
        crew.close()


def print_much():
    """More than an output may keep, for longer than the caller looks away."""
    os.write(1, b"x" * (MOST_OUTPUT_BYTES + 1))
    time.sleep(1)
    return os.fstat(1).st_size


def size_of_output(context, argument, beacon):
    return context


def test_what_an_import_prints_does_not_pile_up():
    with Isolation(print_much) as isolation:
        (outcome,) = isolation.map(size_of_output, [None])
    assert outcome.value < MOST_OUTPUT_BYTES


def test_a_caller_who_ignores_its_children_can_close_all_the_same():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with Isolation(dict) as isolation:
            assert list(isolation.map(double, [1])) == [Finished(2)]
    finally:
        signal.signal(signal.SIGCHLD, before)


def refuse(*_):
    raise OSError(11, "no more processes")


def forbid_forks():
    watchman.fork_process = refuse


def test_a_worker_that_cannot_be_forked_is_a_failure_with_its_reason():
    with Isolation(forbid_forks) as isolation:
        (outcome,) = isolation.map(double, [1])
    assert isinstance(outcome, Failed)
    assert "no more processes" in outcome.message


def break_births():
    watchman.become_child = refuse


def test_a_worker_that_fails_at_birth_has_died():
    with Isolation(break_births) as isolation:
        (outcome,) = isolation.map(double, [1])
    assert isinstance(outcome, Died)
    assert outcome.status == 1


def test_a_worker_that_ended_by_itself_need_not_be_killed():
    with Isolation(dict) as isolation:
        server = isolation.serve(ids)
        pid, _ = server(None).value
        os.kill(pid, signal.SIGKILL)
        wait_until_gone(pid)
        server.close()
        assert list(isolation.map(double, [1])) == [Finished(2)]


@pytest.mark.parametrize(("code", "status"), [(None, 0), (3, 3), ("a reason", 1)])
def test_in_process_an_import_that_exits_is_told_as_from_a_child(code, status):
    with pytest.raises(ImporterError) as caught, InProcess(lambda: sys.exit(code)):
        pass
    assert caught.value.outcome == Died(status=status)


def test_in_process_calls_need_to_be_entered_too():
    with pytest.raises(RuntimeError, match="use it in a `with` statement"):
        InProcess(dict).serve(double)


def test_a_call_that_a_loss_was_told_for_is_as_it_was_told():
    handle = importer.WorkerHandle(0, None, BeaconArena()[0])
    handle.verdict = Failed("OSError", "no", "")
    assert handle.lost() is handle.verdict
    handle.output.close()
