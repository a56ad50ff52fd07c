"""What a view of KV events believes, what it accuses, and what it must not."""

from __future__ import annotations

from poolproof.contract.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch
from poolproof.reference.event_view import EventView

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


def test_a_parent_on_another_medium_is_there():
    _, faults = followed(
        [stored(1), stored(1, medium="CPU", tokens=()), removed(1)],
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
