"""Crews: workers that keep what they know, are waited for together and replaced one by one."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from poolproof.harness.isolation import Died, Finished, Isolation

pytestmark = [
    pytest.mark.skipif(not Isolation.is_available, reason="needs fork()"),
    pytest.mark.usefixtures("no_children"),
]


def remember(context, argument, beacon):
    """Answer how many calls this worker has had, unless it is to end."""
    if argument == "die":
        os._exit(3)
    if argument == "hang":
        while True:
            beacon.bump()
            time.sleep(0.01)
    context.append(argument)
    return len(context), os.getpid()


def all_of(crew, count):
    outcomes = {}
    while len(outcomes) < count:
        outcomes.update(crew.wait())
    return outcomes


def wait_until(condition):
    for _ in range(2000):
        if condition():
            return True
        time.sleep(0.01)
    return False


def test_workers_remember_their_own_calls():
    with Isolation(list) as isolation:
        crew = isolation.crew(remember)
        assert crew.is_fresh(0)
        assert crew.wait() == []
        assert [crew.give(number, "x") for number in (0, 1)] == [True, True]
        first = all_of(crew, 2)
        assert not crew.is_fresh(0)
        assert crew.give(1, "y") is False
        second = all_of(crew, 1)
        crew.close()
    assert [outcome.value[0] for outcome in first.values()] == [1, 1]
    assert len({outcome.value[1] for outcome in first.values()}) == 2
    assert second == {1: Finished((2, first[1].value[1]))}


def test_a_worker_that_dies_is_replaced_by_one_that_knows_nothing():
    with Isolation(list) as isolation:
        crew = isolation.crew(remember)
        crew.give(0, "x")
        all_of(crew, 1)
        crew.give(0, "die")
        assert all_of(crew, 1) == {0: Died(status=3)}
        assert crew.is_fresh(0)
        assert crew.give(0, "x") is True
        assert all_of(crew, 1)[0].value[0] == 1
        crew.close()


def test_a_worker_that_dies_between_two_calls_makes_neither_guilty():
    with Isolation(list) as isolation:
        crew = isolation.crew(remember)
        crew.give(0, "x")
        _, pid = all_of(crew, 1)[0].value
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: crew.is_fresh(0))
        assert crew.give(0, "x") is True
        assert all_of(crew, 1)[0].value[0] == 1
        crew.close()


def test_an_outcome_that_is_known_already_is_not_waited_for():
    with Isolation(list) as isolation:
        crew = isolation.crew(remember)
        crew.give(0, "die")
        # Whoever asks for another worker hears of this one.
        assert wait_until(lambda: crew.is_fresh(1) and crew._busy[0].verdict)
        assert crew.wait() == [(0, Died(status=3))]
        crew.close()


def leave_somebody_behind(context, argument, beacon):
    """End, and leave a process that holds all that this one held, outside its session."""
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    Path(argument).write_text(str(child))
    os._exit(3)


@pytest.mark.parametrize("kind", ["map", "crew"])
def test_what_a_target_leaves_behind_does_not_hold_up_the_outcome(tmp_path, kind):
    path = tmp_path / "pid"
    with Isolation(list) as isolation:
        if kind == "map":
            (outcome,) = isolation.map(leave_somebody_behind, [path])
        else:
            crew = isolation.crew(leave_somebody_behind)
            crew.give(0, path)
            outcome = all_of(crew, 1)[0]
            crew.close()
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(path.read_text()), signal.SIGKILL)
    assert outcome == Died(status=3)


def test_a_wait_ends_when_its_time_is_over():
    with Isolation(list) as isolation:
        crew = isolation.crew(remember)
        crew.give(0, "hang")
        assert crew.wait(timeout_s=0.01) == []
        crew.close()
        assert crew.wait() == []


def test_a_worker_has_one_call_at_a_time():
    with Isolation(list) as isolation:
        crew = isolation.crew(remember)
        crew.give(0, "hang")
        with pytest.raises(AssertionError, match="worker 0 is busy"):
            crew.give(0, "x")
        crew.close()
