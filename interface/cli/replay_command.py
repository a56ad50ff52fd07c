"""`poolproof replay TRACE`: run a trace again and see whether its violation still shows."""

from __future__ import annotations

import sys

import click

from poolproof.cli.arguments import not_empty

__all__ = ["replay_command"]


@click.command("replay")
@click.argument("trace")
@click.option(
    "--target",
    callback=not_empty,
    help="Replay on this target instead of the one that the trace names.",
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
    *, trace: str, target: str | None, in_process: bool, call_timeout: float
) -> None:
    """Replay TRACE, a trace file or the fingerprint of a finding.

    Exit status: 1 a violation shows, 0 it holds now, 2 the trace could not be replayed.
    """
    from dataclasses import replace

    from poolproof.api import replay
    from poolproof.certification.isolated_trace import watch_isolated
    from poolproof.harness.isolation import Limits
    from poolproof.report.finding_report import trace_report
    from poolproof.report.text_form import show
    from poolproof.report.trace_files import find_trace

    path, recorded = find_trace(trace)
    outcome = replay(recorded, target=target, in_process=in_process, call_timeout_s=call_timeout)
    if outcome.num_left_out:
        click.echo(
            f"{outcome.num_left_out} of {len(recorded.commands)} commands were left out: the "
            "target lacks the verb, or they mean nothing in the state that was reached",
            err=True,
        )
    if outcome.violation is None:
        if outcome.num_left_out:
            # Less than the trace was shown, so nothing is shown about its violation.
            click.echo(f"poolproof: {path} could not be replayed as a whole", err=True)
            sys.exit(2)
        click.echo(f"holds now: {len(outcome.applied)} commands of {path} show no violation")
        if recorded.violation is None:
            # Written by hand, or cut: what it once showed may be in the part that is missing.
            click.echo("note: the trace records no violation; if it was cut, it proves nothing")
        return
    same = recorded.violation and recorded.violation.invariant == outcome.violation.invariant
    shown = replace(
        recorded,
        target=target or recorded.target,
        commands=outcome.applied,
        violation=outcome.violation,
        fingerprint=recorded.fingerprint if same else None,
        harm=recorded.harm if same else None,
    )
    if shown.level.has_layouts:
        watched = watch_isolated(
            shown, target, Limits(call_timeout_s=call_timeout), in_process=in_process
        )
        shown = replace(shown, shown=() if watched is None else watched.shown)
    show(trace_report(shown))
    if outcome.violation.frames:
        click.echo(f"  code  {' <- '.join(outcome.violation.frames)}")
    if recorded.violation is not None and not same:
        click.echo(f"note: the trace recorded {recorded.violation.invariant}, this is another one")
    sys.exit(1)
