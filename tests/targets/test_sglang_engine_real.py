"""SGLang's own scheduler behind the contract, and bugs that are planted in its cache of states."""

from __future__ import annotations

import re
import subprocess
import sys
from difflib import unified_diff
from functools import partial
from itertools import islice

import pytest

from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.installed_sglang import SGLANG
from poolproof.targets.load import load_target
from poolproof.targets.sglang_engine_setups import SGLANG_SETUPS
from poolproof.targets.sglang_server import sglang_server
from poolproof.targets.target import EngineLayout

pytestmark = pytest.mark.vllm

CACHE = "sglang.srt.mem_cache"
MIXED = {"extra-buffer+overlap+chunks+mixed", "lazy+overlap+chunks+mixed"}
"""Set-ups in which a chunk may end off a page, and with it a checkpoint."""


@pytest.fixture(scope="module")
def target():
    return load_target("sglang-engine")


@pytest.fixture
def mamba(target):
    """The component of the tree that keeps states."""
    assert target.layouts
    return sglang_server().modules[f"{CACHE}.unified_cache.components.mamba"].MambaComponent


def findings(target, layout, runs=30):
    """The first violation in so many runs, as a list, or none."""
    chosen: EngineLayout = target.layout(layout)
    campaign = EngineCampaign(target.name, chosen.make, chosen.profile, chosen.block_size, seed=3)
    traces = (campaign.run(number).trace for number in range(runs))
    return [trace.violation for trace in islice(filter(None, traces), 1)]


def invariants(target, layout, runs=30):
    return {violation.invariant for violation in findings(target, layout, runs)}


@pytest.mark.parametrize("layout", [s.name for s in SGLANG_SETUPS if s.name not in MIXED])
def test_it_holds(target, layout):
    assert findings(target, layout, 6) == []


@pytest.mark.parametrize("layout", sorted(MIXED))
def test_a_checkpoint_off_a_page_is_found_under_a_shorter_key(target, layout):
    """sglang#39115: the depth of a state is counted from a prefix that ends inside a page."""
    found = findings(target, layout, 120)
    assert {violation.invariant for violation in found} == {"DATA"}
    assert "temporal" in found[0].sentence


def test_whole_pages_hold_where_the_depth_is_cut_to_them(target, monkeypatch):
    """With checkpoints on the absolute grid alone, as sglang#39115 had it, nothing is found."""
    batches = sglang_server().modules["sglang.srt.managers.schedule_batch"]
    base = batches.ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend

    def on_the_grid(self, req):
        before = (req.kv.mamba_last_track_idx, req.kv.mamba_next_track_idx)
        last_seqlen = req.kv.mamba_last_track_seqlen
        entry = base(self, req)
        if entry.track_mask and req.kv.mamba_last_track_seqlen % self.tree_cache.page_size:
            req.kv.mamba_last_track_idx, req.kv.mamba_next_track_idx = before
            req.kv.mamba_last_track_seqlen = last_seqlen
            return entry._replace(track_mask=False, track_seqlen=-1)
        return entry

    name = "_mamba_radix_cache_v2_req_prepare_for_extend"
    monkeypatch.setattr(batches.ScheduleBatch, name, on_the_grid)
    for layout in sorted(MIXED):
        assert findings(target, layout, 40) == []


def test_a_state_that_is_shared_instead_of_copied_is_found(target, mamba, monkeypatch):
    def share(self, params, result):
        source = self.tree_core.get_component_device_value(
            result.best_match_node, self.component_type
        )
        if params.cow_mamba and source is not None and not params.req.kv.holds_mamba:
            params.req.kv.mamba_pool_idx = source[0]
            params.req.kv.mamba_needs_clear = False
        return result

    monkeypatch.setattr(mamba, "finalize_match_result_in_cache", share)
    assert invariants(target, "extra-buffer+overlap") & {"DATA", "LEAK", "CRASH"}


def test_a_hit_whose_state_is_not_copied_is_found(target, mamba, monkeypatch):
    base = mamba.finalize_match_result_in_cache

    def forget(self, params, result):
        result = base(self, params, result)
        if params.req is not None:
            params.req.kv.mamba_cow_src_index = None
        return result

    monkeypatch.setattr(mamba, "finalize_match_result_in_cache", forget)
    assert "DATA" in invariants(target, "no-buffer")


def test_a_split_that_leaves_the_state_on_the_upper_half_is_found(target, mamba, monkeypatch):
    base = mamba.redistribute_on_node_split

    def upwards(self, new_parent, child):
        base(self, new_parent, child)
        kept, gained = (node.component_data[self.component_type] for node in (child, new_parent))
        if kept.lock_ref == 0 and kept.value is not None:
            gained.value, kept.value = kept.value, None
            states = self.tree_core.lru_lists[self.component_type]
            states.remove_node(child)
            states.insert_mru(new_parent)

    monkeypatch.setattr(mamba, "redistribute_on_node_split", upwards)
    assert "DATA" in invariants(target, "extra-buffer+overlap", 60)


def test_a_state_that_is_evicted_and_stays_reachable_is_found(target, mamba, monkeypatch):
    base = mamba.evict_component

    def keep(self, node, *arguments, **options):
        data = node.component_data[self.component_type]
        value = data.value
        freed = base(self, node, *arguments, **options)
        if node.children:
            data.value = value
        return freed

    monkeypatch.setattr(mamba, "evict_component", keep)
    assert "DATA" in invariants(target, "extra-buffer+overlap+few-states", 60)


@pytest.mark.parametrize("layout", ["extra-buffer+overlap", "lazy+overlap", "no-buffer"])
def test_a_checkpoint_whose_depth_is_off_by_a_page_is_found(target, mamba, monkeypatch, layout):
    base = mamba.prepare_for_caching_req
    page_size = target.layout(layout).block_size

    def shorter(self, req, insert_params, token_ids_len, is_finished):
        length = base(self, req, insert_params, token_ids_len, is_finished)
        return max(length - page_size, 0) if length else length

    monkeypatch.setattr(mamba, "prepare_for_caching_req", shorter)
    assert "DATA" in invariants(target, layout)


def test_a_state_that_is_freed_twice_is_found(target, mamba, monkeypatch):
    base = mamba._free_mamba_value

    def twice(self, value):
        base(self, value)
        base(self, value)

    monkeypatch.setattr(mamba, "_free_mamba_value", twice)
    assert invariants(target, "extra-buffer+overlap") & {"DATA", "LEAK", "CRASH"}


def test_a_state_whose_lock_is_forgotten_is_found(target, mamba, monkeypatch):
    monkeypatch.setattr(mamba, "release_component_lock", lambda *_given, **_options: None)
    assert invariants(target, "extra-buffer+overlap") & {"LEAK", "CRASH", "LIVE"}


def test_a_slot_that_is_not_cleared_is_found(target, monkeypatch):
    pools = sglang_server().modules[f"{CACHE}.memory_pool"]
    base = pools.HybridReqToTokenPool.alloc

    def uncleared(self, requests):
        rows = base(self, requests)
        for request in requests:
            request.kv.mamba_needs_clear = False
        return rows

    monkeypatch.setattr(pools.HybridReqToTokenPool, "alloc", uncleared)
    assert "DATA" in invariants(target, "no-buffer")


def test_tracking_into_the_slot_of_the_last_checkpoint_is_found(target, monkeypatch):
    """The two slots of the buffer are not swapped: a step in flight writes over what is donated."""
    pools = sglang_server().modules[f"{CACHE}.memory_pool"]
    same = "get_mamba_ping_pong_other_idx"
    monkeypatch.setattr(pools.HybridReqToTokenPool, same, lambda _self, place: place)
    assert "DATA" in invariants(target, "extra-buffer+overlap", 120)


def test_bookkeeping_that_is_right_in_another_way_is_not_accused(target, mamba, monkeypatch):
    """States are evicted from the other end, and no more than two are kept on a path."""
    monkeypatch.setattr(mamba, "refresh_lru", lambda *_given: None)
    assert findings(target, "extra-buffer+overlap", 8) == []


def test_rows_are_refused():
    with pytest.raises(TargetError, match="its set-ups state all rows"):
        load_target("sglang-engine[max_running=2]")


def test_a_request_that_is_cancelled_in_its_chunks_gives_all_back(target):
    layout = target.layout("extra-buffer+overlap+chunks+mixed")
    engine = layout.make(24 + 1 + 15, True)
    before = engine.num_free()
    engine.submit(0, [1] * 30, max_new_tokens=2)
    engine.plan()
    engine.cancel(0)
    for _ in range(3):
        plan = engine.plan()
        engine.answer({}, {})
    assert (plan.parts, engine.unfinished()) == ((), [])
    assert engine.num_free() == before
    assert partial(engine.answer, {}, {})() == []


IS_PATCHED = """
import sys
from poolproof.contract.target import TargetError
from poolproof.targets.load import load_target

def is_patched(loaded):
    schedule = loaded.make(40, True)._scheduler.get_next_batch_to_run
    return "PATCHED" in schedule.__globals__["PrefillAdder"].add_one_req.__globals__

plain = load_target("sglang-engine") if sys.argv[2] == "before" else None
assert is_patched(load_target(f"sglang-engine[patch={sys.argv[1]}]"))
try:
    print(is_patched(plain or load_target("sglang-engine")))
    print(load_target("sglang-hicache-engine"))
except TargetError as error:
    print(error)
"""
"""What is imported under a patch is imported so for the whole process, which is then one's own."""


@pytest.mark.parametrize(
    ("loaded", "sentence"),
    [
        ("before", r"False\nsglang-hicache-engine: this process has imported .*schedule_policy"),
        ("afterwards", "sglang-engine: this process has loaded .*schedule_policy with a patch"),
    ],
)
def test_with_a_patch_the_scheduler_is_another_one_and_none_is_taken_for_another(
    tmp_path, loaded, sentence
):
    name = "sglang/srt/managers/schedule_policy.py"
    source = engine_folder(SGLANG) / name
    lines = source.read_text("utf-8").splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if line.startswith("class PrefillAdder"))
    changed = [*lines[:place], "PATCHED = True\n", *lines[place:]]
    diff = tmp_path / "fix.diff"
    # The repository has its packages in a folder.
    named = (f"{side}/python/{name}" for side in "ab")
    diff.write_text("".join(unified_diff(lines, changed, *named)), "utf-8")
    command = [sys.executable, "-c", IS_PATCHED, str(diff), loaded]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.match(sentence, done.stdout)
