"""Sizing: exact bytes and whole blocks."""

from fractions import Fraction
from typing import Any

import pytest

from poolproof.impl.sizing import available_kv_bytes, block_size_bytes, num_blocks


def test_a_block_counts_keys_and_values() -> None:
    assert block_size_bytes(4, 4, 8, 128, 2) == 65_536
    assert block_size_bytes(16, 32, 8, 128, 2) == 2_097_152


def test_a_latent_is_counted_once() -> None:
    assert block_size_bytes(64, 61, 1, 576, 2, num_tensors=1) == 64 * 61 * 576 * 2


@pytest.mark.parametrize("position", range(5))
@pytest.mark.parametrize("value", [0, -1, True, 2.0, "2"])
def test_every_factor_is_a_positive_int(position: int, value: Any) -> None:
    factors: list[Any] = [4, 4, 8, 128, 2]
    factors[position] = value
    with pytest.raises(ValueError, match="must be an int of at least 1, not"):
        block_size_bytes(*factors)


@pytest.mark.parametrize("share", [0.9, "0.9", Fraction(9, 10)])
def test_the_share_is_exact(share: Any) -> None:
    # The product in floating point is 7 bytes less.
    assert available_kv_bytes(10 * (2**53 - 1), 1, share) == 9 * (2**53 - 1) - 1


def test_nothing_remains_when_the_peak_is_above_the_share() -> None:
    assert available_kv_bytes(100, 91, 0.9) == 0
    assert available_kv_bytes(100, 100, 1) == 0
    assert available_kv_bytes(100, 89, 0.9) == 1


@pytest.mark.parametrize("share", [0, -0.1, 1.01, "much", "1/0", float("nan"), float("inf"), None])
def test_the_share_is_between_nothing_and_all(share: Any) -> None:
    with pytest.raises(ValueError, match="memory_utilization must be above 0 and at most 1"):
        available_kv_bytes(100, 0, share)


@pytest.mark.parametrize(("total", "peak"), [(-1, 0), (0, -1), (1.0, 0), (0, None)])
def test_memory_is_a_count_of_bytes(total: Any, peak: Any) -> None:
    with pytest.raises(ValueError, match="memory_bytes must be an int of at least 0"):
        available_kv_bytes(total, peak, 0.5)


def test_only_whole_blocks_count() -> None:
    assert [num_blocks(n, 10) for n in (0, 9, 10, 29, 30)] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(("available", "each"), [(-1, 1), (1, 0), (1.5, 1), (1, True)])
def test_blocks_need_memory_and_a_size(available: Any, each: Any) -> None:
    with pytest.raises(ValueError, match="must be an int of at least"):
        num_blocks(available, each)
