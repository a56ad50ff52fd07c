"""Small block managers in nano-vLLM's published shape, one for each generation of it."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any


class Nano:
    """What all generations share."""

    def __init__(self, num_blocks: Any, block_size: Any) -> None:
        self.block_size = block_size
        self.blocks = [SimpleNamespace(ref_count=0, hash=-1) for _ in range(num_blocks)]
        self.hash_to_block_id = {}
        self.free_block_ids = deque(range(num_blocks))

    def compute_hash(self, tokens: Any, parent: Any) -> Any:
        return hash((parent, tuple(tokens)))

    def can_allocate(self, seq: Any) -> Any:
        hits = self._hits(seq, seq.num_blocks - 1)
        held = sum(1 for block_id in hits if self.blocks[block_id].ref_count)
        return len(hits) if seq.num_blocks - held <= len(self.free_block_ids) else -1

    def allocate(self, seq: Any, num_cached_blocks: Any) -> Any:
        for block_id in self._hits(seq, num_cached_blocks):
            self._revive(block_id)
            self.blocks[block_id].ref_count += 1
            seq.block_table.append(block_id)
        while len(seq.block_table) < seq.num_blocks:
            self._take(seq)
        seq.num_cached_tokens = num_cached_blocks * self.block_size

    def can_append(self, seq: Any) -> Any:
        return len(self.free_block_ids) >= (len(seq) % self.block_size == 1)

    def may_append(self, seq: Any) -> Any:
        if len(seq) % self.block_size == 1:
            self._take(seq)

    def deallocate(self, seq: Any) -> Any:
        for block_id in reversed(seq.block_table):
            self.blocks[block_id].ref_count -= 1
            if not self.blocks[block_id].ref_count:
                self.free_block_ids.append(block_id)
        seq.block_table.clear()

    def _hits(self, seq: Any, most: Any) -> Any:
        hits, parent = [], -1
        for index in range(most):
            parent = self.compute_hash(seq.block(index), parent)
            if parent not in self.hash_to_block_id:
                break
            hits.append(self.hash_to_block_id[parent])
        return hits

    def _publish(self, seq: Any, index: Any, parent: Any) -> Any:
        block_id = seq.block_table[index]
        self.blocks[block_id].hash = self.compute_hash(seq.block(index), parent)
        self.hash_to_block_id[self.blocks[block_id].hash] = block_id
        return self.blocks[block_id].hash

    def _revive(self, block_id: Any) -> Any:
        if not self.blocks[block_id].ref_count:
            self.free_block_ids.remove(block_id)

    def _forget(self, block_id: Any) -> Any:
        if self.hash_to_block_id.get(self.blocks[block_id].hash) == block_id:
            del self.hash_to_block_id[self.blocks[block_id].hash]
        self.blocks[block_id].hash = -1

    def _take(self, seq: Any) -> Any:
        block_id = self.free_block_ids.popleft()
        self._forget(block_id)
        self.blocks[block_id].ref_count = 1
        seq.block_table.append(block_id)


class LateNano(Nano):
    """Publishes what was computed, and keeps the hash of what is revived."""

    def hash_blocks(self, seq: Any) -> Any:
        end = (seq.num_cached_tokens + seq.num_scheduled_tokens) // self.block_size
        for index in range(seq.num_cached_tokens // self.block_size, end):
            parent = self.blocks[seq.block_table[index - 1]].hash if index else -1
            self._publish(seq, index, parent)


class ForgetfulNano(LateNano):
    """A hit that nobody holds is allocated anew, and loses its hash."""

    def _allocate_block(self, block_id: Any) -> Any:
        self._forget(block_id)
        self.free_block_ids.remove(block_id)

    def _revive(self, block_id: Any) -> Any:
        if not self.blocks[block_id].ref_count:
            self._allocate_block(block_id)


class EarlyNano(Nano):
    """Publishes at admission and growth, answers a bool, and leaves recycled blocks in the map."""

    def can_allocate(self, seq: Any) -> Any:
        return seq.num_blocks <= len(self.free_block_ids)

    def allocate(self, seq: Any) -> Any:
        super().allocate(seq, len(self._hits(seq, len(seq) // self.block_size)))
        parent = -1
        for index in range(len(seq) // self.block_size):
            parent = self._publish(seq, index, parent)
        self._tokens_of(seq)

    def may_append(self, seq: Any) -> Any:
        super().may_append(seq)
        if len(seq) % self.block_size == 0:
            index = seq.num_blocks - 1
            self._publish(seq, index, self.blocks[seq.block_table[index - 1]].hash if index else -1)
        self._tokens_of(seq)

    def _tokens_of(self, seq: Any) -> Any:
        for index, block_id in enumerate(seq.block_table):
            self.blocks[block_id].tokens = seq.block(index)

    def _hits(self, seq: Any, most: Any) -> Any:
        hits = super()._hits(seq, most)
        for index, block_id in enumerate(hits):
            if self.blocks[block_id].tokens != seq.block(index):
                return hits[:index]
        return hits

    def _forget(self, block_id: Any) -> Any:
        self.blocks[block_id].hash = -1
        self.blocks[block_id].tokens = []


class RenamedNano(LateNano):
    """Publishes under another name."""

    hash_blocks = None

    def hash_block(self, seq: Any) -> Any:
        super().hash_blocks(seq)


class PlainNano:
    """Keeps no prefixes."""

    def __init__(self, num_blocks: Any, block_size: Any) -> None:
        self.block_size = block_size
        self.free_block_ids = deque(range(num_blocks))

    def can_allocate(self, seq: Any) -> Any:
        return seq.num_blocks <= len(self.free_block_ids)

    def allocate(self, seq: Any) -> Any:
        seq.block_table += [self.free_block_ids.popleft() for _ in range(seq.num_blocks)]

    def can_append(self, seq: Any) -> Any:
        return len(self.free_block_ids) >= (len(seq) % self.block_size == 1)

    def may_append(self, seq: Any) -> Any:
        if len(seq) % self.block_size == 1:
            seq.block_table.append(self.free_block_ids.popleft())

    def deallocate(self, seq: Any) -> Any:
        self.free_block_ids += reversed(seq.block_table)
        seq.block_table.clear()


class ChunkedNano(Nano):
    """Takes blocks for a chunk at a time; free blocks with a key are in a list of their own."""

    def __init__(self, num_blocks: Any, block_size: Any) -> None:
        super().__init__(num_blocks, block_size)
        self.kept = deque()

    @property
    def num_free_blocks(self) -> Any:
        return len(self.free_block_ids) + len(self.kept)

    def get_token_layout(self, seq: Any) -> Any:
        hits = self._hits(seq, seq.num_blocks - 1)
        held = sum(1 for block_id in hits if self.blocks[block_id].ref_count)
        size = self.block_size
        return held * size, (len(hits) - held) * size, len(seq) - len(hits) * size

    def can_allocate(self, num_tokens: Any) -> Any:
        return -(-num_tokens // self.block_size) <= self.num_free_blocks

    def allocate(self, seq: Any) -> Any:
        for block_id in self._hits(seq, seq.num_blocks - 1):
            self._revive(block_id)
            self.blocks[block_id].ref_count += 1
            seq.block_table.append(block_id)
        seq.num_cached_tokens = len(seq.block_table) * self.block_size
        self.may_append(seq)

    def can_append(self, seq: Any, num_new_tokens: Any) -> Any:
        end = seq.num_cached_tokens + num_new_tokens
        return -(-end // self.block_size) - len(seq.block_table) <= self.num_free_blocks

    def may_append(self, seq: Any) -> Any:
        end = seq.num_cached_tokens + seq.num_new_tokens
        while len(seq.block_table) * self.block_size < end:
            self._take(seq)
        for index in range(seq.num_cached_tokens // self.block_size, end // self.block_size):
            parent = self.blocks[seq.block_table[index - 1]].hash if index else -1
            self._publish(seq, index, parent)

    def deallocate(self, seq: Any) -> Any:
        for block_id in reversed(seq.block_table):
            self.blocks[block_id].ref_count -= 1
            if not self.blocks[block_id].ref_count:
                self._keep(block_id)
        seq.num_cached_tokens = seq.num_new_tokens = 0
        seq.block_table.clear()

    def _keep(self, block_id: Any) -> Any:
        has_key = self.hash_to_block_id.get(self.blocks[block_id].hash) == block_id
        (self.kept if has_key else self.free_block_ids).append(block_id)

    def _revive(self, block_id: Any) -> Any:
        if not self.blocks[block_id].ref_count:
            self.kept.remove(block_id)

    def _take(self, seq: Any) -> Any:
        if not self.free_block_ids:
            self.free_block_ids.append(self.kept.popleft())
        super()._take(seq)


class LosingNano(ChunkedNano):
    """Of two blocks with one hash only the last is found among the free ones."""

    def _keep(self, block_id: Any) -> Any:
        if self.blocks[block_id].hash == -1:
            self.free_block_ids.append(block_id)
        elif self.hash_to_block_id.get(self.blocks[block_id].hash) == block_id:
            self.kept.append(block_id)
