"""Managers in vLLM V0's shape behind the native contract: Poolproof's own, and published ones."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.impl.block_space_manager import BlockSpaceManager
from poolproof.targets.catalogue import catalogue
from poolproof.targets.load import load_target
from poolproof.targets.nano_manager import NANO_VLLM_PORT
from poolproof.targets.v0_manager import VLLM_V0, V0Manager, V0Parts, v0_parts

TOYS = Path(__file__).with_name("toy_v0.py")
LAYOUTS = ("full", "sliding", "sliding-single")


def campaign(target, layout):
    return ManagerCampaign(target.name, layout.make, layout.profile, layout.block_size)


def failure(target, layout_name, runs=60):
    """The first failure, minimised, or None."""
    layout = target.layout(layout_name)
    for number in range(runs):
        trace = campaign(target, layout).run(number).trace
        if trace is not None:
            return minimise(trace, execute_in_process(layout.make))
    return None


def impl(layout="full", num_blocks=8) -> V0Manager:
    return load_target("impl-vllm-v0").layout(layout).make(num_blocks, True)


def toy(name, rows=""):
    return load_target(f"{TOYS}:{name}{rows}")


@pytest.mark.parametrize("num_runs", [60, pytest.param(300, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", LAYOUTS)
def test_our_own_manager_holds_and_every_situation_occurs(name, num_runs):
    target, facts = load_target("impl-vllm-v0"), set()
    layout = target.layout(name)
    for number in range(num_runs):
        result = campaign(target, layout).run(number)
        assert result.trace is None, result.trace.violation
        facts |= result.facts
    can = manager_capabilities_of(layout.make(4, True))
    assert facts >= set(required_manager_facts(layout.profile, can))


def test_our_own_manager_is_held_to_exact_rows():
    profile = load_target("impl-vllm-v0").profile
    rows = ("admission", "never", "eviction", "release_order", "watermark_blocks", "host_blocks")
    assert [getattr(profile, row) for row in rows] == ["exact", "told", "lifo", "head-first", 1, 4]
    assert profile.assumed == ()


@pytest.mark.parametrize("name", ["ToySpaceManager", "AnswersStatus", "Blind"])
def test_published_managers_hold(name):
    target = toy(name)
    assert (target.shape, target.profile.admission) == ("v0", "exact-at-admission")
    assert failure(target, "full") is None


def test_rows_of_the_class_and_of_the_brackets_are_taken():
    assert toy("AnswersStatus").profile.watermark_blocks == 0
    assert toy("AnswersStatus", "[watermark_blocks=2]").profile.watermark_blocks == 2


def test_an_admission_that_can_never_fit_must_be_told_so():
    trace = failure(toy("NeverSaysNever"), "full")
    assert trace.violation.invariant == "ADM"
    assert "waits for ever" in trace.violation.sentence
    assert len(trace.commands) == 1


def test_a_layout_that_the_constructor_does_not_take_is_not_run():
    with pytest.raises(TargetError, match=r"ToySpaceManager\(\) takes no sliding_window"):
        toy("ToySpaceManager").layout("sliding")


class CountsEntries(BlockSpaceManager):
    """A fork counts a block as often as the ring names it (vllm#1556)."""

    def fork(self, parent_seq, child_seq):
        super().fork(parent_seq, child_seq)
        table = self._tables[parent_seq.seq_id]
        numbers = table.block_numbers()
        for block in table.blocks:
            block.ref_count += numbers.count(block.block_number) - 1


class ForgetsTheCopy(BlockSpaceManager):
    """A shared tail is replaced, and nobody is told to copy what it holds."""

    def append_slot(self, seq, num_lookahead_slots=0):
        super().append_slot(seq, num_lookahead_slots)


class FreesAtOnce(BlockSpaceManager):
    """The first of two beams that ends takes the blocks of the other along."""

    def free(self, seq):
        for block in self._tables[seq.seq_id].blocks if self.has_table(seq) else ():
            block.ref_count = 1
        super().free(seq)


class IgnoresWatermark(BlockSpaceManager):
    def _status(self, num_blocks):
        self.watermark_blocks, kept = 0, self.watermark_blocks
        answer = super()._status(num_blocks)
        self.watermark_blocks = kept
        return answer


class SwapsIntoOne(BlockSpaceManager):
    """All host copies of a group are said to lie in one block."""

    def swap_out(self, seq_group):
        moved = super().swap_out(seq_group)
        return dict.fromkeys(moved, next(iter(moved.values()), 0))


@pytest.mark.parametrize(
    ("name", "layout", "invariants"),
    [
        ("CountsEntries", "sliding", {"OWN"}),
        ("ForgetsTheCopy", "full", {"I2"}),
        ("ForgetsTheCopy", "sliding", {"I2"}),
        ("FreesAtOnce", "full", {"OWN", "I1", "I2", "DATA", "CRASH"}),
        ("IgnoresWatermark", "full", {"ADM"}),
        ("SwapsIntoOne", "full", {"DATA", "I2"}),
    ],
)
def test_a_broken_manager_is_refused_with_a_short_trace(name, layout, invariants):
    trace = failure(load_target(f"{__file__}:{name}"), layout, runs=200)
    assert trace.violation.invariant in invariants
    assert len(trace.commands) <= 8


def test_the_first_block_is_0_where_an_order_is_declared():
    manager = impl()
    assert manager.admit(0, [1] * 5) == 0
    assert manager.block_table(0) == [0, 1]
    assert (manager.free_order(), manager.ref_count(1)) == ([2, 3, 4, 5, 6, 7], 1)


def test_the_engine_s_own_numbers_are_shown_where_none_is():
    manager = toy("ToySpaceManager").make(8, True)
    manager.admit(0, [1] * 5)
    assert manager.block_table(0) == [7, 6]
    assert (manager.free_order(), manager.ref_count(7)) == ([5, 4, 3, 2, 1, 0], 1)


def test_the_three_answers_come_through():
    manager = impl(num_blocks=4)
    assert manager.admit(0, [1] * 16) == "never"
    assert manager.admit(1, [1] * 12) == 0
    assert manager.admit(2, [1]) == "later"


def test_a_bare_no_is_later():
    manager = load_target(f"{TOYS}:AnswersBool").make(4, True)
    assert manager.admit(0, [1] * 16) == "later"
    assert manager.admit(1, [1] * 12) == 0


def test_a_fork_shares_and_its_first_token_copies_the_tail():
    manager = impl()
    manager.admit(0, [1] * 5)
    assert manager.fork(0, 1) == []
    assert manager.append(1, [2]) == [(1, 2)]
    assert (manager.block_table(0), manager.block_table(1)) == ([0, 1], [0, 2])


def test_several_tokens_are_appended_one_by_one_where_the_manager_wants_that():
    manager = toy("ToySpaceManager").make(4, True)
    manager.admit(0, [1])
    assert manager.append(0, [2] * 8) == []
    assert len(manager.block_table(0)) == 3
    assert manager.append(0, [3] * 5) == "later"
    assert len(manager.block_table(0)) == 3


def test_a_refused_growth_leaves_no_token_behind():
    manager = impl(num_blocks=3)
    manager.admit(0, [1] * 4)
    manager.admit(1, [1] * 4)
    assert manager.append(0, [2] * 5) == "later"
    assert manager.append(0, [2]) == []
    assert len(manager.block_table(0)) == 2


def test_a_family_is_swapped_as_a_whole_and_shared_blocks_once():
    manager = impl()
    manager.admit(0, [1] * 5)
    manager.fork(0, 1)
    moved = manager.swap_out(1)
    assert sorted(block for block, _ in moved) == [0, 1]
    assert manager.block_table(0) == manager.block_table(1) == [host for _, host in moved]
    assert manager.num_free_host() == 2
    back = manager.swap_in(0)
    assert sorted(host for host, _ in back) == sorted(host for _, host in moved)
    assert manager.block_table(1) == [block for _, block in back]


def test_swapping_is_put_off_where_there_is_no_room():
    manager = impl()
    manager.admit(0, [1] * 20)
    assert manager.swap_out(0) == "later"
    manager.finish(0)
    manager.admit(1, [1] * 16)
    assert manager.swap_out(1) != "later"
    manager.admit(2, [1] * 20)
    assert manager.swap_in(1) == "later"


def test_a_preempted_fork_comes_back_by_itself_and_stays_in_its_family():
    manager = impl(num_blocks=12)
    manager.admit(0, [1] * 5)
    manager.fork(0, 1)
    manager.preempt(0)
    assert manager.admit(0, [1] * 5) == 0
    assert not set(manager.block_table(0)) & set(manager.block_table(1))
    assert len(manager.swap_out(1)) == 4


def test_an_end_is_passed_on_again_and_an_unknown_name_is_not(monkeypatch):
    manager, ended = impl(), []
    free = manager._manager.free
    monkeypatch.setattr(manager._manager, "free", lambda seq: (ended.append(seq), free(seq)))
    manager.admit(0, [1])
    manager.finish(0)
    manager.finish(0)
    manager.abort(99)
    manager.step([])
    assert ended[0] is ended[1]
    assert (len(ended), manager.num_free()) == (2, 8)


def test_ended_sequences_are_not_kept_for_ever():
    manager = impl()
    for seq_id in range(150):
        manager.admit(seq_id, [1])
        manager.finish(seq_id)
    assert list(manager._ended) == list(range(50, 150))


def test_single_requests_neither_fork_nor_swap():
    verbs = manager_capabilities_of(impl("sliding-single")).verbs
    assert not verbs & {"fork", "swap_out", "swap_in"}
    assert {"fork", "swap_out"} <= manager_capabilities_of(impl("sliding")).verbs


def test_a_class_whose_module_names_no_sequences_takes_ours():
    """As one does that only goes by attributes."""
    parts = v0_parts(Path, 4)
    assert isinstance(parts, V0Parts)
    assert (parts.one_slot_a_call, parts.running.name) == (False, "RUNNING")


def test_engines_whose_sources_are_missing_are_listed_with_the_next_step(monkeypatch, tmp_path):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    rows = {row.name: row for row in catalogue()}
    for name in ("vllm-v0", "nano-vllm"):
        assert (rows[name].level, rows[name].available) == ("manager", False)
        assert "make engine-sources" in rows[name].how


@pytest.mark.parametrize("found", [None, "here"])
def test_engines_whose_sources_are_there_may_need_further_modules(monkeypatch, tmp_path, found):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    for folder in (VLLM_V0, NANO_VLLM_PORT):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: found)
    rows = {row.name: row for row in catalogue()}
    assert rows["vllm-v0"].available
    assert rows["nano-vllm"].available == bool(found)
    assert rows["nano-vllm"].how == ("" if found else "install xxhash and numpy")


def test_the_engine_s_class_is_loaded_from_its_sources(monkeypatch, tmp_path):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    package = tmp_path / VLLM_V0 / "vllm"
    (package / "core").mkdir(parents=True)
    for name in ("utils", "block"):
        (package / f"{name}.py").touch()
    text = TOYS.read_text(encoding="utf-8")
    (package / "sequence.py").write_text(text, encoding="utf-8")
    names = "SamplingParams, SequenceStatus, Sequence, SequenceGroup, AllocStatus, ToySpaceManager"
    (package / "sampling_params.py").write_text("class SamplingParams: ...", encoding="utf-8")
    (package / "core" / "block_manager.py").write_text(
        f"from vllm.sequence import {names}\n"
        "class BlockAllocator: ...\n"
        "class BlockSpaceManager(ToySpaceManager): ...\n",
        encoding="utf-8",
    )
    target = load_target("vllm-v0")
    assert (target.version, target.shape, target.profile.assumed) == ("vllm 0.2.7", "v0", ())
    assert target.profile.eviction == "unspecified"
    assert any("psutil" in note for note in target.notes)
    assert failure(target, "full", 10) is None


def test_groups_in_brackets_take_the_place_of_the_layouts():
    target = load_target("impl-vllm-v0[groups=sliding:12]")
    assert [layout.name for layout in target.layouts] == ["sliding"]
    assert target.profile.groups[0].window == 12
    assert failure(target, "sliding", 20) is None


@pytest.mark.parametrize(
    ("text", "api", "message"),
    [
        ("impl-vllm-v0[groups=full+sliding:8]", None, "have one group, full or with a sliding"),
        ("impl-vllm-v0[groups=sliding:6]", None, "a multiple of 4 tokens, not sliding"),
        ("impl-vllm-v0[groups=state]", None, "not state"),
        ("impl-vllm-v0[hit=exact]", None, "unknown profile key 'hit'"),
        (f"{TOYS}:ToySpaceManager[hit=exact]", None, "unknown profile key 'hit'"),
        (f"{TOYS}:Sequence", "v0", "lacks can_allocate(), allocate()"),
        ("impl-vllm-v0", "nano", "impl-vllm-v0 is a v0 target"),
    ],
)
def test_what_is_wrong_is_said(text, api, message):
    with pytest.raises(TargetError) as refusal:
        load_target(text, api=api)
    assert message in str(refusal.value)
