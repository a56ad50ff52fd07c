"""The block hashes that one instance has been given, with the contents that they represent.

Engines hash tokens and extra keys to bytes; the harness speaks of contents. The book translates
both ways, and because it sees every pair it also shows whether the hashing is injective: two
contents under one hash would give one request KV that was computed for another, and one content
under two hashes would lose hits. It does not hash anything itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from poolproof.contract.content import ContentKey, Key, TokenChain
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.violation import Severity, Violation, ViolationError

__all__ = ["HashBook"]


class HashBook:
    """Block hash <-> content. Opaque keys represent themselves, in group 0.

    Hashes are kept without a group, as engines compute them: the group joins a key where it
    enters the index.
    """

    def __init__(self) -> None:
        self._contents: dict[bytes, Key] = {}
        self._hashes: dict[ContentKey, bytes] = {}
        self._real: dict[Key, tuple[bytes, int]] = {}

    def learn_chain(self, chain: TokenChain, hashes: Sequence[bytes], step: int) -> None:
        """Note that hash i covers the chain's first (i + 1) * step tokens.

        Raises ViolationError if a hash already represents another content (DATA), or a content
        already has another hash (IDX).
        """
        for number, block_hash in enumerate(hashes, start=1):
            content = chain.prefix(number * step, 0)
            known = self._contents.setdefault(block_hash, content)
            if known != content:
                raise ViolationError(_collision(block_hash, known, content))
            earlier = self._hashes.setdefault(content, block_hash)
            if earlier != block_hash:
                raise ViolationError(_two_hashes(content, earlier, block_hash))

    def learn_opaque(self, block_hash: bytes) -> None:
        """Note a hash that represents itself."""
        self._contents.setdefault(block_hash, block_hash)

    def real(self, key: Key) -> tuple[bytes, int] | None:
        """The hash and the group behind a key; None for a content that was never hashed."""
        found = self._real.get(key)
        if found is None:
            if isinstance(key, bytes):
                found = (key, 0)
            else:
                block_hash = self._hashes.get(replace(key, group=0) if key.group else key)
                if block_hash is None:
                    return None
                found = (block_hash, key.group)
            self._real[key] = found
        return found

    def key(self, block_hash: bytes, group: int) -> Key | None:
        """The key behind a hash in a group; None for a hash that was never given."""
        content = self._contents.get(block_hash)
        if isinstance(content, ContentKey):
            return replace(content, group=group) if group else content
        return content if group == 0 else None


def _collision(block_hash: bytes, known: Key, content: ContentKey) -> Violation:
    difference = ""
    if isinstance(known, ContentKey):
        difference = Prefix.of_key(content).difference_from(Prefix.of_key(known))
    return Violation(
        "DATA",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"two different contents have the block hash {block_hash.hex()[:16]}: {_words(known)}, "
        f"and {_words(content)}{f' ({difference})' if difference else ''}; a request with the one "
        "would read KV computed for the other",
    )


def _two_hashes(content: ContentKey, earlier: bytes, now: bytes) -> Violation:
    return Violation(
        "IDX",
        Severity.LOST_HIT,
        f"one content has two block hashes, {earlier.hex()[:16]} before and {now.hex()[:16]} "
        f"now: {_words(content)}; what was cached under the first is never found again",
    )


def _words(content: Key) -> str:
    if isinstance(content, bytes):
        return f"the opaque hash {content.hex()[:16]}"
    has_extras = content.lora is not None or content.salt is not None or content.images
    return f"<{Prefix.of_key(content).words()}>" + ("" if has_extras else " with no extra keys")
