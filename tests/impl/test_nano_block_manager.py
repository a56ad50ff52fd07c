"""The nano-vLLM-shaped manager: sequences, verified prefixes, release, and the known bugs."""

from __future__ import annotations

from typing import Any

import pytest
import xxhash

from poolproof.impl.nano_block_manager import BlockManager, ChainIndex, Sequence, packed_blocks


def admit(manager: BlockManager, tokens: list[int]) -> Sequence:
    seq = Sequence(tokens)
    manager.allocate(seq)
    return seq


def compute(manager: BlockManager, seq: Sequence, num_tokens: int | None = None) -> None:
    """One step: these tokens (None: all that are left) are computed and then published."""
    left = len(seq) - seq.num_cached_tokens
    seq.num_scheduled_tokens = left if num_tokens is None else num_tokens
    manager.hash_blocks(seq)
    seq.num_cached_tokens += seq.num_scheduled_tokens
    seq.num_scheduled_tokens = 0


def run(manager: BlockManager, tokens: list[int]) -> Sequence:
    seq = admit(manager, tokens)
    compute(manager, seq)
    return seq


def finished(manager: BlockManager, tokens: list[int]) -> list[int]:
    """Run a sequence to its end; the blocks that it had."""
    seq = run(manager, tokens)
    table = list(seq.block_table)
    manager.deallocate(seq)
    return table


def state(manager: BlockManager) -> Any:
    ids = range(manager.num_blocks)
    return (
        manager.free_order(),
        [manager.ref_count(b) for b in ids],
        [manager.block_hash(b) for b in ids],
        [manager.is_cached(b) for b in ids],
        [manager.cached_prefix(b) for b in ids],
        [manager.carriers(b) for b in ids],
    )


# Admission.


def test_a_sequence_gets_a_block_for_each_begun_block_of_tokens() -> None:
    manager = BlockManager(8, 4)
    assert [len(admit(manager, [0] * n).block_table) for n in (1, 4, 5)] == [1, 1, 2]


def test_what_fits_exactly_is_admitted_and_one_token_more_is_not() -> None:
    manager = BlockManager(2, 4)
    assert manager.can_allocate(Sequence([0] * 8)) == 0
    assert manager.can_allocate(Sequence([0] * 9)) == -1
    assert admit(manager, [0] * 8).block_table == [0, 1]


def test_hits_in_use_cost_nothing() -> None:
    manager = BlockManager(3, 2)
    held = run(manager, [1, 2, 3, 4])
    seq = Sequence([1, 2, 3, 4, 5])
    assert manager.can_allocate(seq) == 2
    assert manager.allocate(seq) == 2
    assert seq.block_table == [*held.block_table, 2]
    assert seq.num_cached_tokens == 4
    assert [manager.ref_count(b) for b in range(3)] == [2, 2, 1]


def test_hits_in_the_free_list_cost_their_place_there() -> None:
    # ROCm/ATOM#902: two hits and one fresh block out of two free ones do not fit.
    manager = BlockManager(3, 2)
    finished(manager, [1, 2, 3, 4])
    blocker = admit(manager, [9])
    assert blocker.block_table == [2]
    seq = Sequence([1, 2, 3, 4, 5])
    assert manager.can_allocate(seq) == -1
    manager.deallocate(blocker)
    assert manager.can_allocate(seq) == 2


def test_a_hit_is_not_recycled_for_the_same_sequence() -> None:
    # vllm#44409: the hit stands at the head of the queue, where fresh blocks come from.
    manager = BlockManager(2, 2)
    seq = run(manager, [1, 2])
    other = admit(manager, [9])
    manager.deallocate(seq)
    manager.deallocate(other)
    assert manager.free_order() == [0, 1]
    assert admit(manager, [1, 2, 3]).block_table == [0, 1]


def test_looking_changes_nothing() -> None:
    manager = BlockManager(4, 2)
    finished(manager, [1, 2, 3])
    before = state(manager)
    assert manager.can_allocate(Sequence([1, 2, 3])) == 1
    assert state(manager) == before


def test_one_token_is_always_left_to_compute() -> None:
    # nano-vllm#144.
    manager = BlockManager(4, 2)
    finished(manager, [1, 2, 3, 4])
    seq = Sequence([1, 2, 3, 4])
    assert manager.can_allocate(seq) == 1
    manager.allocate(seq)
    assert seq.num_cached_tokens == 2


def test_a_refused_admission_changes_nothing() -> None:
    manager = BlockManager(3, 2)
    finished(manager, [1, 2, 3])
    blocker = admit(manager, [9])
    before = state(manager)
    seq = Sequence([1, 2, 3, 4, 5])
    with pytest.raises(MemoryError, match="allocate: 3 blocks needed, 2 of 3 free"):
        manager.allocate(seq)
    assert state(manager) == before
    assert seq.block_table == []
    assert blocker.block_table == [2]


@pytest.mark.parametrize("promised", [0, 1, 2])
def test_a_promised_number_of_hits_is_used_exactly(promised: int) -> None:
    manager = BlockManager(6, 2)
    finished(manager, [1, 2, 3, 4, 5])
    seq = Sequence([1, 2, 3, 4, 5])
    assert manager.can_allocate(seq) == 2
    assert manager.allocate(seq, promised) == promised
    assert seq.num_cached_tokens == 2 * promised


@pytest.mark.parametrize("promised", [-1, 1, True, 1.0])
def test_a_promise_that_does_not_hold_is_refused(promised: Any) -> None:
    # vllm#18957: others were admitted since can_allocate was asked.
    manager = BlockManager(4, 2)
    seq = Sequence([1, 2, 3])
    with pytest.raises(
        ValueError, match=r"^allocate: .* promised, 0 found; ask can_allocate again$"
    ):
        manager.allocate(seq, promised)
    assert manager.num_free() == 4


def test_a_sequence_is_admitted_once() -> None:
    manager = BlockManager(4, 2)
    seq = admit(manager, [1])
    with pytest.raises(
        ValueError, match=r"^allocate: .* holds 1 blocks already; deallocate it first$"
    ):
        manager.allocate(seq)


def test_a_sequence_without_tokens_is_refused() -> None:
    seq = Sequence([1])
    seq.token_ids.clear()
    with pytest.raises(ValueError, match=r"^the sequence has no tokens; admit it with its prompt$"):
        BlockManager(1, 1).can_allocate(seq)


# Content.


def test_the_hash_is_the_published_one() -> None:
    manager = BlockManager(4, 2)
    seq = run(manager, [1, 2, 3, 4])
    first = xxhash.xxh64_intdigest(b"\1" + bytes(7) + b"\2" + bytes(7))
    assert manager.block_hash(seq.block_table[0]) == first
    second = first.to_bytes(8, "little") + b"\3" + bytes(7) + b"\4" + bytes(7)
    assert manager.block_hash(seq.block_table[1]) == xxhash.xxh64_intdigest(second)


def test_equal_tokens_under_another_parent_miss_under_any_hash() -> None:
    # openvino.genai#3722: a check of the block's own tokens is not enough.
    manager = BlockManager(6, 2, hash_function=lambda data: 0)
    finished(manager, [1, 1, 5, 5])
    finished(manager, [2, 2])
    assert manager.can_allocate(Sequence([2, 2, 5, 5, 0])) == 1
    assert manager.can_allocate(Sequence([1, 1, 5, 5, 0])) == 2
    assert manager.can_allocate(Sequence([5, 5, 0])) == 0


def test_one_block_is_never_two_hits_of_one_sequence() -> None:
    manager = BlockManager(6, 1, hash_function=lambda data: 0)
    finished(manager, [1])
    assert manager.can_allocate(Sequence([1, 1, 1])) == 1


def test_a_long_prefix_is_hit_to_its_end() -> None:
    # Longer than what is packed at once.
    manager = BlockManager(50, 1)
    finished(manager, list(range(40)))
    assert manager.can_allocate(Sequence(list(range(41)))) == 40
    assert sorted(len(manager.cached_prefix(b) or []) for b in range(50)) == [0] * 10 + [
        *range(1, 41)
    ]


def test_tokens_changed_in_place_are_looked_up_anew() -> None:
    manager = BlockManager(4, 1)
    finished(manager, [1, 2])
    seq = Sequence([1, 2, 3])
    assert manager.can_allocate(seq) == 2
    seq.token_ids[1] = 9
    assert manager.can_allocate(seq) == 1


@pytest.mark.parametrize("tokens", [[2**63], ["a"], [1.5]])
def test_tokens_are_ints_of_64_bits(tokens: Any) -> None:
    manager = BlockManager(4, 1)
    with pytest.raises(ValueError, match="ints of 64 bits"):
        manager.can_allocate(Sequence([*tokens, 1]))


@pytest.mark.parametrize("result", [-1, 2**64, b"x", True, None])
def test_a_hash_is_an_int_of_64_bits(result: Any) -> None:
    manager = BlockManager(4, 1, hash_function=lambda data: result)
    with pytest.raises(TypeError, match="hash_function must return an int"):
        manager.can_allocate(Sequence([1, 1]))


# Publication.


def test_a_block_is_found_only_after_its_step() -> None:
    # vllm#29387.
    manager = BlockManager(4, 2)
    seq = admit(manager, [1, 2, 3])
    assert manager.can_allocate(Sequence([1, 2, 3])) == 0
    compute(manager, seq)
    assert manager.can_allocate(Sequence([1, 2, 3])) == 1


def test_chunks_publish_the_blocks_that_they_complete() -> None:
    manager = BlockManager(4, 4)
    seq = admit(manager, list(range(10)))
    published = []
    for num_tokens in (3, 2, 2, 3):
        compute(manager, seq, num_tokens)
        published.append([b for b in range(4) if manager.block_hash(b) is not None])
    assert published == [[], [0], [0], [0, 1]]
    assert manager.cached_prefix(1) == list(range(8))


def test_an_abort_between_scheduling_and_computing_publishes_nothing() -> None:
    # text-generation-inference#2489.
    manager = BlockManager(2, 2)
    seq = admit(manager, [1, 2, 3])
    seq.num_scheduled_tokens = 3
    manager.deallocate(seq)
    manager.hash_blocks(seq)
    assert manager.can_allocate(Sequence([1, 2, 3])) == 0


def test_a_block_filled_while_decoding_is_published() -> None:
    manager = BlockManager(4, 2)
    seq = run(manager, [1])
    seq.append_token(2)
    manager.may_append(seq)
    assert manager.block_hash(0) is None
    compute(manager, seq)
    assert manager.cached_prefix(0) == [1, 2]


def test_a_forgotten_publication_is_made_up_for() -> None:
    manager = BlockManager(4, 2)
    seq = admit(manager, [1, 2, 3, 4])
    seq.num_cached_tokens = 2
    compute(manager, seq)
    assert [manager.cached_prefix(b) for b in seq.block_table] == [[1, 2], [1, 2, 3, 4]]


def test_a_chain_continues_from_a_revived_block() -> None:
    # nano-vllm f64d821: the revived block lost its hash, so the next one was named as a first one.
    manager = BlockManager(4, 2)
    finished(manager, [1, 2, 3])
    seq = run(manager, [1, 2, 3, 4])
    assert manager.cached_prefix(seq.block_table[1]) == [1, 2, 3, 4]
    assert manager.can_allocate(Sequence([3, 4, 0])) == 0


@pytest.mark.parametrize(("cached", "scheduled"), [(0, 4), (3, 1), (0, 5), (-1, 0)])
def test_counters_beyond_the_sequence_are_refused(cached: int, scheduled: int) -> None:
    # A block counted as full before it has its tokens would be published half empty.
    manager = BlockManager(4, 2)
    seq = admit(manager, [1, 2, 3])
    seq.num_cached_tokens, seq.num_scheduled_tokens = cached, scheduled
    with pytest.raises(ValueError, match="tokens computed, but the sequence has 3"):
        manager.hash_blocks(seq)


def test_a_token_without_a_slot_is_not_computed() -> None:
    manager = BlockManager(4, 2)
    seq = run(manager, [1, 2])
    seq.append_token(3)
    with pytest.raises(ValueError, match="slots for 2"):
        compute(manager, seq)


# Growth.


@pytest.mark.parametrize("block_size", [1, 2, 3])
def test_a_block_is_added_for_the_first_token_that_needs_it(block_size: int) -> None:
    # nano-vllm#30; with a block size of 1 every token does.
    manager = BlockManager(8, block_size)
    seq = run(manager, [0])
    for n in range(2, 8):
        seq.append_token(0)
        manager.may_append(seq)
        assert len(seq.block_table) == -(-n // block_size)


def test_growth_is_refused_exactly_when_a_block_is_missing() -> None:
    manager = BlockManager(1, 2)
    seq = run(manager, [1])
    seq.append_token(2)
    assert manager.can_append(seq)
    manager.may_append(seq)
    seq.append_token(3)
    assert not manager.can_append(seq)
    before = state(manager)
    with pytest.raises(MemoryError, match="may_append: 1 blocks needed, 0 of 1 free"):
        manager.may_append(seq)
    assert state(manager) == before


def test_several_tokens_may_take_several_blocks() -> None:
    manager = BlockManager(4, 2)
    seq = run(manager, [1, 2])
    for token in (3, 4, 5):
        seq.append_token(token)
    manager.may_append(seq)
    assert len(seq.block_table) == 3


@pytest.mark.parametrize("operation", ["can_append", "may_append"])
def test_growth_is_for_admitted_sequences(operation: str) -> None:
    with pytest.raises(ValueError, match=f"{operation}: the sequence holds no blocks"):
        getattr(BlockManager(2, 2), operation)(Sequence([1]))


# Release, recycling and revival.


def test_the_tail_of_a_chain_is_freed_first() -> None:
    # nano-vllm 59aa3ff.
    manager = BlockManager(3, 1)
    finished(manager, [1, 2, 3])
    assert manager.free_order() == [2, 1, 0]
    admit(manager, [9])
    assert manager.can_allocate(Sequence([1, 2, 3, 4])) == -1
    assert manager.can_allocate(Sequence([1, 2])) == 1


def test_a_shared_block_is_freed_with_its_last_holder() -> None:
    manager = BlockManager(3, 2)
    first = run(manager, [1, 2])
    second = admit(manager, [1, 2, 3])
    manager.deallocate(first)
    assert manager.free_order() == [2]
    manager.deallocate(second)
    assert manager.free_order() == [2, 1, 0]


def test_a_recycled_block_is_no_longer_found() -> None:
    # nano-vllm#163.
    manager = BlockManager(1, 1)
    finished(manager, [1])
    seq = admit(manager, [2])
    assert (manager.block_hash(0), manager.cached_prefix(0), manager.carriers(0)) == (
        None,
        None,
        [],
    )
    manager.deallocate(seq)
    assert manager.can_allocate(Sequence([1])) == 0


def test_a_recycled_block_with_the_same_tokens_under_another_parent_is_not_hit() -> None:
    # nano-vllm#163: its old hash in the map, its tokens equal, its KV another one.
    manager = BlockManager(3, 1)
    assert finished(manager, [1, 5]) == [0, 1]
    assert finished(manager, [2, 5]) == [2, 1]
    assert manager.can_allocate(Sequence([1, 5, 0])) == 1
    assert manager.can_allocate(Sequence([2, 5, 0])) == 2


def test_a_revived_block_keeps_its_hash() -> None:
    # nano-vllm 9fa256a.
    manager = BlockManager(4, 2)
    finished(manager, [1, 2, 3])
    for _ in range(2):
        seq = admit(manager, [1, 2, 3])
        assert seq.num_cached_tokens == 2
        manager.deallocate(seq)


def test_the_copy_of_a_prefix_is_found_when_the_other_is_recycled() -> None:
    # nano-vllm#219.
    manager = BlockManager(2, 1)
    first, second = admit(manager, [1]), admit(manager, [1])
    compute(manager, first)
    compute(manager, second)
    assert manager.carriers(0) == [0, 1]
    manager.deallocate(second)
    recycler = admit(manager, [2])
    assert recycler.block_table == [1]
    manager.deallocate(recycler)
    assert manager.can_allocate(Sequence([1, 9])) == 1


def test_a_copy_in_use_is_preferred_to_a_free_one() -> None:
    # Taking the free one would refuse what fits.
    manager = BlockManager(3, 1)
    first, second = admit(manager, [1]), admit(manager, [1])
    compute(manager, first)
    compute(manager, second)
    manager.deallocate(first)
    admit(manager, [8])
    seq = admit(manager, [1, 9])
    assert seq.block_table == [1, 0]


def test_a_second_release_does_nothing() -> None:
    # vllm#25067.
    manager = BlockManager(2, 2)
    seq = run(manager, [1])
    manager.deallocate(seq)
    manager.deallocate(seq)
    assert manager.free_order() == [1, 0]
    assert (seq.block_table, seq.num_cached_tokens, seq.num_scheduled_tokens) == ([], 0, 0)


@pytest.mark.parametrize("table", [[1], [0, 0], [2], [-1]])
def test_a_table_of_nobody_is_refused(table: list[int]) -> None:
    manager = BlockManager(2, 2)
    seq = admit(manager, [1])
    seq.block_table[:] = table
    before = state(manager)
    with pytest.raises(ValueError, match="is not one of this manager"):
        manager.deallocate(seq)
    assert state(manager) == before


def test_the_neighbours_in_the_queue_are_told() -> None:
    manager = BlockManager(3, 2)
    admit(manager, [1])
    assert [manager.free_neighbours(b) for b in range(3)] == [None, (None, 2), (1, None)]


# Reset and construction.


def test_a_reset_forgets_everything_unless_a_block_is_held() -> None:
    manager = BlockManager(2, 1)
    seq = run(manager, [1])
    before = state(manager)
    assert manager.reset() is False
    assert state(manager) == before
    manager.deallocate(seq)
    assert manager.reset() is True
    assert manager.can_allocate(Sequence([1, 2])) == 0
    assert manager.block_hash(0) is None


@pytest.mark.parametrize(
    ("sizes", "name"),
    [
        ((0, 1), "num_blocks"),
        ((1, 0), "block_size"),
        ((True, 1), "num_blocks"),
        ((1, 1.0), "block"),
    ],
)
def test_sizes_are_positive_ints(sizes: Any, name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}.* must be an int of at least 1"):
        BlockManager(*sizes)


def test_a_block_is_cached_when_it_has_a_hash() -> None:
    manager = BlockManager(4, 2)
    table = finished(manager, [1, 2, 3])
    assert [manager.is_cached(b) for b in table] == [True, False]
    assert [manager.block_hash(b) is not None for b in table] == [True, False]


def test_a_prefix_whose_carriers_are_all_free_is_found_in_the_first_of_them() -> None:
    manager = BlockManager(6, 2)
    first, second = admit(manager, [1, 2, 3]), admit(manager, [1, 2, 3])
    for seq in (first, second):
        compute(manager, seq)
    tables = [list(first.block_table), list(second.block_table)]
    manager.deallocate(first)
    manager.deallocate(second)
    assert sorted(manager.carriers(tables[0][0])) == sorted([tables[0][0], tables[1][0]])
    assert admit(manager, [1, 2, 4]).block_table[0] in {tables[0][0], tables[1][0]}


def test_a_hit_that_others_hold_saves_one_block_and_no_more() -> None:
    manager = BlockManager(3, 2)
    run(manager, [1, 2, 3])
    admit(manager, [9])
    assert manager.num_free() == 0
    with pytest.raises(MemoryError, match="1 blocks needed, 0 of 3 free"):
        manager.allocate(Sequence([1, 2, 4]))


def test_the_message_about_bad_tokens_says_where_they_are() -> None:
    message = "^tokens must be ints of 64 bits; some of 2 to 5 are none$"
    with pytest.raises(ValueError, match=message):
        list(packed_blocks([1, 2, 3, 4, 5, 2**64], 2, 1, 3))


def test_the_prefix_of_a_block_may_have_negative_tokens() -> None:
    manager = BlockManager(4, 2)
    (first, _) = finished(manager, [-1, 2, 3])
    assert manager.cached_prefix(first) == [-1, 2]


def test_a_sequence_starts_without_blocks() -> None:
    seq = Sequence([1, 2])
    assert (len(seq), seq.block_table, seq.num_cached_tokens, seq.num_scheduled_tokens) == (
        2,
        [],
        0,
        0,
    )


def test_the_prompt_is_copied() -> None:
    prompt = [1]
    seq = Sequence(prompt)
    seq.append_token(2)
    assert (prompt, seq.token_ids) == ([1], [1, 2])


def test_a_prompt_has_a_token() -> None:
    with pytest.raises(ValueError, match=r"^a sequence needs at least one token$"):
        Sequence([])


def test_sequences_with_equal_tokens_are_different() -> None:
    assert Sequence([1]) != Sequence([1])


def test_a_published_prefix_is_found() -> None:
    index = ChainIndex(3)
    first = index.publish(0, 7, None, b"12")
    second = index.publish(1, 8, first, b"34")
    assert index.find(7, None, b"12") is first
    assert index.find(8, first, b"34") is second
    assert (index.prefix_of, len(index)) == ([first, second, None], 2)


def test_equal_tokens_under_another_parent_miss_although_the_hash_is_equal() -> None:
    index = ChainIndex(3)
    first = index.publish(0, 7, None, b"1")
    other = index.publish(1, 7, None, b"2")
    index.publish(2, 7, first, b"3")
    assert index.find(7, other, b"3") is None
    assert index.find(7, None, b"3") is None


def test_other_tokens_under_the_same_hash_miss() -> None:
    index = ChainIndex(1)
    index.publish(0, 7, None, b"1")
    assert index.find(7, None, b"2") is None


def test_two_blocks_of_one_content_are_carriers_of_one_prefix() -> None:
    index = ChainIndex(2)
    assert index.publish(1, 7, None, b"1") is index.publish(0, 7, None, b"1")
    assert list(index.prefix_of[0].carriers) == [1, 0]


def test_the_copy_is_found_after_the_first_carrier_has_gone() -> None:
    index = ChainIndex(2)
    prefix = index.publish(0, 7, None, b"1")
    index.publish(1, 7, None, b"1")
    index.drop(0)
    assert index.find(7, None, b"1") is prefix
    assert list(prefix.carriers) == [1]


def test_the_entry_goes_with_the_last_carrier() -> None:
    index = ChainIndex(1)
    index.publish(0, 7, None, b"1")
    index.drop(0)
    assert index.find(7, None, b"1") is None
    assert (index.prefix_of, len(index)) == ([None], 0)


def test_dropping_a_block_without_a_prefix_does_nothing() -> None:
    index = ChainIndex(1)
    index.drop(0)
    assert index.prefix_of == [None]


@pytest.mark.parametrize("dropped", range(3))
def test_one_of_several_colliding_prefixes_can_go(dropped: int) -> None:
    index = ChainIndex(3)
    for block_id in range(3):
        index.publish(block_id, 7, None, bytes([block_id]))
    index.drop(dropped)
    found = [index.find(7, None, bytes([block_id])) is not None for block_id in range(3)]
    assert found == [block_id != dropped for block_id in range(3)]


def test_a_cleared_index_finds_nothing() -> None:
    index = ChainIndex(2)
    index.publish(0, 7, None, b"1")
    prefixes = index.prefix_of
    index.clear()
    assert (index.prefix_of, len(index)) == ([None, None], 0)
    assert index.prefix_of is prefixes


def test_blocks_with_one_prefix_carry_one_and_the_same_wherever_it_begins() -> None:
    index = ChainIndex(4)
    root = index.publish(0, 7, None, b"a")
    assert index.publish(1, 7, None, b"a") is root
    child = index.publish(2, 8, root, b"b")
    assert index.publish(3, 8, root, b"b") is child
    assert list(child.carriers) == [2, 3]
