"""Two lines for each pool; depth and seed come from `[tool.poolproof]`."""

from pathlib import Path

import pytest

import poolproof

PROJECT = Path(__file__).resolve().parents[1]


def test_the_pool_holds() -> None:
    """Passes after some seconds."""
    poolproof.assert_holds(f"{PROJECT}/block_pool.py:Pool")


@pytest.mark.xfail(raises=poolproof.NotHeldError, reason="the index keeps a reused block")
def test_the_stale_pool_holds() -> None:
    """Fails as expected, with the steps that lead there."""
    poolproof.assert_holds(f"{PROJECT}/stale_pool.py:Pool")
