"""DATA: nobody reads KV that was not computed for exactly its own prefix.

The prefix counts whole: tokens, parents, adapter, salt and images. The shadow memory sees the
misread; here it becomes the sentence that names the reader, the position, what should have been
there, what was, and whose it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.prefix_words import Prefix
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import copy_list, number_of_blocks, sequence_name

__all__ = [
    "copies_what_was_written",
    "reads_own_prefix",
    "reads_within_table",
    "step_reads_own_prefix",
]


def reads_own_prefix(
    reader: int,
    position: int,
    block: int,
    slot: int,
    *,
    wanted: Prefix,
    found: Prefix | None,
    writer: tuple[int, int] | None,
    what: str = "KV",
    group: int | None = None,
) -> Violation | None:
    """A violation of DATA in what a sequence reads at a position, or None.

    `writer` is the sequence whose forward pass wrote the slot and the number of the command that
    ran it; both it and `found` are None where nobody has. `what` is read: KV, or a recurrent state.
    `group` is named where there are several.
    """
    if found == wanted and writer is not None:
        return None
    named = "" if group is None else f"group {group}, "
    where = (
        f"{sequence_name(reader)} reads at position {position} ({named}block {block}, slot {slot})"
    )
    if found is None or writer is None:
        return Violation(
            "DATA", Severity.WRONG_DATA_OF_ONES_OWN,
            f"{where} {what} that nobody has written; wanted <{wanted.words()}>",
            (block,),
        )  # fmt: skip
    seq_id, command_number = writer
    is_own = seq_id == reader
    whose = "it computed itself for another prefix" if is_own else (
        f"was computed for {sequence_name(seq_id)}"
    )  # fmt: skip
    difference = wanted.difference_from(found)
    return Violation(
        "DATA",
        Severity.WRONG_DATA_OF_ONES_OWN if is_own else Severity.WRONG_DATA_OF_ANOTHER,
        f"{where} {what} that {whose}; wanted <{wanted.words()}>, found <{found.words()}>, written "
        f"at command {command_number}" + (f": {difference}" if difference else ""),
        (block,),
    )


def step_reads_own_prefix(sentence: str, block: int | None, *, is_own: bool) -> Violation:
    """The violation of DATA that a step reads what was not computed for the reader's own prefix.

    `is_own` says whether the reader itself computed what it finds, for another prefix of its own.
    What nobody has computed is what some request left there long ago.
    """
    severity = Severity.WRONG_DATA_OF_ONES_OWN if is_own else Severity.WRONG_DATA_OF_ANOTHER
    return Violation("DATA", severity, sentence, () if block is None else (block,))


def copies_what_was_written(
    pairs: Sequence[tuple[int, int]], slots_of: Sequence[Sequence[object]]
) -> Violation | None:
    """A violation of DATA in ordered copies whose source nobody has written, or None.

    A slot is None where nobody has written it.
    """
    for source, _ in pairs:
        if all(slot is None for slot in slots_of[source]):
            return Violation(
                "DATA",
                Severity.WRONG_DATA_OF_ONES_OWN,
                f"the copies {copy_list(pairs)} were ordered, but nobody has written block "
                f"{source}",
                (source,),
            )
    return None


def reads_within_table(reader: int, last: int, entries: int, size: int) -> Violation | None:
    """A violation of DATA where a sequence reads up to a position that its table lacks, or None.

    `last` is the last position that is read, -1 for none; each of the `entries` has `size` slots.
    """
    if last < entries * size:
        return None
    return Violation(
        "DATA",
        Severity.WRONG_DATA_OF_ONES_OWN,
        f"{sequence_name(reader)} reads up to position {last} beyond its table, which has "
        f"{number_of_blocks(entries)} of {size}: what stands there is not its own",
    )
