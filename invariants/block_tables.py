"""Block tables: what a sequence's table may and must contain.

I2: whatever stands in a table stays there; what is new was free. ADM: the table covers exactly
the slots that the sequence has to have. IDX: what is reported as cached is in the index. Whether
the blocks hold the right KV is DATA's, not checked here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from poolproof.contract.commands import Command
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import listed
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import copy_list, number_of_blocks, sequence_name

__all__ = [
    "copied_elsewhere",
    "hands_out_held",
    "hit_without_key",
    "no_such_block",
    "still_read",
    "table_changed",
    "too_few_cached",
    "too_long",
    "too_many_cached",
    "too_short",
    "wrong_head",
]


def no_such_block(seq_id: int, block: object, num_blocks: int) -> Violation:
    """An entry of a table is no block."""
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"the table of {sequence_name(seq_id)} holds {shown(block)}, which is no block (ids run "
        f"from 0 to {num_blocks - 1}): the kernel reads outside of the cache",
    )


def hands_out_held(seq_id: int, block: int, holders: Collection[int]) -> Violation:
    """A block came into a table although it was not free."""
    mine = all(holder == seq_id for holder in holders)
    names = [sequence_name(holder) for holder in dict.fromkeys(holders)]
    if not names:
        what = "which nobody holds and which is not free"
    elif mine:
        what = "which it holds already"
    elif len(names) == 1:
        what = f"which {names[0]} still holds: both write to it"
    else:
        what = f"which {', '.join(names[:-1])} and {names[-1]} still hold: all of them write to it"
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ONES_OWN if mine else Severity.WRONG_DATA_OF_ANOTHER,
        f"{sequence_name(seq_id)} was given block {block}, {what}",
        (block,),
    )


def table_changed(
    seq_id: int, was: Sequence[int], shown: Sequence[int], why: str = "", group: int | None = None
) -> Violation:
    """A table is not what it was; `why` says why that is wrong.

    The cache group is named where there are several.
    """
    named = "" if group is None else f" in group {group}"
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"the table of {sequence_name(seq_id)}{named} was {listed(was)} and is {listed(shown)} now"
        + (f": {why}" if why else ""),
        tuple(block for block in shown if block not in was),
    )


def still_read(entry: int, block: int, first_read: int) -> str:
    """Why a block may not be let go: it holds positions that are still read."""
    return (
        f"block {block} was let go at entry {entry}, but the next token reads every position from "
        f"{first_read} on"
    )


def copied_elsewhere(entry: int, was: int, now: int, copies: Sequence[tuple[int, int]]) -> str:
    """Why an entry may not name another block: no copy took there what the old one holds."""
    into = [destination for source, destination in copies if source == was]
    if not copies:
        return f"no copy was ordered from block {was} to block {now}, which entry {entry} names"
    if not into:
        return f"the copies {copy_list(copies)} take block {was} nowhere"
    taken = f"the copies {copy_list(copies)} take block {was} to {' and '.join(map(str, into))}"
    if any((block, now) in copies for block in into):
        return f"{taken} and not to {now}, since copies of one answer happen at once"
    return f"{taken} and not to {now}"


def too_short(command: Command, seq_id: int, entries: int, needed: int) -> Violation:
    """The table does not cover the tokens."""
    return Violation(
        "ADM",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"after {command} the table of {sequence_name(seq_id)} has {number_of_blocks(entries)}, "
        f"but its tokens need {needed}: the kernel writes beyond it",
    )


def too_long(command: Command, seq_id: int, entries: int, needed: int) -> Violation:
    """The sequence holds more than it needs."""
    return Violation(
        "ADM",
        Severity.LEAK,
        f"after {command} the table of {sequence_name(seq_id)} has {number_of_blocks(entries)}, "
        f"but its tokens need {needed}",
    )


def wrong_head(seq_id: int, given: Sequence[int], head: Sequence[int], eviction: str) -> Violation:
    """New blocks did not come from the head of the free queue."""
    return Violation(
        "ORD",
        Severity.ORDER,
        f"{sequence_name(seq_id)} was given the blocks {listed(given)}, but under {eviction} "
        f"the free queue begins with {listed(head)}",
        tuple(given),
    )


def hit_without_key(seq_id: int, block: int, entry: int) -> Violation:
    """A block is used as a hit that does not carry the key."""
    return Violation(
        "IDX",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"{sequence_name(seq_id)} uses block {block} as a cached block at entry {entry} of its "
        "table, but that block does not carry the key of this prefix",
        (block,),
    )


def too_many_cached(command: Command, reported: int, known: int) -> Violation:
    """More is reported as cached than is in the index."""
    return Violation(
        "IDX",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"{command} reports {reported} tokens as cached, but only {known} are in the index",
    )


def too_few_cached(command: Command, reported: int, known: int) -> Violation:
    """Less is found than is in the index."""
    return Violation(
        "I4",
        Severity.LOST_HIT,
        f"{command} reports {reported} tokens as cached, although {known} are in the index and "
        "could be used",
    )
