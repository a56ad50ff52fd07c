"""Documents as web pages: no script, no network, safe to attach to an issue.

Every text is escaped here, once; only pictures are written as they are, and they are ours.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator

from poolproof import __version__
from poolproof.contract.outside import printable
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Drawn,
    DrawnStep,
    Facts,
    Figure,
    Gap,
    Indented,
    Narrow,
    Paragraph,
    ReportPart,
    ShellLine,
    StepRow,
    Steps,
    TableCell,
    TableColumn,
    Tone,
    Wide,
    Words,
    spans_of,
    value_words,
)
from poolproof.report.svg_chart import STYLE

__all__ = ["html_page"]

_STYLE = """\
body {
  font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem;
  color: #1a1a1a; background: #fff;
}
h1 { font-size: 1.3rem; margin: 0 0 .3rem; } code { overflow-wrap: anywhere; }
.verdict { font-size: 1.15rem; font-weight: bold; } h2:target { background: #fff3c4; }
h2 { font-size: 1.05rem; margin: 2rem 0 .3rem; }
p { margin: .4rem 0; } .dim { color: #5c5c5c; } .strong { font-weight: bold; }
.good { color: #14532d; } .warning { color: #7a4d00; } .alarm, .bad { color: #8c1d18; }
.bad { font-weight: bold; }
.broken { border-left: 4px solid #b3261e; padding-left: .8rem; }
.scroll { overflow-x: auto; margin: .6rem 0; } .indented { margin-left: 1.5rem; }
figure { margin: 0; } svg { width: 100%; min-width: 36rem; height: auto; }
table { border-collapse: collapse; font: 13px/1.4 ui-monospace, monospace; }
th, td {
  text-align: left; vertical-align: top; padding: .2rem .8rem .2rem .4rem;
  border-bottom: 1px solid #e4e4e4;
}
tbody th { font-weight: normal; } .number { text-align: right; white-space: nowrap; }
td.good, tr.good > * { background: #e6f4ea; } td.warning { background: #fff3c4; }
td.alarm { background: #fdecea; } td.bad, tr.bad > * { background: #fdecea; font-weight: bold; }
dl { display: grid; grid-template-columns: max-content auto; gap: .1rem 1rem; }
dd { margin: 0; overflow-wrap: anywhere; } summary { cursor: pointer; }
.steps { border: 1px solid #e4e4e4; border-radius: .4rem; margin: .8rem 0; min-width: 0; }
.steps input { width: 1.1rem; height: 1.1rem; margin: .15rem; accent-color: #1a5fb4; }
.steps input.bad { accent-color: #b3261e; } .frame { display: none; }
h3 { font-size: .9rem; margin: 0; }
.beside { display: flex; flex-wrap: wrap; gap: 1rem; } .state { flex: 1 1 18rem; min-width: 0; }
.row { display: flex; gap: .6rem; margin: .3rem 0; } .row > span:first-child { flex: 0 0 5.5rem; }
.row ol { display: flex; flex-wrap: wrap; gap: .25rem; list-style: none; margin: 0; padding: 0; }
.row li {
  border: 1px solid #9a9a9a; border-radius: .2rem; padding: 0 .4rem;
  font: 13px/1.6 ui-monospace, monospace; overflow-wrap: anywhere;
}
.row li.strong { background: #fff3c4; border-color: #7a4d00; }
@media (max-width: 30rem) {
  body { margin: .8rem auto; padding: 0 .6rem; } .indented { margin-left: 0; }
  dl { display: block; }
  .row { display: block; } .row > span:first-child { margin-right: .6rem; }
  table, tbody, tr { display: block; } thead { display: none; }
  tr { border-bottom: 1px solid #9a9a9a; padding: .3rem 0; }
  th, td { display: inline-block; border: 0; padding: 0 .3rem; overflow-wrap: anywhere; }
  td::before, th::before { content: attr(data-heading) " "; color: #5c5c5c; font-weight: normal; }
  .number { text-align: left; }
}"""

_DARK = """\
@media (prefers-color-scheme: dark) {
  body { background: #16181b; color: #e6e6e6; } h2:target { background: #4a4014; }
  .dim { color: #a8a8a8; } a { color: #8ab4f8; }
  .good { color: #a7e3b4; } .warning { color: #f2d27a; } .alarm, .bad { color: #ffb4ab; }
  th, td { border-color: #33373c; } .broken { border-color: #ff8a80; }
  td.good, tr.good > * { background: #17331f; } td.warning { background: #4a4014; }
  td.alarm, td.bad, tr.bad > * { background: #4a1c19; }
  td::before, th::before { color: #a8a8a8; }
  .steps { border-color: #33373c; } .row li.strong { background: #4a4014; border-color: #f2d27a; }
}"""


def html_page(document: Document) -> str:
    """The whole page, with its verdict on top."""
    verdict = f"{document.verdict[:1].upper()}{document.verdict[1:]}."
    broken = " broken bad" if document.is_broken else ""
    return "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{_escaped(document.title)}</title>",
        f"<style>\n{_STYLE}\n{STYLE}\n{_DARK}\n</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{_escaped(document.title)}</h1>",
        *([f'<p class="verdict{broken}"><strong>{_escaped(verdict)}</strong></p>']
          if document.verdict else []),
        *_blocks(document.blocks),
        f'<p class="dim">Poolproof {_escaped(__version__)}</p>',
        "</main>",
        "</body>",
        "</html>",
        "",
    ])  # fmt: skip


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        yield from _block(block)


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Paragraph):
        yield f"<p{_class(block.tone)}>{_words(block.words)}</p>"
    elif isinstance(block, Facts):
        yield from _facts(block)
    elif isinstance(block, DataTable):
        yield from _table(block)
    elif isinstance(block, ShellLine):
        label = _escaped(block.label)
        yield f'<p><span class="dim">{label}</span> <code>{_escaped(block.line)}</code></p>'
    elif isinstance(block, ReportPart):
        name = f' id="{_escaped(block.name)}"' if block.name else ""
        yield f"<h2{name}>{_escaped(block.title)}</h2>"
        yield from _blocks(block.blocks)
    elif isinstance(block, Figure):
        yield from _figure(block)
    elif isinstance(block, Steps):
        yield from _steps(block)
    elif isinstance(block, Indented):
        yield '<div class="indented">'
        yield from _blocks(block.blocks)
        yield "</div>"
    elif isinstance(block, Drawn | Wide):
        yield from _blocks(block.blocks)
    else:
        assert isinstance(block, Gap | Narrow), block


def _facts(block: Facts) -> Iterator[str]:
    yield "<dl>"
    for fact in block.rows:
        yield (
            f'<dt class="dim">{_escaped(fact.label)}</dt>'
            f"<dd{_class(fact.tone)}>{_words(fact.words)}</dd>"
        )
    yield "</dl>"


def _table(block: DataTable) -> Iterator[str]:
    headings = "".join(
        f'<th scope="col"{_class(number=column.is_number)}{_title(column.hint)}>'
        f"{_escaped(column.heading)}</th>"
        for column in block.columns
    )
    yield f'<div class="scroll">\n<table>\n<thead><tr>{headings}</tr></thead>\n<tbody>'
    for row in block.rows:
        cells = "".join(
            _cell(cell, column, is_first=not place)
            for place, (cell, column) in enumerate(zip(row.cells, block.columns, strict=True))
        )
        yield f"<tr{_class(row.tone)}>{cells}</tr>"
    yield "</tbody>\n</table>\n</div>"


def _cell(cell: TableCell, column: TableColumn, *, is_first: bool) -> str:
    words = _words(value_words(cell.value))
    about = f"{_class(cell.tone, number=column.is_number)}{_title(cell.hint)}"
    # On a narrow screen a cell stands below the one before it, with its heading in front.
    about += f' data-heading="{_escaped(column.heading)}"'
    return f'<th scope="row"{about}>{words}</th>' if is_first else f"<td{about}>{words}</td>"


def _figure(block: Figure) -> Iterator[str]:
    yield f"<figure>\n<h2>{_escaped(block.title)}</h2>"
    yield f'<div class="scroll">{block.svg}</div>'
    yield f'<figcaption class="dim">{_escaped(block.description)}</figcaption>'
    yield "<details>\n<summary>The numbers</summary>"
    yield from _table(block.numbers)
    yield "</details>\n</figure>"


def _steps(block: Steps) -> Iterator[str]:
    """A track of radio buttons, over which arrow keys go, and below it the step that is chosen.

    No script: the style sheet shows what belongs to the chosen button.
    """
    name = _escaped(block.name)
    chosen = next((n for n, step in enumerate(block.steps) if step.is_broken), 0)
    show = ", ".join(
        f"#{name}-{number}:checked ~ .frames > .frame:nth-child({number + 1})"
        for number in range(len(block.steps))
    )
    yield f"<style>{show} {{ display: block; }}</style>"
    yield '<fieldset class="steps"><legend class="dim">Step by step: arrow keys or a click</legend>'
    for number, step in enumerate(block.steps):
        label = _escaped(f"step {number}: {step.title}")
        yield (
            f'<input type="radio" name="{name}" id="{name}-{number}" aria-label="{label}" '
            f'title="{label}"{_class(Tone.BAD if step.is_broken else Tone.PLAIN)}'
            f"{' checked' if number == chosen else ''}>"
        )
    yield '<div class="frames">'
    for number, step in enumerate(block.steps):
        yield from _frame(number, step)
    yield "</div></fieldset>"


def _frame(number: int, step: DrawnStep) -> Iterator[str]:
    broken = " broken" if step.is_broken else ""
    note = f' <span class="dim">{_escaped(step.note)}</span>' if step.note else ""
    yield f'<div class="frame{broken}"><p>{number}. <code>{_escaped(step.title)}</code>{note}</p>'
    if step.found:
        yield f"<p>{_escaped(step.found)}</p>"
    yield '<div class="beside">'
    yield from _state("expected" if step.actual else "", step.rows)
    if isinstance(step.actual, str):
        yield f'<div class="state"><h3>actual</h3><p>{_escaped(step.actual)}</p></div>'
    elif step.actual:
        yield from _state("actual", step.actual)
    yield "</div></div>"


def _state(title: str, rows: tuple[StepRow, ...]) -> Iterator[str]:
    yield f'<div class="state">{f"<h3>{title}</h3>" if title else ""}'
    for row in rows:
        boxes = "".join(f"<li{_class(item.tone)}>{_escaped(item.text)}</li>" for item in row.items)
        boxes = f"<ol>{boxes}</ol>" if boxes else '<span class="dim">nothing</span>'
        yield f'<div class="row"><span class="dim">{_escaped(row.label)}</span>{boxes}</div>'
    yield "</div>"


def _words(words: Words) -> str:
    parts = []
    for span in spans_of(words):
        text = _escaped(span.text).replace("\n", "<br>")
        if span.link.startswith(("https://", "#")):
            text = f'<a href="{_escaped(span.link)}">{text}</a>'
        parts.append(text if span.tone is Tone.PLAIN else f"<span{_class(span.tone)}>{text}</span>")
    return "".join(parts)


def _class(tone: Tone = Tone.PLAIN, *, number: bool = False) -> str:
    names = [tone.value] * (tone is not Tone.PLAIN) + ["number"] * number
    return f' class="{" ".join(names)}"' if names else ""


def _title(hint: str) -> str:
    return f' title="{_escaped(hint)}"' if hint else ""


def _escaped(text: str) -> str:
    return html.escape(printable(text), quote=True)
