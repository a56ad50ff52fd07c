"""The abstract state of a manager: what a campaign counts as new. Their number is not known.

For each sequence: where it is, whether it is loading or over, how many blocks it holds (up to
three) and whether it shares some, whether it ends with a block, one before or elsewhere, whether
all of it is computed, whether something is scheduled or drafted, whether it was forked; equal ones
count once. For the pool: how many blocks are free and how many of those are cached (none, one,
more, all), whether some are leaving, whether caching is on. Sequences and blocks have no names
here, and tokens are left out: equal prefixes show in what is shared and cached. Finer states would
be endless, and coarser ones would tell a campaign nothing.
"""

from __future__ import annotations

from poolproof.fuzz.state_numbers import number_of
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["manager_state"]

_PLACES = {"device": 0, "host": 1, "nowhere": 2}
_MOST_BLOCKS = 3


def manager_state(model: SequenceModel) -> int:
    """The number of the abstract state that a manager's model is in."""
    pool = model.pool
    free = pool.free
    cached = sum(1 for block in free if pool.keys[block])
    usable = pool.num_blocks - (pool.null_block is not None)
    head = bytes((
        _amount(len(free), usable),
        _amount(cached, len(free)),
        bool(model.leaving),
        model.enable_caching,
    ))  # fmt: skip
    return number_of(head + b"".join(sorted({_part(model, s) for s in model.sequences.values()})))


def _amount(number: int, most: int) -> int:
    """None, one, more, or all that there are."""
    return 3 if number == most else min(number, 2)


def _part(model: SequenceModel, sequence: SequenceState) -> bytes:
    size, length = model.block_size, sequence.num_tokens
    held = [block for table in sequence.tables for block in table]
    is_shared = False
    if sequence.place == "device":
        null, holders = model.pool.null_block, model.pool.holders
        is_shared = any(block != null and len(holders[block]) > 1 for block in held)
    beyond = length % size
    flags = (
        sequence.loading > 0,
        sequence.ended,
        sequence.family != sequence.seq_id,
        is_shared,
        sequence.num_computed < length,
        sequence.num_scheduled > 0,
        sequence.num_drafts > 0,
    )
    return bytes((
        _PLACES[sequence.place],
        min(len(held), _MOST_BLOCKS),
        0 if beyond == 0 else 2 if beyond == size - 1 else 1,
        sum(flag << place for place, flag in enumerate(flags)),
    ))  # fmt: skip
