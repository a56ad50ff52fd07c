"""`poolproof fuzz TARGET`: runs a campaign until its budget is spent; resumable from a folder."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from poolproof.cli.arguments import target_argument, with_rows

__all__ = ["fuzz_command"]

_PATH = click.Path(path_type=Path)

USUAL_SECONDS = 60.0
"""How long a campaign runs when it is not told."""


@click.command("fuzz")
@target_argument()
@click.option("--folder", type=_PATH, help="Keep the campaign here and resume it next time.")
@click.option(
    "--merge", type=_PATH, multiple=True, metavar="OTHER", help="Take in another folder first."
)
@click.option(
    "--time",
    "seconds",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help=f"Stop after this long; {USUAL_SECONDS:g} if no budget is given, `inf` for no end.",
)
@click.option("--steps", type=click.IntRange(min=1), help="Stop after this many commands.")
@click.option(
    "--until-quiet",
    type=click.IntRange(min=1),
    metavar="STEPS",
    help="Stop when this many commands brought nothing new.",
)
@click.option(
    "--workers", type=click.IntRange(min=1, max=200), help="Processes; one per CPU by default."
)
@click.option(
    "--ray",
    "ray_address",
    metavar="ADDRESS",
    help="Run workers on a Ray cluster: HOST:PORT, or `auto` on one of its machines.",
)
@click.option(
    "--level",
    type=click.Choice(["queue", "index", "pool", "manager", "engine"]),
    help="The target's own by default.",
)
@click.option(
    "--blocks",
    type=click.IntRange(min=1, max=64),
    help="Blocks; by default 5 for a queue, 8 for a pool, up to 8 for a manager.",
)
@click.option("--hashes", type=click.IntRange(min=1, max=5), default=2, show_default=True)
@click.option(
    "--references",
    type=click.IntRange(min=1, max=16),
    default=2,
    show_default=True,
    help="Count states of a pool with up to this many references to a block.",
)
@click.option(
    "--examples",
    type=_PATH,
    metavar="DIR",
    help="Hypothesis's example database: read its tapes first, add those of findings.",
)
@click.option("--layout", metavar="NAME", help="The layout of a manager; the first by default.")
@click.option("--api", metavar="NAME", help="Which shape the class has, if it has several.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--engine",
    type=click.Choice(["novelty", "atheris"]),
    default="novelty",
    show_default=True,
    help="What makes the tapes; atheris (libFuzzer) sees inside native code.",
)
@click.option("--in-process", is_flag=True, help="Use no child processes or limits; for speed.")
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
@click.option("--json", "json_file", type=_PATH, help="Write the campaign as JSON.")
@click.option("--junit", "junit_file", type=_PATH, help="Write the campaign as JUnit XML.")
@click.option("--md", "markdown_file", type=_PATH, help="Write the campaign as Markdown.")
@click.option(
    "--html", "--report", "html_file", type=_PATH, help="Write a web page with the curves."
)
@click.option(
    "--coverage",
    is_flag=True,
    help="At the end, list the lines of the target that were never reached.",
)
@click.option("--quiet", is_flag=True, help="Show only findings and the summary.")
def fuzz_command(
    *,
    target: str,
    folder: Path | None,
    merge: tuple[Path, ...],
    seconds: float | None,
    steps: int | None,
    until_quiet: int | None,
    workers: int | None,
    ray_address: str | None,
    level: str | None,
    blocks: int | None,
    hashes: int,
    references: int,
    examples: Path | None,
    layout: str | None,
    api: str | None,
    seed: int,
    in_process: bool,
    call_timeout: float,
    memory_limit: int,
    rows: tuple[str, ...],
    json_file: Path | None,
    junit_file: Path | None,
    markdown_file: Path | None,
    html_file: Path | None,
    coverage: bool,
    engine: str,
    quiet: bool,
) -> None:
    """Drive TARGET with tapes that lead to states not seen before, and check each step.

    Exit status: 0 nothing was broken, 1 a violation was found, 2 not carried out or concluded.
    """
    from poolproof.certification.options import usable_processors
    from poolproof.cli.fuzz_target import ClusterOptions, FuzzOptions, fuzz_target
    from poolproof.contract.level import Level
    from poolproof.fuzz.coordinator import CampaignBudget
    from poolproof.fuzz.settings import CampaignSettings
    from poolproof.harness.isolation import Limits
    from poolproof.report.report_files import ReportFiles

    if merge and folder is None:
        raise click.UsageError("--merge takes folders into the one of --folder; name it")
    if ray_address is not None and in_process:
        raise click.UsageError("--ray runs the target on other machines, --in-process in none")
    if ray_address is not None and engine != "novelty":
        raise click.UsageError("--engine works on this machine alone; leave out --ray")
    if seconds is None and steps is None and until_quiet is None:
        seconds = USUAL_SECONDS
    settings = CampaignSettings(
        target=with_rows(target, rows).text,
        level=None if level is None else Level(level),
        num_blocks=blocks or 0,
        num_hashes=hashes,
        max_references=references,
        seed=seed,
        layout=layout or "",
        api=api,
    )
    options = FuzzOptions(
        folder=folder,
        merge=merge,
        examples=examples,
        workers=workers or usable_processors(),
        budget=CampaignBudget(seconds, steps, until_quiet),
        in_process=in_process,
        limits=Limits(call_timeout_s=call_timeout, memory_mib=memory_limit),
        files=ReportFiles(json_file, junit_file, markdown_file, html_file=html_file),
        quiet=quiet,
        coverage=coverage,
        engine=engine,
        cluster=ClusterOptions(ray_address, workers) if ray_address is not None else None,
    )
    sys.exit(fuzz_target(settings, options))
