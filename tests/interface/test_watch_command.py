"""`poolproof watch`: what a folder or a stream of events says, and what is said of neither."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from poolproof.cli.command_line import main
from poolproof.cli.watched_events import Listener
from poolproof.contract.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from poolproof.targets.event_endpoint import EndpointError


@pytest.fixture
def poolproof(runner):
    """A command: its exit status, its standard output, its standard error."""

    def run(*arguments):
        done = runner.invoke(main, list(map(str, arguments)))
        return done.exit_code, done.stdout, done.stderr

    return run


@pytest.fixture
def status(tmp_path):
    """Writes the status of an engine core, by default one that has just written it."""

    def write(name="core-1", **fields):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        value = {
            "format": "poolproof-watch", "version": 1, "state": "watching", "reason": None,
            "pid": os.getpid(), "written": datetime.now(timezone.utc).isoformat(),
            "line": "watching: 1204 steps", "violations": {},
            "findings": {"written": 0, "dropped": 0},
            **fields,
        }  # fmt: skip
        (folder / "status.json").write_text(json.dumps(value))
        return folder

    return write


def test_a_watch_without_findings_is_a_row_and_status_0(poolproof, tmp_path, status):
    status()
    assert poolproof("watch", "--dir", tmp_path) == (0, "core-1: watching: 1204 steps\n", "")


def test_the_folder_of_one_engine_core_can_be_given_as_well(poolproof, status):
    assert poolproof("watch", "--dir", status())[0] == 0


def test_findings_are_told_and_status_is_1(poolproof, tmp_path, status):
    folder = status(violations={"DATA": 2}, findings={"written": 1, "dropped": 1})
    lines = ['{"invariant": "DATA", "sentence": "step 3: x"}', "no json", '{"cut": ']
    (folder / "findings.jsonl").write_text("\n".join(lines))
    code, out, _ = poolproof("watch", "--dir", tmp_path)
    assert code == 1
    assert out.splitlines() == [
        "core-1: DATA: step 3: x",
        "core-1: a finding that cannot be read: b'no json\\n'",
        "core-1: watching: 1204 steps; 1 findings beyond the cap",
    ]


def test_an_engine_that_is_gone_is_said_to_be_dead(poolproof, tmp_path, status):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    status(pid=gone.pid)
    code, out, _ = poolproof("watch", "--dir", tmp_path)
    assert (code, "core-1: dead: its process is gone" in out) == (2, True)


def test_an_engine_that_writes_nothing_is_said_to_be_silent(poolproof, tmp_path, status):
    status(written=(datetime.now(timezone.utc) - timedelta(minutes=1)).isoformat())
    code, out, _ = poolproof("watch", "--dir", tmp_path)
    assert (code, "silent for 6" in out) == (2, True)
    assert poolproof("watch", "--dir", tmp_path, "--silent-after", 3600)[0] == 0


def test_a_watch_that_is_off_says_why_and_one_that_has_ended_is_no_trouble(
    poolproof, tmp_path, status
):
    status(state="off", reason="KeyError in groups")
    code, out, _ = poolproof("watch", "--dir", tmp_path)
    assert (code, "the watch is off, the engine goes on: KeyError in groups" in out) == (2, True)
    status(state="ended", pid=1)
    assert poolproof("watch", "--dir", tmp_path)[0] == 0


def test_following_tells_what_is_added_and_ends_when_interrupted(
    poolproof, tmp_path, status, monkeypatch
):
    folder = status()
    ticks = []

    def tick(_s):
        ticks.append(1)
        if len(ticks) > 2:
            raise KeyboardInterrupt
        with (folder / "findings.jsonl").open("a") as file:
            file.write(json.dumps({"invariant": "I2", "sentence": f"tick {len(ticks)}"}) + "\n")

    monkeypatch.setattr("poolproof.cli.watched_folder.time.sleep", tick)
    code, out, _ = poolproof("watch", "--dir", tmp_path, "--follow")
    assert code == 1
    assert out.splitlines() == [
        "core-1: watching: 1204 steps", "core-1: I2: tick 1", "core-1: I2: tick 2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no json", "it is not JSON"),
        ("{}", 'it lacks "format"'),
        (
            '{"format": "poolproof-watch", "version": 2}',
            "has version 2, this Poolproof reads up to",
        ),
    ],
)
def test_a_status_that_cannot_be_read_is_one_line(poolproof, tmp_path, text, words):
    (tmp_path / "status.json").write_text(text)
    code, out, err = poolproof("watch", "--dir", tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_folder_where_no_watch_writes_is_one_line(poolproof, tmp_path):
    for folder in (tmp_path, tmp_path / "none"):
        code, _, err = poolproof("watch", "--dir", folder)
        assert (code, err.count("\n"), "no watch writes in" in err) == (2, 1, True)


def test_one_of_dir_and_events_is_asked_for(poolproof, tmp_path):
    assert poolproof("watch")[0] == 2
    assert poolproof("watch", "--dir", tmp_path, "--events", "tcp://a:1")[0] == 2


class Wire:
    """An endpoint that has some batches, and others to be asked for again."""

    address = "tcp://engine:5557"

    def __init__(self, kept=(), *, broken=False):
        self.kept = list(kept)
        self.broken = broken
        self.asked = []
        self.replay_address = "tcp://engine:5558" if kept or broken else None

    def replay(self, first, _timeout_s):
        self.asked.append(first)
        if self.broken:
            raise EndpointError("tcp://engine:5558 did not answer within 2 s")
        yield from self.kept


ROOT = BlockStored((1,), None, (5, 6), 2)
CHILD = BlockStored((2,), 1, (7, 8), 2)


def heard(wire, *batches):
    listener = Listener(wire)
    for batch in batches:
        listener.hear(batch)
    return listener


def test_a_stream_that_is_right_is_told_as_such(capsys):
    listener = heard(Wire(), EventBatch(0, (ROOT, CHILD)), EventBatch(1, (BlockRemoved((2,)),)))
    assert listener.status == 0
    assert listener.summary() == [
        "tcp://engine:5557: 1 block resident; 2 batches, 2 stored, 1 removed",
        "nothing was told that cannot be",
    ]
    assert listener.to_json()["ranks"]["0"]["certain"] is True
    assert capsys.readouterr().out == ""


def test_what_cannot_be_is_printed_and_counted(capsys):
    listener = heard(Wire(), EventBatch(0, (ROOT, BlockRemoved((9,)))))
    assert (listener.status, listener.summary()[-1]) == (1, "1 found: removed 1")
    assert "removes block 9 from GPU, which is not stored there" in capsys.readouterr().out


def test_a_gap_is_filled_from_the_replay_endpoint(capsys):
    wire = Wire([EventBatch(0, (ROOT,)), EventBatch(1, (CHILD,)), EventBatch(2, ())])
    listener = heard(wire, EventBatch(0, (ROOT,)), EventBatch(2, (BlockRemoved((2,)),)))
    assert (wire.asked, listener.status) == ([1], 0)
    assert listener.views[0].counts.lost == 0
    assert listener.views[0].is_certain
    assert capsys.readouterr().err == ""


def test_who_comes_late_is_told_the_beginning_where_it_is_still_kept():
    listener = heard(Wire([EventBatch(0, (ROOT,))]), EventBatch(1, (CHILD,)))
    assert (listener.views[0].is_certain, listener.status) == (True, 0)


def test_a_gap_that_cannot_be_filled_is_said_and_excuses(capsys):
    listener = heard(Wire(), EventBatch(0, ()), EventBatch(3, (BlockRemoved((9,)),)))
    assert "2 batches before 3 were lost" in capsys.readouterr().err
    assert listener.status == 0


def test_a_replay_endpoint_that_does_not_answer_is_asked_once(capsys):
    wire = Wire(broken=True)
    heard(wire, EventBatch(0, ()), EventBatch(2, ()), EventBatch(4, ()))
    assert wire.asked == [1]
    assert "did not answer within 2 s; it is not asked again" in capsys.readouterr().err


def test_a_restart_is_said_and_what_came_before_is_gone(capsys):
    batches = [EventBatch(0, (ROOT,)), EventBatch(1, (AllBlocksCleared(), ROOT)), EventBatch(0, ())]
    listener = heard(Wire(), *batches)
    assert "has restarted: its batches count from 0 again" in capsys.readouterr().err
    assert (listener.views[0].num_resident, listener.views[0].counts.restarts) == (0, 1)


def test_ranks_have_views_of_their_own():
    listener = heard(Wire(), EventBatch(0, (ROOT,)), EventBatch(0, (ROOT,), rank=1))
    assert [view.name for view in listener.views.values()] == [
        "tcp://engine:5557", "tcp://engine:5557 rank 1",
    ]  # fmt: skip
    assert listener.status == 0


def test_nothing_heard_is_status_2():
    listener = Listener(Wire())
    assert listener.status == 2
    assert listener.summary() == [
        "nothing was heard at tcp://engine:5557: is it an engine's endpoint?"
    ]
