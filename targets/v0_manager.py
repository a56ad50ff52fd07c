"""A block space manager in vLLM V0's shape behind the native manager contract.

One adapter for vLLM 0.2.7's class, for Poolproof's own, and for others of that shape. It does what
V0's scheduler does around the manager: tokens are appended before their slots are asked for, one
token a call where the manager wants that; every refusal is asked about before it is made; forks
join the group of their parent, and a group is swapped as a whole. Nothing of the manager is
replaced.

Where it is more than that scheduler, which preempts by recomputation only groups of one sequence:
an admission is asked for with a group of the one sequence, also when a fork is resumed, and the
sequence stays with its relatives for growing and swapping. Several tokens appended at once are
asked for before the first is taken, and refused where the worst case does not fit. Copies are
performed when they are ordered; the scheduler's dict from source to destinations, which loses
their order, is not driven. `reset()` drops what is held, which no command of the contract means,
and is not driven either.
"""

from __future__ import annotations

from typing import Any

from poolproof.targets.v0_manager_parts import V0Allocator, V0Parts

__all__ = ["V0_METHODS", "V0Manager"]

V0_METHODS = ("can_allocate", "allocate", "can_append_slot", "append_slot", "free")
"""The methods that tell the shape."""

Copies = list[tuple[int, int]]

_NUM_KEPT = 100
"""Sequences that have ended and may be ended again; engines forget them at once."""


class V0Manager:
    """`manager`, driven as V0's scheduler drives it, with sequences made of `parts`.

    With `mirrored`, block numbers are counted from the other end of the pool; without `forks` or
    `swaps`, the target does not have these verbs.
    """

    def __init__(
        self,
        manager: Any,
        parts: V0Parts,
        num_blocks: int,
        block_size: int,
        *,
        mirrored: bool = False,
        forks: bool = True,
        swaps: bool = True,
    ) -> None:
        self._manager = manager
        self._parts = parts
        self._block_size = block_size
        self._sequences: dict[int, Any] = {}
        self._families: dict[int, Any] = {}
        self._ended: dict[int, Any] = {}
        device = V0Allocator(getattr(manager, "gpu_allocator", None), num_blocks, mirrored=mirrored)
        self._shown = device.shown
        if device.is_seen:
            self.free_order, self.ref_count = device.free_order, device.ref_count
        if forks and callable(getattr(manager, "fork", None)):
            self.fork = self._fork
        if swaps and callable(getattr(manager, "swap_out", None)):
            self.swap_out, self.swap_in = self._swap_out, self._swap_in
            self.num_free_host = manager.get_num_free_cpu_blocks

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:  # noqa: ARG002 - nothing is cached
        sequence = self._sequences.get(seq_id)
        if sequence is None:
            sequence = self._parts.new_sequence(seq_id, list(tokens))
        group = self._parts.new_group([sequence])
        answer = self._manager.can_allocate(group).name.lower()
        if answer != "ok":
            return str(answer)
        self._manager.allocate(group)
        sequence.status = self._parts.running
        self._sequences[seq_id] = sequence
        self._families.setdefault(seq_id, group)
        return 0

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence, parts = self._sequences[seq_id], self._parts
        if not self._has_slots(sequence, tokens):
            return "later"
        copies = []
        for token in tokens:
            parts.append_token(sequence, token)
            if parts.one_slot_a_call:
                copies.append(self._manager.append_slot(sequence))
        if not parts.one_slot_a_call:
            copies.append(self._manager.append_slot(sequence))
        shown = self._shown
        return [(shown(pair[0]), shown(pair[1])) for pair in copies if pair is not None]

    def step(self, batch: list[tuple[int, int]]) -> None:
        """Nothing is published, so the manager has no part in a forward pass."""

    def preempt(self, seq_id: int) -> None:
        """By recomputation: the blocks go, and the sequence waits with all its tokens."""
        sequence = self._sequences[seq_id]
        self._manager.free(sequence)
        sequence.status = self._parts.waiting

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is None:
            sequence = self._ended.get(seq_id)
            if sequence is None:
                return  # nobody has a sequence of that name that could be given back
        sequence.status = self._parts.finished
        self._manager.free(sequence)
        self._families.pop(seq_id, None)
        self._ended[seq_id] = sequence
        if len(self._ended) > _NUM_KEPT:
            del self._ended[next(iter(self._ended))]

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        sequence = self._sequences[seq_id]
        table = self._manager.get_block_table(sequence)
        if sequence.status is self._parts.swapped:
            return list(table)
        return [self._shown(number) for number in table]

    def num_free(self) -> int:
        count: int = self._manager.get_num_free_gpu_blocks()
        return count

    def _has_slots(self, sequence: Any, tokens: list[int]) -> bool:
        """Whether the manager says yes to the group as it will be, the new tokens appended."""
        grown = sequence.fork(sequence.seq_id)
        for token in tokens:
            self._parts.append_token(grown, token)
        family = self._families[sequence.seq_id].get_seqs()
        asking = self._parts.new_group([grown if s is sequence else s for s in family])
        if not _says_yes(self._manager.can_append_slot(asking)):
            return False
        if len(tokens) == 1 or not self._parts.one_slot_a_call:
            return True
        further = -(-(len(tokens) - 1) // self._block_size)
        return 1 + further <= self.num_free()

    def _fork(self, seq_id: int, child_id: int) -> Copies:
        parent, family = self._sequences[seq_id], self._families[seq_id]
        child = parent.fork(child_id)
        family.add(child)
        self._manager.fork(parent, child)
        self._sequences[child_id], self._families[child_id] = child, family
        return []

    def _swap_out(self, seq_id: int) -> Copies | str:
        family = self._families[seq_id]
        if not _says_yes(self._manager.can_swap_out(family)):
            return "later"
        moved = dict(self._manager.swap_out(family))
        self._set_status(family, self._parts.running, self._parts.swapped)
        return [(self._shown(block), host_block) for block, host_block in moved.items()]

    def _swap_in(self, seq_id: int) -> Copies | str:
        family = self._families[seq_id]
        if not _says_yes(self._manager.can_swap_in(family)):
            return "later"
        moved = dict(self._manager.swap_in(family))
        self._set_status(family, self._parts.swapped, self._parts.running)
        return [(host_block, self._shown(block)) for host_block, block in moved.items()]

    @staticmethod
    def _set_status(family: Any, before: Any, after: Any) -> None:
        for sequence in family.get_seqs(before):
            sequence.status = after


def _says_yes(answer: Any) -> bool:
    """Later versions answer an `AllocStatus`, of which every member is true."""
    return bool(answer.name == "OK") if hasattr(answer, "name") else bool(answer)
