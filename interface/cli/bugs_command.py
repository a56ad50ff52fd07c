"""`poolproof bugs`: runs every detector on planted bugs and shows which detector caught what."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from poolproof.cli.report_options import Places, report_options

if TYPE_CHECKING:
    from poolproof.kill_matrix.detector import Detector
    from poolproof.kill_matrix.matrix import Matrix
    from poolproof.kill_matrix.subject import MatrixSubject

__all__ = ["bugs_command"]

_PATH = click.Path(path_type=Path)
_MOST_SEEDS = 1000


@click.command("bugs")
@click.option(
    "--only",
    metavar="ID,...",
    help="Only these bugs and oddities; the name of a level, such as `engine`, means all of it.",
)
@click.option(
    "--detector",
    "detectors",
    metavar="NAME,...",
    help="Only these detectors; `invariants` means each invariant by itself.",
)
@click.option(
    "--seeds",
    type=click.IntRange(min=1, max=_MOST_SEEDS),
    default=3,
    show_default=True,
    help="Number of seeds to search from, starting at 0.",
)
@click.option(
    "--depth",
    "--level",
    "depth",
    type=click.Choice(["quick", "standard"]),
    default="standard",
    show_default=True,
    help="Include the runs of `certify` up to this depth as detectors.",
)
@click.option("--results", type=_PATH, help="Keep finished searches here and resume from them.")
@report_options("matrix")
@click.option("--show", type=_PATH, help="Do not search; show the matrix in this JSON file.")
@click.option(
    "--workers", type=click.IntRange(min=1, max=256), help="Processes; one per CPU by default."
)
def bugs_command(
    *,
    only: str | None,
    detectors: str | None,
    seeds: int,
    depth: str,
    results: Path | None,
    places: Places,
    show: Path | None,
    workers: int | None,
) -> None:
    """Plant real bugs, search for each with every detector, and print which detector caught what.

    Some rows are correct oddities, which no detector may catch. A whole run takes many minutes;
    an interrupted run resumes where it stopped if it was started with --results.

    Exit status: 0 every bug is caught and no oddity accused, 1 not so, 2 the run could not be
    carried out.
    """
    from poolproof.certification.options import usable_processors
    from poolproof.kill_matrix.detectors import DETECTORS
    from poolproof.kill_matrix.matrix_document import MATRIX, matrix_document
    from poolproof.kill_matrix.matrix_json import read_matrix
    from poolproof.kill_matrix.subject import subjects
    from poolproof.report.output_files import check_file
    from poolproof.report.report_files import ReportFiles, form_names
    from poolproof.report.text_form import show as show_text

    files = ReportFiles(**places)
    files.check()
    if results is not None:
        check_file(results)
    if show is not None:
        _refuse_beside_show({"--only": only, "--detector": detectors, "--results": results})
        matrix = read_matrix(show)
    else:
        rows = _chosen_rows(only, subjects())
        columns = _chosen_columns(detectors, depth, DETECTORS)
        matrix = _search(rows, columns, range(seeds), results, workers or usable_processors())
    files.write_report(MATRIX, matrix, form_names("matrix"))
    show_text(matrix_document(matrix))
    sys.exit(matrix.exit_status)


def _search(
    rows: Sequence[MatrixSubject],
    columns: Sequence[Detector],
    seeds: Sequence[int],
    results: Path | None,
    workers: int,
) -> Matrix:
    from poolproof.certification.progress import progress_to
    from poolproof.kill_matrix.building import ResultsFile, build_matrix

    with progress_to(sys.stderr) as progress, ResultsFile(results) as finished:
        return build_matrix(rows, columns, seeds, finished, progress=progress, workers=workers)


def _refuse_beside_show(options: dict[str, object]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise click.UsageError(
            f"{', '.join(given)}: --show searches nothing; leave one of them out"
        )


def _chosen_rows(text: str | None, known: dict[str, MatrixSubject]) -> list[MatrixSubject]:
    levels: dict[str, list[str]] = {}
    for name, row in known.items():
        levels.setdefault(row.level.value, []).append(name)
    asked = [part.strip() for part in (text or "").split(",")]
    spelled = ",".join(name for part in asked for name in levels.get(part, [part]))
    names = _names(None if text is None else spelled, known, "--only", "bug or oddity")
    return [known[name] for name in names]


def _chosen_columns(text: str | None, depth: str, known: dict[str, Detector]) -> list[Detector]:
    from poolproof.kill_matrix.detectors import INVARIANT_NAMES

    if text is None:
        left_out = {"certify-standard"} if depth == "quick" else set()
        return [detector for name, detector in known.items() if name not in left_out]
    asked = text.replace("invariants", ",".join(INVARIANT_NAMES))
    return [known[name] for name in _names(asked, known, "--detector", "detector")]


def _names(text: str | None, known: Iterable[str], option: str, what: str) -> list[str]:
    """The names that a list gives, in our own order; all names if there is no list."""
    known = list(known)
    if text is None:
        return known
    asked = [name.strip() for name in text.split(",") if name.strip()]
    for name in asked:
        if name not in known:
            raise click.BadParameter(
                f"no {what} {name!r}; known are {', '.join(known)}", param_hint=option
            )
    if not asked:
        raise click.BadParameter(f"name at least one {what}", param_hint=option)
    return [name for name in known if name in asked]
