"""Names for contents: one short name for each distinct prefix of tokens with its extra keys.

Two positions may share keys and values if and only if their whole prefixes are equal: tokens,
LoRA adapter, salt, what the images under the tokens show, and the weights. A name stands for one
such prefix in one cache group. Names are given out as prefixes appear, so equal names mean equal
prefixes and nothing else: no hash is involved that could collide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.prefix_words import Prefix

__all__ = ["Content", "ContentNames"]

Content = bytes
"""The name of a prefix."""

Item = int | tuple[object, ...]
"""What a prefix has beyond its parent: a token, with what an image shows there."""


class ContentNames:
    """Gives names to prefixes and tells what a name stands for."""

    def __init__(self) -> None:
        self._names: dict[tuple[Content, Item], Content] = {}
        self._origins: dict[Content, tuple[Content, Item]] = {}

    def __len__(self) -> int:
        """How many prefixes have a name."""
        return len(self._names)

    def clear(self) -> None:
        """Forget all names; nobody may hold one."""
        self._names.clear()
        self._origins.clear()

    def of_chain(self, chain: TokenChain, group: int = 0) -> list[Content]:
        """The names of all prefixes of a chain, the shortest first."""
        return self.extended(self.root(chain, group), chain, chain.tokens, 0)

    def root(self, chain: TokenChain, group: int = 0) -> Content:
        """The name of the empty prefix under the chain's adapter, salt and weights."""
        return self._named(b"", (chain.lora, chain.salt, group, chain.weights))

    def extended(
        self, parent: Content, chain: TokenChain, tokens: Sequence[int], offset: int
    ) -> list[Content]:
        """The names of the prefixes that end with each of `tokens`, which follow `parent`.

        The first of the tokens stands at position `offset` of the chain, whose images count.
        """
        names = []
        known = self._names
        if not chain.images:
            for token in tokens:
                parent = known.get((parent, token)) or self._named(parent, token)
                names.append(parent)
            return names
        for position, token in enumerate(tokens, start=offset):
            shown = [
                (image.identifier, position - image.offset)
                for image in chain.images
                if image.offset <= position < image.offset + image.length
            ]
            parent = self._named(parent, (token, *shown) if shown else token)
            names.append(parent)
        return names

    def parent(self, content: Content) -> Content:
        """The name of the prefix without its last token."""
        return self._origins[content][0]

    def tokens(self, content: Content) -> tuple[int, ...]:
        """The tokens of the prefix that a name stands for."""
        tokens: list[int] = []
        while True:
            content, item = self._origins[content]
            if not content:
                return tuple(reversed(tokens))
            tokens.append(_token(item))

    def last_token(self, content: Content) -> int:
        """The token at the end of the prefix, which has one, that a name stands for."""
        return _token(self._origins[content][1])

    def prefix(self, content: Content) -> Prefix:
        """The prefix that a name stands for, with all that tells it from others."""
        items: list[Item] = []
        while True:
            content, item = self._origins[content]
            if not content:
                break
            items.append(item)
        items.reverse()
        lora, salt, group, weights = item  # type: ignore[misc]  # as `root` put them in
        tokens = tuple(map(_token, items))
        return Prefix(tokens, lora, salt, tuple(_images(items)), group, weights)  # type: ignore[arg-type]  # as in `root`

    def _named(self, parent: Content, item: Item) -> Content:
        name = self._names.get((parent, item))
        if name is None:
            name = len(self._names).to_bytes(4, "big")
            self._names[parent, item] = name
            self._origins[name] = (parent, item)
        return name


def _token(item: Item) -> int:
    return item if isinstance(item, int) else int(str(item[0]))


def _images(items: Sequence[Item]) -> Iterator[Image]:
    """The images over a prefix, each as far as the prefix reaches."""
    lengths: dict[tuple[str, int], int] = {}
    for position, item in enumerate(items):
        for shown in item[1:] if isinstance(item, tuple) else ():
            assert isinstance(shown, tuple)
            identifier, inside = shown
            lengths[str(identifier), position - inside] = inside + 1
    for (identifier, offset), length in lengths.items():
        yield Image(identifier, offset, length)
