"""A kill matrix as JSON: one object, a line for each row, so that changes can be read as such."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from poolproof.certification.json_fields import FieldError, Fields
from poolproof.contract.errors import PoolproofError
from poolproof.kill_matrix.matrix import Column, Matrix, MatrixCell, MatrixRow

__all__ = ["MatrixFileError", "matrix_json", "matrix_of", "read_matrix"]

_FORMAT = "poolproof-kill-matrix"


class MatrixFileError(PoolproofError):
    """A file that holds no kill matrix; the message says why."""


def matrix_json(matrix: Matrix) -> str:
    """The file's text."""
    head = {
        "format": _FORMAT,
        "version": 1,
        "poolproof": matrix.version,
        "code": matrix.code,
        "python": matrix.python,
        "seeds": list(matrix.seeds),
        "exit_status": matrix.exit_status,
        "columns": [
            {
                "name": column.name,
                "what": column.what,
                "is_invariant": column.is_invariant,
                "is_made_of_others": column.is_made_of_others,
            }
            for column in matrix.columns
        ],
    }
    rows = ",\n".join(json.dumps(_row_to_json(row), separators=(",", ":")) for row in matrix.rows)
    return json.dumps(head, indent=1)[:-2] + f',\n "rows": [\n{rows}\n]}}\n'


def read_matrix(path: Path) -> Matrix:
    """The matrix in a file. Raises MatrixFileError."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise MatrixFileError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise MatrixFileError(f"{path} is not JSON: {error}") from error
    try:
        return matrix_of(value)
    except FieldError as error:
        raise MatrixFileError(
            f"{path} holds no kill matrix ({error}); `poolproof bugs --json` writes one"
        ) from error


def matrix_of(value: Any) -> Matrix:
    """The matrix in a JSON value. Raises FieldError."""
    fields = Fields(value, "the file")
    if fields.text("format") != _FORMAT:
        raise FieldError(f"its format is not {_FORMAT}")
    return Matrix(
        version=fields.text("poolproof"),
        code=fields.text("code"),
        python=fields.text("python"),
        seeds=tuple(int(seed) for seed in fields.items("seeds")),
        columns=tuple(_column_of(item) for item in fields.items("columns")),
        rows=tuple(_row_of(item) for item in fields.items("rows")),
    )


def _row_to_json(row: MatrixRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "title": row.title,
        "level": row.level,
        "is_oddity": row.is_oddity,
        "threads": list(row.threads),
        "severity": row.severity,
        "is_silent": row.is_silent,
        "cells": {name: _seen_to_json(seen) for name, seen in row.cells.items()},
    }


def _seen_to_json(seen: MatrixCell) -> dict[str, Any]:
    if seen.why_not:
        return {"why_not": seen.why_not}
    value: dict[str, Any] = {"caught": seen.caught, "of": seen.of}
    optional = {
        "steps": seen.steps,
        "seconds": seen.seconds,
        "length": seen.length,
        "invariants": list(seen.invariants) or None,
        "note": seen.note or None,
    }
    return value | {name: found for name, found in optional.items() if found is not None}


def _column_of(value: Any) -> Column:
    fields = Fields(value, "a column")
    return Column(
        fields.text("name"),
        fields.text("what"),
        is_invariant=bool(value.get("is_invariant")),
        is_made_of_others=bool(value.get("is_made_of_others")),
    )


def _row_of(value: Any) -> MatrixRow:
    fields = Fields(value, "a row")
    return MatrixRow(
        id=fields.text("id"),
        title=fields.text("title"),
        level=fields.text("level"),
        is_oddity=bool(value.get("is_oddity")),
        threads=fields.texts("threads"),
        severity=fields.text("severity"),
        is_silent=bool(value.get("is_silent")),
        cells={name: _seen_of(cell) for name, cell in fields.mapping("cells").items()},
    )


def _seen_of(value: Any) -> MatrixCell:
    fields = Fields(value, "a cell")
    if fields.has("why_not"):
        return MatrixCell(why_not=fields.text("why_not"))
    return MatrixCell(
        caught=fields.integer("caught"),
        of=fields.integer("of"),
        steps=fields.number("steps") if fields.has("steps") else None,
        seconds=fields.number("seconds") if fields.has("seconds") else None,
        length=fields.integer("length") if fields.has("length") else None,
        invariants=fields.texts("invariants") if fields.has("invariants") else (),
        note=fields.optional_text("note") or "",
    )
