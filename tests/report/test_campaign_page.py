"""The page and the summary of a campaign, from its folder alone."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path

import pytest

from poolproof.fuzz.folder import CampaignFolder, FolderError
from poolproof.fuzz.merge import CampaignState
from poolproof.report.campaign_document import CAMPAIGN
from poolproof.report.campaign_lines import PlainDisplay
from poolproof.report.campaign_record import CampaignRecord, read_record
from poolproof.report.forms import Form


def campaign_page(record):
    return CAMPAIGN.written(record, Form.HTML)


_VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """Which elements a page has, with attributes and text; every one has to be closed."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.open, self.words = [], [], {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.words.setdefault(self.open[-1], []).append(data)

    def of(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture(name="record")
def record_(campaigns):
    line = campaigns.finding_line()
    status = campaigns.status(findings=(line,), num_states_by_depth={0: 1, 2: 99, 16: 800})
    return CampaignRecord(campaigns.SETTINGS, status, (line,))


@pytest.fixture(name="campaign")
def campaign_(poolproof, buggy):
    """A folder with a tiny campaign against the buggy pool, and what was printed."""
    return poolproof(
        *("fuzz", buggy, "--blocks", 3, "--steps", 1500, "--in-process"),
        *("--folder", "c", "--report", "page.html"),
    )


def test_a_page_needs_no_network_and_no_script(record):
    text = campaign_page(record)
    page = Page(text)
    assert not page.of("script")
    assert not page.of("link")
    for _, attributes in page.elements:
        assert "src" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        assert not re.match(r"\w+:", attributes.get("href", ""))
    assert "url(" not in text
    assert "@import" not in text


def test_each_chart_has_a_title_a_description_and_its_numbers(record):
    page = Page(campaign_page(record))
    charts = page.of("svg")
    assert len(charts) == len(page.of("figure")) == len(page.of("details")) == 6
    names = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    for chart in charts:
        assert chart["role"] == "img"
        assert set(chart["aria-labelledby"].split()) <= names
    assert len(page.of("desc")) == 6
    assert page.words["h2"] == [
        "Findings",
        "Discovery over time",
        "Discovery over steps",
        "States by depth",
        "Time to find",
        "Workers",
        "What made the tapes",
    ]


def test_the_known_number_of_states_is_a_line(record, campaigns):
    assert campaign_page(record).count("all 1,000 states") == 2
    unknown = campaigns.status(num_possible=None)
    assert 'class="limit"' not in campaign_page(CampaignRecord(campaigns.SETTINGS, unknown, ()))


def test_the_numbers_of_a_chart_stand_below_it(record):
    cells = Page(campaign_page(record)).words
    for words in ("10 s", "2 to 3", "32,768 to 65,535", "f-0123abcd", "fresh"):
        assert words in cells["th"]
    for words in ("10,000", "900", "99", "60", "2.0 s"):
        assert words in cells["td"]


def test_what_the_campaign_says_is_escaped(record):
    text = campaign_page(record)
    assert "<pool" not in text
    assert "&lt;pool &amp; co&gt;" in text
    assert "block 1 has &lt;no&gt; owner" in text


def test_a_page_has_colours_for_dark_and_for_light(record):
    text = campaign_page(record)
    assert text.count("@media (prefers-color-scheme: dark)") == 2
    assert '<meta name="color-scheme" content="light dark">' in text


def test_a_campaign_that_never_began_has_a_page(tmp_path, campaigns):
    campaigns.write_folder(tmp_path, None)
    text = campaign_page(read_record(tmp_path))
    page = Page(text)
    assert not page.of("svg")
    assert "Nothing has been driven yet" in text
    assert "No worker has reported to this folder" in text


def test_a_status_before_the_first_step_has_a_page(tmp_path, campaigns):
    first = campaigns.status(
        num_steps=0, num_states=0, seconds=0.0, curve=(), num_states_by_depth={}, seeds=()
    )
    campaigns.write_folder(tmp_path, first)
    assert not Page(campaign_page(read_record(tmp_path))).of("svg")


def test_a_killed_campaign_has_a_page_that_says_so(tmp_path, campaigns):
    campaigns.write_folder(tmp_path, campaigns.status())
    text = campaign_page(read_record(tmp_path))
    assert len(Page(text).of("svg")) == 5
    assert "goes on, or was killed" in text


def test_an_interrupted_campaign_writes_its_page(poolproof, monkeypatch):
    shown = []

    def interrupt_once(display, status):
        del display
        shown.append(status.activity)
        if len(shown) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(PlainDisplay, "show", interrupt_once)
    told = poolproof("fuzz", "impl", "--blocks", 3, "--in-process", "--report", "page.html")
    assert told.exit_code == 2, told.output
    assert shown == ["running", "interrupted"]
    text = Path("page.html").read_text(encoding="utf-8")
    assert "its last session was interrupted" in text
    assert len(Page(text).of("svg")) == 5


@pytest.mark.some(0)
def test_a_campaign_has_a_page_while_it_runs_and_when_it_was_killed(folder):
    command = [sys.executable, "-m", "poolproof", "fuzz", "impl", "--folder", "c", "--in-process"]
    with subprocess.Popen(
        [*command, "--time", "inf", "--quiet"], stdout=subprocess.DEVNULL, cwd=folder
    ) as campaign:
        try:
            text = _page_with_states(folder / "c")
        finally:
            campaign.kill()
    assert "goes on, or was killed" in text
    assert len(Page(text).of("svg")) == 5
    assert Page(campaign_page(read_record(folder / "c"))).of("svg")


def _page_with_states(path, patience_s=120):
    """The page of a running campaign, once there is something on it."""
    for _ in range(patience_s * 4):
        with suppress(FolderError):  # it may be there and hold nothing yet
            record = read_record(path)
            if record.status is not None and record.status.num_states:
                return campaign_page(record)
        time.sleep(0.25)
    raise AssertionError(f"{path} got no state within {patience_s} s")


def test_a_run_that_means_nothing_is_not_called_unbroken(tmp_path, campaigns):
    campaigns.write_folder(tmp_path, campaigns.status(facts_missing=("an eviction",)))
    text = campaign_page(read_record(tmp_path))
    assert "Not concluded" in text
    assert "an eviction" in text
    assert "Nothing was broken" not in text


def test_hundreds_of_findings_are_all_in_the_tables(campaigns):
    lines = tuple(
        campaigns.finding_line(fingerprint=f"f-{number:08x}", seconds=0.0) for number in range(200)
    )
    record = CampaignRecord(campaigns.SETTINGS, campaigns.status(findings=lines), lines)
    text = campaign_page(record)
    assert "The 160 that took longest are not drawn." in text
    assert all(f'">{line.fingerprint}</th>' in text for line in lines)


def test_a_campaign_writes_its_page_at_the_end(campaign):
    assert campaign.exit_code == 1, campaign.output
    text = Path("page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert len(page.of("svg")) == 6
    assert "its last session ended by its budget" in text


def test_the_page_of_a_folder_is_that_of_its_campaign(campaign, poolproof):
    shown = poolproof("show", "c", "--as", "html", "-o", "again.html")
    assert shown.exit_code == 1
    assert shown.output == ""
    assert Path("again.html").read_text() == Path("page.html").read_text()
    assert campaign.exit_code == 1


def test_findings_after_the_last_status_are_in_the_page(campaign, poolproof):
    with sqlite3.connect("c/campaign.sqlite") as database:
        (value,) = database.execute("SELECT value FROM about WHERE key = 'status'").fetchone()
        status = {**json.loads(value), "findings": [], "activity": "running"}
        database.execute("UPDATE about SET value = ? WHERE key = 'status'", (json.dumps(status),))
    database.close()
    name = re.search(r"f-[0-9a-f]{8}", campaign.stdout)[0]
    assert name in poolproof("show", "c", "--as", "html").stdout
    summary = poolproof("show", "c").stdout
    assert f"\n{name}  " in summary
    assert "nothing was broken" not in summary


def test_a_summary_says_how_the_campaign_stands(campaign, poolproof):
    shown = poolproof("show", "c")
    assert shown.exit_code == 1
    assert shown.stdout.startswith("target     buggy.py:Pool, pool level, 3 blocks")
    assert "\nstate      its last session ended by its budget\n" in shown.stdout
    for line in campaign.stdout.splitlines():
        if line.startswith(("drove", "reached", "verdict")):
            assert line in shown.stdout


def test_a_summary_of_a_campaign_that_never_began(tmp_path, campaigns, poolproof):
    campaigns.write_folder(tmp_path, None)
    shown = poolproof("show", tmp_path)
    assert shown.exit_code == 2
    assert "nothing has been driven yet" in shown.stdout


def test_a_campaign_is_no_pytest_file(tmp_path, campaigns, poolproof):
    campaigns.write_folder(tmp_path, None)
    refused = poolproof("show", tmp_path, "--as", "pytest")
    assert refused.exit_code == 2
    assert "for pytest name one of its findings" in refused.output


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("form", "begins", "holds"),
    [
        ("markdown", "# ", "## Findings"),
        ("json", '{\n  "format": "poolproof-campaign"', '"findings": ['),
        ("junit", "<?xml", '<testsuite name="findings"'),
    ],
)
def test_a_folder_comes_in_every_form_of_a_report(campaign, poolproof, form, begins, holds):
    assert campaign.exit_code == 1
    shown = poolproof("show", "c", "--as", form)
    assert shown.exit_code == 1
    assert shown.stdout.startswith(begins)
    assert holds in shown.stdout
    assert re.search(r"f-[0-9a-f]{8}", campaign.stdout)[0] in shown.stdout


def test_a_session_writes_the_forms_it_is_asked_for(poolproof, buggy):
    told = poolproof(
        "fuzz", buggy, "--blocks", 3, "--steps", 500, "--in-process", "--json", "c.json",
        "--junit", "c.xml", "--md", "c.md", "--html", "c.html",
    )  # fmt: skip
    assert told.exit_code == 1, told.output
    name = re.search(r"f-[0-9a-f]{8}", told.stdout)[0]
    assert json.loads(Path("c.json").read_text())["exit_status"] == 1
    for file in ("c.json", "c.xml", "c.md", "c.html"):
        assert name in Path(file).read_text(encoding="utf-8")


def test_a_damaged_folder_is_named(tmp_path, poolproof):
    (tmp_path / "campaign.sqlite").write_text("no database, and long enough to be one" * 40)
    refused = poolproof("show", tmp_path)
    assert refused.exit_code == 2
    assert str(tmp_path) in refused.output
    assert "Traceback" not in refused.output


def test_a_page_that_cannot_be_written_is_refused_before_the_campaign(poolproof, buggy):
    refused = poolproof("fuzz", buggy, "--steps", 100, "--report", "missing/page.html")
    assert refused.exit_code == 2
    assert "there is no folder missing" in refused.output
    assert refused.stdout == ""


def test_quiet_leaves_findings_and_summary(poolproof, buggy):
    told = poolproof("fuzz", buggy, "--blocks", 3, "--steps", 500, "--in-process", "--quiet")
    assert told.stderr == ""
    assert re.match(r"f-[0-9a-f]{8}  ", told.stdout)
    assert "\nverdict " in told.stdout


def test_without_quiet_a_pipe_gets_a_line_at_the_end(poolproof, buggy):
    told = poolproof("fuzz", buggy, "--blocks", 3, "--steps", 500, "--in-process")
    assert told.stderr.endswith(", done\n")


def test_a_campaign_goes_on_where_no_trace_can_be_written(poolproof, buggy):
    # A file where the folder of findings would have to be.
    Path(".poolproof").write_text("")
    told = poolproof("fuzz", buggy, "--blocks", 3, "--steps", 500, "--in-process", "--quiet")
    assert told.exit_code == 1
    assert "cannot be written into .poolproof/findings" in told.stderr
    assert "\nverdict " in told.stdout


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_campaign_is_shown_from_where_nothing_can_be_written(
    poolproof, campaigns, tmp_path, monkeypatch, was_killed
):
    path = tmp_path / "read # only?"
    held = CampaignFolder(path, campaigns.SETTINGS)
    held.record((), CampaignState(), campaigns.status())
    kept = tmp_path / "as it was"
    if was_killed:
        shutil.copytree(path, kept)
        (kept / "campaign.sqlite-shm").unlink(missing_ok=True)
    held.close()
    if not was_killed:
        shutil.copytree(path, kept)
    before = sorted(file.name for file in kept.iterdir())
    real = tempfile.TemporaryFile

    def refuse(*arguments, dir=None, **options):  # noqa: A002 -- as it is called
        if dir == kept:
            raise OSError(30, "Read-only file system")
        return real(*arguments, dir=dir, **options)

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    shown = poolproof("show", kept)
    assert shown.exit_code == 2, shown.output  # its last session did not end
    assert "10,000 steps" in shown.output
    assert sorted(file.name for file in kept.iterdir()) == before
