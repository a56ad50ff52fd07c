"""What each form makes of a document: layout, what it leaves out, and texts that mean harm."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest

from poolproof.report.document import (
    BREAK,
    DataTable,
    Document,
    Drawn,
    Fact,
    Facts,
    Figure,
    Gap,
    Indented,
    Narrow,
    Paragraph,
    ReportPart,
    ShellLine,
    Span,
    TableCell,
    TableColumn,
    TableRow,
    Tone,
    Wide,
    facts,
    lines,
    value_words,
)
from poolproof.report.forms import json_text
from poolproof.report.html_form import html_page
from poolproof.report.junit_form import CaseOutcome, JunitCase, JunitSuite, junit
from poolproof.report.markdown_form import markdown
from poolproof.report.text_form import plain_text, show

HOSTILE = (
    "half \ud83d, \x1b[2J, \u202eback, \x00, </main></td> `|` [x](y) *a*\r<script>alert(1)\t&amp;"
)
OBEYED = {"\x1b", "\u202e", "\x00", "\r", "\ud83d"}


def document(*blocks, title="About it", verdict="it holds", **more):
    return Document(title, verdict, blocks, **more)


def text_of(*blocks):
    return plain_text(document(*blocks))


def markdown_of(*blocks):
    """Without the heading and the line below it."""
    return markdown(document(*blocks)).split("\n\n", 2)[2]


def table(*rows, **settings):
    columns = (TableColumn("name"), TableColumn("count", is_number=True))
    return DataTable(columns, tuple(TableRow.of(*row) for row in rows), **settings)


class Page(HTMLParser):
    """Every element with its attributes and the text in it; what was opened has to be closed."""

    def __init__(self, page):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        element = (tag, dict(attrs), [])
        self.elements.append(element)
        if tag not in {"meta", "br"}:
            self._open.append(element)

    def handle_endtag(self, tag):
        assert self._open.pop()[0] == tag

    def handle_data(self, data):
        for _, _, texts in self._open:
            texts.append(data)

    def of(self, tag):
        return [(attrs, "".join(texts)) for name, attrs, texts in self.elements if name == tag]

    def texts(self, tag):
        return [text for _, text in self.of(tag)]


def page_of(*blocks, **more):
    return Page(html_page(document(*blocks, **more)))


def test_a_table_in_text_has_its_numbers_at_the_right():
    assert text_of(table(("one", 1), ("thousands", 12_345))) == (
        "name         count\none              1\nthousands   12,345\n"
    )


def test_the_gap_is_what_stands_between_columns():
    assert text_of(table(("one", 1), gap=1)).splitlines()[1] == "one      1"


def test_counts_have_commas_and_no_value_is_a_dash():
    assert [value_words(value) for value in (0, 1_234_567, None, "1234")] == [
        "0",
        "1,234,567",
        "-",
        "1234",
    ]


def test_labels_of_facts_are_as_wide_as_asked_and_repeated_once():
    made = facts(("note", "a"), ("note", "b"), ("end", "c"), label_width=6)
    assert text_of(made) == "note    a\n        b\nend     c\n"


def test_a_label_wider_than_asked_moves_all_texts():
    assert text_of(facts(("a label", "a"), ("b", "c"), label_width=2)) == "a label  a\nb        c\n"


def test_a_joined_fact_continues_the_line_before_it_where_lines_are_few():
    made = facts(Fact("target", "a.py"), Fact("source", "here", is_joined=True), label_width=6)
    assert text_of(made) == "target  a.py, here\n"
    assert "| source | here |" in markdown_of(made)
    assert page_of(made).texts("dt") == ["target", "source"]


def test_texts_are_broken_at_a_hundred_columns_below_their_label():
    made = text_of(facts(("note", "word " * 40), label_width=4)).splitlines()
    assert max(map(len, made)) <= 100
    assert all(line.startswith("      word") for line in made[1:])


def test_facts_for_programs_and_commands_are_never_broken():
    long = "x/" * 100
    whole = Facts((Fact("seeds", long),), label_width=9, wraps=False)
    assert text_of(whole) == f"seeds      {long}\n"
    assert text_of(ShellLine("next", f"cat {long}", 6, indent=2)) == f"  next    cat {long}\n"


def test_a_terminal_shows_what_is_narrow_and_others_what_is_wide():
    blocks = (Narrow((Paragraph("few words"),)), Wide((Paragraph("many more words"),)))
    assert text_of(*blocks) == "few words\n"
    assert markdown_of(*blocks) == "many more words\n"
    page = page_of(*blocks).texts("p")
    assert "many more words" in page
    assert "few words" not in page


def test_title_and_verdict_are_on_top_of_pages_and_left_to_the_blocks_on_a_terminal():
    made = document(Paragraph("text"), is_broken=True)
    assert plain_text(made) == "text\n"
    assert markdown(made) == "# it holds\n\nAbout it\n\ntext\n"
    page = Page(html_page(made))
    assert page.texts("h1") == page.texts("title") == ["About it"]
    assert page.texts("strong") == ["It holds."]
    assert any("broken" in attributes.get("class", "") for attributes, _ in page.of("p"))


def test_a_document_without_a_verdict_is_headed_by_its_title():
    made = document(Paragraph("text"), verdict="")
    assert markdown(made) == "# About it\n\ntext\n"
    assert not Page(html_page(made)).of("strong")


@pytest.mark.parametrize(("is_titled", "shown"), [(True, "Part\ntext\n"), (False, "text\n")])
def test_a_section_has_its_title_on_a_terminal_only_where_it_is_needed(is_titled, shown):
    section = ReportPart("Part", (Paragraph("text"),), is_titled=is_titled)
    assert text_of(section) == shown
    assert markdown_of(section) == "## Part\n\ntext\n"
    assert page_of(section).texts("h2") == ["Part"]


def test_gaps_and_indents_are_the_terminals():
    blocks = (Paragraph("a"), Gap(), Indented((Paragraph("b"),)))
    assert text_of(*blocks) == "a\n\n  b\n"
    assert markdown_of(*blocks) == "a\n\nb\n"


def test_what_is_drawn_is_code_in_markdown_that_nothing_in_it_ends():
    drawn = Drawn((Paragraph("```\n# no heading"), table(("a", 1))))
    made = markdown_of(drawn).splitlines()
    assert made == ["    ```", "    # no heading", "    name   count", "    a          1"]
    assert page_of(drawn).texts("td") == ["1"]


def test_a_line_break_is_one_where_there_are_lines():
    made = DataTable((TableColumn("a"),), (TableRow.of(lines(["one", "two"])),))
    assert text_of(made) == "a\none\ntwo\n"
    assert "| one; two |" in markdown_of(made)
    assert "one<br>two" in html_page(document(made))
    assert lines(["a", "b"]) == (Span("a"), BREAK, Span("b"))


def test_a_table_in_markdown_says_which_columns_are_numbers():
    assert markdown_of(table(("one", 1_000))) == ("| name | count |\n|---|---:|\n| one | 1,000 |\n")


def test_facts_in_markdown_are_a_table_or_a_list():
    assert markdown_of(facts(("a", "b"))) == "| | |\n|---|---|\n| a | b |\n"
    assert markdown_of(facts(("a", "b"), is_list=True)) == "- a: b\n"


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("# a", "\\# a"),
        ("- a", "\\- a"),
        ("+ a", "\\+ a"),
        ("12. a", "12\\. a"),
        ("1) a", "1\\) a"),
        ("12 a", "12 a"),
        ("> a", "\\> a"),
        ("=== a", "\\=== a"),
        ("a - b", "a - b"),
        ("a\n\n# b", "a # b"),
    ],
)
def test_no_text_begins_a_list_or_a_heading_in_markdown(text, written):
    assert markdown_of(Paragraph(text)) == f"{written}\n"
    assert markdown(document(title=text)) == f"# it holds\n\n{written}\n"


def test_a_name_cannot_end_a_cell_of_markdown():
    made = markdown_of(table(("a | b\\| c", "`x` <b>")), facts(("l", "|\n|")))
    assert made.splitlines()[2] == "| a \\| b\\\\\\| c | \\`x\\` \\<b\\> |"
    assert made.splitlines()[6] == "| l | \\| \\| |"


def test_a_link_is_followed_on_pages_and_only_to_https():
    good = Span("vllm#1", link='https://github.com/a/b?c=1&d="2')
    bad = Span("x", link="javascript:alert(1)")
    made = DataTable((TableColumn("threads"),), (TableRow.of((good, Span(" "), bad)),))
    assert text_of(made) == "threads\nvllm#1 x\n"
    assert "[vllm#1](<https://github.com/a/b" in markdown_of(made)
    assert "javascript" not in markdown_of(made)
    ((attributes, text),) = page_of(made).of("a")
    assert (attributes["href"], text) == ('https://github.com/a/b?c=1&d="2', "vllm#1")
    assert "javascript" not in html_page(document(made))


def test_tones_and_hints_are_classes_and_titles_of_a_page():
    cells = (TableCell("a", Tone.BAD, "why <so>"), TableCell(3, hint='"'))
    made = DataTable(
        (TableColumn("x", hint="what it is"), TableColumn("n", is_number=True)), (TableRow(cells),)
    )
    page = page_of(made, Paragraph((Span("red", Tone.ALARM),)))
    assert page.of("th")[0][0] == {"scope": "col", "title": "what it is"}
    row = {"scope": "row", "class": "bad", "title": "why <so>", "data-heading": "x"}
    assert page.of("th")[2][0] == row
    assert page.of("td")[0][0] == {"class": "number", "title": '"', "data-heading": "n"}
    assert ({"class": "alarm"}, "red") in page.of("span")


def test_a_figure_is_a_picture_with_its_numbers_and_nothing_on_a_terminal():
    figure = Figure("Errors", "What it shows.", "<svg></svg>", table(("a", 1)))
    assert text_of(Paragraph("before"), figure) == "before\n"
    page = page_of(figure)
    assert len(page.of("svg")) == 1
    assert page.texts("figcaption") == ["What it shows."]
    assert markdown_of(figure).startswith("## Errors\n\nWhat it shows.\n\n| name | count |")


def hostile():
    words = (Span(HOSTILE, Tone.DIM, HOSTILE), Span(HOSTILE))
    blocks = (
        Paragraph(words),
        facts((HOSTILE, HOSTILE), is_list=True),
        facts((HOSTILE, words)),
        Facts((Fact(HOSTILE, HOSTILE),), wraps=False),
        DataTable(
            (TableColumn(HOSTILE, hint=HOSTILE),), (TableRow((TableCell(words, hint=HOSTILE),)),)
        ),
        ShellLine(HOSTILE, HOSTILE),
        Drawn((Paragraph(HOSTILE),)),
        ReportPart(HOSTILE, (Indented((Paragraph(HOSTILE),)),)),
        Figure(HOSTILE, HOSTILE, "", table((HOSTILE, HOSTILE))),
    )
    return Document(HOSTILE, HOSTILE, blocks)


@pytest.mark.parametrize("form", [plain_text, markdown, html_page])
def test_no_text_is_obeyed_in_any_form(form):
    text = form(hostile())
    assert not OBEYED & set(text)
    assert "\\x1b[2J" in text.replace("\\\\", "\\").replace("\\[", "[")
    text.encode("utf-8")


def test_no_text_is_markup_of_a_page():
    text = html_page(hostile())
    page = Page(text)
    assert not page.of("script")
    assert not page.of("a")
    assert len(page.of("main")) == 1
    assert "&amp;amp;" in text


def test_no_text_is_markup_of_markdown():
    outside = [line for line in markdown(hostile()).splitlines() if not line.startswith("    ")]
    for line in outside:
        assert not re.search(r"(?<!\\)([<`*]|\]\()", line), line
        if line.startswith("| half"):
            assert len(re.findall(r"(?<!\\)\|", line)) in {2, 3}


def test_what_another_library_draws_is_shown_as_well(capsys):
    show("[bold]plain rich markup")
    show(document(Paragraph("[bold]no markup of ours")))
    assert capsys.readouterr().out == "plain rich markup\n[bold]no markup of ours\n"


def parsed(text):
    return ET.fromstring(text)  # noqa: S314 -- it is our own


def test_junit_counts_outcomes_by_suite_and_over_all():
    outcomes = [JunitCase(name=each.value, outcome=each, message="why") for each in CaseOutcome]
    root = parsed(
        junit("it", [JunitSuite("one", tuple(outcomes)), JunitSuite("two", (outcomes[0],))])
    )
    counted = [
        tuple(suite.get(name) for name in ("tests", "failures", "errors", "skipped"))
        for suite in (root, *root)
    ]
    assert counted == [("5", "1", "1", "1"), ("4", "1", "1", "1"), ("1", "0", "0", "0")]
    assert root.get("name") == "poolproof it"
    assert [case.find("failure") is not None for case in root.iter("testcase")].count(True) == 1


def test_junit_has_message_kind_report_time_and_output_of_a_case():
    case = JunitCase(
        name="a", seconds=1.5, outcome=CaseOutcome.FAILURE, message="m", kind="leak",
        report="two\nlines", output="",
    )  # fmt: skip
    (element,) = parsed(junit("it", [JunitSuite("s", (case,))])).iter("testcase")
    assert (element.get("classname"), element.get("time")) == ("poolproof.s", "1.500")
    failure = element.find("failure")
    assert (failure.get("message"), failure.get("type"), failure.text) == (
        "m",
        "leak",
        "two\nlines",
    )
    assert element.find("system-out") is not None
    assert (
        parsed(junit("it", [JunitSuite("s", (JunitCase(name="a"),))])).find(".//system-out") is None
    )


def test_junit_survives_what_xml_cannot_hold():
    case = JunitCase(
        name=HOSTILE, outcome=CaseOutcome.ERROR, message=HOSTILE, report=HOSTILE, output=HOSTILE
    )
    text = junit(HOSTILE, [JunitSuite(HOSTILE, (case,))])
    assert not OBEYED & set(text)
    assert "<script>" not in text
    assert parsed(text).find(".//error").get("message").endswith("<script>alert(1)\\t&amp;")


def test_json_ends_with_a_line_break():
    assert json_text({"a": 1}, indent=1) == '{\n "a": 1\n}\n'
    assert json.loads(json_text({"a": [1]})) == {"a": [1]}
