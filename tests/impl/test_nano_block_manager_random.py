"""Random requests on the nano-vLLM-shaped manager, against a model of plain lists.

The model knows which prefix was computed into which block, and nothing of hashes; each capacity
answer is predicted in both directions, and each hit read back.
"""

import random
from zlib import crc32

import pytest

from poolproof.impl.nano_block_manager import BlockManager, Sequence


class Model:
    """Queue, references, and the prefix that was computed into each block and not recycled."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.queue = list(range(num_blocks))
        self.references = [0] * num_blocks
        self.prefixes: dict[int, tuple[int, ...]] = {}

    def num_blocks(self, seq: Sequence) -> int:
        return (len(seq) + self.block_size - 1) // self.block_size

    def copies(self, tokens: list[int], blocks: int) -> list[int]:
        prefix = tuple(tokens[: blocks * self.block_size])
        return [b for b, known in self.prefixes.items() if known == prefix]

    def num_hits(self, seq: Sequence) -> int:
        hits = 0
        while (hits + 1) * self.block_size < len(seq) and self.copies(seq.token_ids, hits + 1):
            hits += 1
        return hits

    def answer(self, seq: Sequence) -> int:
        hits = self.num_hits(seq)
        shared = sum(
            any(self.references[b] for b in self.copies(seq.token_ids, i + 1)) for i in range(hits)
        )
        return hits if self.num_blocks(seq) - shared <= len(self.queue) else -1

    def take(self, block_id: int) -> None:
        if not self.references[block_id]:
            self.queue.remove(block_id)
        self.references[block_id] += 1

    def recycle(self) -> int:
        block_id = self.queue[0]
        self.prefixes.pop(block_id, None)
        self.take(block_id)
        return block_id

    def release(self, table: list[int]) -> None:
        for block_id in reversed(table):
            self.references[block_id] -= 1
            if not self.references[block_id]:
                self.queue.append(block_id)


def assert_agree(manager: BlockManager, model: Model, live: list[Sequence]) -> None:
    assert manager.free_order() == model.queue
    assert manager.num_free() == len(model.queue)
    for b, references in enumerate(model.references):
        assert manager.ref_count(b) == references == sum(b in s.block_table for s in live)
        prefix = manager.cached_prefix(b)
        assert (None if prefix is None else tuple(prefix)) == model.prefixes.get(b)
        copies = [c for c, known in model.prefixes.items() if known == model.prefixes.get(b)]
        assert sorted(manager.carriers(b)) == (sorted(copies) if prefix else [])


class Driver:
    """Makes the calls a scheduler makes, on the manager and on the model."""

    def __init__(self, choose: random.Random, manager: BlockManager, model: Model) -> None:
        self.choose, self.manager, self.model = choose, manager, model
        self.live: list[Sequence] = []
        self.old: list[list[int]] = [[0]]
        self.facts = {"refused": 0, "hit": 0, "copies": 0, "abort": 0}

    def admit(self) -> None:
        choose, model = self.choose, self.model
        tokens = list(choose.choice(self.old))[: choose.randint(0, 9)]
        tokens += [choose.randint(0, 1) for _ in range(choose.randint(1, 5))]
        seq = Sequence(tokens)
        hits = model.answer(seq)
        assert self.manager.can_allocate(seq) == hits
        if hits < 0:
            self.facts["refused"] += 1
            with pytest.raises(MemoryError):
                self.manager.allocate(seq)
            return
        assert self.manager.allocate(seq, choose.choice([None, hits])) == hits
        self.facts["hit"] += hits
        for i, block_id in enumerate(seq.block_table[:hits]):
            copies = model.copies(tokens, i + 1)
            self.facts["copies"] += len(copies) > 1
            assert block_id in copies
            # A copy in use comes before a free one.
            assert model.references[block_id] or not any(model.references[b] for b in copies)
            model.take(block_id)
        assert seq.block_table[hits:] == [model.recycle() for _ in seq.block_table[hits:]]
        assert len(seq.block_table) == model.num_blocks(seq)
        assert seq.num_cached_tokens == hits * model.block_size
        self.live.append(seq)

    def step(self) -> None:
        """Chunks of several sequences, published after all of them were scheduled."""
        batch = [
            s for s in self.live if s.num_cached_tokens < len(s) and self.choose.random() < 0.8
        ]
        for seq in batch:
            seq.num_scheduled_tokens = self.choose.randint(1, len(seq) - seq.num_cached_tokens)
        for seq in batch:
            if self.choose.random() < 0.05:
                self.facts["abort"] += 1
                self.end(seq)
                continue
            self.manager.hash_blocks(seq)
            seq.num_cached_tokens += seq.num_scheduled_tokens
            seq.num_scheduled_tokens = 0
            for i in range(seq.num_cached_tokens // self.model.block_size):
                prefix = tuple(seq.token_ids[: (i + 1) * self.model.block_size])
                assert self.model.prefixes.setdefault(seq.block_table[i], prefix) == prefix
            if seq.num_cached_tokens == len(seq):
                self.grow(seq)

    def grow(self, seq: Sequence) -> None:
        seq.append_token(self.choose.randint(0, 1))
        missing = self.model.num_blocks(seq) - len(seq.block_table)
        fits = missing <= len(self.model.queue)
        assert self.manager.can_append(seq) is fits
        if not fits:
            self.facts["refused"] += 1
            with pytest.raises(MemoryError):
                self.manager.may_append(seq)
            self.end(seq)
            return
        table = list(seq.block_table)
        self.manager.may_append(seq)
        assert seq.block_table == table + [self.model.recycle() for _ in range(missing)]

    def end(self, seq: Sequence) -> None:
        self.old.append(list(seq.token_ids))
        self.model.release(seq.block_table)
        self.manager.deallocate(seq)
        self.live.remove(seq)


@pytest.mark.parametrize("bits", [64, 8, 1, 0])
@pytest.mark.parametrize(("num_blocks", "block_size"), [(3, 1), (5, 2), (9, 2), (7, 3)])
def test_a_manager_agrees_with_the_model(num_blocks: int, block_size: int, bits: int) -> None:
    choose = random.Random(f"{num_blocks} {block_size} {bits}")
    hash_function = None if bits == 64 else lambda data: crc32(data) % 2**bits
    manager = BlockManager(num_blocks, block_size, hash_function=hash_function)
    driver = Driver(choose, manager, Model(num_blocks, block_size))
    for _ in range(600):
        kind = choose.random()
        if kind < 0.4:
            driver.admit()
        elif kind < 0.8:
            driver.step()
        elif driver.live:
            driver.end(choose.choice(driver.live))
        assert_agree(manager, driver.model, driver.live)
    while driver.live:
        driver.end(driver.live[0])
    assert manager.num_free() == num_blocks
    assert driver.facts["refused"] > 5
    assert driver.facts["hit"] > 5
    assert driver.facts["abort"] > 0
