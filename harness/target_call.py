"""Calling the target: what it raises becomes a violation, what we raise stays our own bug.

A legal call must return. Whatever else comes out of the target (an exception of any type, an
attempt to exit the process) is reported as a crash with the target's own stack frames. Where one of
our adapters does not fit its engine, nothing is reported of the engine: the run ends.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import FrameType, TracebackType

from poolproof.contract.adapter_fault import adapters_fault
from poolproof.contract.outside import class_name, said_by
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity, Violation, ViolationError

__all__ = ["constructing", "crash", "is_our_own_bug", "raised", "target_frames"]

_ROOT = __name__.partition(".")[0]
_OURS = frozenset(f"{_ROOT}.{name}" for name in ("contract", "harness", "invariants", "reference"))


def target_frames(error: BaseException, limit: int = 5) -> tuple[str, ...]:
    """The innermost stack frames outside Poolproof, innermost first, as "file:line function"."""
    frames = list(traceback.walk_tb(error.__traceback__))
    outside = [(frame.f_code, line) for frame, line in frames if not _is_ours(frame)]
    return tuple(
        f"{Path(code.co_filename).name}:{line} {code.co_name}"
        for code, line in reversed(outside[-limit:])
    )


def is_our_own_bug(error: BaseException) -> bool:
    """Whether the exception was raised by Poolproof itself rather than by the target."""
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is None or _is_ours(innermost.tb_frame)


def raised(error: BaseException) -> str:
    """What was raised, on one line: the type and the first line of its message."""
    lines = said_by(error, 300).splitlines()
    name = class_name(error).rpartition(".")[2]
    return f"{name}: {lines[0]}" if lines else name


def constructing(what: str, num_blocks: int) -> str:
    """How the call of a constructor is named, as `crash` takes it."""
    return f"constructing the {what} with {num_blocks} block{'s' * (num_blocks != 1)}"


def crash(what: str, error: BaseException) -> Violation:
    """The violation that a legal call raised.

    An adapter that sees something wrong itself (two contents under one hash) raises the finding.
    Raises TargetError where the adapter is at fault, and the one that an adapter raised.
    """
    if isinstance(error, ViolationError):
        return error.violation
    if isinstance(error, TargetError):
        raise error
    fault = adapters_fault(error)
    if fault is not None:
        raise TargetError(
            f"{what}: Poolproof's adapter does not fit this target, of which nothing is said: "
            f"{fault}; write a native target (`poolproof new FILE`), or take a release that the "
            "adapter knows"
        ) from error
    verb = "tried to exit the process with" if isinstance(error, SystemExit) else "raised"
    return Violation(
        "CRASH", Severity.CRASH, f"{what} is legal here but {verb} {raised(error)}",
        frames=target_frames(error),
    )  # fmt: skip


def _is_ours(frame: FrameType) -> bool:
    # By module and not by file: of compiled code the file is a name from where it was compiled.
    return str(frame.f_globals.get("__name__")).rpartition(".")[0] in _OURS
