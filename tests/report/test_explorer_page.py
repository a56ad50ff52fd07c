"""The page that walks through states: what it holds, how a browser and a keyboard use it."""

import json
import re
from dataclasses import replace

import pytest

from poolproof.certification.explore_target import TargetExploration
from poolproof.exploration.breadth_first import space_of
from poolproof.exploration.graph import as_json
from poolproof.exploration.scope import Scope
from poolproof.report.explorer_page import failures_page, space_page

HOSTILE = "</script><script>document.title='taken'</script><!--<b>&\u2028\x1b[31m"


def walks_of(page):
    return json.loads(re.search(r'id="walks">(.*?)</script>', page)[1])


def page_of_two_blocks(*, symmetry=True):
    return space_page(space_of(Scope(2), symmetry=symmetry))


def page_of_failures(*findings):
    return failures_page(TargetExploration("pool.py:Pool", "pool.py", (), findings))


def hostile_finding(samples):
    bad = replace(samples.trace().violation, sentence=HOSTILE)
    return replace(samples.finding(), violation=bad)


def test_a_page_has_every_state_with_every_move():
    (walk,) = walks_of(page_of_two_blocks())
    assert len(walk["states"]) == Scope(2).num_orbits == 28
    graph = json.loads(as_json(space_of(Scope(2), symmetry=True)))
    assert [
        {"from": number, "to": to, "verb": verb}
        for number, state in enumerate(walk["states"])
        for verb, to, _ in state["moves"]
    ] == graph["edges"]
    assert walk["states"][0]["moves"] == [["allocate", 1, "- | 1-"]]
    assert walk["states"][1]["rows"] == [
        ["free queue", ["-"]],
        ["held", ["x1 -"]],
        ["index", []],
    ]


def test_states_by_themselves_name_their_blocks():
    (walk,) = walks_of(page_of_two_blocks(symmetry=False))
    assert len(walk["states"]) == Scope(2).num_states == 90
    rows = [state["rows"] for state in walk["states"]]
    assert [["free queue", ["1: -"]], ["held", ["0: x1 a"]], ["index", ["a -> 0"]]] in rows


def test_a_failure_is_a_path_that_begins_at_its_end(samples):
    (walk,) = walks_of(page_of_failures(samples.finding()))
    assert walk["atEnd"]
    assert [state["broken"] for state in walk["states"]] == [False] * 5 + [True]
    assert walk["states"][-1]["actual"] == samples.finding().violation.sentence
    assert [state["moves"][0][0] for state in walk["states"][:-1]][-1] == "lookup(a)"


def test_a_target_without_failure_has_a_page_that_says_so():
    page = page_of_failures()
    assert "Nothing broke in any state that was reached." in page
    assert 'id="walk"' not in page


def test_text_of_a_target_ends_no_script(samples):
    page = page_of_failures(hostile_finding(samples))
    assert page.count("<script") == page.count("</script>") == 2
    assert "\x1b" not in page
    assert walks_of(page)[0]["states"][-1]["actual"].startswith("</script><script>")


def open_page(browser, folder, page, width=400, scheme="light"):
    (folder / "page.html").write_text(page, encoding="utf-8")
    browser.show(width, scheme)
    browser.open(folder / "page.html")


def test_keys_follow_moves_and_go_along_the_path(browser, folder):
    open_page(browser, folder, page_of_two_blocks())
    assert browser.text("#state").startswith("State 0")
    browser.press("1", "1")
    assert browser.text("#state").startswith("State 2")
    assert browser.text("#said") == "allocate: free queue \u2212 -; held + x1 -"
    browser.press("ArrowLeft")
    assert browser.text("#state").startswith("State 1")
    browser.press("ArrowRight")
    assert browser.text("#path h2") == "Path: step 2 of 2"
    browser.press("Home")
    assert browser.text("#said") == "The start."
    assert (browser.console, browser.requests) == ([], [])


def test_a_number_jumps_by_a_shortest_path(browser, folder):
    open_page(browser, folder, page_of_two_blocks())
    browser.press("g", "2", "7", "Enter")
    assert browser.text("#state").startswith("State 27")
    number = int(re.search(r"of (\d+)", browser.text("#path h2"))[1])
    assert number == 6  # the depth of this space, and 27 is the last of its states
    browser.press("9", "9", "Enter")
    assert "There is no state" in browser.text("#said")
    assert "0 to 27" in browser.text("#said")


def test_a_failure_is_shown_with_expected_beside_actual(browser, folder, samples):
    open_page(browser, folder, page_of_failures(samples.finding()))
    assert browser.text("#path h2") == "Path: step 5 of 5"
    assert "expected" in browser.text(".beside")
    assert samples.finding().violation.sentence in browser.text(".broken")
    browser.press("ArrowLeft")
    assert browser.value("document.querySelector('.broken')") is None
    browser.press("1")
    assert browser.text("#path h2") == "Path: step 5 of 5"


def test_one_of_several_failures_is_chosen(browser, folder, samples):
    other = replace(samples.finding(), fingerprint="f-00000002")
    open_page(browser, folder, page_of_failures(samples.finding(), other))
    browser.value("document.getElementById('which').focus()")
    browser.press("ArrowDown")
    assert "f-00000002" in browser.text(".about")
    assert browser.value("document.activeElement.id") == "which"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_hostile_text_is_text_and_nothing_sticks_out(browser, folder, samples, scheme):
    page = page_of_failures(hostile_finding(samples))
    open_page(browser, folder, page, scheme=scheme)
    assert "<script>" in browser.text(".broken")
    assert browser.value("document.title") == "Exploration of pool.py:Pool"
    assert browser.fits()
    background = browser.value("getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(22, 24, 27)" if scheme == "dark" else "rgb(255, 255, 255)")
    assert (browser.console, browser.requests) == ([], [])


def test_the_page_lets_no_other_script_run(browser, folder):
    page = page_of_two_blocks().replace("</main>", "<script>document.title='taken'</script></main>")
    open_page(browser, folder, page)
    assert browser.value("document.title").startswith("States of a pool")
    assert "Content Security Policy" in browser.console[0]
