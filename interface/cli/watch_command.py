"""`poolproof watch`: looks at a live engine from outside, by what it writes or by its events."""

from __future__ import annotations

import sys
from pathlib import Path

import click

__all__ = ["watch_command"]


@click.command("watch")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="The folder in which the engine's watch writes (POOLPROOF_WATCH_DIR).",
)
@click.option("--events", "endpoint", metavar="tcp://HOST:PORT", help="An engine's KV events.")
@click.option("--follow", is_flag=True, help="With --dir: go on until interrupted.")
@click.option(
    "--silent-after",
    "silent_s",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Say that an engine is silent when it has written, or published, nothing for so long.",
)
@click.option(
    "--replay",
    "replay_endpoint",
    metavar="tcp://HOST:PORT",
    help="With --events: where the engine sends lost batches again.",
)
@click.option("--topic", default="", help="With --events: the topic that is published.")
@click.option(
    "--blocks",
    type=click.IntRange(min=1),
    help="With --events: the engine's blocks; more cannot be resident.",
)
@click.option(
    "--time",
    "most_s",
    type=click.FloatRange(min=0, min_open=True),
    help="With --events: end after so many seconds.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="With --events: write the counts."
)
def watch_command(
    *,
    folder: Path | None,
    endpoint: str | None,
    follow: bool,
    silent_s: float,
    replay_endpoint: str | None,
    topic: str,
    blocks: int | None,
    most_s: float | None,
    json_file: Path | None,
) -> None:
    """Look at a live engine from outside; nothing of it is touched.

    With --dir: what the watch inside the engine writes, for each engine core its state, its last
    row and its findings. With --events: what a router would believe of an engine that publishes KV
    events, and what of it cannot be.

    Exit status: 0 nothing was found, 1 a violation was found, 2 nobody watches, or the folder or
    the endpoint cannot be read.
    """
    if (folder is None) == (endpoint is None):
        raise click.UsageError("give one of --dir and --events")
    if folder is not None:
        from poolproof.cli.watched_folder import show_folder

        sys.exit(show_folder(folder, follow=follow, silent_s=silent_s))
    from poolproof.cli.watched_events import watch_events

    assert endpoint is not None
    sys.exit(
        watch_events(
            endpoint, replay_endpoint, topic=topic, num_blocks=blocks, most_s=most_s,
            silent_s=silent_s, json_file=json_file,
        )
    )  # fmt: skip
