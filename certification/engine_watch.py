"""Runs an engine's trace and records what each command led to, as plain values.

On the trace's own target these are the steps that it planned; on the plainest engine they are those
of a right one. The target runs where this runs: in a worker, if it is to be isolated.
"""

from __future__ import annotations

from collections.abc import Container

from poolproof.certification.manager_watch import Seen, Watched, without_state
from poolproof.contract.commands import Command
from poolproof.contract.engine_plan import PlannedPart, Transfer
from poolproof.contract.shown_state import Held, ShownState
from poolproof.contract.state_use import PARTS, Place, StateUse
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.engine_session import EngineSession, Happened
from poolproof.harness.isolation import Beacon
from poolproof.harness.replay import start_session
from poolproof.invariants.wording import sequence_name
from poolproof.targets.target import Make

__all__ = ["watch_engine"]


def watch_engine(
    trace: Trace,
    make: Make,
    beacon: Beacon | None = None,
    wanted: Container[int] | None = None,
) -> Watched:
    """What the engine shows before any command and after each one that could be applied.

    `wanted` are the commands, from 1, of which the tables are kept, as in `watch`.
    """
    watched = Watched(has_all=wanted is None)
    session = start_session(trace, make)
    if isinstance(session, Violation):
        watched.violation = session
        return watched
    assert isinstance(session, EngineSession)
    watched.add(Seen(ShownState(None, ()), ()))
    for number, command in enumerate(trace.commands, start=1):
        if watched.violation is not None:
            break
        if not session.is_defined(command):
            watched.left_out = number
            break
        if beacon is not None:
            beacon.bump()
        watched.violation = session.step(command)
        seen = _seen(session.last, command)
        watched.add(seen if wanted is None or number in wanted else without_state(seen))
    return watched


def _seen(last: Happened, command: Command) -> Seen:
    """The tables of a step that was planned, and in words what it computes and who gets what."""
    parts = last.plan.parts if last.plan is not None else ()
    held = tuple(Held(part.request_id, "device", part.blocks) for part in parts)
    return Seen(ShownState(None, held, _in_words(last)), (), command)


def _in_words(last: Happened) -> str:
    words = []
    if last.plan is not None:
        words.append(f"computes {', '.join(map(_part, last.plan.parts)) or 'nothing'}")
        words += [f"forgets image {image}" for image in last.plan.forgets]
        words += [f"encodes image {image}" for image in last.plan.encodes]
        words += [f"preempts {sequence_name(number)}" for number in last.plan.preempted]
        words += [f"zeroes {', '.join(map(str, last.plan.zeroes))}"] if last.plan.zeroes else []
        words += [f"copies {source} to {into}" for source, into in last.plan.copies]
        words += map(_transfer, last.plan.transfers)
    words += [
        f"{sequence_name(number)} {_state_in_words(use)}"
        for number, uses in last.uses.items()
        for use in uses
    ]
    words += [
        f"{sequence_name(number)} gets {' '.join(map(str, tokens)) or 'nothing'}"
        + (" and ends" if ends else "")
        for number, tokens, ends in last.outputs
    ]
    return "; ".join(words)


def _transfer(transfer: Transfer) -> str:
    kind, blocks = "loads" if transfer.is_load else "stores", ", ".join(map(str, transfer.blocks))
    return f"{kind} {blocks}" + ("" if transfer.rank is None else f" on rank {transfer.rank}")


def _state_in_words(use: StateUse) -> str:
    """Where a row starts, what it leaves, by how many tokens the state has, and what is copied."""
    part = "" if len(use.parts) == len(PARTS) else f" ({', '.join(use.parts)})"
    words = [f"goes on from {'zero' if use.starts is None else _place(use.starts)}{part}"]
    if use.leaves:
        left = ", ".join(f"that of {end} in {_place(place)}" for end, place in use.leaves)
        words.append(f"leaves {left}")
    for when, copies in (("before", use.before), ("after", use.after)):
        words += [f"copies {c.source} to {c.into} {when}" for c in copies]
    return ", ".join(words)


def _place(place: Place) -> str:
    block, at = place
    return f"{block}+{at}" if at else str(block)


def _part(part: PlannedPart) -> str:
    """Whose positions are computed; a plan may be wrong, and name none of them."""
    name, first, count = sequence_name(part.request_id), part.first, part.count
    if count < 1:
        return f"nothing of {name}"
    positions = str(first) if count == 1 else f"{first}-{first + count - 1}"
    drafts = f"{part.num_drafts} draft{'s' if part.num_drafts > 1 else ''}"
    return f"{name} {positions}" + (f" ({drafts})" if part.num_drafts else "")
