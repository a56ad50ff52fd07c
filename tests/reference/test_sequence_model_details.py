"""What the model of a manager keeps of each sequence: whose references, which keys, which setting.

What comes out of each operation is in test_sequence_model.py.
"""

from __future__ import annotations

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.content_names import ContentNames
from poolproof.reference.sequence_model import SequenceModel

SETTING = {"lora": ("x", "0"), "salt": "s", "images": (Image("p", 1, 4),)}


def model_of(num_blocks=8, block_size=2, *, caching=True, **rows):
    profile = ManagerProfile.from_mapping(rows)
    return SequenceModel(num_blocks, block_size, profile, enable_caching=caching)


def admitted(model, seq_id, tokens, *tables):
    sequence = model.new_sequence(seq_id, TokenChain(tuple(tokens)))
    sequence.num_scheduled = len(tokens)
    model.admit(sequence, 0, [list(table) for table in tables])
    return sequence


def computed(model, sequence):
    model.computed(sequence)
    model.publish(sequence)
    return sequence


def forked(model, parent, seq_id):
    child = model.new_sequence(seq_id, parent.chain)
    model.share(parent, child)
    return child


def keyed(model, sequence):
    return [[bool(model.pool.keys[block]) for block in table] for table in sequence.tables]


def test_hits_are_held_by_the_sequence_that_was_admitted():
    model = model_of()
    computed(model, admitted(model, 3, [1, 2, 3], [0, 1]))
    model.admit(model.new_sequence(4, TokenChain((1, 2, 9))), 2, [[0, 2]])
    assert [model.pool.holders[block] for block in (0, 1, 2)] == [[3, 4], [3], [4]]


def test_new_blocks_of_every_group_are_taken():
    model = model_of(groups="full+full")
    sequence = admitted(model, 0, [1, 2], [0], [1])
    model.follow(sequence, [[0, 2], [1, 3]])
    assert [model.pool.holders[block] for block in range(4)] == [[0]] * 4


def test_a_merged_block_is_given_back_by_the_sequence_that_leaves_it():
    model = model_of(duplicates="first", tables="merged")
    computed(model, admitted(model, 0, [1, 2, 3], [0, 1]))
    other = computed(model, admitted(model, 1, [1, 2, 4], [2, 3]))
    child = forked(model, other, 2)
    model.merge(child, [[0, 3]])
    assert [model.pool.holders[block] for block in (0, 2)] == [[0, 2], [1]]
    assert child.tables == [[0, 3]]


@pytest.mark.parametrize("frees", ["at-once", "after-step"])
def test_the_sequence_that_ends_gives_up_its_own_references(frees):
    model = model_of(frees=frees)
    parent = computed(model, admitted(model, 0, [1, 2], [0]))
    model.end(forked(model, parent, 1))
    model.drain()
    assert model.pool.holders[0] == [0]


def test_host_blocks_are_given_up_by_the_sequence_that_held_them():
    model = model_of(host_blocks=2)
    parent = computed(model, admitted(model, 0, [1, 2], [0]))
    family = [parent, forked(model, parent, 1)]
    for sequence in family:
        model.release(sequence)
        sequence.place = "host"
    model.settle(family, [[[1]], [[1]]], model.host)
    model.release(family[1])
    assert model.host.holders[1] == [0]


def test_a_preempted_sequence_samples_no_longer():
    model = model_of()
    sequence = admitted(model, 0, [1, 2], [0])
    sequence.is_sampling = True
    model.preempt(sequence)
    assert sequence.is_sampling is False


def test_a_step_computes_the_drafts_and_ends_the_sampling():
    model = model_of()
    sequence = admitted(model, 0, [1, 2], [0, 1])
    model.draft(sequence, [3, 4])
    sequence.is_sampling = True
    assert sequence.drafts_computed is False
    model.computed(sequence)
    assert (sequence.is_sampling, sequence.drafts_computed) == (False, True)
    model.accept(sequence, [3])
    assert (sequence.num_computed, sequence.drafts_computed) == (3, False)
    model.computed(sequence)
    assert sequence.drafts_computed is False


def test_drafts_that_were_not_computed_are_tokens_without_kv():
    model = model_of()
    sequence = computed(model, admitted(model, 0, [1, 2], [0, 1]))
    model.draft(sequence, [3])
    model.accept(sequence, [3])
    assert (sequence.num_tokens, sequence.num_computed) == (3, 2)


def test_what_is_scheduled_behind_what_is_computed_is_published_where_keys_come_early():
    model = model_of(publishes="scheduled")
    sequence = admitted(model, 0, [1, 2, 3, 4], [0, 1])
    sequence.num_scheduled = 2
    model.computed(sequence)
    sequence.num_scheduled = 2
    model.publish(sequence)
    assert keyed(model, sequence) == [[True, True]]


@pytest.mark.parametrize(("rule", "last"), [("full", True), ("reachable", False)])
def test_a_block_before_the_next_common_end_is_keyed_only_where_all_full_ones_are(rule, last):
    model = model_of(groups="full:0:4+full:0:2", keyed=rule)
    sequence = computed(model, admitted(model, 0, [1, 2, 3, 4], [0, 1], [2, 3, 4]))
    assert keyed(model, sequence) == [[True, False], [True, True, False]]
    model.append(sequence, [5, 6])
    sequence.num_scheduled = 2
    computed(model, sequence)
    assert keyed(model, sequence) == [[True, False], [True, True, last]]


def test_every_full_block_of_a_window_is_keyed_where_all_are():
    model = model_of(groups="full:0:8+sliding:5:4", null_block=7)
    sequence = computed(model, admitted(model, 0, range(12), [0, 1], [2, 3, 4]))
    assert keyed(model, sequence) == [[True, False], [True, True, True]]


def test_a_block_that_lost_its_key_to_another_is_not_keyed_later():
    model = model_of(duplicates="first")
    first = computed(model, admitted(model, 0, [1, 2], [0]))
    second = computed(model, admitted(model, 1, [1, 2, 3, 4], [1, 2]))
    assert keyed(model, second) == [[False, True]]
    model.end(first)
    model.pool.evict([0])
    model.append(second, [5, 6])
    model.follow(second, [[1, 2, 3]])
    second.num_scheduled = 2
    computed(model, second)
    assert keyed(model, second) == [[False, True, True]]


@pytest.mark.parametrize("groups", ["full", "full+full"])
def test_tokens_that_are_appended_keep_the_setting(groups):
    model = model_of(groups=groups)
    sequence = model.new_sequence(0, TokenChain((1, 2), **SETTING))
    model.append(sequence, [3, 4])
    whole = TokenChain((1, 2, 3, 4), **SETTING)
    assert sequence.chain == whole
    assert sequence.contents == model.new_sequence(1, whole).contents


def test_the_first_tokens_of_an_empty_sequence_have_its_setting():
    model = model_of(groups="full+full")
    sequence = model.new_sequence(0, TokenChain((), **SETTING))
    model.append(sequence, [1, 2, 3])
    whole = TokenChain((1, 2, 3), **SETTING)
    assert sequence.contents == model.new_sequence(1, whole).contents


def test_a_cut_keeps_the_setting():
    model = model_of()
    sequence = model.new_sequence(0, TokenChain((1, 2, 3), **SETTING))
    model.admit(sequence, 0, [[0, 1]])
    model.truncate(sequence, 2)
    assert sequence.chain == TokenChain((1, 2), **SETTING)


def test_who_frees_in_any_order_leaves_none():
    assert model_of().pool.ledger().ordered
    assert not model_of(release_order="unspecified").pool.ledger().ordered


def test_references_are_told_as_those_of_sequences():
    assert model_of().pool.ledger().owner_noun == "sequence"


def test_the_host_has_neither_order_nor_cache():
    host = model_of(host_blocks=2).host
    assert host.ledger().ordered is False
    assert host.enable_caching is False


def test_without_caching_the_pool_caches_nothing():
    assert model_of().pool.enable_caching is True
    assert model_of(caching=False).pool.enable_caching is False


def test_two_models_may_share_their_names():
    names = ContentNames()
    models = [SequenceModel(2, 2, ManagerProfile(), names=names) for _ in range(2)]
    one, other = (model.new_sequence(0, TokenChain((1, 2))) for model in models)
    assert one.contents == other.contents
    assert len(names) == 3


def test_a_hit_regains_the_keys_of_what_was_shared_and_of_nothing_behind():
    model = model_of()
    sequence = admitted(model, 0, (1, 2, 3, 4, 5), [0, 1, 2])
    keys = [model.key(sequence, 0, entry) for entry in range(2)]
    model.regain(sequence, 4, [1])
    model.regain(sequence, 4, [1])
    assert [list(model.pool.lookup(key)) for key in keys] == [[0], []]
    model.regain(sequence, 4, [2])
    assert [list(model.pool.lookup(key)) for key in keys] == [[0], [1]]


@pytest.mark.parametrize(("caching", "order"), [(True, [2, 3, 1, 0]), (False, [2, 3, 0, 1])])
def test_without_a_cache_blocks_may_go_back_in_another_order(caching, order):
    model = model_of(num_blocks=4, caching=caching, uncached_order="head-first")
    model.end(admitted(model, 0, (1, 2, 3, 4), [0, 1]))
    assert list(model.pool.free) == order


def test_each_group_regains_the_keys_of_its_own_hits():
    model = model_of(groups="full+full")
    sequence = admitted(model, 0, (1, 2, 3, 4, 5), [0, 1, 2], [3, 4, 5])
    model.regain(sequence, 4, [1, 2])
    assert keyed(model, sequence) == [[True, False, False], [True, True, False]]


def test_a_block_that_holds_what_will_be_written_is_shared_and_keeps_its_key():
    model = model_of()
    first = computed(model, admitted(model, 0, [1, 2, 3], [0, 1]))
    second = model.new_sequence(1, TokenChain((1, 2, 3)))
    model.admit(second, 0, [[0, 2]], alike={0})
    third = admitted(model, 2, [7], [3])
    model.follow(third, [[3, 0]], alike={0})
    assert model.pool.holders[0] == [0, 1, 2]
    assert keyed(model, first) == [[True, False]]


def test_nothing_is_reserved_where_the_length_of_the_output_is_not_known():
    assert admitted(model_of(), 0, [1, 2], [0]).num_reserved == 0


@pytest.mark.parametrize(
    ("group_order", "order"),
    [("first-to-last", [6, 7, 1, 0, 3, 2, 5, 4]), ("last-to-first", [6, 7, 5, 4, 3, 2, 1, 0])],
)
def test_groups_give_back_in_the_order_of_the_profile(group_order, order):
    model = model_of(groups="full+full+full", group_order=group_order)
    model.end(admitted(model, 0, [1, 2, 3], [0, 1], [2, 3], [4, 5]))
    assert list(model.pool.free) == order


def test_a_fork_reserves_nothing():
    model = model_of(generation_tokens=2)
    parent = admitted(model, 0, [1, 2], [0, 1])
    assert parent.num_reserved == 4
    assert forked(model, parent, 1).num_reserved == 0


def test_host_memory_has_no_null_block():
    model = model_of(host_blocks=2, null_block=0)
    sequence = computed(model, admitted(model, 0, [1, 2], [1]))
    model.release(sequence)
    sequence.place = "host"
    model.settle([sequence], [[[0]]], model.host)
    model.release(sequence)
    assert model.host.holders[0] == []


def test_a_preempted_sequence_reserves_for_all_its_tokens_again():
    model = model_of(generation_tokens=2)
    sequence = admitted(model, 0, [1, 2], [0, 1])
    model.append(sequence, [3])
    model.preempt(sequence)
    assert sequence.num_reserved == 5


@pytest.mark.parametrize("end", ["preempt", "end"])
def test_what_was_computed_may_be_published_as_the_blocks_go_back(end):
    model = model_of(publishes="finish")
    sequence = computed(model, admitted(model, 0, [1, 2, 3, 4, 5], [0, 1, 2]))
    assert keyed(model, sequence) == [[False] * 3]
    getattr(model, end)(sequence)
    assert [bool(model.pool.keys[block]) for block in range(3)] == [True, True, False]


def test_who_holds_no_blocks_publishes_none_at_its_end():
    model = model_of(publishes="finish")
    sequence = computed(model, admitted(model, 0, [1, 2], [0]))
    model.preempt(sequence)
    model.pool.evict([0])
    sequence.num_computed = 2
    model.end(sequence)
    assert not any(model.pool.keys.values())


@pytest.mark.parametrize(("tables", "is_known"), [("merged", False), ("append-only", True)])
def test_duplicates_that_are_merged_at_the_end_leave_the_order_unknown(tables, is_known):
    model = model_of(publishes="finish", duplicates="first", tables=tables)
    first = computed(model, admitted(model, 0, [1, 2, 3], [0, 1]))
    second = computed(model, admitted(model, 1, [1, 2, 4], [2, 3]))
    model.end(first)
    assert model.pool.ordered is True
    hit = model.new_sequence(2, TokenChain((1, 2, 9)))
    model.admit(hit, 2, [[0, 4]])
    model.end(hit)
    assert model.pool.ordered is True
    model.end(second)
    assert model.pool.ordered is is_known


@pytest.mark.parametrize(
    ("rows", "ends", "is_keyed", "doubtful"),
    [
        ({"retention": "may-drop", "duplicates": "first"}, True, True, {1}),
        ({"retention": "may-drop", "duplicates": "first"}, False, False, set()),
        ({"retention": "may-drop", "duplicates": "kept"}, True, True, set()),
        ({"duplicates": "first"}, True, False, set()),
    ],
)
def test_a_block_whose_equal_may_have_been_dropped_gets_its_key_in_doubt(
    rows, ends, is_keyed, doubtful
):
    model = model_of(**rows)
    first = computed(model, admitted(model, 0, [1, 2], [0]))
    assert model.pool.doubtful == set()
    if ends:
        model.end(first)
    second = computed(model, admitted(model, 1, [1, 2], [1]))
    assert keyed(model, second) == [[is_keyed]]
    assert model.pool.doubtful == doubtful


def test_a_block_whose_equal_is_in_doubt_gets_its_key_in_doubt():
    model = model_of(retention="may-drop", duplicates="first")
    model.end(computed(model, admitted(model, 0, [1, 2], [0])))
    for seq_id in (1, 2):
        last = computed(model, admitted(model, seq_id, [1, 2], [seq_id]))
    assert model.pool.doubtful == {1, 2}
    assert list(model.pool.lookup(model.key(last, 0, 0))) == [0, 1, 2]


def test_a_cut_sequence_reserves_nothing():
    model = model_of(generation_tokens=2)
    sequence = admitted(model, 0, [1, 2], [0, 1])
    model.truncate(sequence, 1)
    assert sequence.num_reserved == 0


def test_before_the_first_common_end_nothing_is_keyed():
    model = model_of(groups="full:0:1+full:0:2", keyed="reachable")
    assert keyed(model, computed(model, admitted(model, 0, [1], [0], [1]))) == [[False], [False]]


def test_without_a_cache_blocks_go_back_as_ever_unless_the_profile_says_otherwise():
    assert model_of(caching=False, release_order="head-first").release_order == "head-first"


@pytest.mark.parametrize(
    ("rows", "is_known"),
    [
        ({"groups": "full+full", "group_order": "unspecified"}, False),
        ({"groups": "full+full", "group_order": "last-to-first"}, True),
        ({"group_order": "unspecified"}, True),
        ({"eviction": "unhashed-first", "index": "content", "hits": "sound"}, False),
        ({"eviction": "unhashed-first", "index": "content", "hits": "sound", "caching": False},
         True),
        ({"eviction": "unhashed-first", "index": "content", "hits": "exact"}, True),
        ({"eviction": "unhashed-first", "index": "exact", "hits": "sound"}, True),
        ({"eviction": "unhashed-first", "index": "exact", "hits": "exact"}, True),
        ({"eviction": "lru", "index": "content", "hits": "sound"}, True),
    ],
)  # fmt: skip
def test_the_order_is_known_unless_what_decides_it_is_not(rows, is_known):
    assert model_of(**rows).pool.ledger().ordered is is_known
