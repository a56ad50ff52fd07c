"""`poolproof replay TRACE`: run a trace again and see whether its violation still shows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from poolproof.cli.arguments import not_empty, rows_of

if TYPE_CHECKING:
    # The command line starts quickly: everything heavy is imported when the command runs.
    from poolproof.contract.trace import Trace
    from poolproof.harness.replay import Replay

__all__ = ["replay_command"]


@click.command("replay")
@click.argument("trace")
@click.option(
    "--target",
    callback=not_empty,
    help="Replay on this target instead of the one that the trace names.",
)
@click.option(
    "--profile",
    "rows",
    multiple=True,
    metavar="KEY=VALUE",
    help="Judge by another profile than the trace's: set a row.",
)
@click.option("--in-process", is_flag=True, help="Use no child process or limits; for debuggers.")
@click.option(
    "--call-timeout",
    type=click.FloatRange(min=0, max=86_400, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds that one call of the target may take.",
)
def replay_command(
    *, trace: str, target: str | None, rows: tuple[str, ...], in_process: bool, call_timeout: float
) -> None:
    """Replay TRACE, a trace file or the fingerprint of a finding.

    With --profile it is the same target that answers the same commands, judged by other rows.

    Exit status: 1 a violation shows, 0 it holds now, 2 the trace could not be replayed.
    """
    from poolproof.api import replay
    from poolproof.report.trace_files import find_trace

    profile = rows_of(rows)
    path, recorded = find_trace(trace)
    judged = ""
    if profile:
        recorded = recorded.judged_by(profile)
        judged = f", judged by {', '.join(f'{row}={value}' for row, value in profile.items())}"
    outcome = replay(recorded, target=target, in_process=in_process, call_timeout_s=call_timeout)
    if outcome.num_left_out:
        click.echo(
            f"{outcome.num_left_out} of {len(recorded.commands)} commands were left out: the "
            "target lacks the verb, or they mean nothing in the state that was reached",
            err=True,
        )
    if outcome.violation is not None:
        _show_failure(recorded, outcome, target, call_timeout, in_process=in_process)
        if judged:
            click.echo(f"note: it fails{judged}")
        sys.exit(1)
    if outcome.num_left_out:
        # Less than the trace was shown, so nothing is shown about its violation.
        click.echo(f"poolproof: {path} could not be replayed as a whole", err=True)
        sys.exit(2)
    number = len(outcome.applied)
    click.echo(f"holds now: {number} commands of {path} show no violation{judged}")
    if recorded.violation is None:
        # Written by hand, or cut: what it once showed may be in the part that is missing.
        click.echo("note: the trace records no violation; if it was cut, it proves nothing")


def _show_failure(
    recorded: Trace, outcome: Replay, target: str | None, call_timeout_s: float, *, in_process: bool
) -> None:
    """Draw what broke, and say so where it is not what the trace recorded."""
    from dataclasses import replace

    from poolproof.certification.isolated_trace import watch_isolated
    from poolproof.harness.isolation import Limits
    from poolproof.report.finding_report import trace_report
    from poolproof.report.text_form import show

    broken = outcome.violation
    assert broken is not None
    same = recorded.violation is not None and recorded.violation.invariant == broken.invariant
    shown = replace(
        recorded,
        target=target or recorded.target,
        commands=outcome.applied,
        violation=broken,
        fingerprint=recorded.fingerprint if same else None,
        harm=recorded.harm if same else None,
    )
    if shown.level.has_layouts:
        limits = Limits(call_timeout_s=call_timeout_s)
        watched = watch_isolated(shown, target, limits, in_process=in_process)
        shown = replace(shown, shown=() if watched is None else watched.shown)
    show(trace_report(shown))
    if broken.frames:
        click.echo(f"  code  {' <- '.join(broken.frames)}")
    if recorded.violation is not None and not same:
        click.echo(f"note: the trace recorded {recorded.violation.invariant}, this is another one")
