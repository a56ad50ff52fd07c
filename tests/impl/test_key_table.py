"""The table of keys is a dict from keys to blocks, whatever collides."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from poolproof.impl import block_loops
from poolproof.impl.cached_keys import CachedKeys
from poolproof.impl.key_table import KeyTable


class Key:
    """A key whose hash value is chosen, so that keys collide and stand in one run of slots."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def __hash__(self):
        return self.value

    def __eq__(self, other):
        return isinstance(other, Key) and self.name == other.name

    def __repr__(self):
        return f"{self.name}:{self.value}"


NUM_BLOCKS = 8
KEYS = [Key(name, value) for name, value in enumerate((0, 0, 0, 1, 1, 15, 15, 16, -2, 2**61))]
BLOCKS = st.integers(0, NUM_BLOCKS - 1)


class TableMachine(RuleBasedStateMachine):
    """A table beside a dict; the keys of blocks are kept as the pool keeps them."""

    def __init__(self):
        super().__init__()
        self.keys = [None] * NUM_BLOCKS
        self.table = KeyTable(self.keys)
        self.model = {}

    @precondition(lambda self: None in self.keys)
    @rule(key=st.sampled_from(KEYS), block=BLOCKS)
    def give(self, key, block):
        if self.keys[block] is None:
            self.keys[block] = key
            self.table[key] = block
            self.model[key] = block

    @rule(block=BLOCKS)
    def take(self, block):
        key, self.keys[block] = self.keys[block], None
        if self.model.get(key) == block:
            self.keys[block] = key
            del self.table[key], self.model[key]
            self.keys[block] = None

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=4, unique=True), data=st.data())
    def enter(self, keys, data):
        free = [block for block in range(NUM_BLOCKS) if self.keys[block] is None]
        blocks = data.draw(st.permutations(free))[: len(keys)]
        rivals = self.table.enter_n(blocks, keys[: len(blocks)])
        pairs = list(zip(keys, blocks, strict=False))
        assert rivals == [place for place, (key, _) in enumerate(pairs) if key in self.model]
        self.model |= {key: block for key, block in pairs if key not in self.model}

    @rule(blocks=st.lists(BLOCKS, unique=True), kept=st.sets(st.sampled_from(KEYS), max_size=2))
    def leave(self, blocks, kept):
        standing = [block for block in blocks if self.model.get(self.keys[block]) == block]
        left = self.table.leave_n(standing, kept)
        assert left == [block for block in standing if self.keys[block] in kept]
        self.model = {k: b for k, b in self.model.items() if b not in standing or b in left}
        assert all(self.keys[block] is None for block in standing if block not in left)

    @rule()
    def clear(self):
        self.table.clear()
        self.model.clear()
        self.keys[:] = [None] * NUM_BLOCKS

    @invariant()
    def it_says_what_the_dict_says(self):
        assert len(self.table) == len(self.model)
        assert dict(self.table.items()) == self.model
        assert set(self.table) == set(self.model)
        for key in KEYS:
            assert self.table.get(key) == self.model.get(key)
            assert (key in self.table) == (key in self.model)


TestTable = TableMachine.TestCase


@given(st.lists(st.sampled_from(KEYS)))
def test_a_prefix_ends_at_the_first_key_without_an_entry(asked):
    keys = [*KEYS[:4], None]
    table = KeyTable(keys, range(4))
    found = table.find_prefix(asked)
    assert found == [KEYS.index(key) for key in asked[: len(found)]]
    assert asked[len(found) : len(found) + 1] == [] or asked[len(found)] not in KEYS[:4]


def test_a_key_that_is_not_there_is_named():
    table = KeyTable([None])
    with pytest.raises(KeyError, match="b'a'"):
        table[b"a"]
    with pytest.raises(KeyError, match="b'a'"):
        del table[b"a"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])  # noqa: S301 -- our own
def test_a_copy_has_slots_of_its_own(copied):
    keys = [b"a", b"b"]
    table = KeyTable(keys, range(2))
    twin = copied(table)
    del table[b"a"]
    assert (twin[b"a"], twin[b"b"], len(twin)) == (0, 1, 2)


def test_blocks_may_have_keys_that_do_not_stand_in_the_table():
    keys = [b"a", b"a", b"b"]
    table = KeyTable(keys, [1, 2])
    assert (table[b"a"], table[b"b"], list(table.leave_n([2], ()))) == (1, 2, [])
    assert keys == [b"a", b"a", None]


def test_what_is_kept_stays_and_blocks_without_a_key_are_passed_over():
    keys = [None, b"a", b"b", b"c"]
    table = KeyTable(keys, [1, 2, 3])
    assert table.leave_n([0, 2, 1, 3], {b"b"}) == [2]
    assert (keys, dict(table.items())) == ([None, None, b"b", None], {b"b": 2})


def test_a_search_ends_in_a_table_of_blocks_that_all_have_keys_of_one_hash_value():
    keys = [Key(name, 0) for name in range(20)]
    table = KeyTable(keys, range(20))
    assert [table.get(key) for key in keys] == list(range(20))
    assert table.get(Key("another", 0)) is None


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("partial", [False, True])
def test_compiled_pools_alone_have_one_where_no_block_has_further_keys(
    monkeypatch, compiled, partial
):
    monkeypatch.setattr(block_loops, "COMPILED", compiled)
    cached = CachedKeys(4, "kept", None, partial=partial)
    assert (cached.table is not None) == (compiled and not partial)
    cached.add_full(2, b"a")
    assert cached.index.first == {b"a": 2} if cached.table is None else cached.table[b"a"] == 2


def test_a_block_that_stands_nowhere_is_named_by_its_key():
    table = KeyTable([b"a", b"b"], [0])
    with pytest.raises(KeyError, match="b'b'"):
        table.leave_n([1], ())
