"""A pool of six blocks in one handmade state: what it shows, and what is known about it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from poolproof.contract.observation import PoolLedger, PoolObservation

A, B, C = b"\xaa" * 16, b"\xbb" * 16, b"\xcc" * 16


@pytest.fixture
def known() -> PoolLedger:
    """Six blocks: 0 is null, 1 held by #2 and #5 under A, 2 held by #3; 4, 3, 5 free, 4 under B."""
    return PoolLedger(
        holders={0: (), 1: (2, 5), 2: (3,), 3: (), 4: (), 5: ()},
        keys={0: (), 1: (A,), 2: (), 3: (), 4: (B,), 5: ()},
        carriers={A: (1,), B: (4,)},
        free_order=(4, 3, 5),
        null_block=0,
    )


@pytest.fixture
def seen() -> PoolObservation:
    """What a pool shows that is in exactly that state."""
    return PoolObservation(
        num_blocks=6,
        num_free=3,
        free_order=[4, 3, 5],
        ref_counts=[0, 2, 1, 0, 0, 0],
        block_hashes=[None, A, None, None, B, None],
        neighbours=[None, None, None, (4, 5), (None, 3), (3, None)],
        lookups={A: 1, B: 4, C: None},
    )


@pytest.fixture
def changed(seen: PoolObservation) -> Callable[..., PoolObservation]:
    """The right observation with some fields replaced, and no links where the order changes."""

    def change(**fields: Any) -> PoolObservation:
        if "free_order" in fields:
            fields.setdefault("neighbours", None)
        return dataclasses.replace(seen, **fields)

    return change
