"""Executors without isolation: in this process, and in the worker that a job is in already."""

import sys

import pytest

from poolproof.harness.isolation import (
    Died,
    Failed,
    Finished,
    ImporterError,
    InProcess,
    InWorker,
)


def add(context, argument, beacon):
    beacon.bump()
    return context + argument


def test_jobs_run_in_this_process_on_what_prepare_returned():
    with InProcess(lambda: 10) as isolation:
        assert list(isolation.map(add, [1, 2])) == [Finished(11), Finished(12)]
        assert list(isolation.as_completed(add, [1])) == [(0, Finished(11))]
        assert isolation.serve(add, call_timeout_s=1.0)(5) == Finished(15)


def leave(context, argument, beacon):
    beacon.mark(3)
    sys.exit(argument)


def test_an_exit_is_a_death_and_not_ours():
    with InProcess(dict) as isolation:
        assert list(isolation.map(leave, [4])) == [Died(status=4, progress=1, mark=3)]


def test_an_exception_of_the_job_is_a_failure():
    with InProcess(lambda: 10) as isolation:
        (outcome,) = isolation.map(add, ["text"])
    assert isinstance(outcome, Failed)
    assert outcome.exception_type == "TypeError"


def test_an_import_that_raises_is_told_as_from_a_child():
    with pytest.raises(ImporterError) as caught, InProcess(lambda: 1 // 0):
        pass
    assert str(caught.value).startswith("importing the target raised ZeroDivisionError: ")


def test_it_says_that_nothing_is_limited():
    assert InProcess(dict).statement == "in Poolproof's own process, no limits"


def double_in_this_worker(context, argument, beacon):
    worker, before = InWorker(context, beacon), beacon.progress
    with worker.serve(add) as call:
        outcomes = [*worker.map(add, [argument, argument]), call(argument)]
    return outcomes, beacon.progress - before


def test_jobs_in_the_worker_of_a_job_run_on_its_context_under_its_beacon():
    with InProcess(lambda: 10) as isolation:
        (outcome,) = isolation.map(double_in_this_worker, [1])
    assert outcome == Finished(([Finished(11)] * 3, 6))


def fail_in_this_worker(context, argument, beacon):
    return list(InWorker(context, beacon).map(add, [argument]))


def test_what_a_job_raises_in_the_worker_of_another_ends_that_one():
    with InProcess(lambda: 10) as isolation:
        (outcome,) = isolation.map(fail_in_this_worker, ["text"])
    assert isinstance(outcome, Failed)
    assert outcome.exception_type == "TypeError"
