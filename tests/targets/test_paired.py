"""Two targets as one: what both answer alike passes, the first difference is named."""

from dataclasses import replace

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError, capabilities_of
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.impl.block_pool import BlockPool
from poolproof.targets.load import load_target
from poolproof.targets.paired import Paired, paired_target

SEEN = Violation("IDX", Severity.CRASH, "two contents under one hash")


def pair(first, second, level=Level.POOL):
    return Paired(level, ("one", "other"), (first, second))


def test_equal_pools_answer_as_one():
    both = pair(BlockPool(4), BlockPool(4))
    assert both.allocate(2) == [0, 1]
    both.free([1])
    assert both.num_free() == 3
    assert isinstance(both.free_neighbours(2), tuple)
    assert "touch" in capabilities_of(both).verbs


def test_a_refusal_of_both_is_the_refusal_of_the_first():
    with pytest.raises(MemoryError, match="free"):
        pair(BlockPool(1), BlockPool(1)).allocate(2)


def test_answers_that_differ_are_named_with_both():
    both = pair(BlockPool(4), BlockPool(5))
    with pytest.raises(ViolationError) as found:
        both.num_free()
    violation = found.value.violation
    assert violation.invariant == "DIFF"
    assert violation.sentence == "num_free(): one answered 4, other answered 5"


def test_a_refusal_against_an_answer_is_a_difference():
    both = pair(BlockPool(1), BlockPool(2))
    with pytest.raises(ViolationError, match="one refused, other answered"):
        both.allocate(2)


def test_what_only_one_raises_is_a_difference():
    class Raises(BlockPool):
        def lookup(self, block_hash):
            raise RuntimeError("no index")

    both = pair(BlockPool(2), Raises(2))
    with pytest.raises(ViolationError, match="one answered None, other raised 'RuntimeError'"):
        both.lookup(b"12345678")


def test_both_are_given_hashes_that_both_take():
    both = paired_target(load_target("impl"), load_target("reference[hash_bytes=32]"))
    assert both.profile.hash_bytes == 32
    both = paired_target(load_target("impl[hash_bytes=32]"), load_target("reference"))
    assert both.profile.hash_bytes == 32
    with pytest.raises(TargetError) as refusal:
        paired_target(load_target("impl[hash_bytes=32]"), load_target("impl[hash_bytes=16]"))
    assert str(refusal.value) == (
        "impl[hash_bytes=32] takes hashes of 32 bytes and impl[hash_bytes=16] of 16: no hash can "
        "be given to both; set hash_bytes of one of them to that of the other"
    )


def test_a_method_that_only_one_has_is_left_out():
    class Blind(BlockPool):
        free_order = None

    assert not hasattr(pair(BlockPool(2), Blind(2)), "free_order")


def test_a_finding_of_an_adapter_passes_through():
    class Collides(BlockPool):
        def lookup(self, block_hash):
            raise ViolationError(SEEN)

    with pytest.raises(ViolationError) as found:
        pair(Collides(2), BlockPool(2)).lookup(b"12345678")
    assert found.value.violation is SEEN


def test_each_gets_lists_of_its_own():
    class Keeps(BlockPool):
        def free(self, block_ids):
            self.kept = block_ids
            super().free(list(block_ids))

    one, other = Keeps(2), Keeps(2)
    both = pair(one, other)
    both.allocate(1)
    both.free([0])
    assert one.kept is not other.kept


def test_managers_are_paired_too():
    both = pair(CleanManager(4, 2), CleanManager(4, 2), Level.MANAGER)
    assert both.admit(0, [1, 2, 3], extra_keys=None) == 0
    assert both.block_table(0) == [0, 1]


def test_what_means_the_same_in_a_manager_is_no_difference():
    class InOtherWords(CleanManager):
        def append(self, seq_id, tokens):
            copies = super().append(seq_id, tokens)
            return copies if copies == "later" else [list(pair) for pair in copies] or None

        def finish(self, seq_id):
            super().finish(seq_id)
            return True

    both = pair(CleanManager(4, 2), InOtherWords(4, 2), Level.MANAGER)
    both.admit(0, [1, 2, 3], extra_keys=None)
    both.step([(0, 3)])
    assert both.fork(0, 1) == []
    assert both.append(0, [4]) == [(1, 2)]
    assert both.append(1, [4]) == []
    assert both.append(1, list(range(9))) == "later"
    assert both.finish(0) is None


def test_other_copies_are_a_difference():
    class Silent(CleanManager):
        def append(self, seq_id, tokens):
            super().append(seq_id, tokens)

    both = pair(CleanManager(4, 2), Silent(4, 2), Level.MANAGER)
    both.admit(0, [1], extra_keys=None)
    both.step([(0, 1)])
    both.fork(0, 1)
    with pytest.raises(ViolationError, match=r"one answered \[\(0, 1\)\], other answered None"):
        both.append(0, [4])


def test_targets_of_two_levels_are_refused():
    with pytest.raises(TargetError, match="give two targets of one level"):
        paired_target(load_target("impl"), load_target("impl-queue"))


def test_a_pair_is_named_after_both_and_takes_chains_where_both_do():
    both = paired_target(load_target("impl"), load_target("impl[eviction=lifo]"))
    assert both.name == "impl | impl[eviction=lifo]"
    assert both.make(3, True).num_free() == 3
    assert (both.make_chained is None) == (load_target("impl").make_chained is None)


def test_events_are_left_out_where_only_one_announces_them():
    both = paired_target(load_target("impl"), load_target("impl[events=none]"))
    assert not hasattr(both.make(3, True), "take_events")


def test_managers_are_paired_in_the_layouts_that_both_have():
    both = paired_target(load_target("impl-nano"), load_target("reference-manager"))
    assert [layout.name for layout in both.layouts] == ["full"]
    manager = both.layouts[0].make(4, True)
    assert manager.admit(0, [1, 2, 3], extra_keys=None) == 0
    assert manager.block_table(0) == [0]


def test_managers_without_a_common_layout_are_refused():
    first, second = load_target("impl-nano"), load_target("reference-manager")
    others = tuple(layout for layout in second.layouts if layout.name != "full")
    with pytest.raises(TargetError, match="have no layout in common"):
        paired_target(first, replace(second, layouts=others))
