"""Managers in vLLM V1's shape behind the native contract: by our own, which needs no engine."""

from __future__ import annotations

import pytest

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
)
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.impl.block_pool import BlockPool
from poolproof.impl.kv_cache_group import SlidingWindow
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_tables import FullAttentionTables, GroupTables
from poolproof.targets.load import load_target
from poolproof.targets.vllm_manager import ManagerAdapter, _reserves_every_state
from poolproof.targets.vllm_manager_target import _METHODS

TARGET = load_target("impl-manager")
LAYOUTS = [layout for layout in TARGET.layouts if layout.make is not None]


def session_of(*commands: Command, layout: str = "full", num_blocks: int = 8) -> ManagerSession:
    chosen = TARGET.layout(layout)
    session = ManagerSession(chosen.make(num_blocks, True), chosen.profile, num_blocks, 4)
    for command in commands:
        assert session.is_defined(command), command
        assert session.step(command) is None, command
    return session


def chain(*tokens: int) -> TokenChain:
    return TokenChain(tokens)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_our_own_manager_is_never_accused(layout):
    campaign = ManagerCampaign("impl-manager", layout.make, layout.profile, layout.block_size)
    for number in range(12):
        assert campaign.run(number).trace is None, number


def test_layouts_that_are_not_run_say_why():
    not_run = {layout.name: layout.why_not for layout in TARGET.layouts if layout.make is None}
    assert set(not_run) == {
        "full+mamba-all",
        "chunked-local+lookahead",
        "full-2+sliding-4+lookahead",
    }
    assert all(not_run.values())


def test_what_is_not_driven_stands_in_the_notes():
    assert any("swapping" in note for note in TARGET.notes)


def test_a_hit_is_reported_and_shared():
    session = session_of(Admit(0, chain(1, 1, 1, 1, 2), 0), Admit(1, chain(1, 1, 1, 1, 3), 0))
    assert session.calls.answer == 4
    assert session.model.sequences[1].tables[0][0] == session.model.sequences[0].tables[0][0]


def test_a_lookup_takes_nothing():
    session = session_of(Admit(0, chain(1, 1, 1, 1, 2), 0), Step())
    assert session.step(LookupPrefix(chain(1, 1, 1, 1, 2))) is None
    assert session.calls.answer == 4


def test_tokens_that_found_no_slots_were_never_there():
    session = session_of(
        Admit(0, chain(1, 1, 1, 1, 1, 1, 1), 0), Step(), AppendTokens(0, (2,)), Step(), num_blocks=3
    )
    assert session.step(AppendTokens(0, (3,))) is None
    assert session.calls.refused
    assert session.step(Preempt(0)) is None
    assert session.step(Resume(0, 0)) is None
    assert session.calls.answer == 4


def test_a_prompt_in_chunks_is_scheduled_in_turn():
    session = session_of(Admit(0, chain(*[1] * 9), 4), Step(), Schedule(0, 3), Schedule(0, 2))
    assert session.step(Step()) is None
    assert session.model.sequences[0].num_computed == 9


def test_rejected_drafts_are_not_computed():
    session = session_of(Admit(0, chain(1), 0), Draft(0, (2, 3, 2)), Step(), Accept(0, 1))
    assert session.model.sequences[0].num_computed == 2
    assert session.step(AppendTokens(0, (4,))) is None


def test_drafts_that_find_no_slots_are_refused():
    session = session_of(Admit(0, chain(1), 0), num_blocks=2)
    assert session.step(Draft(0, (1, 1, 1, 1))) is None
    assert session.calls.refused


def test_a_transfer_is_cached_once_it_is_over():
    session = session_of(Load(0, chain(1, 1, 1, 1, 2), 4), LookupPrefix(chain(1, 1, 1, 1, 3)))
    assert session.calls.answer == 0
    assert session.step(Loaded(0)) is None
    assert session.step(LookupPrefix(chain(1, 1, 1, 1, 3))) is None
    assert session.calls.answer == 4


def test_a_transfer_that_does_not_fit_is_refused():
    session = session_of(num_blocks=2)
    assert session.step(Load(0, chain(*[1] * 9), 8)) is None
    assert session.calls.answer == "later"


def test_blocks_stay_until_a_transfer_into_them_is_over():
    session = session_of(Load(0, chain(1, 1, 1, 1, 2), 4), Abort(0))
    assert session.target.num_free() == 6
    assert session.step(Loaded(0)) is None
    assert session.target.num_free() == 7


def test_ending_twice_and_ending_what_never_was_is_ignored():
    session = session_of(Admit(0, chain(1), 0), Step(), Finish(0), Finish(0), Abort(77))
    assert session.target.num_free() == 7


def test_the_worker_is_told_a_whole_table_and_then_what_is_added():
    manager = TARGET.layout("full+sliding").make(12, True)
    assert manager.admit(0, [1] * 5) == 0
    assert manager.take_table_update(0, 0) == (True, [1, 2])
    assert manager.take_table_update(0, 1) == (True, [3, 4])
    assert manager.append(0, [1] * 4) == []
    assert manager.take_table_update(0, 0) == (False, [5])
    assert manager.take_table_update(0, 1) == (False, [6])
    assert manager.take_table_update(0, 0) == (False, [])


def test_a_shared_prefix_junction_is_handed_back_to_the_request():
    """vLLM 0.32 answers a third value, where a sparse group stopped short."""
    parts = TARGET.layout("full").make(4, True)._parts
    seen = []

    class Reports(KVCacheManager):
        def get_computed_blocks(self, request):
            seen.append(request)
            return (*super().get_computed_blocks(request), 4)

    class Parts(type(parts)):
        def make_manager(self, num_blocks, enable_caching):
            return Reports(num_blocks, 4, max_model_len=64, enable_caching=enable_caching)

    manager = ManagerAdapter(Parts(KVCacheManager, parts._layout), 4)
    assert manager.admit(0, [1] * 5) == 0
    assert seen[0].shared_prefix_boundary == 4


def test_a_layout_leaves_out_verbs_that_it_does_not_have():
    manager = TARGET.layout("full+mamba").make(6, True)
    assert (manager.draft, manager.load) == (None, None)


@pytest.mark.parametrize(
    ("plant", "layout", "invariants"),
    [
        ("the last token is not computed", "full", {"ADM"}),
        ("frees head first", "full", {"ORD"}),
        ("window too short", "sliding", {"DATA", "I2", "ADM"}),
        ("states of this step are hit", "full+mamba", {"DATA", "IDX"}),
    ],
)
def test_planted_bugs_are_caught(monkeypatch, plant, layout, invariants):
    PLANTS[plant](monkeypatch)
    chosen = TARGET.layout(layout)
    campaign = ManagerCampaign("planted", chosen.make, chosen.profile, chosen.block_size)
    found = (campaign.run(number).trace for number in range(200))
    trace = next(trace for trace in found if trace is not None)
    assert trace.violation.invariant in invariants


def _hit_the_last_token(monkeypatch):
    right = FullAttentionTables.lookup
    monkeypatch.setattr(
        FullAttentionTables, "lookup", lambda self, hashes, most: right(self, hashes, most + 1)
    )


def _free_head_first(monkeypatch):
    def free(self, request):
        for ids in self._tables.pop(request.request_id):
            self.block_pool.free(ids)

    monkeypatch.setattr(KVCacheManager, "free", free)


def _short_window(monkeypatch):
    right = SlidingWindow.num_skipped_tokens
    monkeypatch.setattr(
        SlidingWindow,
        "num_skipped_tokens",
        lambda self, num_tokens: right(self, num_tokens) + 4 * (num_tokens > 8),
    )


def _states_of_this_step(monkeypatch):
    right = GroupTables.publish

    def publish(self, *arguments):
        right(self, *arguments)
        self.unwritten.clear()

    monkeypatch.setattr(GroupTables, "publish", publish)


PLANTS = {
    "the last token is not computed": _hit_the_last_token,
    "frees head first": _free_head_first,
    "window too short": _short_window,
    "states of this step are hit": _states_of_this_step,
}


def test_a_subclass_of_ours_is_detected_and_built_like_ours(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from poolproof.impl.kv_cache_manager import KVCacheManager\n"
        "class Mine(KVCacheManager):\n    pass\n"
    )
    target = load_target(f"{path}:Mine")
    assert (target.level, target.shape) == ("manager", "vllm-v1-manager")
    assert target.make(4, True).admit(0, [1]) == 0


def _file_with(tmp_path, body: str) -> str:
    path = tmp_path / "mine.py"
    path.write_text(body)
    return f"{path}:Mine"


def test_a_method_that_is_missing_is_named(tmp_path):
    name = _file_with(tmp_path, "class Mine:\n    def allocate_slots(self): ...\n")
    with pytest.raises(TargetError, match="lacks get_computed_blocks"):
        load_target(name, api="vllm-v1-manager")


def _shape(constructor: str) -> str:
    methods = "".join(f"    def {method}(self): ...\n" for method in _METHODS)
    return f"class Mine:\n    def __init__(self{constructor}): ...\n{methods}"


@pytest.mark.parametrize("constructor", ["", ", blocks"])
def test_a_constructor_of_another_kind_is_named(tmp_path, constructor):
    with pytest.raises(TargetError, match="a KVCacheConfig; write a native target"):
        load_target(_file_with(tmp_path, _shape(constructor)))


def test_without_vllm_a_class_that_needs_its_configuration_cannot_be_built(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vllm", None)
    with pytest.raises(TargetError, match="which is not installed where"):
        load_target(_file_with(tmp_path, _shape(", kv_cache_config")))


def test_an_unknown_row_is_named():
    with pytest.raises(TargetError, match="unknown profile key 'colour'"):
        load_target("impl-manager[colour=red]")


def test_a_pool_of_ours_shows_its_counters():
    manager = TARGET.make(4, True)
    assert isinstance(manager._manager.block_pool, BlockPool)
    assert manager.free_order() == [1, 2, 3]
    assert not manager.is_cached(1)


class _SpecOfARelease:
    """What a release's `MambaSpec` says of the memory that a sequence takes, in pages of a byte."""

    def __init__(self, *, block_size, shapes, dtypes, page_size_padded, mamba_cache_mode):
        assert (block_size, shapes, dtypes, page_size_padded) == (1, (), (), 1)
        self.mode = mamba_cache_mode

    def max_memory_usage_bytes(self, config):
        assert config.cache_config.mamba_cache_mode == self.mode == "all"
        return config.model_config.max_model_len


class _SpecWithoutModeAll(_SpecOfARelease):
    def max_memory_usage_bytes(self, config):
        return 2


def test_a_release_has_mode_all_if_it_reserves_a_state_for_each_block():
    assert _reserves_every_state(_SpecOfARelease)
    assert not _reserves_every_state(_SpecWithoutModeAll)
