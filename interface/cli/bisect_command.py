"""`poolproof bisect TRACE --good A --bad B`: the commit since which a trace fails."""

from __future__ import annotations

from pathlib import Path

import click

from poolproof.cli.arguments import not_empty

__all__ = ["bisect_command"]


@click.command("bisect")
@click.argument("trace")
@click.option("--good", required=True, metavar="COMMIT", help="A commit at which TRACE holds.")
@click.option(
    "--bad",
    default="HEAD",
    show_default=True,
    metavar="COMMIT",
    help="A later commit at which it fails.",
)
@click.option(
    "--target",
    callback=not_empty,
    help="Replay on this target instead of the one that the trace names.",
)
@click.option("--build", metavar="COMMAND", help="A shell command to run at each commit first.")
def bisect_command(
    *, trace: str, good: str, bad: str, target: str | None, build: str | None
) -> None:
    """Find the first commit of the target's checkout at which TRACE fails.

    Run it in the folder from which TRACE names its target. The search has a worktree of its own:
    the checkout stays as it is. Commits at which the trace cannot be replayed are skipped.
    """
    from poolproof.commit_search import CommitSearch
    from poolproof.report.trace_files import find_trace

    path, _ = find_trace(trace)
    search = CommitSearch(Path.cwd(), path.resolve(), target, build)
    found = search.find(good, bad, lambda stop: click.echo(stop.words))
    if len(found.commits) == 1:
        click.echo(f"\nfirst commit at which it fails:\n{found.description}")
    else:
        click.echo(f"\none of these, which cannot all be replayed:\n{found.description}")
