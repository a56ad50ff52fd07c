"""A block manager in the shape of nano-vLLM: sequences over blocks, with a shared prefix cache.

The shape is that of nano-vLLM's `BlockManager`, with the operations and the hash of its current
version (9fa256a); a scheduler written for that one runs with this one. The algorithm is told in
public; the code here is its own, and differs where the published one, or an earlier version of it,
is wrong:

- A hit is verified by its tokens and its whole chain, so any hash function is safe.
- Every copy of a prefix is kept, and a copy in use is preferred to a free one (nano-vllm#219).
- A recycled block loses its index entry, a revived one keeps it (nano-vllm#163, 9fa256a).
- Only computed blocks are published, and one token is always left to compute (nano-vllm#144).
- Misuse and refusals raise before anything changes.

A hash of 64 bits, or one that somebody chooses tokens against, names two different prefixes sooner
or later; comparing only a block's own tokens does not help where equal tokens stand under two
parents (openvino.genai#3722). Here each prefix that is in the cache is one object, which points to
the object of its parent, and a hit has to have the tokens asked for under exactly the parent that
was hit before it. By induction the whole prefix is equal, at one comparison of tokens and one of
identities a block. The hash only makes the search short.

A sequence has tokens, a table of blocks, and two counters that the scheduler moves. Sampling,
status and text belong to the engine; its own sequence class serves the manager as well, when it
has these attributes. Not covered: forks, truncation, and keys besides the tokens (adapters,
images).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from poolproof.impl.free_queue import FreeQueue
from poolproof.impl.sizing import require_int


@dataclass(eq=False)
class Sequence:
    """One request.

    Args:
        token_ids: the prompt, at least one token; the list is copied.

    The manager fills `block_table`, one block id for each `block_size` tokens or part of them.
    `num_cached_tokens` counts the tokens whose KV is in the blocks: the manager sets it on
    admission to what was hit, and the scheduler adds each step's tokens once they are computed.
    `num_scheduled_tokens` is how many tokens after these the running step computes. Raises
    ValueError for an empty prompt.
    """

    token_ids: list[int]
    block_table: list[int] = field(default_factory=list, init=False)
    num_cached_tokens: int = field(default=0, init=False)
    num_scheduled_tokens: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.token_ids)
        if not self.token_ids:
            raise ValueError("a sequence needs at least one token")

    def __len__(self) -> int:
        return len(self.token_ids)

    def append_token(self, token_id: int) -> None:
        """Add a sampled token. It has no KV yet, and perhaps no slot: ask `can_append` next."""
        self.token_ids.append(token_id)


class CachedPrefix:
    """The content of a full block together with everything before it, and who carries it.

    `content` is the block's own tokens, packed into bytes by the manager: compared at once, and
    far smaller than a list of ints. `carriers` holds block ids in the order in which they were
    published; it is never empty while the index knows the prefix. `collides` is the next prefix
    with the same hash.
    """

    __slots__ = ("block_hash", "carriers", "collides", "content", "parent")

    def __init__(self, block_hash: int, parent: CachedPrefix | None, content: bytes) -> None:
        self.block_hash = block_hash
        self.parent = parent
        self.content = content
        self.carriers: dict[int, None] = {}
        self.collides: CachedPrefix | None = None


class ChainIndex:
    """Which prefix each of `num_blocks` blocks carries, and which blocks carry a prefix.

    `prefix_of[b]` is the prefix of block b, or None. Every carrier of a prefix is kept: with one
    id a hash, recycling that id would lose the copy that is still there (nano-vllm#219).

    A prefix leaves the index with its last carrier. What was published below it stays, and is not
    found until it is published again; a manager that gives blocks back tail first into one queue
    and takes from its head never sees this, because it recycles a child before the parent.
    """

    def __init__(self, num_blocks: int) -> None:
        self.prefix_of: list[CachedPrefix | None] = [None] * num_blocks
        self._by_hash: dict[int, CachedPrefix] = {}

    def find(
        self, block_hash: int, parent: CachedPrefix | None, content: bytes
    ) -> CachedPrefix | None:
        """The prefix that continues `parent` (None: nothing before) with this content, or None."""
        prefix = self._by_hash.get(block_hash)
        while prefix is not None and (prefix.parent is not parent or prefix.content != content):
            prefix = prefix.collides
        return prefix

    def publish(
        self, block_id: int, block_hash: int, parent: CachedPrefix | None, content: bytes
    ) -> CachedPrefix:
        """Make a block, which carries no prefix yet, a carrier of this one. Returns the prefix."""
        prefix = self.find(block_hash, parent, content)
        if prefix is None:
            prefix = CachedPrefix(block_hash, parent, content)
            prefix.collides = self._by_hash.get(block_hash)
            self._by_hash[block_hash] = prefix
        prefix.carriers[block_id] = None
        self.prefix_of[block_id] = prefix
        return prefix

    def drop(self, block_id: int) -> None:
        """Take the prefix from a block; none is fine. The last carrier takes the entry with it.

        Both directions at once: an entry that outlives the recycling of its block serves another
        request's KV (nano-vllm#163).
        """
        prefix = self.prefix_of[block_id]
        if prefix is None:
            return
        self.prefix_of[block_id] = None
        del prefix.carriers[block_id]
        if not prefix.carriers:
            self._unlink(prefix)

    def clear(self) -> None:
        """Take every prefix from every block."""
        self._by_hash.clear()
        self.prefix_of[:] = [None] * len(self.prefix_of)

    def __len__(self) -> int:
        """How many hashes have a carrier."""
        return len(self._by_hash)

    def _unlink(self, prefix: CachedPrefix) -> None:
        """Take a prefix out of the chain of those with its hash."""
        at = self._by_hash[prefix.block_hash]
        if at is prefix:
            if prefix.collides is None:
                del self._by_hash[prefix.block_hash]
            else:
                self._by_hash[prefix.block_hash] = prefix.collides
            return
        while at.collides is not prefix:
            assert at.collides is not None, "a carried prefix stands in the chain of its hash"
            at = at.collides
        at.collides = prefix.collides


IntegerHash = Callable[[bytes], int]

BLOCKS_PACKED_AT_ONCE = 16


class BlockManager:
    """Manages the blocks 0..num_blocks-1 of `block_size` tokens each.

    Args:
        num_blocks: how many blocks, at least 1.
        block_size: tokens in a block, at least 1.
        hash_function: from bytes to an int from 0 to 2**64 - 1; None is xxh64. A weak one costs
            time and nothing else.

    The free queue is least recently used first, and starts in ascending order; a sequence gives
    its blocks back tail first, so that a cached chain is evicted from its end (nano-vllm
    59aa3ff). Sequences are told apart by their tables, which only this class may change. Raises
    ValueError for sizes below 1. Not thread-safe.
    """

    def __init__(
        self, num_blocks: int, block_size: int, *, hash_function: IntegerHash | None = None
    ) -> None:
        self.num_blocks = require_int("num_blocks", num_blocks, at_least=1)
        self.block_size = require_int("block_size", block_size, at_least=1)
        if hash_function is None:
            from xxhash import xxh64_intdigest

            hash_function = xxh64_intdigest
        self._hash_function: IntegerHash = hash_function
        self._queue = FreeQueue(num_blocks)
        self._ref_counts = [0] * num_blocks
        self._index = ChainIndex(num_blocks)
        self._hashed_tokens: list[int] = []
        self._hashed: list[tuple[int, bytes]] = []

    def compute_hash(self, content: bytes, parent_hash: int | None) -> int:
        """The hash of a full block: its tokens as 8 bytes each, behind the parent's hash.

        With the default function it is the value that nano-vLLM computes. Raises TypeError for a
        hash function that gives anything but an int of 64 bits without sign.
        """
        if parent_hash is not None:
            content = parent_hash.to_bytes(8, "little") + content
        block_hash = self._hash_function(content)
        if type(block_hash) is not int or not 0 <= block_hash < 2**64:
            raise TypeError(
                f"hash_function must return an int from 0 to 2**64 - 1, not {block_hash!r}"
            )
        return block_hash

    def can_allocate(self, seq: Sequence) -> int:
        """How many blocks of the sequence are cached, or -1 when it does not fit now.

        Exact: `allocate` succeeds at once after any other answer, and fails after -1. Hits that
        somebody holds cost nothing; hits in the free queue cost a place there (ROCm/ATOM#902). A
        sequence of more than `num_blocks` blocks never fits. Changes nothing.
        """
        hits = self._hits(seq)
        return len(hits) if self._num_taken(seq, hits) <= self._queue.length else -1

    def allocate(self, seq: Sequence, num_cached_blocks: int | None = None) -> int:
        """Give a sequence its table: the cached blocks of its prefix, then fresh ones.

        `num_cached_blocks` is what `can_allocate` answered, for a scheduler that has planned with
        it: exactly so many hits are used. Sets `num_cached_tokens` and returns the number of
        cached blocks. Hits keep what they are; fresh blocks lose what was cached in them. Raises
        MemoryError when the sequence does not fit; ValueError when it has a table already, or
        fewer blocks are cached than promised, because others were admitted in between
        (vllm#18957).
        """
        if seq.block_table:
            raise ValueError(
                f"allocate: the sequence holds {len(seq.block_table)} blocks already; "
                "deallocate it first"
            )
        hits = self._hits(seq)
        if num_cached_blocks is not None:
            if type(num_cached_blocks) is not int or not 0 <= num_cached_blocks <= len(hits):
                raise ValueError(
                    f"allocate: {num_cached_blocks!r} cached blocks promised, {len(hits)} found; "
                    "ask can_allocate again"
                )
            del hits[num_cached_blocks:]
        num_taken = self._num_taken(seq, hits)
        self._require_free("allocate", num_taken)
        # Every hit leaves the queue before a fresh block is taken, or that block might be a hit
        # of the same sequence (vllm#44409).
        ref_counts = self._ref_counts
        for block_id in hits:
            if not ref_counts[block_id]:
                self._queue.unlink(block_id)
            ref_counts[block_id] += 1
        seq.block_table.extend(hits)
        seq.num_cached_tokens = len(hits) * self.block_size
        self._extend(seq)
        return len(hits)

    def can_append(self, seq: Sequence) -> bool:
        """Whether the slots for the tokens that the sequence has now are there. Exact.

        The sampled token is appended first and the slot asked for afterwards, so that a sequence
        of k * block_size + 1 tokens needs a block (nano-vllm#30). Several new tokens may need
        several. Raises ValueError for a sequence that was not admitted.
        """
        return self._num_missing("can_append", seq) <= self._queue.length

    def may_append(self, seq: Sequence) -> None:
        """Extend the table to the tokens that the sequence has now; often that is nothing.

        Raises MemoryError, before anything changes, when `can_append` says no; ValueError for a
        sequence that was not admitted.
        """
        self._require_free("may_append", self._num_missing("may_append", seq))
        self._extend(seq)

    def hash_blocks(self, seq: Sequence) -> None:
        """Publish the blocks that are full once the scheduled tokens have been computed.

        To be called after the forward pass and before `num_cached_tokens` is raised: a block that
        is found before its KV is written serves garbage (vllm#29387). A chunk that ends inside a
        block publishes that block with a later chunk. Raises ValueError when the two counters
        reach beyond the tokens or the table.
        """
        block_size, table = self.block_size, seq.block_table
        num_computed = seq.num_cached_tokens + seq.num_scheduled_tokens
        if not 0 <= num_computed <= min(len(seq), len(table) * block_size):
            raise ValueError(
                f"hash_blocks: {num_computed} tokens computed, but the sequence has {len(seq)} "
                f"and slots for {len(table) * block_size}"
            )
        end = num_computed // block_size
        prefix_of = self._index.prefix_of
        # From the last published block on, whatever the counters say: a chain that continued from
        # "no parent" would name a middle block as a first one (found in nano-vllm f64d821).
        start = end
        while start and prefix_of[table[start - 1]] is None:
            start -= 1
        parent = prefix_of[table[start - 1]] if start else None
        contents = packed_blocks(seq.token_ids, block_size, start, end)
        for block_id, content in zip(table[start:end], contents, strict=True):
            block_hash = self.compute_hash(content, None if parent is None else parent.block_hash)
            parent = self._index.publish(block_id, block_hash, parent, content)

    def deallocate(self, seq: Sequence) -> None:
        """Drop the sequence's references, tail first, and empty its table and counters.

        Again, or for a sequence that was never admitted, it does nothing: several ends of one
        request may each call it (vllm#25067). Raises ValueError, and changes nothing, for a table
        with ids that are not held.
        """
        table, ref_counts = seq.block_table, self._ref_counts
        strange = [b for b in table if not 0 <= b < self.num_blocks or not ref_counts[b]]
        if strange or len(set(table)) != len(table):
            raise ValueError(
                f"deallocate: the table {table} is not one of this manager; "
                f"not held: {strange}, entries: {len(table)}, distinct: {len(set(table))}"
            )
        freed = []
        for block_id in reversed(table):
            ref_counts[block_id] -= 1
            if not ref_counts[block_id]:
                freed.append(block_id)
        self._queue.link_tail(freed)
        table.clear()
        seq.num_cached_tokens = 0
        # A step that was scheduled and given up must not be published afterwards.
        seq.num_scheduled_tokens = 0

    def reset(self) -> bool:
        """Forget every cached prefix and return True; False, and no change, while a block is held.

        For new weights: KV of the old ones must not be hit (vllm#12284).
        """
        if self._queue.length != self.num_blocks:
            return False
        self._index.clear()
        return True

    def num_free(self) -> int:
        """How many blocks are free; cached ones that nobody holds are among them."""
        return self._queue.length

    def free_order(self) -> list[int]:
        """The free blocks in the order in which they will be recycled."""
        return self._queue.free_order()

    def free_neighbours(self, block_id: int) -> tuple[int | None, int | None] | None:
        """The blocks before and after in the free queue, or None for a block that is held."""
        return self._queue.free_neighbours(block_id)

    def ref_count(self, block_id: int) -> int:
        """How many tables contain the block."""
        return self._ref_counts[block_id]

    def block_hash(self, block_id: int) -> int | None:
        """The hash under which the block is cached, or None."""
        prefix = self._index.prefix_of[block_id]
        return None if prefix is None else prefix.block_hash

    def is_cached(self, block_id: int) -> bool:
        """Whether the block is cached under some hash."""
        return self._index.prefix_of[block_id] is not None

    def cached_prefix(self, block_id: int) -> list[int] | None:
        """All tokens from the first up to the end of the cached block, or None."""
        prefix = self._index.prefix_of[block_id]
        if prefix is None:
            return None
        chain: list[bytes] = []
        at: CachedPrefix | None = prefix
        while at is not None:
            chain.append(at.content)
            at = at.parent
        return array("q", b"".join(reversed(chain))).tolist()

    def carriers(self, block_id: int) -> list[int]:
        """All blocks with the cached content of this one, in the order of publication."""
        prefix = self._index.prefix_of[block_id]
        return [] if prefix is None else list(prefix.carriers)

    def _hits(self, seq: Sequence) -> list[int]:
        """A block for each cached block of the sequence's prefix, the last token always left out.

        The model has to compute at least one token to sample from, so a prompt of whole blocks
        that is cached to its end still computes the last one (nano-vllm#144).
        """
        if not len(seq):
            raise ValueError("the sequence has no tokens; admit it with its prompt")
        ref_counts, find = self._ref_counts, self._index.find
        hits: list[int] = []
        prefix = None
        for block_hash, content in self._hashed_blocks(seq):
            prefix = find(block_hash, prefix, content)
            if prefix is None:
                break
            carriers = prefix.carriers
            block_id = next(iter(carriers))
            if len(carriers) > 1 and not ref_counts[block_id]:
                # A copy that is held anyway takes nothing from the queue; else the oldest.
                block_id = next((b for b in carriers if ref_counts[b]), block_id)
            hits.append(block_id)
        return hits

    def _hashed_blocks(self, seq: Sequence) -> Iterator[tuple[int, bytes]]:
        """Hash and content of each block that could be hit, as far as somebody asks.

        What was hashed for the last sequence is kept, for `allocate` after `can_allocate` and for
        a sequence that waits. It depends on its tokens alone, which are compared, so it cannot go
        stale as remembered hits can (vllm#18957).
        """
        if self._hashed_tokens != seq.token_ids:
            self._hashed_tokens = list(seq.token_ids)
            self._hashed = []
        hashed = self._hashed
        yield from hashed
        end = (len(seq) - 1) // self.block_size
        block_hash = hashed[-1][0] if hashed else None
        for content in packed_blocks(seq.token_ids, self.block_size, len(hashed), end):
            block_hash = self.compute_hash(content, block_hash)
            hashed.append((block_hash, content))
            yield block_hash, content

    def _num_blocks(self, seq: Sequence) -> int:
        return -(-len(seq) // self.block_size)

    def _num_taken(self, seq: Sequence, hits: list[int]) -> int:
        """How many blocks an admission takes out of the free queue, revived ones included."""
        return self._num_blocks(seq) - sum(1 for b in hits if self._ref_counts[b])

    def _num_missing(self, operation: str, seq: Sequence) -> int:
        if not seq.block_table:
            raise ValueError(f"{operation}: the sequence holds no blocks; allocate it first")
        return max(0, self._num_blocks(seq) - len(seq.block_table))

    def _require_free(self, operation: str, num_taken: int) -> None:
        if num_taken > self._queue.length:
            raise MemoryError(
                f"{operation}: {num_taken} blocks needed, {self._queue.length} of "
                f"{self.num_blocks} free; preempt a sequence or wait"
            )

    def _extend(self, seq: Sequence) -> None:
        """Append the fresh blocks that the table lacks; there are enough."""
        fresh = self._queue.take_head(max(0, self._num_blocks(seq) - len(seq.block_table)))
        for block_id in fresh:
            self._index.drop(block_id)
            self._ref_counts[block_id] = 1
        seq.block_table.extend(fresh)


def packed_blocks(token_ids: list[int], block_size: int, start: int, end: int) -> Iterator[bytes]:
    """The tokens of the blocks from `start` to before `end`, 8 bytes each.

    Raises ValueError for tokens that are no ints of 64 bits. Packs some blocks at a time, since
    who looks a prefix up often stops at the first.
    """
    width = 8 * block_size
    for first in range(start, end, BLOCKS_PACKED_AT_ONCE):
        last = min(first + BLOCKS_PACKED_AT_ONCE, end)
        try:
            packed = array("q", token_ids[first * block_size : last * block_size]).tobytes()
        except (OverflowError, TypeError):
            raise ValueError(
                f"tokens must be ints of 64 bits; some of {first * block_size} to "
                f"{last * block_size - 1} are none"
            ) from None
        for at in range(0, len(packed), width):
            yield packed[at : at + width]
