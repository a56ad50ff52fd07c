"""DATA: nobody reads KV that was not computed for exactly its own prefix.

The prefix counts whole: tokens, parents, adapter, salt and images. The shadow memory sees the
misread; here it becomes the sentence that names the reader, the position, what should have been
there, what was, and whose it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import sequence_name

__all__ = ["copies_unwritten", "misreads"]


def misreads(
    reader: int,
    position: int,
    block: int,
    slot: int,
    *,
    wanted: str,
    found: str | None,
    writer: tuple[int, int] | None,
) -> Violation:
    """A sequence reads at a position what is not its own prefix's.

    `wanted` and `found` describe the prefixes, `writer` is the sequence whose forward pass wrote
    the slot and the number of the command that ran it.
    """
    where = f"{sequence_name(reader)} reads at position {position} (block {block}, slot {slot})"
    if found is None or writer is None:
        return Violation(
            "DATA", Severity.WRONG_DATA_OF_ONES_OWN,
            f"{where} KV that nobody has written; wanted {wanted}",
            (block,),
        )  # fmt: skip
    seq_id, command_number = writer
    if seq_id == reader:
        return Violation(
            "DATA", Severity.WRONG_DATA_OF_ONES_OWN,
            f"{where} KV of its own other tokens; wanted {wanted}, found {found}, written at "
            f"command {command_number}",
            (block,),
        )  # fmt: skip
    return Violation(
        "DATA", Severity.WRONG_DATA_OF_ANOTHER,
        f"{where} KV that was computed for {sequence_name(seq_id)}; wanted {wanted}, found {found}"
        f", written at command {command_number}",
        (block,),
    )  # fmt: skip


def copies_unwritten(pairs: Sequence[tuple[int, int]], source: int) -> Violation:
    """A block copy was ordered whose source nobody has written."""
    return Violation(
        "DATA",
        Severity.WRONG_DATA_OF_ONES_OWN,
        f"the copies {list(pairs)!r} were ordered, but nobody has written block {source}",
        (source,),
    )
