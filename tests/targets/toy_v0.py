"""A small block space manager in vLLM V0's published shape, with the classes that go with it.

One token a call, a stack of free blocks, no window, no forks, no swapping.
"""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any, ClassVar


class SequenceStatus(enum.Enum):
    """As published, with one way to finish."""

    WAITING = enum.auto()
    RUNNING = enum.auto()
    SWAPPED = enum.auto()
    FINISHED_STOPPED = enum.auto()


class AllocStatus(enum.Enum):
    """The three answers."""

    OK = enum.auto()
    LATER = enum.auto()
    NEVER = enum.auto()


class SamplingParams:
    """What a group wants and no manager reads."""

    def __init__(self, n: Any, best_of: Any) -> None:
        assert n == best_of == 1


class Sequence:
    """The tokens of one sequence."""

    def __init__(self, seq_id: Any, prompt: Any, prompt_token_ids: Any, block_size: Any) -> None:
        assert prompt == ""
        self.seq_id, self.block_size = seq_id, block_size
        self.tokens = list(prompt_token_ids)
        self.status = SequenceStatus.WAITING

    def append_token_id(self, token_id: Any, logprobs: Any) -> Any:
        assert token_id in logprobs
        self.tokens.append(token_id)

    def fork(self, seq_id: Any) -> Any:
        child = Sequence(seq_id, "", self.tokens, self.block_size)
        child.status = self.status
        return child

    @property
    def num_blocks(self) -> Any:
        return -(-len(self.tokens) // self.block_size)


class SequenceGroup:
    """The sequences of one request."""

    def __init__(self, request_id: Any, seqs: Any, sampling_params: Any, arrival_time: Any) -> None:
        assert request_id == str(seqs[0].seq_id)
        assert isinstance(sampling_params, SamplingParams)
        assert arrival_time == 0.0
        self.seqs = list(seqs)

    def get_seqs(self, status: Any = None) -> Any:
        return [seq for seq in self.seqs if status in (None, seq.status)]


class ToySpaceManager:
    """Tables over a stack of free blocks."""

    def __init__(
        self, block_size: Any, num_gpu_blocks: Any, num_cpu_blocks: Any, watermark: Any = 0.01
    ) -> None:
        self.block_size, self.num_cpu_blocks = block_size, num_cpu_blocks
        self.num_gpu_blocks = num_gpu_blocks
        self.watermark_blocks = int(watermark * num_gpu_blocks)
        blocks = [SimpleNamespace(block_number=n, ref_count=0) for n in range(num_gpu_blocks)]
        self.gpu_allocator = SimpleNamespace(free_blocks=blocks)
        self.tables = {}

    def can_allocate(self, group: Any) -> Any:
        needed = group.get_seqs(SequenceStatus.WAITING)[0].num_blocks + self.watermark_blocks
        if needed > self.num_gpu_blocks:
            return AllocStatus.NEVER
        return AllocStatus.OK if needed <= self.get_num_free_gpu_blocks() else AllocStatus.LATER

    def allocate(self, group: Any) -> Any:
        for seq in group.get_seqs(SequenceStatus.WAITING):
            self.tables[seq.seq_id] = []
            self._extend(seq)

    def can_append_slot(self, group: Any) -> Any:
        return len(group.get_seqs(SequenceStatus.RUNNING)) <= self.get_num_free_gpu_blocks()

    def append_slot(self, seq: Any) -> Any:
        missing = seq.num_blocks - len(self.tables[seq.seq_id])
        assert missing in (0, 1), "one slot a call"
        self._extend(seq)

    def free(self, seq: Any) -> Any:
        for block in self.tables.pop(seq.seq_id, []):
            block.ref_count = 0
            self.gpu_allocator.free_blocks.append(block)

    def get_block_table(self, seq: Any) -> Any:
        return [block.block_number for block in self.tables[seq.seq_id]]

    def get_num_free_gpu_blocks(self) -> Any:
        return len(self.gpu_allocator.free_blocks)

    def _extend(self, seq: Any) -> Any:
        table = self.tables[seq.seq_id]
        while len(table) < seq.num_blocks:
            table.append(self.gpu_allocator.free_blocks.pop())
            table[-1].ref_count = 1


class AnswersStatus(ToySpaceManager):
    """Later versions answer a status to every question."""

    profile: ClassVar = {"watermark_blocks": 0}

    def can_append_slot(self, group: Any) -> Any:
        return AllocStatus.OK if super().can_append_slot(group) else AllocStatus.LATER


class AnswersBool(ToySpaceManager):
    """Early versions answer yes or no."""

    def can_allocate(self, group: Any) -> Any:
        return super().can_allocate(group) is AllocStatus.OK


class NeverSaysNever(ToySpaceManager):
    """What can never fit is told to wait."""

    def can_allocate(self, group: Any) -> Any:
        answer = super().can_allocate(group)
        return AllocStatus.LATER if answer is AllocStatus.NEVER else answer


class Blind(ToySpaceManager):
    """Shows no allocator."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.hidden, self.gpu_allocator = self.gpu_allocator, None

    def free(self, seq: Any) -> Any:
        self._seen(super().free, seq)

    def append_slot(self, seq: Any) -> Any:
        self._seen(super().append_slot, seq)

    def allocate(self, group: Any) -> Any:
        self._seen(super().allocate, group)

    def get_num_free_gpu_blocks(self) -> Any:
        return len((self.gpu_allocator or self.hidden).free_blocks)

    def _seen(self, call: Any, argument: Any) -> Any:
        self.gpu_allocator = self.hidden
        call(argument)
        self.gpu_allocator = None
