"""Runs a campaign on this machine: isolation, folder, workers, coordinator, findings as files.

With `--ray` the workers are on the machines of a cluster. Files that a target string names are
looked for where the command was started, on each machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from poolproof.certification.consequence import read_name
from poolproof.certification.fuzz_examiner import TargetExaminer
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace, write_trace
from poolproof.fuzz.atheris_driver import is_installed, work_with_atheris
from poolproof.fuzz.cluster.host import HostSetup
from poolproof.fuzz.cluster.ray_workers import RayWorkers, check_reachable
from poolproof.fuzz.code_coverage import check_coverage, coverage_of
from poolproof.fuzz.coordinator import Campaign, CampaignBudget
from poolproof.fuzz.coverage_record import CodeCoverage
from poolproof.fuzz.example_database import export_tapes, import_tapes, key_of
from poolproof.fuzz.findings import CampaignFinding, Pending, trace_of, waiting_line_of
from poolproof.fuzz.folder import CampaignFolder, FolderError, merge_folder
from poolproof.fuzz.merge import CampaignState
from poolproof.fuzz.messages import CorpusTape
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.status import CampaignStatus
from poolproof.fuzz.survey import Survey, settled, survey
from poolproof.fuzz.workers import InProcessWorkers, LocalWorkers, Workers
from poolproof.harness.isolation import (
    Executor,
    Finished,
    ImporterError,
    InProcess,
    Isolation,
    Limits,
    raise_if_ours,
)
from poolproof.report.campaign_display import Display, display_to
from poolproof.report.campaign_document import CAMPAIGN, session_document
from poolproof.report.campaign_lines import finding_text, waiting_text
from poolproof.report.campaign_record import record_in
from poolproof.report.campaign_words import Allowance
from poolproof.report.report_files import ReportFiles, form_names
from poolproof.report.text_form import plain_text
from poolproof.report.trace_files import DEFAULT_FOLDER
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

__all__ = ["ClusterOptions", "FuzzOptions", "atheris_workers", "check_atheris", "fuzz_target"]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """The address of a Ray cluster, and how many workers; None for one per CPU."""

    address: str
    num_workers: int | None


def cluster_workers(
    settings: CampaignSettings, limits: Limits, options: ClusterOptions, say: Callable[[str], None]
) -> RayWorkers:
    """Workers on the machines of the cluster. Raises ClusterError."""
    setup = HostSetup(
        partial(load_target, settings.target, api=settings.api),
        limits,
        os.getcwd(),  # noqa: PTH109 -- a string that another machine may not have
    )
    return RayWorkers(options.address, setup, options.num_workers, say)


@dataclass(frozen=True, slots=True)
class FuzzOptions:
    """How a session is run; what it is about is in `CampaignSettings`."""

    folder: Path | None
    merge: tuple[Path, ...]
    examples: Path | None
    workers: int
    budget: CampaignBudget
    in_process: bool
    limits: Limits
    files: ReportFiles = field(default_factory=ReportFiles)
    quiet: bool = False
    coverage: bool = False
    engine: str = "novelty"
    cluster: ClusterOptions | None = None


def fuzz_target(asked: CampaignSettings, options: FuzzOptions) -> int:
    """Run a session of the campaign, print what it found, and give the exit status.

    Raises TargetError, FolderError, OutputError, ClusterError.
    """
    options.files.check()
    if options.cluster is not None:
        check_reachable(options.cluster.address)
    if options.coverage:
        check_coverage()
    if options.engine == ATHERIS:
        check_atheris(in_process=options.in_process)

    def load() -> Target:
        if options.engine == ATHERIS:
            # Before the target: its native code refers to what Atheris brings.
            check_atheris()
        return load_target(asked.target, api=asked.api)

    alone = options.in_process or not Isolation.is_available
    executor: Isolation[Target] | InProcess[Target]
    executor = InProcess(load) if alone else Isolation(load, options.limits)
    try:
        with ExitStack() as stack:
            stack.enter_context(executor)
            about = _surveyed(executor, asked)
            folder = stack.enter_context(CampaignFolder(options.folder, about.settings))
            workers = _workers(executor, about.settings, options)
            stack.callback(workers.close)
            examiner = TargetExaminer(executor, about.settings)
            measure = partial(coverage_of, executor, about.settings)
            return _run(about, options, folder, workers, examiner, measure=measure)
    except ImporterError as error:
        raise error.as_known() from error


def _workers(
    executor: Isolation[Target] | InProcess[Target],
    settings: CampaignSettings,
    options: FuzzOptions,
) -> Workers:
    if options.cluster is not None:
        say = partial(click.echo, err=True)
        return cluster_workers(settings, options.limits, options.cluster, say)
    if isinstance(executor, InProcess):
        return InProcessWorkers(executor)
    if options.engine == ATHERIS:
        return atheris_workers(executor, options.workers, options.folder)
    return LocalWorkers(executor, options.workers)


def _surveyed(executor: Executor[Target], asked: CampaignSettings) -> Survey:
    """What the campaign is about, also of a target that cannot even be built."""
    (ended,) = executor.map(survey, [asked])
    outcome = raise_if_ours(ended)
    if isinstance(outcome, Finished):
        return outcome.value
    # Building it costs the process: the first run will say how.
    settings = settled(asked, asked.level or Level.POOL)
    return Survey(settings, None, f"{settings.num_blocks} blocks")


def _run(
    about: Survey,
    options: FuzzOptions,
    folder: CampaignFolder,
    workers: Workers,
    examiner: TargetExaminer,
    *,
    measure: Callable[[CampaignState], CodeCoverage],
) -> int:
    settings = about.settings
    for path in options.merge:
        status = folder.status() or CampaignStatus(
            target=settings.target,
            level=settings.driven_level,
            scope=about.scope,
            activity="merging",
        )
        merged = merge_folder(folder, settings, status, path)
        click.echo(
            f"merged     {path}: {merged.num_states:,} states, {merged.num_tapes:,} tapes and "
            f"{merged.num_findings:,} findings were new"
        )
        for sentence in merged.damage.sentences:
            click.echo(f"damaged    {path}: {sentence}", err=True)
        folder.damage.failures |= merged.damage.failures
    imported = _imported(options.examples, settings)
    earlier = folder.findings()
    for finding in earlier:
        click.echo(f"known      {finding_text(finding)}")
        _write_finding(finding)
    for pending in folder.pending():
        click.echo(f"waiting    {waiting_text(waiting_line_of(pending))}")
        _write_trace(pending.label, pending.best)
    begun = folder.status()
    allowance = Allowance(
        options.budget, begun.seconds if begun else 0.0, begun.num_steps if begun else 0
    )
    with display_to(sys.stderr, allowance, quiet=options.quiet) as display:
        campaign = Campaign(
            settings,
            workers,
            folder,
            examiner,
            budget=options.budget,
            scope=about.scope,
            num_possible=about.num_possible,
            show=display.show,
            say=_saying(display),
            say_waiting=_saying_waiting(display),
            tapes=imported,
        )
        last = campaign.run()
    for forms in folder.forms().values():
        for form in forms:
            _write_finding(form)
    waiting = folder.pending()
    for pending in waiting:
        _write_trace(pending.label, pending.best)
    for label in campaign.labels_settled:
        _remove_trace(label)
    if options.examples is not None:
        tapes = [finding.tape for finding in campaign.findings if finding.tape]
        export_tapes(options.examples, key_of(settings), tapes)
    # After an interruption nobody waits for more than the summary.
    if options.coverage and last.activity != "interrupted":
        folder.record_coverage(measure(campaign.state))
    if options.files.singles:
        record = record_in(folder, settings)
        options.files.write_report(CAMPAIGN, record, form_names("campaign"))
    coverage = folder.coverage() or CodeCoverage() if options.coverage else None
    click.echo(plain_text(session_document(last, len(earlier), coverage)), nl=False)
    named = last.findings[0].fingerprint if last.findings else ""
    if named or last.waiting:
        click.echo(f"next       poolproof show {named or last.waiting[0].name}")
    for sentence in folder.damage.sentences:
        click.echo(f"damaged    {folder.path}: {sentence}", err=True)
    # What was broken and cannot be read any more is broken all the same.
    return 1 if folder.damage.failures else last.exit_status


def _saying(display: Display) -> Callable[[CampaignFinding], None]:
    """Show a finding once its trace lies where other commands look for it."""

    def say(finding: CampaignFinding) -> None:
        _write_finding(finding)
        display.say(finding)

    return say


def _saying_waiting(display: Display) -> Callable[[Pending], None]:
    """The same for a failing run that is not minimised yet."""

    def say(pending: Pending) -> None:
        _write_trace(pending.label, pending.best)
        display.say_waiting(pending)

    return say


def _imported(examples: Path | None, settings: CampaignSettings) -> tuple[CorpusTape, ...]:
    if examples is None:
        return ()
    tapes = import_tapes(examples, key_of(settings))
    return tuple(CorpusTape(tape, b"", 0, "imported") for tape in tapes)


def _write_finding(finding: CampaignFinding) -> None:
    """The trace of a finding, and the one up to the wrong read to which it leads."""
    _write_trace(finding.fingerprint, finding.whole_trace())
    if finding.harm is not None and finding.harm.read:
        _write_trace(read_name(finding.fingerprint), trace_of(finding.harm.read))


def _write_trace(name: str, trace: Trace) -> None:
    """Where `replay`, `shrink` and `show` look for a fingerprint.

    Where nothing can be written the search goes on: what it finds is in the folder, and shown.
    """
    try:
        DEFAULT_FOLDER.mkdir(parents=True, exist_ok=True)
        write_trace(trace, DEFAULT_FOLDER / f"{name}.jsonl")
    except OSError as error:
        click.echo(
            f"warning: the trace of {name} cannot be written into "
            f"{DEFAULT_FOLDER}: {error.strerror}; only a campaign's folder (--folder) keeps it",
            err=True,
        )


def _remove_trace(name: str) -> None:
    """What was minimised has a fingerprint now, under which its trace lies."""
    with suppress(OSError):
        (DEFAULT_FOLDER / f"{name}.jsonl").unlink(missing_ok=True)


ATHERIS = "atheris"

FOLDER = "libfuzzer"
"""Below a campaign's folder: libFuzzer's own corpus, which the next session begins with."""


def check_atheris(*, in_process: bool = False) -> None:
    """Raises TargetError where libFuzzer cannot be had, or would end the process at hand."""
    if not is_installed():
        raise TargetError("--engine atheris needs Atheris: pip install 'poolproof[atheris]'")
    if in_process or not Isolation.is_available:
        raise TargetError(
            "--engine atheris needs child processes, since libFuzzer never gives its own back; "
            "leave out --in-process"
        )


def atheris_workers(
    isolation: Isolation[Target], num_workers: int, folder: Path | None
) -> LocalWorkers:
    """The workers; a campaign's folder keeps libFuzzer's corpus. Raises FolderError."""
    shared = None
    if folder is not None:
        shared = folder / FOLDER
        try:
            shared.mkdir(exist_ok=True)
        except OSError as error:
            raise FolderError(
                f"cannot make {shared} for libFuzzer's corpus: {error.strerror}"
            ) from error
    return LocalWorkers(isolation, num_workers, work_with_atheris, shared)
