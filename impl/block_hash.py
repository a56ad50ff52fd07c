"""Chained block hashes: a name for a full block's tokens together with everything before them.

The KV of a block depends on its tokens, on all tokens before it and on what else went into the
model: adapter, images, prompt embeddings. Two blocks may share memory only when all of that is
equal, so all of it goes into the hash, in an encoding from which it could be read back: every
field is tagged with its kind and prefixed with its length, so that no two different inputs give
one byte string (adapter "X" and salt "X" once did, vllm#44701). What remains is the collision
resistance of the hash function itself: with "xxh64" or "xxh128" somebody who chooses tokens can
construct collisions and be served another user's cache (vllm#54727); "sha256" is the default.

Not covered: partial blocks, which have no hash, and truncation: who replaces tokens must drop the
hashes of their blocks and of all later ones (vllm#49377).
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

HashFunction = Callable[[bytes], bytes]

MAX_TOKEN = 2**63 - 1


@dataclass(frozen=True)
class LoRA:
    """The adapter of a request.

    Name and path, since a name can be loaded again from another path with other weights
    (vllm#30931).
    """

    name: str
    path: str


@dataclass(frozen=True)
class Salt:
    """A secret that keeps tenants apart.

    Given for the first block it separates the whole chain, as the later blocks inherit it through
    their parents; for which blocks is the caller's choice.
    """

    text: str


@dataclass(frozen=True)
class MultiModal:
    """An image, audio clip or video whose placeholders reach into the block.

    `identifier` names its content, because all placeholders are the same token (LMCache#690);
    `offset` is the position of its first placeholder relative to the block's first token,
    negative when it began in an earlier block.
    """

    identifier: str
    offset: int


@dataclass(frozen=True)
class Embeds:
    """Prompt embeddings in the block: a digest of the rows, and which positions they replace.

    `mask` has one byte a position where tokens and embeddings are mixed; without it a position
    that is routed to the token and one that is routed to the row look alike (vllm#56655).
    """

    digest: bytes
    mask: bytes = b""


ExtraKey = LoRA | Salt | MultiModal | Embeds


class BlockHasher:
    """Hashes blocks of `block_size` tokens into a chain that starts from `seed`.

    Args:
        function: "sha256", "xxh128", "xxh64", or a callable from bytes to bytes.
        seed: what the first block of every sequence chains from; not empty. Two processes agree
            on hashes if and only if they agree on it (vllm#21161). There is no default: a known
            root makes collisions under a weak function constructible offline (vllm#12621), and a
            random one silently ends sharing between processes.
        block_size: tokens in a block, at least 1.

    Raises ValueError for other arguments. Order counts in `extra_keys`: the same keys in another
    order are another hash, which costs a hit and never serves a wrong one.
    """

    def __init__(
        self, function: str | HashFunction = "sha256", *, seed: bytes, block_size: int
    ) -> None:
        if not isinstance(seed, bytes) or not seed:
            raise ValueError(f"seed must be bytes and not empty, not {seed!r}")
        if type(block_size) is not int or block_size < 1:
            raise ValueError(f"block_size must be an int of at least 1, not {block_size!r}")
        self.block_size = block_size
        self._digest = hash_function(function)
        self._root = b"R" + sized(seed)

    def hash_block(
        self,
        parent: bytes | None,
        tokens: Sequence[int],
        extra_keys: Sequence[ExtraKey] = (),
    ) -> bytes:
        """The hash of one full block; `parent` is the hash of the block before, None for none.

        Raises ValueError unless there are exactly block_size tokens, ints from 0 to 2**63 - 1;
        TypeError when an injected function does not return bytes.
        """
        if parent is not None and (not isinstance(parent, bytes) or not parent):
            raise ValueError(f"parent must be None or a block hash, not {parent!r}")
        if len(tokens) != self.block_size:
            raise ValueError(
                f"a full block has {self.block_size} tokens, not {len(tokens)}; "
                "partial blocks have no hash"
            )
        # A missing parent has a tag of its own: continuing a chain from "no parent" would name a
        # block in the middle as a first one (found in nano-vllm, fixed there in 9fa256a).
        message = [
            self._root if parent is None else b"P" + sized(parent),
            encoded_tokens(tokens),
            *map(encoded_key, extra_keys),
        ]
        block_hash = self._digest(b"".join(message))
        if not isinstance(block_hash, bytes) or not block_hash:
            raise TypeError(f"the hash function must return bytes, not {block_hash!r}")
        return block_hash

    def hash_sequence(
        self,
        tokens: Sequence[int],
        extra_keys_by_block: Mapping[int, Sequence[ExtraKey]] | None = None,
    ) -> list[bytes]:
        """The hashes of the full blocks of a sequence, len(tokens) // block_size of them.

        `extra_keys_by_block` maps the index of a block to its extra keys; keys for a partial last
        block may be given and are not used. Raises ValueError for an index beyond it, besides
        what `hash_block` raises.
        """
        extra = extra_keys_by_block or {}
        size = self.block_size
        for index in extra:
            if type(index) is not int or not 0 <= index * size < max(len(tokens), 1):
                raise ValueError(
                    f"extra_keys_by_block: there is no block {index!r} in {len(tokens)} tokens"
                )
        hashes: list[bytes] = []
        parent: bytes | None = None
        for index in range(len(tokens) // size):
            block = tokens[index * size : (index + 1) * size]
            parent = self.hash_block(parent, block, extra.get(index, ()))
            hashes.append(parent)
        return hashes


def hash_function(function: str | HashFunction) -> HashFunction:
    """The function from bytes to a digest. Raises ValueError for an unknown name."""
    if callable(function):
        return function
    if function == "sha256":
        return lambda data: hashlib.sha256(data).digest()
    if function in ("xxh64", "xxh128"):
        # Imported here, so that an engine on sha256 does not need the package.
        import xxhash

        digest: HashFunction = getattr(xxhash, f"{function}_digest")
        return digest
    raise ValueError(
        f"function must be 'sha256', 'xxh128', 'xxh64' or a callable, not {function!r}"
    )


def sized(data: bytes) -> bytes:
    """Bytes behind their length, so that where a field ends does not depend on its content."""
    return len(data).to_bytes(8, "little") + data


def encoded_tokens(tokens: Sequence[int]) -> bytes:
    """Tag, count and 8 bytes a token, little-endian on every machine."""
    # True equals 1 and would be packed as such; types are compared for that reason.
    if set(map(type, tokens)) != {int} or min(tokens) < 0 or max(tokens) > MAX_TOKEN:
        raise ValueError(f"tokens must be ints from 0 to 2**63 - 1, not {list(tokens)!r}")
    packed = array("q", tokens)
    if sys.byteorder == "big":  # pragma: no cover - no such machine runs the tests
        packed.byteswap()
    return b"T" + sized(packed.tobytes())


def encoded_key(key: ExtraKey) -> bytes:
    """An extra key: a tag for its kind, then its fields behind their lengths.

    Raises ValueError for anything that is none of the four kinds, or has fields of other types:
    an untyped string cannot say what it stands for (llm-d-router#2927).
    """
    if isinstance(key, LoRA) and isinstance(key.name, str) and isinstance(key.path, str):
        return b"L" + sized(text(key.name)) + sized(text(key.path))
    if isinstance(key, Salt) and isinstance(key.text, str):
        return b"S" + sized(text(key.text))
    if isinstance(key, MultiModal) and isinstance(key.identifier, str) and type(key.offset) is int:
        return b"M" + sized(text(key.identifier)) + sized(b"%d" % key.offset)
    if isinstance(key, Embeds) and isinstance(key.digest, bytes) and isinstance(key.mask, bytes):
        return b"E" + sized(key.digest) + sized(key.mask)
    raise ValueError(f"{key!r} is no extra key; use LoRA, Salt, MultiModal or Embeds")


def text(value: str) -> bytes:
    """UTF-8, lone surrogates included, so that every str has bytes of its own."""
    return value.encode("utf-8", "surrogatepass")
