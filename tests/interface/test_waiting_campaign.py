"""What the command line says of failing runs that wait to be minimised, and with which status."""

import signal
from pathlib import Path

import pytest

from poolproof.certification.fuzz_examiner import TargetExaminer
from poolproof.contract.trace import read_trace
from poolproof.fuzz.findings import Examination
from poolproof.fuzz.folder import read_findings
from poolproof.report.campaign_document import CAMPAIGN
from poolproof.report.campaign_lines import PlainDisplay
from poolproof.report.campaign_record import read_record
from poolproof.report.forms import Form


@pytest.fixture(name="left_waiting")
def left_waiting_(poolproof, buggy, monkeypatch):
    """A campaign that SIGTERM ended while the first failing run was examined."""

    def end(examiner, so_far, seconds):
        assert isinstance(so_far, Examination)
        signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(TargetExaminer, "examined", end)
        return poolproof(
            *("fuzz", buggy, "--blocks", 3, "--steps", 1500, "--in-process"),
            *("--folder", "c", "--report", "page.html", "--quiet"),
        )


def lines_of(text, name):
    return [line for line in text.splitlines() if line.startswith(name)]


def test_a_campaign_that_was_ended_names_what_waits(left_waiting):
    assert left_waiting.exit_code == 1, left_waiting.output
    waiting = lines_of(left_waiting.stdout, "waiting")
    assert "nothing was broken" not in left_waiting.stdout
    assert lines_of(left_waiting.stdout, "verdict")[0].endswith(" to be minimised")
    assert waiting
    assert all("not minimal yet" in line for line in waiting)
    assert f"next       poolproof show {waiting[0].split()[1]}" in left_waiting.stdout


def test_a_failing_run_that_waits_has_its_trace(left_waiting, poolproof):
    name = lines_of(left_waiting.stdout, "waiting")[0].split()[1]
    trace = read_trace(Path(".poolproof", "findings", f"{name}.jsonl"))
    assert trace.violation is not None
    assert poolproof("replay", name).exit_code == 1


def test_the_folder_says_the_same(left_waiting, poolproof):
    shown = poolproof("show", "c")
    assert shown.exit_code == 1
    for name in ("waiting", "verdict"):
        assert lines_of(shown.stdout, name) == lines_of(left_waiting.stdout, name)
    assert "its last session was interrupted" in shown.stdout


def test_the_page_says_the_same(left_waiting, poolproof):
    text = Path("page.html").read_text(encoding="utf-8")
    name = lines_of(left_waiting.stdout, "waiting")[0].split()[1]
    assert 'class="verdict broken bad"' in text
    assert "to be minimised" in text
    assert name in text
    assert "Nothing was broken" not in text
    shown = poolproof("show", "c", "--as", "html", "-o", "again.html")
    assert shown.exit_code == 1
    assert name in Path("again.html").read_text(encoding="utf-8")


def test_the_next_session_minimises_what_waited(left_waiting, poolproof, buggy):
    assert left_waiting.exit_code == 1
    again = poolproof(
        "fuzz", buggy, "--blocks", 3, "--steps", 1, "--in-process", "--folder", "c", "--quiet"
    )
    assert again.exit_code == 1
    assert "wait" not in lines_of(again.stdout, "verdict")[0]
    assert "finding" in lines_of(again.stdout, "verdict")[0]
    assert not read_record(Path("c")).waiting
    left = {path.name[:2] for path in Path(".poolproof", "findings").iterdir()}
    assert left == {"f-"}


@pytest.mark.usefixtures("heeded_signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_ends_a_campaign_of_what_holds_with_its_summary(poolproof, monkeypatch, name):
    shown = []

    def raise_once(display, status):
        del display
        shown.append(status.activity)
        if len(shown) == 1:
            signal.raise_signal(getattr(signal, name))

    monkeypatch.setattr(PlainDisplay, "show", raise_once)
    told = poolproof("fuzz", "impl", "--blocks", 3, "--in-process", "--folder", "c")
    assert told.exit_code == 2, told.output
    assert shown == ["running", "interrupted"]
    assert lines_of(told.stdout, "verdict") == ["verdict    nothing was broken so far"]
    assert poolproof("show", "c").exit_code == 2


def test_a_campaign_that_held_is_shown_with_status_zero(poolproof):
    told = poolproof(
        "fuzz", "impl", "--level", "queue", "--blocks", 3, "--steps", 3000, "--in-process",
        "--folder", "c",
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert poolproof("show", "c").exit_code == 0
    assert "verdict    nothing was broken\n" in poolproof("show", "c").stdout


def test_failing_runs_of_which_nothing_is_left_are_no_clean_end(tmp_path, campaigns, poolproof):
    """As when a campaign is killed while it finds out which command cost a worker."""
    campaigns.write_folder(tmp_path, campaigns.status(activity="done", num_failing_runs=1))
    shown = poolproof("show", tmp_path)
    assert shown.exit_code == 1
    assert "1 failing run, of which no trace was kept" in shown.stdout
    assert "Nothing was broken" not in CAMPAIGN.written(read_record(tmp_path), Form.HTML)


def test_a_finding_of_a_manager_keeps_what_the_manager_showed(poolproof):
    managers = Path(__file__).parents[1] / "certification" / "hostile_managers.py"
    result = poolproof(
        *("fuzz", f"{managers}:ReusesNewestFirst", "--steps", 600, "--in-process"),
        *("--folder", "c", "--quiet"),
    )
    assert result.exit_code == 1, result.output
    findings = read_findings(Path("c"))
    assert findings
    for finding in findings:
        assert len(finding.trace.shown) == len(finding.trace.commands) + 1
