"""The page of a certificate: its parts, its links, and how a narrow browser shows it."""

import re

import pytest

from poolproof.certification.verdict import Rules, judge
from poolproof.report.certificate_document import certificate_document
from poolproof.report.html_form import html_page


def page_of(samples, *findings, **changes):
    certificate = samples.certificate(*findings, **changes)
    judged = judge(certificate, Rules())
    return html_page(certificate_document(judged))


def test_a_page_has_its_parts_in_order(samples):
    headings = re.findall("<h2.*?>(.*?)</h2>", page_of(samples, samples.finding()))
    assert headings[:2] == ["What was checked", "The ruler, and what was not checked"]
    assert headings[2].startswith("Finding f-7d3f0a11")
    assert headings[-2:] == ["The profile", "Run again"]


def test_every_link_of_a_page_leads_to_a_finding_on_it(samples):
    page = page_of(samples, samples.finding(), samples.finding("f-00000002"))
    links = re.findall('href="#(.*?)"', page)
    assert links
    assert all(page.count(f' id="{link}"') == 1 for link in links)


def test_the_line_that_runs_it_again_is_quoted_for_a_shell(samples):
    page = page_of(samples, target="impl[eviction=lifo]")
    assert "poolproof certify &#x27;impl[eviction=lifo]&#x27; --depth" in page


@pytest.mark.some(1)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_browser_shows_all_of_it(browser, folder, samples, scheme):
    (folder / "page.html").write_text(page_of(samples, samples.finding()), encoding="utf-8")
    browser.show(400, scheme)
    browser.open(folder / "page.html")
    assert browser.fits()
    wide = "[...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth)"
    assert browser.value(f"{wide}.length") == 0
    browser.value("document.querySelector('a[href^=\"#\"]').focus()")
    browser.press("Enter")
    assert browser.value("document.querySelector('h2:target').id") == "f-7d3f0a11"
    assert browser.console == []
    assert all("#" in address for address in browser.requests)


@pytest.mark.some(0)
def test_a_cell_has_its_heading_in_front_where_the_head_of_the_table_is_not_shown(
    browser, folder, samples
):
    (folder / "page.html").write_text(page_of(samples, samples.finding()), encoding="utf-8")
    before = "getComputedStyle(document.querySelector('tbody tr').cells[1], '::before').content"
    browser.show(400)
    browser.open(folder / "page.html")
    heading = browser.value("document.querySelectorAll('thead th')[1].textContent")
    assert heading
    assert heading in browser.value(before)
    browser.show(1280)
    assert browser.value(before) == "none"
