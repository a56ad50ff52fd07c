"""`poolproof diff`: agreement, the first divergence, and what explains it."""

from dataclasses import replace

import pytest

from poolproof.certification import comparison, driving
from poolproof.certification.depths import BUDGETS
from poolproof.cli.command_line import main
from poolproof.contract.trace import read_trace
from poolproof.stateful_tests.settings import EXAMPLES

HEAD = "from poolproof.impl.block_pool import BlockPool\n"
SAME = HEAD + "class Same(BlockPool):\n    pass\n"
BACKWARDS = HEAD + (
    "class Backwards(BlockPool):\n    def free(self, ids):\n        super().free(ids[::-1])\n"
)
KEEPS = HEAD + (
    "class Keeps(BlockPool):\n    def free(self, ids):\n        super().free(ids[1:])\n"
)


@pytest.fixture(autouse=True)
def small_budgets(monkeypatch):
    """Forked workers inherit them; what is compared here differs within a few commands."""
    small = replace(
        BUDGETS["quick"], pool_chunks=1, chain_chunks=1, queue_chunks=1, production=None
    )
    monkeypatch.setitem(BUDGETS, "quick", replace(small, shortest_states=100))
    monkeypatch.setitem(EXAMPLES, "quick", 5)
    monkeypatch.setattr(comparison, "_CHUNKS_ALONE", 1)
    monkeypatch.setattr(driving, "RUNS_PER_CHUNK", 20)


@pytest.fixture
def diff(runner, tmp_path):
    def run(first, second, *options, status):
        names = []
        for text in (first, second):
            if "class" in text:
                path = tmp_path / f"file_{len(names)}.py"
                path.write_text(text)
                text = f"{path}:{text.split('class ')[1].split('(')[0]}"  # noqa: PLW2901 - its name
            names.append(text)
        result = runner.invoke(main, ["diff", *names, *map(str, options)])
        assert result.exit_code == status, result.output
        assert "Traceback" not in result.output
        return result.stdout + result.stderr

    return run


def test_a_subclass_that_changes_nothing_agrees(diff):
    assert "agree in" in diff("impl-queue", "impl-queue", status=0)


@pytest.mark.some(0)
def test_a_subclass_that_frees_backwards_differs_by_profile(diff, tmp_path):
    output = diff(SAME, BACKWARDS, "--report", tmp_path / "out", status=1)
    assert "DIFF: free_order()" in output
    assert "allocate(2)" in output
    assert "does not hold under the one that it declares, but under eviction=" in output
    (path,) = (tmp_path / "out").glob("diff-*.jsonl")
    assert read_trace(path).violation.invariant == "DIFF"


@pytest.mark.some(0)
def test_a_subclass_that_loses_blocks_is_named(diff):
    output = diff(SAME, KEEPS, status=1)
    assert "alone breaks its profile: " in output


@pytest.mark.some(0)
def test_policies_explain_a_difference(diff):
    output = diff("impl-queue", "reference-queue", status=0)
    assert "agree" in output
    output = diff("reference", "reference[eviction=lifo]", status=1)
    assert "these differ in eviction lru against lifo" in output


def test_targets_of_two_levels_cannot_be_compared(diff):
    assert "give two targets of one level" in diff("impl", "impl-queue", status=2)


def test_a_target_that_is_not_there_ends_with_its_error(diff):
    assert "unknown target" in diff("impl", "nothing", status=2)
