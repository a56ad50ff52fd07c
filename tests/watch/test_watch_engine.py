"""The watch in an engine of this process: what it finds and refuses, and that it cannot hurt."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace

import pytest

import poolproof
from poolproof.contract.errors import OptionError
from poolproof.contract.target import TargetError
from poolproof.watch.watcher import WatchViolation

SIZE = 2


class Scheduler:
    """In nano-vLLM's shape: a whole prompt, then a token a step; blocks in the order of return."""

    def __init__(self, num_blocks=4):
        self.block_manager = SimpleNamespace(
            blocks=[None] * num_blocks, block_size=SIZE, free_block_ids=deque(range(num_blocks))
        )
        self.waiting, self.running = deque(), []

    def add(self, *tokens, cached=(), number_of_new=2):
        self.waiting.append(
            SimpleNamespace(
                seq_id=len(self.waiting) + len(self.running), token_ids=list(tokens),
                num_cached_tokens=len(cached) * SIZE, block_table=list(cached),
                is_finished=False, left=number_of_new,
            )
        )  # fmt: skip
        return self.waiting[-1]

    def is_finished(self):
        return not self.waiting and not self.running

    def schedule(self):
        is_prefill = bool(self.waiting)
        if is_prefill:
            self.running.append(self.waiting.popleft())
        step = self.running[-1:] if is_prefill else list(self.running)
        for sequence in step:
            while len(sequence.block_table) * SIZE < len(sequence.token_ids):
                sequence.block_table.append(self.block_manager.free_block_ids.popleft())
        return step, is_prefill

    def postprocess(self, sequences, tokens, is_prefill):
        for sequence, token in zip(sequences, tokens, strict=True):
            sequence.token_ids.append(token)
            sequence.left -= 1
            if not sequence.left:
                sequence.is_finished = True
                self.running.remove(sequence)
                self.block_manager.free_block_ids.extend(sequence.block_table)

    def step(self):
        sequences, is_prefill = self.schedule()
        self.postprocess(sequences, [7] * len(sequences), is_prefill)


@pytest.fixture
def scheduler():
    return Scheduler()


@pytest.fixture
def watch(tmp_path):
    attached = []

    def attach(engine, **options):
        attached.append(poolproof.watch_engine(engine, folder=tmp_path, **options))
        return attached[-1]

    yield attach
    for watcher in attached:
        watcher.end()


def found(watcher):
    return [finding.invariant for finding in watcher.findings]


def test_a_right_loop_holds_and_is_counted(scheduler, watch):
    watcher = watch(scheduler)
    scheduler.add(1, 2, 3)
    scheduler.add(4)
    while not scheduler.is_finished():
        scheduler.step()
    assert (found(watcher), watcher.is_on) == ([], True)
    assert (watcher.counts.steps, watcher.counts.admissions, watcher.counts.quiescent) == (3, 2, 1)


def test_a_hit_on_what_another_request_computed_is_named(scheduler, watch):
    watcher = watch(scheduler)
    first = scheduler.add(1, 2, number_of_new=9)
    scheduler.step()
    scheduler.add(5, 6, 8, cached=first.block_table[:1])
    scheduler.step()
    assert found(watcher) == ["DATA"]
    assert "request" in watcher.findings[0].sentence


def test_a_table_that_changes_in_the_middle_is_read_again(scheduler, watch):
    watcher = watch(scheduler)
    sequence = scheduler.add(1, 2, 3, 4, number_of_new=9)
    scheduler.step()
    sequence.block_table.reverse()
    scheduler.step()
    assert found(watcher) == ["DATA"]


def test_blocks_that_nobody_gave_back_are_lost_once_nobody_runs(scheduler, watch):
    watcher = watch(scheduler)
    scheduler.add(1)
    scheduler.block_manager.free_block_ids.pop()
    while not scheduler.is_finished():
        scheduler.step()
    assert found(watcher) == ["LEAK"]
    assert watcher.lost == 1


def test_what_ran_before_the_watch_is_unknown_and_not_wrong(scheduler, watch):
    sequence = scheduler.add(1, 2, 3, number_of_new=9)
    scheduler.step()
    watcher = watch(scheduler)
    scheduler.step()
    scheduler.add(1, 2, 9, cached=sequence.block_table[:1])
    scheduler.step()
    assert (found(watcher), watcher.counts.unknown_reads > 0) == ([], True)


def test_raise_ends_the_step_that_reads_wrong_data(scheduler, watch):
    watch(scheduler, mode="raise")
    scheduler.add(5, 6, 8, cached=[3])
    with pytest.raises(WatchViolation, match="nobody has computed"):
        scheduler.step()


def test_a_loop_that_answers_something_else_switches_the_watch_off_and_goes_on(scheduler, watch):
    plain = scheduler.schedule
    scheduler.schedule = lambda: (*plain(), "more")
    before = scheduler.schedule
    watcher = watch(scheduler)
    scheduler.add(1)
    assert len(scheduler.schedule()) == 3
    assert not watcher.is_on
    assert scheduler.schedule is before


def test_quarantine_is_said_to_be_left_out(scheduler, watch):
    watcher = watch(scheduler, mode="quarantine")
    assert "quarantine: what is found is logged" in watcher.status()["left_out"]


@pytest.mark.parametrize(
    ("engine", "options", "error", "says"),
    [
        (object(), {}, TargetError, "object is no engine that the watch knows"),
        (SimpleNamespace(block_manager=None), {}, TargetError, "lacks schedule, postprocess"),
        (Scheduler(), {"mode": "shout"}, OptionError, "is no mode"),
        (Scheduler(), {"mode": "off"}, OptionError, "mode must be log, raise or quarantine"),
    ],
)
def test_what_cannot_be_watched_is_said(watch, engine, options, error, says):
    with pytest.raises(error, match=says):
        watch(engine, **options)
