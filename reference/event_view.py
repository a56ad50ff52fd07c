"""What a router must believe of an engine that it knows by KV events alone, and what may not be.

A view follows the batches of one publisher and keeps which blocks are resident, by group, medium
and hash. What cannot be is a fault: a parent that is not there, a hash that stands for other
tokens, a removal of what was never stored. After a gap in the sequence numbers, and where the view
began in the middle, such things may have been told before: they are counted as `excused`, until all
is cleared or the engine restarts.

A hash that is stored while it is resident is a second copy, or the same one told again (vLLM does
both), and nothing says which. So each has a least and a greatest number of copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from poolproof.contract.kv_events import (
    AllBlocksCleared,
    BlockHash,
    BlockRemoved,
    BlockStored,
    EventBatch,
    KVEvent,
)
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import listed

__all__ = ["EventCounts", "EventFault", "EventView"]

_WINDOWS = ("sliding", "chunked", "mamba", "state")
_Place = tuple[int, str, BlockHash]
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class EventFault:
    """Something that an engine told and that cannot be; `kind` is one word for counting."""

    kind: str
    sequence: int
    sentence: str


@dataclass(slots=True)
class EventCounts:
    """What a view has seen."""

    batches: int = 0
    stored: int = 0
    removed: int = 0
    cleared: int = 0
    told_again: int = 0
    lost: int = 0
    restarts: int = 0
    repeated: int = 0
    excused: int = 0


@dataclass(slots=True)
class _Copies:
    """A hash that is resident: at least and at most so many copies."""

    least: int = 1
    most: int = 1


@dataclass(slots=True)
class EventView:
    """One publisher: `name` is what sentences call it.

    `num_blocks`, if it is known, bounds what may be resident on the device. `is_certain` says that
    everything was heard since nothing was resident.
    """

    name: str = "the engine"
    num_blocks: int | None = None
    counts: EventCounts = field(default_factory=EventCounts)
    is_certain: bool = True
    expected: int = 0
    _resident: dict[_Place, _Copies] = field(default_factory=dict)
    _media: set[str] = field(default_factory=lambda: {"GPU"})  # Each engine names its tiers itself.
    _meanings: dict[tuple[int, BlockHash], bytes] = field(default_factory=dict)
    _sizes: dict[int, set[int]] = field(default_factory=dict)
    _rooted: set[int] = field(default_factory=set)
    _windows: set[int] = field(default_factory=set)
    _num_on_device: int = 0
    _is_over: bool = False

    def apply(self, batch: EventBatch, *, is_replayed: bool = False) -> list[EventFault]:
        """Follow a batch; what in it cannot be.

        A batch of the live stream with a number below the expected one is of an engine that has
        restarted; a replayed one was heard before, and is passed over.
        """
        if batch.sequence < self.expected:
            if is_replayed:
                self.counts.repeated += 1
                return []
            self.restart()
        if batch.sequence > self.expected:
            if self.counts.batches or self.counts.restarts:
                self.lose(batch.sequence - self.expected)
            self.is_certain = False
        self.expected = batch.sequence + 1
        self.counts.batches += 1
        found = [fault for event in batch.events for fault in self._event(event, batch.sequence)]
        return [*found, *self._too_many(batch.sequence)]

    def restart(self) -> None:
        """The engine began anew: nothing is resident."""
        self.counts.restarts += 1
        self._resident.clear()
        self._forget()
        self.expected = 0

    def lose(self, num_batches: int) -> None:
        """So many batches were not heard: what is resident is not known any more."""
        self.counts.lost += num_batches
        self.is_certain = False

    @property
    def num_resident(self) -> int:
        """Blocks that a router believes to be resident, copies on other media included."""
        return sum(copies.most for copies in self._resident.values())

    def holds(self, block_hash: BlockHash, *, group: int = 0, medium: str = "GPU") -> bool | None:
        """Whether a block is resident; None where the events do not say."""
        copies = self._resident.get((group, medium, block_hash))
        if copies is None:
            return False if self.is_certain else None
        return True if copies.least and self.is_certain else None

    def _forget(self) -> None:
        """Nothing is on the device; whether other tiers were cleared too is not told."""
        self._resident = {
            place: _Copies(0, copies.most)
            for place, copies in self._resident.items()
            if place[1] != "GPU"
        }
        known = {(group, block_hash) for group, _, block_hash in self._resident}
        self._meanings = {key: said for key, said in self._meanings.items() if key in known}
        self._num_on_device = 0
        self.is_certain = True
        self._is_over = False

    def _event(self, event: KVEvent, sequence: int) -> Iterator[EventFault]:
        match event:
            case AllBlocksCleared():
                self.counts.cleared += 1
                self._forget()
            case BlockStored():
                self.counts.stored += len(event.hashes)
                yield from self._stored(event, sequence)
            case BlockRemoved():
                self.counts.removed += len(event.hashes)
                yield from self._removed(event, sequence)

    def _stored(self, event: BlockStored, sequence: int) -> Iterator[EventFault]:
        if event.kind is not None and any(word in event.kind for word in _WINDOWS):
            self._windows.add(event.group)
        if event.tokens:
            yield from self._wrong_size(event, sequence)
            yield from self._wrong_parent(event, sequence)
            yield from self._other_meaning(event, sequence)
        medium = event.medium or "GPU"
        self._media.add(medium)
        for block_hash in event.hashes:
            place = (event.group, medium, block_hash)
            copies = self._resident.get(place)
            if copies is None:
                self._resident[place] = _Copies()
                self._num_on_device += medium == "GPU"
            else:
                self.counts.told_again += 1
                copies.most += 1

    def _removed(self, event: BlockRemoved, sequence: int) -> Iterator[EventFault]:
        medium = event.medium or "GPU"
        for block_hash in event.hashes:
            place = (event.group, medium, block_hash)
            copies = self._resident.get(place)
            if copies is None:
                yield from self._fault(
                    "removed", sequence,
                    f"removes {_named(block_hash)} from {medium}, which is not stored there",
                )  # fmt: skip
                continue
            copies.most -= 1
            if copies.least:
                copies.least -= 1
                self._num_on_device -= medium == "GPU"
            if not copies.most:
                del self._resident[place]
                if not self._is_resident(event.group, block_hash):
                    self._meanings.pop((event.group, block_hash), None)

    def _is_resident(self, group: int, block_hash: BlockHash) -> bool:
        """Whether any tier may hold the block."""
        return any((group, medium, block_hash) in self._resident for medium in self._media)

    def _wrong_size(self, event: BlockStored, sequence: int) -> Iterator[EventFault]:
        size, count = event.block_size, len(event.hashes)
        if size < 1 or len(event.tokens) % size or len(event.tokens) < size * count:
            yield EventFault(
                "size",
                sequence,
                f"{self.name}, batch {sequence}: stores {count} block{'s' * (count != 1)} of "
                f"{size} tokens each, and tells {len(event.tokens)} tokens",
            )
            return
        self._sizes.setdefault(event.group, set()).add(size)
        if event.parent is None:
            self._rooted.add(event.group)

    def _wrong_parent(self, event: BlockStored, sequence: int) -> Iterator[EventFault]:
        if len(event.tokens) != event.block_size * len(event.hashes):
            # It skips blocks, so that parents may be skipped ones; so does one without any hash.
            self._windows.add(event.group)
        if event.parent is None or event.group in self._windows:
            return
        if event.group not in self._rooted or len(self._sizes.get(event.group, ())) > 1:
            return  # Keys within a block: its parent may be a boundary that has none.
        if not self._is_resident(event.group, event.parent):
            yield from self._fault(
                "parent", sequence,
                f"stores {_named(event.hashes[0])} behind "
                f"{_named(event.parent)}, which is not stored",
            )  # fmt: skip

    def _other_meaning(self, event: BlockStored, sequence: int) -> Iterator[EventFault]:
        """Each hash stands for its parent, its tokens and its extra keys, always the same."""
        size, count = event.block_size, len(event.hashes)
        if size < 1 or len(event.tokens) != size * count:
            return
        parent = event.parent
        for number, block_hash in enumerate(event.hashes):
            tokens = event.tokens[number * size : (number + 1) * size]
            extra = None if event.extra_keys is None else event.extra_keys[number : number + 1]
            said = repr((parent, tokens, event.lora, extra)).encode()
            meaning = blake2b(said, digest_size=_DIGEST_BYTES).digest()
            if self._meanings.setdefault((event.group, block_hash), meaning) != meaning:
                yield EventFault(
                    "meaning",
                    sequence,
                    f"{self.name}, batch {sequence}: {_named(block_hash)} is stored for the tokens "
                    f"{listed(tokens)} behind {_named(parent)}, and stands already for another "
                    "prefix",
                )
            parent = block_hash

    def _too_many(self, sequence: int) -> Iterator[EventFault]:
        if self.num_blocks is None or not self.is_certain:
            return
        least = self._num_on_device  # What is merely told again takes no block.
        is_over = least > self.num_blocks
        if is_over and not self._is_over:
            yield EventFault(
                "blocks",
                sequence,
                f"{self.name}, batch {sequence}: {least} blocks are stored and not removed, and "
                f"the pool has {self.num_blocks}",
            )
        self._is_over = is_over

    def _fault(self, kind: str, sequence: int, what: str) -> Iterator[EventFault]:
        """A fault, unless it may only seem so because something was not heard."""
        if not self.is_certain:
            self.counts.excused += 1
            return
        yield EventFault(kind, sequence, f"{self.name}, batch {sequence}: {what}")


def _named(block_hash: BlockHash | None) -> str:
    if isinstance(block_hash, bytes):
        return f"block {block_hash.hex()[:16]}"
    return "no block" if block_hash is None else f"block {shown(block_hash)}"
