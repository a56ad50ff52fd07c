"""Progress: a bar on a terminal, plain lines elsewhere."""

import io
import re
from dataclasses import replace

import pytest

from poolproof.certification import driving
from poolproof.certification.certify import certify
from poolproof.certification.depths import BUDGETS, Bounds, Sequences
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import PlainProgress, TerminalProgress, progress_to
from poolproof.harness.engine_production import EngineSizes
from poolproof.harness.manager_production import ManagerSizes
from poolproof.harness.production import ProductionSizes
from poolproof.stateful_tests import settings
from poolproof.targets.load import load_target


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_plain_progress_names_each_stage_on_a_line():
    stream = io.StringIO()
    progress = PlainProgress(stream, interval_s=1000)
    progress.begin("queue", 10)
    progress.advance(10)
    progress.end()
    assert stream.getvalue() == "queue ...\n"


def test_plain_progress_says_how_far_it_is_when_the_interval_is_over():
    stream = io.StringIO()
    progress = PlainProgress(stream, interval_s=0)
    progress.begin("pool", 2000)
    progress.advance(1500)
    assert stream.getvalue().splitlines()[-1] == "pool: 1,500 of 2,000 steps"


def test_plain_progress_without_a_total_counts_alone():
    stream = io.StringIO()
    progress = PlainProgress(stream, interval_s=0)
    progress.begin("pool")
    progress.advance(1500)
    assert stream.getvalue().splitlines()[-1] == "pool: 1,500 steps"


def test_what_is_counted_is_named():
    stream = io.StringIO()
    progress = PlainProgress(stream, interval_s=0)
    progress.begin("pool", 4, "runs")
    progress.advance(3)
    progress.begin("queue")
    progress.advance(3)
    told = stream.getvalue().splitlines()
    assert told == ["pool ...", "pool: 3 of 4 runs", "queue ...", "queue: 3 steps"]


def test_a_bar_names_what_is_counted():
    stream = Terminal()
    with progress_to(stream) as progress:
        progress.begin("pool", 4, "runs")
        progress.advance(3)
    assert "3/4 runs" in re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue())


class Counted:
    """Notes of each stage its total and how much was done."""

    def __init__(self):
        self.stages = []

    def begin(self, stage, total=None, unit="steps"):
        self.stages.append([stage, total, 0])

    def advance(self, number):
        self.stages[-1][2] += number

    def end(self):
        pass

    def say(self, text):
        pass


@pytest.fixture
def _small_budget(monkeypatch):
    small = replace(
        BUDGETS["quick"],
        pool_chunks=2, chain_chunks=2, queue_chunks=2, manager_chunks=2, engine_chunks=2,
        scopes=(Bounds(2),),
        sequences=(Sequences(2),),
        queue_blocks=3,
        production=ProductionSizes(5, 1, 300, 200, 20, wide_runs=2),
        manager_production=ManagerSizes(num_blocks=200, num_prompts=20, num_commands=300, every=8),
        engine_production=EngineSizes(num_blocks=50, num_requests=20, num_commands=300, every=8),
    )  # fmt: skip
    monkeypatch.setitem(BUDGETS, "quick", small)
    monkeypatch.setitem(settings.EXAMPLES, "quick", 4)
    monkeypatch.setattr(driving, "RUNS_PER_CHUNK", 20)


@pytest.mark.some(1)
@pytest.mark.usefixtures("_small_budget")
@pytest.mark.parametrize("target", ["impl", "impl-manager", "impl-engine"])
def test_a_stage_that_says_how_much_it_is_does_just_that(target):
    counted = Counted()
    layouts = {"impl-manager": ("full",), "impl-engine": ("fcfs",)}.get(target, ())
    options = CertifyOptions(depth="quick", workers=1, in_process=True, layouts=layouts)
    found = certify(lambda: load_target(target), options, counted)
    assert not found.findings
    told = [(stage, total, done) for stage, total, done in counted.stages if total is not None]
    assert any("plain driver" in stage for stage, _, _ in told)
    assert any("production" in stage for stage, _, _ in told)
    assert [stage for stage in told if stage[1] != stage[2]] == []


def test_a_file_gets_plain_lines():
    with progress_to(io.StringIO()) as progress:
        assert isinstance(progress, PlainProgress)


def test_a_terminal_gets_a_bar_that_goes():
    with progress_to(Terminal()) as progress:
        assert isinstance(progress, TerminalProgress)
        progress.begin("pool", 10)
        progress.advance(5)
        progress.say("seen f-1")
        progress.end()
