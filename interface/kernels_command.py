"""`poolproof kernels [TARGET]`: paged attention against dense attention, a line for each check.

The work is done in child processes; this module looks at arguments and files, and prints.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from poolproof.kernels.isolation import Job
    from poolproof.kernels.report import KernelReport

__all__ = ["certify_kernel", "kernels_command", "refuse_for_kernels"]

_PATH = click.Path(path_type=Path)
_POOL = "poolproof.impl.block_pool:BlockPool"


@click.command("kernels")
@click.argument("target", default="paged")
@click.option(
    "--level",
    type=click.Choice(["quick", "standard", "deep"]),
    default="standard",
    show_default=True,
    help="quick: under 30 s. standard: under 2 minutes. deep: as long as it takes.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="The GPU where there is one.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--case", "case_file", type=_PATH, help="Run the cases of this report (JSON) alone.")
@click.option("--json", "json_file", type=_PATH, help="Write the report as JSON.")
@click.option("--picture", "picture_file", type=_PATH, help="Write errors over bounds as SVG.")
@click.option("--in-process", is_flag=True, help="No child process, no limit: for debuggers.")
@click.option(
    "--case-timeout",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds that one example may take.",
)
@click.option("--check", "checks", multiple=True, metavar="NAME", help="Run this check alone.")
@click.option("--faulty", is_flag=True, help="Run the faulty kernels in the place of a target.")
def kernels_command(
    *,
    target: str,
    level: str,
    device: str | None,
    seed: int,
    case_file: Path | None,
    json_file: Path | None,
    picture_file: Path | None,
    in_process: bool,
    case_timeout: float,
    checks: tuple[str, ...],
    faulty: bool,
) -> None:
    """Certify TARGET, a paged-attention kernel: a built-in name or path/to/file.py:function.

    Built in are paged (our Triton kernels), gather, torch-sdpa, torch-flex, torch-flex-reused,
    vllm-cpu, openvino, flash-attn, flashinfer and vllm-triton. Rows of the declaration may
    follow in brackets, as in vllm-cpu[tail=finite-values].

    Exit status: 0 holds, 1 a violation was found, 2 the run could not be carried out or concluded.
    """
    from poolproof.kernels.isolation import Job
    from poolproof.output_files import check_file
    from poolproof.targets.profile_text import split_overrides

    for path in (json_file, picture_file):
        if path is not None:
            check_file(path)
    require_packages()
    if faulty:
        sys.exit(_run_faulty(seed, json_file))
    base, overrides = split_overrides(target)
    job = Job(
        target=base,
        overrides=overrides,
        device=device,
        level=level,
        seed=seed,
        case_timeout_s=case_timeout,
        pool=_POOL,
        checks=checks,
    )
    cases = [None] if case_file is None else _cases_of(case_file)
    sys.exit(max(run_kernels(job, case, json_file, picture_file, in_process) for case in cases))


def certify_kernel(
    target: str, level: str, seed: int, json_file: Path | None, *, in_process: bool
) -> int:
    """What `poolproof certify` does for a kernel; the exit status. Raises TargetError."""
    from poolproof.kernels.isolation import Job
    from poolproof.output_files import check_file
    from poolproof.targets.profile_text import split_overrides

    if json_file is not None:
        check_file(json_file)
    require_packages()
    base, overrides = split_overrides(target)
    job = Job(target=base, overrides=overrides, level=level, seed=seed, pool=_POOL)
    return run_kernels(job, None, json_file, None, in_process)


def refuse_for_kernels(options: list[str]) -> None:
    """Options of `certify` that mean nothing for a kernel. Raises a usage error."""
    if options:
        raise click.UsageError(
            f"{', '.join(options)}: not for kernels; `poolproof kernels --help` lists what is"
        )


def require_packages() -> None:
    """Say how to get torch and triton where they are missing. Raises TargetError."""
    from poolproof.contract.target import TargetError
    from poolproof.kernels.interpreter import missing_packages

    if "torch" in missing_packages():
        raise TargetError(
            "kernels need torch and triton, which are not installed here: "
            "pip install 'poolproof[kernels]', or `make kernels` in a checkout"
        )


def run_kernels(
    job: Job,
    case: dict[str, Any] | None,
    json_file: Path | None,
    picture_file: Path | None,
    in_process: bool,
) -> int:
    """Certify, write the files, print the report; the exit status. Raises TargetError."""
    from dataclasses import replace

    from poolproof import __version__
    from poolproof.kernels.isolation import certify_in_child, certify_in_process
    from poolproof.kernels_picture import errors_picture
    from poolproof.kernels_text import kernels_text
    from poolproof.output_files import write_file
    from poolproof.progress import progress_to
    from poolproof.terminal import show

    run = certify_in_process if in_process else certify_in_child
    with progress_to(sys.stderr) as progress:
        report: KernelReport = run(replace(job, case=case), progress)
    report.poolproof_version = __version__
    if json_file is not None:
        write_file(json_file, json.dumps(report.to_json(), indent=1) + "\n")
    if picture_file is not None:
        write_file(picture_file, errors_picture(report))
    show(kernels_text(report, str(json_file) if json_file else None))
    if case is not None:
        return 1 if report.findings else 0
    return report.exit_status


def _cases_of(path: Path) -> list[dict[str, Any] | None]:
    from poolproof.contract.target import TargetError

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TargetError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise TargetError(f"{path} is not JSON: {error}") from error
    if isinstance(value, dict) and "sequences" in value:
        return [value]
    findings = value.get("findings") if isinstance(value, dict) else None
    if not isinstance(findings, list) or not all(
        isinstance(finding, dict) and "case" in finding for finding in findings
    ):
        raise TargetError(f"{path} is neither a report of `poolproof kernels` nor a case of one")
    if not findings:
        raise TargetError(f"{path} holds no finding, so there is no case to run")
    return [finding["case"] for finding in findings]


def _run_faulty(seed: int, json_file: Path | None) -> int:
    """The faulty kernels and which checks see them: 0 if all are seen, 1 if one is not."""
    from poolproof.contract.target import TargetError
    from poolproof.kernels.interpreter import choose_interpreter, missing_packages
    from poolproof.kernels_text import faulty_text
    from poolproof.output_files import write_file
    from poolproof.progress import progress_to
    from poolproof.terminal import show

    if missing_packages():
        raise TargetError("the faulty kernels need triton: pip install 'poolproof[kernels]'")
    choose_interpreter("cpu")
    from poolproof.kernels.interpreter_speed import prepare_interpreter
    from poolproof.kernels.specimens.catalogue import SPECIMENS, catch

    prepare_interpreter()
    rows = []
    with progress_to(sys.stderr) as progress:
        progress.begin("faulty kernels", len(SPECIMENS))
        for specimen in SPECIMENS.values():
            caught = catch(specimen, seed)
            rows.append({"id": specimen.id, "title": specimen.title, "thread": specimen.thread,
                         "checks": list(specimen.checks), "examples": caught})  # fmt: skip
            progress.advance(1)
        progress.end()
    if json_file is not None:
        write_file(json_file, json.dumps({"faulty": rows}, indent=1) + "\n")
    show(faulty_text(rows))
    return int(any(set(row["checks"]) != set(row["examples"]) for row in rows))
