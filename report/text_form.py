"""Documents as text: in colours on a terminal, and plain, in a hundred columns, elsewhere."""

from __future__ import annotations

import sys

import click
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from poolproof.contract.outside import printable
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Drawn,
    Facts,
    Figure,
    Gap,
    Indented,
    Narrow,
    Paragraph,
    ReportPart,
    ShellLine,
    Steps,
    Tone,
    Wide,
    Words,
    spans_of,
    value_words,
)

__all__ = ["PLAIN_WIDTH", "laid_out", "plain_text", "show"]

PLAIN_WIDTH = 100
"""Columns where the output is no terminal."""

_STYLES = {
    Tone.PLAIN: "",
    Tone.STRONG: "bold",
    Tone.DIM: "dim",
    Tone.GOOD: "green",
    Tone.WARNING: "yellow",
    Tone.ALARM: "red",
    Tone.BAD: "bold red",
}


def show(content: Document | RenderableType) -> None:
    """Print a document, or anything that rich can print, as suits where standard output goes."""
    if sys.stdout.isatty():
        Console(highlight=False).print(_renderable(content), crop=False)
    else:
        click.echo(plain_text(content), nl=False)


def plain_text(content: Document | RenderableType, width: int = PLAIN_WIDTH) -> str:
    """Text for a file: no colours or trailing blanks, `width` columns except for shell lines."""
    console = Console(
        width=width, color_system=None, force_terminal=False, _environ={}, highlight=False
    )
    with console.capture() as captured:
        console.print(_renderable(content), crop=False)
    lines = (line.rstrip() for line in captured.get().splitlines())
    return "\n".join(lines) + "\n"


def laid_out(*blocks: Block) -> RenderableType:
    """Blocks, to be printed by rich."""
    return Group(*(_laid_out(block) for block in blocks))


def _renderable(content: Document | RenderableType) -> RenderableType:
    return laid_out(*content.blocks) if isinstance(content, Document) else content


def _laid_out(block: Block) -> RenderableType:
    if isinstance(block, Paragraph):
        return _text(block.words, block.tone)
    if isinstance(block, Facts):
        return _facts(block)
    if isinstance(block, DataTable):
        return _table(block)
    if isinstance(block, ShellLine):
        return _command(block)
    if isinstance(block, Gap):
        return Text()
    if isinstance(block, Indented):
        return Padding(laid_out(*block.blocks), (0, block.by))
    if isinstance(block, ReportPart):
        title = [Paragraph(block.title, Tone.STRONG)] if block.is_titled else []
        return laid_out(*title, *block.blocks)
    if isinstance(block, Drawn | Narrow):
        return laid_out(*block.blocks)
    assert isinstance(block, Wide | Figure | Steps), block
    return Group()


def _text(words: Words, tone: Tone = Tone.PLAIN) -> Text:
    text = Text(style=_STYLES[tone])
    for span in spans_of(words):
        text.append(printable(span.text), style=_STYLES[span.tone])
    return text


def _facts(block: Facts) -> RenderableType:
    if not block.wraps:
        return Group(*(_line(fact.label, fact.words, block.label_width) for fact in block.rows))
    grid = Grid(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True, min_width=block.label_width)
    grid.add_column(overflow="fold")
    last = ""
    rows: list[tuple[str, Text]] = []
    for fact in block.rows:
        if fact.is_joined and rows:
            rows[-1][1].append(", ").append_text(_text(fact.words, fact.tone))
            continue
        rows.append((fact.label if fact.label != last else "", _text(fact.words, fact.tone)))
        last = fact.label
    for label, text in rows:
        grid.add_row(Text(printable(label)), text)
    return grid


def _line(label: str, words: Words, label_width: int, indent: int = 0) -> Text:
    """A label and its words in one line, which is never broken."""
    line = Text(" " * indent, no_wrap=True, overflow="ignore")
    line.append(printable(label).ljust(label_width), style="dim")
    return line.append("  ").append_text(_text(words))


def _command(block: ShellLine) -> Text:
    return _line(block.label, block.line, block.label_width, block.indent)


def _table(block: DataTable) -> Grid:
    grid = Grid(box=None, pad_edge=False, padding=(0, block.gap, 0, 0), header_style="dim")
    for column in block.columns:
        grid.add_column(
            Text(printable(column.heading)),
            justify="right" if column.is_number else "left",
            no_wrap=not column.wraps,
            overflow="fold",
        )
    for row in block.rows:
        cells = (_text(value_words(cell.value), cell.tone) for cell in row.cells)
        grid.add_row(*cells, style=_STYLES[row.tone])
    return grid
