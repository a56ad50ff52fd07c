"""IDX at index level: an index answers the blocks that were filed under a key, and no others.

A block too many is the bad direction: somebody reads what was computed for another prefix. A block
too few is a lost hit, and an entry without a block a leak.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.commands import Command
from poolproof.contract.index_commands import IndexKey, index_key_text
from poolproof.contract.observation import IndexLedger, IndexObservation
from poolproof.contract.violation import Severity, Violation

__all__ = ["index_answers_what_was_filed", "wrong_answer_to_contains", "wrong_answer_to_pop"]

_MOST_NAMED = 6


def index_answers_what_was_filed(seen: IndexObservation, known: IndexLedger) -> Violation | None:
    """A violation of IDX in what was read of the index, or None."""
    return (
        _found(seen, known) or _members(seen, known) or _listed(seen, known) or _size(seen, known)
    )


def wrong_answer_to_pop(
    command: Command, key: IndexKey, block_id: int, answer: int | None, known: IndexLedger
) -> Violation | None:
    """What the answer to a pop says wrongly; `known` is the index as it was before."""
    carried = block_id in known.carriers.get(key, ())
    if answer == (block_id if carried else None):
        return None
    carriers = _carriers(known, key)
    if carried and answer is None:
        return _idx(
            Severity.LOST_HIT,
            f"{command} answered None, although block {block_id} carries the key: whoever asked "
            "takes the block for one that was not filed",
            block_id,
        )
    wanted = f"block {block_id}" if carried else "None"
    return _idx(
        Severity.WRONG_DATA_OF_ANOTHER,
        f"{command} answered {_block(answer)} where {wanted} is right; the key was carried by "
        f"{carriers}",
        block_id,
    )


def wrong_answer_to_contains(
    command: Command, key: IndexKey, block_id: int, answer: bool, known: IndexLedger
) -> Violation | None:
    """What the answer to a question of membership says wrongly."""
    carried = block_id in known.carriers.get(key, ())
    if answer == carried:
        return None
    severity = Severity.LOST_HIT if carried else Severity.WRONG_DATA_OF_ANOTHER
    return _idx(
        severity,
        f"{command} answered {answer}, but the key is carried by {_carriers(known, key)}",
        block_id,
    )


def _found(seen: IndexObservation, known: IndexLedger) -> Violation | None:
    for key, block in seen.found.items():
        carriers = known.carriers.get(key, ())
        if block is None and carriers:
            return _idx(
                Severity.LOST_HIT,
                f"get({index_key_text(key)}) finds nothing, although the key is carried by "
                f"{_carriers(known, key)}",
                *carriers,
            )
        if block is not None and block not in carriers:
            return _idx(
                Severity.WRONG_DATA_OF_ANOTHER,
                f"get({index_key_text(key)}) answers block {block}, but the key is carried by "
                f"{_carriers(known, key)}: what is in the block was computed for something else",
                block,
            )
    return None


def _members(seen: IndexObservation, known: IndexLedger) -> Violation | None:
    for (key, block), answer in seen.members.items():
        carried = block in known.carriers.get(key, ())
        if answer != carried:
            severity = Severity.LOST_HIT if carried else Severity.WRONG_DATA_OF_ANOTHER
            return _idx(
                severity,
                f"contains({index_key_text(key)}, {block}) is {answer}, but the key is carried by "
                f"{_carriers(known, key)}",
                block,
            )
    return None


def _listed(seen: IndexObservation, known: IndexLedger) -> Violation | None:
    for key, blocks in seen.listed.items():
        carriers = known.carriers.get(key, ())
        if sorted(blocks) == sorted(carriers):
            continue
        too_many = len(blocks) > len(set(blocks)) or not set(blocks) <= set(carriers)
        return _idx(
            Severity.WRONG_DATA_OF_ANOTHER if too_many else Severity.LOST_HIT,
            f"carriers({index_key_text(key)}) lists {_blocks(blocks)}, but the key is carried by "
            f"{_carriers(known, key)}",
            *(block for block in blocks if block not in carriers),
        )
    return None


def _size(seen: IndexObservation, known: IndexLedger) -> Violation | None:
    if seen.num_keys is None or seen.num_keys == len(known.carriers):
        return None
    severity = Severity.LEAK if seen.num_keys > len(known.carriers) else Severity.LOST_HIT
    return _idx(
        severity,
        f"num_keys() is {seen.num_keys}, but blocks carry {len(known.carriers)} different keys",
    )


def _idx(severity: Severity, sentence: str, *blocks: int) -> Violation:
    return Violation("IDX", severity, sentence, blocks[:_MOST_NAMED])


def _carriers(known: IndexLedger, key: IndexKey) -> str:
    return _blocks(tuple(known.carriers.get(key, ())))


def _block(answer: object) -> str:
    return "None" if answer is None else f"block {answer}"


def _blocks(blocks: Sequence[int]) -> str:
    """The blocks by their ids, of many the first ones."""
    if not blocks:
        return "no block"
    shown = ", ".join(map(str, blocks[:_MOST_NAMED]))
    if len(blocks) > _MOST_NAMED:
        return f"{len(blocks)} blocks ({shown}, ...)"
    return f"block {shown}" if len(blocks) == 1 else f"blocks {shown}"
