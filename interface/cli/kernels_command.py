"""`poolproof kernels [TARGET]`: paged attention against dense attention, a line for each check.

The work is done in child processes; this module looks at arguments and files, and prints.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from poolproof.cli.arguments import known_kernels, require, severities
from poolproof.cli.report_options import Places, report_options

if TYPE_CHECKING:
    from poolproof.certification.verdict import Rules
    from poolproof.kernels.certification import KernelJob
    from poolproof.report.certificate_outputs import KernelOutputs

__all__ = ["certify_kernel", "is_kernel", "kernel_rules", "kernels_command", "refuse_for_kernels"]

_PATH = click.Path(path_type=Path)
_POOL = "poolproof.impl.block_pool:BlockPool"
_MOST_WORKERS = 4
_MANAGERS = "poolproof.cli.served_managers:served_managers"


@click.command("kernels")
@click.argument("target", required=False)
@click.option(
    "--depth",
    "--level",
    "depth",
    type=click.Choice(["quick", "standard", "deep"]),
    default="standard",
    show_default=True,
    help="quick: under 30 s. standard: under 2 minutes. deep: as long as it takes.",
)
@click.option(
    "--device", type=click.Choice(["cpu", "cuda"]), help="The GPU by default, if there is one."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--case", "case_file", type=_PATH, help="Run only the cases of this report (JSON).")
@click.option("--known", type=_PATH, help="TOML file of accepted findings.")
@click.option("--baseline", type=_PATH, help="Fail only on findings not in this report.")
@click.option("--fail-on", metavar="LIST", help="Severities that fail the run; all by default.")
@report_options("report")
@click.option("--picture", "picture_file", type=_PATH, help="Plot errors over bounds as SVG.")
@click.option(
    "--workers", type=click.IntRange(min=1), help="Processes; one per CPU by default, up to 4."
)
@click.option("--in-process", is_flag=True, help="Use no child process or limit; for debuggers.")
@click.option(
    "--case-timeout",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds that one example may take.",
)
@click.option("--check", "checks", multiple=True, metavar="NAME", help="Run only this check.")
@click.option("--faulty", is_flag=True, help="Run the faulty kernels instead of a target.")
def kernels_command(
    *,
    target: str | None,
    depth: str,
    device: str | None,
    seed: int,
    case_file: Path | None,
    known: Path | None,
    baseline: Path | None,
    fail_on: str | None,
    places: Places,
    picture_file: Path | None,
    workers: int | None,
    in_process: bool,
    case_timeout: float,
    checks: tuple[str, ...],
    faulty: bool,
) -> None:
    """Certify TARGET, a kernel: a built-in name or path/to/file.py:function.

    It is paged attention, or what its declaration says: a cache write, copy, swap or merge.

    Built in are paged and paged-mla (our Triton kernels), gather, gather-mla, gather-quantised,
    torch-sdpa, torch-flex, torch-flex-reused, openvino, flash-attn, flashinfer, of vLLM vllm-cpu,
    vllm-triton, vllm-triton-3d, vllm-prefix, vllm-prefix-cached, vllm-decode and vllm-mla, of
    Transformers transformers-eager and transformers-sdpa, of SGLang sglang-decode, sglang-mla,
    sglang-extend and sglang-unified; functions beside them are paged-write, paged-copy, paged-swap,
    vllm-write, vllm-merge and sglang-merge. Rows of the declaration may follow in brackets, as in
    vllm-cpu[tail=finite-values].

    Exit status: 0 holds, 1 a violation was found, 2 the run could not be carried out or concluded.
    """
    from poolproof.report.certificate_outputs import KernelOutputs
    from poolproof.report.output_files import refuse_to_overwrite

    outputs = KernelOutputs(**places, picture_file=picture_file)
    outputs.check()
    refuse_to_overwrite(outputs.paths, {"--baseline": baseline, "--known": known})
    rules = kernel_rules(fail_on, known, baseline)
    if not faulty:
        require(target, "TARGET", known_kernels())
    require_packages()
    if faulty:
        sys.exit(_run_faulty(seed, places["json_file"]))
    assert target is not None
    job = _job(
        target, depth=depth, seed=seed, workers=workers, device=device,
        case_timeout_s=case_timeout, checks=checks,
    )  # fmt: skip
    cases = [None] if case_file is None else _cases_of(case_file)
    sys.exit(
        max(run_kernels(target, job, case, rules, outputs, in_process=in_process) for case in cases)
    )


def certify_kernel(
    target: str,
    *,
    depth: str,
    seed: int,
    workers: int | None,
    rules: Rules,
    outputs: KernelOutputs,
    in_process: bool,
) -> int:
    """What `poolproof certify` does for a kernel; the exit status. Raises TargetError."""
    outputs.check()
    require_packages()
    job = _job(target, depth=depth, seed=seed, workers=workers)
    return run_kernels(target, job, None, rules, outputs, in_process=in_process)


def is_kernel(target: str) -> bool:
    """Whether a target string names a kernel: a built-in one, or a function in a file.

    The file is read and not run; allocators are classes.
    """
    from poolproof.kernels.catalogue import BUILT_INS
    from poolproof.targets.target_spec import TargetSpec

    base = TargetSpec.parse(target).base
    place, _, name = base.rpartition(":")
    if base in BUILT_INS or not place.endswith(".py"):
        return base in BUILT_INS
    try:
        module = ast.parse(Path(place).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False  # the loader says what is wrong
    return any(isinstance(item, ast.FunctionDef) and item.name == name for item in module.body)


def _job(target: str, *, depth: str, workers: int | None, **fields: Any) -> KernelJob:
    from poolproof.certification.options import usable_processors
    from poolproof.contract.depth import Depth
    from poolproof.kernels.certification import KernelJob
    from poolproof.targets.target_spec import TargetSpec

    spec = TargetSpec.parse(target)
    return KernelJob(
        target=spec.base,
        overrides=spec.rows,
        depth=Depth.named(depth),
        pool=_POOL,
        managers=_MANAGERS,
        workers=workers or min(usable_processors(), _MOST_WORKERS),
        **fields,
    )


def kernel_rules(fail_on: str | None, known: Path | None, baseline: Path | None) -> Rules:
    """What the user lets pass. Raises KnownFileError, BaselineError and usage errors."""
    from poolproof.certification.baseline import Baseline, read_kernel_baseline
    from poolproof.certification.known_findings import KnownFindings, read_known_findings
    from poolproof.certification.verdict import Rules

    return Rules(
        fail_on=severities(fail_on),
        known=read_known_findings(known) if known else KnownFindings(),
        baseline=read_kernel_baseline(baseline) if baseline else Baseline(),
    )


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
    target: str,
    job: KernelJob,
    case: dict[str, Any] | None,
    rules: Rules,
    outputs: KernelOutputs,
    *,
    in_process: bool,
) -> int:
    """Certify, judge, write the files, print; the exit status. Raises TargetError."""
    from dataclasses import replace

    from poolproof import __version__
    from poolproof.certification.kernel_certificate import KernelCertificate
    from poolproof.certification.progress import progress_to
    from poolproof.certification.verdict import failing, judge_kernel
    from poolproof.kernels import certification
    from poolproof.report.kernel_document import kernel_document
    from poolproof.report.text_form import show

    with progress_to(sys.stderr) as progress:
        run = certification.certify_kernel(replace(job, case=case), progress, in_process=in_process)
    unjudged = KernelCertificate.of(run, target, version=__version__, one_case=case is not None)
    certificate = judge_kernel(unjudged, rules)
    kept = outputs.write(certificate)
    show(kernel_document(certificate, str(kept) if kept else None))
    if case is not None:
        return int(bool(failing(certificate)))
    assert certificate.verdict is not None
    return certificate.verdict.exit_status


def _cases_of(path: Path) -> list[dict[str, Any] | None]:
    from poolproof.contract.target import TargetError

    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TargetError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise TargetError(f"{path} is not JSON: {error}") from error
    if isinstance(value, dict) and ({"sequences", "head_size"} & set(value)):
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
    from poolproof.certification.progress import progress_to
    from poolproof.contract.target import TargetError
    from poolproof.kernels.interpreter import choose_interpreter, missing_packages
    from poolproof.report.kernel_document import faulty_document
    from poolproof.report.output_files import write_file
    from poolproof.report.text_form import show

    if missing_packages():
        raise TargetError("the faulty kernels need triton: pip install 'poolproof[kernels]'")
    choose_interpreter("cpu")
    from poolproof.kernels.faulty_kernels import FAULTY_KERNELS, catch
    from poolproof.kernels.interpreter import prepare_interpreter

    prepare_interpreter()
    rows = []
    with progress_to(sys.stderr) as progress:
        progress.begin("faulty kernels", len(FAULTY_KERNELS), "kernels")
        for faulty in FAULTY_KERNELS.values():
            caught = catch(faulty, seed)
            rows.append({"id": faulty.id, "title": faulty.title, "thread": faulty.thread,
                         "checks": list(faulty.checks), "examples": caught})  # fmt: skip
            progress.advance(1)
        progress.end()
    if json_file is not None:
        write_file(json_file, json.dumps({"faulty": rows}, indent=1) + "\n")
    show(faulty_document(rows))
    return int(any(set(row["checks"]) != set(row["examples"]) for row in rows))
