"""`poolproof consumer`: a verdict on an index of KV events, as a line and an exit status."""

from __future__ import annotations

import pytest

from poolproof.cli.command_line import main


@pytest.fixture
def poolproof(runner):
    """A command: its exit status, its standard output, its standard error."""

    def run(*arguments):
        done = runner.invoke(main, list(map(str, arguments)))
        return done.exit_code, done.stdout, done.stderr

    return run


def test_our_own_index_holds(poolproof):
    status, out, _ = poolproof("consumer", "--runs", 60)
    assert status == 0
    assert out == (
        "impl holds: 2,400 steps, 16,800 lookups of prefixes on three engines, media GPU\n"
    )


def test_a_planted_mistake_is_told_with_its_steps(poolproof, tmp_path):
    status, out, _ = poolproof("consumer", "poolproof.bugs.consumer_bugs:DeafToClears")
    assert status == 1
    first, *steps = out.splitlines()
    assert first.startswith("not-resident: lookup of [1, 1, 2, 2, 3, 3, 4, 4] says that engine")
    assert "clears its cache" in steps[1]
    assert steps[-1] == "blocks of 2 tokens; found in run 1"


def test_too_few_runs_and_what_is_no_consumer_are_status_2(poolproof, tmp_path):
    status, out, _ = poolproof("consumer", "--runs", 1)
    assert (status, "inconclusive, raise --runs" in out) == (2, True)
    path = tmp_path / "index.py"
    path.write_text("class Index:\n    def apply(self, batch): ...\n")
    status, _, err = poolproof("consumer", f"{path}:Index")
    assert (status, err.count("\n")) == (2, 1)
    assert "Index lacks lookup(), which a consumer of KV events needs" in err
