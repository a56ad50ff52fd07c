"""SGLang's radix cache over its page allocator behind the native manager contract.

The real functions do the work; the adapter does what the scheduler does around them: the prefix is
matched and locked, then room is looked for; slots are taken by an extend for prompts and chunks, by
a decode for a single sampled token, both of which evict first; an extend is checkpointed into the
tree after its forward pass, a decode is not; a finished request is checkpointed on release, a
retracted or aborted one is not.

Where it stands in for the scheduler:
- room: an extend is granted when free and evictable slots hold its pages; what the scheduler keeps
  in reserve for decoding is its policy. A decode is asked for with `check_decode_capacity`.
- several tokens appended at once are an extend of what was computed, as in a session's next turn.
- a request that ends while tokens of it wait for the forward pass is not checkpointed.
- images: the token ids under one are replaced by ids of its own, as the server's pad values do.
"""

from __future__ import annotations

from typing import Any

from poolproof.targets.installed_sglang import Sglang
from poolproof.targets.nano_manager_tokens import TokenNames
from poolproof.targets.sglang_manager_pages import NO_PAGE, RadixPages
from poolproof.targets.sglang_manager_request import SglangRequest

__all__ = ["SglangManager"]

Copies = list[tuple[int, int]]


class SglangManager:
    """`tree` over its own allocator and request pool, driven as SGLang's scheduler drives them."""

    def __init__(self, parts: Sglang, tree: Any) -> None:
        self._parts = parts
        self._tree = tree
        self._allocator = tree.token_to_kv_pool_allocator
        self._rows = tree.req_to_token_pool
        self._page_size: int = tree.page_size
        self._requests: dict[int, SglangRequest] = {}
        self._names = TokenNames(enable_caching=True)
        self._pages = RadixPages(tree)

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        request = self._request(str(seq_id), tokens, extra_keys)
        self._pages.may_have_changed()
        if not self._rows.available_size():
            return "later"  # the scheduler looks before it takes a request
        cached = self._match(request)
        request.kv.cache_protected_len = request.computed = cached
        request.lock = self._tree.lock(request.last_node)
        left = len(tokens) - cached
        end = cached + min(num_tokens or left, left)
        if not self._has_room(cached, end):
            self._tree.unlock(request.lock)
            return "later"
        prefix = self._tree.prefix_device_indices(request)
        self._rows.alloc([request])
        self._rows.write((request.kv.req_pool_idx, slice(0, cached)), prefix)
        self._extend(request, cached, end)
        self._requests[seq_id] = request
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        request = self._requests[seq_id]
        self._pages.may_have_changed()
        first = request.kv.kv_allocated_len
        end = first + len(tokens)
        is_decoding = len(tokens) == 1 and first == request.computed
        fits = self._can_decode(request) if is_decoding else self._has_room(first, end)
        if not fits:
            return "later"
        request.output_ids.extend(tokens)
        if is_decoding:
            self._decode(request)
        else:
            self._extend(request, first, end)
        request.is_decoding = is_decoding
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        request = self._requests[seq_id]
        self._pages.may_have_changed()
        first = request.kv.kv_allocated_len
        if not self._has_room(first, first + num_tokens):
            return "later"
        self._extend(request, first, first + num_tokens)
        request.is_decoding = False
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """After the forward pass extends are checkpointed, request by request."""
        self._pages.may_have_changed()
        for seq_id, count in batch:
            request = self._requests[seq_id]
            request.computed += count
            if not request.is_decoding:
                self._parts.checkpoint_kv_cache(request, self._tree)

    def preempt(self, seq_id: int) -> None:
        """A retraction: what was checkpointed before stays in the tree."""
        self._release(self._requests.pop(seq_id), checkpoint=False)

    def finish(self, seq_id: int) -> None:
        request = self._requests.pop(seq_id, None)
        if request is not None:
            is_settled = request.computed == request.kv.kv_allocated_len
            request.has_ended = True
            self._release(request, checkpoint=is_settled)

    def abort(self, seq_id: int) -> None:
        request = self._requests.pop(seq_id, None)
        if request is not None:
            request.has_ended = True
            self._release(request, checkpoint=False)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: Any = None) -> int:
        """A match without a lock, as the scheduler makes one for its waiting requests."""
        self._pages.may_have_changed()
        return self._match(self._request("", tokens, extra_keys))

    def reset(self) -> bool:
        """`flush_cache`: the tree, the rows and the allocator begin anew."""
        if self._requests:
            return False
        self._pages.may_have_changed()
        self._tree.reset()
        self._rows.clear()
        self._allocator.clear()
        return True

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        kv = self._requests[seq_id].kv
        slots = self._rows.req_to_token[kv.req_pool_idx, : kv.kv_allocated_len].tolist()
        return [
            self._block(slots[first : first + self._page_size])
            for first in range(0, len(slots), self._page_size)
        ]

    def num_free(self) -> int:
        slots: int = self._allocator.available_size() + self._tree.evictable_size()
        return slots // self._page_size

    def free_order(self) -> list[int]:
        """Free pages, and pages of the tree that nobody has locked; the order means nothing."""
        pages = self._allocator.get_all_free_pages().tolist()
        return [page - 1 for page in pages + self._pages.unlocked()]

    def is_cached(self, block_id: int) -> bool:
        return block_id + 1 in self._pages.locks()

    def ref_count(self, block_id: int) -> int:
        """Locks on pages of the tree; others are free, or in the row of the one that has them."""
        locks = self._pages.locks()
        if block_id + 1 in locks:
            return locks[block_id + 1]
        return 0 if block_id in self.free_order() else 1

    def _block(self, slots: list[int]) -> int:
        """The page whose first slots these are, numbered from 0; slot 0 begins the padding page."""
        page, offset = divmod(slots[0], self._page_size)
        if offset or slots != list(range(slots[0], slots[0] + len(slots))):
            return NO_PAGE
        return page - 1

    def _request(self, name: str, tokens: list[int], extra_keys: Any) -> SglangRequest:
        """Adapters go into the extra key, as the server puts their id there; salts are salts."""
        whole = {kind: value for kind, value, _, end in extra_keys or () if end is None}
        images = [keys for keys in extra_keys or () if keys[3] is not None]
        extra_key = "@".join(whole["lora"]) if "lora" in whole else None
        named = self._names.named(tokens, (), images)
        return SglangRequest(name, named, extra_key, whole.get("salt"))

    def _match(self, request: SglangRequest) -> int:
        request.refresh_fill_ids()
        ids = request.full_untruncated_fill_ids
        self._parts.match_kv_cache(request, self._tree, ids, max_prefix_len=len(ids) - 1)
        return request.prefix_len

    def _has_room(self, first: int, end: int) -> bool:
        """Whether free and evictable pages hold the positions from `first` on."""
        size = self._page_size
        needed = -(-end // size) - -(-first // size)
        return needed <= self.num_free()

    def _can_decode(self, request: SglangRequest) -> bool:
        """The engine's own question, for one request."""
        needed = request.kv.kv_allocated_len % self._page_size == 0
        can: bool = self._allocator.check_decode_capacity(
            num_tokens=self._page_size * needed, tree_cache=self._tree
        )
        return can

    def _extend(self, request: SglangRequest, first: int, end: int) -> None:
        request.refresh_fill_ids()
        slots = self._pages.extend(self._parts, self._row(request), first, end)
        self._rows.write((request.kv.req_pool_idx, slice(first, end)), slots)
        request.extend_end = request.kv.kv_allocated_len = request.kv.kv_committed_len = end

    def _decode(self, request: SglangRequest) -> None:
        length = request.kv.kv_allocated_len
        slots = self._pages.decode(self._parts, self._row(request), length)
        self._rows.write((request.kv.req_pool_idx, slice(length, length + 1)), slots)
        request.kv.kv_allocated_len = request.kv.kv_committed_len = length + 1

    def _row(self, request: SglangRequest) -> Any:
        return self._rows.req_to_token[request.kv.req_pool_idx]

    def _release(self, request: SglangRequest, *, checkpoint: bool) -> None:
        self._pages.may_have_changed()
        self._parts.release_kv_cache(request, self._tree, checkpoint=checkpoint)
