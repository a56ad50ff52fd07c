"""How large an exploration is: its bounds and rules, and how many states and how much memory.

Two numbers are known before anything is explored, and both come from counting alone, so that a
complete exploration can be held against them: the states of the closed form and the orbits of
Burnside's lemma. They hold where every combination of queue order, counts and hashes can be
reached (`is_closed`); elsewhere they are upper bounds. From them follows the memory that an
exploration will take, which is compared with what there is before it starts.
"""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from itertools import permutations
from math import comb, factorial, prod
from pathlib import Path

from poolproof.contract.errors import PoolproofError
from poolproof.contract.profile import Profile, joins_head

__all__ = [
    "ALL_VERBS",
    "ExplorationError",
    "Scope",
    "ScopeError",
    "check_memory",
    "expected_mib",
    "peak_mib",
    "usable_mib",
]


ALL_VERBS = ("allocate", "touch", "free", "cache", "evict", "reset")
"""The verbs of the transition relation; a target may lack the last two."""

_MOST_CODES = 256
"""A block's references and hash are one byte."""

_MOST_HASHES = 5
"""All renamings of hashes are held in tables, and there are factorially many."""


class ExplorationError(PoolproofError):
    """Something that keeps an exploration from being carried out, in words for its user."""


class ScopeError(ExplorationError):
    """Bounds that cannot be explored; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Scope:
    """Up to `max_references` references on each of `num_blocks` blocks, and `num_hashes` hashes.

    `num_blocks` counts the usable blocks: a null block never changes. `eviction`, `duplicates` and
    `recache` are the rows of the profile that change what a command of one block does; `verbs`
    are the commands that there are.
    """

    num_blocks: int
    num_hashes: int = 2
    max_references: int = 2
    eviction: str = "lru"
    duplicates: str = "kept"
    recache: str = "replace"
    verbs: tuple[str, ...] = ALL_VERBS

    def __post_init__(self) -> None:
        for name, value, least in (
            ("blocks", self.num_blocks, 1),
            ("hashes", self.num_hashes, 0),
            ("references", self.max_references, 1),
        ):
            if value < least:
                raise ScopeError(f"there must be at least {least} {name}, not {value}")
        if self.num_hashes > _MOST_HASHES:
            raise ScopeError(f"at most {_MOST_HASHES} hashes can be told apart, not {self}")
        if (self.max_references + 1) * (self.num_hashes + 1) >= _MOST_CODES:
            raise ScopeError(f"{self}: too many combinations of references and hashes for a byte")
        if self.num_blocks >= _MOST_CODES - 1:
            raise ScopeError(f"{self}: more blocks than a byte can number")
        if self.eviction == "unspecified":
            raise ScopeError(
                "eviction=unspecified fixes no order of the free blocks, so there is no one "
                "transition relation to explore"
            )

    def __str__(self) -> str:
        return (
            f"{self.num_blocks} blocks, {self.num_hashes} hashes, "
            f"references up to {self.max_references}"
        )

    def under(self, profile: Profile) -> Scope:
        """The same bounds under the rules of a profile. Raises ScopeError."""
        return replace(
            self,
            eviction=profile.eviction,
            duplicates=profile.duplicates,
            recache=profile.recache,
        )

    @property
    def rules(self) -> str:
        """The rows of the profile that the relation depends on, in words."""
        return f"eviction={self.eviction}, duplicates={self.duplicates}, recache={self.recache}"

    @property
    def is_closed(self) -> bool:
        """Whether every combination of queue order, counts and hashes can be reached.

        Not where one hash has one carrier. Not where nothing takes a hash away in the queue and
        its order depends on the hashes: then no block without a hash can stand behind one with.
        """
        splits = joins_head(self.eviction, False) and not joins_head(self.eviction, True)
        sorted_by_hash = splits and "evict" not in self.verbs
        return (
            self.duplicates == "kept"
            and {"allocate", "touch", "free", "cache"} <= set(self.verbs)
            and not (sorted_by_hash and self.num_hashes)
        )

    @property
    def num_states(self) -> int:
        """The closed form: sum over k free blocks of N!/(N-k)! R^(N-k), times (H+1)^N."""
        blocks = self.num_blocks
        ordered = sum(
            factorial(blocks) // factorial(held) * self.max_references**held
            for held in range(blocks + 1)
        )
        labels: int = (self.num_hashes + 1) ** blocks
        return int(ordered) * labels

    @property
    def num_orbits(self) -> int:
        """Burnside's lemma: the mean, over the renamings of hashes, of the states they leave.

        With the ids erased, a state is a word of labels (the queue) and a multiset of kinds of
        held blocks. A renaming leaves the words over the labels that it fixes, and the multisets
        that hold each of its cycles on kinds as a whole.
        """
        hashes = range(self.num_hashes)
        cycle_types = Counter(_cycle_type(renaming) for renaming in permutations(hashes))
        total = sum(count * self._unmoved(cycles) for cycles, count in cycle_types.items())
        return total // factorial(self.num_hashes)

    def _unmoved(self, cycles: tuple[int, ...]) -> int:
        """How many id-free states a renaming with cycles of these lengths leaves as they are."""
        fixed_labels = 1 + cycles.count(1)
        lengths = Counter((1, *cycles))
        # Coefficients of the product of 1/(1-x^length), one factor a cycle and reference count.
        held = [1] + [0] * self.num_blocks
        for length, number in lengths.items():
            factors = number * self.max_references
            held = [
                sum(
                    held[size - times * length] * comb(times + factors - 1, times)
                    for times in range(size // length + 1)
                )
                for size in range(self.num_blocks + 1)
            ]
        return sum(
            fixed_labels**free * held[self.num_blocks - free] for free in range(self.num_blocks + 1)
        )


def _cycle_type(renaming: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths of a permutation's cycles, ascending."""
    left, lengths = set(range(len(renaming))), []
    while left:
        start = place = min(left)
        length = 0
        while place in left:
            left.remove(place)
            place, length = renaming[place], length + 1
        assert place == start
        lengths.append(length)
    assert prod(lengths) > 0
    return tuple(sorted(lengths))


_MIB = 1 << 20
_BASE_MIB = 40
_BYTES_BESIDE = 120
"""For each state: its place in a set that has just grown, and its share of a level in the making.

Measured up to 3 million orbits by benchmarks/exploration.py, which holds this to be no less than
what is used.
"""

_BASE_IN_BULK_MIB = 70
_BYTES_IN_BULK = 24
"""For each orbit that is explored in bulk: its integer, where it is merged, and its level's share.

Measured as above.
"""

_MEMINFO = Path("/proc/meminfo")
_SHARE = 0.75
_UNKNOWN_MIB = 2048


def expected_mib(scope: Scope, *, symmetry: bool, in_bulk: bool = False) -> int:
    """Upper bound of what exploring a scope takes, in MiB, over all workers."""
    if in_bulk:
        return _BASE_IN_BULK_MIB + scope.num_orbits * _BYTES_IN_BULK // _MIB
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


def check_memory(
    scope: Scope, limit_mib: int, *, symmetry: bool, in_bulk: bool = False, why: str = ""
) -> None:
    """Raises ScopeError, with the estimate, for a scope that does not fit.

    `why` is said behind it: why the way that would take less is not gone.
    """
    needed = expected_mib(scope, symmetry=symmetry, in_bulk=in_bulk)
    if needed <= limit_mib:
        return
    number = scope.num_orbits if symmetry else scope.num_states
    what = "orbits" if symmetry else "states"
    hint = "ask for fewer blocks, hashes or references, or raise --memory-limit"
    if not symmetry and expected_mib(scope, symmetry=True) <= limit_mib:
        hint = "leave out --no-symmetry"
    raise ScopeError(
        f"{scope} have {number:,} {what}, about {needed:,} MiB, and {limit_mib:,} MiB may be "
        f"used; {hint}" + (f" (not explored in bulk: {why})" if why else "")
    )


def peak_mib() -> int:
    """The most memory that this process has used so far, in MiB."""
    import resource

    # Linux counts in KiB, macOS in bytes: getrusage(2) of each.
    units = _MIB if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // units
