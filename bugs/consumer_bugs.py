"""Consumers of KV events with one mistake each, and right ones that only look wrong.

Each is the clean index with one method replaced. `kind` is how the mistake shows: an engine is said
to have blocks that it has not ("not-resident"), or fewer than it has ("lost-hit").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from poolproof.impl.event_index import EventIndex, KnownEngine

__all__ = ["CONSUMER_BUGS", "CONSUMER_ODDITIES", "ConsumerBug"]

_Event = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ConsumerBug:
    """A planted mistake: what is wrong, which public thread tells of it, how it may show first."""

    consumer: type[EventIndex]
    what: str
    thread: str
    kinds: tuple[str, ...]


class DeafToClears(EventIndex):
    """A cleared cache is only logged."""

    def follow(self, engine: KnownEngine, batch: Mapping[str, Any]) -> None:
        heard = [event for event in batch["events"] if event["type"] != "cleared"]
        super().follow(engine, {**batch, "events": heard})


class BlindToParents(EventIndex):
    """A block is found by its own tokens."""

    def stored(self, engine: KnownEngine, event: _Event) -> None:
        for number, block_hash in enumerate(event["hashes"]):
            size = self.block_size
            tokens = event["tokens"][number * size : (number + 1) * size]
            one = {**event, "hashes": [block_hash], "tokens": tokens, "parent": None}
            super().stored(engine, one)

    def length(
        self, engine: KnownEngine, tokens: Sequence[int], lora: str | None, salt: str | None
    ) -> int:
        size, count = self.block_size, 0
        for begin in range(0, len(tokens) - size + 1, size):
            found = engine.hashes_of.get((None, tuple(tokens[begin : begin + size]), lora, salt))
            if found is None or not self.is_resident(engine, found):
                break
            count += 1
        return count


class OrphansAreRoots(EventIndex):
    """A block whose parent is not known is hung under the root."""

    def stored(self, engine: KnownEngine, event: _Event) -> None:
        parent = event["parent"] if event["parent"] in engine.meanings else None
        super().stored(engine, {**event, "parent": parent})


class SiblingsOfOneEvent(EventIndex):
    """All blocks of an event get the event's parent."""

    def stored(self, engine: KnownEngine, event: _Event) -> None:
        size = self.block_size
        for number, block_hash in enumerate(event["hashes"]):
            tokens = event["tokens"][number * size : (number + 1) * size]
            super().stored(engine, {**event, "hashes": [block_hash], "tokens": tokens})


class OneCopyIsAll(EventIndex):
    """The first copy that goes takes the block along."""

    def removed(self, engine: KnownEngine, event: _Event) -> None:
        for block_hash in event["hashes"]:
            place = (block_hash, event["medium"])
            engine.copies[place] = min(engine.copies[place], 1)
        super().removed(engine, event)


class CopiesNeverEnd(EventIndex):
    """A removal takes every second copy for told again, and is then not heard."""

    def removed(self, engine: KnownEngine, event: _Event) -> None:
        for block_hash in event["hashes"]:
            if engine.copies[block_hash, event["medium"]] != 2:
                super().removed(engine, {**event, "hashes": [block_hash]})


class ReplaysTwice(EventIndex):
    """A batch that is sent again is applied again."""

    def apply(self, batch: Mapping[str, Any], /) -> int | None:
        engine = self.engines.setdefault(batch["engine"], KnownEngine())
        if batch["replayed"] and batch["sequence"] < engine.expected:
            expected = engine.expected
            self.follow(engine, batch)
            engine.expected = expected
            return None
        return super().apply(batch)


class EveryMediumIsTheDevice(EventIndex):
    """Where a block lies is not looked at."""

    def stored(self, engine: KnownEngine, event: _Event) -> None:
        super().stored(engine, {**event, "medium": "GPU"})

    def removed(self, engine: KnownEngine, event: _Event) -> None:
        super().removed(engine, {**event, "medium": "GPU"})


class AnyMediumGoes(EventIndex):
    """A removal from one medium removes from all."""

    def removed(self, engine: KnownEngine, event: _Event) -> None:
        for medium in ("GPU", "CPU"):
            super().removed(engine, {**event, "medium": medium})


class OneForAllEngines(EventIndex):
    """What one engine removes is removed for all of them."""

    def removed(self, engine: KnownEngine, event: _Event) -> None:
        del engine
        for other in self.engines.values():
            super().removed(other, event)


class SharedByAllEngines(EventIndex):
    """Blocks are kept by hash alone: who has one has all that anybody has told."""

    def length(
        self, engine: KnownEngine, tokens: Sequence[int], lora: str | None, salt: str | None
    ) -> int:
        length_of = super().length
        lengths = [length_of(each, tokens, lora, salt) for each in self.engines.values()]
        return max(lengths) if engine.copies else 0


class DeafToRestarts(EventIndex):
    """Numbers that begin again are taken for batches that had come."""

    def restarted(self, engine: KnownEngine) -> None:
        engine.expected = 0
        engine.gap = None


class DeafToGaps(EventIndex):
    """A gap in the numbers is passed over."""

    def missed(self, engine: KnownEngine, batch: Mapping[str, Any]) -> int | None:
        self.follow(engine, batch)
        return None


class BlindToAdapters(EventIndex):
    """The adapter is no part of what a block stands for."""

    def stored(self, engine: KnownEngine, event: _Event) -> None:
        super().stored(engine, {**event, "lora": None})

    def lookup(
        self, tokens: Sequence[int], *, lora: str | None = None, salt: str | None = None
    ) -> dict[str, int]:
        del lora
        return super().lookup(tokens, salt=salt)


class BlindToSalts(EventIndex):
    """The salt of a tenant is no part of what a block stands for."""

    def stored(self, engine: KnownEngine, event: _Event) -> None:
        super().stored(engine, {**event, "salt": None})

    def lookup(
        self, tokens: Sequence[int], *, lora: str | None = None, salt: str | None = None
    ) -> dict[str, int]:
        del salt
        return super().lookup(tokens, lora=lora)


class PrunesSuffixes(EventIndex):
    """What is behind a block that goes is dropped with it, and does not come back with it."""

    def removed(self, engine: KnownEngine, event: _Event) -> None:
        left = list(event["hashes"])
        super().removed(engine, event)
        while left:
            gone = left.pop()
            if self.is_anywhere(engine, gone):
                continue
            for block_hash, meaning in list(engine.meanings.items()):
                if meaning[0] == gone:
                    for medium in ("GPU", "CPU"):
                        engine.copies.pop((block_hash, medium), None)
                    engine.hashes_of.pop(engine.meanings.pop(block_hash), None)
                    left.append(block_hash)


class CountsOverHoles(EventIndex):
    """The last block of a prefix that is there counts for all before it."""

    def length(
        self, engine: KnownEngine, tokens: Sequence[int], lora: str | None, salt: str | None
    ) -> int:
        size, parent, count = self.block_size, None, 0
        for number, begin in enumerate(range(0, len(tokens) - size + 1, size), start=1):
            block = tuple(tokens[begin : begin + size])
            found = engine.hashes_of.get((parent, block, lora, salt))
            if found is None:
                break
            parent = found
            count = number if self.is_resident(engine, found) else count
        return count


class NeverTrustsAgain(EventIndex):
    """An engine of which something was lost is not believed even after it was cleared."""

    def follow(self, engine: KnownEngine, batch: Mapping[str, Any]) -> None:
        was_known = engine.is_known
        super().follow(engine, batch)
        engine.is_known = engine.is_known and was_known


CONSUMER_BUGS = (
    ConsumerBug(
        DeafToClears, "a cleared cache changes nothing",
        "https://github.com/vllm-project/aibrix/pull/2385", ("not-resident",),
    ),
    ConsumerBug(
        BlindToParents, "equal blocks behind other prefixes are mixed up",
        "", ("not-resident", "lost-hit"),
    ),
    ConsumerBug(
        OrphansAreRoots, "a block whose parent is unknown becomes the beginning of a prefix",
        "https://github.com/llm-d/llm-d-kv-cache/pull/691", ("not-resident", "lost-hit"),
    ),
    ConsumerBug(
        SiblingsOfOneEvent, "all blocks of an event hang under its parent", "",
        ("not-resident", "lost-hit"),
    ),
    ConsumerBug(
        OneCopyIsAll, "the removal of one of two copies drops both",
        "https://github.com/llm-d/llm-d-kv-cache/pull/680", ("lost-hit",),
    ),
    ConsumerBug(
        CopiesNeverEnd, "one of two copies is never removed",
        "https://github.com/ai-dynamo/dynamo/pull/8012", ("not-resident",),
    ),
    ConsumerBug(
        ReplaysTwice, "a batch that is sent again is applied twice",
        "https://github.com/ai-dynamo/dynamo/pull/8473", ("not-resident", "lost-hit"),
    ),
    ConsumerBug(
        EveryMediumIsTheDevice, "blocks on the host count as on the device",
        "https://github.com/vllm-project/vllm/pull/43468", ("not-resident",),
    ),
    ConsumerBug(
        AnyMediumGoes, "a removal from the host removes from the device", "", ("lost-hit",)
    ),
    ConsumerBug(
        OneForAllEngines, "what one engine removes is removed for all", "", ("lost-hit",)
    ),
    ConsumerBug(
        SharedByAllEngines, "an engine is said to have another one's blocks", "",
        ("not-resident",),
    ),
    ConsumerBug(
        DeafToRestarts, "blocks from before a restart stay",
        "https://github.com/llm-d/llm-d-router/issues/1736", ("not-resident",),
    ),
    ConsumerBug(
        DeafToGaps, "lost batches are passed over",
        "https://github.com/llm-d/llm-d-kv-cache/pull/691", ("not-resident", "lost-hit"),
    ),
    ConsumerBug(BlindToAdapters, "adapters share blocks", "", ("not-resident", "lost-hit")),
    ConsumerBug(BlindToSalts, "tenants share blocks", "", ("not-resident", "lost-hit")),
    ConsumerBug(
        PrunesSuffixes, "what is behind an evicted block is forgotten",
        "https://github.com/ai-dynamo/dynamo/pull/10916", ("lost-hit",),
    ),
    ConsumerBug(CountsOverHoles, "blocks behind a hole count", "", ("not-resident",)),
    ConsumerBug(
        NeverTrustsAgain, "an engine with a loss is never believed again", "", ("lost-hit",)
    ),
)  # fmt: skip


class CountsTheHostToo(EventIndex):
    """Right: it says that blocks on the host count."""

    profile: ClassVar[dict[str, Any]] = {"media": ["GPU", "CPU"]}


class Forgetful(EventIndex):
    """Right: it asks for nothing, and after a gap forgets what it knew of that engine."""

    def missed(self, engine: KnownEngine, batch: Mapping[str, Any]) -> int | None:
        engine.forget()
        engine.is_known = False
        self.follow(engine, batch)
        return None


class AsksForEverything(EventIndex):
    """Right: after a gap it begins anew, from the first batch that the engine still has."""

    def missed(self, engine: KnownEngine, batch: Mapping[str, Any]) -> int | None:
        if batch["replayed"] or engine.gap == 0:
            return super().missed(engine, batch)
        engine.forget()
        engine.expected = engine.gap = 0
        return 0


class NamesNobodyWithoutBlocks(EventIndex):
    """Right: an engine without a block of the prefix is left out of the answer."""

    def lookup(
        self, tokens: Sequence[int], *, lora: str | None = None, salt: str | None = None
    ) -> dict[str, int]:
        answer = super().lookup(tokens, lora=lora, salt=salt)
        return {name: count for name, count in answer.items() if count}


CONSUMER_ODDITIES: tuple[type[EventIndex], ...] = (
    CountsTheHostToo,
    Forgetful,
    AsksForEverything,
    NamesNobodyWithoutBlocks,
)
