"""`poolproof prove`: the invariants hold for any number of blocks, hashes and references."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from poolproof.exploration.proof.proof_run import ProofRun

__all__ = ["prove_command"]


@click.command("prove")
@click.option(
    "--smt-dir",
    type=click.Path(path_type=Path),
    help="Write each condition to this folder as SMT-LIB, which any solver reads.",
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all results.")
@click.option(
    "--second-solver",
    type=click.Choice(["auto", "cvc5", "none"]),
    default="auto",
    show_default=True,
    help="Solver that decides each condition again; auto: cvc5 if it is installed.",
)
@click.option(
    "--timeout-s",
    type=click.FloatRange(min=0.001),
    default=10.0,
    show_default=True,
    help="Limit for each condition and solver. Undecided is a failure.",
)
@click.option("--planted", is_flag=True, help="Print the planted bugs and what each one breaks.")
def prove_command(
    *,
    smt_dir: Path | None,
    json_file: Path | None,
    second_solver: str,
    timeout_s: float,
    planted: bool,
) -> None:
    """Prove that every step preserves the invariants, for any number of blocks and references.

    What is proved is a description of the pool and of its free queue. The same run shows that the
    description does what the specification and the linked list do, at small sizes, and that the
    proof is not empty: each planted bug breaks it, every action can happen, every invariant is
    needed. It says nothing about your allocator; `poolproof certify` does.

    Exit status: 0 proved, 1 refuted, 2 not decided or a solver is missing.
    """
    if importlib.util.find_spec("z3") is None:
        _stop("prove needs the solver Z3; install it with: pip install 'poolproof[proof]'")
    has_cvc5 = importlib.util.find_spec("cvc5") is not None
    if second_solver == "cvc5" and not has_cvc5:
        _stop("the second solver is not installed; install it with: pip install cvc5")
    from poolproof.certification.progress import progress_to
    from poolproof.exploration.proof.proof_run import run_proof
    from poolproof.impl.free_queue import FreeQueue
    from poolproof.report.output_files import check_file, check_folder, write_if_possible
    from poolproof.report.prove_report import bug_report, proof_json, proof_report
    from poolproof.report.text_form import show

    if smt_dir is not None:
        check_folder(smt_dir)
    if json_file is not None:
        check_file(json_file)
    with progress_to(sys.stderr) as progress:
        progress.begin("conditions", unit="conditions")
        run = run_proof(
            timeout_s,
            FreeQueue,
            with_second_solver=has_cvc5 and second_solver != "none",
            heard=lambda _: progress.advance(1),
        )
        progress.end()
    show(proof_report(run))
    if planted:
        show(bug_report(run))
    if smt_dir is not None:
        _write_conditions(run, smt_dir)
    if json_file is not None:
        write_if_possible(json_file, proof_json(run))
    sys.exit(run.exit_status)


def _write_conditions(run: ProofRun, folder: Path) -> None:
    from poolproof.exploration.proof.proof_run import smt_file_name
    from poolproof.report.output_files import write_if_possible

    for number, found in enumerate(run.discharges, start=1):
        write_if_possible(folder / smt_file_name(number, found), found.smt_lib)
    click.echo(f"{len(run.discharges)} conditions written to {folder}; unsat means proved")


def _stop(message: str) -> NoReturn:
    click.echo(f"poolproof: {message}", err=True)
    sys.exit(2)
