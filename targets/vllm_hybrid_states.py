"""Memory for the states that a vLLM worker copies, and what a step did with them, by block.

Both of vLLM's runners (`vllm_hybrid_worker.py`, `vllm_second_worker.py`) get states that are one
number, and leave the copying to vLLM's own code. Kernels that copy run as their own source
(`scalar_triton.py`) and tell each move of memory here.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from poolproof.contract.state_use import PARTS, Place, StateCopy, StateUse
from poolproof.targets.installed_vllm import engine_module, part_of
from poolproof.targets.scalar_triton import ScalarKernel
from poolproof.targets.vllm_hybrid_rows import HybridRow

__all__ = ["CONV_WIDTH", "CopiedStates", "Copies", "copy_by_source", "uses_by_request"]

CONV_WIDTH = 4
"""Tokens under the convolution of each layer, the newest included."""

_TEMPORAL, _WINDOW = PARTS
_NOBODYS = -7
"""The state that stands in a block at first: a number that no prefix has."""

Move = tuple[int, int, int]
"""Bytes that are moved: from which address, to which, how many."""
Copies = list[tuple[int, str, StateCopy]]
"""Copies in the order in which they were made, each with its group and part."""


class _Recorder:
    """Every copy that vLLM's own code makes, in order, as addresses and sizes."""

    def __init__(self) -> None:
        self.moves: list[Move] = []

    def move(self, source: int, target: int, size: int) -> None:
        ctypes.memmove(target, source, size)
        self.moves.append((source, target, size))

    def taken(self) -> list[Move]:
        moves, self.moves = self.moves, []
        return moves


_RECORDER = _Recorder()


def copy_by_source() -> None:
    """Let the kernels that copy states run here. Raises TargetError where one is missing."""
    states = engine_module("vllm.v1.worker.mamba_utils")
    copier = part_of(states, "_copy_mamba_state_block")
    # Copies that are shared out to tiles, as from 0.28 on, are made at once.
    inner, stand_ins = {copier.__name__: copier}, {"_memcpy_u64_tiled": _move_whole}
    for name in ("postprocess_mamba_fused_kernel", "precopy_mamba_align_fused_kernel"):
        kernel = part_of(states, name)
        if not isinstance(kernel, ScalarKernel):
            setattr(states, name, ScalarKernel(kernel, inner, stand_ins, move=_RECORDER.move))
    part_of(states, "batch_memcpy")
    states.batch_memcpy = _move_many


def _move_whole(source: Any, target: Any, size: int, tile: int, **_sizes: int) -> None:
    """`_memcpy_u64_tiled`, of which the first tile moves all."""
    if not tile:
        _RECORDER.move(int(source), int(target), int(size))


def _move_many(sources: Any, targets: Any, sizes: Any) -> None:
    for move in zip(sources.tolist(), targets.tolist(), sizes.tolist()):
        _RECORDER.move(*move)


class CopiedStates:
    """States of one layer for each recurrent group of `kv_cache_config`, in `states` by group.

    They are int64: windows of shape (blocks, CONV_WIDTH - 1 + drafts, 1) and recurrences of shape
    (blocks, 1).
    """

    def __init__(self, kv_cache_config: Any, num_drafts: int) -> None:
        self.groups = [
            number
            for number, group in enumerate(kv_cache_config.kv_cache_groups)
            if hasattr(group.kv_cache_spec, "mamba_type")
        ]
        self.states = {
            group: _made_states(kv_cache_config.num_blocks, CONV_WIDTH - 1 + num_drafts)
            for group in self.groups
        }
        tensors = {
            (group, part): tensor
            for group, states in self.states.items()
            for part, tensor in zip((_WINDOW, _TEMPORAL), states)
        }
        self._memory = {key: (t.data_ptr(), t.nbytes) for key, t in tensors.items()}
        self._sizes = {key: (t[0].nbytes, t[0, 0].nbytes) for key, t in tensors.items()}

    def copies(self) -> Copies:
        """What was moved since, by block."""
        copies: Copies = []
        joined = (0, 0, 0)
        for move in _RECORDER.taken():
            joined = _joined(joined, move)
            group, part, place = self._place(joined[0])
            whole, one = self._sizes[group, part]
            block, offset = divmod(place, whole)
            if offset + joined[2] < whole:
                continue  # A window that is shifted inside its block comes token by token.
            _, _, into = self._place(joined[1])
            copies.append((group, part, StateCopy(block, into // whole, offset // one)))
            joined = (0, 0, 0)
        if joined[2]:
            raise ValueError(f"the worker copies {joined[2]} bytes, which is no whole state")
        return copies

    def _place(self, address: int) -> tuple[int, str, int]:
        """The group and part whose states stand at an address, and how far behind the first."""
        for (group, part), (base, size) in self._memory.items():
            if base <= address < base + size:
                return group, part, address - base
        raise ValueError("the worker copies from, or to, where no state stands")


def _made_states(num_blocks: int, width: int) -> tuple[Any, Any]:
    torch = engine_module("torch")
    return (
        torch.full((num_blocks, width, 1), _NOBODYS, dtype=torch.int64),
        torch.full((num_blocks, 1), _NOBODYS, dtype=torch.int64),
    )


def _joined(first: Move, then: Move) -> Move:
    """Two moves as one where the second goes on where the first has ended; else the second."""
    source, target, size = first
    if size and then[:2] == (source + size, target + size):
        return source, target, size + then[2]
    return then


def uses_by_request(
    ids: Sequence[str],
    firsts: Sequence[int],
    rows: Mapping[int, Sequence[HybridRow]],
    owners: Mapping[tuple[int, int], str],
    copies: tuple[Copies, Copies],
) -> dict[str, list[StateUse]]:
    """What a step did with states, by request, in the order of the batch.

    A request's row starts at position `firsts`; `rows` are by group. `copies` came before the rows
    and after them, `owners` say in whose table a block of a group stands.
    """
    early, late = (_by_request(made, owners, ids[0]) for made in copies)
    return {
        name: [
            use
            for group, of_group in rows.items()
            for use in _uses(group, of_group[place], firsts[place], (early[name], late[name]))
        ]
        for place, name in enumerate(ids)
    }


def _left(first: int, places: Sequence[Place | None]) -> tuple[tuple[int, Place], ...]:
    return tuple(
        (end, place) for end, place in enumerate(places, start=first + 1) if place is not None
    )


def _by_request(
    copies: Copies, owners: Mapping[tuple[int, int], str], first: str
) -> defaultdict[str, Copies]:
    """The copies into each request's blocks; those into nobody's go with the first one's."""
    shared: defaultdict[str, Copies] = defaultdict(list)
    for group, part, copy in copies:
        shared[owners.get((group, copy.into), first)].append((group, part, copy))
    return shared


def _of(group: int, part: str, copies: Copies) -> tuple[StateCopy, ...]:
    return tuple(copy for of, which, copy in copies if (of, which) == (group, part))


def _uses(group: int, row: HybridRow, first: int, copies: tuple[Copies, Copies]) -> list[StateUse]:
    """What one row does with the two parts of its state; `copies` come before and after it."""
    before, after = copies
    parts = (
        (_TEMPORAL, row.temporal, row.temporal_after),
        (_WINDOW, row.window, row.window_after),
    )
    return [
        StateUse(
            group,
            starts,
            _left(first, places),
            _of(group, part, before),
            _of(group, part, after),
            (part,),
        )
        for part, starts, places in parts
    ]
