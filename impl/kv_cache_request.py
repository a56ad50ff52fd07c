"""A request as a KV-cache manager sees it: its tokens, how far they are computed, their hashes.

`ManagedRequest` is what a manager reads, so an engine may pass requests of its own. `Request` is
a small one that hashes its blocks when they are asked for. Prompt embeddings are not covered by
it: an engine that has them computes `block_hashes` itself, with
`poolproof.impl.block_hash.Embeds`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from poolproof.impl.block_hash import BlockHasher, ExtraKey, LoRA, MultiModal, Salt


class ManagedRequest(Protocol):
    """What a manager reads of a request. It writes nothing.

    `num_tokens`: prompt and accepted output tokens, no drafts. `num_computed_tokens`: how many of
    the first have their KV in the request's blocks; 0 for a request without blocks.
    `num_in_flight_tokens`: how many of the computed ones are counted before their forward pass is
    over and settled, with asynchronous scheduling. `block_hashes`: one for each full block of the
    manager's hash block size, over all tokens.
    """

    @property
    def request_id(self) -> str: ...
    @property
    def num_tokens(self) -> int: ...
    @property
    def num_computed_tokens(self) -> int: ...
    @property
    def num_in_flight_tokens(self) -> int: ...
    @property
    def num_preemptions(self) -> int: ...
    @property
    def block_hashes(self) -> list[bytes]: ...


@dataclass(frozen=True)
class ImageSpan:
    """An image (or clip) in the prompt: what it shows, and which positions it takes.

    `identifier` names the content, `first_token` is the position of its first placeholder.
    """

    identifier: str
    first_token: int
    num_tokens: int


class Request:
    """A request with its tokens.

    Args:
        request_id: unique among the requests that have blocks.
        token_ids: the prompt.
        hasher: hashes blocks of the manager's hash block size. Without one there are no hashes,
            for a manager without prefix caching.
        lora: the adapter. It goes into every block, so that what an event or a connector sees of a
            block alone tells adapters apart.
        salt: keeps tenants apart; goes into the first block, from which all others chain.
        images: what the placeholders in the prompt stand for.

    `num_computed_tokens`, `num_in_flight_tokens` and `num_preemptions` are the engine's to set.
    """

    def __init__(
        self,
        request_id: str,
        token_ids: Iterable[int],
        *,
        hasher: BlockHasher | None = None,
        lora: LoRA | None = None,
        salt: Salt | None = None,
        images: Sequence[ImageSpan] = (),
    ) -> None:
        self.request_id = request_id
        self.token_ids = list(token_ids)
        self.num_computed_tokens = 0
        self.num_in_flight_tokens = 0
        self.num_preemptions = 0
        self._hasher = hasher
        self.lora = lora
        self._salt = salt
        self.images = tuple(images)
        self._hashes: list[bytes] = []

    @property
    def num_tokens(self) -> int:
        """Prompt and output tokens."""
        return len(self.token_ids)

    @property
    def block_hashes(self) -> list[bytes]:
        """The hashes of all full blocks, those of output tokens included.

        A preempted request computes its outputs anew, and finds them only if they are in here.
        Not to be changed. Raises ValueError for tokens that cannot be hashed.
        """
        hasher = self._hasher
        if hasher is not None and (len(self._hashes) + 1) * hasher.block_size <= len(
            self.token_ids
        ):
            self._hash_new_blocks(hasher)
        return self._hashes

    def append(self, token_ids: Iterable[int]) -> None:
        """Add accepted output tokens."""
        self.token_ids.extend(token_ids)

    def truncate(self, num_tokens: int) -> None:
        """Keep the first `num_tokens` tokens, so that others may take the place of the rest.

        Their hashes go with them: kept ones would name blocks by tokens that are no longer there
        (vllm#49377). Raises ValueError below the computed tokens, whose blocks the manager has to
        give back first (`KVCacheManager.truncate`), or beyond the tokens that there are.
        """
        if not self.num_computed_tokens <= num_tokens <= len(self.token_ids):
            raise ValueError(
                f"truncate: request {self.request_id!r} has {len(self.token_ids)} tokens, "
                f"{self.num_computed_tokens} of them computed, and cannot be cut to {num_tokens}; "
                "KVCacheManager.truncate says how many computed tokens may stay"
            )
        del self.token_ids[num_tokens:]
        if self._hasher is not None:
            del self._hashes[num_tokens // self._hasher.block_size :]

    def _hash_new_blocks(self, hasher: BlockHasher) -> None:
        size = hasher.block_size
        for start in range(len(self._hashes) * size, len(self.token_ids) - size + 1, size):
            parent = self._hashes[-1] if self._hashes else None
            tokens = self.token_ids[start : start + size]
            self._hashes.append(hasher.hash_block(parent, tokens, self._extra_keys(start, size)))

    def _extra_keys(self, start: int, size: int) -> list[ExtraKey]:
        keys: list[ExtraKey] = [] if self.lora is None else [self.lora]
        if self._salt is not None and start == 0:
            keys.append(self._salt)
        # All placeholders are one token, so every block that an image reaches into names it and
        # where in it the block begins (LMCache#690).
        keys.extend(
            MultiModal(image.identifier, image.first_token - start)
            for image in self.images
            if image.first_token < start + size and start < image.first_token + image.num_tokens
        )
        return keys
