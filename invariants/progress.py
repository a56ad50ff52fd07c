"""LIVE: every request that fits ends, if its steps are answered and nobody else comes.

Nothing here depends on a clock: what is counted is steps. An engine is stuck where it plans nothing
though nothing is in flight, and in a circle where it computes, or loads, on and on and no user is
given a token.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import sequence_name

__all__ = ["MOST_EMPTY_PLANS", "loads_get_on", "plans_go_on", "users_are_served"]

MOST_EMPTY_PLANS = 8
"""Engines may free blocks, or take a request in, a few steps after they could."""


def plans_go_on(num_empty: int, waiting: Sequence[int]) -> Violation | None:
    """A violation of LIVE after so many plans in a row that compute nothing, or None.

    They are counted while nothing is in flight; `waiting` are the requests that have not ended.
    """
    if not waiting or num_empty < MOST_EMPTY_PLANS:
        return None
    return Violation(
        "LIVE",
        Severity.STALL,
        f"{_named(waiting)} waiting, nothing is in flight, and {num_empty} plans in a row computed "
        "nothing",
    )


def users_are_served(num_steps: int, waiting: Sequence[int], num_tokens: int) -> Violation | None:
    """A violation of LIVE after so many steps in which no user was given a token, or None.

    `num_tokens` are those of all waiting requests together: computing each of them twice, one in a
    step, is as slow as it may be.
    """
    most = 2 * num_tokens + 2 * MOST_EMPTY_PLANS
    if not waiting or num_steps <= most:
        return None
    return Violation(
        "LIVE",
        Severity.STALL,
        f"{_named(waiting)} waiting, and in {num_steps} steps nobody was given a token; their "
        f"{num_tokens} tokens take {most} steps at most",
    )


def loads_get_on(num_loads: int, waiting: Sequence[int], num_tokens: int) -> Violation | None:
    """A violation of LIVE after so many loads that arrived and served no user, or None.

    `num_tokens` are those of all waiting requests together. Who is preempted after a load loads
    again; one load for every step in which that may happen is plenty.
    """
    most = 2 * num_tokens + 2 * MOST_EMPTY_PLANS
    if not waiting or num_loads <= most:
        return None
    return Violation(
        "LIVE",
        Severity.STALL,
        f"{_named(waiting)} waiting, and {num_loads} loads have arrived since anybody was given a "
        f"token; their {num_tokens} tokens take {most} at most",
    )


def _named(waiting: Sequence[int]) -> str:
    names = [sequence_name(number) for number in waiting[:6]]
    if len(waiting) == 1:
        return f"request {names[0]} is"
    more = ", ..." if len(waiting) > len(names) else ""
    return f"requests {', '.join(names)}{more} are"
