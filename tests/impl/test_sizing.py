"""Sizing: exact bytes and whole blocks."""

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

from poolproof.impl.sizing import (
    available_kv_bytes,
    block_size_bytes,
    blocks_per_sequence,
    max_concurrency,
    num_blocks,
    page_size_bytes,
    pool_block_bytes,
    swap_space_bytes,
)


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
    with pytest.raises(
        ValueError, match=r"memory_utilization must be (above 0 and at most 1|a number)"
    ):
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


def test_a_page_is_a_block_of_one_layer() -> None:
    assert page_size_bytes(16, 8, 128, 2) == 65_536
    assert 32 * page_size_bytes(16, 8, 128, 2) == block_size_bytes(16, 32, 8, 128, 2)
    assert page_size_bytes(64, 1, 576, 2, num_tensors=1) == 64 * 576 * 2


@pytest.mark.parametrize("position", range(4))
def test_every_factor_of_a_page_is_a_positive_int(position: int) -> None:
    factors: list[Any] = [4, 8, 128, 2]
    factors[position] = 0
    with pytest.raises(ValueError, match="must be an int of at least 1, not 0"):
        page_size_bytes(*factors)


def test_the_groups_of_a_pool_share_their_tensors() -> None:
    # 30 layers with a window and 6 without: as many tensors as the larger group has layers.
    assert pool_block_bytes([[100] * 30, [100] * 6]) == 3000
    assert pool_block_bytes([[65_536] * 32]) == block_size_bytes(16, 32, 8, 128, 2)


@pytest.mark.parametrize(
    "pages", [[], [[]], [[100], [200]], [[100, 200]]], ids=["none", "empty", "groups", "layers"]
)
def test_the_pages_of_a_pool_are_equal(pages: list[list[int]]) -> None:
    with pytest.raises(ValueError, match="all layers of a pool need one page size, not"):
        pool_block_bytes(pages)


def test_a_page_has_bytes() -> None:
    with pytest.raises(ValueError, match="page size in bytes must be an int of at least 1, not 0"):
        pool_block_bytes([[0]])


@pytest.mark.parametrize(
    ("gib", "expected"),
    [(4, 2**32), (0, 0), ("0.5", 2**29), (0.1, 2**30 // 10), (Fraction(1, 2), 2**29)],
)
def test_swap_space_is_given_in_gib(gib: Any, expected: int) -> None:
    assert swap_space_bytes(gib) == expected


@pytest.mark.parametrize("gib", [-1, "much", float("inf"), None])
def test_swap_space_is_a_size(gib: Any) -> None:
    with pytest.raises(ValueError, match="swap_space_gib must be"):
        swap_space_bytes(gib)


def test_the_blocks_of_both_devices_follow_from_a_profile() -> None:
    each = block_size_bytes(16, 32, 8, 128, 2)
    assert num_blocks(available_kv_bytes(24 * 2**30, 16 * 2**30, 0.9), each) == 2867
    assert num_blocks(swap_space_bytes(4), each) == 2048


@pytest.mark.parametrize(("num_tokens", "expected"), [(0, 0), (1, 1), (16, 1), (17, 2)])
def test_a_begun_block_counts(num_tokens: int, expected: int) -> None:
    assert blocks_per_sequence(num_tokens, 16) == expected


@pytest.mark.parametrize(("num_tokens", "expected"), [(1, 1), (63, 4), (64, 4), (65, 4), (9999, 4)])
def test_a_window_bounds_the_blocks(num_tokens: int, expected: int) -> None:
    blocks = blocks_per_sequence(num_tokens, 16, sliding_window_tokens=64)
    assert (type(blocks), blocks) == (int, expected)


@pytest.mark.parametrize(
    ("arguments", "window", "name"),
    [
        ((-1, 16), None, "num_tokens"),
        ((1, 0), None, "block_size_tokens"),
        ((1, 16), 0, "sliding_window_tokens"),
        ((1, 16), 24, "sliding_window_tokens must be a multiple of the block size 16"),
    ],
)
def test_the_blocks_of_a_sequence_need_sizes(
    arguments: tuple[int, int], window: int | None, name: str
) -> None:
    with pytest.raises(ValueError, match=name):
        blocks_per_sequence(*arguments, sliding_window_tokens=window)


def test_concurrency_is_exact() -> None:
    assert max_concurrency(1001, 256, num_reserved_blocks=1) == Fraction(125, 32)
    assert int(max_concurrency(1001, 256, num_reserved_blocks=1)) == 3
    assert max_concurrency(0, 1) == 0


@pytest.mark.parametrize(
    ("arguments", "reserved", "message"),
    [
        ((-1, 1), 0, "num_blocks must be"),
        ((1, 0), 0, "blocks_per_request must be"),
        ((1, 1), -1, "num_reserved_blocks must be"),
        ((1, 1), 2, "2 blocks are reserved, of 1"),
    ],
)
def test_concurrency_needs_blocks(arguments: tuple[int, int], reserved: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        max_concurrency(*arguments, num_reserved_blocks=reserved)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: block_size_bytes(4, 0, 8, 128, 2),
            "num_layers must be an int of at least 1, not 0",
        ),
        (
            lambda: page_size_bytes(0, 8, 128, 2),
            "block_size_tokens must be an int of at least 1, not 0",
        ),
        (lambda: page_size_bytes(4, 0, 128, 2), "num_kv_heads must be an int of at least 1, not 0"),
        (lambda: page_size_bytes(4, 8, 0, 2), "head_size must be an int of at least 1, not 0"),
        (
            lambda: page_size_bytes(4, 8, 128, 0),
            "element_size_bytes must be an int of at least 1, not 0",
        ),
        (
            lambda: page_size_bytes(4, 8, 128, 2, num_tensors=0),
            "num_tensors must be an int of at least 1, not 0",
        ),
        (lambda: pool_block_bytes([[0]]), "page size in bytes must be an int of at least 1, not 0"),
        (
            lambda: pool_block_bytes([[200, 100]]),
            (
                "all layers of a pool need one page size, not [100, 200] bytes; "
                "choose block sizes that give equal pages, or pad"
            ),
        ),
        (
            lambda: available_kv_bytes(-1, 0, 1),
            "total_memory_bytes must be an int of at least 0, not -1",
        ),
        (
            lambda: available_kv_bytes(0, -1, 1),
            "peak_memory_bytes must be an int of at least 0, not -1",
        ),
        (
            lambda: available_kv_bytes(0, 0, "2"),
            "memory_utilization must be above 0 and at most 1, not '2'",
        ),
        (lambda: available_kv_bytes(0, 0, "x"), "memory_utilization must be a number, not 'x'"),
        (lambda: swap_space_bytes(-1), "swap_space_gib must be at least 0, not -1"),
        (lambda: swap_space_bytes("x"), "swap_space_gib must be a number, not 'x'"),
        (lambda: num_blocks(-1, 1), "available_bytes must be an int of at least 0, not -1"),
        (lambda: num_blocks(1, 0), "bytes_per_block must be an int of at least 1, not 0"),
        (lambda: blocks_per_sequence(-1, 1), "num_tokens must be an int of at least 0, not -1"),
        (
            lambda: blocks_per_sequence(1, 0),
            "block_size_tokens must be an int of at least 1, not 0",
        ),
        (
            lambda: blocks_per_sequence(1, 1, sliding_window_tokens=0),
            "sliding_window_tokens must be an int of at least 1, not 0",
        ),
        (
            lambda: blocks_per_sequence(1, 2, sliding_window_tokens=3),
            "sliding_window_tokens must be a multiple of the block size 2, not 3",
        ),
        (lambda: max_concurrency(-1, 1), "num_blocks must be an int of at least 0, not -1"),
        (lambda: max_concurrency(1, 0), "blocks_per_request must be an int of at least 1, not 0"),
        (
            lambda: max_concurrency(1, 1, num_reserved_blocks=-1),
            "num_reserved_blocks must be an int of at least 0, not -1",
        ),
        (
            lambda: max_concurrency(1, 1, num_reserved_blocks=2),
            "2 blocks are reserved, of 1",
        ),
    ],
)
def test_a_refusal_names_the_argument_and_what_it_should_be(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


def test_the_smallest_sizes_are_accepted() -> None:
    assert block_size_bytes(1, 1, 1, 1, 1, num_tensors=1) == 1
    assert pool_block_bytes([[1]]) == 1
    assert available_kv_bytes(0, 0, 1) == 0
    assert num_blocks(1, 1) == 1
    assert blocks_per_sequence(1, 1, sliding_window_tokens=1) == 1
    assert max_concurrency(1, 1, num_reserved_blocks=1) == 0
