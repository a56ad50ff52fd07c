"""What each value of each row of a profile costs whoever states it, and the changes of one row.

Most rows say which of several right designs an engine has: stating another design is checked as
strictly as the first. Some values promise less: something is not asked, or not judged, any more.
`alternatives` lists those last, so that a search proposes them only where nothing stricter holds.
A row or value that stands in a profile and not here fails `tests/contract/test_profile_costs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile

__all__ = [
    "COSTS",
    "NUMBER",
    "Cost",
    "RowChange",
    "alternatives",
    "cost_of",
    "ladder",
    "with_changes",
]

Value = str | int | None

NUMBER = 0
"""Stands for every number that a row can have."""

_OF_POOLS_ALONE = frozenset({"hash_bytes", "recache", "repeats_in_free", "keys", "events"})
"""Rows that say nothing of a manager, although its profile has them."""

_OF_CALLS = frozenset({"sampled"})
"""Rows that say how a manager is called: another value is for another class, and never tried."""

_OF_GROUPS: Mapping[str, frozenset[str]] = {
    "window_blocks": frozenset({"sliding"}),
    "states": frozenset({"state"}),
    "state_blocks": frozenset({"state"}),
}
"""Rows that say nothing of a manager without a group of these kinds."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What is given up by stating a value, in one sentence without its full stop.

    `checks_less` says that something is not asked or not judged under it that is under others.
    """

    sentence: str
    checks_less: bool = False


def _less(sentence: str) -> Cost:
    return Cost(sentence, checks_less=True)


COSTS: Mapping[str, Mapping[Value, Cost]] = {
    "null_block": {
        None: Cost("every block is expected to be handed out, so an empty table entry has no name"),
        NUMBER: Cost("requests have one block less, and what becomes of that block is not judged"),
    },
    "eviction": {
        "lru": Cost("cached and uncached blocks wait equally long, so cached prefixes go early"),
        "unhashed-first": Cost("a block without a hash never waits, however late it was freed"),
        "unhashed-lifo": Cost(
            "a block without a hash never waits, and what was freed last goes first"
        ),
        "lifo": Cost("what was freed last is reused first, so fresh prefixes go before old ones"),
        "unspecified": _less("no order is checked: the most useful prefix may be evicted first"),
    },
    "duplicates": {
        "kept": Cost("several blocks may carry one hash and take up cache twice"),
        "first": Cost("a later block of the same content ends without a hash"),
        "last": Cost("the former block of the same content loses its hash to the later one"),
    },
    "recache": {
        "replace": Cost("another hash silently replaces the one that a block had"),
        "forbidden": _less("caching a block again is never tried: callers must see to it"),
    },
    "null_in_lists": {
        "misuse": Cost("callers must take the null block out of every list"),
        "ignored": Cost("a null block in a list passes, also where it is there by mistake"),
        "uncached": _less("caching the null block is never tried: callers must see to it"),
    },
    "repeats_in_free": {
        "allowed": Cost("one call may give back several references to a block"),
        "forbidden": _less("a block twice in one `free` is never tried: callers must see to it"),
    },
    "keys": {
        "block": Cost("parts of a block are never cached"),
        "partial": Cost("parts of a block can be found, so blocks carry several keys"),
        NUMBER: Cost("a hash covers further tokens, so a block is cached that much later"),
    },
    "retention": {
        "exact": Cost("the pool may not drop a cached block before its turn"),
        "while-held": Cost("what is cached is lost with its last owner: no later request hits it"),
        "may-drop": _less("a cached block that nobody holds may vanish: its lost hits pass"),
    },
    "events": {
        "none": _less("no events are checked: a reader of them may have another index"),
        "per-copy": Cost("a reader has to count the copies of a hash itself"),
        "per-hash": Cost("a reader never learns of further copies of a hash"),
    },
    "misuse": {
        "raises": Cost("each wrong call has to be noticed before anything changes"),
        "ignores": Cost("a caller's mistake does nothing, and nobody is told of it"),
        "undefined": _less("misuse is never tried: a caller's mistake may do any damage"),
    },
    "same_step_hit": {
        "forbidden": Cost("requests of one step do not share what that step computes"),
        "allowed": Cost("a request may read what the same step computes: the order in it matters"),
    },
    "hash_bytes": {
        "any": Cost("hashes of every length have to be taken"),
        NUMBER: Cost("hashes of any other length are never given: callers must keep to this one"),
    },
    "publishes": {
        "computed": Cost("a prefix cannot be shared before the step that computes it is over"),
        "scheduled": Cost("what is scheduled must be computed next: giving it up is not tried"),
        "prompts": Cost("generated tokens cannot be found until their sequence goes on or ends"),
        "finish": Cost("nobody shares the prefix of a sequence that still runs"),
        "never": _less("there is no prefix cache: no hit is allowed, and none is missed"),
    },
    "hits": {
        "exact": Cost("the longest cached prefix has to be found, always"),
        "sound": _less("missed hits pass: any part of a cached prefix may be computed again"),
    },
    "index": {
        "content": _less("a wrong key is seen when somebody reads through it, and not before"),
        "exact": Cost("keys may come at no other moment than the other rows say"),
    },
    "full_hit": {
        "recompute-token": Cost("the last token of a cached prompt is computed again"),
        "allowed": Cost("a whole prompt may be cached: the engine needs logits from elsewhere"),
    },
    "reserves": {
        "scheduled": Cost("a sequence may have to wait for blocks in the middle of its prompt"),
        "sequence": Cost("blocks are held for tokens that are scheduled much later"),
    },
    "admission": {
        "exact": Cost("nothing that fits may be put off"),
        "exact-at-admission": _less("growth that would fit may be refused, and that passes"),
        "sound": _less("requests and growth that would fit may be put off, and that passes"),
    },
    "never": {
        "told": Cost("what can never fit has to be told apart from what has to wait"),
        "untold": _less('"later" is right for what can never fit: the request waits for ever'),
    },
    "release_order": {
        "tail-first": Cost("the end of a sequence is evicted before its beginning"),
        "head-first": Cost("blocks go back from the first on, so under `lru` prefixes go early"),
        "unspecified": _less("the order in which blocks go back is not checked"),
    },
    "uncached_order": {
        "same": Cost("without a cache, too, blocks go back as they do with one"),
        "tail-first": Cost("without a cache the last block of a sequence goes back first"),
        "head-first": Cost("without a cache the first block of a sequence goes back first"),
        "unspecified": _less("without a cache the order in which blocks go back is not checked"),
    },
    "group_order": {
        "first-to-last": Cost("what the first groups hold is evicted before that of the others"),
        "last-to-first": Cost("what the last groups hold is evicted before that of the others"),
        "unspecified": _less("of several groups no order of the free blocks is checked"),
    },
    "frees": {
        "at-once": Cost("a block may be handed out again while its last step still runs"),
        "after-step": Cost("what is given back cannot be used until the next step is over"),
    },
    "finish_again": {
        "ignored": Cost("ending a sequence twice passes without a word"),
        "undefined": _less("ending a sequence twice is never tried: callers must see to it"),
    },
    "window_blocks": {
        "freed": Cost("a table grows with its sequence, null blocks in front"),
        "reused": _less(
            "the table is a ring: drafts are not tried, nor several tokens beyond the window"
        ),
    },
    "tables": {
        "append-only": Cost("two blocks of the same content stay where they are"),
        "merged": Cost("an entry may change under a running sequence: workers need to hear of it"),
    },
    "held_blocks": {
        "shared": Cost("who has the same prefix holds the same blocks: each has to be counted"),
        "exclusive": Cost("a prefix is computed again by each who wants it while it is in use"),
    },
    "keyed": {
        "full": Cost("blocks that no hit can reach are kept in the index as well"),
        "reachable": Cost("a block is not found where a hit over all groups cannot end"),
        "checkpoints": Cost("of windows and states only checkpoints are found"),
    },
    "states": {
        "every-block": Cost("a state is kept at the end of each block, and costs its memory"),
        "step-end": Cost("a step may not pass the end of the block in which it began"),
    },
    "collisions": {
        "checked": Cost("each hit is compared by its content"),
        "trusted": _less("two prompts with one hash read each other's data, and that passes"),
    },
    "sampled": {
        "with-append": Cost("what is published cannot depend on the token that follows"),
        "with-step": Cost("a sampled token is settled: nothing else may follow in its place"),
    },
    "watermark_blocks": {
        NUMBER: Cost("an admission that leaves fewer blocks free has to wait"),
    },
    "generation_tokens": {
        NUMBER: Cost("each sequence holds slots for so many tokens that it may never generate"),
    },
    "lookahead_tokens": {
        NUMBER: Cost("each sequence holds slots for this many further tokens"),
    },
    "proof_blocks": {
        NUMBER: Cost("so many cached blocks at the end of each hit are computed again"),
    },
    "prior_sightings": {
        NUMBER: Cost("a prefix is computed so many times more before anybody finds it"),
    },
    "host_blocks": {
        NUMBER: Cost("a sequence can be swapped out to no more than so many host blocks"),
    },
    "max_tokens": {
        NUMBER: Cost("no sequence is given more tokens: longer ones are never tried"),
    },
    "max_sequences": {
        NUMBER: _less("with so many sequences a further one may be put off, whatever is free"),
    },
    "checkpoint_tokens": {
        NUMBER: Cost("hits end at checkpoints this far apart, where no other is nearer"),
    },
    "hash_tokens": {
        NUMBER: Cost("a prompt is computed in one step more, so that its last state is kept"),
    },
    "state_blocks": {
        NUMBER: Cost("each sequence holds so many further blocks in each group of states"),
    },
    "groups": {
        NUMBER: Cost("the groups say what a layer reads: others describe another model"),
    },
}
"""By row and value. `groups` has one entry, for all that they can be."""

_TRIED_NUMBERS: Mapping[str, Sequence[int]] = {
    "null_block": (0,),
    "hash_bytes": (8, 16, 20, 32, 64),
    "watermark_blocks": (1, 2, 3, 4),
    "lookahead_tokens": (1, 2, 3, 4),
    "generation_tokens": (1, 2, 4, 8, 16),
    "proof_blocks": (1, 2),
    "prior_sightings": (1, 2, 3),
    "host_blocks": (1, 2, 3, 4, 5, 6, 7, 8),
}
"""The numbers that are tried; of other rows only the words are."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row of a profile with another value, and what that value costs (`Cost`)."""

    row: str
    value: Value
    costs: str
    checks_less: bool = False

    def __str__(self) -> str:
        return f"{self.row}={self.value}"


def cost_of(row: str, value: Value) -> Cost:
    """What stating that value costs; any number stands for all of them."""
    return COSTS[row][NUMBER if isinstance(value, int) else value]


def alternatives(
    profile: Profile,
    rows: Sequence[str] | None = None,
    numbers: Mapping[str, Sequence[int]] | None = None,
) -> tuple[RowChange, ...]:
    """Each change of one row of the profile that is worth trying; those that check less come last.

    `rows` are the only ones to change, if given; `numbers` are further numbers for some of them.
    """
    names = _rows_of(profile) if rows is None else rows
    found = [
        RowChange(row, value, cost.sentence, cost.checks_less)
        for row in names
        for value, cost in _values(row, (numbers or {}).get(row, ()))
        if value != getattr(profile, row)
    ]
    return tuple(sorted(found, key=lambda change: change.checks_less))


def ladder(profile: Profile, change: RowChange) -> tuple[RowChange, ...]:
    """The values of the change's row that come before it: those to be preferred if they hold."""
    changes = alternatives(profile, (change.row,))
    return changes[: changes.index(change)] if change in changes else ()


def _rows_of(profile: Profile) -> list[str]:
    rows = [row for row in COSTS if row != "groups" and hasattr(profile, row)]
    if not isinstance(profile, ManagerProfile):
        return rows
    kinds = {group.kind for group in profile.groups}
    return [
        row
        for row in rows
        if row not in _OF_POOLS_ALONE | _OF_CALLS
        and (row not in _OF_GROUPS or kinds & _OF_GROUPS[row])
    ]


def _values(row: str, numbers: Sequence[int]) -> Iterator[tuple[Value, Cost]]:
    for value, cost in COSTS[row].items():
        if isinstance(value, int):
            tried = dict.fromkeys((*_TRIED_NUMBERS.get(row, ()), *numbers))
            yield from ((number, cost) for number in tried)
        else:
            yield value, cost


ProfileT = TypeVar("ProfileT", bound=Profile)


def with_changes(profile: ProfileT, changes: Sequence[RowChange]) -> ProfileT:
    """The profile with these rows, which count as declared from then on."""
    values: dict[str, Any] = {change.row: change.value for change in changes}
    assumed = tuple(row for row in profile.assumed if row not in values)
    return replace(profile, **values, assumed=assumed)
