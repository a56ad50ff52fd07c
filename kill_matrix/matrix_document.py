"""A kill matrix as a report and as tests: who caught what, what a detector is worth, what follows.

A terminal has a table of the searches and a line on the invariants of each row. A page has every
cell, with what it says when it is pointed at, and every public thread linked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from poolproof.kill_matrix.matrix import Column, Matrix, MatrixCell, MatrixRow
from poolproof.kill_matrix.matrix_json import matrix_json
from poolproof.kill_matrix.wording import (
    KERNELS,
    LEGEND,
    cell_text,
    conclusions,
    invariants_text,
    seconds_of,
    steps_of,
    verdict_text,
)
from poolproof.report.document import (
    Block,
    DataTable,
    Document,
    Gap,
    Narrow,
    Paragraph,
    ReportPart,
    Span,
    TableCell,
    TableColumn,
    TableRow,
    Tone,
    Wide,
    Words,
    facts,
)
from poolproof.report.forms import ReportKind
from poolproof.report.junit_form import CaseOutcome, JunitCase, JunitSuite

__all__ = ["MATRIX", "link_of", "matrix_document"]


_REPOSITORIES = {
    "ATOM": "ROCm/ATOM",
    "FastDeploy": "PaddlePaddle/FastDeploy",
    "FreeToken": "FlashML-org/FreeToken",
    "LMCache": "LMCache/LMCache",
    "MinivLLM": "Wenyueh/MinivLLM",
    "NeMo-RL": "NVIDIA-NeMo/RL",
    "TensorRT-LLM": "NVIDIA/TensorRT-LLM",
    "atlas": "Avarok/atlas",
    "dynamo": "ai-dynamo/dynamo",
    "imp": "kekzl/imp",
    "inference-sim": "inference-sim/inference-sim",
    "kvcached": "ovg-project/kvcached",
    "llm-d-inference-sim": "llm-d/llm-d-inference-sim",
    "llm-d-router": "llm-d/llm-d-router",
    "lmdeploy": "InternLM/lmdeploy",
    "mini-sglang": "sgl-project/mini-sglang",
    "mistral.rs": "EricLBuehler/mistral.rs",
    "mllm": "UbiquitousLearning/mllm",
    "model_server": "openvinotoolkit/model_server",
    "nano-vllm": "GeeeekExplorer/nano-vllm",
    "nm-vllm": "neuralmagic/nm-vllm",
    "openvino.genai": "openvinotoolkit/openvino.genai",
    "sglang": "sgl-project/sglang",
    "text-generation-inference": "huggingface/text-generation-inference",
    "tokenspeed": "lightseekorg/tokenspeed",
    "tvm": "apache/tvm",
    "vllm": "vllm-project/vllm",
    "vllm-ascend": "vllm-project/vllm-ascend",
    "vmlx": "jjang-ai/vmlx",
    "xLLM": "xLLM-AI/xllm",
}
"""By the name that specimens use. A project whose place we do not know has no line, and no link."""


def link_of(thread: str) -> str | None:
    """The address of a thread; what may follow the number, such as "(B4)", is left out."""
    named = re.match(r"(?P<project>[\w.-]+)(?P<sign>[#@])(?P<place>\w+)", thread)
    if named is None or named["project"] not in _REPOSITORIES:
        return None
    repository = f"https://github.com/{_REPOSITORIES[named['project']]}"
    # GitHub leads from /issues to /pull where the number is that of a pull request.
    return f"{repository}/{'issues' if named['sign'] == '#' else 'commit'}/{named['place']}"


def matrix_document(matrix: Matrix) -> Document:
    """The whole matrix."""
    following = conclusions(matrix)
    width = max(len(heading) for heading, _ in following)
    seeds = f"{len(matrix.seeds)} seed{'s' if len(matrix.seeds) != 1 else ''}"
    blocks: list[Block] = [
        Narrow(tuple(_narrow(matrix))),
        Wide((Paragraph(f"{LEGEND} On a page, point at a cell for more.", Tone.DIM),)),
        Wide(tuple(_sections(matrix))),
        ReportPart("detectors", (_detectors(matrix),), is_titled=False),
        Gap(),
        ReportPart("what follows", (facts(*following, label_width=width),), is_titled=False),
        Gap(),
        Paragraph(KERNELS),
        Paragraph(f"Poolproof {matrix.version}, code {matrix.code}, {matrix.python}, {seeds}"),
        Narrow((Paragraph(verdict_text(matrix), Tone.STRONG),)),
    ]
    return Document(
        "Planted bugs against what searches for them",
        verdict_text(matrix),
        tuple(blocks),
        is_broken=bool(matrix.exit_status),
    )


def _narrow(matrix: Matrix) -> Iterator[Block]:
    searches = [column for column in matrix.columns if not column.is_invariant]
    if searches:
        yield from (_searches(matrix, searches), Gap(), Paragraph(LEGEND), Gap())
    if len(searches) < len(matrix.columns):
        yield from (_invariants(matrix), Gap())


def _searches(matrix: Matrix, columns: Sequence[Column]) -> DataTable:
    names = [column.name.removeprefix("certify-") for column in columns]
    headings = (
        TableColumn("bug"),
        *(TableColumn(name, is_number=True) for name in ("trace", *names)),
    )
    rows = tuple(
        TableRow.of(
            row.id,
            "" if row.length is None else row.length,
            *(cell_text(row.cells[column.name]) for column in columns),
            tone=_tone(row),
        )
        for row in matrix.rows
    )
    return DataTable(headings, rows, gap=1)


def _tone(row: MatrixRow) -> Tone:
    if row.is_oddity:
        return Tone.BAD if row.caught_by else Tone.DIM
    return Tone.BAD if row.was_searched and not row.caught_by else Tone.PLAIN


def _invariants(matrix: Matrix) -> DataTable:
    columns = (
        TableColumn("bug"),
        TableColumn("caught by one invariant alone, after so many steps"),
    )
    rows = tuple(TableRow.of(row.id, invariants_text(matrix, row)) for row in matrix.specimens)
    return DataTable(columns, rows, gap=2)


def _detectors(matrix: Matrix) -> DataTable:
    numbers = ("caught", "of", "steps", "seconds", "accused")
    headings = (
        TableColumn("detector"),
        *(TableColumn(name, is_number=True) for name in numbers),
        TableColumn("what it is"),
    )
    rows = []
    for column in matrix.columns:
        spoken = matrix.spoken_of(column.name)
        accused = [row for row in matrix.oddities if column.name in row.caught_by]
        missing = any(row.cells[column.name].is_missing for row in matrix.rows)
        rows.append(
            TableRow.of(
                column.name,
                len(matrix.caught_in(column.name)),
                "?" if missing else len(spoken),
                steps_of(spoken, column.name),
                seconds_of(spoken, column.name),
                len(accused),
                column.what + (" (not installed)" if missing else ""),
            )
        )
    return DataTable(headings, tuple(rows), gap=2)


_ODDITIES = "oddities, which are right"


def _sections(matrix: Matrix) -> Iterator[ReportPart]:
    """Every cell of the matrix, a table for each level."""
    columns = (
        *(TableColumn(heading) for heading in ("bug", "what is wrong", "threads")),
        TableColumn("trace", is_number=True),
        *(TableColumn(column.name, is_number=True, hint=column.what) for column in matrix.columns),
    )
    for group in dict.fromkeys(map(_group, matrix.rows)):
        rows = tuple(_row(matrix, row) for row in matrix.rows if _group(row) == group)
        yield ReportPart(group, (DataTable(columns, rows),))


def _group(row: MatrixRow) -> str:
    return _ODDITIES if row.is_oddity else row.level


def _row(matrix: Matrix, row: MatrixRow) -> TableRow:
    cells = (
        TableCell(cell_text(seen), _cell_tone(row, seen), _cell_hint(column.name, seen))
        for column in matrix.columns
        for seen in (row.cells[column.name],)
    )
    length = TableCell("" if row.length is None else row.length)
    return TableRow(
        (TableCell(row.id), TableCell(row.title), TableCell(_threads(row)), length, *cells)
    )


def _threads(row: MatrixRow) -> Words:
    return tuple(
        span
        for number, thread in enumerate(row.threads)
        for span in ((Span(" "),) if number else ()) + (Span(thread, link=link_of(thread) or ""),)
    )


def _cell_tone(row: MatrixRow, seen: MatrixCell) -> Tone:
    if seen.why_not:
        return Tone.DIM
    if row.is_oddity:
        return Tone.BAD if seen.caught else Tone.DIM
    if seen.caught == seen.of:
        return Tone.GOOD
    return Tone.WARNING if seen.caught else Tone.ALARM


def _cell_hint(name: str, seen: MatrixCell) -> str:
    """What a cell says when it is pointed at."""
    if seen.why_not:
        return f"{name}: {seen.why_not}"
    said = [f"{name}: caught from {seen.caught} of {seen.of} seeds"]
    if seen.invariants:
        said.append(f"named by {', '.join(seen.invariants)}")
    if seen.seconds is not None:
        said.append(f"{seen.seconds:.3g} s")
    if seen.length is not None:
        said.append(f"shortest trace {seen.length} commands")
    return "; ".join([*said, seen.note] if seen.note else said)


def _suites(matrix: Matrix) -> Iterator[JunitSuite]:
    """A suite for each level, and one of the oddities, with a case for each row."""
    for group in dict.fromkeys(map(_group, matrix.rows)):
        rows = [row for row in matrix.rows if _group(row) == group]
        yield JunitSuite(group, tuple(map(_case, rows)))


def _case(row: MatrixRow) -> JunitCase:
    name = f"{row.id} {row.title}"
    if row.is_oddity and row.caught_by:
        message = f"is right, and accused by {', '.join(row.caught_by)}"
        return JunitCase(name=name, outcome=CaseOutcome.FAILURE, message=message)
    if not row.was_searched:
        message = "no detector could speak of it"
        return JunitCase(name=name, outcome=CaseOutcome.SKIPPED, message=message)
    if not row.is_oddity and not row.caught_by:
        return JunitCase(name=name, outcome=CaseOutcome.FAILURE, message="missed by every detector")
    caught = f"caught by {', '.join(row.caught_by)}" if row.caught_by else "accused by nobody"
    return JunitCase(name=name, output=caught)


MATRIX: ReportKind[Matrix] = ReportKind(
    document_of=matrix_document,
    json_of=matrix_json,
    name_of=lambda _: "planted bugs",
    suites_of=lambda matrix: tuple(_suites(matrix)),
)
