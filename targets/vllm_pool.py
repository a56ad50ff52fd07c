"""Any class with the published shape of vLLM V1's `BlockPool`, behind the native contract.

Block ids cross the boundary, never block objects: `blocks[i]` of the pool is block i. Calls,
refusals and exceptions pass through unchanged; the adapter repairs nothing. With caching off it
calls neither `cache_full_blocks` nor `evict_blocks`, because the engine's manager does not.

An event's kind is read from the name of its class, its hashes from `block_hashes` and its cache
group from `group_idx`. Hashes must be whole: by default vLLM publishes 64 bits of each, as a
number, which does not say which of two hashes is meant when they end alike. Of what a stored
event tells beside them, the parent, the tokens, the block size and the extra keys are translated;
adapter numbers, the medium and the session are not.

Not driven: residency metrics, reuse watchers (`unpin_blocks`), `move_block_hashes`,
re-announcements, block masks, several pools that free each other's blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

from poolproof.contract.content import ContentKey, Key, TokenChain
from poolproof.contract.target import TargetError
from poolproof.targets.hash_book import HashBook
from poolproof.targets.vllm_pool_parts import LinkedBlocks, ids_of
from poolproof.targets.vllm_requests import RequestOf
from poolproof.targets.vllm_shape import VllmShape

__all__ = ["VllmPool", "translate_events"]


_KINDS = {"Stored": "stored", "Removed": "removed", "Cleared": "cleared"}


def translate_events(events: Iterable[Any], book: HashBook) -> list[dict[str, Any]]:
    """The events as the contract writes them; an unknown kind keeps the name of its class."""
    return [_translate(event, book) for event in events]


def _translate(event: Any, book: HashBook) -> dict[str, Any]:
    name = type(event).__name__
    kind = next((kind for part, kind in _KINDS.items() if part in name), name)
    group = getattr(event, "group_idx", None) or 0
    hashes = [_key(value, group, book) for value in getattr(event, "block_hashes", ())]
    translated = {"type": kind, "hashes": hashes, "group": group}
    if kind == "stored":
        translated |= _told_beside(event, hashes, group, book)
    return translated


def _told_beside(event: Any, hashes: list[Any], group: int, book: HashBook) -> dict[str, Any]:
    """What the event tells of the content behind its hashes, as far as it has these attributes."""
    told: dict[str, Any] = {}
    if hasattr(event, "parent_block_hash"):
        parent = event.parent_block_hash
        told["parent"] = None if parent is None else _key(parent, group, book)
    if hasattr(event, "token_ids"):
        told["tokens"] = event.token_ids
    if hasattr(event, "block_size"):
        told["block_size"] = event.block_size
        if hasattr(event, "extra_keys"):
            # None stands for blocks that all have none.
            extra_keys = event.extra_keys or [None] * len(hashes)
            told["extra_keys"] = [
                _extra_keys(extras or (), key, event.block_size)
                for extras, key in zip_longest(extra_keys, hashes)
            ]
    return told


def _extra_keys(extras: Iterable[Any], key: Any, block_size: int) -> list[tuple[Any, ...]]:
    """The extra keys of a block, which vLLM publishes without their kinds.

    Of an adapter and a salt that are the same word, the adapter stands first. An image's offset
    is counted from the block's beginning.
    """
    translated: list[tuple[Any, ...]] = []
    words = {}
    if isinstance(key, ContentKey):
        words = {"lora": key.lora and key.lora[0], "salt": key.salt}
    for extra in extras:
        kind = next((kind for kind, word in words.items() if word == extra), "unknown")
        if isinstance(extra, tuple | list) and len(extra) == 2 and isinstance(key, ContentKey):
            identifier, offset = extra
            translated.append(("image", identifier, offset + len(key.tokens) - block_size))
        else:
            translated.append((kind, extra))
            words.pop(kind, None)
    return translated


def _key(value: Any, group: int, book: HashBook) -> Any:
    """The key behind a published hash; an unknown one stays as it is, for the check to see."""
    key = book.key(value, group) if isinstance(value, bytes) else None
    return value if key is None else key


_MOST_KEPT = 4
"""So many of the latest lists of blocks are kept, to see that the pool leaves them alone."""


class VllmPool:
    """One instance of the class and its book of hashes.

    Optional methods that the instance cannot serve are set to None, which the contract reads as
    absent. A hash that the pool shows and was never given comes back as it is.
    """

    def __init__(
        self,
        shape: VllmShape,
        request_of: RequestOf,
        num_blocks: int,
        *,
        enable_caching: bool,
        with_events: bool,
    ) -> None:
        self._shape = shape
        self._request_of = request_of
        self._caching = enable_caching
        self._pool: Any = shape.build(num_blocks, enable_caching=enable_caching)
        self._blocks: Any = _blocks_of(self._pool)
        self._book = HashBook()
        self._requests: dict[TokenChain, Any] = {}
        self._kept: list[tuple[str, list[Any], list[Any]]] = []
        self._empties = False
        self._shown: dict[Any, Key] = {}
        self._get_cached_block = self._pool.get_cached_block
        self._hide_what_is_missing(with_events=with_events)
        queue: Any = getattr(self._pool, "free_block_queue", None)
        links = LinkedBlocks.find(queue, self._blocks, num_blocks)
        self.free_order: Any = None
        self.free_neighbours: Any = None
        if links is not None:
            self.free_order = links.free_order
            self.free_neighbours = links.free_neighbours
        elif callable(getattr(queue, "get_all_free_blocks", None)):
            self.free_order = lambda: [block.block_id for block in queue.get_all_free_blocks()]

    def allocate(self, n: int, /) -> Any:
        blocks = self._pool.get_new_blocks(n)
        if blocks is None:
            return None
        ids = ids_of(f"get_new_blocks({n})", blocks)
        self._own(f"get_new_blocks({n})", blocks)
        return ids

    def _own(self, answered: str, blocks: Any) -> None:
        """A list of blocks is its caller's: every other one is emptied, the rest are kept."""
        if type(blocks) is not list:
            return
        self._empties = not self._empties
        if self._empties:
            blocks.clear()
        else:
            self._kept = [*self._kept[-_MOST_KEPT + 1 :], (answered, blocks, list(blocks))]

    def poolproof_changed_answer(self) -> tuple[str, str, str] | None:
        """A list that was answered and has changed since: its call, what it was, what it is."""
        for answered, blocks, copy in self._kept:
            if len(blocks) != len(copy) or any(
                now is not was for now, was in zip(blocks, copy, strict=True)
            ):
                return answered, _ids_shown(copy), _ids_shown(blocks)
        return None

    def touch(self, block_ids: list[int], /) -> None:
        blocks = self._select(block_ids)
        self._pool.touch((blocks,) if self._shape.nested_touch else blocks)

    def free(self, block_ids: list[int], /) -> None:
        self._pool.free_blocks(self._select(block_ids))

    def cache(self, block_ids: list[int], hashes: list[bytes], /) -> None:
        """Blocks get opaque hashes, through a stand-in request."""
        if not self._caching:
            return
        for block_hash in hashes:
            self._book.learn_opaque(block_hash)
        request = self._shape.opaque_request(hashes)
        self._shape.call_cache_full(self._pool, request, self._select(block_ids), 0, 0)

    def lookup(self, key: Key, /) -> int | None:
        real = self._book.real(key)
        if real is None:
            return None
        found = self._find(self._shape.wrapped(real[0]), [real[1]])
        return None if found is None else found[0]

    def evict(self, block_ids: list[int], /) -> None:
        if self._caching:
            self._pool.evict_blocks(set(block_ids))

    def reset(self) -> Any:
        return self._pool.reset_prefix_cache()

    def num_free(self) -> Any:
        return self._pool.get_num_free_blocks()

    def ref_count(self, block_id: int, /) -> Any:
        return self._blocks[block_id].ref_cnt

    def block_hash(self, block_id: int, /) -> Any:
        """The key under which the block shows itself cached."""
        shown = self._blocks[block_id].block_hash
        if shown is None:
            return None
        key = self._shown.get(shown)
        return self._key_behind(shown) if key is None else key

    def take_events(self) -> list[dict[str, Any]]:
        return translate_events(self._pool.take_events(), self._book)

    def cache_chain(
        self, chain: TokenChain, block_ids: list[int], num_cached: int, group: int, /
    ) -> None:
        """The blocks of one request get the real hashes of its tokens and extra keys."""
        request = self._request(chain)
        if self._caching:
            blocks = self._select(block_ids)
            self._shape.call_cache_full(self._pool, request, blocks, num_cached, group)

    def lookup_chain(self, chain: TokenChain, num_tokens: int, groups: Sequence[int], /) -> Any:
        """One block for each group under the hash of the chain's first tokens, or None."""
        request = self._request(chain)
        full, rest = divmod(num_tokens, self._shape.hash_block_size)
        # An engine has no hash to ask for inside a hash block, nor for no tokens at all.
        if rest or not full:
            return None
        return self._find(request.block_hashes[full - 1], list(groups))

    def cache_partial(
        self, chain: TokenChain, block_id: int, num_tokens: int, group: int, /
    ) -> None:
        """A block becomes reachable under a key that ends inside it."""
        request = self._request(chain)
        if self._caching:
            block = self._select([block_id])[0]
            self._shape.call_cache_partial(self._pool, request, block, num_tokens, group)

    def usage(self) -> Any:
        return self._pool.get_usage()

    def _hide_what_is_missing(self, *, with_events: bool) -> None:
        hidden: Any = None
        for ours, theirs in (
            ("evict", "evict_blocks"),
            ("reset", "reset_prefix_cache"),
            ("cache_partial", "cache_partial_block"),
            ("usage", "get_usage"),
            ("take_events", "take_events"),
        ):
            if theirs in self._shape.without or not callable(getattr(self._pool, theirs, None)):
                setattr(self, ours, hidden)
        if self._shape.cache_partial is None:
            self.cache_partial = hidden  # type: ignore[method-assign]  # absent, as the contract writes it
        counter = "get_num_free_blocks"
        if counter in self._shape.without or not callable(getattr(self._pool, counter, None)):
            queue: Any = getattr(self._pool, "free_block_queue", None)
            if not hasattr(queue, "num_free_blocks"):
                raise TargetError(
                    f"{type(self._pool).__name__} has neither get_num_free_blocks() nor "
                    "free_block_queue.num_free_blocks; the adapter must be able to ask how many "
                    "blocks are free"
                )
            self.num_free = lambda: queue.num_free_blocks  # type: ignore[method-assign]  # the test above
        if not self._shape.has_groups:
            self.cache_chain = self.lookup_chain = self.cache_partial = hidden  # type: ignore[method-assign]  # absent, as the contract writes it
        if not with_events:
            self.take_events = hidden  # type: ignore[method-assign]  # the same
        block = self._blocks[0]
        if not hasattr(block, "ref_cnt"):
            self.ref_count = hidden  # type: ignore[method-assign]  # the same
        if not hasattr(block, "block_hash"):
            self.block_hash = hidden  # type: ignore[method-assign]  # the same

    def _select(self, block_ids: Sequence[int]) -> list[Any]:
        """The block objects; an id that has none cannot even be said to such a pool."""
        blocks = self._blocks
        try:
            selected = [blocks[block_id] for block_id in block_ids]
        except (IndexError, KeyError):
            selected = []
        if len(selected) != len(block_ids) or (block_ids and min(block_ids) < 0):
            raise ValueError(f"one of {list(block_ids)} is no block of this pool")
        return selected

    def _find(self, block_hash: bytes, groups: list[int]) -> list[int] | None:
        if self._shape.has_groups:
            blocks = self._get_cached_block(block_hash, groups)
        else:
            blocks = self._get_cached_block(block_hash)
        if blocks is None:
            return None
        if not isinstance(blocks, list | tuple):
            blocks = [blocks]
        return ids_of("get_cached_block()", blocks) or None

    def _request(self, chain: TokenChain) -> Any:
        request = self._requests.get(chain)
        if request is None:
            request = self._request_of(chain)
            self._book.learn_chain(chain, request.block_hashes, self._shape.hash_block_size)
            self._requests[chain] = request
        return request

    def _key_behind(self, shown: Any) -> Any:
        """Unpack hash and group: packed bytes, a pair, or the bare hash in group 0."""
        key: Key | None = None
        if isinstance(shown, bytes):
            key = self._book.key(shown[:-4], int.from_bytes(shown[-4:], "big"))
            if key is None:
                key = self._book.key(shown, 0)
        elif isinstance(shown, tuple) and len(shown) == 2:
            key = self._book.key(self._shape.unwrapped(shown[0]), shown[1])
        elif isinstance(self._shape.unwrapped(shown), bytes):
            key = self._book.key(self._shape.unwrapped(shown), 0)
        if key is None:
            return shown
        self._shown[shown] = key
        return key


def _blocks_of(pool: Any) -> Any:
    blocks: Any = getattr(pool, "blocks", None)
    try:
        if blocks[0].block_id == 0:
            return blocks
    except (TypeError, LookupError, AttributeError):
        pass
    raise TargetError(
        f"{type(pool).__name__} shows no list `blocks` of objects with a block_id; the adapter for "
        "vLLM V1's shape names blocks through it (or write a native target: `poolproof new FILE`)"
    )


def _ids_shown(blocks: Sequence[Any]) -> str:
    shown = ", ".join(str(getattr(block, "block_id", "?")) for block in blocks[:8])
    return f"[{shown}{', ...' if len(blocks) > 8 else ''}]"
