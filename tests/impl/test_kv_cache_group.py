"""What each kind of attention needs of the past, compared with the positions that it reads."""

from itertools import product

import pytest

from poolproof.impl.kv_cache_group import (
    ChunkedLocal,
    FullAttention,
    RecurrentState,
    SlidingWindow,
    lay_out,
)


def first_read(kind, position):
    """The first position that the token at `position` reads, counted out."""
    if isinstance(kind, SlidingWindow):
        return max(0, position - kind.window + 1)
    if isinstance(kind, ChunkedLocal):
        return position // kind.chunk_size * kind.chunk_size
    if isinstance(kind, RecurrentState):
        return max(0, position - 1)
    return 0


KINDS = [
    FullAttention(),
    *(SlidingWindow(window=window) for window in (1, 2, 3, 4, 5, 9)),
    *(ChunkedLocal(chunk_size=size) for size in (1, 3, 4, 8)),
    RecurrentState(),
]


@pytest.mark.parametrize("kind", KINDS)
def test_skipped_is_what_no_later_token_reads(kind):
    for computed in range(30):
        reads = [first_read(kind, position) for position in range(computed, computed + 20)]
        assert kind.num_skipped_tokens(computed) == min(computed, *reads)


@pytest.mark.parametrize("kind", KINDS)
def test_the_peak_is_reached_and_never_passed(kind):
    limit = 40
    for block_size, in_flight in product((1, 2, 4), (1, 2, 5, 40)):
        held = [
            -(-end // block_size) - kind.num_skipped_tokens(computed) // block_size
            for computed in range(limit)
            for end in range(computed + 1, min(limit, computed + in_flight) + 1)
        ]
        assert kind.peak_blocks(block_size, in_flight, limit) == max(held)


def test_speculative_blocks_are_part_of_the_peak():
    assert RecurrentState(num_speculative_blocks=2).peak_blocks(4, 4, 40) == 4
    assert RecurrentState().peak_blocks(4, 4, 40) == 2


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: SlidingWindow(window=0), "window"),
        (SlidingWindow, "window"),
        (lambda: ChunkedLocal(chunk_size=0), "chunk_size"),
        (lambda: RecurrentState(num_speculative_blocks=-1), "num_speculative_blocks"),
    ],
)
def test_sizes_out_of_bounds_are_refused(make, name):
    with pytest.raises(ValueError, match=f"^{name} must be an int of at least"):
        make()


def layout(kinds, block_size=4, hash_block_size=None, *, use_eagle=False):
    return lay_out(
        kinds,
        block_size,
        hash_block_size=hash_block_size,
        use_eagle=use_eagle,
        max_in_flight_tokens=8,
        max_model_len=64,
    )


def test_hits_are_aligned_to_the_common_multiple_and_hashed_by_the_common_divisor():
    laid_out = layout([FullAttention(block_size=4), SlidingWindow(block_size=6, window=7)])
    assert (laid_out.alignment, laid_out.hash_block_size) == (12, 2)
    assert [laid_out.align(n) for n in (-4, 0, 11, 12, 25)] == [0, 0, 0, 12, 24]


def test_a_block_has_the_hash_of_its_last_hash_block():
    (group,) = layout([FullAttention()], hash_block_size=2).groups
    hashes = [b"%d" % i for i in range(9)]
    assert group.hashes(hashes, 0, 4) == [b"1", b"3", b"5", b"7"]
    assert group.hashes(hashes, 2, 3) == [b"5"]
    assert group.hashes(hashes, 2, 2) == []


def test_groups_must_be_groups():
    message = "^groups must be a list of FullAttention, SlidingWindow, ChunkedLocal or RecurrentS"
    for kinds in ([], ["full"]):
        with pytest.raises(ValueError, match=message):
            layout(kinds)


def test_the_smallest_sizes_are_one_token():
    window, chunk = SlidingWindow(window=1), ChunkedLocal(chunk_size=1)
    laid_out = layout([FullAttention(), window, chunk], 1, 1)
    assert [group.block_size for group in laid_out.groups] == [1, 1, 1]
    assert laid_out.hash_block_size == 1


@pytest.mark.parametrize("use_eagle", [True, False])
def test_a_layout_tells_whether_hits_need_a_proof(use_eagle):
    laid_out = layout([FullAttention(), RecurrentState()], use_eagle=use_eagle)
    assert laid_out.use_eagle is use_eagle
    assert [group.num_proof_blocks for group in laid_out.groups] == [int(use_eagle), 0]


def test_hash_blocks_must_divide_blocks():
    with pytest.raises(ValueError, match=r"3 does not divide all of \[4, 6\]"):
        layout([FullAttention(), FullAttention(block_size=6)], hash_block_size=3)


@pytest.mark.parametrize("size", [0, True, "4"])
def test_sizes_must_be_positive_ints(size):
    with pytest.raises(ValueError, match=r"^block_size must be an int"):
        layout([FullAttention()], size)
    with pytest.raises(ValueError, match=r"^hash_block_size must be an int"):
        layout([FullAttention()], hash_block_size=size)
