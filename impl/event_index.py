"""An index of which engine has which prefix, fed by KV events alone: what a router asks.

Four rules keep it right.

* An engine is known by itself: what one removes, another one may still have.
* A block is known by its hash, and found by its parent, its tokens, its adapter and its salt:
  tokens alone say nothing about what came before them.
* Blocks are counted by copies and by medium: the last copy that goes takes the block along. What is
  behind it stays, and counts again when the block comes back.
* What was not heard is not known. After a gap the lost batches are asked for; if they do not come,
  nothing of that engine is believed until all was cleared, or it has restarted.

Not covered: blocks within blocks, and how old a router's answer may be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

__all__ = ["EventIndex", "KnownEngine"]

Hash = Any
Meaning = tuple[Hash | None, tuple[int, ...], str | None, str | None]
"""What a hash stands for: its parent, its tokens, the adapter and the salt."""


@dataclass(slots=True)
class KnownEngine:
    """What is known of one engine.

    `copies` counts each resident (hash, medium), `media` are those that it has named, `hashes_of`
    finds a hash by what it stands for, `meanings` is the way back. In `gap` stands the first batch
    that is missing, until it comes.
    """

    expected: int = 0
    is_known: bool = True
    gap: int | None = None
    copies: Counter[tuple[Hash, str]] = field(default_factory=Counter)
    media: set[str] = field(default_factory=set)
    hashes_of: dict[Meaning, Hash] = field(default_factory=dict)
    meanings: dict[Hash, Meaning] = field(default_factory=dict)

    def forget(self) -> None:
        """Nothing is resident, and that is known."""
        self.copies.clear()
        self.hashes_of.clear()
        self.meanings.clear()
        self.is_known = True


class EventIndex:
    """An index over blocks of `block_size` tokens, for any number of engines."""

    profile: ClassVar[dict[str, Any]] = {"media": ["GPU"]}

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.media: tuple[str, ...] = tuple(self.profile["media"])
        self.engines: dict[str, KnownEngine] = {}

    def apply(self, batch: Mapping[str, Any], /) -> int | None:
        """Follow a batch; the number of the first lost one, if any is to be sent again."""
        engine = self.engines.setdefault(batch["engine"], KnownEngine())
        sequence = batch["sequence"]
        if sequence < engine.expected:
            if batch["replayed"]:
                return None  # heard before
            self.restarted(engine)
        if sequence > engine.expected:
            return self.missed(engine, batch)
        self.follow(engine, batch)
        return None

    def missed(self, engine: KnownEngine, batch: Mapping[str, Any]) -> int | None:
        """Batches before this one are missing: they are asked for once, and this one with them."""
        if not batch["replayed"] and engine.gap != engine.expected:
            engine.gap = engine.expected
            return engine.expected
        # They did not come, or the engine itself has them no more.
        engine.forget()
        engine.is_known = False
        self.follow(engine, batch)
        return None

    def restarted(self, engine: KnownEngine) -> None:
        """An engine began anew."""
        engine.forget()
        engine.expected = 0
        engine.gap = None

    def follow(self, engine: KnownEngine, batch: Mapping[str, Any]) -> None:
        """Take over what a batch tells."""
        engine.expected = batch["sequence"] + 1
        engine.gap = None
        for event in batch["events"]:
            if event["type"] == "cleared":
                engine.forget()
            elif event["type"] == "stored":
                self.stored(engine, event)
            else:
                self.removed(engine, event)

    def stored(self, engine: KnownEngine, event: Mapping[str, Any]) -> None:
        """Blocks can be found from now on."""
        parent, size = event["parent"], self.block_size
        engine.media.add(event["medium"])
        for number, block_hash in enumerate(event["hashes"]):
            engine.copies[block_hash, event["medium"]] += 1
            tokens = tuple(event["tokens"][number * size : (number + 1) * size])
            if tokens:  # other tiers may tell hashes alone
                meaning = (parent, tokens, event["lora"], event["salt"])
                engine.hashes_of[meaning] = block_hash
                engine.meanings[block_hash] = meaning
            parent = block_hash

    def removed(self, engine: KnownEngine, event: Mapping[str, Any]) -> None:
        """One copy of each block is gone."""
        for block_hash in event["hashes"]:
            place = (block_hash, event["medium"])
            engine.copies[place] -= 1
            if engine.copies[place] <= 0:
                del engine.copies[place]
            if not self.is_anywhere(engine, block_hash):
                meaning = engine.meanings.pop(block_hash, None)
                if meaning is not None:
                    engine.hashes_of.pop(meaning, None)

    @staticmethod
    def is_anywhere(engine: KnownEngine, block_hash: Hash) -> bool:
        """Whether any medium has the block."""
        return any((block_hash, medium) in engine.copies for medium in engine.media)

    def lookup(
        self, tokens: Sequence[int], *, lora: str | None = None, salt: str | None = None
    ) -> dict[str, int]:
        """For each engine, how many blocks from the beginning of the tokens it has."""
        return {
            name: self.length(engine, tokens, lora, salt)
            for name, engine in self.engines.items()
            if engine.is_known and engine.gap is None
        }

    def length(
        self, engine: KnownEngine, tokens: Sequence[int], lora: str | None, salt: str | None
    ) -> int:
        """How many blocks from the beginning an engine has."""
        size, parent, count = self.block_size, None, 0
        for begin in range(0, len(tokens) - size + 1, size):
            block = tuple(tokens[begin : begin + size])
            block_hash = engine.hashes_of.get((parent, block, lora, salt))
            if block_hash is None or not self.is_resident(engine, block_hash):
                break
            parent, count = block_hash, count + 1
        return count

    def is_resident(self, engine: KnownEngine, block_hash: Hash) -> bool:
        """Whether one of the media that count has the block."""
        return any((block_hash, medium) in engine.copies for medium in self.media)
