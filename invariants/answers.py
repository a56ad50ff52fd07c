"""What every method promises about its answers, whatever they say (I2).

A list belongs to its caller from the moment it is returned: a server writes it into a block table
and reads that for as long as the request lives. An id is an integer. Another instance is nobody's
business. `harness/careful_session.py` looks; here are the sentences.
"""

from __future__ import annotations

from dataclasses import replace

from poolproof.contract.violation import Severity, Violation

__all__ = [
    "changed_beside",
    "changed_by_neighbour",
    "idle_pool",
    "list_changed_later",
    "no_plain_answer",
]


def list_changed_later(answered: str, was: str, now: str) -> Violation:
    """A list that a call `answered` with is not what it was."""
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"the list that {answered} answered was {was} and is {now} now: it belongs to its caller, "
        "who reads its block table from it; the pool must keep a copy of its own",
    )


def no_plain_answer(answered: str, shown: str, why: str) -> Violation:
    """What a call `answered` is not what the contract says, although it may compare equal."""
    return Violation(
        "I2", Severity.CRASH, f"{answered} answered {shown}, {why}; an id is an integer"
    )


def changed_beside(found: Violation) -> Violation:
    """Another instance was driven, and this one broke: the finding in the idle one's words."""
    return replace(
        found,
        sentence=f"two instances share state: one that nobody called changed with the other's "
        f"calls; of the idle one, {found.sentence}",
    )


def idle_pool(found: Violation) -> Violation:
    """What is wrong in an instance that only held two blocks and cached one of them."""
    return replace(
        found,
        sentence=f"in a second pool, where two blocks were allocated and one was cached: "
        f"{found.sentence}",
    )


def changed_by_neighbour(found: Violation) -> Violation:
    """A pool was whole until another instance was built and used."""
    return replace(
        found,
        sentence=f"two instances share state: building and using another one changed this one; "
        f"{found.sentence}",
    )
