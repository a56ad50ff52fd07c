"""Find and end all processes below one, whatever they did to get away.

A process that starts a session of its own, or whose parent has ended, is in no known group and
would become a child of init. A *subreaper* (Linux, prctl(2)) gets such orphans instead, which keeps
the whole tree together. Elsewhere only the session of a worker can be ended as a whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = [
    "FINDS_ALL",
    "adopt_orphans",
    "children_of",
    "descendants_of",
    "end_children",
    "end_tree",
    "nobody_left_behind",
]

_PR_SET_CHILD_SUBREAPER = 36
# Loaded here and not after a fork, where a lock of the loader could be held for ever.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_HAS_CHILDREN_FILE = Path(f"/proc/self/task/{os.getpid()}/children").exists()

FINDS_ALL = _LIBC is not None and Path("/proc/self/stat").exists()
"""Whether all descendants of a process can be found here."""


def adopt_orphans(*, wanted: bool = True) -> None:
    """Become the parent of every descendant that loses its own, if the kernel supports it."""
    if _LIBC is not None:  # pragma: no branch - the tests of processes run on Linux
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def children_of(pid: int) -> list[int]:
    """The children of a process, zombies included; none if that cannot be read.

    Complete only while the children start no others; a caller that ends them must look again.
    """
    if not _HAS_CHILDREN_FILE:  # pragma: no cover - a kernel without CONFIG_PROC_CHILDREN
        return [child for child, parent in _parents() if parent == pid]
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def descendants_of(pid: int, most: int | None = None) -> list[int]:
    """Everything below a process, parents first; stops beyond `most`."""
    found = children_of(pid)
    for child in found:
        if most is not None and len(found) > most:
            break
        found += children_of(child)
    return found


def end_tree(pid: int) -> None:
    """Kill a process and everything below it; waiting for the process is up to the caller.

    Each is stopped first, so that none can start another during the search.
    """
    stopped: set[int] = set()
    while True:
        new = [one for one in (pid, *descendants_of(pid)) if one not in stopped]
        if not new:
            break
        for one in new:
            _send(one, signal.SIGSTOP)
        stopped.update(new)
    for one in stopped:
        _send(one, signal.SIGKILL)


def end_children(but: frozenset[int] = frozenset()) -> None:
    """End the children of this process with everything below them, and wait for them.

    Those in `but` are left alone. What was below one that is killed becomes a child of this
    process, if it adopts orphans, and is then waited for as well.
    """
    while children := [child for child in children_of(os.getpid()) if child not in but]:
        for child in children:
            end_tree(child)
        for child in children:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


@contextlib.contextmanager
def nobody_left_behind() -> Iterator[None]:
    """End at the end of the block what this process starts in it, and everything below that."""
    before = frozenset(children_of(os.getpid()))
    adopt_orphans()
    try:
        yield
    finally:
        end_children(but=before)
        adopt_orphans(wanted=False)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _parents() -> list[tuple[int, int]]:  # pragma: no cover - see above
    """(process, parent) of all."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name of the program stands in brackets, and may hold some itself.
            _, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
            found.append((int(folder.name), int(rest.split()[1])))
    return found
