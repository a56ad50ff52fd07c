"""What `poolproof watch --events` prints while it listens: faults as they come, then the counts."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from poolproof.contract.errors import PoolproofError
from poolproof.contract.kv_events import EventBatch, EventError
from poolproof.contract.outside import printable
from poolproof.reference.event_view import EventFault, EventView
from poolproof.targets.event_endpoint import EndpointError, EventEndpoint

__all__ = ["Listener", "watch_events"]

_TICK_S = 0.5
_REPLAY_S = 2.0
MOST_PRINTED = 1_000


def watch_events(
    address: str,
    replay_address: str | None,
    *,
    topic: str,
    num_blocks: int | None,
    most_s: float | None,
    silent_s: float,
    json_file: Path | None,
) -> int:
    """Listen until the time is over or somebody interrupts; the exit status."""
    from poolproof.report.output_files import check_file, write_if_possible

    if json_file is not None:
        check_file(json_file)
    with EventEndpoint(address, replay_address, topic) as endpoint:
        listener = Listener(endpoint, num_blocks)
        try:
            listener.listen(most_s, silent_s)
        except KeyboardInterrupt:
            click.echo("interrupted: this is what was seen until now", err=True)
    for line in listener.summary():
        click.echo(line)
    if json_file is not None:
        write_if_possible(json_file, json.dumps(listener.to_json(), indent=2) + "\n")
    return listener.status


@dataclass(slots=True)
class Listener:
    """What was heard at an endpoint, by data-parallel rank."""

    endpoint: EventEndpoint
    num_blocks: int | None = None
    views: dict[int, EventView] = field(default_factory=dict)
    num_faults: dict[str, int] = field(default_factory=dict)
    num_unreadable: int = 0
    _asks: bool = True

    @property
    def status(self) -> int:
        """0 nothing was found, 1 something was, 2 nothing was heard."""
        if self.num_faults or self.num_unreadable:
            return 1
        return 0 if self.views else 2

    def listen(self, most_s: float | None, silent_s: float) -> None:
        """Follow the batches as they come, and say when none do."""
        end_s = None if most_s is None else time.monotonic() + most_s
        heard_s, is_silent = time.monotonic(), False
        while end_s is None or time.monotonic() < end_s:
            left_s = _TICK_S if end_s is None else min(_TICK_S, end_s - time.monotonic())
            batch = self._next(max(0.0, left_s))
            if batch is not None:
                heard_s, is_silent = time.monotonic(), False
                self.hear(batch)
            elif not is_silent and time.monotonic() - heard_s >= silent_s:
                is_silent = True
                click.echo(self._silence(silent_s), err=True)

    def hear(self, batch: EventBatch) -> None:
        """Follow one batch of the live stream, after those before it that can be had again."""
        name = self.endpoint.address
        if batch.rank not in self.views:
            rank_name = f"{name} rank {batch.rank}" if batch.rank else name
            self.views[batch.rank] = EventView(rank_name, self.num_blocks)
        view = self.views[batch.rank]
        if batch.sequence < view.expected:
            click.echo(f"{view.name} has restarted: its batches count from 0 again", err=True)
            view.restart()
        if batch.sequence > view.expected:
            self._ask_again(view, batch)
        if batch.sequence > view.expected and (view.counts.batches or view.counts.restarts):
            lost = batch.sequence - view.expected
            click.echo(
                f"{view.name}: {lost} batch{'es' * (lost != 1)} before {batch.sequence} "
                f"{'was' if lost == 1 else 'were'} lost; what is resident is not known any more",
                err=True,
            )
        if batch.sequence >= view.expected:
            self._tell(view.apply(batch))

    def summary(self) -> list[str]:
        """A line for each publisher, and the answer."""
        if not self.views:
            return [f"nothing was heard at {self.endpoint.address}: is it an engine's endpoint?"]
        lines = []
        for view in self.views.values():
            seen = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in _seen(view))
            number = view.num_resident
            blocks = f"{number:,} block{'s' * (number != 1)}"
            lines.append(f"{view.name}: {blocks} resident; {seen}")
        total = sum(self.num_faults.values())
        if total or self.num_unreadable:
            kinds = ", ".join(f"{name} {n}" for name, n in sorted(self.num_faults.items()))
            unreadable = f", unreadable {self.num_unreadable}" if self.num_unreadable else ""
            lines.append(f"{total + self.num_unreadable:,} found: {kinds}{unreadable}".rstrip())
        else:
            lines.append("nothing was told that cannot be")
        return lines

    def to_json(self) -> dict[str, object]:
        """All counts."""
        return {
            "endpoint": self.endpoint.address,
            "faults": dict(self.num_faults),
            "unreadable": self.num_unreadable,
            "ranks": {
                str(rank): {
                    **asdict(view.counts),
                    "resident": view.num_resident,
                    "certain": view.is_certain,
                }
                for rank, view in self.views.items()
            },
        }

    def _next(self, timeout_s: float) -> EventBatch | None:
        try:
            return self.endpoint.next(timeout_s)
        except EventError as error:
            self._unreadable(error)
            return None

    def _ask_again(self, view: EventView, until: EventBatch) -> None:
        """Batches before `until` that the engine still has, its first ones included."""
        if self.endpoint.replay_address is None or not self._asks:
            return
        try:
            for batch in self.endpoint.replay(view.expected, _REPLAY_S):
                if batch.rank == until.rank and view.expected <= batch.sequence < until.sequence:
                    self._tell(view.apply(batch, is_replayed=True))
        except EndpointError as error:
            self._asks = False  # Each try would hold up the live stream.
            click.echo(f"poolproof: {error}; it is not asked again", err=True)
        except EventError as error:
            self._unreadable(error)

    def _tell(self, faults: list[EventFault]) -> None:
        for fault in faults:
            self.num_faults[fault.kind] = self.num_faults.get(fault.kind, 0) + 1
            if sum(self.num_faults.values()) <= MOST_PRINTED:
                click.echo(printable(fault.sentence))

    def _unreadable(self, error: PoolproofError) -> None:
        self.num_unreadable += 1
        if self.num_unreadable <= MOST_PRINTED:
            click.echo(printable(str(error)))

    def _silence(self, silent_s: float) -> str:
        name = self.endpoint.address
        if self.views:
            return f"{name} is silent for {silent_s:g} s: the engine is idle, or gone"
        return (
            f"nothing came from {name} in {silent_s:g} s: nobody listens there, it is not an "
            "engine's endpoint for KV events, or the engine is idle"
        )


def _seen(view: EventView) -> list[tuple[str, int]]:
    """Counts that say something: batches always, others if they are there."""
    return [(n, c) for n, c in asdict(view.counts).items() if c or n in ("batches", "stored")]
