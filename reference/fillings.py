"""Which content each block was filled with last, whether or not it carries the key of it.

Where contents decide (`index` is "content"), a target may give a key to any block that is full of
what the key stands for, and again to one that has lost it. With `duplicates` at "first" the next
one that is filled with the same gets the key only if no such block has taken it unseen. A block
counts until it is filled anew: one that was handed out and not yet written holds what it held.
"""

from __future__ import annotations

from poolproof.reference.content_names import Content

__all__ = ["Fillings"]


class Fillings:
    """The blocks of one manager and what they were filled with."""

    def __init__(self) -> None:
        self._content: dict[int, Content] = {}
        self._blocks: dict[Content, set[int]] = {}

    def note(self, block: int, content: Content) -> None:
        """A block was filled."""
        if block in self._content:
            before = self._content[block]
            self._blocks[before].remove(block)
            if not self._blocks[before]:
                del self._blocks[before]
        self._content[block] = content
        self._blocks.setdefault(content, set()).add(block)

    def has_twin(self, block: int, content: Content) -> bool:
        """Whether another block was filled with the same."""
        return bool(self._blocks.get(content, set()) - {block})
