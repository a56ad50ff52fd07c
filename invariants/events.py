"""EVT: the event stream, replayed as the profile says, gives the index and describes it truthfully.

`per-copy` replays a multiset keyed by hash and group, one stored and one removed event for each
physical copy; `per-hash` a set, first copy in, last copy out. A re-announcement is a type of its
own and changes nothing.

A router or a second tier that sees nothing but events hangs each hash under its parent, by tokens
and extra keys. Where a "stored" event tells these, they are those of the content that was cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from poolproof.contract.content import ContentKey, Key
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import listed
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import key_name

__all__ = [
    "events_give_index",
    "evicted_hashes_are_told",
    "is_list_of_events",
    "malformed_event",
    "recaching_removes_nothing",
    "stored_tells_content",
]


def events_give_index(replayed: Mapping[Key, int], expected: Mapping[Key, int]) -> Violation | None:
    """A violation of EVT between the replayed copies of each key and the index, or None."""
    for key in {**replayed, **expected}:
        got, wanted = replayed.get(key, 0), expected.get(key, 0)
        if got != wanted:
            return _violation(
                f"the event stream leaves {got} cop{'y' if got == 1 else 'ies'} of "
                f"{key_name(key)}, the index has {wanted}"
            )
    return None


def evicted_hashes_are_told(
    told: Sequence[object], lost: Sequence[Key], gone: Sequence[Key]
) -> Violation | None:
    """A violation of EVT in the hashes that an allocation says it evicted, or None.

    `lost` are those of the blocks that were taken; `gone` are those of them that no block has any
    more. A hash that another block still has may be told, or not.
    """
    known = set(lost)
    for key in told:
        if key not in known:
            return _violation(
                f"the allocation says that it evicted {shown(key)}, which none of its blocks had"
            )
    for key in gone:
        if key not in told:
            return _violation(
                f"the allocation evicted {key_name(key)}, and does not say so among the "
                f"{len(told)} hashes that it answered beside its blocks"
            )
    return None


def is_list_of_events(answer: object) -> Violation | None:
    """A violation of EVT in the form of what `take_events` answered, or None."""
    if isinstance(answer, list | tuple):
        return None
    return _violation(f"take_events() answered {shown(answer)}; it must answer a list of events")


def malformed_event(event: object) -> Violation:
    """The violation that something among the events is none."""
    return _violation(
        f"take_events() gave {shown(event)}; an event is a mapping with an entry "
        "'type', and for \"stored\" and \"removed\" with 'hashes', a list of hashes"
    )


def recaching_removes_nothing(events: Sequence[Mapping[str, Any]]) -> Violation | None:
    """A violation of EVT in events where blocks were cached again under the hashes they had.

    A hash that is taken away and given back at once leaves the index as it is; a second tier may
    drop the copy in between. To tell again what is stored does no harm: copies are counted
    elsewhere.
    """
    for event in events:
        if event["type"] == "removed":
            return _violation(
                f"an event tells that {' and '.join(map(key_name, event['hashes']))} was "
                f"{event['type']}, although each block was cached again under the one hash that "
                "it had"
            )
    return None


def stored_tells_content(
    event: Mapping[str, Any], hashes: Sequence[ContentKey], *, skips_blocks: bool
) -> Violation | None:
    """A violation of EVT in what a "stored" event tells beside its hashes, or None.

    `hashes` are the contents behind the event's hashes, at least one. Entries that do not stand
    in the event are not compared. With `skips_blocks`, blocks without a hash may lie among and
    behind those that have one.
    """
    return (
        _wrong_place(event, hashes[0], skips_blocks=skips_blocks)
        or _wrong_tokens(event, hashes, skips_blocks=skips_blocks)
        or _wrong_extra_keys(event, hashes)
    )


def _wrong_place(
    event: Mapping[str, Any], first: ContentKey, *, skips_blocks: bool
) -> Violation | None:
    """The first block begins where its parent ends, or whole skipped blocks later."""
    if "block_size" not in event:
        return None
    size = event["block_size"]
    if type(size) is not int or not 0 < size <= len(first.tokens):
        return _violation(f"an event stores {key_name(first)} for a block of {shown(size)} tokens")
    if "parent" not in event:
        return None
    begin, parent = len(first.tokens) - size, event["parent"]
    end = _end_of_parent(parent, first)
    if end is not None and begin >= end:
        skipped, rest = divmod(begin - end, size)
        if not rest and (skips_blocks or not skipped):
            return None
    named = "no parent" if parent is None else f"as parent {key_name(parent)}"
    return _violation(
        f"an event gives {key_name(first)} {named}, but its block of {size} tokens begins at "
        f"token {begin}"
    )


def _wrong_tokens(
    event: Mapping[str, Any], hashes: Sequence[ContentKey], *, skips_blocks: bool
) -> Violation | None:
    """The tokens go from the end of the parent to the end of the last hash."""
    begin = _end_of_parent(event.get("parent"), hashes[0])
    if "tokens" not in event or begin is None:
        return None
    told, real = list(event["tokens"]), list(hashes[-1].tokens[begin:])
    if told == real or (skips_blocks and told[: len(real)] == real):
        return None
    return _violation(
        f"an event that stores {key_name(hashes[-1])} tells the tokens {listed(told)} from "
        f"position {begin} on, which are {listed(real)}"
    )


def _end_of_parent(parent: object, first: ContentKey) -> int | None:
    """How many tokens the parent of `first` has; None where it is no beginning of it."""
    if parent is None:
        return 0
    if not isinstance(parent, ContentKey) or parent == first:
        return None
    length = len(parent.tokens)
    beginning = replace(
        first,
        tokens=first.tokens[:length],
        images=tuple(image for image in first.images if image[1] < length),
    )
    return length if parent == beginning else None


def _wrong_extra_keys(event: Mapping[str, Any], hashes: Sequence[ContentKey]) -> Violation | None:
    """Each block has the adapter, the images that begin in it, and the salt if it is the first."""
    if "extra_keys" not in event or "block_size" not in event:
        return None
    told, size = event["extra_keys"], event["block_size"]
    if len(told) != len(hashes):
        return _violation(
            f"an event stores {len(hashes)} hashes and tells the extra keys of {len(told)}"
        )
    for extras, key in zip(told, hashes, strict=True):
        begin = len(key.tokens) - size
        wanted: set[tuple[Any, ...]] = {
            ("image", *image) for image in key.images if image[1] >= begin
        }
        if key.lora is not None:
            wanted.add(("lora", key.lora[0]))
        if key.salt is not None and begin == 0:
            wanted.add(("salt", key.salt))
        # An image that begins in an earlier block may reach into this one.
        allowed = wanted | {("image", *image) for image in key.images}
        if not wanted <= set(extras) <= allowed:
            return _violation(
                f"an event stores {key_name(key)} with the extra keys {shown(list(extras))}; "
                f"its block of {size} tokens has {shown(sorted(wanted))}"
            )
    return None


def _violation(sentence: str) -> Violation:
    return Violation("EVT", Severity.EVENTS, sentence)
