"""From which recurrent states a step may start: what is accused, and what must not be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.state_use import StateCopy, StateUse
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.reference.recurrent_states import uses_by_table
from poolproof.reference.state_starts import WrongStart
from poolproof.reference.step_oracle import StepOracle


def oracle(*kinds: str) -> StepOracle:
    groups = [CacheGroup(kind) for kind in kinds or ("state",)]
    return StepOracle(8, groups, [4] * len(groups))


def row(name, chain, first, use, *, count=0, tables=((),)):
    """Everything of the chain from `first` on is computed; `use` is of group 0."""
    if not isinstance(chain, TokenChain):
        chain = TokenChain(tuple(chain))
    uses = use if isinstance(use, tuple) else (use,)
    count = count or len(chain.tokens) - first
    return ComputedTokens(name, chain, first, count, tables, True, states=uses)


def use(starts, *leaves, **more):
    """States start and are left at the first place of blocks."""
    begin = starts if starts is None or isinstance(starts, tuple) else (starts, 0)
    return StateUse(
        more.pop("group", 0), begin, tuple((end, (block, 0)) for end, block in leaves), **more
    )


def sentences(watch, number, *rows, **more):
    return [wrong.sentence() for wrong in watch.record(StepRecord(number, rows, **more))]


def test_a_sequence_goes_on_from_its_own_state():
    watch = oracle()
    assert sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3)))) == []
    assert sentences(watch, 2, row("a", [1, 2, 5], 2, use(3, (3, 3)))) == []
    assert sentences(watch, 3, row("b", [1, 2, 5, 7], 3, use(3, (4, 4)))) == []


def test_a_state_of_another_prefix_names_both():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    assert sentences(watch, 2, row("b", [1, 3, 4], 2, use(3, (3, 5)))) == [
        (
            "step 2: request b starts at position 2 (group 0, block 3) from a state that request a "
            "left in step 1; wanted that of <1 3>, found that of <1 2>"
        )
    ]


def test_a_state_after_more_tokens_is_not_that_of_the_prefix():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2, 3], 0, use(None, (3, 3))))
    (found,) = sentences(watch, 2, row("b", [1, 2, 4], 2, use(3, (3, 5))))
    assert "wanted that of <1 2>, found that of <1 2 3>" in found


@pytest.mark.parametrize(
    "chain", [TokenChain((1, 2, 3), salt="s"), TokenChain((1, 2, 3), ("x", "y"))]
)
def test_salt_and_adapter_are_part_of_the_prefix(chain):
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    (found,) = sentences(watch, 2, row("b", chain, 2, use(3, (3, 5))))
    assert "differs" in found


def test_the_empty_prefix_starts_from_zero_wherever_it_stands():
    watch = oracle()
    assert sentences(watch, 1, row("a", [1], 0, use(None, (1, 3)))) == []
    assert sentences(watch, 2, row("b", [1], 0, use(4, (1, 4)))) == []


def test_a_block_that_held_another_state_is_not_zero():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    assert sentences(watch, 2, row("b", [5], 0, use(3, (1, 3)))) == [
        (
            "step 2: request b starts at position 0 (group 0, block 3) from a state that request a "
            "left in step 1; wanted zero, the state of the empty prefix, found that of <1 2>"
        )
    ]


def test_a_block_that_was_zeroed_is_zero_again():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    assert sentences(watch, 2, row("b", [5], 0, use(3, (1, 3))), zeroes=(3,)) == []


def test_zero_is_no_state_of_a_longer_prefix():
    watch = oracle()
    assert sentences(watch, 1, row("a", [1, 2], 1, use(None, (2, 3)))) == [
        "step 1: request a starts at position 1 (group 0) from zero; wanted that of <1>"
    ]
    (found,) = sentences(watch, 2, row("a", [1, 2], 1, use(4, (2, 4))))
    assert found.endswith("(group 0, block 4) from zero; wanted that of <1>")


def test_states_behind_rejected_drafts_may_stand_and_not_be_started_from():
    watch = oracle()
    drafts = use(None, (1, 2), (2, 3), (3, 4))
    assert sentences(watch, 1, row("a", [1, 8, 9], 0, drafts)) == []
    assert sentences(watch, 2, row("a", [1, 8, 5], 2, use(3, (3, 2)))) == []
    (found,) = sentences(watch, 3, row("a", [1, 8, 5, 6], 3, use(4, (4, 3))))
    assert "wanted that of <1 8 5>, found that of <1 8 9>" in found


def test_a_block_with_room_for_drafts_holds_a_state_behind_each():
    watch = oracle()
    several = StateUse(0, None, ((1, (2, 0)), (2, (2, 1)), (3, (2, 2))))
    assert sentences(watch, 1, row("a", [1, 8, 9], 0, several)) == []
    moved = use((3, 0), (3, 4), before=(StateCopy(2, 3, 1),))
    assert sentences(watch, 2, row("a", [1, 8, 5], 2, moved)) == []
    assert (
        "(group 0, block 2, 2 tokens in)"
        in sentences(watch, 3, row("a", [1, 8, 6, 7], 3, use((2, 2), (4, 4))))[0]
    )


def test_the_parts_of_a_state_go_their_own_ways():
    watch = oracle()
    left = (
        use(None, (2, 3), parts=("temporal",)),
        use(None, (2, 4), parts=("window",)),
    )
    assert sentences(watch, 1, row("a", [1, 2], 0, left)) == []
    wrong = (use(3, (3, 3), parts=("temporal",)), use(3, (3, 3), parts=("window",)))
    (found,) = sentences(watch, 2, row("a", [1, 2, 3], 2, wrong))
    assert found.endswith(
        "(group 0, block 3, window) from what nobody has left there; wanted that of <1 2>"
    )


def test_copies_are_done_in_order():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (1, 2), (2, 3))))
    chained = use(5, (3, 6), before=(StateCopy(3, 2), StateCopy(2, 5)))
    assert sentences(watch, 2, row("a", [1, 2, 3], 2, chained)) == []


def test_a_copy_after_the_step_keeps_what_was_left():
    watch = oracle()
    kept = use(None, (2, 3), after=(StateCopy(3, 5),))
    sentences(watch, 1, row("a", [1, 2], 0, kept))
    sentences(watch, 2, row("a", [1, 2, 3], 2, use(3, (3, 3))))
    assert sentences(watch, 3, row("b", [1, 2, 9], 2, use(5, (3, 6)))) == []


def test_nobody_starts_from_what_is_written_over_in_the_same_step():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    goes_on = row("a", [1, 2, 3], 2, use(3, (3, 3)))
    assert sentences(watch, 2, goes_on, row("b", [1, 2, 4], 2, use(3, (3, 5)))) == [
        (
            "step 2: request b starts at position 2 (group 0, block 3) from a state that request a "
            "writes over in the same step; wanted that of <1 2>"
        )
    ]


def test_two_requests_start_from_one_state():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    goes_on = row("a", [1, 2, 3], 2, use(3, (3, 6)))
    assert sentences(watch, 2, goes_on, row("b", [1, 2, 4], 2, use(3, (3, 5)))) == []


def test_a_block_is_one_memory_for_states_and_kv():
    watch = oracle("full", "state")
    left = row("a", [1, 2], 0, use(None, (2, 3), group=1), tables=((1,), ()))
    assert sentences(watch, 1, left) == []
    kv = row("b", [7], 0, use(None, (1, 4), group=1), tables=((3,), ()))
    assert sentences(watch, 2, kv) == []
    back = row("a", [1, 2, 3], 2, use(3, (3, 3), group=1), tables=((1,), ()))
    (found,) = sentences(watch, 3, back)
    assert "from what request b wrote in group 0 in step 2; wanted that of <1 2>" in found


def test_a_state_in_the_place_of_kv_is_no_kv():
    watch = oracle("full", "state")
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3), group=1), tables=((1,), ())))
    sentences(watch, 2, row("b", [7], 0, use(None, (1, 1), group=1), tables=((4,), ())))
    grown = row("a", [1, 2, 3], 2, use(3, (3, 3), group=1), tables=((1,), ()))
    (found,) = sentences(watch, 3, grown)
    assert (
        "reads at position 0 (group 0, block 1, slot 0) KV that was computed for request b" in found
    )


def test_transfers_take_states_along():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))), stores=((3, 40),))
    sentences(watch, 2, row("b", [9], 0, use(None, (1, 3))))
    again = row("a", [1, 2, 3], 2, use(5, (3, 5)))
    assert sentences(watch, 3, again, loads=((5, 40),)) == []
    lost = row("a", [1, 2, 3], 2, use(6, (3, 6)))
    (found,) = sentences(watch, 4, lost, loads=((6, 41),))
    assert "from what nobody has left there" in found


def test_a_whole_block_is_copied_with_its_states():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    assert sentences(watch, 2, row("a", [1, 2, 3], 2, use(5, (3, 5))), copies=((3, 5),)) == []


def test_after_a_reset_no_state_is_anybodys():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    watch.void()
    (found,) = sentences(watch, 2, row("a", [1, 2, 3], 2, use(3, (3, 5))))
    assert "from what nobody has left there" in found
    (found,) = sentences(watch, 3, row("b", [1], 0, use(3, (1, 3))))
    assert "wanted zero" in found


def test_whoever_has_ended_leaves_states_and_is_not_judged():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    gone = replace(row("b", [5, 6], 1, use(3, (2, 3))), is_read=False)
    assert sentences(watch, 2, gone) == []
    assert len(sentences(watch, 3, row("a", [1, 2, 3], 2, use(3, (3, 3))))) == 1


def test_a_row_has_to_say_what_becomes_of_states():
    with pytest.raises(ValueError, match="request a says nothing of its states in group 0"):
        oracle().record(StepRecord(1, (row("a", [1], 0, ()),)))


@pytest.mark.parametrize(
    ("first", "count", "every_block", "starts", "leaves"),
    [
        (0, 6, True, None, ((4, (7, 0)), (6, (5, 0)))),
        (0, 6, False, None, ((6, (5, 0)),)),
        (4, 4, True, (7, 0), ((8, (5, 0)),)),
        (5, 1, True, (5, 0), ((6, (5, 0)),)),
        (3, 9, True, (7, 0), ((4, (7, 0)), (8, (5, 0)), (12, (2, 0)))),
    ],
)
def test_by_the_table_a_block_keeps_the_last_state_that_passed(
    first, count, every_block, starts, leaves
):
    groups = [CacheGroup(), CacheGroup("state")]
    (found,) = uses_by_table(groups, [4, 4], [[], [7, 5, 2]], first, count, every_block=every_block)
    assert (found.group, found.starts, found.leaves) == (1, starts, leaves)


def test_a_wrong_start_in_both_parts_of_a_state_is_told_once():
    watch = oracle()
    parts = (use(3, (3, 4), parts=("temporal",)), use(5, (3, 6), parts=("window",)))
    (found,) = sentences(watch, 1, row("a", [1, 2, 3], 2, parts))
    assert "(group 0, block 3, temporal) from zero; wanted that of <1 2>" in found


def test_what_nobody_sees_starts_from_anything():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    goes_on = row("a", [1, 2, 3], 2, use(3, (3, 3)))
    unseen = replace(row("b", [1, 2, 4], 2, use(3, (3, 5))), is_read=False)
    assert sentences(watch, 2, goes_on, unseen) == []


def test_a_race_behind_a_start_from_zero_is_seen():
    watch = oracle("state", "state")
    begins = (use(None, (2, 3)), use(None, (2, 4), group=1))
    sentences(watch, 1, row("a", [1, 2], 0, begins))
    goes_on = row("a", [1, 2, 3], 2, (use(3, (3, 3)), use(4, (3, 4), group=1)))
    # Of group 0 it starts from zero, which is wrong; of group 1 it races.
    other = row("b", [1, 2, 4], 2, (use(None, (3, 5)), use(4, (3, 6), group=1)))
    from_zero, races = sentences(watch, 2, goes_on, other)
    assert "(group 0) from zero" in from_zero
    assert "(group 1, block 4) from a state that request a writes over" in races


def test_a_state_that_is_written_over_with_the_same_one_is_no_race():
    watch = oracle()
    sentences(watch, 1, row("a", [1, 2], 0, use(None, (2, 3))))
    same = row("c", [1, 2], 0, use(None, (2, 3)))
    assert sentences(watch, 2, same, row("b", [1, 2, 4], 2, use(3, (3, 5)))) == []


def test_a_race_names_the_part_of_the_state():
    watch = oracle()
    each = [("temporal",), ("window",)]
    sentences(watch, 1, row("a", [1, 2], 0, tuple(use(None, (2, 3), parts=p) for p in each)))
    kept, moved = (use(3, (3, 6), parts=each[0]), use(3, (3, 3), parts=each[1]))
    goes_on = row("a", [1, 2, 3], 2, (kept, moved))
    other = row("b", [1, 2, 4], 2, tuple(use(3, (3, 5), parts=p) for p in each))
    assert sentences(watch, 2, goes_on, other) == [
        (
            "step 2: request b starts at position 2 (group 0, block 3, window) from a state that "
            "request a writes over in the same step; wanted that of <1 2>"
        )
    ]


def wrong_start(**fields):
    given = {
        "step": 2, "reader": "b", "group": 0, "part": "", "position": 2, "place": (3, 1),
        "wanted": None, "found": None, "is_zero": False, "writer": None, "written_in": None,
    }  # fmt: skip
    return WrongStart(**{**given, **fields})


def test_a_wrong_start_names_its_block():
    assert wrong_start().block == 3
    assert wrong_start(place=None).block is None


def test_what_belongs_to_no_prefix_is_what_nobody_has_left_whoever_wrote_it():
    sentence = wrong_start(writer="a", written_in=1).sentence()
    assert sentence.endswith("from what nobody has left there; wanted zero, the state of the "
                             "empty prefix")  # fmt: skip
