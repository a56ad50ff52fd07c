"""An orbit as one integer, and whether the orbits of a scope can be explored in bulk so.

The integer has the queue above and the held blocks below:

    queue   `num_hashes` bits a block, the tail lowest: bit h-1 for hash h, none for no hash
    held    one field for each kind, which is references and hash: how many blocks are of it,
            as the difference to the largest count, so that an empty field is all ones

Kinds ascend as the codes of `orbit_space.py` do, the first in the highest field. So of two names
for the hashes of one orbit the smaller integer has the smaller bytes there, and the smallest
integer is the same orbit's. How many blocks are free stands beside the integer: orbits of one
queue length are kept together.

Nothing here needs NumPy; what computes with whole arrays of such integers is `bulk_relation.py`.
"""

from __future__ import annotations

import importlib
from math import factorial

from poolproof.exploration.scope import ALL_VERBS, Scope

__all__ = ["VERB_BITS", "Packing", "plain_changes", "why_not_in_bulk"]

VERB_BITS = (len(ALL_VERBS) - 1).bit_length()
"""Room below an orbit for the verb that leads to it."""

_WORD_BITS = 64


class Packing:
    """Where the parts of an orbit of the scope stand in its integer."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.radix = scope.num_hashes + 1
        self.num_kinds = scope.max_references * self.radix
        self.count_bits = scope.num_blocks.bit_length()
        self.label_bits = scope.num_hashes
        self.held_bits = self.num_kinds * self.count_bits
        self.bits = self.held_bits + scope.num_blocks * self.label_bits
        self.shifts = [
            (self.num_kinds - 1 - kind) * self.count_bits for kind in range(self.num_kinds)
        ]

    def kind(self, references: int, label: int) -> int:
        """The number of a kind; its code in `orbit_space.py`, less the codes of free blocks."""
        return (references - 1) * self.radix + label

    def unit(self, references: int, label: int) -> int:
        """What one block more of a kind takes from the integer."""
        return 1 << self.shifts[self.kind(references, label)]

    def one_hot(self, label: int) -> int:
        """The bits of a hash in the queue, at the tail of an empty lower part."""
        return 1 << (label - 1) if label else 0

    def exchange(self, label: int) -> list[tuple[int, int]]:
        """For exchanging hashes `label` and `label + 1`: distances, and bits that move up by them.

        The bits so far above those move down in exchange.
        """
        lower = sum(1 << (place * self.label_bits) for place in range(self.scope.num_blocks))
        in_queue = lower << (self.held_bits + label - 1)
        field = (1 << self.count_bits) - 1
        in_held = sum(
            field << self.shifts[self.kind(references, label + 1)]
            for references in range(1, self.scope.max_references + 1)
        )
        return [(1, in_queue), (self.count_bits, in_held)]


def why_not_in_bulk(scope: Scope) -> str | None:
    """Why the orbits of a scope cannot be explored in bulk, in words; None if they can be."""
    bits = Packing(scope).bits + VERB_BITS
    if bits > _WORD_BITS:
        return f"an orbit and a verb take {bits} bits, and an integer has {_WORD_BITS}"
    # At most: an allocation and a reset, and for each block touch, free, evict and every cache.
    most_degree = 2 + scope.num_blocks * (3 + scope.num_hashes)
    if factorial(scope.num_blocks) * factorial(scope.num_hashes) * most_degree >> _WORD_BITS:
        return f"the transitions from the states of one orbit exceed {_WORD_BITS} bits"
    try:
        importlib.import_module("numpy")
    except ImportError as error:
        return f"NumPy cannot be imported ({error}); pip install 'poolproof[bulk]'"
    return None


def plain_changes(count: int) -> list[int]:
    """Which neighbours to exchange, the first of them, to come through all orders of `count`."""
    if count < 2:
        return []
    inner = plain_changes(count - 1)
    changes: list[int] = []
    sweep = list(range(count - 2, -1, -1))
    for number in range(factorial(count - 1)):
        is_down = number % 2 == 0
        changes += sweep if is_down else sweep[::-1]
        if number < len(inner):
            # The last of the orders' elements stands in front of the others after a sweep down.
            changes.append(inner[number] + is_down)
    return changes
