"""A prefix index that takes no hash at its word: content and ancestors are compared on a hit.

A hash of 64 bits, or one that somebody chooses tokens against, names two different prefixes
sooner or later; comparing only a block's own tokens does not help where equal tokens stand under
two parents (openvino.genai#3722). Here each prefix that is in the cache is one object, which
points to the object of its parent, and a hit has to have the tokens asked for under exactly the
parent that was hit before it. By induction the whole prefix is equal, at one comparison of tokens
and one of identities a block. The hash only makes the search short.

Reference counts and the free queue are the manager's (`poolproof.impl.nano_block_manager`).
"""

from __future__ import annotations


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
