"""How long a call may take and how much memory a worker may use, and how both are read.

Memory is read from /proc, so the memory limit works on Linux only; elsewhere only the time limits
apply, and `Limits.statement` says so. Linux also says how long a process has waited for a CPU,
which is not the target's time.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from poolproof.contract.errors import OptionError
from poolproof.contract.outside import shown
from poolproof.harness.isolation.process_tree import FINDS_ALL

__all__ = [
    "MOST_PROCESSES",
    "Limits",
    "bound_address_space",
    "is_alive",
    "is_dying",
    "memory_in_use_mib",
    "own_time_s",
    "waited_for_processor_s",
]

MOST_PROCESSES = 256
"""So many processes may live at once below a worker, or below the importer during the import.

Counted, for the kernel's own limit (RLIMIT_NPROC) is of a user and does not bind root.
"""

_MIB = 1 << 20
_PRIVATE = ("RssAnon:", "RssShmem:", "VmSwap:")
_SLACK_MIB = 256
_PROC = Path("/proc")

_STARVED_AT_MOST = 10
"""One second in so many counts as the target's, however long it waited for a processor."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a target may use.

    `call_timeout_s` is for one command: the time for which a worker may show no progress.
    `memory_mib` is counted above what the importer used after the import. The import has limits
    of its own, the memory from zero.
    """

    call_timeout_s: float = 10.0
    memory_mib: int = 2048
    import_timeout_s: float = 120.0
    import_memory_mib: int = 8192

    def __post_init__(self) -> None:
        for name in ("call_timeout_s", "memory_mib", "import_timeout_s", "import_memory_mib"):
            value = getattr(self, name)
            if type(value) not in {int, float} or not value > 0:
                raise OptionError(f"{name} must be a number above 0, not {shown(value)}")

    @property
    def statement(self) -> str:
        """The limits as the certificate states them."""
        memory = f"{self.memory_mib} MiB" if _reads_memory() else "memory without a limit here"
        processes = (
            f"{MOST_PROCESSES} processes"
            if FINDS_ALL
            else "processes that leave their session are not found here"
        )
        return f"{self.call_timeout_s:g} s for each call, {memory}, {processes}"


def memory_in_use_mib(pid: int) -> int:
    """Memory that a process uses for itself, in MiB; 0 if it cannot be read or has ended.

    File pages do not count: the kernel can drop them at any time.
    """
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    lines = (line.split() for line in status.splitlines() if line.startswith(_PRIVATE))
    return sum(int(words[1]) for words in lines) // 1024


def is_alive(pid: int) -> bool:
    """Whether a process runs or sleeps; False for one that has ended and was not waited for."""
    _, _, rest = _text_of(Path(f"/proc/{pid}/stat")).rpartition(")")
    return bool(rest) and rest.split()[0] not in "ZX"


def is_dying(parent: int) -> bool:
    """Whether the process that was this one's parent has ended, or is about to be killed."""
    if os.getppid() != parent:
        return True
    # proc(5): the ninth field of stat are the flags, of which 4 is PF_EXITING.
    _, _, rest = _text_of(Path(f"/proc/{parent}/stat")).rpartition(")")
    if rest and int(rest.split()[6]) & 4:
        return True
    text = _text_of(Path(f"/proc/{parent}/status"))
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", text, re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in pending)


def waited_for_processor_s(pid: int, proc: Path = _PROC) -> float:
    """How long a process and its children were ready to run while others ran; 0.0 if unknown.

    Only main threads count. A child may be a program under test, for which the process waits. This
    is the second number of /proc/PID/schedstat (Linux, Documentation/scheduler/sched-stats.rst),
    which is updated whenever the thread gets its turn.
    """
    children = _text_of(proc / f"{pid}/task/{pid}/children").split()
    numbers = [_text_of(proc / f"{one}/schedstat").split() for one in (pid, *children)]
    return sum(int(of_one[1]) for of_one in numbers if len(of_one) > 1) / 1e9


def own_time_s(passed_s: float, waited_s: float) -> float:
    """The part of the elapsed time that a process had for itself, given how long it waited.

    On a busy machine a call takes long and is not to blame. A tenth always counts, so that a target
    that never ends is found even on a machine that is always busy.
    """
    return max(passed_s - max(0.0, waited_s), passed_s / _STARVED_AT_MOST)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def bound_address_space(memory_mib: int) -> None:
    """Bound this process's address space well above what it has plus its memory limit.

    The watchman reads memory a few times a second; this stops what grows faster than that.
    """
    if sys.platform != "linux":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    bound = pages * resource.getpagesize() + (2 * memory_mib + _SLACK_MIB) * _MIB
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or bound < hard:
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))


def _reads_memory() -> bool:
    return sys.platform == "linux" and Path("/proc/self/status").exists()
