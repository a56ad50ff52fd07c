"""How uses of recurrent states are read from what an engine says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from poolproof.contract.state_use import (
    PARTS,
    StateCopy,
    StateUse,
    StateUseError,
    use_from,
    uses_by_request,
)


def test_a_use_is_read_whole() -> None:
    told = {
        "group": 1,
        "part": "window",
        "starts": [3, 2],
        "leaves": [[8, 4], (9, (4, 1))],
        "before": [[5, 3], [5, 6, 1]],
        "after": [(4, 7)],
    }
    assert use_from(told) == StateUse(
        group=1,
        starts=(3, 2),
        leaves=((8, (4, 0)), (9, (4, 1))),
        before=(StateCopy(5, 3), StateCopy(5, 6, 1)),
        after=(StateCopy(4, 7),),
        parts=("window",),
    )


def test_what_is_left_out_is_nothing() -> None:
    assert use_from({"group": 0}) == StateUse(0, None, (), (), (), PARTS)
    assert use_from({"group": 0, "starts": 4}).starts == (4, 0)


def test_positions_move_back_with_the_drafts_that_were_not_right() -> None:
    use = StateUse(0, (3, 0), ((8, (4, 0)), (9, (4, 1))), (StateCopy(1, 3),))
    moved = use.shifted(2)
    assert moved.leaves == ((6, (4, 0)), (7, (4, 1)))
    assert (moved.starts, moved.before) == (use.starts, use.before)
    assert use.shifted(0) is use


def test_the_blocks_of_a_use_are_all_that_it_names() -> None:
    use = StateUse(0, (3, 0), ((8, (4, 0)),), (StateCopy(1, 3),), (StateCopy(4, 6),))
    assert sorted(use.blocks()) == [1, 3, 3, 4, 4, 6]
    assert use.reads() == (3, 1)


@pytest.mark.parametrize(
    ("told", "sentence"),
    [
        (7, "the use 7 of a state must be a mapping with group; it may have after, before, group"),
        ({"starts": 1}, "must be a mapping with group"),
        ({"group": 0, "start": 1}, "must be a mapping with group"),
        (
            {"group": 0, "part": "conv"},
            "the part of a state is one of temporal, window, not 'conv'",
        ),
        ({"group": 0, "starts": "x"}, "must have places (a block, or [block, at])"),
        ({"group": 0, "starts": [1, 2, 3]}, "must have places"),
        ({"group": 0, "leaves": [3]}, "what it leaves as [end, place]"),
        ({"group": 0, "before": [[1]]}, "copies as [source, into] or [source, into, skip]"),
        ({"group": None}, "must have places"),
    ],
)
def test_what_makes_no_sense_is_named(told: Any, sentence: str) -> None:
    with pytest.raises(StateUseError, match=re.escape(sentence)):
        use_from(told)


def test_late_uses_are_told_by_request() -> None:
    assert uses_by_request({3: [{"group": 0}], 4: None}) == {3: (StateUse(0, None),), 4: ()}
    assert uses_by_request([[3, [{"group": 0}]]]) == {3: (StateUse(0, None),)}


@pytest.mark.parametrize("told", [None, [1], [[1, 2, 3]], {"a": []}, {1: 5}])
def test_late_uses_that_make_no_sense_are_named(told: Any) -> None:
    with pytest.raises(StateUseError, match="a mapping of requests to lists of uses"):
        uses_by_request(told)
