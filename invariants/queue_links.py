"""LINK: the free queue is one well-formed doubly linked list.

A block outside the queue has no links, next and previous are inverse to each other, and the walk
ends. Checked from the neighbours that a target shows; the walk's end is bounded by the adapter,
which stops after one link more than there are blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.observation import Neighbours, PoolLedger, PoolObservation
from poolproof.contract.violation import Severity, Violation

__all__ = ["links_inverse", "links_well_formed"]


def links_well_formed(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of LINK in a pool's free queue, or None."""
    if seen.free_order is None or seen.neighbours is None:
        return None
    return links_inverse(seen.free_order, seen.neighbours, known.null_block)


def links_inverse(
    order: Sequence[int], neighbours: Sequence[Neighbours], ignored: int | None = None
) -> Violation | None:
    """A violation of LINK between a walk from the head and the blocks' own links, or None."""
    expected: dict[int, Neighbours] = {}
    for position, block in enumerate(order):
        before = order[position - 1] if position else None
        after = order[position + 1] if position + 1 < len(order) else None
        expected[block] = (before, after)
    for block, links in enumerate(neighbours):
        if block == ignored or links == expected.get(block):
            continue
        if block not in expected:
            return _broken(block, f"is outside the free queue but still linked {_sides(links)}")
        if links is None:
            return _broken(block, "is met by a walk of the free queue but shows no links")
        return _broken(
            block, f"is linked {_sides(links)}, but the walk from the head meets it "
            f"{_sides(expected[block])}"
        )  # fmt: skip
    return None


def _broken(block: int, what: str) -> Violation:
    return Violation(
        "LINK",
        Severity.CRASH,
        f"block {block} {what}; a later removal would tear the queue apart",
        (block,),
    )


def _sides(links: Neighbours) -> str:
    before, after = links or (None, None)
    left = "the head" if before is None else f"block {before}"
    right = "the tail" if after is None else f"block {after}"
    return f"between {left} and {right}"
