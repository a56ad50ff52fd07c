"""Replays a trace against a target and says whether the violation shows.

Commands that are not defined in the state that is reached (the target or the profile changed since
the trace was made) are left out and counted, never ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.careful_session import open_manager_session, open_pool_session
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.index_session import IndexSession
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.single_invariant import ONLY_READS, ReadingManagerSession
from poolproof.harness.target_call import constructing, crash

__all__ = ["SESSIONS", "Replay", "replay", "start_session"]

Session = PoolSession | QueueSession | IndexSession | ManagerSession | EngineSession
Make = Callable[[int, bool], Any]


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay showed: the commands that were applied, how many were not, what broke."""

    applied: tuple[Command, ...]
    num_left_out: int
    violation: Violation | None


def _queue_session(setup: Trace, make: Make) -> QueueSession:
    return QueueSession(make(setup.num_blocks, True), setup.num_blocks)


def _index_session(setup: Trace, make: Make) -> IndexSession:
    return IndexSession(make(setup.num_blocks, True), setup.num_blocks, setup.profile)


def _pool_session(setup: Trace, make: Make) -> PoolSession:
    return open_pool_session(
        make,
        setup.profile,
        setup.num_blocks,
        enable_caching=setup.enable_caching,
        options=setup.options,
    )


def _manager_session(setup: Trace, make: Make) -> ManagerSession:
    assert isinstance(setup.profile, ManagerProfile)
    only_reads = bool(setup.options.get(ONLY_READS))
    return open_manager_session(
        make,
        setup.profile,
        setup.num_blocks,
        int(setup.options["block_size"]),
        enable_caching=setup.enable_caching,
        options=setup.options,
        session_class=ReadingManagerSession if only_reads else ManagerSession,
    )


def _engine_session(setup: Trace, make: Make) -> EngineSession:
    assert isinstance(setup.profile, EngineProfile)
    return EngineSession(
        make(setup.num_blocks, setup.enable_caching),
        setup.profile,
        setup.num_blocks,
        int(setup.options["block_size"]),
    )


SESSIONS: Mapping[Level, Callable[[Trace, Make], Session]] = {
    Level.QUEUE: _queue_session,
    Level.INDEX: _index_session,
    Level.POOL: _pool_session,
    Level.MANAGER: _manager_session,
    Level.ENGINE: _engine_session,
}
"""What opens a session, as the header of a trace says."""


def start_session(trace: Trace, make: Make) -> Session | Violation:
    """A session set up as the trace's header says; a violation if the target cannot be built.

    Raises TargetError for a target that lacks required methods.
    """
    try:
        return SESSIONS[trace.level](trace, make)
    except TargetError:
        raise
    except (Exception, SystemExit) as error:
        return crash(constructing("target", trace.num_blocks), error)


def replay(trace: Trace, make: Make, announce: Callable[[Command], None] | None = None) -> Replay:
    """Apply the trace's commands to a fresh target; `announce` hears each before it is applied.

    At pool and index level everything is read at the end, and once every reference was given back
    a pool is also checked for leaks.
    """
    session = start_session(trace, make)
    if isinstance(session, Violation):
        return Replay((), 0, session)
    applied: list[Command] = []
    left_out = 0
    violation = session.first_look()
    for command in trace.commands:
        if violation is not None:
            break
        if not session.is_defined(command):
            left_out += 1
            continue
        applied.append(command)
        if announce is not None:
            announce(command)
        violation = session.step_any(command)
    if violation is None and isinstance(session, PoolSession):
        violation = session.last_look()
    if violation is None and not isinstance(session, QueueSession) and session.nobody_holds():
        violation = session.end()
    return Replay(tuple(applied), left_out, violation)
