"""Indexes as targets: native ones, maps in vLLM's shape, those that stand beside a pool."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import textwrap

import pytest

from poolproof.contract.index_commands import Get, Insert, Pop
from poolproof.contract.target import TargetError, capabilities_of
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.index_session import IndexSession
from poolproof.targets.load import load_target

NATIVE = """
class Index:
    {extra}
    def __init__(self{arguments}):
        self.entries = {{}}

    def insert(self, key, block_id):
        self.entries.setdefault(key, {{}})[block_id] = None

    def pop(self, key, block_id):
        blocks = self.entries.get(key, {{}})
        if block_id not in blocks:
            return None
        del blocks[block_id]
        return block_id

    def get(self, key):
        return next(iter(self.entries.get(key, ())), None)
"""

MAP = """
class Block:
    def __init__(self, block_id):
        self.block_id = block_id
        self.ref_cnt = 0
        self.prev_free_block = None
        self.next_free_block = None


class Map:
    def __init__(self):
        self.entries = {}

    def get_one_block(self, key):
        blocks = self.entries.get(key)
        return next(iter(blocks.values())) if blocks else None

    def insert(self, key, block):
        assert isinstance(block, Block)
        self.entries.setdefault(key, {})[block.block_id] = block

    def pop(self, key, block_id):
        return self.entries.get(key, {}).pop(block_id, None)


class Copies(Map):
    def get_one_block(self, key):
        found = super().get_one_block(key)
        return None if found is None else Block(found.block_id)


class Forgets(Map):
    def pop(self, key, block_id):
        return self.entries.pop(key, {}).get(block_id)
"""


def written(folder, text):
    path = folder / "mine.py"
    path.write_text(textwrap.dedent(text))
    return path


def refused(target, runs=60):
    campaign = IndexCampaign(target.name, target.make, target.profile)
    return any(campaign.run(number).trace is not None for number in range(runs))


@pytest.mark.parametrize("arguments", ["", ", num_blocks", ", num_blocks=8", ", *, num_blocks=1"])
def test_a_native_index_is_built_with_or_without_a_number_of_blocks(tmp_path, arguments):
    if arguments.startswith(", *"):
        pytest.skip("a name that cannot be given in place is none of the contract's")
    path = written(tmp_path, NATIVE.format(extra="", arguments=arguments))
    target = load_target(f"{path}:Index")
    assert (target.level, target.shape) == ("index", "index")
    assert not refused(target)


def test_a_constructor_that_needs_more_is_named(tmp_path):
    path = written(tmp_path, NATIVE.format(extra="", arguments=", blocks, hashes"))
    with pytest.raises(TargetError, match=r"cannot be built as Index\(num_blocks\)"):
        load_target(f"{path}:Index")


def test_profile_and_kinds_of_keys_are_those_that_the_class_declares(tmp_path):
    extra = 'profile = {"duplicates": "last"}; key_kinds = ("int", "pair")'
    target = load_target(f"{written(tmp_path, NATIVE.format(extra=extra, arguments=''))}:Index")
    assert target.profile.duplicates == "last"
    assert capabilities_of(target.make(4, True)).key_kinds == ("int", "pair")
    assert refused(target), "it keeps every carrier"


def test_a_map_of_block_objects_is_driven_with_the_blocks_that_stand_beside_it(tmp_path):
    target = load_target(f"{written(tmp_path, MAP)}:Map")
    assert target.level == "index"
    assert not target.notes
    assert not refused(target)


def test_a_derived_map_gets_the_blocks_of_its_base(tmp_path, monkeypatch):
    (tmp_path / "engine_maps.py").write_text(MAP)
    monkeypatch.syspath_prepend(tmp_path)
    path = written(tmp_path, "from engine_maps import Map\nclass Mine(Map): pass\n")
    assert not refused(load_target(f"{path}:Mine"))


def test_a_map_that_loses_the_other_blocks_is_refused(tmp_path):
    assert refused(load_target(f"{written(tmp_path, MAP)}:Forgets"))


def test_another_object_with_the_same_id_is_no_answer(tmp_path):
    target = load_target(f"{written(tmp_path, MAP)}:Copies")
    session = IndexSession(target.make(4, True), 4)
    violation = session.step(Insert(b"abcd", 0))
    assert violation.invariant == "IDX"
    assert "none of the block objects that were inserted" in violation.sentence


@pytest.mark.parametrize("name", ["impl-index", "reference-index"])
def test_built_in_indexes_hold(name):
    target = load_target(name)
    assert target.level == "index"
    assert load_target(target.name).level == "index"
    assert not refused(target)


@pytest.mark.parametrize("name", ["impl", "reference"])
def test_the_built_in_pools_have_an_index_of_their_own(name):
    assert load_target(name).part_at("index").name == f"{name}-index"


def test_another_rule_for_duplicates_is_not_impls():
    with pytest.raises(TargetError, match="keeps every carrier; leave the row out"):
        load_target("impl-index[duplicates=first]")


def test_a_pool_has_the_map_that_stands_in_its_module(tmp_path):
    pool = """
class Pool:
    def __init__(self, num_gpu_blocks, enable_caching, hash_block_size=16):
        self.index = Map()
    def get_new_blocks(self, num_blocks): ...
    def free_blocks(self, ordered_blocks): ...
    def touch(self, blocks): ...
    def cache_full_blocks(self, request, blocks, num_cached_blocks, num_full_blocks): ...
    def get_cached_block(self, block_hash): ...
    def get_num_free_blocks(self): ...
"""
    path = written(tmp_path, MAP + pool)
    target = load_target(f"{path}:Pool")
    part = target.part_at("index")
    assert part is not None
    assert part.name == f"{path}:Map"
    session = IndexSession(part.make(4, True), 4)
    for command in (Insert(b"abcd", 2), Get(b"abcd"), Pop(b"abcd", 2)):
        assert session.step(command) is None
