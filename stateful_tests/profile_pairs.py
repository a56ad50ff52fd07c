"""Profiles for tests: few of them, in which every two values of different rows stand together.

The profile table has thousands of combinations; most faults of combinations need two values at
once. Not covered: three and more values that only break together; the deep tests take products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

__all__ = ["all_pairs", "overrides_text"]


def all_pairs(rows: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Combinations of the rows' values, one value a row, that cover all pairs; deterministic.

    Greedy: each combination begins with a pair that is still missing, and every further row takes
    the value that adds most missing pairs.
    """
    missing = {
        frozenset([(first, x), (second, y)]): None
        for first, second in combinations(rows, 2)
        for x in rows[first]
        for y in rows[second]
    }
    chosen: list[dict[str, Any]] = []
    while missing:
        taken = dict(next(iter(missing)))
        for row in rows:
            if row not in taken:
                taken[row] = max(
                    rows[row],
                    key=lambda value: sum(  # type: ignore[misc, unused-ignore] # a generic sum, by version
                        frozenset([(row, value), other]) in missing for other in taken.items()
                    ),
                )
        for pair in combinations(taken.items(), 2):
            missing.pop(frozenset(pair), None)
        chosen.append({row: taken[row] for row in rows})
    return chosen


def overrides_text(combination: Mapping[str, Any]) -> str:
    """The combination as it stands in a target string: `[eviction=lifo,null_block=0]`."""
    return f"[{','.join(f'{row}={value}' for row, value in combination.items())}]"
