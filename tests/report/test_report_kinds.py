"""Every kind of report in every form: what it is about and what follows, whatever a target says."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from poolproof.certification.explore_target import TargetExploration
from poolproof.certification.hits import HitComparison, Hits
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.certification.repair import PatchEffect, RepairFinding, RepairReport
from poolproof.certification.verdict import Rules, judge, judge_kernel
from poolproof.contract.commands import PopLeft
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity, Violation
from poolproof.exploration.breadth_first import space_of
from poolproof.exploration.scope import Scope
from poolproof.fuzz.coverage_record import CodeCoverage, CoveragePoint, FileCoverage
from poolproof.fuzz.status import WaitingLine
from poolproof.kernels.findings import CheckLine, KernelFinding, KernelRun
from poolproof.kill_matrix.matrix import Column, Matrix, MatrixCell, MatrixRow
from poolproof.power.mutation import Mutation
from poolproof.power.own_tests import OwnVerdict
from poolproof.power.power_jobs import Judged
from poolproof.power.power_report import (
    MeasuredCertificate,
    Mutant,
    MutatedModule,
    OwnRun,
    PowerReport,
)
from poolproof.report.campaign_record import CampaignRecord
from poolproof.report.explorer_page import failures_page, space_page
from poolproof.report.finding_report import finding_report, trace_report
from poolproof.report.forms import Form
from poolproof.report.html_form import html_page
from poolproof.report_kinds import REPORT_KINDS

HOSTILE = "\x1b[2J \u202eback \x00 </td></main> | <script>alert(1) \r&amp; a.py"
SCREENS = Path(__file__).parent / "screens"
OBEYED = {"\x1b", "\u202e", "\x00", "\r"}


def certificate(samples, name):
    found = samples.finding(remark=name)
    violation = replace(found.violation, sentence=name, frames=(name,))
    trace = replace(found.trace, target=name, violation=violation)
    found = replace(found, violation=violation, trace=trace)
    return judge(samples.certificate(found, target=name, notes=(name,)), Rules())


def kernel(name):
    finding = KernelFinding(
        check="value tail", severity=Severity.CRASH, sentence=name, case={"sequences": [[1, 1]]},
        words=name, example=2, frames=(name,),
    )  # fmt: skip
    run = KernelRun(
        target=name, device="cpu", device_name=name, torch="2.13.0", depth="quick",
        declaration={"tail": "any"}, findings=(finding,), ratios={"float32": [0.5]},
        lines=(CheckLine(name="dense", sentence="is dense", result="holds", examples=3),),
        canaries_caught=("S1: no softmax",), not_covered=(name,),
    )  # fmt: skip
    return judge_kernel(KernelCertificate.of(run, name, version="0.1.0"), Rules())


def campaign(campaigns, name):
    line = campaigns.finding_line(sentence=name, forms=("f-1",))
    waiting = WaitingLine("p-1", "OWN", "leak", name, 5, 100, 3.0)
    status = campaigns.status(target=name, findings=(line,), waiting=(waiting,), num_pending=1)
    file = FileCoverage(name, 10, 4, (3, 4), ((3, 4),))
    coverage = CodeCoverage((file,), (CoveragePoint(1, 5, 2, 10),), 1)
    settings = replace(campaigns.SETTINGS, target=name)
    return CampaignRecord(settings, status, (line,), (waiting,), coverage, (name,))


def matrix(name):
    hit, miss = MatrixCell(1, 1, 10, 0.1, 3, ("I1",), name), MatrixCell(0, 1)
    columns = (Column("plain", name, False, False), Column("I1", "free", True, False))
    cells = {"plain": hit, "I1": MatrixCell(why_not=name)}
    return Matrix("0.1.0", "c0de", "CPython 3", (0, 1), columns, (
        MatrixRow("A1", name, "pool", False, ("vllm#1", name), "leak", True, cells),
        MatrixRow("A2", "missed", "index", False, (), "leak", True, cells | {"plain": miss}),
        MatrixRow("O1", "right", "pool", True, (), "", False, cells | {"plain": miss}),
    ))  # fmt: skip


def power(name):
    mutation = Mutation(
        module="m", path=Path("right.py"), function=name, operator="off by one", lines=(3, 3),
        start=0, end=1, text="x", before=name, after="y",
    )  # fmt: skip
    own = OwnVerdict(True, name)
    return PowerReport(
        target=name, target_version=None, depth="quick", seed=3,
        modules=(MutatedModule("m", "a/right.py", 2, ("f",), 20),), num_candidates=20,
        num_equivalent=1, stages=("plain",), own=OwnRun(name, 1.0, ()), seconds=2.0,
        mutants=(
            Mutant(mutation, True, Judged("plain", "IDX", name, 3), own),
            Mutant(mutation, True, Judged(), OwnVerdict(False)),
        ),
    )  # fmt: skip


def measured(samples, name):
    held = judge(samples.certificate(target=name, notes=(name,)), Rules())
    return MeasuredCertificate(held, power(name))


def repair(samples, name):
    before, after = certificate(samples, name), judge(samples.certificate(target=name), Rules())
    (found,) = before.findings
    hits = HitComparison(
        unit="lookups", num_runs=3, num_commands=40, num_left_out=1,
        before=Hits(10, 20), after=Hits(8, 20, 1),
    )  # fmt: skip
    broken = replace(found, remark="new")
    judged = (
        RepairFinding(PatchEffect.REPAIRS, found, name),
        RepairFinding(PatchEffect.BREAKS, broken, f"without it nothing: {name}"),
    )
    return RepairReport(patch=name, before=before, after=after, findings=judged, hits=(hits,))


MAKERS = {
    "certificate": lambda samples, campaigns, name: certificate(samples, name),
    "kernel": lambda samples, campaigns, name: kernel(name),
    "campaign": lambda samples, campaigns, name: campaign(campaigns, name),
    "matrix": lambda samples, campaigns, name: matrix(name),
    "power": lambda samples, campaigns, name: power(name),
    "certificate with power": lambda samples, campaigns, name: measured(samples, name),
    "repair": lambda samples, campaigns, name: repair(samples, name),
}

SAID = {
    "certificate": ("REFUSED: 1 new", "f-7d3f0a11", "plain driver"),
    "kernel": ("REFUSED: 1 new", "value tail", "dense"),
    "campaign": ("1 finding", "f-0123abcd", "1,000 states"),
    "matrix": ("1 of 2 specimens are caught", "A1", "missed"),
    "power": ("1 of 2", "right.py:3", "off by one"),
    "certificate with power": ("HOLDS", "plain driver", "1 of 2", "off by one"),
    "repair": ("repairs 1, leaves 0, breaks 1", "f-7d3f0a11", "8 lookups that hit"),
}
"""What text, Markdown and page of each kind have to say."""


@pytest.fixture(params=MAKERS)
def kind(request):
    return request.param


@pytest.fixture
def made(kind, samples, campaigns):
    def make(name="pool.py:Pool"):
        return MAKERS[kind](samples, campaigns, name)

    return make


def written(subject, form):
    return REPORT_KINDS[type(subject)].written(subject, form)


def of_level(samples, name, level, *commands, **changes):
    violation = Violation("I1", Severity.LEAK, name, (1,), len(commands) - 1)
    trace = samples.trace(target=name, level=level, violation=violation, commands=commands)
    return html_page(trace_report(replace(trace, **changes)))


CHAIN = TokenChain((0, 0, 1, 2, 1))
PAGES = {
    **{kind: lambda *given, make=make: written(make(*given), Form.HTML)
       for kind, make in MAKERS.items()},
    "finding": lambda samples, campaigns, name: html_page(finding_report(samples.finding())),
    "trace of a queue": lambda samples, campaigns, name: of_level(
        samples, name, "queue", PopLeft()
    ),
    "trace of a manager": lambda samples, campaigns, name: of_level(
        samples, name, "manager", Admit(0, CHAIN, 0), Step(), profile=ManagerProfile(),
        options={"layout": "full", "block_size": 4},
    ),
    "walk through states": lambda samples, campaigns, name: space_page(
        space_of(Scope(2), symmetry=True)
    ),
    "paths to failures": lambda samples, campaigns, name: failures_page(
        TargetExploration(name, "pool.py", (), (samples.finding(),))
    ),
}  # fmt: skip
"""What a browser can be given."""

LONG = "a_name_of_a_target_that_nobody_breaks_into_lines" * 4
WIDEST = """[...document.querySelectorAll('*')].sort((a, b) =>
    b.getBoundingClientRect().right - a.getBoundingClientRect().right)[0].outerHTML.slice(0, 300)"""
CONTROLS = """
    [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')]
        .filter(e => e.checkVisibility() && !e.disabled && e.tabIndex >= 0)
"""
PALEST = """(() => {
    const part = c => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    const numbers = color => color.match(/[\\d.]+/g).map(Number);
    const behind = e => {
        for (; e; e = e.parentElement) {
            const [r, g, b, a = 1] = numbers(getComputedStyle(e).backgroundColor);
            if (a > 0.5) return [r, g, b];
        }
        return matchMedia('(prefers-color-scheme: dark)').matches ? [0, 0, 0] : [255, 255, 255];
    };
    const texts = [...document.body.querySelectorAll('*')].filter(e => e.checkVisibility()
        && !e.closest('svg') && [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()));
    const ratios = texts.map(e => {
        const [a, b] = [light(numbers(getComputedStyle(e).color)), light(behind(e))];
        return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.outerHTML.slice(0, 90)];
    });
    return ratios.sort((a, b) => a[0] - b[0])[0];
})()"""
"""The smallest contrast of a text and what is behind it, as WCAG 2.2 computes it."""


@pytest.fixture(params=PAGES)
def page_of(request, folder, samples, campaigns):
    """Writes a page about a target of a given name."""

    def write(name):
        path = folder / f"{request.param.replace(' ', '-')}.html"
        path.write_text(PAGES[request.param](samples, campaigns, name), encoding="utf-8")
        return path

    return write


@pytest.fixture
def page(page_of):
    """A page with a name that has no place to break it at."""
    return page_of(LONG)


@pytest.mark.some(4)
def test_a_narrow_browser_shows_each_page_whole_and_readable(browser, page):
    for scheme in ("light", "dark"):
        browser.show(400, scheme)
        browser.open(page)
        assert browser.fits(), browser.value(WIDEST)
        contrast, where = browser.value(PALEST)
        assert contrast >= 4.5, (scheme, where)
    assert browser.console == []
    assert browser.requests == []


@pytest.mark.some(2)
@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1000, "dark")])
def test_each_page_looks_as_recorded(browser, page_of, folder, width, scheme):
    """In a font of blocks, one for each character: no machine has it by itself, so all are alike.

    With POOLPROOF_RECORD_SCREENS=1 in the environment, what is seen is recorded.
    """
    path = page_of("examples/simple_pool.py:Pool")
    browser.show(width, scheme)
    browser.open(path)
    browser.write_in(SCREENS / "blocks.ttf")
    seen, recorded = browser.picture(), SCREENS / f"{path.stem}-{width}-{scheme}.png"
    if os.environ.get("POOLPROOF_RECORD_SCREENS") == "1":
        recorded.write_bytes(seen)
    share = browser.share_of_other_pixels(seen, recorded.read_bytes())
    (folder / "seen.png").write_bytes(seen)
    assert share < 0.002, f"compare {folder / 'seen.png'} with {recorded}"


def test_no_screen_is_recorded_of_a_page_that_is_gone():
    pages = {f"{kind.replace(' ', '-')}-{shown}.png"
             for kind in PAGES for shown in ("400-light", "1000-dark")}  # fmt: skip
    assert {path.name for path in SCREENS.glob("*.png")} == pages


@pytest.mark.some(4)
def test_the_tab_key_reaches_every_control_of_a_page(browser, page):
    browser.show(1280)
    browser.open(page)
    # Of radio buttons of one group the key reaches the one that is chosen.
    browser.value(
        f"globalThis.nameOf = e => e.type === 'radio' ? e.name : {CONTROLS}.indexOf(e); 0"
    )
    wanted = set(browser.value(f"{CONTROLS}.map(nameOf)"))
    reached = set()
    # What scrolls can be reached as well, so that the arrow keys move it.
    for _ in range(browser.value("document.querySelectorAll('a, button, input, .scroll').length")):
        browser.press("Tab")
        reached.add(browser.value("nameOf(document.activeElement)"))
    assert wanted <= reached


def test_there_is_a_sample_of_every_kind(samples, campaigns):
    types = {type(maker(samples, campaigns, "x")) for maker in MAKERS.values()}
    assert types == set(REPORT_KINDS)


@pytest.mark.parametrize("form", [Form.TEXT, Form.MARKDOWN, Form.HTML])
def test_people_are_told_the_verdict_and_what_it_rests_on(made, kind, form):
    text = written(made(), form)
    for words in SAID[kind]:
        assert words in text


@pytest.mark.parametrize("form", Form)
def test_whatever_a_target_says_is_shown_and_not_obeyed(made, form):
    text = written(made(HOSTILE), form)
    assert not OBEYED & set(text)
    assert text.endswith("\n")
    if form in {Form.HTML, Form.JUNIT, Form.MARKDOWN}:
        outside = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
        assert "<script>" not in outside.replace("\\<script", "")


def test_json_is_an_object_with_the_name_in_it(made, kind):
    value = json.loads(written(made("odd name"), Form.JSON))
    assert isinstance(value, dict)
    assert "odd name" in json.dumps(value)


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        # tests, failures, errors, skipped
        ("certificate", ("5", "1", "0", "1")),
        ("kernel", ("3", "1", "0", "0")),
        ("campaign", ("3", "2", "1", "0")),
        ("matrix", ("3", "1", "0", "0")),
        ("power", ("2", "0", "0", "1")),
        ("certificate with power", ("6", "0", "0", "2")),
        ("repair", ("3", "2", "0", "0")),
    ],
)
def test_junit_counts_what_failed(made, counts):
    root = ET.fromstring(written(made(), Form.JUNIT))  # noqa: S314 -- it is our own
    found = tuple(root.get(name) for name in ("tests", "failures", "errors", "skipped"))
    assert found == counts


def test_no_line_of_a_text_that_wraps_is_longer_than_a_hundred_columns(made, kind):
    if kind == "campaign":
        pytest.skip("its lines are for programs, and whole")
    lines = written(made("word " * 100), Form.TEXT).splitlines()
    assert max(len(line) for line in lines if "poolproof kernels" not in line) <= 100


def test_a_refused_certificate_says_that_no_power_was_measured(samples):
    refused = judge(samples.certificate(samples.finding()), Rules())
    subject = MeasuredCertificate(refused, None)
    for form in (Form.TEXT, Form.MARKDOWN, Form.HTML):
        text = " ".join(written(subject, form).split())
        assert "f-7d3f0a11" in text
        assert "the power of the checks was not measured: the unmutated target has to" in text
    assert json.loads(written(subject, Form.JSON))["power"] is None
    assert 'failures="1"' in written(subject, Form.JUNIT)


def test_a_page_of_the_matrix_has_every_level_and_links_threads(samples, campaigns):
    page = written(matrix("x"), Form.HTML)
    for level in ("pool", "index", "oddities, which are right"):
        assert f"<h2>{level}</h2>" in page
    assert '<a href="https://github.com/vllm-project/vllm/issues/1">vllm#1</a>' in page
    assert 'title="plain: caught from 1 of 1 seeds; named by I1; 0.1 s; shortest trace 3' in page


def test_a_missed_bug_and_an_accused_oddity_fail_in_junit():
    whole = matrix("x")
    accused = replace(whole.rows[2], cells=whole.rows[0].cells)
    unknown = MatrixCell(why_not="no events")
    unspoken = replace(whole.rows[1], cells={"plain": unknown, "I1": unknown})
    text = written(replace(whole, rows=(*whole.rows[:2], accused, unspoken)), Form.JUNIT)
    assert "missed by every detector" in text
    assert "is right, and accused by plain" in text
    assert "no detector could speak of it" in text


def test_a_campaign_that_never_began_is_an_error_and_no_failure(campaigns):
    text = written(CampaignRecord(campaigns.SETTINGS, None, ()), Form.JUNIT)
    root = ET.fromstring(text)  # noqa: S314 -- it is our own
    assert (root.get("failures"), root.get("errors")) == ("0", "1")


def test_a_campaign_that_lost_a_failure_fails(campaigns):
    lost = CampaignRecord(
        campaigns.SETTINGS, campaigns.status(activity="done"), (), damage=("x",),
        is_failure_lost=True,
    )  # fmt: skip
    for record, failures in ((lost, "1"), (replace(lost, damage=(), is_failure_lost=False), "0")):
        root = ET.fromstring(written(record, Form.JUNIT))  # noqa: S314 -- it is our own
        assert (root.get("failures"), root.get("errors")) == (failures, "0")
