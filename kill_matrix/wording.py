"""How cells, rows and conclusions of a kill matrix are said, in every form alike."""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.kill_matrix.matrix import Matrix, MatrixCell, MatrixRow

__all__ = [
    "KERNELS",
    "LEGEND",
    "cell_text",
    "conclusions",
    "count_text",
    "invariants_text",
    "seconds_of",
    "steps_of",
    "verdict_text",
]

LEGEND = (
    "A number: steps until caught, the median over the seeds; yes: caught, without any step; "
    "2/3: from so many seeds; -: missed; .: the detector cannot speak of it; ?: not installed."
)
KERNELS = "Faulty kernels have a matrix of their own: poolproof kernels --faulty."


def count_text(number: float) -> str:
    """Steps, with a comma at the thousands."""
    return f"{number:,.0f}"


def cell_text(seen: MatrixCell) -> str:
    """One cell, in as few characters as say it."""
    if seen.why_not:
        return "?" if seen.is_missing else "."
    if not seen.caught:
        return "-"
    share = "" if seen.caught == seen.of else f"{seen.caught}/{seen.of}"
    if seen.steps is None:
        return share
    steps = count_text(seen.steps) if seen.steps else "yes"
    return f"{steps} {share}".strip()


def steps_of(rows: Sequence[MatrixRow], column: str) -> str:
    """The median over specimens of the median steps, for those that were caught."""
    median = _median([row.cells[column].steps for row in rows if row.cells[column].caught])
    return count_text(median) if median else "-"


def seconds_of(rows: Sequence[MatrixRow], column: str) -> str:
    """The same of the seconds."""
    median = _median([row.cells[column].seconds for row in rows if row.cells[column].caught])
    return "-" if median is None else f"{median:.2g}"


def _median(values: Sequence[float | None]) -> float | None:
    known = sorted(value for value in values if value is not None)
    return known[len(known) // 2] if known else None


def invariants_text(matrix: Matrix, row: MatrixRow) -> str:
    """Which invariants catch a specimen alone, the quickest first, each with its steps."""
    names = [column.name for column in matrix.columns if column.is_invariant]
    caught = [name for name in names if row.cells[name].caught]
    caught.sort(key=lambda name: row.cells[name].steps or float("inf"))
    return ", ".join(f"{name} {cell_text(row.cells[name])}" for name in caught) or "none alone"


def conclusions(matrix: Matrix) -> list[tuple[str, str]]:
    """What follows from the matrix, as a heading and its text each."""
    found = [
        ("missed by every detector", _ids(matrix.missed)),
        ("oddities accused", _accused(matrix)),
    ]
    names = [column.name for column in matrix.columns]
    if "certify-quick" in names:
        found.append(("not caught at quick", _not_at_quick(matrix)))
    for is_invariant, what in ((False, "search"), (True, "invariant")):
        alone = matrix.only_in(invariants=is_invariant)
        text = "; ".join(f"{name}: {_ids(rows)}" for name, rows in alone.items())
        found.append((f"found by one {what} alone", text or "none"))
    unspoken = [row for row in matrix.specimens if not row.was_searched]
    if unspoken:
        found.append(("nobody could speak of", _ids(unspoken)))
    return found


def verdict_text(matrix: Matrix) -> str:
    """The last line: how many specimens were caught, how many oddities accused."""
    searched = [row for row in matrix.specimens if row.was_searched]
    caught = len(searched) - len(matrix.missed)
    text = f"{caught} of {len(searched)} specimens are caught"
    if matrix.oddities:
        text += f", {len(matrix.accused)} of {len(matrix.oddities)} oddities accused"
    return text


def _ids(rows: Sequence[MatrixRow]) -> str:
    return ", ".join(row.id for row in rows) or "none"


def _accused(matrix: Matrix) -> str:
    said = [f"{row.id} by {', '.join(row.caught_by)}" for row in matrix.accused]
    return "; ".join(said) or "none"


def _not_at_quick(matrix: Matrix) -> str:
    """Each with what catches it instead."""
    searches = {column.name for column in matrix.columns if not column.is_invariant}
    said = []
    for row in matrix.specimens:
        quick = row.cells["certify-quick"]
        if quick.caught == quick.of:
            continue
        standard = row.cells.get("certify-standard")
        others = [name for name in row.caught_by if name in searches and name != "certify-quick"]
        instead = "standard" if standard and standard.caught else ", ".join(others[:2]) or "nothing"
        share = f" ({quick.caught}/{quick.of} seeds)" if quick.caught else ""
        said.append(f"{row.id}{share}: {instead}")
    return "; ".join(said) or "none"
