"""What `poolproof explore` prints of an exploration: counts, the two checks, and what fired."""

from __future__ import annotations

from collections.abc import Iterator

from poolproof.exploration.breadth_first import Exploration
from poolproof.exploration.scope import ALL_VERBS

__all__ = ["exploration_lines", "is_as_counted"]


def is_as_counted(found: Exploration) -> bool:
    """Whether a complete exploration has the states and orbits that counting alone predicts."""
    if found.stopped or not found.scope.is_closed:
        return True
    expected = found.scope.num_orbits if found.has_symmetry else found.scope.num_states
    total = found.total
    return (total.num_found, total.num_states) == (expected, found.scope.num_states)


def exploration_lines(
    found: Exploration, *, workers: int, memory_mib: int, how: str = ""
) -> Iterator[str]:
    """The report, line by line; `how` says in which way the states were visited."""
    scope, total = found.scope, found.total
    yield f"pool        {scope}; {scope.rules}"
    if scope.verbs != ALL_VERBS:
        yield f"commands    {', '.join(scope.verbs)}"
    what = (
        f"{total.num_found:,} orbits = {total.num_states:,} states"
        if found.has_symmetry
        else f"{total.num_states:,} states, unreduced"
    )
    yield f"explored    {what}"
    fired = sum(total.fired.values())
    beside = f", {fired:,} up to symmetry" if found.has_symmetry else ""
    yield f"transitions {total.num_transitions:,}{beside}"
    yield f"depth       {found.depth}"
    yield from _completeness(found)
    yield "action      new : fired" + (" up to symmetry" if found.has_symmetry else "")
    for verb in scope.verbs:
        yield f"  {verb:<9} {total.new[verb]:>10,} : {total.fired[verb]:,}"
    processes = "1 process" if workers == 1 else f"{workers} processes"
    yield f"took        {found.seconds:.2f} s, {memory_mib:,} MiB, {processes}"
    if how:
        yield f"how         {how}"


def _completeness(found: Exploration) -> Iterator[str]:
    scope, total = found.scope, found.total
    if found.stopped:
        share = ""
        if scope.is_closed:
            share = f" ({total.num_states / scope.num_states:.2%} of the closed form)"
        yield (
            f"truncated   {found.stopped}: covered is everything up to {found.depth} transitions "
            f"away{share}"
        )
        return
    yield "truncated   no: nothing new is left"
    if not scope.is_closed:
        yield "closed form none for these rules: not every combination can be reached"
        return
    yield (
        "closed form sum over k of N!/(N-k)! R^(N-k), times (H+1)^N = "
        f"{scope.num_states:,}: {_equal(total.num_states == scope.num_states)}"
    )
    if found.has_symmetry:
        equal = _equal(total.num_found == scope.num_orbits)
        yield f"Burnside    {scope.num_orbits:,} orbits: {equal}"


def _equal(is_equal: bool) -> str:
    return "equal" if is_equal else "NOT EQUAL"
