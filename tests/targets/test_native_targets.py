"""Classes that speak the native contract themselves, from files and modules."""

from __future__ import annotations

import hashlib
import os
import sys

import pytest

from poolproof.contract.target import capabilities_of
from poolproof.targets.load import load_target

POOL = '''
from dataclasses import dataclass
import beside

@dataclass
class Row:
    value: int = beside.VALUE

class Pool:
    """A pool that hands out nothing."""

    profile = {"eviction": "lifo", "null_block": 0}

    def __init__(self, num_blocks, *, enable_caching=True):
        self.num_blocks, self.caching = num_blocks, enable_caching

    def allocate(self, n): return []
    def touch(self, block_ids): pass
    def free(self, block_ids): pass
    def cache(self, block_ids, hashes): pass
    def lookup(self, block_hash): return None
    def num_free(self): return 0
'''


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "pool.py").write_text(POOL)
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    yield tmp_path
    sys.modules.pop("beside", None)


def test_a_file_is_imported_with_its_neighbours(folder):
    target = load_target(f"{folder}/pool.py:Pool")
    assert (target.level, target.shape, target.version) == ("pool", "native", None)
    assert (target.profile.eviction, target.profile.null_block) == ("lifo", 0)
    assert "misuse" in target.profile.assumed
    assert "eviction" not in target.profile.assumed
    assert str(folder) not in sys.path


def test_instances_are_bare_and_fresh(folder):
    target = load_target(f"{folder}/pool.py:Pool")
    first, second = target.make(3, False), target.make(5, True)
    assert type(first) is target.real_class
    assert (first.num_blocks, first.caching, second.num_blocks, second.caching) == (
        3, False, 5, True,
    )  # fmt: skip
    assert target.make_chained is None


def test_the_source_is_named_with_its_digest(folder):
    digest = hashlib.sha256((folder / "pool.py").read_bytes()).hexdigest()[:12]
    source = load_target(f"{folder}/pool.py:Pool").source
    assert source == f"{folder / 'pool.py'} (sha256 {digest})"


def test_the_module_is_registered_and_hides_nothing(folder):
    target = load_target(f"{folder}/pool.py:Pool")
    name = target.real_class.__module__
    assert vars(sys.modules[name])["Pool"] is target.real_class
    assert "pool" not in sys.modules


def test_a_module_in_the_current_folder(folder, monkeypatch):
    monkeypatch.chdir(folder)
    target = load_target("pool:Pool")
    assert target.real_class.__module__ == "pool"
    sys.modules.pop("pool")


def test_a_module_that_is_installed_has_a_version():
    target = load_target("poolproof.reference.native_pool:NativeDictPool")
    assert target.level == "pool"
    assert target.profile.eviction == "lru"
    assert load_target("poolproof.impl.free_queue:FreeQueue").level == "queue"


def test_a_relative_path(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert load_target("./pool.py:Pool").level == "pool"


def test_overrides_are_laid_over_what_is_declared(folder):
    profile = load_target(f"{folder}/pool.py:Pool[null_block=None,misuse=ignores]").profile
    assert (profile.eviction, profile.null_block, profile.misuse) == ("lifo", None, "ignores")


def test_a_profile_on_the_instance(folder):
    text = POOL.replace("    profile = {", "    other = {").replace(
        "        self.num_blocks", "        self.profile = {'eviction': 'unspecified'}\n"
        "        self.num_blocks",
    )  # fmt: skip
    (folder / "instance.py").write_text(text)
    assert load_target(f"{folder}/instance.py:Pool").profile.eviction == "unspecified"


def test_methods_on_the_instance(folder):
    text = POOL.replace("    def touch(self, block_ids): pass\n", "").replace(
        "        self.num_blocks", "        self.touch = print\n        self.num_blocks"
    )
    (folder / "instance.py").write_text(text)
    target = load_target(f"{folder}/instance.py:Pool")
    assert "touch" in capabilities_of(target.make(2, True)).verbs


def test_a_nested_class(folder):
    text = POOL.replace("class Pool:", "class Outer:\n  class Pool:").replace("\n    ", "\n      ")
    (folder / "nested.py").write_text(text.replace("      value", "    value"))
    assert load_target(f"{folder}/nested.py:Outer.Pool").level == "pool"


def test_no_profile_means_all_is_assumed(folder):
    (folder / "plain.py").write_text(POOL.replace("    profile = {", "    other = {"))
    profile = load_target(f"{folder}/plain.py:Pool").profile
    assert len(profile.assumed) == len(profile.to_json())


QUEUE = """
class Queue:
    def __init__(self, num_blocks): self.order = list(range(num_blocks))
    def popleft(self): return self.order.pop(0)
    def remove(self, block_id): self.order.remove(block_id)
    def append(self, block_id): self.order.append(block_id)
    def num_free(self): return len(self.order)
    def free_order(self): return list(self.order)
"""


def test_a_native_queue(tmp_path):
    (tmp_path / "queue.py").write_text(QUEUE)
    target = load_target(f"{tmp_path}/queue.py:Queue")
    assert (target.level, target.shape) == ("queue", "queue")
    assert target.make(3, True).free_order() == [0, 1, 2]


def test_a_file_that_changed_within_a_second_is_loaded_as_it_is_now(folder, monkeypatch):
    # Python takes bytecode for that of a file with the same size and the same second of change.
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    path = folder / "pool.py"
    for null_block in (0, 1):
        path.write_text(POOL.replace('"null_block": 0', f'"null_block": {null_block}'))
        os.utime(path, (1_000_000_000, 1_000_000_000))
        assert load_target(f"{path}:Pool").profile.null_block == null_block
