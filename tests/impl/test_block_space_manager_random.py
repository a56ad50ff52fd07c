"""Random groups on the vLLM-V0-shaped manager, checked against nothing but its tables.

A shadow of the memory holds the prefix that was written into each slot, carries out the copies and
swaps, and is read through the tables. References are counted over the tables. Every answer about
capacity is compared with what happens when a copy of the manager tries.
"""

import copy
import random
from collections import Counter
from typing import Any

import pytest

from poolproof.impl.block_space_manager import AllocStatus, BlockSpaceManager, BlocksToCopy
from poolproof.impl.block_tables import Device
from poolproof.impl.sequence_group import Sequence, SequenceGroup, SequenceStatus

WAITING, RUNNING = SequenceStatus.WAITING, SequenceStatus.RUNNING
SWAPPED, FINISHED = SequenceStatus.SWAPPED, SequenceStatus.FINISHED


class Engine:
    """A scheduler that decides at random, and the memory that it drives."""

    def __init__(self, choose: random.Random, manager: BlockSpaceManager) -> None:
        self.choose, self.manager = choose, manager
        self.groups: list[SequenceGroup] = []
        self.memory: dict[tuple[Device, int, int], tuple[int, ...]] = {}
        self.written: dict[int, int] = {}
        self.num_ids = 0
        self.facts: Counter[str] = Counter()

    def new_id(self) -> int:
        self.num_ids += 1
        return self.num_ids

    def lookahead(self) -> int:
        return 0 if self.manager.sliding_window else self.choose.choice([0, 0, 1, 3])

    def attempt(self, *calls: Any) -> bool:
        """Whether the calls succeed on a copy of the manager, and its watermark stays free."""
        trial = copy.deepcopy(self.manager)
        try:
            for name, *arguments in calls:
                getattr(trial, name)(*arguments)
        except MemoryError:
            return False
        self.trial_free = trial.get_num_free_gpu_blocks()
        return True

    def state(self) -> Any:
        manager = self.manager
        live = [s for g in self.groups for s in g.get_seqs() if manager.has_table(s)]
        return (
            manager.gpu_allocator.free_order(),
            manager.cpu_allocator.free_order(),
            [(s.seq_id, manager.device_of(s), manager.get_block_table(s)) for s in live],
        )

    # What a step does.

    def admit(self) -> None:
        manager, choose = self.manager, self.choose
        tokens = [choose.randint(0, 1) for _ in range(choose.randint(1, 9))]
        seqs = [
            Sequence(self.new_id(), tokens, manager.block_size)
            for _ in range(choose.choice([1, 1, 2]))
        ]
        group, slots = SequenceGroup("r", seqs), self.lookahead()
        if manager.sliding_window or choose.random() < 0.5:
            slots = 0
        answer = manager.can_allocate(group, slots)
        possible = self.attempt(("allocate", group, slots))
        if answer:
            assert possible
            assert self.trial_free >= manager.watermark_blocks
            manager.allocate(group, slots)
            for seq in seqs:
                seq.status = RUNNING
                # Of a long prompt only what is in the window is written.
                self.write(seq, 0, len(tokens))
            self.groups.append(group)
            return
        self.facts[answer.value] += 1
        assert not possible or self.trial_free < manager.watermark_blocks
        empty = BlockSpaceManager(
            manager.block_size,
            manager.gpu_allocator.num_blocks,
            0,
            0,
            sliding_window=manager.sliding_window,
        )
        empty.watermark_blocks = manager.watermark_blocks
        assert bool(empty.can_allocate(group, slots)) is (answer is AllocStatus.LATER)
        if not possible:
            before = self.state()
            with pytest.raises(MemoryError):
                manager.allocate(group, slots)
            assert self.state() == before

    def decode(self, group: SequenceGroup) -> None:
        manager, choose = self.manager, self.choose
        running = group.get_seqs(RUNNING)
        for seq in running:
            room = 1 if manager.sliding_window else choose.choice([1, 1, 2, 4])
            self.grow(seq, room)
        slots = self.lookahead()
        appends = [("append_slot", seq, slots) for seq in running]
        choose.shuffle(appends)
        fits = self.attempt(*appends)
        assert manager.can_append_slot(group, slots) is fits
        if not fits:
            self.facts["no slot"] += 1
            self.preempt(group)
            return
        copies = BlocksToCopy()
        for _, seq, _ in appends:
            copies.add(manager.append_slot(seq, slots))
        for batch in copies.batches():
            self.facts["copies"] += 1
            self.move(Device.GPU, Device.GPU, [(s, d) for s, to in batch.items() for d in to])
        for seq in running:
            self.write(seq, self.written[seq.seq_id], seq.num_tokens)

    def grow(self, seq: Sequence, num_tokens: int) -> None:
        """New tokens, unless there are some without a slot from before a preemption."""
        if seq.num_tokens == self.written[seq.seq_id]:
            seq.append_tokens(self.choose.randint(0, 1) for _ in range(num_tokens))

    def preempt(self, group: SequenceGroup) -> None:
        if not group.get_seqs(RUNNING):
            return
        fits = self.attempt(("swap_out", group))
        assert self.manager.can_swap_out(group) is fits
        if not fits:
            self.facts["no swap space"] += 1
            before = self.state()
            with pytest.raises(MemoryError):
                self.manager.swap_out(group)
            assert self.state() == before
            self.end(group)
            return
        self.move(Device.GPU, Device.CPU, self.manager.swap_out(group).items())
        for seq in group.get_seqs(RUNNING):
            seq.status = SWAPPED

    def resume(self, group: SequenceGroup) -> None:
        manager, slots = self.manager, self.lookahead()
        swapped = group.get_seqs(SWAPPED)
        if not swapped:
            return
        for seq in swapped:
            self.grow(seq, 1)
        appends = [("append_slot", seq, slots) for seq in swapped]
        possible = self.attempt(("swap_in", group), *appends)
        answer = manager.can_swap_in(group, slots)
        if not answer:
            self.facts[f"swap in {answer.value}"] += 1
            assert not possible or self.trial_free < manager.watermark_blocks
            if answer is AllocStatus.NEVER:
                self.end(group)
            return
        assert possible
        assert self.trial_free >= manager.watermark_blocks
        self.facts["swap in"] += 1
        self.move(Device.CPU, Device.GPU, manager.swap_in(group).items())
        for seq in swapped:
            seq.status = RUNNING
        assert manager.can_append_slot(group, slots)

    def fork(self, group: SequenceGroup) -> None:
        parent = self.choose.choice(group.get_seqs())
        if self.manager.has_table(parent) and len(group.get_seqs()) < 4:
            child = parent.fork(self.new_id())
            self.manager.fork(parent, child)
            self.written[child.seq_id] = self.written[parent.seq_id]
            group.add(child)
            self.facts["fork"] += 1

    def finish_one(self, group: SequenceGroup) -> None:
        seq = self.choose.choice(group.get_seqs())
        seq.status = FINISHED
        # Sometimes it keeps its blocks for a while.
        if self.choose.random() < 0.8:
            self.manager.free(seq)
        if group.is_finished():
            self.end(group)

    def end(self, group: SequenceGroup) -> None:
        self.manager.free_group(group)
        self.groups.remove(group)

    # The memory.

    def move(self, source: Device, destination: Device, pairs: Any) -> None:
        size = self.manager.block_size
        held = {
            (number, offset): self.memory.get((source, old, offset))
            for old, number in pairs
            for offset in range(size)
        }
        for old, _ in pairs:
            assert any((source, old, offset) in self.memory for offset in range(size))
        for (number, offset), content in held.items():
            if content is None:
                self.memory.pop((destination, number, offset), None)
            else:
                self.memory[destination, number, offset] = content

    def slot(self, seq: Sequence, position: int) -> tuple[Device, int, int]:
        block, offset = divmod(position, self.manager.block_size)
        return (
            self.manager.device_of(seq),
            self.manager.get_block_table(seq)[block],
            offset,
        )

    def write(self, seq: Sequence, start: int, end: int) -> None:
        tokens = tuple(seq.get_token_ids())
        for position in range(start, end):
            self.memory[self.slot(seq, position)] = tokens[: position + 1]
        self.written[seq.seq_id] = end

    def check(self) -> None:
        manager = self.manager
        holders: dict[Device, Counter[int]] = {Device.GPU: Counter(), Device.CPU: Counter()}
        for group in self.groups:
            for seq in group.get_seqs():
                if not manager.has_table(seq):
                    continue
                holders[manager.device_of(seq)].update(set(manager.get_block_table(seq)))
                tokens, end = tuple(seq.get_token_ids()), self.written[seq.seq_id]
                for position in range(max(0, end - (manager.sliding_window or end)), end):
                    assert self.memory[self.slot(seq, position)] == tokens[: position + 1]
        for allocator in (manager.gpu_allocator, manager.cpu_allocator):
            counted = holders[allocator.device]
            numbers = range(allocator.num_blocks)
            assert [allocator.ref_count(b) for b in numbers] == [counted[b] for b in numbers]
            assert sorted(allocator.free_order()) == [b for b in numbers if not counted[b]]

    def step(self) -> None:
        choice = self.choose.random()
        if not self.groups or choice < 0.25:
            self.admit()
            return
        group = self.choose.choice(self.groups)
        if choice < 0.6:
            self.decode(group)
        elif choice < 0.7:
            self.preempt(group)
        elif choice < 0.8:
            self.resume(group)
        elif choice < 0.9:
            self.fork(group)
        elif choice < 0.97:
            self.finish_one(group)
        else:
            self.end(group)


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("block_size", "num_gpu_blocks", "num_cpu_blocks", "watermark", "window"),
    [
        (2, 6, 6, 0, None),
        (1, 8, 5, 0.2, None),
        (3, 9, 4, 0.12, None),
        (2, 6, 6, 0, 4),
        (1, 7, 7, 0.15, 3),
        (3, 9, 6, 0, 6),
        (4, 4, 2, 0, 4),
    ],
)
def test_a_manager_serves_every_sequence_its_own_tokens(
    block_size: int, num_gpu_blocks: int, num_cpu_blocks: int, watermark: float, window: int | None
) -> None:
    choose = random.Random(f"{block_size} {num_gpu_blocks} {watermark} {window}")
    manager = BlockSpaceManager(
        block_size, num_gpu_blocks, num_cpu_blocks, watermark, sliding_window=window
    )
    engine = Engine(choose, manager)
    for _ in range(700):
        engine.step()
        engine.check()
    facts = {"no slot", "later", "fork", "swap in", "swap in later"}
    # A block of one token has nothing older in it.
    facts |= {"copies"} if block_size > 1 else set()
    assert facts <= set(engine.facts)
    if choose.random() < 0.5:
        manager.reset()
    else:
        for group in list(engine.groups):
            engine.end(group)
    engine.groups.clear()
    engine.check()
    assert manager.get_num_free_gpu_blocks() == num_gpu_blocks
    assert manager.get_num_free_cpu_blocks() == num_cpu_blocks
