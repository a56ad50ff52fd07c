"""The process between a coordinator and a Ray cluster, the only one of the two that imports Ray.

It is separate because Ray ends a process whose cluster's head is lost, with a status that says
nothing about campaigns, prints to standard output, and starts threads; the coordinator only sees
the line end. `companion.py` runs it; messages from the coordinator and from Ray go through one
queue.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

import ray

from poolproof.fuzz.cluster.companion import line_to_parent
from poolproof.fuzz.cluster.link_messages import Connected, Give, Gone, LinkEvent, Open
from poolproof.fuzz.cluster.ray_actors import (
    Actors,
    Answer,
    ClusterSize,
    cluster_size,
    watch_cluster,
)

__all__ = ["main"]


class _Closed:
    """The coordinator wants no more."""


def main(descriptor: int) -> None:
    """Connect, and pass on until the coordinator or the cluster ends."""
    with line_to_parent(descriptor) as line:
        opening: Open = line.recv()
        try:
            ray.init(address=opening.address, log_to_driver=False, logging_level="ERROR")
        except Exception as error:
            words = " ".join(str(error).split())
            line.send(Gone(words[:300] or type(error).__name__))
            return
        try:
            _pass_on(line, opening)
        finally:
            # Ends the actors with it.
            ray.shutdown()


def _pass_on(line: Connection[Any, Any], opening: Open) -> None:
    news: SimpleQueue[Any] = SimpleQueue()
    is_over = threading.Event()
    actors = Actors(opening.setup, opening.num_workers, news)
    size = cluster_size()
    line.send(Connected(size.num_processors))
    actors.fill(size)
    threading.Thread(target=_receive, args=(line, news.put), daemon=True).start()
    threading.Thread(target=watch_cluster, args=(news.put, is_over), daemon=True).start()
    try:
        while not isinstance(item := news.get(), _Closed):
            for event in _events(actors, item):
                line.send(event)
                if isinstance(event, Gone):
                    return
    finally:
        is_over.set()


def _events(actors: Actors, item: Any) -> Iterable[LinkEvent]:
    if isinstance(item, Give):
        actors.give(item)
    elif isinstance(item, Answer):
        return actors.heard(item)
    elif isinstance(item, ClusterSize):
        return _resized(actors, item)
    return ()


def _resized(actors: Actors, size: ClusterSize) -> Iterator[LinkEvent]:
    if not size.is_here:
        yield Gone("Ray has ended on this machine")
    yield Connected(size.num_processors)
    actors.fill(size)


def _receive(line: Connection[Any, Any], put: Any) -> None:
    """Orders, for as long as there is a coordinator."""
    try:
        while True:
            put(line.recv())
    except (EOFError, OSError):
        put(_Closed())
