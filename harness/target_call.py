"""Calling the target: what it raises becomes a violation, what we raise stays our own bug.

A legal call must return. Whatever else comes out of the target (an exception of any type, an
attempt to exit the process) is reported as a crash with the target's own stack frames.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from poolproof.contract.violation import Severity, Violation

__all__ = ["crash", "is_our_own_bug", "target_frames"]

_OUR_FOLDERS = frozenset(
    str(Path(__file__).resolve().parent.parent / name)
    for name in ("contract", "harness", "invariants", "reference")
)


def target_frames(error: BaseException, limit: int = 5) -> tuple[str, ...]:
    """The innermost stack frames outside Poolproof, innermost first, as "file:line function"."""
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not _is_ours(frame.filename)]
    return tuple(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in reversed(outside[-limit:])
    )


def is_our_own_bug(error: BaseException) -> bool:
    """Whether the exception was raised by Poolproof itself rather than by the target."""
    innermost: TracebackType | None = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    return innermost is None or _is_ours(innermost.tb_frame.f_code.co_filename)


def crash(what: str, error: BaseException) -> Violation:
    """The violation that a legal call raised."""
    message = str(error).splitlines()
    shown = f"{type(error).__name__}: {message[0][:300]}" if message else type(error).__name__
    verb = "tried to exit the process with" if isinstance(error, SystemExit) else "raised"
    return Violation(
        "CRASH", Severity.CRASH, f"{what} is legal here but {verb} {shown}",
        frames=target_frames(error),
    )  # fmt: skip


def _is_ours(filename: str) -> bool:
    return str(Path(filename).parent) in _OUR_FOLDERS
