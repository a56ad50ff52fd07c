"""The real `KVCacheManager` in every layout: nothing legal accused, planted bugs caught."""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Preempt,
    Resume,
    Schedule,
    Step,
)
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.targets import vllm_manager_target
from poolproof.targets.load import load_target

pytestmark = pytest.mark.vllm

NAMES = (
    "full",
    "sliding",
    "chunked-local",
    "full+sliding",
    "full+chunked-local",
    "full-8+sliding-4",
    "full-4+full-8+sliding-8",
    "full+sliding-hash-2",
    "full+mamba",
    "mamba",
    "lookahead",
    "full+sliding+lookahead",
    "full+mamba+mamba",
    "full+sliding+sliding",
    "full+sliding-12+sliding",
    "sliding+lookahead",
    "full-2+sliding-4+lookahead",
    "chunked-local-1",
    "full+mamba-hash-2",
    "full+mamba+lookahead",
)


@pytest.fixture(scope="module")
def target():
    return load_target("vllm-manager")


def first_failure(target, layout, most=300):
    chosen = target.layout(layout)
    campaign = ManagerCampaign("vllm-manager", chosen.make, chosen.profile, chosen.block_size)
    runs = (campaign.run(number).trace for number in range(most))
    return next((trace for trace in runs if trace is not None), None)


def test_these_layouts_run_and_the_others_say_why_not(target):
    assert tuple(layout.name for layout in target.layouts if layout.make is not None) == NAMES
    assert all(layout.why_not for layout in target.layouts if layout.make is None)
    assert "0.32" in target.version


@pytest.mark.parametrize("layout", NAMES)
def test_nothing_legal_is_accused(target, layout):
    assert first_failure(target, layout, most=80) is None


@pytest.fixture
def another_release(monkeypatch):
    """What is installed gives itself out as another release than the one that is described."""
    monkeypatch.setattr(vllm_manager_target, "version_of_vllm", lambda: "vllm 0.31.0")


def test_a_release_that_answers_for_itself_says_what_is_described(target, another_release):
    profiles = {layout.name: layout.profile for layout in target.layouts}
    asked = load_target("vllm-manager")
    assert {layout.name: layout.profile for layout in asked.layouts} == profiles


def test_another_release_that_is_installed_is_asked_for_its_rows(another_release, monkeypatch):
    monkeypatch.setattr(vllm_manager_target, "frees_to_either_end", lambda cls: True)
    asked = load_target("vllm-manager")
    assert {layout.profile.eviction for layout in asked.layouts if layout.make} == {"unspecified"}


def shorter_by(num_tokens, monkeypatch):
    """Of several groups, hits of this release end so many tokens earlier."""
    from vllm.v1.core.kv_cache_coordinator import HybridKVCacheCoordinator

    whole = HybridKVCacheCoordinator.find_longest_cache_hit

    def find(self, block_hashes, max_cache_hit_length):
        _, found, _ = whole(self, block_hashes, max_cache_hit_length)
        return whole(self, block_hashes, max(0, found - num_tokens))

    monkeypatch.setattr(HybridKVCacheCoordinator, "find_longest_cache_hit", find)


@pytest.mark.parametrize("name", ["full+sliding+lookahead", "full-2+sliding-4+lookahead"])
def test_a_release_that_cuts_a_hit_for_each_group_loses_it_without_harm(
    another_release, monkeypatch, name
):
    shorter_by(4, monkeypatch)
    profile = load_target("vllm-manager").layout(name).profile
    assert (profile.hits, profile.admission) == ("sound", "sound")


def test_a_release_that_finds_nothing_inside_a_block_is_not_asked_to(another_release, monkeypatch):
    name = "full+mamba-hash-2"
    assert load_target("vllm-manager").layout(name).profile.hash_tokens == 2
    shorter_by(2, monkeypatch)
    profile = load_target("vllm-manager").layout(name).profile
    assert (profile.hash_tokens, profile.keys, profile.index) == (0, "block", "exact")


def test_a_subclass_does_not_answer_for_the_release(target, another_release, tmp_path):
    """What a subclass finds less is to be found out, and not to become its row."""
    path = tmp_path / "forgetful.py"
    path.write_text(
        "from vllm.v1.core.kv_cache_manager import KVCacheManager\n"
        "class Forgetful(KVCacheManager):\n"
        "    def get_computed_blocks(self, request):\n"
        "        return self.empty_kv_cache_blocks, 0, 0\n",
        encoding="utf-8",
    )
    name = "full+sliding+lookahead"
    assert load_target(f"{path}:Forgetful").layout(name).profile == target.layout(name).profile


def test_what_is_hit_is_what_vllm_says(target):
    chosen = target.layout("full")
    session = ManagerSession(chosen.make(8, True), chosen.profile, 8, 4)
    for command in (
        Admit(0, TokenChain((1, 1, 1, 1, 2)), 0),
        Admit(1, TokenChain((1, 1, 1, 1, 3)), 0),
    ):
        assert session.step(command) is None
    assert session.calls.answer == 4


def test_a_state_of_a_prompts_end_is_put_off_while_its_prompt_is_scheduled(target):
    """The state was computed two steps ago, and who could start from it waits all the same."""
    chosen = target.layout("full+mamba")
    session = ManagerSession(chosen.make(12, True), chosen.profile, 12, 4)
    prompt = TokenChain((1,) * 5)
    for command in (Admit(0, prompt, 4), Step(), Admit(1, prompt, 0), Admit(2, prompt, 0)):
        assert session.step(command) is None
    assert session.calls.answer == "later"
    for command in (Step(), Admit(2, prompt, 0)):
        assert session.step(command) is None
    assert session.calls.answer == 4
    assert not session.is_defined(Resume(2, 0))


def test_blocks_for_drafts_move_along_where_a_chunk_passes_their_entries(target):
    chosen = target.layout("full+mamba+lookahead")
    session = ManagerSession(chosen.make(24, True), chosen.profile, 24, 4)
    for command in (Admit(0, TokenChain((1,) * 17), 4), Step()):
        assert session.step(command) is None
    *_, third, fourth = session.model.sequences[0].tables[1]
    assert session.step(Schedule(0, 12)) is None
    before, *skipped, column, fifth, sixth, seventh = session.model.sequences[0].tables[1]
    assert before
    assert skipped == [0, 0]
    assert column == fourth
    assert third in {fifth, sixth}
    assert seventh not in {before, third, fourth}
    assert session.step(Step()) is None


@pytest.mark.parametrize(("accepted", "cached"), [(1, 8), (2, 8), (3, 0)])
def test_the_end_of_a_block_is_hit_where_right_drafts_end_with_it(target, accepted, cached):
    """Where they pass it, the block has gone back before it could get its key."""
    chosen = target.layout("full+mamba+lookahead")
    session = ManagerSession(chosen.make(24, True), chosen.profile, 24, 4)
    grown = [command for _ in range(12 - 6 - accepted)
             for command in (AppendTokens(0, (2,)), Step())]  # fmt: skip
    for command in (
        Admit(0, TokenChain((1,) * 6), 0), Draft(0, (2, 2, 2)), Step(), Accept(0, accepted),
        *grown, Admit(1, TokenChain((1,) * 6 + (2,) * 7), 0),
    ):  # fmt: skip
        assert session.is_defined(command), command
        assert session.step(command) is None, command
    assert session.calls.answer == cached


def test_who_hits_inside_a_block_may_copy_what_a_request_that_came_back_has_yet_to_compute(target):
    """A true finding in 0.32, which usual runs do not meet (docs/vllm.md).

    The state has outlived the attention beside it; a request that was preempted computes that block
    again in one chunk with others, and gives it the key of its prompt's end at once.
    """
    chosen = target.layout("full+mamba-hash-2")
    session = ManagerSession(chosen.make(17, True), chosen.profile, 17, 4)
    prompt = TokenChain((0, 1, 2, 3, 4, 5, 6))
    grown = [command for _ in range(5) for command in (AppendTokens(0, (7,)), Step())]
    keeps_the_state_young = Admit(1, TokenChain((0, 1, 2, 3, 4, 5, 9, 9, 9)), 2)
    load = [Admit(number, TokenChain((50 + number,)), 0) for number in range(2, 8)]
    for command in (
        Admit(0, prompt, 0), Step(), Schedule(0, 1), Step(), *grown, Preempt(0),
        keeps_the_state_young, Step(), *load, Step(), *(Finish(each.seq_id) for each in load),
        Resume(0, 8),
    ):  # fmt: skip
        assert session.is_defined(command), command
        assert session.step(command) is None, command
    violation = session.step(Admit(9, prompt, 0))
    assert violation.invariant == "DATA"
    assert "position 4" in violation.sentence


def _pool():
    from vllm.v1.core.block_pool import BlockPool

    return BlockPool


def _single():
    from vllm.v1.core import single_type_kv_cache_manager

    return single_type_kv_cache_manager


def _hits_in_the_queue_count_as_room(monkeypatch):
    """vllm#11565: a hit that nobody holds leaves the queue when it is touched."""
    base = _single().SingleTypeKVCacheManager
    monkeypatch.setattr(base, "_get_num_evictable_blocks", classmethod(lambda cls, blocks: 0))


def _evicted_blocks_stay_in_the_index(monkeypatch):
    def forget_half(self, block):
        block.reset_hash()
        return False

    monkeypatch.setattr(_pool(), "_maybe_evict_cached_block", forget_half)


def _blocks_are_freed_head_first(monkeypatch):
    def free(self, request_id):
        self.block_pool.free_blocks(self.pop_blocks_for_free(request_id))

    monkeypatch.setattr(_single().SingleTypeKVCacheManager, "free", free)


def _touched_blocks_stay_in_the_queue(monkeypatch):
    def touch(self, blocks):
        for block in blocks:
            block.ref_cnt += 1

    monkeypatch.setattr(_pool(), "touch", touch)


def _the_last_token_is_found_as_well(monkeypatch):
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    def get_computed_blocks(self, request):
        if not self.prefix_cache_lookup_enabled(request):
            return self.empty_kv_cache_blocks, 0, 0
        find = self.coordinator.find_longest_cache_hit
        blocks, cached, uncached = find(request.block_hashes, request.num_tokens)
        junction = cached + uncached if uncached else 0
        return self.create_kv_cache_blocks(blocks), cached, junction

    monkeypatch.setattr(KVCacheManager, "get_computed_blocks", get_computed_blocks)


def _the_salt_is_left_out(monkeypatch):
    from vllm.v1.core import kv_cache_utils

    monkeypatch.setattr(
        kv_cache_utils, "generate_block_hash_extra_keys", lambda *arguments: (None, 0)
    )


def _ended_requests_keep_their_blocks(monkeypatch):
    base = _single().SingleTypeKVCacheManager
    monkeypatch.setattr(base, "free", lambda self, request_id: self.pop_blocks_for_free(request_id))


def _the_window_is_a_block_too_short(monkeypatch):
    sliding = _single().SlidingWindowManager
    right = sliding.get_num_skipped_tokens
    monkeypatch.setattr(
        sliding,
        "get_num_skipped_tokens",
        lambda self, computed: right(self, computed) + 4 * (computed > 8),
    )


def _states_of_this_step_are_started_from(monkeypatch):
    mamba = _single().MambaManager
    right = mamba.cache_blocks

    def cache_blocks(self, *arguments, **named):
        right(self, *arguments, **named)
        self.cached_blocks_this_step.clear()

    monkeypatch.setattr(mamba, "cache_blocks", cache_blocks)


def _tables_of_states_have_no_blocks_for_drafts(monkeypatch):
    """vllm#41884: a lookup by accepted tokens goes past the end of the table."""
    mamba = _single().MambaManager
    right = mamba.__init__

    def init(self, *arguments, **named):
        right(self, *arguments, **named)
        self.num_speculative_blocks = 0

    monkeypatch.setattr(mamba, "__init__", init)


def _a_block_that_moves_stays_in_its_entry(monkeypatch):
    monkeypatch.setattr(
        _single().MambaManager,
        "_relocate_speculative_block",
        lambda self, blocks, entry: blocks.append(blocks[entry]),
    )


def _refused_drafts_count_where_states_go_back(monkeypatch):
    mamba = _single().MambaManager
    right = mamba.get_num_skipped_tokens
    monkeypatch.setattr(mamba, "get_num_skipped_tokens", lambda self, n: right(self, n + 3))


def _copies_of_hits_are_forgotten(monkeypatch):
    from vllm.v1.core.kv_cache_manager import KVCacheManager

    right = KVCacheManager.take_kv_cache_block_copies
    monkeypatch.setattr(
        KVCacheManager, "take_kv_cache_block_copies", lambda self: ([], right(self)[1])
    )


def _the_key_of_a_state_stays_with_the_request_that_goes_on(monkeypatch):
    monkeypatch.setattr(_pool(), "move_block_hashes", lambda self, source, into: None)


def _who_hits_inside_a_block_goes_on_in_it(monkeypatch):
    base = _single().SingleTypeKVCacheManager
    monkeypatch.setattr(base, "_has_partial_local_hit", lambda self, blocks, num_tokens: False)


def _a_state_inside_a_block_is_found_for_a_longer_prefix(monkeypatch):
    pool = _pool()
    right = pool._get_partial_block_hash

    def wrong(self, request, num_tokens):
        later = min(num_tokens + self.hash_block_size, len(request.block_hashes) * 2)
        return right(self, request, later)

    monkeypatch.setattr(pool, "_get_partial_block_hash", wrong)


def _no_checkpoint_is_kept(monkeypatch):
    monkeypatch.setattr(
        _single().SlidingWindowManager,
        "reachable_block_mask",
        classmethod(
            lambda cls, start_block, end_block, **rest: [False] * (end_block - start_block)
        ),
    )


def _regular_checkpoints_are_a_block_late(monkeypatch):
    mamba = _single().MambaManager
    right = mamba.reachable_block_mask

    def late(cls, start_block, end_block, *arguments, **rest):
        mask = right.__func__(cls, start_block - 1, end_block - 1, *arguments, **rest)
        return mask and mask[:]

    monkeypatch.setattr(mamba, "reachable_block_mask", classmethod(late))


def _one_look_at_each_group_is_enough(monkeypatch):
    from vllm.v1.core import kv_cache_coordinator

    hybrid = kv_cache_coordinator.HybridKVCacheCoordinator
    right = hybrid.find_longest_cache_hit

    class Two(list):
        """Groups that say that they are two."""

        def __len__(self):
            return 2

    def find(self, *arguments):
        groups, self.attention_groups = self.attention_groups, Two(self.attention_groups)
        try:
            return right(self, *arguments)
        finally:
            self.attention_groups = groups

    monkeypatch.setattr(hybrid, "find_longest_cache_hit", find)


def _only_the_first_group_of_a_kind_is_cut(monkeypatch):
    sliding = _single().SlidingWindowManager
    right = sliding.find_longest_cache_hit

    def find(cls, *arguments, **named):
        blocks, length = right.__func__(cls, *arguments, **named)
        null = named["block_pool"].null_block
        return (blocks[0], *([*others, null] for others in blocks[1:])), length

    monkeypatch.setattr(sliding, "find_longest_cache_hit", classmethod(find))


def _an_empty_hit_is_a_token_long(monkeypatch):
    chunked = _single().ChunkedLocalAttentionManager
    right = chunked.find_longest_cache_hit

    def find(cls, block_hashes, max_length, **named):
        blocks, length = right.__func__(cls, block_hashes, max_length, **named)
        if max_length > 0:
            return blocks, length
        size = named["kv_cache_spec"].block_size
        nulls = [named["block_pool"].null_block] * (1 // size)
        return tuple(list(nulls) for _ in blocks), len(nulls) * size

    monkeypatch.setattr(chunked, "find_longest_cache_hit", classmethod(find))


def _heads_prove_hits_with_a_hash_in_place_of_a_block(monkeypatch):
    from vllm.v1.core import kv_cache_coordinator

    monkeypatch.setattr(
        kv_cache_coordinator, "eagle_proof_margin", lambda block_size, hash_size, fine: hash_size
    )


def _windows_of_one_group_know_no_head(monkeypatch):
    from vllm.v1.core.kv_cache_coordinator import UnitaryKVCacheCoordinator

    right = UnitaryKVCacheCoordinator.__init__

    def init(self, *arguments, **named):
        right(self, *arguments, **named)
        self.single_type_managers[0].use_eagle = False

    monkeypatch.setattr(UnitaryKVCacheCoordinator, "__init__", init)


EVERYWHERE = (
    (_hits_in_the_queue_count_as_room, {"CRASH", "ADM"}),
    (_evicted_blocks_stay_in_the_index, {"DATA", "IDX"}),
    (_blocks_are_freed_head_first, {"ORD"}),
    (_touched_blocks_stay_in_the_queue, {"I1", "LINK", "OWN", "CRASH"}),
    # What is kept for others to join at follows from the hit, and moves with it.
    (_the_last_token_is_found_as_well, {"ADM", "I4", "IDX"}),
    (_the_salt_is_left_out, {"DATA", "IDX"}),
    (_ended_requests_keep_their_blocks, {"OWN", "I1", "LEAK"}),
)
CASES = [(layout, *case) for layout in ("full", "full+sliding") for case in EVERYWHERE]
CASES += [
    ("full+sliding", _the_window_is_a_block_too_short, {"I2", "DATA", "ATOM"}),
    ("full+mamba", _states_of_this_step_are_started_from, {"DATA"}),
    ("full+mamba-hash-2", _states_of_this_step_are_started_from, {"DATA", "IDX"}),
    ("full+mamba-hash-2", _copies_of_hits_are_forgotten, {"DATA", "IDX"}),
    ("full+mamba-hash-2", _the_key_of_a_state_stays_with_the_request_that_goes_on, {"DATA", "IDX"}),
    ("full+mamba-hash-2", _who_hits_inside_a_block_goes_on_in_it, {"DATA", "I4"}),
    ("full+mamba-hash-2", _a_state_inside_a_block_is_found_for_a_longer_prefix, {"DATA", "IDX"}),
    ("full+mamba+lookahead", _tables_of_states_have_no_blocks_for_drafts, {"ADM"}),
    ("full+mamba+lookahead", _a_block_that_moves_stays_in_its_entry, {"I2"}),
    ("full+mamba+lookahead", _refused_drafts_count_where_states_go_back, {"I2", "ATOM"}),
    ("full+mamba+lookahead", _states_of_this_step_are_started_from, {"DATA"}),
    ("sliding+lookahead", _no_checkpoint_is_kept, {"I4"}),
    ("full+sliding", _no_checkpoint_is_kept, {"I4"}),
    ("mamba", _regular_checkpoints_are_a_block_late, {"I4", "IDX"}),
    ("full+sliding-12+sliding", _one_look_at_each_group_is_enough, {"ORD", "DATA"}),
    ("full+sliding+sliding", _only_the_first_group_of_a_kind_is_cut, {"DATA", "ORD"}),
    ("chunked-local-1", _an_empty_hit_is_a_token_long, {"ADM", "CRASH"}),
    ("full-2+sliding-4+lookahead", _heads_prove_hits_with_a_hash_in_place_of_a_block, {"I4"}),
    ("sliding+lookahead", _windows_of_one_group_know_no_head, {"I4"}),
]


@pytest.mark.parametrize(("layout", "plant", "invariants"), CASES)
def test_planted_bugs_are_caught(target, monkeypatch, layout, plant, invariants):
    plant(monkeypatch)
    trace = first_failure(target, layout)
    assert trace is not None
    assert trace.violation.invariant in invariants, trace.violation
