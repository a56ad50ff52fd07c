"""`poolproof explain NAME|FINDING`: what a name in a report means, and what usually causes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from poolproof.report.document import Block
    from poolproof.report.glossary import GlossaryEntry

__all__ = ["explain_command"]


@click.command("explain")
@click.argument("name", required=False)
@click.option("--more", is_flag=True, help="Also show the section of the manual.")
def explain_command(*, name: str | None, more: bool) -> None:
    """Explain NAME, or the finding of that fingerprint or trace file.

    NAME is an invariant (IDX), a severity, a level, a depth, a verdict, a row of a profile
    (eviction), one of its values (hits=sound, sound) or a word of a report (ruler). Without NAME:
    list them all.
    """
    from poolproof.report.document import Document
    from poolproof.report.glossary import meanings_of
    from poolproof.report.text_form import show

    drawn: list[Block] = []
    entries: tuple[GlossaryEntry, ...] = ()
    if name is None:
        drawn = _listed()
    elif _is_finding(name):
        drawn, entries = _finding(name)
    else:
        entries = meanings_of(name)
        if not entries:
            raise click.UsageError(_unknown(name))
    show(Document("", "", (*drawn, *(block for entry in entries for block in _entry(entry)))))
    if more:
        _show_manual(entries)


def _is_finding(name: str) -> bool:
    return bool(re.fullmatch(r"[fpr]-[0-9a-f]{1,8}", name)) or Path(name).suffix == ".jsonl"


def _unknown(name: str) -> str:
    from poolproof.report.glossary import nearest_names

    if not name.strip():
        return "NAME is empty (is a variable unset?)"
    close = nearest_names(name)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"there is nothing called {name!r}; {hint}`poolproof explain` lists all names"


def _finding(name: str) -> tuple[list[Block], tuple[GlossaryEntry, ...]]:
    """The finding, and the entries of its invariant and its severity."""
    from poolproof.report.document import Gap, Paragraph
    from poolproof.report.finding_report import trace_report
    from poolproof.report.glossary import meanings_of
    from poolproof.report.trace_files import find_trace

    _, trace = find_trace(name)
    drawn: list[Block] = [*trace_report(trace).blocks, Gap()]
    if trace.violation is None:
        drawn.append(Paragraph("the trace records no violation; `poolproof replay` looks anew"))
        return drawn, ()
    words = (trace.violation.invariant, trace.violation.severity.value)
    return drawn, tuple(entry for word in words for entry in meanings_of(word))


def _show_manual(entries: tuple[GlossaryEntry, ...]) -> None:
    """The sections of the manual, as they stand there: their lines are broken already."""
    from poolproof.report.manual import manual_section

    for place in dict.fromkeys(entry.page for entry in entries if entry.page):
        section = manual_section(place)
        if section is not None:
            click.echo(section)


def _entry(entry: GlossaryEntry) -> list[Block]:
    from poolproof.report.document import Fact, Facts, Gap, Indented, Paragraph, Span, Tone

    rows = [Fact("means", entry.meaning)]
    if entry.causes:
        rows.append(Fact("usually", entry.causes))
    rows += [Fact("values", f"{value}: {cost}") for value, cost in entry.values]
    if entry.page:
        rows.append(Fact("more", f"docs/{entry.page}"))
    title = (Span(entry.name, Tone.STRONG), Span(f"  {_KIND_WORDS[entry.kind]}", Tone.DIM))
    return [Paragraph(title), Indented((Facts(tuple(rows), label_width=8),)), Gap()]


_KIND_WORDS = {
    "invariant": "invariant",
    "severity": "severity",
    "level": "level: what is driven",
    "depth": "depth: how much is done",
    "verdict": "verdict",
    "row": "row of a profile",
    "word": "",
}


def _listed() -> list[Block]:
    from poolproof.report.document import Fact, Facts, Gap, Paragraph
    from poolproof.report.glossary import GLOSSARY, KINDS

    rows = tuple(
        Fact(title, ", ".join(entry.name for entry in GLOSSARY if entry.kind == kind))
        for kind, title in KINDS.items()
    )
    return [
        Facts(rows, label_width=18),
        Gap(),
        Paragraph("`poolproof explain NAME` says what one means, `--more` shows the manual"),
    ]
