"""Which state each request of a step starts from, and where it leaves states: of vLLM's metadata.

The metadata is made by vLLM's own builders. What the layers do with it is followed here, for
GDN (`_forward_core` of the Qwen layers, `fused_sigmoid_gating_delta_rule_update`) and for Mamba2
(`conv_ssm_forward` of `MambaMixer2`, `selective_state_update`). A speculative row starts from the
state that stands in column `accepted - 1`, leaves one after each of its tokens in the columns from
0 on, and has one window of the convolution for all of them in column 0. Any other row starts from
column 0, or from zero where the metadata says that it has no state, and leaves one state there.
Kernels write nothing where a column is the null block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.state_use import Place

__all__ = ["HybridRow", "rows_of"]

_NULL_BLOCK = 0


@dataclass(frozen=True, slots=True)
class HybridRow:
    """What the layers of a group do for one request in a step.

    `temporal` and `window` say where each part starts, None for zero. Behind token i of the step
    they leave the places `temporal_after[i]` and `window_after[i]`, or nothing (None).
    """

    temporal: Place | None
    window: Place | None
    temporal_after: tuple[Place | None, ...]
    window_after: tuple[Place | None, ...]


def rows_of(metadata: Any, counts: Sequence[int]) -> list[HybridRow]:
    """The rows of a batch that computes `counts` tokens of each of its requests, in its order."""
    if hasattr(metadata, "spec_sequence_masks"):
        return _gated_delta_rows(metadata, counts)
    return _mamba_rows(metadata, counts)


def _speculative(columns: Sequence[int], accepted: int, count: int) -> HybridRow:
    after = tuple((block, 0) if block != _NULL_BLOCK else None for block in columns[:count])
    windows = tuple((columns[0], at) for at in range(count))
    return HybridRow((columns[accepted - 1], 0), (columns[0], accepted - 1), after, windows)


def _plain(block: int, count: int, *, has_state: bool) -> HybridRow:
    starts = (block, 0) if has_state else None
    after = (*[None] * (count - 1), (block, 0))
    return HybridRow(starts, starts, after, after)


def _gated_delta_rows(metadata: Any, counts: Sequence[int]) -> list[HybridRow]:
    # On a CPU they are the same; up to 0.30 there is no second one.
    masks = getattr(metadata, "spec_sequence_masks_cpu", metadata.spec_sequence_masks)
    is_spec = [False] * len(counts) if masks is None else masks.tolist()
    num_plain = is_spec.count(False)
    columns: list[list[int]] = []
    accepted: list[int] = []
    if any(is_spec):
        columns = metadata.spec_state_indices_tensor.tolist()
        accepted = metadata.num_accepted_tokens.tolist()
    blocks = metadata.non_spec_state_indices_tensor.tolist() if num_plain else []
    mask = metadata.has_initial_state
    known = [True] * num_plain if mask is None else mask.tolist()
    # Rows that decode come first, and read their state whatever the mask for prompts says.
    known[: metadata.num_decodes] = [True] * metadata.num_decodes
    rows = []
    for place, (one, count) in enumerate(zip(is_spec, counts)):
        number = is_spec[:place].count(one)
        if one:
            rows.append(_speculative(columns[number], accepted[number], count))
        else:
            rows.append(_plain(blocks[number], count, has_state=known[number]))
    return rows


def _mamba_rows(metadata: Any, counts: Sequence[int]) -> list[HybridRow]:
    num_decodes = metadata.num_decodes
    rows = []
    if num_decodes:
        columns = metadata.state_indices_tensor_d.tolist()
        accepted = metadata.num_accepted_tokens
        numbers = [0] * num_decodes if accepted is None else accepted.tolist()
        for row, number, count in zip(columns, numbers, counts):
            if number:
                rows.append(_speculative(row, number, count))
            else:
                rows.append(_plain(row[0], count, has_state=True))
    if metadata.num_prefills:
        blocks = metadata.state_indices_tensor_p.tolist()
        known = metadata.has_initial_states_p.tolist()
        rows += [
            _plain(block, count, has_state=has_state)
            for block, has_state, count in zip(blocks, known, counts[num_decodes:])
        ]
    return rows
