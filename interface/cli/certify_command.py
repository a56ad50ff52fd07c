"""`poolproof certify [TARGET]`: the options, the files around a certification, the exit status.

Mistakes in arguments and files are found before the work starts.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from poolproof.cli.arguments import not_empty, severities, with_rows
from poolproof.cli.kernels_command import (
    certify_kernel,
    is_kernel,
    kernel_rules,
    refuse_for_kernels,
)
from poolproof.cli.report_options import Places, given_places, report_options
from poolproof.power.power_options import power_options, power_request

if TYPE_CHECKING:
    # The command line starts quickly: everything heavy is imported when the command runs.
    from poolproof.report.certificate_outputs import Outputs

__all__ = ["certify_command"]

_PATH = click.Path(path_type=Path)


@click.command("certify")
@click.argument("target", required=False, callback=not_empty)
@click.option(
    "--depth",
    "--level",
    "depth",
    type=click.Choice(["quick", "standard", "deep"]),
    default="standard",
    show_default=True,
    help="quick: under 30 s. standard: about 2 minutes. deep: as long as it takes.",
)
@click.option("--api", metavar="NAME", help="Which shape the class has, if it has several.")
@click.option(
    "--layout", "layouts", multiple=True, metavar="NAME", help="Run this layout of a manager only."
)
@click.option("--known", type=_PATH, help="TOML file of accepted findings.")
@click.option("--baseline", type=_PATH, help="Fail only on findings not in this certificate.")
@click.option("--fail-on", metavar="LIST", help="Severities that fail the run; all by default.")
@click.option("--keep-going", is_flag=True, help="Continue after a failure; for baselines.")
@click.option("--hardening", is_flag=True, help="Also try undefined misuse; never fails the run.")
@report_options("certificate", in_folder="all forms, traces and reports")
@click.option("--sarif", "sarif_file", type=_PATH, help="Write the findings for code scanning.")
@click.option("--badge", "badge_file", type=_PATH, help="Write the verdict as a badge (SVG).")
@click.option("--annotate", is_flag=True, help="Print findings as annotations of GitHub's log.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--workers", type=click.IntRange(min=1), help="Processes; one per CPU by default.")
@click.option("--in-process", is_flag=True, help="Use no child processes or limits; for debuggers.")
@click.option(
    "--call-timeout",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that one call of the target may take.",
)
@click.option(
    "--memory-limit",
    type=click.IntRange(min=1, max=1 << 24),
    default=2048,
    show_default=True,
    metavar="MIB",
    help="Memory of one worker beyond what importing the target uses.",
)
@click.option("--profile", "rows", multiple=True, metavar="KEY=VALUE", help="Set a profile row.")
@click.option("--infer-profile", is_flag=True, help="Find the rows under which TARGET holds.")
@click.option(
    "--patch",
    type=_PATH,
    metavar="FILE",
    help="Judge a diff of TARGET's sources: with and without.",
)
@power_options
def certify_command(
    *,
    target: str | None,
    depth: str,
    api: str | None,
    layouts: tuple[str, ...],
    known: Path | None,
    baseline: Path | None,
    fail_on: str | None,
    keep_going: bool,
    hardening: bool,
    places: Places,
    sarif_file: Path | None,
    badge_file: Path | None,
    annotate: bool,
    seed: int,
    workers: int | None,
    in_process: bool,
    call_timeout: float,
    memory_limit: int,
    rows: tuple[str, ...],
    infer_profile: bool,
    patch: Path | None,
    power: bool,
    **power_arguments: Any,
) -> None:
    """Certify TARGET: a built-in name, file.py:Class, package.module:Class or cmd:./program.

    Without TARGET: certify what [tool.poolproof] of the nearest pyproject.toml lists.

    Exit status: 0 holds, 1 a violation was found, 2 the run could not be carried out or concluded.
    With --infer-profile: 0 a profile was found under which it holds, 1 no row explains a violation.
    With --patch: 0 it breaks nothing, and repairs something if anything was found; 1 otherwise.
    """
    from poolproof.report.certificate_outputs import Outputs
    from poolproof.report.output_files import refuse_to_overwrite

    if target is None:
        from poolproof.cli.certify_project import certify_project

        sys.exit(certify_project(click.get_current_context()))
    spec = with_rows(target, rows)
    asked = power_request(
        power=power,
        **power_arguments,
        refused={"--hardening": hardening, "--in-process": in_process},
    )
    if asked is not None and _is_default("depth"):
        # Survivors cost what a whole certification costs, each of them.
        depth = "quick"
    of_allocators = {"--sarif": sarif_file, "--badge": badge_file, "--annotate": annotate}
    if patch is not None:
        unfit = {**of_allocators, "--known": known, "--baseline": baseline, "--fail-on": fail_on,
                 "--keep-going": keep_going, "--hardening": hardening, "--power": power,
                 "--in-process": in_process, "--infer-profile": infer_profile}  # fmt: skip
        _refuse_beside("--patch", [name for name, value in unfit.items() if value])
        if api == "kernel" or is_kernel(spec.text):
            raise click.UsageError(f"{target} is a kernel; apply {patch} to a checkout of it")
        sys.exit(
            _judge_patch(
                spec.text, patch, places, depth=depth, seed=seed, workers=workers, api=api,
                layouts=layouts, call_timeout_s=call_timeout, memory_mib=memory_limit,
            )
        )  # fmt: skip
    if infer_profile:
        unfit = {**given_places(places), **of_allocators, "--known": known, "--baseline": baseline,
                 "--fail-on": fail_on, "--keep-going": keep_going, "--hardening": hardening,
                 "--power": power}  # fmt: skip
        _refuse_with_inference(spec.text, api, [name for name, value in unfit.items() if value])
        sys.exit(
            _infer_profile(
                spec.text, depth="quick" if _is_default("depth") else depth, seed=seed,
                workers=workers, api=api, layouts=layouts, in_process=in_process,
                call_timeout_s=call_timeout, memory_mib=memory_limit,
            )
        )  # fmt: skip
    if api == "kernel" or is_kernel(spec.text):
        refused = {**of_allocators, "--hardening": hardening, "--layout": layouts,
                   "--power": power, "--keep-going": keep_going}  # fmt: skip
        passing = {"known": known, "baseline": baseline}
        sys.exit(
            _certify_kernel(
                spec.text, [name for name, value in refused.items() if value], places, passing,
                fail_on=fail_on, depth=depth, seed=seed, workers=workers, in_process=in_process,
            )
        )  # fmt: skip
    outputs = Outputs(**places, sarif_file=sarif_file, picture_file=badge_file)
    outputs.check()
    refuse_to_overwrite(outputs.paths, {"--baseline": baseline, "--known": known})
    arguments: dict[str, Any] = {
        "fail_on": severities(fail_on), "known": known, "baseline": baseline, "depth": depth,
        "seed": seed, "workers": workers, "api": api, "layouts": layouts,
        "in_process": in_process, "keep_going": keep_going, "call_timeout_s": call_timeout,
        "memory_mib": memory_limit,
    }  # fmt: skip
    if asked is not None:
        from poolproof.api import Asked
        from poolproof.power.power_run import certify_with_power, refuse_programs

        refuse_programs(spec.text)
        run = Asked.of(spec.text, profile=None, hardening=False, **arguments)
        sys.exit(certify_with_power(run.load, run.options, asked, run.rules, outputs))
    arguments["hardening"] = hardening
    sys.exit(_certify(spec.text, arguments, outputs, annotate=annotate))


def _is_default(name: str) -> bool:
    """Whether the user left out an option."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.DEFAULT


def _refuse_with_inference(target: str, api: str | None, unfit: list[str]) -> None:
    """Raises a usage error for what does not go with --infer-profile."""
    _refuse_beside("--infer-profile", unfit)
    if api == "kernel" or is_kernel(target):
        raise click.UsageError(
            f"{target} is a kernel and has no profile; leave out --infer-profile"
        )


def _refuse_beside(option: str, unfit: list[str]) -> None:
    """Raises a usage error for what does not go with an option."""
    for name in unfit:
        raise click.UsageError(f"{name} does not go with {option}; leave it out")


def _judge_patch(target: str, patch: Path, places: Places, **options: Any) -> int:
    from poolproof.api import judge_patch
    from poolproof.certification.progress import progress_to
    from poolproof.report.output_files import refuse_to_overwrite
    from poolproof.report.repair_document import repair_document
    from poolproof.report.repair_outputs import RepairOutputs
    from poolproof.report.text_form import show

    outputs = RepairOutputs(**places)
    outputs.check()
    refuse_to_overwrite(outputs.singles, {"--patch": patch})
    with progress_to(sys.stderr) as progress:
        report = judge_patch(target, patch, progress=progress, **options)
    show(repair_document(report, outputs.write(report)))
    return report.exit_status


def _infer_profile(target: str, **options: Any) -> int:
    from poolproof.api import infer_profile
    from poolproof.certification.progress import progress_to
    from poolproof.report.inferred_profile import inferred_document
    from poolproof.report.text_form import show

    with progress_to(sys.stderr) as progress:
        found = infer_profile(target, progress=progress, **options)
    show(inferred_document(found))
    return found.exit_status


def _certify_kernel(
    target: str,
    refused: list[str],
    places: Places,
    passing: dict[str, Path | None],
    *,
    fail_on: str | None,
    **options: Any,
) -> int:
    from poolproof.report.certificate_outputs import KernelOutputs
    from poolproof.report.output_files import refuse_to_overwrite

    refuse_for_kernels(refused)
    outputs = KernelOutputs(**places)
    refuse_to_overwrite(outputs.paths, {f"--{name}": path for name, path in passing.items()})
    rules = kernel_rules(fail_on, **passing)
    return certify_kernel(target, rules=rules, outputs=outputs, **options)


def _certify(target: str, arguments: dict[str, Any], outputs: Outputs, *, annotate: bool) -> int:
    from poolproof.api import certify
    from poolproof.certification.certify import InterruptedCertification
    from poolproof.certification.progress import progress_to
    from poolproof.report.certificate_document import certificate_document
    from poolproof.report.text_form import show

    with progress_to(sys.stderr) as progress:
        try:
            certificate = certify(target, progress=progress, **arguments)
        except InterruptedCertification as interrupt:
            certificate = interrupt.certificate
    show(certificate_document(certificate, outputs.write(certificate)))
    if annotate:
        from poolproof.report.code_scanning import annotation_lines

        for line in annotation_lines(certificate):
            click.echo(line)
    assert certificate.verdict is not None
    return certificate.verdict.exit_status
