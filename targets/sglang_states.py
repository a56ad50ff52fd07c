"""What a step of SGLang does with recurrent states: its model runner, followed by hand.

Which slots of the state pool a step works on, which are cleared and copied before it, and which
are kept for the prefix cache stands in the batch that the scheduler has prepared. Read there, as
`ForwardBatch` is made of it and `hybrid_linear_attn_backend.py` reads that:

- `ModelRunner._maybe_execute_deferred_mamba_cow_and_clear`: before a prompt's step slots are
  cleared, then states that were hit are copied into slots of their requests.
- A row goes on in the slot that the pool has for the row of its request (`get_mamba_indices`). The
  recurrence always starts from it; the convolution of a prompt's first step starts from zero.
- A prompt's step keeps one state on the way, or its last, in the slot to track. For the recurrence
  `build_prefill_track_plan` of the engine says which, for the convolution
  `ForwardBatch.mamba_track_aligned_lens`: whole chunks of `mamba_cache_chunk_size`.
- A decode step copies the state to the slot to track where the mask says so
  (`_track_mamba_state_decode`); a slot below 0 is none.

Without an extra buffer the tree copies states on the scheduler's side, at once
(`MambaPool.copy_from`): these copies come before the next step, in the order in which they were
made. Both ways lead through the pool's own method, so that the tensors follow.

Assumed: one group of layers with one window, a gated delta net, so that states on the way lie on a
grid that begins with each row. Not followed: Mamba2's flat grid, ReplaySSM, states in int8.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from poolproof.contract.state_use import StateCopy, StateUse

__all__ = ["StateRows", "recorded_pool"]

_GROUP = 1
_TEMPORAL, _WINDOW = ("temporal",), ("window",)


def recorded_pool(pool_class: Any) -> Any:
    """The engine's pool of states, which also notes the copies that its scheduler's side makes."""

    def __init__(self: Any, **options: Any) -> None:  # noqa: N807 - a method of the class below
        pool_class.__init__(self, **options)
        self.copies = []

    def copy_from(self: Any, source: Any, into: Any) -> None:
        pool_class.copy_from(self, source, into)
        self.copies += zip(source.tolist(), into.tolist(), strict=True)

    methods = {"__init__": __init__, "copy_from": copy_from}
    return type("RecordedMambaPool", (pool_class,), methods)


class _Row(NamedTuple):
    """A request in a step: its slot, the positions computed, what is kept of it and where."""

    slot: int
    first: int
    end: int
    temporal: tuple[int, int] | None
    window: tuple[int, int] | None


class StateRows:
    """Reads batches. `first_block` is the block that slot 0 would have."""

    def __init__(self, pool: Any, track_plan: Any, chunk_size: int, cache_chunk_size: int) -> None:
        self._pool = pool
        self._build_track_plan = track_plan.build_prefill_track_plan
        self._chunk_size = chunk_size
        self._cache_chunk_size = cache_chunk_size

    def copies_made(self) -> list[tuple[int, int]]:
        """The copies between slots that the scheduler's side made since the last call."""
        made = list(self._pool.mamba_pool.copies)
        self._pool.mamba_pool.copies.clear()
        return made

    def uses(
        self, batch: Any, made: list[tuple[int, int]], first_block: int
    ) -> list[tuple[StateUse, ...]]:
        """Of each row of a prepared batch; `made` are copies that come before all others."""
        is_extend = batch.forward_mode.is_extend()
        cleared = set(_numbers(batch.mamba_clear_indices)) if is_extend else set()
        hits = _hits(batch) if is_extend else []
        self._carry_out(batch, is_extend=is_extend)
        uses = []
        for number, row in enumerate(self._extends(batch) if is_extend else self._decodes(batch)):
            before = [*(made if not number else ()), *((s, d) for s, d in hits if d == row.slot)]
            uses.append(_both_parts(row, cleared, before, first_block))
        return uses

    def _carry_out(self, batch: Any, *, is_extend: bool) -> None:
        """Clear and copy in the pool, as the model runner does; these copies are told as hits."""
        if not is_extend:
            return
        if batch.mamba_clear_indices is not None:
            self._pool.mamba_pool.clear_slots(batch.mamba_clear_indices)
        if batch.mamba_cow_src_indices is not None:
            self._pool.copy_mamba_state(batch.mamba_cow_src_indices, batch.mamba_cow_dst_indices)
            self._pool.mamba_pool.copies.clear()

    def _extends(self, batch: Any) -> Iterator[_Row]:
        slots = self._pool.get_mamba_indices(batch.req_pool_indices).tolist()
        firsts, counts = batch.prefix_lens, batch.extend_lens
        mask = batch.mamba_prefill_track_mask_cpu or [False] * len(slots)
        lengths = batch.mamba_track_seqlens_cpu or [-1] * len(slots)
        targets = _numbers(batch.mamba_track_indices) or [-1] * len(slots)
        plan = self._build_track_plan(mask, lengths, counts, firsts, self._chunk_size, mamba2=False)
        for row, (slot, first, count) in enumerate(zip(slots, firsts, counts, strict=True)):
            temporal = window = None
            if mask[row] and targets[row] >= 0:
                on_the_way = first + plan.chunk_indices[row] * self._chunk_size
                end = first + count if row in plan.final_rows else on_the_way
                temporal = (end, targets[row])
                chunks = (lengths[row] - first) // self._cache_chunk_size
                window = (first + chunks * self._cache_chunk_size, targets[row])
            yield _Row(slot, first, first + count, temporal, window)

    def _decodes(self, batch: Any) -> Iterator[_Row]:
        slots = self._pool.get_mamba_indices(batch.req_pool_indices).tolist()
        ends = batch.seq_lens_cpu.tolist()
        mask = batch.mamba_track_mask_cpu or [False] * len(slots)
        targets = _numbers(batch.mamba_track_indices) or [-1] * len(slots)
        for slot, end, is_tracked, target in zip(slots, ends, mask, targets, strict=True):
            kept = (end, target) if is_tracked and target >= 0 else None
            yield _Row(slot, end - 1, end, kept, kept)


def _hits(batch: Any) -> list[tuple[int, int]]:
    sources = _numbers(batch.mamba_cow_src_indices)
    return list(zip(sources, _numbers(batch.mamba_cow_dst_indices), strict=True))


def _numbers(tensor: Any) -> list[int]:
    return [] if tensor is None else list(tensor.tolist())


def _both_parts(
    row: _Row, cleared: set[int], before: list[tuple[int, int]], first_block: int
) -> tuple[StateUse, ...]:
    """The recurrence and the window of a row, which are kept by different rules."""
    slot = row.slot + first_block
    copies = tuple(StateCopy(s + first_block, d + first_block) for s, d in before)
    goes_on = None if row.slot in cleared else (slot, 0)
    uses = []
    for parts, kept in ((_TEMPORAL, row.temporal), (_WINDOW, row.window)):
        leaves = [(row.end, (slot, 0))]
        if kept is not None:
            leaves.append((kept[0], (kept[1] + first_block, 0)))
        starts = goes_on if row.first or parts == _TEMPORAL else None
        uses.append(StateUse(_GROUP, starts, tuple(leaves), copies, parts=parts))
    return tuple(uses)
