"""Whole power runs on a small pool: what is refused, what survives, and beside its own tests."""

import shlex
import sys
from functools import partial
from pathlib import Path

import pytest

from poolproof.certification.options import CertifyOptions, Limits
from poolproof.certification.progress import SilentProgress
from poolproof.contract.target import TargetError
from poolproof.power.planting import candidates
from poolproof.power.power_document import power_document
from poolproof.power.power_options import PowerOptions
from poolproof.power.power_run import power_run
from poolproof.report.text_form import plain_text
from poolproof.targets.load import load_target

OWN_TESTS = """
import sys
sys.path.insert(0, ".")
from right import Pool
pool = Pool(3)
assert pool.allocate(2) == [0, 1]
assert pool.num_handed_out == 2, "FAILED"
"""


def measured(target, most=None, seed=0, call_timeout_s=10.0, **power):
    limits = Limits(call_timeout_s=call_timeout_s)
    options = CertifyOptions(depth="quick", seed=seed, workers=2, limits=limits)
    asked = PowerOptions(most_mutants=most, **power)
    with power_run(partial(load_target, target), options, asked, SilentProgress()) as run:
        return run.measure(SilentProgress())


@pytest.fixture
def only(monkeypatch):
    """Leaves the mutants of some lines alone, for each mutant costs its seconds."""

    def keep(*befores):
        def chosen(source, places, *, of_size):
            found = candidates(source, places, of_size=of_size)
            return [m for m in found if m.before in befores]

        monkeypatch.setattr("poolproof.power.power_run.candidates", chosen)

    return keep


def refused(report, before):
    """Whether the mutants of a line are refused, by operator."""
    return {
        mutant.mutation.operator: mutant.judged.refused
        for mutant in report.mutants
        if mutant.mutation.before == before
    }


@pytest.mark.some(0)
def test_faults_that_show_are_refused_and_a_counter_that_nobody_reads_is_not(
    right_pool, small_budgets, only
):
    only("self.queue.remove(block)", "self.counts[block] -= 1", "self.num_handed_out += 1")
    report = measured(right_pool)
    assert refused(report, "self.queue.remove(block)") == {"statement deleted": True}
    assert all(refused(report, "self.counts[block] -= 1").values())
    # A loop that ends early is another matter: the counts of the other blocks stay at 0.
    counting = refused(report, "self.num_handed_out += 1")
    assert {name for name, seen in counting.items() if seen} == {"loop left early"}


@pytest.mark.deep
def test_the_scheduler_of_an_engine_is_mutated(right_engine, small_budgets, only):
    only("request.num_left -= 1", "self.free.extend(request.blocks)", "self.num_admitted += 1")
    report = measured(right_engine)
    assert all(refused(report, "request.num_left -= 1").values())
    assert refused(report, "self.free.extend(request.blocks)")["statement deleted"]
    assert not any(refused(report, "self.num_admitted += 1").values())
    assert {mutant.judged.invariant for mutant in report.mutants} >= {"OUT", "LIVE", ""}
    # Nobody visits all states of an engine.
    words = ("state machine, quick", "plain driver, quick")
    assert {stage.partition(", ")[2] for stage in report.stages} == set(words)


def test_a_refused_mutant_says_by_what(right_pool, small_budgets, only):
    only('raise MemoryError("full")')
    (mutant,) = measured(right_pool).mutants
    assert mutant.judged.invariant
    assert mutant.judged.sentence in mutant.finding
    assert mutant.judged.stage == "opaque hashes, plain driver, quick"


@pytest.mark.some(0)
def test_the_report_is_the_same_for_a_seed(right_pool, small_budgets):
    first, again = (measured(right_pool, 3, seed=3) for _ in range(2))
    assert first.to_json() | {"seconds": 0} == again.to_json() | {"seconds": 0}
    assert len(first.mutants) == 3


def test_the_file_of_the_target_is_left_alone(right_pool, small_budgets):
    before = Path("right.py").read_text()
    files = set(Path().iterdir())
    measured(right_pool, 3)
    assert Path("right.py").read_text() == before
    assert {path for path in Path().iterdir() if path.name != "__pycache__"} <= files


@pytest.mark.some(0)
def test_own_tests_stand_beside(right_pool, small_budgets, only):
    only("self.num_handed_out += 1", "self.queue.remove(block)", "self.caching = enable_caching")
    report = measured(right_pool, own_tests=shlex.join([sys.executable, "-c", OWN_TESTS]))
    alone = {m.mutation.before for m in report.where(refused=False, own=True)}
    ours = {m.mutation.before for m in report.where(refused=True, own=False)}
    assert alone == {"self.num_handed_out += 1"}
    assert "self.queue.remove(block)" in ours
    text = plain_text(power_document(report))
    assert "refused by the own tests alone" in text
    assert f"own tests     {report.num_refused_by_own} of {len(report.mutants)}" in text


@pytest.mark.some(0)
def test_own_tests_may_be_run_on_the_first_mutants_alone(right_pool, small_budgets, only):
    only("self.num_handed_out += 1", "self.caching = enable_caching")
    command = shlex.join([sys.executable, "-c", OWN_TESTS])
    report = measured(right_pool, own_tests=command, own_mutants=1)
    assert report.num_judged_by_own == 1
    assert len(report.mutants) > 1
    text = plain_text(power_document(report))
    assert "own tests     1 of 1" in text
    assert "not refused, the own tests not run" in text


LIFO = """
    lifo = False

    def join(self, block):
        if self.lifo:
            self.queue.insert(0, block)
        else:
            self.queue.append(block)


class Lifo(Pool):
    lifo = True
    profile = {**Pool.profile, "eviction": "lifo"}
"""


def test_another_target_judges_what_the_first_lets_pass(right_pool, small_budgets, only):
    text = Path("right.py").read_text().replace("self.queue.append(block)", "self.join(block)")
    Path("right.py").write_text(text + LIFO)
    only("self.queue.insert(0, block)")
    report = measured(right_pool, also=("right.py:Lifo",))
    assert {mutant.judged.refused for mutant in report.mutants} == {True}
    stages = {mutant.judged.stage for mutant in report.mutants}
    assert stages == {"right.py:Lifo: opaque hashes, plain driver, quick"}
    assert "by the plain driver of right.py:Lifo" in plain_text(power_document(report))


def test_another_target_has_to_hold_unmutated(right_pool, small_budgets):
    wrong = "class Wrong(Pool):\n    def num_free(self):\n        return 1\n"
    Path("right.py").write_text(f"{Path('right.py').read_text()}\n\n{wrong}")
    with pytest.raises(TargetError, match=r"right\.py:Wrong: it does not hold unmutated"):
        measured(right_pool, also=("right.py:Wrong",))


@pytest.mark.some(0)
def test_a_run_goes_on_where_it_stopped(right_pool, small_budgets, only, monkeypatch):
    only("self.num_handed_out = 0", "self.queue.remove(block)")
    first = measured(right_pool, results=Path("verdicts.jsonl"))

    def never(*_: object) -> None:
        raise AssertionError("judged twice")

    monkeypatch.setattr("poolproof.power.power_run.judge_mutant", never)
    again = measured(right_pool, results=Path("verdicts.jsonl"))
    assert first.to_json() | {"seconds": 0} == again.to_json() | {"seconds": 0}


def test_the_text_names_file_line_and_both_forms_of_a_survivor(right_pool, small_budgets, only):
    only("self.num_handed_out = 0")
    text = plain_text(power_document(measured(right_pool)))
    line = Path("right.py").read_text().splitlines().index("        self.num_handed_out = 0")
    assert f"right.py:{line + 1}  Pool.__init__, off by one" in text
    assert "- self.num_handed_out = 0" in text
    assert "+ self.num_handed_out = 1" in text


@pytest.mark.some(0)
def test_a_mutant_that_never_returns_is_refused(right_pool, small_budgets, only):
    text = Path("right.py").read_text()
    loop = "while len(taken) < n:\n            taken.append(self.queue.pop(0))"
    text = text.replace(
        "taken = [self.queue.pop(0) for _ in range(n)]", f"taken = []\n        {loop}"
    )
    Path("right.py").write_text(text)
    only("taken.append(self.queue.pop(0))")
    report = measured(right_pool, call_timeout_s=1.0)
    mutants = {m.mutation.operator: m for m in report.mutants}
    assert "did not return within" in mutants["statement deleted"].judged.sentence


def test_a_line_that_no_run_executes_is_told_apart(right_pool, small_budgets, only):
    text = Path("right.py").read_text()
    rare = "if len(self.counts) > 1000:\n            self.num_handed_out = 7\n        return len"
    Path("right.py").write_text(text.replace("return len", rare, 1))
    only("self.num_handed_out = 7")
    report = measured(right_pool)
    assert {mutant.finding for mutant in report.mutants} == {"never executed"}
    assert report.num_never_executed == len(report.mutants)


def test_a_target_that_none_of_the_runs_enters_is_said(right_pool, small_budgets):
    Path("beside.py").write_text("def never():\n    return 1 + 1\n")
    Path("right.py").write_text("import beside\n" + Path("right.py").read_text())
    with pytest.raises(TargetError, match="no run enters a function of beside"):
        measured(right_pool, modules=("beside",))
