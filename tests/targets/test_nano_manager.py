"""Managers in nano-vLLM's shape behind the native contract: Poolproof's own, and published ones."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import ClassVar

import pytest

from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.target import TargetError
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.targets.load import load_target
from poolproof.targets.nano_manager import NanoManager, StandInSequence, sequence_maker
from poolproof.targets.token_names import TokenNames

TOYS = Path(__file__).with_name("toy_nano.py")
LORA = (("lora", ("a", "/a"), 0, None),)
SALT = (("salt", "s", 0, None),)


def campaign(target):
    return ManagerCampaign(target.name, target.make, target.profile, target.block_size)


def first_failure(target, runs):
    results = (campaign(target).run(number) for number in range(runs))
    return next((result.trace for result in results if result.trace is not None), None)


def shortest_failure(target, runs=300, wording=""):
    """A minimised trace; delta debugging may end in one that is too long, so a few are tried.

    With `wording` one whose sentence says so is looked for: a bug shows itself in several ways.
    """
    results = (campaign(target).run(number).trace for number in range(runs))
    traces = islice((trace for trace in results if trace is not None), 6)
    found = (minimise(trace, execute_in_process(target.make)) for trace in traces)
    longer = []
    for trace in found:
        if len(trace.commands) <= 8 and wording in trace.violation.sentence:
            return trace
        longer.append(trace)
    return longer[0] if longer else None


def toy(name, rows=""):
    return load_target(f"{TOYS}:{name}{rows}")


def impl(num_blocks=6, *, caching=True) -> NanoManager:
    return load_target("impl-nano").make(num_blocks, caching)


def test_our_own_manager_holds_and_every_situation_occurs():
    target, facts = load_target("impl-nano"), set()
    for number in range(150):
        result = campaign(target).run(number)
        assert result.trace is None, result.trace.violation
        facts |= result.facts
    assert facts >= set(
        required_manager_facts(target.profile, manager_capabilities_of(target.make(4, True)))
    )


def test_our_own_manager_is_held_to_exact_rows():
    profile = load_target("impl-nano").profile
    rows = ("publishes", "hits", "admission", "full_hit", "duplicates", "collisions", "eviction")
    assert [getattr(profile, row) for row in rows] == [
        "computed", "exact", "exact", "recompute-token", "kept", "checked", "lru",
    ]  # fmt: skip
    assert profile.assumed == ()


def test_a_published_manager_without_the_bugs_holds_under_exact_rows():
    target = toy("LateNano")
    assert (target.shape, target.profile.hits, target.profile.admission) == (
        "nano", "exact", "exact",
    )  # fmt: skip
    assert first_failure(target, 80) is None


@pytest.mark.parametrize("num_bits", [1, 8])
def test_our_own_manager_holds_under_weak_hashes(num_bits):
    target = load_target("impl-nano")
    weak = replace(campaign(target), options={"weak_hashes": num_bits})
    results = [weak.run(number) for number in range(40)]
    assert [result.trace for result in results if result.trace or result.collision] == []


def test_what_a_published_manager_does_wrong_under_weak_hashes_is_a_collision():
    """It compares a block's own tokens at most, and trusts the hash for those before them."""
    weak = replace(campaign(toy("LateNano")), options={"weak_hashes": 8})
    results = [weak.run(number) for number in range(40)]
    assert [result.trace for result in results if result.trace] == []
    assert any(result.collision for result in results)


def test_keeping_one_id_for_a_hash_loses_hits():
    """nano-vllm#219, shown where every copy is to be found."""
    trace = shortest_failure(toy("LateNano", "[duplicates=kept]"))
    assert (trace.violation.invariant, len(trace.commands) <= 8) == ("I4", True)


@pytest.mark.parametrize(
    ("name", "publishes"), [("EarlyNano", "scheduled"), ("ForgetfulNano", "computed")]
)
def test_one_request_reads_another_s_prefix_in_the_generations_that_were_wrong(name, publishes):
    """nano-vllm#163, and the revived hash of f64d821."""
    target = toy(name)
    assert (target.profile.publishes, target.profile.hits) == (publishes, "sound")
    wording = "KV that was computed for"
    trace = shortest_failure(target, wording=wording)
    assert trace.violation.invariant == "DATA"
    assert wording in trace.violation.sentence
    assert len(trace.commands) <= 8


def test_only_a_generation_that_publishes_what_was_computed_takes_chunks():
    assert "schedule" in manager_capabilities_of(toy("LateNano").make(4, True)).verbs
    early = toy("EarlyNano")
    assert "schedule" not in manager_capabilities_of(early.make(4, True)).verbs
    assert any("chunked prefill" in note for note in early.notes)


def test_a_prefix_is_found_once_its_step_is_over():
    manager = impl()
    assert manager.admit(0, [1, 2, 3, 4, 5]) == 0
    assert manager.admit(1, [1, 2, 3, 4, 6]) == 0
    manager.step([(0, 5), (1, 5)])
    assert manager.admit(2, [1, 2, 3, 4, 7]) == 4


@pytest.mark.parametrize("keys", [LORA, SALT, (("image", "cat", 1, 3),)])
def test_tokens_under_other_keys_are_other_tokens(keys):
    manager = impl(8)
    manager.admit(0, [1, 2, 3, 4, 5])
    manager.step([(0, 5)])
    assert manager.admit(1, [1, 2, 3, 4, 5], extra_keys=keys) == 0
    manager.step([(1, 5)])
    assert manager.admit(2, [1, 2, 3, 4, 6], extra_keys=keys) == 4


def test_an_output_stands_under_the_adapter_of_its_prompt():
    manager = impl(8)
    manager.admit(0, [1, 2, 3], extra_keys=LORA)
    manager.append(0, [4, 5])
    manager.step([(0, 5)])
    assert manager.admit(1, [1, 2, 3, 4, 5], extra_keys=LORA) == 4


def test_what_an_image_shows_differs_from_position_to_position():
    names = TokenNames(enable_caching=True)
    one, two = names.named([7, 7, 7], (), (("image", "cat", 0, 2),))[:2]
    assert one != two
    assert names.named([7, 7, 7], (), (("image", "cat", 0, 2),)) == [one, two, 7]


def test_with_caching_off_nothing_is_found_not_even_one_s_own():
    manager = impl(caching=False)
    manager.admit(0, [1, 2, 3, 4, 5])
    manager.step([(0, 5)])
    assert manager.admit(1, [1, 2, 3, 4, 5]) == 0
    manager.preempt(0)
    assert manager.admit(0, [1, 2, 3, 4, 5]) == 0


def test_a_preempted_sequence_finds_its_own_blocks():
    manager = impl()
    manager.admit(0, [1, 2, 3, 4, 5])
    manager.step([(0, 5)])
    manager.preempt(0)
    assert manager.admit(0, [1, 2, 3, 4, 5]) == 4


@pytest.mark.parametrize("name", ["impl-nano", f"{TOYS}:LateNano", f"{TOYS}:EarlyNano"])
def test_a_refusal_changes_nothing(name):
    manager = load_target(name).make(2, True)
    assert manager.admit(0, [1, 2, 3, 4]) == 0
    assert manager.admit(1, [1] * 8) == "later"
    assert manager.admit(2, [5, 6, 7]) == 0
    assert manager.append(0, [8]) == "later"
    assert (manager.num_free(), len(manager.block_table(0))) == (0, 1)
    manager.finish(2)
    assert manager.append(0, [8]) == []


def test_several_tokens_are_refused_where_they_take_more_blocks_than_are_free():
    manager = toy("LateNano").make(3, True)
    manager.admit(0, [1, 2, 3, 4])
    manager.admit(1, [5])
    assert manager.append(0, [6] * 5) == "later"
    assert manager.append(0, [6] * 4) == []


def test_an_end_is_passed_on_again_and_an_unknown_name_is_not(monkeypatch):
    manager, ended = impl(), []
    deallocate = manager._manager.deallocate
    monkeypatch.setattr(
        manager._manager, "deallocate", lambda seq: (ended.append(seq), deallocate(seq))
    )
    manager.admit(0, [1])
    manager.finish(0)
    manager.finish(0)
    manager.abort(99)
    assert ended[0] is ended[1]
    assert (len(ended), manager.num_free()) == (2, 6)


def test_ended_sequences_are_not_kept_for_ever():
    manager = impl()
    for seq_id in range(150):
        manager.admit(seq_id, [1])
        manager.finish(seq_id)
    assert list(manager._ended) == list(range(50, 150))


def test_our_own_manager_resets():
    manager = impl()
    manager.admit(0, [1, 2, 3, 4, 5])
    manager.step([(0, 5)])
    assert manager.reset() is False
    manager.finish(0)
    assert manager.reset() is True
    assert manager.admit(1, [1, 2, 3, 4, 5]) == 0


def test_a_published_manager_shows_what_its_index_leads_to():
    manager = toy("LateNano").make(4, True)
    manager.admit(0, [1, 2, 3, 4])
    manager.admit(1, [1, 2, 3, 4])
    manager.step([(0, 4), (1, 4)])
    assert [manager.is_cached(block) for block in range(4)] == [False, True, False, False]
    assert (manager.ref_count(0), manager.free_order()) == (1, [2, 3])


class Unseen:
    """A manager that shows nothing of its state."""

    profile: ClassVar = {"hits": "sound", "publishes": "never"}

    def __init__(self, num_blocks, block_size):
        self.free, self.block_size = list(range(num_blocks)), block_size

    def can_allocate(self, seq):
        return len(seq) <= self.block_size * len(self.free)

    def allocate(self, seq):
        seq.block_table += [self.free.pop() for _ in range(seq.num_blocks)]

    def deallocate(self, seq):
        self.free += seq.block_table
        seq.block_table.clear()

    def can_append(self, seq):
        return bool(self.free)

    def may_append(self, seq):
        if len(seq.block_table) < seq.num_blocks:
            seq.block_table.append(self.free.pop())


def test_what_cannot_be_seen_is_not_offered():
    manager = NanoManager(Unseen(3, 4), sequence_maker(Unseen, 4), 4)
    seen = manager_capabilities_of(manager).observers
    assert seen == set()
    manager.admit(0, [1])
    assert manager.append(0, [2] * 9) == []


class WithParameters(StandInSequence):
    def __init__(self, token_ids, sampling_params):
        super().__init__(token_ids)
        self.sampling_params = sampling_params


class SamplingParams:
    pass


def test_a_sequence_class_that_wants_parameters_gets_those_of_its_module(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "Sequence", WithParameters, raising=False)
    sequence = sequence_maker(Unseen, 4)([1, 2])
    assert isinstance(sequence.sampling_params, SamplingParams)


def test_the_stand_in_has_what_published_managers_read():
    sequence = sequence_maker(Unseen, 4)([1, 2, 3, 4, 5])
    assert isinstance(sequence, StandInSequence)
    sequence.append_token(6)
    assert (len(sequence), sequence.num_tokens, sequence.num_blocks) == (6, 6, 2)
    assert (sequence.last_block_num_tokens, sequence.last_token, sequence[0]) == (2, 6, 1)
    assert sequence.block(1) == [5, 6]
    assert StandInSequence.block_size == 0


def test_a_checkout_is_loaded_by_its_path(tmp_path):
    engine = tmp_path / "nanovllm" / "engine"
    engine.mkdir(parents=True)
    (engine.parent / "sampling_params.py").write_text("class SamplingParams: ...", encoding="utf-8")
    (engine / "sequence.py").write_text(
        "from poolproof.targets.nano_manager import StandInSequence\n"
        "class Sequence(StandInSequence): ...\n",
        encoding="utf-8",
    )
    text = TOYS.read_text(encoding="utf-8").replace("class LateNano", "class BlockManager")
    text = text.replace("(LateNano)", "(BlockManager)")
    (engine / "block_manager.py").write_text(
        text.replace("import annotations", "import annotations\nfrom nanovllm.engine.sequence "
                     "import Sequence"),
        encoding="utf-8",
    )  # fmt: skip
    target = load_target(f"nano-vllm:{tmp_path}[watermark_blocks=0]")
    assert (target.version, target.profile.hits, target.profile.assumed) == (None, "exact", ())
    assert first_failure(target, 10) is None


def test_a_method_that_publishes_may_have_another_name():
    target = toy("RenamedNano")
    assert (target.profile.publishes, target.profile.hits) == ("computed", "exact")
    assert first_failure(target, 20) is None


def test_a_clone_without_a_prefix_cache_says_so():
    target = toy("PlainNano")
    assert target.profile.publishes == "never"
    assert first_failure(target, 20) is None


def test_a_clone_that_takes_blocks_for_a_chunk_at_a_time_is_driven_in_chunks():
    target = toy("ChunkedNano")
    assert "schedule" in manager_capabilities_of(target.make(6, True)).verbs
    assert first_failure(target, 40) is None
    manager = target.make(6, True)
    assert manager.admit(0, [1, 2, 3, 4, 5, 6], num_tokens=3) == 0
    assert (manager.schedule(0, 3), len(manager.block_table(0))) == ("later", 1)
    manager.step([(0, 3)])
    assert (manager.schedule(0, 3), len(manager.block_table(0))) == ([], 2)


def test_a_block_that_a_chunked_clone_loses_is_found_out():
    assert shortest_failure(toy("LosingNano")).violation.invariant == "OWN"


class NamesFirst(StandInSequence):
    """Takes something else before its tokens."""

    def __init__(self, seq_id, token_ids, block_size):
        super().__init__(token_ids)
        self.seq_id, self.block_size = seq_id, block_size


def test_tokens_are_told_by_name_where_they_do_not_come_first(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "Sequence", NamesFirst, raising=False)
    sequence = sequence_maker(Unseen, 4)([1, 2, 3])
    assert (sequence.token_ids, sequence.block_size) == ([1, 2, 3], 4)


def test_rows_of_the_class_and_of_the_brackets_are_taken():
    rows = load_target(f"{TOYS}:LateNano[hits=sound]").profile
    assert (rows.hits, rows.admission) == ("sound", "exact")


def test_a_module_that_is_gone_gives_the_stand_in():
    """A class may name a module that is not loaded."""
    made = type("Made", (Unseen,), {"__module__": "no.such.module"})
    assert isinstance(sequence_maker(made, 4)([1]), StandInSequence)


@pytest.mark.parametrize(
    ("text", "api", "message"),
    [
        ("impl-nano[groups=sliding:8]", None, "have one group, full attention"),
        ("impl-nano[hit=exact]", None, "unknown profile key 'hit'"),
        (f"{TOYS}:LateNano[hit=exact]", None, "unknown profile key 'hit'"),
        ("nano-vllm:no/such/folder", None, "is not a folder"),
        (f"{Path(__file__)}:WithParameters", "nano", "lacks can_allocate(), allocate()"),
        ("impl-nano", "v0", "impl-nano is a nano target"),
    ],
)
def test_what_is_wrong_is_said(text, api, message):
    with pytest.raises(TargetError) as refusal:
        load_target(text, api=api)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("register_partial_block", "hits may end inside a block, which takes copies"),
        ("may_prefill", "prompts are published chunk by chunk"),
    ],
)
def test_a_clone_that_does_more_than_the_shape_is_not_driven(method, why):
    clone = type("Clone", (type(toy("LateNano").make(6, True)._manager),), {method: print})
    with pytest.raises(TargetError, match=rf"is not driven, because .*: {why}, as {method}\(\) "):
        load_target(clone)
