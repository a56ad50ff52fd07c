"""`poolproof consumer TARGET`: checks an index that routers fill from KV events."""

from __future__ import annotations

import sys

import click

__all__ = ["consumer_command"]


@click.command("consumer")
@click.argument("target", default="impl")
@click.option(
    "--runs", type=click.IntRange(min=1), default=200, show_default=True, help="Runs of 40 steps."
)
@click.option("--seed", type=int, default=0, show_default=True)
def consumer_command(*, target: str, runs: int, seed: int) -> None:
    """Check TARGET, path/to/file.py:Class or package.module:Class with apply() and lookup().

    Three simulated engines cache, evict, offload, clear and restart; batches are lost, sent again
    or gone for good. After each step every prompt is looked up, and the answer compared with what
    each engine has. Without TARGET our own index is checked. It runs in this process, without
    limits.

    Exit status: 0 holds, 1 a violation was found, 2 the run could not be carried out or concluded.
    """
    from poolproof.contract.consumer_target import consumer_profile_of
    from poolproof.contract.outside import printable
    from poolproof.harness.consumer_run import BLOCK_SIZE, check_consumer
    from poolproof.impl.event_index import EventIndex
    from poolproof.targets.load import import_class

    cls = EventIndex if target == "impl" else import_class(target)
    profile = consumer_profile_of(cls)
    found = check_consumer(cls, profile, num_runs=runs, seed=seed)
    if found.violation is not None:
        click.echo(printable(f"{found.kind}: {found.violation}"))
        for number, words in enumerate(found.steps, start=1):
            click.echo(printable(f"  {number:>3}  {words}"))
        click.echo(f"blocks of {BLOCK_SIZE} tokens; found in run {found.num_runs}")
        sys.exit(1)
    click.echo(
        f"{target} holds: {found.num_steps:,} steps, {found.num_lookups:,} lookups of prefixes on "
        f"three engines, media {' and '.join(profile.media)}"
    )
    if found.never:
        click.echo(f"inconclusive, raise --runs: never met: {'; '.join(found.never)}")
        sys.exit(2)
