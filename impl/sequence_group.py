"""What the vLLM-V0-shaped block space manager knows of a request: sequences, and their group.

A request is a group of sequences with one prompt, several of them with parallel sampling or beam
search. A sequence lays its tokens out in logical blocks, which say which tokens belong together;
where their KV lies is said by its table (`poolproof.impl.block_tables`). Sampling parameters,
texts and scores belong to the engine; its own classes serve the manager as well, when they have
these members. The scheduler moves the states, the manager reads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from poolproof.impl.sizing import require_int


class LogicalTokenBlock:
    """The tokens of block number `block_number` of a sequence.

    `token_ids` holds the tokens there are, and no padding. A full block never changes again, which
    is why forked sequences may share it.
    """

    __slots__ = ("block_number", "block_size", "token_ids")

    def __init__(self, block_number: int, block_size: int) -> None:
        self.block_number = block_number
        self.block_size = block_size
        self.token_ids: list[int] = []

    def get_num_empty_slots(self) -> int:
        """How many tokens still fit."""
        return self.block_size - len(self.token_ids)

    def is_full(self) -> bool:
        """Whether no token fits any more."""
        return len(self.token_ids) == self.block_size

    def append_tokens(self, token_ids: list[int]) -> None:
        """Add tokens. Raises ValueError, and adds none, when they do not all fit."""
        if len(token_ids) > self.get_num_empty_slots():
            raise ValueError(
                f"logical block {self.block_number} has {self.get_num_empty_slots()} empty slots, "
                f"not {len(token_ids)}"
            )
        self.token_ids.extend(token_ids)

    def copy(self) -> LogicalTokenBlock:
        """A block with the same tokens that grows by itself."""
        block = LogicalTokenBlock(self.block_number, self.block_size)
        block.token_ids = list(self.token_ids)
        return block


class SequenceStatus(Enum):
    """Where a sequence stands. `FINISHED` covers stopped, length-capped and aborted ones."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    FINISHED = "finished"


class Sequence:
    """A sequence that only grows.

    Args:
        seq_id: distinct among all sequences of a manager.
        prompt_token_ids: at least one token.
        block_size: that of the manager.

    Raises ValueError for an empty prompt or a block size below 1.
    """

    def __init__(self, seq_id: int, prompt_token_ids: Iterable[int], block_size: int) -> None:
        self.seq_id = seq_id
        self.block_size = require_int("block_size", block_size, at_least=1)
        self.status = SequenceStatus.WAITING
        self.logical_token_blocks: list[LogicalTokenBlock] = []
        self.num_tokens = 0
        self.append_tokens(prompt_token_ids)
        if not self.num_tokens:
            raise ValueError(f"sequence {seq_id} needs at least one token")

    def append_tokens(self, token_ids: Iterable[int]) -> None:
        """Add tokens, in new logical blocks where the last one is full."""
        tokens = list(token_ids)
        self.num_tokens += len(tokens)
        blocks = self.logical_token_blocks
        if blocks and len(tokens) <= blocks[-1].get_num_empty_slots():
            blocks[-1].append_tokens(tokens)
            return
        at = 0
        while at < len(tokens):
            if not blocks or blocks[-1].is_full():
                blocks.append(LogicalTokenBlock(len(blocks), self.block_size))
            fitting = tokens[at : at + blocks[-1].get_num_empty_slots()]
            blocks[-1].append_tokens(fitting)
            at += len(fitting)

    def get_token_ids(self) -> list[int]:
        """All tokens, prompt and output."""
        return [token for block in self.logical_token_blocks for token in block.token_ids]

    def fork(self, seq_id: int) -> Sequence:
        """A sequence with the same tokens and status that grows by itself.

        Full logical blocks are shared, as they never change; a fork costs a list of references.
        """
        child = Sequence.__new__(Sequence)
        child.seq_id = seq_id
        child.block_size = self.block_size
        child.status = self.status
        child.logical_token_blocks = list(self.logical_token_blocks)
        child.logical_token_blocks[-1] = self.logical_token_blocks[-1].copy()
        child.num_tokens = self.num_tokens
        return child

    def __repr__(self) -> str:
        return f"sequence {self.seq_id} ({self.status.value}, {self.num_tokens} tokens)"


class SequenceGroup:
    """The sequences of one request, in the order in which they came."""

    def __init__(self, request_id: str, sequences: Iterable[Sequence]) -> None:
        """Raises ValueError when two sequences have one id."""
        self.request_id = request_id
        self._sequences: dict[int, Sequence] = {}
        for seq in sequences:
            self.add(seq)

    def add(self, seq: Sequence) -> None:
        """Add a forked sequence. Raises ValueError when its id is there already."""
        if seq.seq_id in self._sequences:
            raise ValueError(f"request {self.request_id!r} has a sequence {seq.seq_id} already")
        self._sequences[seq.seq_id] = seq

    def remove(self, seq_id: int) -> None:
        """Forget a sequence. Raises ValueError when there is none with this id."""
        if self._sequences.pop(seq_id, None) is None:
            raise ValueError(f"request {self.request_id!r} has no sequence {seq_id!r}")

    def get_seqs(self, status: SequenceStatus | None = None) -> list[Sequence]:
        """The sequences with the status; None: all."""
        return [s for s in self._sequences.values() if status is None or s.status is status]

    def is_finished(self) -> bool:
        """Whether every sequence is."""
        return all(s.status is SequenceStatus.FINISHED for s in self._sequences.values())
