"""IDX: the prefix index and the blocks' own hashes agree, in both directions.

Every lookup answers with a block that was given that key and has not lost it; every block shows
the hash that it was given; what the profile says about duplicates holds. A stale entry is the
silent bug: a request reads a recycled block (nano-vllm#163). A block too few is a lost hit.

First the state of a pool, then the answers of pools and managers, then an index on its own, where
an entry without a block is a leak.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from poolproof.contract.commands import Command
from poolproof.contract.content import Key
from poolproof.contract.index_commands import IndexKey, index_key_text
from poolproof.contract.observation import (
    IndexLedger,
    IndexObservation,
    PoolLedger,
    PoolObservation,
)
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import listed
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import key_name, number_of_blocks, sequence_name

__all__ = [
    "answers_a_carrier",
    "answers_all_groups",
    "answers_contains",
    "answers_longest_prefix",
    "answers_pop",
    "cached_block_is_computed",
    "found_after_sightings",
    "hit_carries_key",
    "hits_in_all_groups",
    "index_answers_what_was_filed",
    "index_matches_hashes",
    "reports_no_more_than_indexed",
]

_MOST_NAMED = 6


def index_matches_hashes(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    """A violation of IDX in this state, or None."""
    return _lookups(seen, known) or _hashes(seen, known)


def _lookups(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    for key, block in (seen.lookups or {}).items():
        carriers = known.carriers.get(key, ())
        if block is None and carriers:
            return Violation(
                "IDX",
                Severity.LOST_HIT,
                f"lookup of {key_name(key)} finds nothing, although block {carriers[0]} carries it",
                tuple(carriers),
            )
        if block is not None and block not in carriers:
            carried = known.keys[block][0] if known.keys.get(block) else None
            carries = key_name(carried, key)
            return Violation(
                "IDX",
                Severity.WRONG_DATA_OF_ANOTHER,
                f"lookup of {key_name(key, carried)} answers with block {block}, which carries "
                f"{carries}: "
                "its KV was computed for something else",
                (block,),
            )
    return None


def _hashes(seen: PoolObservation, known: PoolLedger) -> Violation | None:
    for block, key in enumerate(seen.block_hashes or ()):
        keys = known.keys[block]
        expected = keys[0] if keys else None
        if key == expected or block == known.null_block:
            continue
        if key is None:
            return Violation(
                "IDX",
                Severity.LOST_HIT,
                f"block {block} shows no hash, although it was cached under {key_name(expected)}",
                (block,),
            )
        return Violation(
            "IDX",
            Severity.WRONG_DATA_OF_ANOTHER,
            f"block {block} shows {key_name(key, expected)}, but must carry "
            f"{key_name(expected, key)}",
            (block,),
        )
    return None


def answers_a_carrier(
    command: Command, answer: object, carriers: Sequence[int]
) -> Violation | None:
    """A violation of IDX in the answer to a lookup of a key with these carriers, or None."""
    if answer in carriers or (answer is None and not carriers):
        return None
    return Violation(
        "IDX",
        Severity.LOST_HIT if answer is None else Severity.WRONG_DATA_OF_ANOTHER,
        f"{command} answered {shown(answer)}, but "
        + (f"the key is carried by {listed(carriers)}" if carriers else "no block carries the key"),
    )


def answers_longest_prefix(
    command: Command,
    answer: object,
    keys: Sequence[Key],
    expected: int,
    carriers_of: Callable[[Key], Collection[int]],
) -> Violation | None:
    """A violation of IDX in the blocks that `acquire` answers for the first keys, or None.

    `expected` of the keys are cached, from the first on.
    """
    is_prefix = isinstance(answer, list | tuple) and len(answer) <= expected and all(
        block in carriers_of(key) for block, key in zip(answer, keys, strict=False)
    )  # fmt: skip
    if is_prefix and isinstance(answer, list | tuple) and len(answer) == expected:
        return None
    # What is found carries the right hashes, but there is more: only work is lost.
    is_lost = is_prefix or answer is None
    return Violation(
        "IDX",
        Severity.LOST_HIT if is_lost else Severity.WRONG_DATA_OF_ANOTHER,
        f"{command} answered {shown(answer)}; the longest cached prefix has "
        f"{number_of_blocks(expected)}, each of which must carry its hash",
    )


def hits_in_all_groups(command: Command, answer: Sequence[object]) -> Violation | None:
    """A violation of IDX in a lookup over groups that answers half a hit, or None.

    Each entry may be right, and who asked takes the list for a hit in every group.
    """
    if all(block is not None for block in answer):
        return None
    return Violation(
        "IDX",
        Severity.CRASH,
        f"{command} answered {shown(answer)}; it must answer None where a group has no block",
    )


def answers_all_groups(
    command: Command, answer: object, num_groups: int, *, hit: bool
) -> Violation | None:
    """A violation of IDX in the form of what a lookup over groups answers, or None."""
    is_full = isinstance(answer, list) and len(answer) == num_groups
    if is_full or (answer is None and not hit):
        return None
    wanted = "a block for each group, which all have one" if hit else "None"
    return Violation(
        "IDX",
        Severity.LOST_HIT if answer is None else Severity.CRASH,
        f"{command} answered {shown(answer)}; it must answer {wanted}",
    )


def hit_carries_key(
    seq_id: int, block: int, entry: int, carriers: Collection[int]
) -> Violation | None:
    """A violation of IDX in a block that a manager uses as a hit, or None."""
    if block in carriers:
        return None
    return Violation(
        "IDX",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"{sequence_name(seq_id)} uses block {block} as a cached block at entry {entry} of its "
        "table, but that block does not carry the key of this prefix",
        (block,),
    )


def reports_no_more_than_indexed(command: Command, reported: int, known: int) -> Violation | None:
    """A violation of IDX in the number of tokens that are reported as cached, or None."""
    if reported <= known:
        return None
    return Violation(
        "IDX",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"{command} reports {reported} tokens as cached, but only {known} are in the index",
    )


def found_after_sightings(command: Command, entry: int, seen: int, prior: int) -> Violation | None:
    """A violation of IDX in a hit on what an index should not have taken yet, or None.

    The content of the table's entry was `seen` so often at most, and `prior` sightings come before
    the one with which it is taken.
    """
    if seen > prior:
        return None
    times = "once" if seen == 1 else f"{seen} times"
    return Violation(
        "IDX",
        Severity.BOOKKEEPING,
        f"{command} finds the block at entry {entry} of its table, whose content was seen {times}: "
        f"with {prior} prior sightings the index had no key of it",
    )


def cached_block_is_computed(
    block: int, *, is_cached: bool, is_computed: bool, is_held: bool
) -> Violation | None:
    """A violation of IDX in what `is_cached` says of a block, or None.

    It is computed if it is full of computed tokens that the index must find.
    """
    if is_computed or not is_cached:
        return None
    held = "" if is_held else ", which nobody holds,"
    return Violation(
        "IDX",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"is_cached({block}) says that block {block}{held} can be found, but it is not "
        "full of computed tokens",
        (block,),
    )


def index_answers_what_was_filed(seen: IndexObservation, known: IndexLedger) -> Violation | None:
    """A violation of IDX in what was read of the index, or None."""
    return (
        _found(seen, known) or _members(seen, known) or _listed(seen, known) or _size(seen, known)
    )


def answers_pop(
    command: Command, key: IndexKey, block_id: int, answer: int | None, known: IndexLedger
) -> Violation | None:
    """A violation of IDX in the answer to a pop, or None; `known` is the index before it."""
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
        f"{command} answered block {answer} where {wanted} is right; the key was carried by "
        f"{carriers}",
        block_id,
    )


def answers_contains(
    command: Command, key: IndexKey, block_id: int, answer: bool, known: IndexLedger
) -> Violation | None:
    """A violation of IDX in the answer to a question of membership, or None."""
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


def _blocks(blocks: Sequence[int]) -> str:
    """The blocks by their ids, of many the first ones."""
    if not blocks:
        return "no block"
    first = ", ".join(map(str, blocks[:_MOST_NAMED]))
    if len(blocks) > _MOST_NAMED:
        return f"{len(blocks)} blocks ({first}, ...)"
    return f"block {first}" if len(blocks) == 1 else f"blocks {first}"
