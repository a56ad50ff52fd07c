"""Documents as Markdown, for a pull request or the summary page of a CI run.

Any text becomes one line in which nothing is markup. What a terminal draws becomes a block of code
that nothing in it can end: four blanks before each line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from poolproof.contract.outside import printable
from poolproof.report.document import (
    BREAK,
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
    Span,
    Steps,
    Wide,
    Words,
    spans_of,
    value_words,
)
from poolproof.report.text_form import laid_out, plain_text

__all__ = ["markdown"]

_SPECIAL = "\\|`*_<>[]"
_FIRST = re.compile(r"^(\d*)([-+#=~.)])")
"""With which a line would begin a list, a heading or a rule."""


def markdown(document: Document) -> str:
    """The document: its verdict as the heading, then what it is about."""
    heading = f"# {_line(document.verdict or document.title)}"
    about = [_line(document.title)] if document.verdict else []
    return "\n\n".join([heading, *about, *_blocks(document.blocks)]) + "\n"


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    """Each as its lines, without the blank lines between them."""
    for block in blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield _line(block.words)
    elif isinstance(block, Facts):
        yield "\n".join(_list_of(block) if block.is_list else _table_of(block))
    elif isinstance(block, DataTable):
        yield "\n".join(_table(block))
    elif isinstance(block, ShellLine):
        yield _code([f"{block.label}: {block.line}"])
    elif isinstance(block, Drawn):
        yield _code(plain_text(laid_out(*block.blocks)).splitlines())
    elif isinstance(block, ReportPart):
        yield f"## {_words(block.title)}"
        yield from _blocks(block.blocks)
    elif isinstance(block, Figure):
        yield f"## {_words(block.title)}"
        yield _line(block.description)
        yield "\n".join(_table(block.numbers))
    elif isinstance(block, Indented | Wide):
        yield from _blocks(block.blocks)
    else:
        assert isinstance(block, Gap | Narrow | Steps), block


def _table_of(block: Facts) -> Iterator[str]:
    yield from ("| | |", "|---|---|")
    for fact in block.rows:
        yield f"| {_words(fact.label)} | {_words(fact.words)} |"


def _list_of(block: Facts) -> Iterator[str]:
    for fact in block.rows:
        yield f"- {_words(fact.label)}: {_words(fact.words)}"


def _table(block: DataTable) -> Iterator[str]:
    yield _row(_words(column.heading) for column in block.columns)
    yield f"|{'|'.join('---:' if column.is_number else '---' for column in block.columns)}|"
    for row in block.rows:
        yield _row(_words(value_words(cell.value)) for cell in row.cells)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(lines: Iterable[str]) -> str:
    return "\n".join(f"    {printable(line)}" for line in lines)


def _line(words: Words) -> str:
    """Words that stand on a line of their own, where the first character can be markup as well."""
    return _FIRST.sub(r"\1\\\2", _words(words))


def _words(words: Words) -> str:
    """Text in one line, safe from Markdown's tables, links and tags."""
    return "".join(_span(span) for span in spans_of(words)).strip()


def _span(span: Span) -> str:
    if span == BREAK:
        return "; "
    text = " ".join(printable(span.text).split())
    for special in _SPECIAL:
        text = text.replace(special, f"\\{special}")
    if span.link.startswith("https://"):
        return f"[{text}](<{span.link}>)"
    # The blanks at both ends keep it apart from its neighbours.
    before = " " if span.text[:1] == " " else ""
    after = " " if span.text[-1:] == " " else ""
    return f"{before}{text}{after}"
