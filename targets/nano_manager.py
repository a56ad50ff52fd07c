"""A block manager in nano-vLLM's shape behind the native manager contract.

One adapter for every published generation of the shape and for Poolproof's own, which it tells
apart by what the manager has and answers:

- `can_allocate` answers a bool, or the number of cached blocks and -1 for a refusal;
- with `hash_blocks` blocks are published after the step that computed them, and prompts may be
  computed in chunks; without, at admission and growth;
- observers are read from `free_block_ids` and `blocks`, or are methods of the same names as ours.

It does what nano-vLLM's scheduler does around the manager: a sampled token is appended before its
slot is asked for, a preempted sequence keeps its tokens, and a refusal is asked about before it is
made. Nothing of the manager is replaced, but its hash where weak ones are asked for. Several tokens
appended at once are asked for one by one, all before the first is taken; where they take more than
one block, as many have to be free. `can_allocate` answers for admissions, and says nothing of a
prefix that does not fit; so `lookup_prefix` is not driven, nor are forks, truncation, drafts,
swapping and transfers, which the shape does not have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from poolproof.targets.nano_manager_tokens import TokenNames

__all__ = ["NANO_METHODS", "NanoManager"]

NANO_METHODS = ("can_allocate", "allocate", "deallocate", "can_append", "may_append")
"""The methods that tell the shape."""

_NUM_KEPT = 100
"""Sequences that have ended and may be ended again; engines forget them at once."""


class NanoManager:
    """`manager`, driven as nano-vLLM's scheduler drives it.

    `new_sequence` makes the manager's own kind of sequence from tokens.
    """

    def __init__(
        self,
        manager: Any,
        new_sequence: Callable[[list[int]], Any],
        block_size: int,
        *,
        enable_caching: bool = True,
    ) -> None:
        self._manager = manager
        self._new_sequence = new_sequence
        self._block_size = block_size
        self._enable_caching = enable_caching
        self._names = TokenNames(enable_caching=enable_caching)
        self._sequences: dict[int, Any] = {}
        self._settings: dict[int, tuple[object, ...]] = {}
        self._ended: dict[int, Any] = {}
        self._publishes_computed = callable(getattr(manager, "hash_blocks", None))
        if self._publishes_computed:
            self.schedule = self._schedule
        if callable(getattr(manager, "reset", None)):
            self.reset = manager.reset
        if callable(getattr(manager, "compute_hash", None)):
            self.use_hash = self._use_hash
        self._show(manager)

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,  # noqa: ARG002 - blocks are taken for the whole prompt
    ) -> int | str:
        """Ask, then allocate. Blocks are taken for all tokens, also where a chunk is scheduled."""
        sequence = self._sequences.get(seq_id)
        setting = self._settings.get(seq_id, ())
        if sequence is None or not self._enable_caching:
            setting = self._names.setting(extra_keys)
            sequence = self._new_sequence(self._names.named(tokens, setting, extra_keys))
        answer = self._manager.can_allocate(sequence)
        if isinstance(answer, bool):
            if not answer:
                return "later"
            self._manager.allocate(sequence)
        elif answer < 0:
            return "later"
        else:
            self._manager.allocate(sequence, answer)
        self._sequences[seq_id], self._settings[seq_id] = sequence, setting
        cached: int = sequence.num_cached_tokens
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        named = self._names.named(tokens, self._settings[seq_id])
        if not self._has_slots(sequence, named):
            return "later"
        for token in named:
            sequence.append_token(token)
            self._manager.may_append(sequence)
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """What was computed is published, where the manager has a call for it."""
        if not self._publishes_computed:
            return
        for seq_id, num_tokens in batch:
            sequence = self._sequences[seq_id]
            sequence.num_scheduled_tokens = num_tokens
            self._manager.hash_blocks(sequence)
            sequence.num_cached_tokens += num_tokens
            sequence.num_scheduled_tokens = 0

    def preempt(self, seq_id: int) -> None:
        self._manager.deallocate(self._sequences[seq_id])

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is None:
            sequence = self._ended.get(seq_id)
            if sequence is None:
                return  # nobody has a sequence of that name that could be given back
        self._manager.deallocate(sequence)
        self._settings.pop(seq_id, None)
        self._ended[seq_id] = sequence
        if len(self._ended) > _NUM_KEPT:
            del self._ended[next(iter(self._ended))]

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        table: list[int] = self._sequences[seq_id].block_table
        return table

    def _use_hash(self, digest: Callable[[bytes], bytes]) -> None:
        """The manager hashes with `digest` from now on; nothing else of it changes."""

        def compute_hash(content: Any, parent_hash: int | None = None) -> int:
            named = repr((parent_hash, content)).encode()
            return int.from_bytes(digest(named), "big")

        self._manager.compute_hash = compute_hash

    def _schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]]:  # noqa: ARG002 - all is taken
        """The next chunk of a prompt, whose blocks were taken when it was admitted."""
        return []

    def _has_slots(self, sequence: Any, tokens: list[int]) -> bool:
        """Whether `can_append` says yes to each of the tokens, asked as engines ask it."""
        longer = list(sequence.token_ids)
        for token in tokens:
            longer.append(token)
            asking = self._new_sequence(longer)
            asking.block_table = sequence.block_table
            if not self._manager.can_append(asking):
                return False
        num_new = -(-len(longer) // self._block_size) - len(sequence.block_table)
        num_free: Callable[[], int] | None = getattr(self, "num_free", None)
        return num_new < 2 or num_free is None or num_new <= num_free()

    def _show(self, manager: Any) -> None:
        """Offer as observers what the manager lets be seen."""
        free = getattr(manager, "free_block_ids", None)
        if free is not None:
            self.num_free = lambda: len(manager.free_block_ids)
            self.free_order = lambda: list(manager.free_block_ids)
        for name in ("num_free", "free_order", "free_neighbours", "ref_count", "is_cached"):
            if callable(getattr(manager, name, None)):
                setattr(self, name, getattr(manager, name))
        blocks = getattr(manager, "blocks", None)
        if blocks and hasattr(blocks[0], "ref_count"):
            self.ref_count = lambda block_id: manager.blocks[block_id].ref_count
        if blocks and hasattr(blocks[0], "hash") and hasattr(manager, "hash_to_block_id"):
            self.is_cached = self._is_found

    def _is_found(self, block_id: int) -> bool:
        """Whether the index leads to the block: of two with one hash, it knows one."""
        found: bool = (
            self._manager.hash_to_block_id.get(self._manager.blocks[block_id].hash) == block_id
        )
        return found
