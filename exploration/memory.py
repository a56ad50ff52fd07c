"""How much memory an exploration will take, and how much there is: asked before it starts."""

from __future__ import annotations

import sys
from pathlib import Path

from poolproof.exploration.scope import Scope, ScopeError

__all__ = ["check_memory", "expected_mib", "peak_mib", "usable_mib"]

_MIB = 1 << 20
_BASE_MIB = 40
_BYTES_BESIDE = 120
"""For each state: its place in a set that has just grown, and its share of a level in the making.

Measured up to 3 million orbits by benchmarks/exploration.py, which holds this to be no less than
what is used.
"""

_MEMINFO = Path("/proc/meminfo")
_SHARE = 0.75
_UNKNOWN_MIB = 2048


def expected_mib(scope: Scope, *, symmetry: bool) -> int:
    """Upper bound of what exploring a scope takes, in MiB, over all workers."""
    number = scope.num_orbits if symmetry else scope.num_states
    width = scope.num_blocks * (1 if symmetry else 2)
    return _BASE_MIB + number * (sys.getsizeof(bytes(width)) + _BYTES_BESIDE) // _MIB


def usable_mib(meminfo: Path = _MEMINFO) -> int:
    """Three quarters of the memory that is available now; 2048 where the system does not say."""
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
        (line,) = [line for line in lines if line.startswith("MemAvailable:")]
        return int(int(line.split()[1]) / 1024 * _SHARE)
    except (OSError, ValueError, IndexError):
        return _UNKNOWN_MIB


def check_memory(scope: Scope, limit_mib: int, *, symmetry: bool) -> None:
    """Raises ScopeError, with the estimate, for a scope that does not fit."""
    needed = expected_mib(scope, symmetry=symmetry)
    if needed <= limit_mib:
        return
    number = scope.num_orbits if symmetry else scope.num_states
    what = "orbits" if symmetry else "states"
    hint = "ask for fewer blocks, hashes or references, or raise --memory-limit"
    if not symmetry and expected_mib(scope, symmetry=True) <= limit_mib:
        hint = "leave out --no-symmetry"
    raise ScopeError(
        f"{scope} have {number:,} {what}, about {needed:,} MiB, and {limit_mib:,} MiB may be "
        f"used; {hint}"
    )


def peak_mib() -> int:
    """The most memory that this process has used so far, in MiB."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
