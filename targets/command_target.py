"""The `Target` of a program in any language: `cmd:./program arguments`.

The program introduces itself once, when the target is loaded; what it says there is checked here.
Pools and queues are driven; managers are not.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.level import Level
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.target import (
    POOL_OBSERVERS,
    POOL_OPTIONAL_VERBS,
    POOL_REQUIRED,
    QUEUE_REQUIRED,
    QUEUE_VERBS,
    TargetError,
)
from poolproof.targets.command_messages import Hello, ProtocolError, short
from poolproof.targets.command_pool import CommandPool, LiveAnswers
from poolproof.targets.command_process import ProcessEndedError, words_of
from poolproof.targets.command_session import CommandSession
from poolproof.targets.command_tape import CommandTapes
from poolproof.targets.target import Target

__all__ = ["HELLO_TIMEOUT_S", "PREFIX", "check_hello", "command_target"]

PREFIX = "cmd:"
HELLO_TIMEOUT_S = 20.0
"""For starting and saying hello; an interpreter on a busy machine takes seconds."""

_POOL_VERBS = (*POOL_REQUIRED[:-1], "touch", "lookup", "acquire", *POOL_OPTIONAL_VERBS)
_QUEUE_OBSERVERS = ("free_neighbours",)


def command_target(name: str, base: str, overrides: Mapping[str, Any]) -> Target:
    """The target that `base` names, as `name` in traces.

    Raises TargetError for a program that cannot be started, does not speak this version of the
    protocol, or lacks a verb.
    """
    words = words_of(base.removeprefix(PREFIX))
    session = CommandSession(words)
    try:
        hello = session.hello(timeout_s=HELLO_TIMEOUT_S)
        check_hello(hello)
    except (ProcessEndedError, ProtocolError) as error:
        raise TargetError(
            f"{session.name}: {error}; `poolproof protocol smoke {PREFIX}...` shows each line"
        ) from error
    finally:
        session.close()
    try:
        Profile.from_mapping(hello.profile)
        profile = Profile.from_mapping({**hello.profile, **overrides})
    except ProfileError as error:
        raise TargetError(f"{session.name}: {short(str(error), 600)}") from error

    def make(num_blocks: int, enable_caching: bool) -> CommandPool:
        state, _ = session.begin(num_blocks, enable_caching)
        return CommandPool(hello, num_blocks, LiveAnswers(session), state or None)

    return Target(
        name=name,
        level=Level(hello.level),
        shape="command",
        profile=profile,
        version=f"{hello.name} {hello.version}" if hello.version else hello.name,
        source=_source(words[0]),
        make=make,
        notes=_notes(hello),
        tapes=CommandTapes(hello, session),
    )


def check_hello(hello: Hello) -> None:
    """Raises ProtocolError for an introduction of something that cannot be driven."""
    if hello.level == Level.MANAGER:
        raise ProtocolError(
            "it is a manager; programs are driven at the levels pool and queue, so let it serve "
            "the pool below its manager"
        )
    spoken = _SPOKEN.get(hello.level)
    if spoken is None:
        raise ProtocolError(f'its "level" is {hello.level!r}; it is "pool" or "queue"')
    _check_names("verbs", hello.verbs, spoken.verbs)
    _check_names("observers", hello.observers, spoken.observers)
    required = set(spoken.verbs) & spoken.required
    if not hello.is_queue and "acquire" not in hello.verbs:
        required |= {"lookup", "touch"}
    missing = sorted(required - hello.verbs)
    if missing:
        raise ProtocolError(f'its "verbs" lack {", ".join(missing)}, which a {hello.level} needs')


@dataclass(frozen=True, slots=True)
class _Spoken:
    """What a program of a level may announce, and what it has to."""

    verbs: tuple[str, ...]
    observers: tuple[str, ...]
    required: frozenset[str]


_SPOKEN: Mapping[str, _Spoken] = {
    Level.QUEUE: _Spoken(QUEUE_VERBS, _QUEUE_OBSERVERS, frozenset(QUEUE_REQUIRED)),
    Level.POOL: _Spoken(_POOL_VERBS, POOL_OBSERVERS, frozenset(POOL_REQUIRED)),
}


def _check_names(key: str, names: frozenset[str], known: tuple[str, ...]) -> None:
    unknown = sorted(names - set(known))
    if unknown:
        raise ProtocolError(
            f'its "{key}" name {short(", ".join(unknown))}; known are {", ".join(sorted(known))}'
        )


def _notes(hello: Hello) -> tuple[str, ...]:
    shown = ", ".join(sorted(hello.observers)) or "nothing but the number of free blocks"
    return (f"a program, asked over standard input and output; it shows {shown}",)


def _source(program: str) -> str:
    """The file of the program and the beginning of its digest."""
    found = shutil.which(program)
    if found is None:
        return program
    try:
        digest = hashlib.sha256(Path(found).read_bytes()).hexdigest()
    except OSError:
        return program
    return f"{program} (sha256 {digest[:12]})"
