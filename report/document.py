"""A report as a value: what it says, without how a terminal, a page or Markdown shows it.

Whatever makes a report returns a `Document`, a title and a verdict over blocks; `forms.py` writes
it in each form. Texts may come from a target and hold anything: every form makes them harmless, so
nobody else has to.

A terminal has a hundred columns, no links and no pictures, and its readers look at the end; a page
has room, and its readers look at the top. Where that changes what is said, and not only how it is
laid out, a block is `Narrow` or `Wide`. Markdown is shown on pages, and gets what is wide.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = [
    "BREAK",
    "Block",
    "DataTable",
    "Document",
    "Drawn",
    "DrawnStep",
    "Fact",
    "Facts",
    "Figure",
    "Gap",
    "Indented",
    "Narrow",
    "Paragraph",
    "ReportPart",
    "ShellLine",
    "Span",
    "StepRow",
    "Steps",
    "TableCell",
    "TableColumn",
    "TableRow",
    "Tone",
    "Wide",
    "Words",
    "facts",
    "lines",
    "spans_of",
    "value_words",
]


class Tone(enum.Enum):
    """How words are meant; a terminal has colours for it, a page a class, Markdown nothing."""

    PLAIN = "plain"
    STRONG = "strong"
    DIM = "dim"
    GOOD = "good"
    WARNING = "warning"
    ALARM = "alarm"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class Span:
    """A few words in one tone, and the address that they lead to, if any.

    An address is on the web (`https://`), or `#NAME`: a part of the same page.
    """

    text: str
    tone: Tone = Tone.PLAIN
    link: str = ""


BREAK = Span("\n")
"""Ends a line; where a form has none, a semicolon stands for it."""

Words = str | tuple[Span, ...]
"""A text, or a text in several tones."""


def lines(texts: Iterable[str]) -> tuple[Span, ...]:
    """Each text on a line of its own."""
    spans = [span for text in texts for span in (BREAK, Span(text))]
    return tuple(spans[1:])


def spans_of(words: Words) -> tuple[Span, ...]:
    """The parts of a text."""
    return (Span(words),) if isinstance(words, str) else words


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Words on lines of their own. `tone` is that of all of them."""

    words: Words
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True, slots=True)
class Fact:
    """A label and what there is to say under it.

    `is_joined`: where lines are few, it continues the fact before it after a comma, unlabelled.
    """

    label: str
    words: Words
    tone: Tone = Tone.PLAIN
    is_joined: bool = False


@dataclass(frozen=True, slots=True)
class Facts:
    """Labels with their texts; of equal labels in a row a terminal prints the first.

    `label_width`: the columns of the labels on a terminal, at least. `is_list`: Markdown has them
    as a list and not as a table. `wraps`: whether a terminal may break lines; those that programs
    look for stay whole.
    """

    rows: tuple[Fact, ...]
    label_width: int = 12
    is_list: bool = False
    wraps: bool = True


def facts(*rows: tuple[str, Words] | Fact, label_width: int = 12, is_list: bool = False) -> Facts:
    """Facts from pairs of label and text."""
    made = tuple(row if isinstance(row, Fact) else Fact(*row) for row in rows)
    return Facts(made, label_width, is_list)


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column: its heading, what a page says of it when it is pointed at, and how it is set.

    `wraps`: whether a narrow terminal may break its cells.
    """

    heading: str
    is_number: bool = False
    wraps: bool = True
    hint: str = ""


@dataclass(frozen=True, slots=True)
class TableCell:
    """A text, a count, or None where there is no value; `hint` as that of a column."""

    value: Words | int | None
    tone: Tone = Tone.PLAIN
    hint: str = ""


def value_words(value: Words | int | None) -> Words:
    """What is written of a cell's value: counts with a comma at the thousands."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else value


@dataclass(frozen=True, slots=True)
class TableRow:
    """The cells of a row; the first names it. `tone` is that of the whole row."""

    cells: tuple[TableCell, ...]
    tone: Tone = Tone.PLAIN

    @classmethod
    def of(cls, *values: Words | int | None, tone: Tone = Tone.PLAIN) -> TableRow:
        """A row of values without more to say of each."""
        return cls(tuple(TableCell(value) for value in values), tone)


@dataclass(frozen=True, slots=True)
class DataTable:
    """Rows under headings; `gap` are the blanks between columns on a terminal."""

    columns: tuple[TableColumn, ...]
    rows: tuple[TableRow, ...]
    gap: int = 3


@dataclass(frozen=True, slots=True)
class ShellLine:
    """A line to paste into a shell, never broken, however long; on a terminal after its label."""

    label: str
    line: str
    label_width: int = 12
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture, what it shows in a sentence, and its numbers.

    `svg` is made by us, with every text of others escaped in it. A terminal shows nothing of this.
    """

    title: str
    description: str
    svg: str
    numbers: DataTable


@dataclass(frozen=True, slots=True)
class StepRow:
    """What stands in one place after a step: a label and items, which are drawn as boxes."""

    label: str
    items: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A command and the state after it; `actual` is there where something else was found.

    `found` says in a sentence what broke.
    """

    title: str
    note: str
    rows: tuple[StepRow, ...]
    actual: tuple[StepRow, ...] | str = ()
    is_broken: bool = False
    found: str = ""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of a trace, of which a page shows one at a time, the broken one first.

    `name` tells the steps of one trace from those of others on a page. A terminal and Markdown show
    nothing of this: a table stands beside it.
    """

    name: str
    steps: tuple[DrawnStep, ...]


@dataclass(frozen=True, slots=True)
class Gap:
    """A blank line on a terminal; elsewhere blocks stand apart by themselves."""


@dataclass(frozen=True, slots=True)
class Indented:
    """Blocks that belong to what is above them."""

    blocks: tuple[Block, ...]
    by: int = 2


@dataclass(frozen=True, slots=True)
class Drawn:
    """Blocks that belong together as a terminal draws them: in Markdown a block of code."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class ReportPart:
    """Blocks under a title. `is_titled`: a terminal needs it too, since nothing below says it.

    `name`: what links on the same page call it (`Span.link`).
    """

    title: str
    blocks: tuple[Block, ...]
    is_titled: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class Narrow:
    """Only for terminals: said elsewhere, or in another way, where there is room."""

    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Wide:
    """Only where there is room."""

    blocks: tuple[Block, ...]


Block = (
    Paragraph
    | Facts
    | DataTable
    | ShellLine
    | Figure
    | Steps
    | Gap
    | Indented
    | Drawn
    | ReportPart
    | Narrow
    | Wide
)


@dataclass(frozen=True, slots=True)
class Document:
    """A report: what it is about, what follows from it in a line, and its blocks.

    Pages and Markdown put title and verdict on top. A terminal shows the blocks alone, which say
    both where its readers look for them. `is_broken`: whether the verdict is bad news.
    """

    title: str
    verdict: str
    blocks: tuple[Block, ...] = field(default=())
    is_broken: bool = False
