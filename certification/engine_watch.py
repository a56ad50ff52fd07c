"""Runs an engine's trace and records what each command led to, as plain values.

On the trace's own target these are the steps that it planned; on the plainest engine they are those
of a right one. The target runs where this runs: in a worker, if it is to be isolated.
"""

from __future__ import annotations

from poolproof.certification.manager_watch import Seen, Watched
from poolproof.contract.commands import Command
from poolproof.contract.shown_state import Held, ShownState
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.engine_session import EngineSession, Happened
from poolproof.harness.isolation import Beacon
from poolproof.harness.replay import start_session
from poolproof.invariants.wording import sequence_name
from poolproof.targets.target import Make

__all__ = ["watch_engine"]


def watch_engine(trace: Trace, make: Make, beacon: Beacon | None = None) -> Watched:
    """What the engine shows before any command and after each one that could be applied."""
    watched = Watched()
    session = start_session(trace, make)
    if isinstance(session, Violation):
        watched.violation = session
        return watched
    assert isinstance(session, EngineSession)
    watched.seen.append(Seen(ShownState(None, ()), ()))
    for number, command in enumerate(trace.commands, start=1):
        if watched.violation is not None:
            break
        if not session.is_defined(command):
            watched.left_out = number
            break
        if beacon is not None:
            beacon.bump()
        watched.violation = session.step(command)
        watched.seen.append(_seen(session.last, command))
    return watched


def _seen(last: Happened, command: Command) -> Seen:
    """The tables of a step that was planned, and in words what it computes and who gets what."""
    parts = last.plan.parts if last.plan is not None else ()
    held = tuple(Held(part.request_id, "device", part.blocks) for part in parts)
    return Seen(ShownState(None, held, _in_words(last)), (), command)


def _in_words(last: Happened) -> str:
    words = []
    if last.plan is not None:
        parts = ", ".join(
            f"{sequence_name(p.request_id)} {_positions(p.first, p.count)}"
            + (f" ({p.num_drafts} drafts)" if p.num_drafts else "")
            for p in last.plan.parts
        )
        words.append(f"computes {parts or 'nothing'}")
        words += [f"forgets image {image}" for image in last.plan.forgets]
        words += [f"encodes image {image}" for image in last.plan.encodes]
        words += [f"preempts {sequence_name(number)}" for number in last.plan.preempted]
        words += [f"copies {source} to {into}" for source, into in last.plan.copies]
        words += [
            f"{'loads' if t.is_load else 'stores'} {', '.join(map(str, t.blocks))}"
            for t in last.plan.transfers
        ]
    words += [
        f"{sequence_name(number)} gets {' '.join(map(str, tokens)) or 'nothing'}"
        + (" and ends" if ends else "")
        for number, tokens, ends in last.outputs
    ]
    return "; ".join(words)


def _positions(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"
