"""The page of a finding: its steps one at a time, what it means, the target's own line."""

from dataclasses import replace
from html.parser import HTMLParser

import pytest

from poolproof.contract.commands import PopLeft
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.shown_state import Held, ShownState
from poolproof.contract.violation import Severity, Violation
from poolproof.report.drawing import draw_pool, draw_queue
from poolproof.report.finding_report import finding_report, trace_report
from poolproof.report.forms import Form, document_text
from poolproof.report.html_form import html_page
from poolproof.report.manager_drawing import draw_manager
from poolproof.report.step_drawing import steps_of


class Elements(HTMLParser):
    """The elements of a page with their attributes, and whether each that is opened is closed."""

    VOID = ("meta", "input", "br", "link", "img")

    def __init__(self, text):
        super().__init__()
        self.found, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def all(self, tag):
        return [attributes for name, attributes in self.found if name == tag]


def test_each_step_has_a_button_and_the_broken_one_is_chosen(samples):
    page = Elements(html_page(trace_report(samples.trace())))
    buttons = [one for one in page.all("input") if one["type"] == "radio"]
    assert len(buttons) == len(samples.trace().commands) + 1
    assert [one["aria-label"] for one in buttons if "checked" in one] == ["step 5: lookup(a)"]
    assert len({one["id"] for one in buttons}) == len(buttons)
    frames = [one for one in page.all("div") if one.get("class", "").startswith("frame ")]
    assert len(frames) == 1  # the broken one; the others have the class alone


def test_what_was_expected_stands_beside_what_was_found(samples):
    steps = steps_of(samples.trace(), draw_pool(samples.trace())).steps
    broken = steps[-1]
    assert broken.actual == samples.trace().violation.sentence
    blocks = next(row for row in broken.rows if row.label == "blocks")
    assert blocks.items[0].text == "0: null"
    page = html_page(trace_report(samples.trace()))
    assert page.index("<h3>expected</h3>") < page.index("<h3>actual</h3>")


def test_what_a_step_changed_is_marked(samples):
    second = steps_of(samples.trace(), draw_pool(samples.trace())).steps[2]  # cache([1, 2], ...)
    marked = [item.text for row in second.rows for item in row.items if item.tone.value == "strong"]
    assert marked == ["1: held, a", "2: held, b", "a->1", "b->2"]


def test_a_page_says_what_the_invariant_means_and_where_the_target_stands(samples, folder):
    (folder / "pool.py").write_text("class Pool:\n    def lookup(self, block_hash): ...\n")
    quiet = replace(samples.trace().violation, frames=())
    page = html_page(trace_report(samples.trace(violation=quiet)))
    assert "What it means" in page
    assert "reusing a block without taking its hash out of the index" in page
    assert "pool.py:2: def lookup(self, block_hash): ..." in page


def test_a_page_loads_nothing_and_runs_nothing(samples):
    page = html_page(finding_report(samples.finding()))
    elements = Elements(page)
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in elements.found}
    assert "url(" not in page
    assert "@import" not in page


def test_a_terminal_and_markdown_have_the_table_alone(samples):
    for form in (Form.TEXT, Form.MARKDOWN):
        assert "Step by step" not in document_text(trace_report(samples.trace()), form)


def test_text_of_a_target_is_text_on_the_page(samples):
    bad = replace(samples.trace().violation, sentence="<script>alert(1)</script>")
    page = html_page(trace_report(samples.trace(violation=bad, target="<b>.py:Pool")))
    assert "<script" not in page
    assert "<b>" not in page


def test_a_pool_of_many_blocks_and_a_long_trace_are_not_drawn_one_by_one(samples):
    large = samples.trace(num_blocks=5000)
    rows = steps_of(large, draw_pool(large)).steps[0].rows
    assert "blocks" not in [row.label for row in rows]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_broken_step_without_errors_or_requests(
    browser, samples, folder, scheme
):
    path = folder / "finding.html"
    path.write_text(html_page(finding_report(samples.finding())), encoding="utf-8")
    shown = (
        "[...document.querySelectorAll('.frame')]"
        ".filter(frame => getComputedStyle(frame).display !== 'none')"
    )
    browser.show(400, scheme)
    browser.open(path)
    assert browser.value(f"{shown}.length") == 1
    assert browser.value(f"{shown}[0].innerText").startswith("5. lookup(a)")
    browser.value("document.querySelector('.steps input').click()")
    first = "document.querySelector('.frame')"
    assert browser.value(f"{shown}.length === 1 && {shown}[0] === {first}")
    assert browser.fits()
    background = browser.value("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(22, 24, 27)" if scheme == "dark" else "rgb(255, 255, 255)")
    assert browser.console == []
    assert browser.requests == []


def manager_trace(samples, block_size=4, **changes):
    """A manager that holds nothing, asked to admit more than fits; it says that it is sure."""
    state = ShownState((0,), ())
    violation = Violation("CRASH", Severity.CRASH, "admit A [0 x 5] answered 'sure'", (), 0)
    values = {
        "level": "manager", "profile": ManagerProfile(), "num_blocks": 1, "violation": violation,
        "commands": (Admit(0, TokenChain((0,) * 5), 0),), "options": {"block_size": block_size},
        "shown": (state, replace(state, answer="sure")),
    }  # fmt: skip
    return samples.trace(**{**values, **changes})


def test_an_answer_that_alone_is_wrong_stands_on_both_sides(samples):
    trace = manager_trace(samples)
    broken = steps_of(trace, draw_manager(trace)).steps[-1]
    assert broken.found == "admit A [0 x 5] answered 'sure'"
    expected, actual = (
        {row.label: [item.text for item in row.items] for row in rows}
        for rows in (broken.rows, broken.actual)
    )
    assert (expected["answer"], actual["answer"]) == (["never"], ["sure"])
    assert expected["blocks"] == ["0: free"]
    assert "answered &#x27;sure&#x27;</p>" in html_page(trace_report(trace))


def test_a_manager_that_raises_or_ends_its_process_is_drawn_at_that_step(samples):
    """The first leaves no answer, the second shows nothing at all."""
    shown = manager_trace(samples).shown
    for trace in (
        manager_trace(samples, shown=(shown[0], replace(shown[1], answer=None))),
        manager_trace(samples, shown=()),
    ):
        broken = steps_of(trace, draw_manager(trace)).steps[-1]
        assert (broken.title, broken.is_broken) == ("admit A [0 x 5]", True)
        assert [item.text for item in broken.rows[0].items] == ["0: free"]
        assert broken.actual


def test_the_blocks_of_a_manager_say_who_has_them(samples):
    shown = (
        ShownState((0, 1, 2), ()),
        ShownState((), (Held(0, "device", ((0, 1),)), Held(1, "device", ((0, 2),)))),
    )
    trace = manager_trace(samples, num_blocks=3, shown=shown)
    actual = steps_of(trace, draw_manager(trace)).steps[-1].actual
    assert [item.text for item in actual[0].items] == ["0: A B", "1: A", "2: B"]


def test_the_blocks_of_a_queue_are_drawn_too(samples):
    trace = samples.trace(
        level="queue", num_blocks=2, profile=Profile(), commands=(PopLeft(),), violation=None
    )
    rows = steps_of(trace, draw_queue(trace)).steps[-1].rows
    assert [item.text for item in rows[0].items] == ["0: outside", "1: free"]
