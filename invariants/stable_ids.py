"""I2: block ids are stable; nothing that others do takes a held block away.

An allocation hands out only free blocks. Blocks in a sequence's table stay there; new ones were
free. The harness says which changes of a table are right (a window that slid on, a copy on write);
the predicates here say that nothing else may change.

A list belongs to its caller from the moment it is returned: a server writes it into a block table
and reads that for as long as the request lives. An id is an integer. Another instance is nobody's
business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.observation import PoolLedger
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import listed
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import copy_list, number_of_blocks, owners, sequence_name

__all__ = [
    "answered_list_changed",
    "copied_elsewhere",
    "copies_name_blocks",
    "hands_out_free_blocks",
    "hit_was_free",
    "keeps_answered_list",
    "new_entries_were_free",
    "no_plain_id",
    "remaps_each_block",
    "remaps_to_carrier",
    "still_read",
    "table_names_blocks",
    "table_stays",
    "unchanged_by_neighbour",
    "whole_beside_another",
    "whole_when_idle",
    "worker_table_suffices",
]


def hands_out_free_blocks(
    handed_out: Sequence[object], num_blocks: int, known: PoolLedger
) -> Violation | None:
    """A violation of I2 in the ids that an allocation answered with, or None.

    `known` is the ledger from before the allocation.
    """
    seen: set[int] = set()
    for block in handed_out:
        if not isinstance(block, int) or isinstance(block, bool) or not 0 <= block < num_blocks:
            return Violation(
                "I2",
                Severity.CRASH,
                f"allocate handed out {shown(block)}, which is no block (ids run from 0 to "
                f"{num_blocks - 1})",
            )
        if block == known.null_block:
            return Violation(
                "I2",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"allocate handed out the null block {block}, which every table may point to",
                (block,),
            )
        if block in seen:
            return Violation(
                "I2",
                Severity.WRONG_DATA_OF_ONES_OWN,
                f"allocate handed out block {block} twice in one answer",
                (block,),
            )
        if known.holders[block]:
            return Violation(
                "I2",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"allocate handed out block {block}, which is still held by "
                f"{owners(known, block)}: two owners now write to it",
                (block,),
            )
        seen.add(block)
    return None


def remaps_each_block(command: Command, count: int, answer: Sequence[object]) -> Violation | None:
    """A violation of I2 in the length of what `cache` of `count` blocks answered, or None."""
    if len(answer) == count:
        return None
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ONES_OWN,
        f"{command} must answer one block for each of {count}, but answered {shown(answer)}",
    )


def remaps_to_carrier(
    command: Command, old: int, new: object, carriers: Collection[object]
) -> Violation | None:
    """A violation of I2 where `cache` puts block `new` in the place of `old`, or None.

    `carriers` are the blocks that carry the hash.
    """
    if new in carriers:
        return None
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"{command} remapped block {old} to {shown(new)}, which does not carry that hash",
    )


def table_names_blocks(seq_id: int, table: Sequence[int], num_blocks: int) -> Violation | None:
    """A violation of I2 in a table with an entry that is no block, or None."""
    if not table or (min(table) >= 0 and max(table) < num_blocks):
        return None
    wrong = next(block for block in table if not 0 <= block < num_blocks)
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"the table of {sequence_name(seq_id)} holds {wrong}, which is no block (ids run "
        f"from 0 to {num_blocks - 1}): the kernel reads outside of the cache",
    )


def new_entries_were_free(
    seq_id: int,
    new: Sequence[int],
    free: Collection[int],
    holders_of: Callable[[int], Sequence[int]],
    hits: Collection[int] = (),
) -> Violation | None:
    """A violation of I2 in the blocks that came into a sequence's tables, or None.

    Each was `free` before and comes once; none is a block that the same command found cached.
    """
    seen = set(hits)
    for block in new:
        if block in seen:
            return _was_held(seq_id, block, [seq_id])
        if block not in free:
            return _was_held(seq_id, block, holders_of(block))
        seen.add(block)
    return None


def hit_was_free(seq_id: int, block: int, entry: int, holders: Sequence[int]) -> Violation | None:
    """A violation of I2 in a block that a manager uses as a hit, or None.

    That is where blocks are exclusive: nobody else may hold it.
    """
    if not holders:
        return None
    names = " and ".join(sequence_name(holder) for holder in dict.fromkeys(holders))
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"{sequence_name(seq_id)} uses block {block} as a cached block at entry {entry} of its "
        f"table, which is still held by {names}: held blocks are exclusive, and each of them may "
        "write to it",
        (block,),
    )


def _was_held(seq_id: int, block: int, holders: Collection[int]) -> Violation:
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


def table_stays(
    seq_id: int, was: Sequence[int], now: Sequence[int], why: str = "", group: int | None = None
) -> Violation | None:
    """A violation of I2 in a table that is not what it was, or None.

    `why` says what is wrong with the change. The cache group is named where there are several.
    """
    if now == was:
        return None
    named = "" if group is None else f" in group {group}"
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"the table of {sequence_name(seq_id)}{named} was {listed(was)} and is {listed(now)} now"
        + (f": {why}" if why else ""),
        tuple(block for block in now if block not in was),
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


def copies_name_blocks(
    pairs: Sequence[tuple[int, int]], num_sources: int, num_targets: int
) -> Violation | None:
    """A violation of I2 in ordered copies, each a source and a target, or None."""
    for source, target in pairs:
        for what, block, count in (
            ("source", source, num_sources),
            ("target", target, num_targets),
        ):
            if not 0 <= block < count:
                return Violation(
                    "I2",
                    Severity.WRONG_DATA_OF_ANOTHER,
                    f"the copies {copy_list(pairs)} were ordered, but their {what} "
                    f"{block} is none of {number_of_blocks(count)}",
                )
    return None


def worker_table_suffices(
    seq_id: int, group: int, table: Sequence[int], *, num_blocks: int, needed: int
) -> Violation | None:
    """A violation of I2 in the table that a worker makes from what it is told, or None."""
    outside = [block for block in table if not 0 <= block < num_blocks]
    if outside:
        what = f"holds {outside[0]}, which is no block"
    elif len(table) < needed:
        what = f"has {number_of_blocks(len(table))}, but its tokens need {needed}"
    else:
        return None
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"the table of {sequence_name(seq_id)} in group {group} that a worker makes from "
        f"take_table_update() {what}",
    )


def keeps_answered_list(
    answered: str, was: Sequence[object], now: Sequence[object]
) -> Violation | None:
    """A violation of I2 where the list that a call `answered` with, in words, changed later."""
    if len(was) == len(now) and all(
        item is before or not item != before  # noqa: SIM202 - `==` may say anything at all
        for item, before in zip(now, was, strict=True)
    ):
        return None
    return answered_list_changed(answered, shown(was), shown(now))


def answered_list_changed(answered: str, was: str, now: str) -> Violation:
    """The same violation as an adapter tells it, which kept the list itself, in words."""
    return Violation(
        "I2",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"the list that {answered} answered was {was} and is {now} now: it belongs to its caller, "
        "who reads its block table from it; the pool must keep a copy of its own",
    )


def no_plain_id(answered: str, shown: str, why: str) -> Violation:
    """The violation that what a call `answered` is no integer, although it may compare equal."""
    return Violation(
        "I2", Severity.CRASH, f"{answered} answered {shown}, {why}; an id is an integer"
    )


def whole_beside_another(found: Violation | None) -> Violation | None:
    """A violation that an instance broke which nobody called, of what is wrong in it, or None."""
    return found and replace(
        found,
        sentence=f"two instances share state: one that nobody called changed with the other's "
        f"calls; of the idle one, {found.sentence}",
    )


def whole_when_idle(found: Violation | None) -> Violation | None:
    """A violation in an instance that only held two blocks and cached one of them, or None."""
    return found and replace(
        found,
        sentence=f"in a second pool, where two blocks were allocated and one was cached: "
        f"{found.sentence}",
    )


def unchanged_by_neighbour(found: Violation | None) -> Violation | None:
    """A violation in an instance that was whole until another was built and used, or None."""
    return found and replace(
        found,
        sentence=f"two instances share state: building and using another one changed this one; "
        f"{found.sentence}",
    )
