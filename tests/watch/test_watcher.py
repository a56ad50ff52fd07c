"""The life of a watch without an engine: files, modes, budget, switch, settings, metrics."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import FULL
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.watch import budget as budgets
from poolproof.watch import watcher as watchers
from poolproof.watch.budget import ReadBudget
from poolproof.watch.digests import Digests
from poolproof.watch.live_memory import LiveMemory
from poolproof.watch.settings import SettingsError, WatchSettings
from poolproof.watch.watcher import Watcher, WatchViolation


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(logging.getLogger("poolproof.watch"), "handlers", [logging.NullHandler()])
    monkeypatch.setattr(watchers.atexit, "register", lambda call: None)


@pytest.fixture
def make(tmp_path):
    made = []

    def build(mode="log", untap=lambda: None, **options):
        digests = Digests(b"key")
        memory = LiveMemory(8, FULL, [2], digests)
        facts = {
            "engine": "toy 1", "scheduler": "toy.Scheduler", "attached": "start", "blocks": 8,
            "groups": [], "left_out": ["group 1 (MambaSpec)"], "tokens_of": lambda found: "tokens",
        }  # fmt: skip
        watcher = Watcher(
            WatchSettings(mode, tmp_path, **options), memory, digests, facts,
            pool=lambda: (3, 4), describe=lambda item: {"step": item}, untap=untap,
        )  # fmt: skip
        made.append(watcher)
        return watcher

    yield build
    for watcher in made:
        watcher.end()


def findings(watcher, number=1):
    """So many wrong reads, each of a request of its own."""
    found = []
    for step in range(number):
        part = ComputedTokens(f"secret-{step}", TokenChain((77, 78, 79)), 2, 1, ((1, 2),), True)
        found += watcher.memory.record(StepRecord(step, (part,)))
        watcher.ring.append(step)
    return found


def read(watcher):
    status = json.loads((watcher.path / "status.json").read_text())
    path = watcher.path / "findings.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return status, [json.loads(line) for line in lines]


def test_a_start_row_and_a_last_row_are_written(make):
    watcher = make()
    assert read(watcher)[0]["state"] == "watching"
    watcher.end()
    status, lines = read(watcher)
    assert (status["format"], status["version"], status["state"]) == ("poolproof-watch", 1, "ended")
    assert (status["left_out"], lines) == (["group 1 (MambaSpec)"], [])
    assert status["pool"] == {"live": 3, "reclaimable": 4, "lost": 0}


def test_a_finding_is_a_line_and_an_incident_without_tokens_or_plain_ids(make):
    watcher = make()
    watcher.report(findings(watcher), ["logged"])
    watcher.end()
    status, (line,) = read(watcher)
    assert (line["number"], line["invariant"], line["action"]) == (1, "DATA", "logged")
    assert (line["position"], line["block"], line["writer"]) == (0, 1, None)
    assert status["violations"] == {"DATA": 1}
    incident = json.loads((watcher.path / "incidents" / "0001" / "incident.json").read_text())
    assert (incident["format"], incident["finding"]) == ("poolproof-incident", line)
    assert (watcher.path / "incidents" / "0001" / "steps.jsonl").read_text() == '{"step": 0}\n'
    for path in watcher.path.rglob("*.json*"):
        assert "secret" not in path.read_text()
        assert "tokens_of" not in path.read_text()
    assert "tokens" not in line


def test_tokens_are_written_only_where_that_is_asked_for(make):
    watcher = make(keeps_tokens=True)
    watcher.report(findings(watcher), ["logged"])
    watcher.end()
    status, (line,) = read(watcher)
    assert (line["tokens"], status["tokens_kept"]) == ("tokens", True)


def test_findings_beyond_the_cap_are_counted(make):
    watcher = make(most_findings=3)
    watcher.report(findings(watcher, 5), ["logged"] * 5)
    watcher.end()
    status, lines = read(watcher)
    assert [line["number"] for line in lines] == [1, 2, 3]
    assert status["findings"] == {"written": 3, "dropped": 2}
    assert status["violations"] == {"DATA": 5}


def test_the_mode_raise_raises_through_the_switch(make):
    watcher = make("raise")
    with pytest.raises(WatchViolation, match="reads at position 0"):
        watcher.guarded(watcher.report, findings(watcher), ["raised"])
    assert watcher.is_on


def test_an_exception_switches_it_off_once_and_is_written(make):
    untapped = []
    watcher = make(untap=lambda: untapped.append("taps"))
    assert watcher.guarded(lambda: 1 / 0) is None
    assert watcher.guarded(lambda: pytest.fail("called")) is None
    watcher.end()
    status, _ = read(watcher)
    assert (untapped, watcher.is_on, watcher.memory) == (["taps"], False, None)
    assert (status["state"], status["reason"]) == ("off", "ZeroDivisionError: division by zero")


def test_two_watches_never_share_a_folder(make):
    assert make().path != make().path


def test_a_folder_that_cannot_be_written_is_told_once_and_the_watch_goes_on(
    make, tmp_path, monkeypatch
):
    told = []
    monkeypatch.setattr(watchers, "say", lambda level, text, error=None: told.append(text))
    (tmp_path / "file").write_text("")
    watcher = make()
    watcher._folder.path = tmp_path / "file" / "below"
    watcher.report(findings(watcher, 2), ["logged"] * 2)
    watcher.end()
    assert len([text for text in told if text.startswith("cannot write")]) == 1
    assert len(watcher.findings) == 2


def test_beyond_the_budget_less_is_compared_and_below_it_everything_again(monkeypatch):
    now = [0]
    monkeypatch.setattr(budgets.time, "perf_counter_ns", lambda: now[0])
    budget, said = ReadBudget(0.02), []

    def steps(number, spent_ns):
        for _ in range(number):
            now[0] += 1_000_000
            budget.spend(spent_ns)
            said.append(budget.step())

    steps(200, 100_000)
    assert (budget.stride, round(budget.share, 3)) == (8, 0.1)
    steps(400, 1_000)
    assert budget.stride == 1
    assert [text.split(":")[1] for text in said if text] == [
        " reads at admissions are sampled, writes and frees still checked",
        " every read is compared again",
    ]


def test_settings_are_read_from_the_environment(tmp_path):
    assert WatchSettings.from_environment({}) is None
    assert WatchSettings.from_environment({"POOLPROOF_WATCH": "off"}) is None
    values = {"POOLPROOF_WATCH": "log", "POOLPROOF_WATCH_BUDGET": "5", "POOLPROOF_WATCH_KEY": "k"}
    settings = WatchSettings.from_environment(values)
    assert (settings.mode, settings.budget, settings.key) == ("log", 0.05, b"k")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"POOLPROOF_WATCH": "yes"}, "POOLPROOF_WATCH='yes' is no mode"),
        ({"POOLPROOF_WATCH": "log", "POOLPROOF_WATCH_BUDGET": "x"}, "must be a number from 0 on"),
        ({"POOLPROOF_WATCH": "log", "POOLPROOF_WATCH_EVERY": "-1"}, "must be a number from 0 on"),
    ],
)
def test_a_setting_that_means_nothing_is_named(values, words):
    with pytest.raises(SettingsError, match=words):
        WatchSettings.from_environment(values)


def test_the_plugin_imports_nothing_where_the_watch_is_off():
    code = (
        "import sys\n"
        "from poolproof.targets.vllm_plugin import register\n"
        "register()\n"
        "print([m for m in sys.modules if m.startswith('vllm') or 'poolproof.watch' in m])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"POOLPROOF_WATCH": ""},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_equal_prefixes_have_equal_digests_under_one_key_and_others_under_another():
    first, second, other = Digests(b"a"), Digests(b"a"), Digests(b"b")
    assert first.root("x", 1) == second.root("x", 1) != other.root("x", 1)
    assert first.shown(5) == second.shown(5) != other.shown(5)
    assert first.name("r") != first.root("r")


@pytest.mark.parametrize("stream", ["closed", "broken"])
def test_a_standard_error_that_nobody_reads_ends_neither_engine_nor_watch(
    make, monkeypatch, tmp_path, stream
):
    file = (tmp_path / "stderr").open("w", encoding="utf-8")
    if stream == "closed":
        file.close()
    else:
        monkeypatch.setattr(
            logging.StreamHandler, "flush", lambda self: (_ for _ in ()).throw(BrokenPipeError)
        )
    logger = logging.getLogger("poolproof.watch")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(file)])
    monkeypatch.setattr("sys.stderr", file)
    watcher = make()
    watcher.guarded(watcher.report, findings(watcher), ["logged"])
    assert watcher.is_on
    watcher.end()
    assert (watcher.path / "findings.jsonl").exists()
    monkeypatch.setattr(logger, "handlers", [logging.NullHandler()])
    file.close()
