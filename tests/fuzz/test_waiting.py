"""Failing runs that wait to be minimised: they count, are named, and no work on them is lost."""

from contextlib import suppress
from dataclasses import replace

import pytest

from poolproof.fuzz import coordinator
from poolproof.fuzz.coordinator import (
    EXAMINED_AT_ONCE_S,
    SHARE_TO_MINIMISE,
    Campaign,
    CampaignBudget,
)
from poolproof.fuzz.findings import kind_of
from poolproof.fuzz.folder import CampaignFolder, read_findings, read_pending, read_status
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.workers import InProcessWorkers
from poolproof.harness.isolation import InProcess
from poolproof.harness.minimise import Effort, execute_in_process, improved
from poolproof.targets.load import load_target

SIXTY = CampaignSettings("tests/fuzz/planted.py:WrongFromTheSixtieth", "pool", 8)
PLANTED = CampaignSettings("tests/fuzz/planted.py:TouchesTwice", "pool", 6)
RIGHT = CampaignSettings("impl", "pool", 4)


class Clock:
    """Stands still but when it is moved."""

    def __init__(self):
        self.now = 1_000.0

    def monotonic(self):
        return self.now


class Slices:
    """Examines by so many attempts at a time, for as long as the clock was to go on."""

    def __init__(self, target, clock, attempts=5, most_slices=10**9, end=KeyboardInterrupt):
        self.execute = execute_in_process(target.make)
        self.clock = clock
        self.attempts = attempts
        self.left = most_slices
        self.end = end
        self.begun = []

    def culprit(self, tape, lost):
        raise AssertionError("no worker is lost in process")

    def still_fails(self, trace):
        return True

    def examined(self, so_far, seconds):
        if not self.left:
            raise self.end
        self.left -= 1
        self.begun.append(so_far)
        self.clock.now += seconds
        tried = []
        go_on = lambda: tried.append(1) or len(tried) < self.attempts  # noqa: E731 -- short
        progress = improved(so_far.progress, self.execute, Effort(), go_on)
        return replace(so_far, progress=progress, is_done=progress.cursor.is_finished)


@pytest.fixture(name="clock")
def clock_(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(coordinator, "time", clock)
    monkeypatch.setattr(coordinator, "ROUND_SECONDS", 0.02)
    return clock


def session(settings, folder, examiner, budget, **options):
    """One session in this process: the last status, and what was said."""
    said = []
    with InProcess(lambda: load_target(settings.target)) as isolation:
        status = Campaign(
            settings,
            InProcessWorkers(isolation),
            folder,
            examiner,
            budget=budget,
            scope="test",
            num_possible=None,
            show=lambda _: None,
            say=said.append,
            **options,
        ).run()
    return status, said


def slices_of(settings, clock, **options):
    return Slices(load_target(settings.target), clock, **options)


def test_an_interruption_while_a_failing_run_waits_is_no_clean_end(tmp_path, clock):
    with CampaignFolder(tmp_path, PLANTED) as folder:
        examiner = slices_of(PLANTED, clock, most_slices=0)
        status, said = session(PLANTED, folder, examiner, CampaignBudget(steps=2_000))
    assert said == []
    assert status.activity == "interrupted"
    assert status.num_pending == len(status.waiting) > 0
    assert status.exit_status == 1
    assert read_status(tmp_path)[1].waiting == status.waiting
    assert [pending.label for pending in read_pending(tmp_path)]


def test_an_interruption_of_what_holds_concludes_nothing(clock):
    class Interrupts(InProcessWorkers):
        rounds = 0

        def wait(self, timeout_s):
            self.rounds += 1
            if self.rounds > 2:
                raise KeyboardInterrupt
            return super().wait(timeout_s)

    with CampaignFolder(None, RIGHT) as folder, InProcess(lambda: load_target("impl")) as isolation:
        status = Campaign(
            RIGHT,
            Interrupts(isolation),
            folder,
            slices_of(RIGHT, clock),
            budget=CampaignBudget(seconds=1e6),
            scope="test",
            num_possible=None,
            show=lambda _: None,
            say=lambda _: None,
        ).run()
    assert status.num_steps > 0
    assert not status.is_broken
    assert status.exit_status == 2


def test_the_time_of_a_session_bounds_minimising(clock):
    """Each slice is five attempts, and the bug takes hundreds."""
    began = clock.now
    with CampaignFolder(None, SIXTY) as folder:
        examiner = slices_of(SIXTY, clock)
        status, said = session(SIXTY, folder, examiner, CampaignBudget(seconds=4.0, steps=2_000))
    assert clock.now - began == pytest.approx(4.0)
    assert len(examiner.begun) == pytest.approx(4.0 / EXAMINED_AT_ONCE_S, abs=1)
    assert said == []
    assert status.exit_status == 1
    shortest = min(line.num_commands for line in status.waiting)
    assert shortest < len(examiner.begun[0].trace.commands)


def test_failing_runs_get_a_share_of_the_time(clock):
    """Driving ends early where something waits; then its time goes to what waits."""
    began, ends = clock.now, []

    class Looks(InProcessWorkers):
        def give(self, worker, order):
            ends.append(clock.now)
            super().give(worker, order)

    with (
        CampaignFolder(None, SIXTY) as folder,
        InProcess(lambda: load_target(SIXTY.target)) as isolation,
    ):
        Campaign(
            SIXTY,
            Looks(isolation),
            folder,
            slices_of(SIXTY, clock, attempts=1),
            budget=CampaignBudget(seconds=8.0),
            scope="test",
            num_possible=None,
            show=lambda _: None,
            say=lambda _: None,
        ).run()
    assert max(ends) - began <= 8.0 * (1 - SHARE_TO_MINIMISE) + EXAMINED_AT_ONCE_S
    assert clock.now - began == pytest.approx(8.0)


def test_a_killed_campaign_goes_on_minimising_where_it_was(tmp_path, clock):
    """A kill at any slice: what the next session begins with is what the last one reached."""
    lengths, reached = [], 0
    for _ in range(4):
        examiner = slices_of(SIXTY, clock, most_slices=4, end=SystemExit)
        with CampaignFolder(tmp_path, SIXTY) as folder, pytest.raises(SystemExit):
            session(SIXTY, folder, examiner, CampaignBudget(steps=1_500))
        first = examiner.begun[0].progress
        assert first.cursor.attempts >= reached
        kept = [each.examination for each in read_pending(tmp_path) if each.examination]
        reached = max(each.progress.cursor.attempts for each in kept)
        assert reached > first.cursor.attempts
        lengths.append(min(len(each.trace.commands) for each in kept))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0]


def test_what_became_minimal_is_no_longer_kept_as_begun(tmp_path, clock):
    with CampaignFolder(tmp_path, PLANTED) as folder:
        _, said = session(PLANTED, folder, slices_of(PLANTED, clock), CampaignBudget(steps=1_500))
        rows = folder._database.execute("SELECT COUNT(*) FROM examinations").fetchone()[0]
    assert said
    assert rows == 0
    assert read_pending(tmp_path) == []


@pytest.mark.deep
def test_a_kind_that_is_not_known_comes_before_more_of_one_that_is(tmp_path, clock):
    several = CampaignSettings("tests/fuzz/planted.py:ManyBugs", "pool", 6)
    with CampaignFolder(tmp_path, several) as folder:
        examiner = slices_of(several, clock, attempts=1, most_slices=20)
        session(several, folder, examiner, CampaignBudget(steps=20_000))
        num_kinds = len({kind_of(pending.trace) for pending in folder.pending()})
        # With so many attempts each slice ends one.
        examiner = slices_of(several, clock, attempts=10_000, most_slices=num_kinds)
        session(several, folder, examiner, CampaignBudget(steps=1))
    examined = [kind_of(so_far.trace) for so_far in examiner.begun]
    assert len(examined) == num_kinds > 1
    assert len(set(examined)) == num_kinds


def test_a_search_that_never_ends_is_given_up(tmp_path, clock):
    """It goes in one piece, so that each kill would begin it anew."""

    class Searches(Slices):
        def examined(self, so_far, seconds):
            if so_far.is_minimised and so_far.num_searches <= 2:
                raise SystemExit
            if so_far.is_minimised:
                return replace(so_far, is_done=True)
            return replace(super().examined(so_far, seconds), is_done=False)

    for _ in range(6):
        examiner = Searches(load_target(PLANTED.target), clock, attempts=10_000)
        with CampaignFolder(tmp_path, PLANTED) as folder, suppress(SystemExit):
            session(PLANTED, folder, examiner, CampaignBudget(steps=500))
    assert read_findings(tmp_path)


def test_a_folder_of_an_older_version_is_read_and_gone_on_with(tmp_path, clock):
    with CampaignFolder(tmp_path, PLANTED) as folder:
        examiner = slices_of(PLANTED, clock, most_slices=0)
        session(PLANTED, folder, examiner, CampaignBudget(steps=1_000))
        folder._database.execute("DROP TABLE examinations")
        folder._set("version", 2)
    assert read_pending(tmp_path)
    with CampaignFolder(tmp_path, PLANTED) as folder:
        _, said = session(PLANTED, folder, slices_of(PLANTED, clock), CampaignBudget(steps=1))
    assert said


def test_a_failing_run_that_has_to_wait_is_named_at_once(tmp_path, clock):
    named = []
    with CampaignFolder(tmp_path, SIXTY) as folder:
        session(
            SIXTY, folder, slices_of(SIXTY, clock, attempts=1),
            CampaignBudget(seconds=4.0, steps=1_000),
            say_waiting=named.append,
        )  # fmt: skip
        kinds = [kind_of(pending.trace) for pending in folder.pending()]
    assert [kind_of(pending.trace) for pending in named] == list(dict.fromkeys(kinds))
