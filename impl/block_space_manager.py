"""A block space manager in the shape of vLLM V0: groups of sequences, forks and swapping.

The shape is that of `BlockSpaceManager` in vLLM 0.2.7 (vllm/core/block_manager.py), with the
lookahead slots that later versions added. The algorithm is told in public; the code here is its
own, and differs where the published one is wrong:

- A reference count is the number of sequences whose table contains the block, also where the ring
  of a sliding window puts one block in several places (vllm#1556, vllm#3347).
- Room for appending and for swapping in is counted exactly, lookahead included (vllm#8824).
- Refusals and misuse change nothing.

Copies and swaps that the operations order have to be carried out in the order of the calls, before
the next forward pass. Between two copies a source can be freed and become the destination of the
other, so a map from a source to its destinations alone, as schedulers build it, has lost what
counts; `BlocksToCopy` keeps it.

Not covered: a prefix cache, and truncation; a sequence only grows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from fractions import Fraction

from poolproof.impl.block_tables import (
    BlockAllocator,
    BlockLayout,
    BlockTable,
    Device,
    PhysicalTokenBlock,
)
from poolproof.impl.sequence_group import Sequence, SequenceGroup, SequenceStatus
from poolproof.impl.sizing import exact_fraction, require_int


class AllocStatus(Enum):
    """Now, later when others have left, or never. Only the first is true.

    NEVER is for the scheduler to give up: what waits for room that cannot come blocks all that
    wait behind it.
    """

    OK = "ok"
    LATER = "later"
    NEVER = "never"

    def __bool__(self) -> bool:
        return self is AllocStatus.OK


class BlockSpaceManager:
    """Maps the logical blocks of sequences to blocks on the GPU, or on the CPU while swapped out.

    Args:
        block_size: tokens in a block, at least 1.
        num_gpu_blocks: at least 1.
        num_cpu_blocks: at least 0; the swap space.
        watermark: this share of the GPU blocks stays free when a group is admitted or swapped
            in, so that the running ones can grow; read as the decimal that it prints as.
        sliding_window: a multiple of block_size in tokens, or None. A sequence then uses at most
            sliding_window / block_size blocks, in a ring. A step may write one token beyond the
            window, no more: the second would overwrite what the first still has to read. The
            prompt is exempt, as long as its pass reads its own KV and not the cache.

    Raises ValueError for other arguments. Group operations pass over sequences without a table,
    that is not admitted yet or freed already; operations on such a sequence raise ValueError.
    `num_lookahead_slots` are slots beyond the tokens, for drafts. Not thread-safe.
    """

    def __init__(
        self,
        block_size: int,
        num_gpu_blocks: int,
        num_cpu_blocks: int,
        watermark: Fraction | float | str = 0.01,
        sliding_window: int | None = None,
    ) -> None:
        self._layout = BlockLayout(block_size, sliding_window)
        require_int("num_gpu_blocks", num_gpu_blocks, at_least=1)
        self.block_size = block_size
        self.sliding_window = sliding_window
        share = exact_fraction("watermark", watermark)
        if not 0 <= share <= 1:
            raise ValueError(f"watermark must be from 0 to 1, not {watermark!r}")
        # Exact: 0.29 of 100 blocks are 29, and 28 in floating point.
        self.watermark_blocks = num_gpu_blocks * share.numerator // share.denominator
        self.gpu_allocator = BlockAllocator(Device.GPU, num_gpu_blocks)
        self.cpu_allocator = BlockAllocator(Device.CPU, num_cpu_blocks)
        self._allocators = {Device.GPU: self.gpu_allocator, Device.CPU: self.cpu_allocator}
        self._tables: dict[int, BlockTable] = {}

    def can_allocate(self, seq_group: SequenceGroup, num_lookahead_slots: int = 0) -> AllocStatus:
        """Whether the prompt of the waiting sequences fits beside the watermark.

        After OK, `allocate` succeeds. NEVER: not even on an empty GPU. Raises ValueError when no
        sequence waits, or the waiting ones have different tokens.
        """
        table = self._prompt_table("can_allocate", seq_group, num_lookahead_slots)
        return self._status(self._layout.num_physical_blocks(table.num_logical_blocks))

    def allocate(self, seq_group: SequenceGroup, num_lookahead_slots: int = 0) -> None:
        """Give the waiting sequences one table of fresh blocks, shared by all of them.

        Does not look at the watermark. Raises MemoryError when there are too few free blocks;
        ValueError as `can_allocate`, and for a sequence that has a table already.
        """
        table = self._prompt_table("allocate", seq_group, num_lookahead_slots)
        waiting = seq_group.get_seqs(SequenceStatus.WAITING)
        for seq in waiting:
            self._require_absent("allocate", seq)
        num_blocks = self._layout.num_physical_blocks(table.num_logical_blocks)
        self._require_free("allocate", self.gpu_allocator, num_blocks)
        for _ in range(num_blocks):
            block = self.gpu_allocator.allocate()
            # The waiting ones alone: others of the group hold no part of this table.
            block.ref_count = len(waiting)
            table.blocks.append(block)
        for seq in waiting:
            self._tables[seq.seq_id] = table.copy()

    def can_append_slot(self, seq_group: SequenceGroup, num_lookahead_slots: int = 0) -> bool:
        """Whether `append_slot` succeeds for each running sequence of the group in turn. Exact."""
        running = self._group_tables(seq_group, SequenceStatus.RUNNING, Device.GPU)
        needed = self._num_to_append(running, num_lookahead_slots, lambda b: b.ref_count)
        return needed <= self.gpu_allocator.get_num_free_blocks()

    def append_slot(self, seq: Sequence, num_lookahead_slots: int = 0) -> tuple[int, int] | None:
        """Make the slots of the tokens since the last call, and of the lookahead, writable.

        New logical blocks get physical ones, and shared blocks that will be written are replaced
        by private ones. Returns the (source, destination) of the copy that this takes, or None:
        at most the first block written has older content to keep. Nothing happens when the
        sequence has no new token. Raises MemoryError when blocks are missing; ValueError when
        the sequence is not on the GPU, or more than one token is written beyond the window.
        """
        table = self._table("append_slot", seq)
        if table.device is not Device.GPU:
            raise ValueError(f"append_slot: {seq!r} is on the CPU; swap its group in first")
        if self._layout.is_in_place(table, seq.num_tokens, num_lookahead_slots):
            table.num_tokens = seq.num_tokens
            return None
        growth = self._layout.growth(table, seq.num_tokens, num_lookahead_slots)
        blocks, allocator = table.blocks, self.gpu_allocator
        shared = [i for i in growth.written if blocks[i].ref_count > 1]
        self._require_free("append_slot", allocator, growth.num_new + len(shared))
        copy = None
        for i in shared:
            source, blocks[i] = blocks[i], allocator.allocate()
            if i == growth.written[0] and growth.has_older:
                copy = (source.block_number, blocks[i].block_number)
            allocator.free(source)
        blocks.extend(allocator.allocate() for _ in range(growth.num_new))
        table.num_logical_blocks = growth.num_logical_blocks
        table.num_tokens = seq.num_tokens
        return copy

    def fork(self, parent_seq: Sequence, child_seq: Sequence) -> None:
        """Give a child the table of its parent; needs no block.

        Raises ValueError when the parent has no table, or the child has one.
        """
        parent = self._table("fork", parent_seq)
        self._require_absent("fork", child_seq)
        for block in parent.blocks:
            self._allocators[parent.device].share(block)
        self._tables[child_seq.seq_id] = parent.copy()

    def can_swap_out(self, seq_group: SequenceGroup) -> bool:
        """Whether the CPU has room for the blocks of the running sequences. Exact."""
        running = self._group_tables(seq_group, SequenceStatus.RUNNING, Device.GPU)
        return self._num_settled_blocks(running) <= self.cpu_allocator.get_num_free_blocks()

    def swap_out(self, seq_group: SequenceGroup) -> dict[int, int]:
        """Move the running sequences to the CPU. Returns GPU block number -> CPU block number.

        A block that several of them share is moved once and stays shared. Lookahead slots are
        given up. Raises MemoryError, before anything changes, when `can_swap_out` says no.
        """
        running = self._group_tables(seq_group, SequenceStatus.RUNNING, Device.GPU)
        self._require_free("swap_out", self.cpu_allocator, self._num_settled_blocks(running))
        for _, table in running:
            # Nobody may have written into the lookahead, and what was written may be rejected.
            for block in table.blocks[len(self._settled_blocks(table)) :]:
                self.gpu_allocator.free(block)
            table.blocks = self._settled_blocks(table)
            table.num_logical_blocks = self._layout.num_logical_blocks(table.num_tokens)
        return self._move(running, Device.CPU)

    def can_swap_in(self, seq_group: SequenceGroup, num_lookahead_slots: int = 0) -> AllocStatus:
        """Whether the swapped sequences fit beside the watermark, and can append at once. Exact.

        The room for the `append_slot` that follows is part of it, lookahead included: without it
        a group is swapped in to be swapped out again (vllm#8824). NEVER: not even on an empty GPU.
        """
        swapped = self._group_tables(seq_group, SequenceStatus.SWAPPED, Device.CPU)
        sharers = Counter(block for _, table in swapped for block in table.blocks)
        appended = self._num_to_append(swapped, num_lookahead_slots, sharers.__getitem__)
        return self._status(len(sharers) + appended)

    def swap_in(self, seq_group: SequenceGroup) -> dict[int, int]:
        """Move the swapped sequences to the GPU. Returns CPU block number -> GPU block number.

        Does not look at the watermark. Raises MemoryError, before anything changes, when there
        are too few free blocks.
        """
        swapped = self._group_tables(seq_group, SequenceStatus.SWAPPED, Device.CPU)
        num_blocks = len({block for _, table in swapped for block in table.blocks})
        self._require_free("swap_in", self.gpu_allocator, num_blocks)
        return self._move(swapped, Device.GPU)

    def free(self, seq: Sequence) -> None:
        """Drop the references of a sequence, on whichever device it is.

        Again, or for a sequence that was never admitted, it does nothing: several ends of one
        request may each call it (vllm#9142).
        """
        table = self._tables.pop(seq.seq_id, None)
        if table is not None:
            # Head first: the stack hands out first what came last, so the tail is reused first.
            for block in table.blocks:
                self._allocators[table.device].free(block)

    def free_group(self, seq_group: SequenceGroup) -> None:
        """`free` for every sequence of the group, the forked ones included (vllm#14326)."""
        for seq in seq_group.get_seqs():
            self.free(seq)

    def reset(self) -> None:
        """Drop the references of every sequence. Copies that were ordered are void."""
        for table in self._tables.values():
            for block in table.blocks:
                self._allocators[table.device].free(block)
        self._tables.clear()

    def has_table(self, seq: Sequence) -> bool:
        """Whether the sequence holds blocks."""
        return seq.seq_id in self._tables

    def get_block_table(self, seq: Sequence) -> list[int]:
        """The block number of each logical block, lookahead included, on the `device_of` it.

        Raises ValueError for a sequence without a table.
        """
        return self._table("get_block_table", seq).block_numbers()

    def device_of(self, seq: Sequence) -> Device:
        """Where the blocks of the sequence lie. Raises ValueError when it has none."""
        return self._table("device_of", seq).device

    def get_num_free_gpu_blocks(self) -> int:
        """How many GPU blocks nobody holds."""
        return self.gpu_allocator.get_num_free_blocks()

    def get_num_free_cpu_blocks(self) -> int:
        """How many CPU blocks nobody holds."""
        return self.cpu_allocator.get_num_free_blocks()

    def _table(self, operation: str, seq: Sequence) -> BlockTable:
        table = self._tables.get(seq.seq_id)
        if table is None:
            raise ValueError(f"{operation}: {seq!r} has no blocks; it was not admitted, or freed")
        return table

    def _require_absent(self, operation: str, seq: Sequence) -> None:
        if seq.seq_id in self._tables:
            raise ValueError(f"{operation}: {seq!r} has blocks already; free it first")

    def _require_free(self, operation: str, allocator: BlockAllocator, num_blocks: int) -> None:
        num_free = allocator.get_num_free_blocks()
        if num_blocks > num_free:
            raise MemoryError(
                f"{operation}: {num_blocks} {allocator.device.value} blocks needed, {num_free} of "
                f"{allocator.num_blocks} free"
            )

    def _prompt_table(
        self, operation: str, seq_group: SequenceGroup, num_lookahead_slots: int
    ) -> BlockTable:
        """The table that the waiting sequences need, without blocks yet."""
        waiting = seq_group.get_seqs(SequenceStatus.WAITING)
        if not waiting:
            raise ValueError(f"{operation}: no sequence of the group is waiting")
        num_tokens = waiting[0].num_tokens
        for seq in waiting[1:]:
            # They would share blocks whose KV is that of the first one.
            if seq.get_token_ids() != waiting[0].get_token_ids():
                raise ValueError(
                    f"{operation}: {seq!r} and {waiting[0]!r} wait in one group with different "
                    "tokens; admit them in groups of their own"
                )
        num_logical = self._layout.num_logical_blocks(num_tokens)
        prompt = BlockTable(Device.GPU, [], num_logical, num_tokens)
        growth = self._layout.growth(prompt, num_tokens, num_lookahead_slots)
        prompt.num_logical_blocks = growth.num_logical_blocks
        return prompt

    def _group_tables(
        self, seq_group: SequenceGroup, status: SequenceStatus, device: Device
    ) -> list[tuple[Sequence, BlockTable]]:
        """The sequences of a status and their tables, those without a table left out."""
        found = []
        for seq in seq_group.get_seqs(status):
            table = self._tables.get(seq.seq_id)
            if table is not None:
                if table.device is not device:
                    raise ValueError(f"{seq!r} has its blocks on the {table.device.value}")
                found.append((seq, table))
        return found

    def _status(self, num_blocks: int) -> AllocStatus:
        """Whether so many GPU blocks can be taken and the watermark stay free."""
        num_needed = num_blocks + self.watermark_blocks
        if num_needed > self.gpu_allocator.num_blocks:
            return AllocStatus.NEVER
        if num_needed > self.gpu_allocator.get_num_free_blocks():
            return AllocStatus.LATER
        return AllocStatus.OK

    def _num_to_append(
        self,
        tables: list[tuple[Sequence, BlockTable]],
        num_lookahead_slots: int,
        num_sharers: Callable[[PhysicalTokenBlock], int],
    ) -> int:
        """The blocks that it takes when each of the sequences appends in turn."""
        is_in_place = self._layout.is_in_place
        growing = [t for t in tables if not is_in_place(t[1], t[0].num_tokens, num_lookahead_slots)]
        if not growing:
            return 0
        writers: Counter[PhysicalTokenBlock] = Counter()
        num_new = 0
        for seq, table in growing:
            growth = self._layout.growth(table, seq.num_tokens, num_lookahead_slots)
            num_new += growth.num_new
            writers.update(table.blocks[i] for i in growth.written)
        # Each writer of a shared block leaves it for a private one, and the last holder stays.
        return num_new + sum(min(w, num_sharers(b) - 1) for b, w in writers.items())

    def _settled_blocks(self, table: BlockTable) -> list[PhysicalTokenBlock]:
        """The blocks with tokens, those of the lookahead alone left out."""
        return table.blocks[: self._layout.num_logical_blocks(table.num_tokens)]

    def _num_settled_blocks(self, tables: list[tuple[Sequence, BlockTable]]) -> int:
        return len({block for _, table in tables for block in self._settled_blocks(table)})

    def _move(self, tables: list[tuple[Sequence, BlockTable]], device: Device) -> dict[int, int]:
        """Put the tables on the other device, shared blocks once; there are enough."""
        target = self._allocators[device]
        moved: dict[PhysicalTokenBlock, PhysicalTokenBlock] = {}
        for _, table in tables:
            for block in table.blocks:
                if block in moved:
                    target.share(moved[block])
                else:
                    moved[block] = target.allocate()
                self._allocators[table.device].free(block)
            table.blocks = [moved[block] for block in table.blocks]
            table.device = device
        return {old.block_number: new.block_number for old, new in moved.items()}


class BlocksToCopy:
    """Collects (source, destination) pairs of block numbers on the GPU.

    `pairs` is right for an engine that copies one after the other.
    """

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    def add(self, copy: tuple[int, int] | None) -> None:
        """Add what `BlockSpaceManager.append_slot` returned; None is nothing."""
        if copy is not None:
            self.pairs.append(copy)

    def clear(self) -> None:
        """Forget everything: the step was carried out, or the manager was reset.

        Copies kept over a reset overwrite blocks of other sequences (xLLM#1984).
        """
        self.pairs.clear()

    def batches(self) -> list[dict[int, list[int]]]:
        """Maps from a source to its destinations, to be carried out one after the other.

        Within a map the copies may run in any order or at once, as the copy kernels do: no block
        is written twice, and none is both read and written. Nearly always there is one map.
        """
        batches: list[dict[int, list[int]]] = []
        written: set[int] = set()
        for source, destination in self.pairs:
            if (
                not batches
                or source in written
                or destination in written
                or destination in batches[-1]
            ):
                batches.append({})
                written = set()
            batches[-1].setdefault(source, []).append(destination)
            written.add(destination)
        return batches
