"""What a block hash represents: a prefix of tokens with everything that affects its KV.

A `TokenChain` is a request's tokens together with the extra keys that change the keys and
values computed from them (LoRA adapter, cache salt, images). A `ContentKey` is the prefix of a
chain that ends at some token, in one cache group: two positions may share KV if and only if
their content keys are equal. Targets that hash real tokens are checked against this identity,
so that a collision between two different contents is seen.

Not covered: how any engine turns a content key into bytes; that is the target's own business.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = ["ContentKey", "Image", "Key", "TokenChain", "key_from_json", "key_to_json"]


@dataclass(frozen=True, slots=True)
class Image:
    """A multimodal item whose placeholder tokens start at `offset` and are `length` long."""

    identifier: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class ContentKey:
    """The content that one block hash stands for: everything that flows into its KV.

    `tokens` is the whole prefix, not the last block alone: attention is causal, so the KV of a
    position depends on all tokens before it, which is why engines chain their hashes.
    """

    tokens: tuple[int, ...]
    lora: tuple[str, str] | None
    salt: str | None
    images: tuple[tuple[str, int], ...]
    group: int


@dataclass(frozen=True, slots=True)
class TokenChain:
    """Tokens of one request and the extra keys that apply to them.

    `lora` is the adapter's name and path; `salt` isolates tenants; `images` are sorted by offset.
    `weights` says which weights compute the tokens, None for those that are loaded. No request asks
    for others, so it is not written into traces.
    """

    tokens: tuple[int, ...]
    lora: tuple[str, str] | None = None
    salt: str | None = None
    images: tuple[Image, ...] = ()
    weights: str | None = None

    def prefix(self, num_tokens: int, group: int) -> ContentKey:
        """The identity of the first `num_tokens` tokens in cache group `group`."""
        assert 0 < num_tokens <= len(self.tokens)
        return ContentKey(
            self.tokens[:num_tokens],
            self.lora,
            self.salt,
            tuple((i.identifier, i.offset) for i in self.images if i.offset < num_tokens),
            group,
        )

    def extra_keys(self) -> tuple[tuple[str, object, int, int | None], ...] | None:
        """What changes the KV besides the tokens, as plain values; None where nothing does.

        Entries are `(kind, value, first, end)`: the adapter ("lora", (name, path), 0, None), the
        salt ("salt", text, 0, None), and each image ("image", identifier, first, end) over the
        positions from `first` to `end` - 1.
        """
        if self.lora is None and self.salt is None and not self.images:
            return None
        keys: list[tuple[str, object, int, int | None]] = []
        if self.lora is not None:
            keys.append(("lora", self.lora, 0, None))
        if self.salt is not None:
            keys.append(("salt", self.salt, 0, None))
        keys += [("image", i.identifier, i.offset, i.offset + i.length) for i in self.images]
        return tuple(keys)

    @classmethod
    def from_extra_keys(
        cls,
        tokens: Iterable[int],
        extra_keys: Iterable[tuple[str, Any, int, int | None]] | None,
    ) -> TokenChain:
        """The chain of these tokens that `extra_keys` belongs to."""
        lora: tuple[str, str] | None = None
        salt: str | None = None
        images: list[Image] = []
        for kind, value, first, end in extra_keys or ():
            if kind == "lora":
                lora = value
            elif kind == "salt":
                salt = value
            else:
                images.append(Image(value, first, (end or first) - first))
        return cls(tuple(tokens), lora, salt, tuple(images))

    def to_json(self) -> dict[str, Any]:
        """This chain as plain JSON values."""
        return {
            "tokens": list(self.tokens),
            "lora": list(self.lora) if self.lora else None,
            "salt": self.salt,
            "images": [[i.identifier, i.offset, i.length] for i in self.images],
        }

    @classmethod
    def from_json(cls, value: Any) -> TokenChain:
        """The chain that `to_json` wrote. Raises TypeError, KeyError or ValueError otherwise."""
        lora = value["lora"]
        return cls(
            tokens=tuple(int(token) for token in value["tokens"]),
            lora=None if lora is None else (str(lora[0]), str(lora[1])),
            salt=None if value["salt"] is None else str(value["salt"]),
            images=tuple(Image(str(i), int(o), int(n)) for i, o, n in value["images"]),
        )


Key = bytes | ContentKey
"""What the prefix index is asked for: an opaque hash, or the content that a hash stands for."""


def key_to_json(key: Key) -> Any:
    """A key as JSON: an opaque hash as hexadecimal text, a content key as an object."""
    if isinstance(key, bytes):
        return key.hex()
    return {
        "tokens": list(key.tokens),
        "lora": list(key.lora) if key.lora else None,
        "salt": key.salt,
        "images": [list(image) for image in key.images],
        "group": key.group,
    }


def key_from_json(value: Any) -> Key:
    """The key that `key_to_json` wrote. Raises TypeError, KeyError or ValueError otherwise."""
    if isinstance(value, str):
        return bytes.fromhex(value)
    lora = value["lora"]
    return ContentKey(
        tokens=tuple(int(token) for token in value["tokens"]),
        lora=None if lora is None else (str(lora[0]), str(lora[1])),
        salt=None if value["salt"] is None else str(value["salt"]),
        images=tuple((str(i), int(o)) for i, o in value["images"]),
        group=int(value["group"]),
    )
