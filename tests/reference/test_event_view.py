"""What a view of KV events believes, what it accuses, and what it must not."""

from __future__ import annotations

import pytest

from poolproof.contract.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from poolproof.reference.event_view import EventFault, EventView

SIZE = 2


def stored(*hashes, parent=None, tokens=None, **more):
    given = tuple(range(SIZE * len(hashes))) if tokens is None else tokens
    return BlockStored(hashes, parent, given, SIZE, **more)


def removed(*hashes, **more):
    return BlockRemoved(hashes, **more)


def followed(*batches, view=None, start=0):
    """The view, and all faults of batches of events."""
    view = view or EventView("e")
    faults = []
    for number, events in enumerate(batches, start=start):
        faults += view.apply(EventBatch(number, tuple(events)))
    return view, faults


def test_a_chain_that_is_stored_grows_and_goes_is_right():
    view, faults = followed(
        [stored(1, 2)], [stored(3, parent=2, tokens=(9, 9))], [removed(3), removed(2, 1)],
    )  # fmt: skip
    assert faults == []
    assert (view.num_resident, view.counts.stored, view.counts.removed) == (0, 3, 3)
    assert view.holds(1) is False


def test_a_parent_that_is_not_stored_is_named():
    _, (fault,) = followed([stored(1)], [stored(3, parent=2, tokens=(9, 9))])
    assert (fault.kind, fault.sequence) == ("parent", 1)
    assert fault.sentence == "e, batch 1: stores block 3 behind block 2, which is not stored"


def test_a_hash_that_another_medium_still_has_keeps_its_meaning():
    _, faults = followed(
        [stored(1), stored(1, medium="CPU", tokens=()), removed(1)], [stored(1, tokens=(8, 8))]
    )
    assert [fault.kind for fault in faults] == ["meaning"]


@pytest.mark.parametrize("medium", ["CPU", "CPU_PINNED", "DISK", "a name that nobody knows"])
def test_a_parent_on_another_medium_is_there(medium):
    _, faults = followed(
        [stored(1), stored(1, medium=medium, tokens=()), removed(1)],
        [stored(2, parent=1, tokens=(8, 8))],
    )
    assert faults == []


def test_a_removal_of_what_was_never_stored_and_one_too_many_are_named():
    _, (first, second) = followed([stored(1)], [removed(1), removed(1)], [removed(b"\x01\x02")])
    assert (first.kind, second.kind) == ("removed", "removed")
    assert "removes block 1 from GPU, which is not stored there" in first.sentence
    assert "block 0102" in second.sentence


def test_a_removal_from_another_medium_or_group_is_no_removal_of_this_one():
    view, faults = followed([stored(1)], [removed(1, medium="CPU"), removed(1, group=1)])
    assert [fault.kind for fault in faults] == ["removed", "removed"]
    assert view.holds(1) is True


def test_one_hash_for_other_tokens_parent_adapter_or_extra_keys_is_named():
    for other in (
        stored(1, tokens=(7, 7)),
        stored(1, parent=5),
        stored(1, lora="x"),
        stored(1, extra_keys=(("salt",),)),
    ):
        _, faults = followed([stored(1), stored(5, tokens=(4, 4))], [other])
        assert [fault.kind for fault in faults] == ["meaning"], other
        assert "stands already for another prefix" in faults[0].sentence


def test_a_hash_that_is_gone_may_stand_for_something_else_again():
    _, faults = followed([stored(1)], [removed(1), stored(1, tokens=(7, 7))])
    assert faults == []


def test_as_many_tokens_as_blocks_have_are_demanded_and_skipped_blocks_allowed():
    for tokens in ((1, 2, 3), (1, 2)):
        _, (fault,) = followed([stored(1, 2, tokens=tokens)])
        assert fault.kind == "size"
    _, faults = followed([stored(1, tokens=(1, 2, 3, 4))], [stored(2, parent=9, tokens=(5, 6))])
    assert faults == []  # a window skips blocks, so its parents may be skipped ones


def test_a_tier_that_tells_no_tokens_is_not_accused():
    _, faults = followed([BlockStored((1, 2), None, (), 0, medium="CPU")])
    assert faults == []


def test_a_hash_told_twice_is_one_copy_or_two_and_one_removal_leaves_it_open():
    view, faults = followed([stored(1)], [stored(1)])
    assert (view.holds(1), view.counts.told_again, view.num_resident) == (True, 1, 2)
    view, faults = followed([stored(1)], [stored(1)], [removed(1)])
    assert (view.holds(1), faults) == (None, [])
    view, faults = followed([stored(1)], [stored(1)], [removed(1)], [removed(1)])
    assert (view.holds(1), faults) == (False, [])


def test_after_a_lost_batch_nothing_is_accused_that_it_may_have_told():
    view, faults = followed([stored(1)])
    _, more = followed([removed(7)], [stored(3, parent=2)], view=view, start=3)
    assert (faults, more) == ([], [])
    assert (view.counts.lost, view.counts.excused, view.is_certain) == (2, 2, False)
    assert (view.holds(1), view.holds(8)) == (None, None)


def test_who_comes_late_has_lost_nothing_and_knows_nothing():
    view, faults = followed([removed(7), stored(3, parent=2)], start=100)
    assert (faults, view.counts.lost, view.counts.excused, view.is_certain) == ([], 0, 1, False)


def test_a_cleared_cache_makes_a_view_certain_again():
    view, faults = followed([stored(1)], start=9)
    _, more = followed([AllBlocksCleared()], [removed(1)], view=view, start=10)
    assert faults == []
    assert [fault.kind for fault in more] == ["removed"]
    assert view.is_certain


def test_what_another_tier_keeps_when_the_cache_is_cleared_is_not_told():
    view, faults = followed(
        [stored(1), stored(1, medium="CPU", tokens=())], [AllBlocksCleared()],
        [removed(1, medium="CPU")],
    )  # fmt: skip
    assert (faults, view.num_resident) == ([], 0)


def test_numbers_that_begin_again_are_a_restart_and_nothing_is_resident():
    view, _ = followed([stored(1)], [stored(2, parent=1)])
    _, faults = followed([removed(1)], view=view)
    assert [fault.kind for fault in faults] == ["removed"]
    assert (view.counts.restarts, view.expected, view.num_resident) == (1, 1, 0)


def test_what_is_replayed_and_was_heard_is_passed_over():
    view, _ = followed([stored(1)], [removed(1)])
    assert view.apply(EventBatch(0, (stored(1),)), is_replayed=True) == []
    assert (view.counts.repeated, view.num_resident, view.counts.restarts) == (1, 0, 0)


def test_more_blocks_than_the_pool_has_are_told_once():
    view = EventView("e", num_blocks=2)
    _, faults = followed([stored(1, 2)], [stored(1)], [stored(3, parent=2)], [], view=view)
    assert [(fault.kind, fault.sequence) for fault in faults] == [("blocks", 2)]
    assert "3 blocks are stored and not removed, and the pool has 2" in faults[0].sentence


def test_memory_is_that_of_what_is_resident():
    view, _ = followed(*[[stored(n), removed(n)] for n in range(100)])
    assert not view._resident
    assert not view._meanings


def test_everything_that_was_heard_is_counted():
    view, _ = followed(
        [stored(1)], [stored(1)], [stored(1), AllBlocksCleared()], [AllBlocksCleared()]
    )
    assert (view.counts.batches, view.counts.told_again, view.counts.cleared) == (4, 2, 2)
    for _ in range(2):
        view.apply(EventBatch(0, ()), is_replayed=True)
        view.lose(3)
    assert (view.counts.repeated, view.counts.lost, view.counts.batches) == (2, 6, 4)
    view.restart()
    view.restart()
    assert (view.counts.restarts, view.expected) == (2, 0)


def test_whoever_has_lost_a_batch_is_not_certain():
    view = EventView("e")
    view.lose(1)
    assert view.is_certain is False


def test_a_removal_that_cannot_be_names_its_batch_and_hides_no_other():
    view, (fault,) = followed([stored(1)], [removed(7, 1)])
    assert fault.sequence == 1
    assert fault.sentence == "e, batch 1: removes block 7 from GPU, which is not stored there"
    assert view.holds(1) is False


def test_what_was_stored_without_tokens_can_be_removed():
    assert followed([stored(1, tokens=())], [removed(1)])[1] == []


def test_copies_on_another_tier_may_survive_that_the_cache_is_cleared():
    view, _ = followed([stored(1, medium="CPU"), stored(1, medium="CPU")], [AllBlocksCleared()])
    assert view.holds(1, medium="CPU") is None
    assert view.num_resident == 2


def test_what_may_survive_on_another_tier_keeps_its_meaning_and_nothing_else_does():
    _, faults = followed(
        [stored(1), stored(2, tokens=(5, 5)), stored(1, medium="CPU", tokens=())],
        [AllBlocksCleared(), stored(1, tokens=(7, 7)), stored(2, tokens=(8, 8))],
    )
    assert [fault.sentence.partition(" is stored")[0] for fault in faults] == [
        "e, batch 1: block 1"
    ]


def test_a_cleared_cache_has_all_of_its_blocks_again():
    view = EventView("e", num_blocks=2)
    _, faults = followed([stored(1, 2)], [AllBlocksCleared(), stored(3, 4)], view=view)
    assert faults == []


def test_a_pool_that_is_over_again_after_it_was_cleared_is_told_again():
    view = EventView("e", num_blocks=1)
    _, faults = followed([stored(1, 2)], [AllBlocksCleared(), stored(1, 2)], view=view)
    assert [(fault.kind, fault.sequence) for fault in faults] == [("blocks", 0), ("blocks", 1)]


def test_a_block_that_was_removed_makes_room():
    view = EventView("e", num_blocks=2)
    _, faults = followed(
        [stored(1, 2)], [removed(2), stored(3, parent=1, tokens=(9, 9))], view=view
    )
    assert faults == []


def test_a_block_that_leaves_another_tier_makes_no_room():
    view = EventView("e", num_blocks=2)
    elsewhere = [stored(1, medium="CPU", tokens=()), removed(1, medium="CPU")]
    _, faults = followed([stored(1, 2)], elsewhere, [stored(3, parent=2)], view=view)
    assert [fault.kind for fault in faults] == ["blocks"]


def test_wrong_numbers_of_tokens_are_named():
    _, (one,) = followed([], [stored(1, tokens=(1, 2, 3))])
    assert one == EventFault(
        "size", 1, "e, batch 1: stores 1 block of 2 tokens each, and tells 3 tokens"
    )
    _, (two,) = followed([stored(1, 2, tokens=(1, 2))])
    assert two.sentence == "e, batch 0: stores 2 blocks of 2 tokens each, and tells 2 tokens"


def test_blocks_have_at_least_one_token():
    _, (fault,) = followed([BlockStored((1,), None, (1,), 0)])
    assert fault.sentence == "e, batch 0: stores 1 block of 0 tokens each, and tells 1 tokens"
    _, faults = followed([BlockStored((1,), None, (4,), 1)], [BlockStored((1,), None, (5,), 1)])
    assert [fault.kind for fault in faults] == ["meaning"]


def test_a_parent_of_several_blocks_must_be_there_too():
    _, (fault,) = followed([stored(1)], [stored(3, 4, parent=2)])
    assert fault.sentence == "e, batch 1: stores block 3 behind block 2, which is not stored"


def test_where_layers_have_windows_parents_may_be_missing():
    behind = stored(3, parent=2, tokens=(9, 9))
    assert followed([stored(1, kind="sliding_window")], [behind])[1] == []
    assert [f.kind for f in followed([stored(1, kind="full_attention")], [behind])[1]] == ["parent"]


def test_where_blocks_of_a_group_have_two_sizes_parents_may_be_missing():
    behind = stored(3, parent=2, tokens=(9, 9))
    small = BlockStored((4,), None, (1,), 1)
    assert followed([stored(1)], [small], [behind])[1] == []
    elsewhere = BlockStored((4,), None, (1,), 1, group=1)
    assert [f.kind for f in followed([stored(1)], [elsewhere], [behind])[1]] == ["parent"]


def test_another_meaning_names_the_block_its_tokens_and_its_parent():
    _, (first, second) = followed([stored(1, 2)], [stored(1, 2, tokens=(7, 7, 8, 8))])
    assert first == EventFault(
        "meaning", 1, "e, batch 1: block 1 is stored for the tokens [7, 7] behind no block, and "
        "stands already for another prefix",
    )  # fmt: skip
    assert "block 2 is stored for the tokens [8, 8] behind block 1, and stands" in second.sentence


def test_a_block_behind_another_one_has_another_meaning():
    _, faults = followed([stored(1, 2)], [stored(5, 2, tokens=(4, 4, 2, 3))])
    assert [fault.kind for fault in faults] == ["meaning"]


def test_where_blocks_are_skipped_nobody_knows_what_a_hash_stands_for():
    _, faults = followed(
        [stored(1, tokens=(1, 2, 3, 4))], [stored(1, tokens=(9, 9, 3, 4))], [stored(1)],
    )  # fmt: skip
    assert faults == []


def test_extra_keys_belong_to_their_own_block():
    both = stored(1, 2, extra_keys=(("a",), ("b",)))
    assert followed([both], [stored(1, extra_keys=(("a",),))])[1] == []
    other = stored(1, 2, extra_keys=(("a",), ("c",)))
    _, (fault,) = followed([both], [other])
    assert "block 2 is stored" in fault.sentence


def test_a_long_hash_is_named_by_its_first_bytes():
    _, (fault,) = followed([removed(bytes(range(9)))])
    assert "removes block 0001020304050607 from GPU" in fault.sentence
