"""Contracts of the small pure functions: what must hold of the code that they call, in PEP 316.

Index keys and the encoding beneath block hashes: a function that can be undone gives different
results for different inputs, so reading back is injectivity. Bytes are short here; nothing in the
code depends on how long they are. Not here: `encoded_tokens`, which packs through `array`, and the
hash functions, which are C.

Sizing and counting blocks, admission's arithmetic among them.

Kinds of attention: what is skipped is read by nobody, and all of it is skipped. The token at
position t reads position p, at most t, where the kind says; after n computed tokens those from n
on are still to come. One position too many frees a block in use (imp#967), one too few keeps it
for ever.

One step of the abstract pool, as plain Python: the description that Z3 proves. A pool of one block
with any count, hash and flags; the step is the effect in `pool_model.py`, run by `ConcreteLogic`
over symbolic integers and bools. What is confirmed here of the running step is proved there of the
formulas, which is one more thread of the bridge between the two.
"""

from __future__ import annotations

from poolproof.exploration.proof.logic import ConcreteLogic
from poolproof.exploration.proof.model import State
from poolproof.exploration.proof.pool_invariants import counter, free_iff_unheld, index_is_hashes
from poolproof.exploration.proof.pool_model import allocate, cache, free, touch, without_hash
from poolproof.impl.block_hash import sized
from poolproof.impl.cached_keys import group_of, hash_of, make_key
from poolproof.impl.kv_cache_group import ChunkedLocal, RecurrentState, SlidingWindow, blocks_for
from poolproof.impl.sizing import num_blocks, page_size_bytes


def key_reads_back(block_hash: bytes, group: int) -> tuple[bytes, int]:
    """Hash and group of a key.

    pre: group >= 0
    post: _ == (block_hash, group)
    """
    key = make_key(block_hash, group)
    return hash_of(key), group_of(key)


def field_reads_back(field: bytes, rest: bytes) -> tuple[bytes, bytes]:
    """A field behind its length, and what follows it.

    pre: len(field) <= 3 and len(rest) <= 3
    post: _ == (field, rest)
    """
    return _read(sized(field) + rest)


def fields_read_back(first: bytes, second: bytes) -> tuple[bytes, bytes]:
    """Two fields behind each other: where the first ends does not depend on what is in it.

    pre: len(first) <= 2 and len(second) <= 2
    post: _ == (first, second)
    """
    field, rest = _read(sized(first) + sized(second))
    return field, _read(rest)[0]


def _read(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:8], "little")
    return data[8 : 8 + length], data[8 + length :]


def memory_is_used_up(available_bytes: int, bytes_per_block: int) -> int:
    """As many whole blocks as fit, and no more would.

    pre: available_bytes >= 0 and bytes_per_block >= 1
    post: _ * bytes_per_block <= available_bytes
    post: available_bytes < (_ + 1) * bytes_per_block
    """
    return num_blocks(available_bytes, bytes_per_block)


def page_counts_keys_and_values(tokens: int, heads: int) -> int:
    """Keys and values: half as much is one of the two (head size 64, 2 bytes an element).

    pre: tokens >= 1 and heads >= 1
    post: _ == 2 * (tokens * heads * 64 * 2)
    """
    return page_size_bytes(tokens, heads, 64, 2)


def blocks_cover_tokens(num_tokens: int, block_size: int) -> int:
    """Enough blocks for the tokens, and not one more.

    pre: num_tokens >= 0 and block_size >= 1
    post: _ * block_size >= num_tokens
    post: (_ - 1) * block_size < num_tokens
    """
    return blocks_for(num_tokens, block_size)


def growth_is_what_is_missing(held: int, more: int) -> int:
    """Blocks to add when a sequence of `held` tokens grows by `more` (blocks of 16).

    Never negative; no more than `more` tokens take by themselves (vllm#52707, sparkinfer#135).

    pre: held >= 0 and more >= 0
    post: 0 <= _ <= (more + 15) // 16
    post: ((held + 15) // 16 + _) * 16 >= held + more
    """
    return blocks_for(held + more, 16) - blocks_for(held, 16)


def requests_are_counted_apart(first: int, second: int) -> int:
    """Blocks for two requests, each rounded up: a sum of tokens promises too few (FreeToken#367).

    pre: first >= 0 and second >= 0
    post: _ * 16 >= first + second
    post: _ <= (first + second + 15) // 16 + 1
    """
    return blocks_for(first, 16) + blocks_for(second, 16)


def slot_names_block_and_offset(block_id: int, position: int) -> tuple[int, int]:
    """From the slot of a position in its block back to both (blocks of 16).

    pre: block_id >= 0 and position >= 0
    post: _ == (block_id, position % 16)
    """
    return divmod(slot_of(block_id, position), 16)


def slot_of(block_id: int, position: int) -> int:
    """The slot of a position whose block is known, in blocks of 16, as engines compute it."""
    return block_id * 16 + position % 16


def window_keeps_what_is_read(window: int, computed: int, token: int, position: int) -> int:
    """What a later token reads is not skipped.

    pre: window >= 1 and computed >= 0 and token >= computed
    pre: position >= 0 and token - window < position <= token
    post: _ <= position
    """
    return SlidingWindow(window=window).num_skipped_tokens(computed)


def window_skips_what_is_not(window: int, computed: int) -> int:
    """The first position that is kept, if it is there already, is read by the next token.

    pre: window >= 1 and computed >= 0
    post: 0 <= _ <= computed
    post: computed - window < _
    """
    return SlidingWindow(window=window).num_skipped_tokens(computed)


def chunk_keeps_what_is_read(computed: int, token: int, position: int) -> int:
    """What a later token of the same chunk of 8 reads is not skipped.

    pre: 0 <= computed <= token and 0 <= position <= token
    pre: token // 8 == position // 8
    post: _ <= position
    """
    return ChunkedLocal(chunk_size=8).num_skipped_tokens(computed)


def chunk_skips_what_is_not(computed: int) -> int:
    """The first position that is kept begins the chunk of the next token (chunks of 8).

    pre: computed >= 0
    post: _ <= computed < _ + 8
    post: _ % 8 == 0
    """
    return ChunkedLocal(chunk_size=8).num_skipped_tokens(computed)


def state_keeps_the_last_token(computed: int) -> int:
    """The state after the last computed token is kept, and no other.

    pre: computed >= 1
    post: _ == computed - 1
    """
    return RecurrentState().num_skipped_tokens(computed)


def peak_covers_a_window_anywhere(window: int, start: int) -> int:
    """A window with the token in flight touches at most the peak, wherever it starts (blocks of 4).

    pre: 1 <= window <= 64 and start >= 0
    post: (start + window - 1) // 4 - start // 4 + 1 <= _
    """
    return SlidingWindow(window=window).peak_blocks(4, 1, start + window)


_LOGIC = ConcreteLogic({"Block": (0,), "Hash": (0, 1), "Reference": (0,), "Int": (0, 1)})


def touching(count: int, hashed: bool, block_hash: bool) -> bool:
    """`touch` of a block that is held or cached.

    pre: count >= 0 and (count > 0 or hashed)
    post: _
    """
    before = _pool(count, hashed, block_hash)
    after = before.after(touch(_LOGIC, before, 0, 0))
    return _is_right(after) and after.count(0) == count + 1 and after.hashed(0) == hashed


def freeing(count: int, hashed: bool, block_hash: bool, lifo: bool) -> bool:
    """`free` of a held block.

    pre: count >= 1
    post: _
    """
    before = _pool(count, hashed, block_hash, lifo=lifo)
    after = before.after(free(_LOGIC, before, 0))
    return _is_right(after) and after.count(0) == count - 1 and after.hashed(0) == hashed


def allocating(hashed: bool, block_hash: bool) -> bool:
    """`allocate` of the only block, which is free.

    post: _
    """
    before = _pool(0, hashed, block_hash)
    after = before.after(allocate(_LOGIC, before, 0))
    return _is_right(after) and after.count(0) == 1 and not after.hashed(0)


def caching(count: int, hashed: bool, block_hash: bool, new_hash: bool) -> bool:
    """`cache` of a held block under one of two hashes.

    pre: count >= 1
    post: _
    """
    before = _pool(count, hashed, block_hash)
    after = before.after(cache(_LOGIC, before, 0, int(new_hash)))
    return _is_right(after) and after.hashed(0) and after.hash(0) == int(new_hash)


def evicting(count: int, hashed: bool, block_hash: bool) -> bool:
    """`evict`, of a free block or of one that is held.

    pre: count >= 0
    post: _
    """
    before = _pool(count, hashed, block_hash)
    after = before.after(without_hash(_LOGIC, before, 0))
    return _is_right(after) and after.count(0) == count and not after.hashed(0)


def _pool(count: int, hashed: bool, block_hash: bool, *, lifo: bool = False) -> State:
    queued = count == 0
    number = int(block_hash)
    return State(
        {
            "lifo": lifo,
            "unhashed_first": False,
            "keep_first": False,
            "keep_last": False,
            "recache_forbidden": False,
            "null": lambda _: False,
            "count": lambda _: count,
            "holder": lambda _b, _i: 0,
            "live": lambda _: count > 0,
            "on": lambda _: 0,
            "place": lambda _: 0,
            "queued": lambda _: queued,
            "first": 0,
            "end": 1 if queued else 0,
            "at": lambda _: 0,
            "index": lambda _: 0,
            "num_free": 1 if queued else 0,
            "hashed": lambda _: hashed,
            "hash": lambda _: number,
            "indexed": lambda h, _: hashed and h == number,
            "joined": lambda _: 0,
            "clock": 1,
        }
    )


def _is_right(s: State) -> bool:
    return all(fact(_LOGIC, s) for fact in (free_iff_unheld, counter, index_is_hashes))
