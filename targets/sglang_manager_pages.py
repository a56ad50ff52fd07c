"""Pages of SGLang's allocators: taking slots of one request, and what the radix tree holds.

The engine's functions take batches as tensors; here a batch is one request. With one slot a page
the engine uses another allocator and another function, which is followed here.
"""

from __future__ import annotations

from typing import Any

from poolproof.targets.installed_sglang import Sglang

__all__ = ["NO_PAGE", "RadixPages"]

NO_PAGE = -1
"""Stands in a table where the slots of a request lie in no page."""


class RadixPages:
    """The pages of a tree's allocator; what the tree shows is read once until something changes."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._page_size: int = tree.page_size
        self._seen: tuple[dict[int, int], list[int]] | None = None

    def extend(self, parts: Sglang, row: Any, first: int, end: int) -> Any:
        """Slots for the positions from `first` to `end` - 1 of a row, as a tensor."""
        if self._page_size == 1:
            return parts.alloc_token_slots(self._tree, end - first)
        before, after = row.new_tensor([first]).long(), row.new_tensor([end]).long()
        last = row[first - 1 : first].long() if first else row.new_tensor([-1]).long()
        return parts.alloc_paged_token_slots_extend(
            self._tree, before, before, after, after, last, end - first
        )

    def decode(self, parts: Sglang, row: Any, length: int) -> Any:
        """The slot for position `length` of a row, as a tensor."""
        if self._page_size == 1:
            return parts.alloc_token_slots(self._tree, 1)
        after = row.new_tensor([length + 1]).long()
        last = row[length - 1 : length].long()
        return parts.alloc_paged_token_slots_decode(self._tree, after, after, last)

    def may_have_changed(self) -> None:
        """The tree is read again before the next answer."""
        self._seen = None

    def locks(self) -> dict[int, int]:
        """How often each page that the tree holds is locked; one that stands there twice adds up.

        Whoever uses a page of the tree has locked the path to it.
        """
        return self._read()[0]

    def unlocked(self) -> list[int]:
        """The pages of nodes without a lock, as often as they stand there."""
        return self._read()[1]

    def _read(self) -> tuple[dict[int, int], list[int]]:
        if self._seen is None:
            locks: dict[int, int] = {}
            unlocked: list[int] = []
            waiting = list(self._tree.root_node.children.values())
            while waiting:
                node = waiting.pop()
                waiting += node.children.values()
                firsts = node.value[:: self._page_size].tolist()
                for page in [slot // self._page_size for slot in firsts]:
                    locks[page] = locks.get(page, 0) + node.lock_ref
                    if node.lock_ref == 0:
                        unlocked.append(page)
            self._seen = locks, unlocked
        return self._seen
