"""Words lists and prefixes for a sentence: short however long they are, and complete in kind.

A prefix is all that flows into the KV of its last position. Two of them may have the same tokens
and differ in an adapter, a salt, an image, the cache group or the weights alone; or differ at a
token that a shortened list leaves out. So what two of them differ in is said in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from poolproof.contract.content import ContentKey, Image

__all__ = ["Prefix", "listed", "shortened"]

_MOST = 12
_ENDS = 4


def shortened(items: Sequence[object], noun: str = "in all", most: int = _MOST) -> list[str]:
    """The items as texts; of more than `most` the first, how many there are, and the last."""
    if len(items) <= most:
        return list(map(str, items))
    left_out = f"... ({len(items):,} {noun}) ..."
    return [*map(str, items[:_ENDS]), left_out, *map(str, items[-_ENDS:])]


def listed(items: Sequence[object], most: int = _MOST) -> str:
    """Items in brackets: "[0, 1, 2]", or "[0, 1, 2, 3, ... (40 in all) ..., 36, 37, 38, 39]"."""
    return f"[{', '.join(shortened(items, most=most))}]"


@dataclass(frozen=True, slots=True)
class Prefix:
    """A prefix of tokens in one cache group, with all that changes its KV.

    `images` cover the tokens from `offset` on; a `length` of 0 stands for one that is not known.
    `weights` says which weights computed it, None for those that are loaded.
    """

    tokens: tuple[int, ...]
    lora: tuple[str, str] | None = None
    salt: str | None = None
    images: tuple[Image, ...] = ()
    group: int = 0
    weights: str | None = None

    @classmethod
    def of_key(cls, key: ContentKey) -> Prefix:
        """The prefix that a content key names."""
        images = tuple(Image(identifier, offset, 0) for identifier, offset in key.images)
        return cls(key.tokens, key.lora, key.salt, images, key.group)

    def words(self) -> str:
        """The tokens, and what else there is: "0 1 2, salt x, image cat at tokens 1-2"."""
        return ", ".join([" ".join(shortened(self.tokens, "tokens")), *self._extras()])

    def difference_from(self, other: Prefix) -> str:
        """What the two differ in, such as "only the salt differs".

        Empty where the words of both show it: other tokens, and none of them left out.
        """
        tokens, extras = self._different_tokens(other), list(self._different_extras(other))
        named = " and ".join(filter(None, [", ".join(extras[:-1]), *extras[-1:]]))
        is_one = len(extras) == 1 and not extras[0].endswith("s")
        if not tokens:
            return f"only {named} {'differs' if is_one else 'differ'}" if named else ""
        if extras:
            return f"{tokens}, and so {'does' if is_one else 'do'} {named}"
        is_plain = len(self.tokens) <= _MOST and len(other.tokens) <= _MOST
        return "" if is_plain else tokens

    def _extras(self) -> Iterator[str]:
        if self.lora is not None:
            yield f"lora {self.lora[0]} at {self.lora[1]}"
        if self.salt is not None:
            yield f"salt {self.salt or repr(self.salt)}"
        for image in self.images:
            last = image.offset + image.length - 1
            where = (
                f"tokens {image.offset}-{last}" if last > image.offset else f"token {image.offset}"
            )
            yield f"image {image.identifier} at {where}"
        if self.weights is not None:
            yield f"weights {self.weights}"

    def _different_tokens(self, other: Prefix) -> str:
        pairs = zip(self.tokens, other.tokens, strict=False)
        for position, (mine, its) in enumerate(pairs):
            if mine != its:
                return f"the tokens differ from position {position} on ({mine} against {its})"
        lengths = len(self.tokens), len(other.tokens)
        if lengths[0] == lengths[1]:
            return ""
        return f"the one is {lengths[0]:,} tokens long and the other {lengths[1]:,}"

    def _different_extras(self, other: Prefix) -> Iterator[str]:
        if self.lora != other.lora:
            yield "the adapter"
        if self.salt != other.salt:
            yield "the salt"
        if self._images_differ(other):
            yield "the images" if self.images and other.images else "an image"
        if self.group != other.group:
            yield "the cache group"
        if self.weights != other.weights:
            yield "the weights"

    def _images_differ(self, other: Prefix) -> bool:
        """Over the tokens that both have: a longer prefix may simply reach further images."""
        common = min(len(self.tokens), len(other.tokens))
        return self._shown_until(common) != other._shown_until(common)

    def _shown_until(self, end: int) -> set[tuple[str, int, int]]:
        return {
            (image.identifier, image.offset, min(image.length, end - image.offset))
            for image in self.images
            if image.offset < end
        }
