"""Random operations on the block pool, compared after every step with a model of plain lists."""

import random
from functools import partial
from itertools import product
from typing import Any

import pytest

from poolproof.impl import block_loops
from poolproof.impl.block_pool import BlockPool

HASHES = [b"a", b"b", b"c", b"", b"long hash"]


class Model:
    """The operation table, written down with one list for the queue and one dict a property."""

    def __init__(self, num_blocks: int, null: int | None, eviction: str, duplicates: str) -> None:
        self.queue = [b for b in range(num_blocks) if b != null]
        self.references = dict.fromkeys(range(num_blocks), 0)
        self.keys: dict[int, tuple[bytes, int]] = {}
        self.eviction, self.duplicates = eviction, duplicates

    def allocate(self, n: int) -> list[int]:
        if n > len(self.queue):
            raise MemoryError
        taken, self.queue = self.queue[:n], self.queue[n:]
        for b in taken:
            self.references[b] = 1
            self.keys.pop(b, None)
        return taken

    def touch(self, ids: list[int]) -> None:
        if any(not self.references[b] and b not in self.keys for b in ids):
            raise ValueError
        for b in ids:
            if not self.references[b]:
                self.queue.remove(b)
            self.references[b] += 1

    def free(self, ids: list[int]) -> None:
        if any(ids.count(b) > self.references[b] for b in ids):
            raise ValueError
        unhashed = []
        for b in ids:
            self.references[b] -= 1
            if self.references[b]:
                continue
            if self.eviction == "lifo":
                self.queue.insert(0, b)
            elif self.eviction == "unhashed-first" and b not in self.keys:
                unhashed.append(b)
            else:
                self.queue.append(b)
        self.queue = unhashed + self.queue

    def cache(self, ids: list[int], hashes: list[bytes], group: int) -> None:
        if len(ids) != len(hashes) or len(set(ids)) < len(ids):
            raise ValueError
        if any(not self.references[b] for b in ids):
            raise ValueError
        for b, h in zip(ids, hashes, strict=True):
            if self.keys.get(b) == (h, group):
                continue
            self.keys.pop(b, None)
            rivals = [other for other, key in self.keys.items() if key == (h, group)]
            if rivals and self.duplicates == "first":
                continue
            if self.duplicates == "last":
                for other in rivals:
                    del self.keys[other]
            self.keys[b] = (h, group)

    def evict(self, ids: list[int]) -> None:
        for b in ids:
            self.keys.pop(b, None)

    def reset(self) -> bool:
        if any(self.references.values()):
            return False
        self.keys.clear()
        return True


class Mirror:
    """The index as the events tell it."""

    def __init__(self, events: str) -> None:
        self.as_set = events == "per-hash"
        self.counts: dict[tuple[bytes, int], int] = {}

    def replay(self, events: list[dict[str, Any]]) -> None:
        for event in events:
            if event["type"] == "cleared":
                self.counts.clear()
            for h in event["hashes"]:
                key = (h, event["group"])
                self.counts[key] = self.counts.get(key, 0) + (
                    1 if event["type"] == "stored" else -1
                )
                assert self.counts[key] >= 0
                assert self.counts[key] <= 1 or not self.as_set
                if not self.counts[key]:
                    del self.counts[key]


def assert_agree(pool: BlockPool, model: Model) -> None:
    """Order, counter, links both ways, counts, and the index both ways."""
    ids = range(pool.num_blocks)
    assert pool.free_order() == model.queue
    assert pool.num_free() == len(model.queue)
    ends = [None, *model.queue, None]
    for at, b in enumerate(model.queue):
        assert pool.free_neighbours(b) == (ends[at], ends[at + 2])
    for b in ids:
        assert pool.ref_count(b) == model.references[b]
        assert (pool.free_neighbours(b) is None) == (b not in model.queue)
        assert pool.block_hashes(b) == ([model.keys[b]] if b in model.keys else [])
        assert pool.block_hash(b) == (model.keys[b][0] if b in model.keys else None)
    for h, group in product(HASHES, (0, 1)):
        carriers = [b for b, key in model.keys.items() if key == (h, group)]
        found = pool.lookup(h, group=group)
        assert (found in carriers) if carriers else (found is None)


def random_call(choose: random.Random, pool: BlockPool, model: Model) -> tuple[str, list[Any]]:
    """An operation with arguments that are mostly legal."""
    ids = list(range(pool.num_blocks))
    held = [b for b in ids if model.references[b]]
    wild = choose.random() < 0.1
    operation = choose.choice(["allocate", "touch", "free", "free", "cache", "cache", "evict"])
    if operation == "allocate":
        return operation, [choose.randint(0, len(model.queue) + (2 if wild else 0))]
    if operation == "touch":
        legal = [b for b in ids if model.references[b] or b in model.keys]
        pick = ids if wild else legal
        return operation, [[choose.choice(pick) for _ in range(choose.randint(0, 3)) if pick]]
    if operation == "free":
        entries = [b for b in held for _ in range(model.references[b])]
        given = choose.sample(entries, choose.randint(0, len(entries)))
        return operation, [given + [choose.choice(ids)] * wild]
    if operation == "evict":
        return operation, [choose.choices(ids, k=choose.randint(0, 2))]
    given = choose.sample(held, choose.randint(0, len(held)))
    given += [choose.choice(ids)] * wild
    return operation, [given, choose.choices(HASHES, k=len(given))]


@pytest.mark.parametrize("events", ["none", "per-copy", "per-hash"])
@pytest.mark.parametrize("duplicates", ["kept", "first", "last"])
@pytest.mark.parametrize("eviction", ["lru", "unhashed-first", "lifo"])
@pytest.mark.parametrize(("num_blocks", "null_block"), [(4, None), (9, 0), (9, 8)])
def test_a_pool_agrees_with_the_model(
    num_blocks: int, null_block: int | None, eviction: str, duplicates: str, events: str
) -> None:
    assert_agrees(num_blocks, null_block, eviction, duplicates, events)


@pytest.mark.parametrize("events", ["none", "per-copy"])
@pytest.mark.parametrize("duplicates", ["kept", "first", "last"])
@pytest.mark.parametrize("eviction", ["lru", "unhashed-first"])
def test_a_pool_agrees_with_the_model_over_the_tables_and_loops_of_compiled_ones(
    monkeypatch: pytest.MonkeyPatch, eviction: str, duplicates: str, events: str
) -> None:
    monkeypatch.setattr(block_loops, "COMPILED", True)
    assert_agrees(9, 0, eviction, duplicates, events)


def assert_agrees(
    num_blocks: int, null_block: int | None, eviction: str, duplicates: str, events: str
) -> None:
    """250 calls, each beside the model's."""
    choose = random.Random(f"{num_blocks} {null_block} {eviction} {duplicates} {events}")
    pool = BlockPool(
        num_blocks,
        null_block=null_block,
        eviction=eviction,
        duplicates=duplicates,
        events=events,
    )
    model = Model(num_blocks, null_block, eviction, duplicates)
    mirror = Mirror(events)
    refused = 0
    for _ in range(250):
        operation, arguments = random_call(choose, pool, model)
        null_named = operation != "allocate" and null_block in arguments[0]
        if operation != "allocate" and choose.random() < 0.3:
            # Not a list: the pool looks closely.
            arguments[0] = tuple(arguments[0])
        if operation == "cache":
            arguments.append(choose.choice([0, 0, 1]))
            ids, hashes, group = arguments
            call = partial(pool.cache, ids, hashes, group=group)
        else:
            call = partial(getattr(pool, operation), *arguments)
        if null_named:
            expected: Any = ValueError
        else:
            try:
                expected = getattr(model, operation)(*arguments)
            except (MemoryError, ValueError) as error:
                expected = type(error)
        if isinstance(expected, type):
            refused += 1
            with pytest.raises(expected):
                call()
        else:
            assert call() == expected
        if choose.random() < 0.03:
            for b in range(num_blocks):
                pool.free([b] * model.references[b])
                model.free([b] * model.references[b])
            assert not any(model.references.values())
        if choose.random() < 0.3:
            assert pool.reset() is model.reset()
        # The model is compared after refusals too: nothing may have moved.
        assert_agree(pool, model)
        mirror.replay(pool.take_events())
        carried = list(model.keys.values())
        if events == "per-copy":
            assert mirror.counts == {key: carried.count(key) for key in carried}
        elif events == "per-hash":
            assert set(mirror.counts) == set(carried)
    assert refused > 5
