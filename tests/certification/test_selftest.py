"""The self-test: both checks of live engines see what is corrupted, and a blind one is told."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from poolproof.certification.selftest import CORRUPTIONS, selftest
from poolproof.cli.command_line import main
from poolproof.watch.live_memory import LiveMemory


@pytest.mark.some(5)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_each_corruption_is_seen_by_watch_and_audit_and_nothing_else_is(name):
    result = selftest(name)
    assert result.holds, result
    assert (result.corrupted_in is None) == (name == "nothing")
    assert (result.audit is None) == (name == "nothing")


def test_a_line_for_each_and_status_0():
    done = CliRunner().invoke(main, ["selftest"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(CORRUPTIONS)
    assert all(line.startswith("ok    ") for line in lines)
    assert lines[0] == "ok    nothing is corrupted: nothing was found in 60 steps"
    assert "a table names a block of another request (step 30): caught in step 30" in lines[1]


def test_a_check_that_is_blind_fails_with_its_name(monkeypatch):
    monkeypatch.setattr(LiveMemory, "record", lambda *_: [])
    done = CliRunner().invoke(main, ["selftest"])
    assert done.exit_code == 1
    assert "FAIL  a table names a block of another request (step 30): NOT caught by watch" in (
        done.stdout
    )
