"""LMCache's connector under vLLM's own scheduler: what holds, and what is found."""

from __future__ import annotations

import subprocess
import sys
import threading
from difflib import unified_diff

import pytest

from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.lmcache_parts import LMCACHE
from poolproof.targets.vllm_engine import vllm_engine_layouts
from poolproof.targets.vllm_engine_setups import LMCACHE_SETUPS

pytestmark = pytest.mark.vllm

MOVES = {"a load arrived", "a store arrived"}


@pytest.fixture(scope="module")
def layouts():
    try:
        engine_folder(LMCACHE)
    except TargetError as error:
        pytest.skip(str(error))
    return {layout.name: layout for layout in vllm_engine_layouts(LMCACHE_SETUPS)}


@pytest.fixture(scope="module")
def parts(layouts):
    assert layouts
    from poolproof.targets import lmcache_vllm

    return lmcache_vllm.connector_modules("")


def runs_of(layout, numbers):
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    return [campaign.run(number) for number in numbers]


def first_finding(layout, numbers):
    """The violation of the first run that fails; None where all hold."""
    for number in numbers:
        (result,) = runs_of(layout, [number])
        if result.trace is not None:
            return result.trace.violation
    return None


@pytest.mark.parametrize("name", ["cpu", "cpu+unfull", "cpu+priority", "cpu+async+drafts", "disk"])
def test_what_the_connector_moves_is_right(layouts, name):
    results = runs_of(layouts[name], range(12))
    assert [result.trace for result in results if result.trace is not None] == []
    assert set().union(*(result.facts for result in results)) >= MOVES


def test_no_thread_stays_of_backends_that_are_gone(layouts):
    before = threading.active_count()
    runs_of(layouts["disk+small"], range(30))
    assert threading.active_count() == before


def test_neither_adapter_nor_salt_is_in_a_key(layouts):
    """LMCache#2878 and LMCache#2961: unless a request names them once more."""
    found = first_finding(layouts["untagged"], range(12))
    assert found.invariant == "DATA"
    assert "only the" in found.sentence


def test_a_put_under_lfu_asks_for_what_is_still_being_written(layouts):
    found = first_finding(layouts["disk+lfu"], range(28, 34))
    assert found.invariant == "CRASH"
    assert "KeyError" in found.sentence


def test_a_retrieve_waits_for_what_cancelled_requests_have_pinned(layouts):
    found = first_finding(layouts["disk+small"], range(28, 60))
    assert found.invariant == "CRASH"
    assert "pinned" in found.sentence


# Each of these plants one bug in LMCache's own classes.


def _adapter(parts):
    return parts("lmcache.integration.vllm.vllm_v1_adapter")


def keeps_the_blocks_of_before_a_preemption(parts, patch):
    """LMCache#1969: a resume adds to the old table in place of starting a new one."""
    tracker = _adapter(parts).RequestTracker
    update = tracker.update

    def grow(self, new_token_ids, new_block_ids, preempted=False, **named):
        before = list(self.allocated_block_ids)
        update(self, new_token_ids, new_block_ids, preempted, **named)
        if preempted:
            self.allocated_block_ids = before + list(self.allocated_block_ids)

    patch.setattr(tracker, "update", grow)


def saves_what_is_not_scheduled_yet(parts, patch):
    """LMCache#1898: tokens that are planned count as computed where blocks are stored."""
    tracker = _adapter(parts).RequestTracker
    from_new_request = tracker.from_new_request

    def whole_prompt(config, new_request, num_tokens, *others):
        made = from_new_request(config, new_request, num_tokens, *others)
        made.token_ids = list(new_request.prompt_token_ids)
        return made

    patch.setattr(tracker, "from_new_request", staticmethod(whole_prompt))


def hashes_a_chunk_without_its_prefix(parts, patch):
    database = parts("lmcache.v1.token_database").ChunkedTokenDatabase

    def hashes(self, token_chunks):
        return (self._hash_tokens(chunk, self._get_init_hash()) for chunk in token_chunks)

    patch.setattr(database, "_prefix_hash", hashes)


def frees_what_it_keeps(parts, patch):
    backend = parts("lmcache.v1.storage_backend.local_cpu_backend").LocalCPUBackend

    def put(self, key, memory_obj, on_complete_callback=None):
        if key not in self.hot_cache:
            self.hot_cache[key] = memory_obj
            self.cache_policy.update_on_put(key)

    patch.setattr(backend, "submit_put_task", put)


def counts_what_vllm_has_twice(parts, patch):
    """LMCache#2090: what the host has counts from the start, and what is cached is added to it."""
    impl = _adapter(parts).LMCacheConnectorV1Impl
    matched = impl.get_num_new_matched_tokens

    def more(self, request, num_computed_tokens):
        found = matched(self, request, num_computed_tokens)
        return found + num_computed_tokens if found else found

    patch.setattr(impl, "get_num_new_matched_tokens", more)


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (keeps_the_blocks_of_before_a_preemption, "cpu"),
        (saves_what_is_not_scheduled_yet, "cpu"),
        (hashes_a_chunk_without_its_prefix, "cpu"),
        (frees_what_it_keeps, "cpu"),
        (counts_what_vllm_has_twice, "cpu"),
    ],
)
def test_a_planted_bug_is_caught(layouts, parts, monkeypatch, plant, name):
    plant(parts, monkeypatch)
    assert first_finding(layouts[name], range(40)) is not None


IS_PATCHED = """
import sys
from poolproof.targets.load import load_target

def is_patched(target):
    engine = target.make(40, True)
    storage = engine.scheduler.connector.worker.lmcache_engine.storage_manager
    return "PATCHED" in storage.local_cpu_backend.contains.__globals__

plain = load_target("vllm-lmcache")
assert not is_patched(plain)
assert is_patched(load_target(f"vllm-lmcache[patch={sys.argv[1]}]"))
assert not is_patched(plain)
"""
"""What is imported under a patch is imported so for the whole process, which is then one's own."""


def test_with_a_patch_the_connector_is_another_one_and_without_it_the_same(tmp_path):
    source = engine_folder(LMCACHE) / "lmcache/v1/storage_backend/local_cpu_backend.py"
    lines = source.read_text("utf-8").splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if line.startswith("class LocalCPUBackend"))
    name = "lmcache/v1/storage_backend/local_cpu_backend.py"
    changed = [*lines[:place], "PATCHED = True\n", *lines[place:]]
    diff = tmp_path / "fix.diff"
    diff.write_text("".join(unified_diff(lines, changed, f"a/{name}", f"b/{name}")), "utf-8")
    command = [sys.executable, "-c", IS_PATCHED, str(diff)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
