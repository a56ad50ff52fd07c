"""New tapes out of old ones: an answer changed here and there, parts left out, repeated, joined.

All work on answers, of two bytes each, so that a change stays where it is. What follows on a
shorter tape is drawn anew, or chosen by novelty, by its driver.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

__all__ = ["mutated"]

Answers = tuple[int, ...]


def mutated(tape: Answers, other: Answers, source: random.Random) -> Answers:
    """Some change of `tape`, perhaps with a part of `other`."""
    kind = source.randrange(6)
    if kind == 0 or len(tape) < 8:
        return tape  # goes on where the tape ends
    if kind == 1:
        return tape[: source.randrange(4, len(tape))]
    if kind == 2:
        return _havoc(tape, source)
    if kind == 3:
        start, end = _stretch(tape, source)
        return tape[:start] + tape[end:]
    if kind == 4:
        start, end = _stretch(tape, source)
        return tape[:end] + tape[start:end] + tape[end:]
    if len(other) < 8:
        return _havoc(tape, source)
    # The first answers choose the kind of run, so that both parts are read in the same way.
    return tape[: source.randrange(4, len(tape))] + other[source.randrange(4, len(other)) :]


def _havoc(tape: Answers, source: random.Random) -> Answers:
    """One to sixteen answers are others."""
    changed = list(tape)
    for _ in range(1 << source.randrange(5)):
        changed[source.randrange(len(changed))] = source.getrandbits(16)
    return tuple(changed)


def _stretch(tape: Sequence[int], source: random.Random) -> tuple[int, int]:
    """Where a part behind the first answers begins and ends."""
    start = source.randrange(4, len(tape))
    return start, min(len(tape), start + 1 + source.randrange(64))
