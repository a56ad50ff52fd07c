"""Correct oddities of the manager level: unlike any engine, and right under their profiles.

Nobody may accuse them; they are what false alarms are measured with. Each is built as any manager
is, with its profile on the class. Two of them are also the base of bugs: `ContentCheckedManager`
compares what it finds and is right whatever the hash function does, `ReportingManager` tells the
worker what changed in a table, in place of showing it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from poolproof.bugs.clean_groups import CleanHybridManager, CleanRingManager, CleanWindowManager
from poolproof.bugs.clean_manager import (
    CleanManager,
    CleanSequence,
    CleanSwappingManager,
    Copies,
    extra_keys_within,
)
from poolproof.bugs.clean_nano import CleanNanoManager
from poolproof.contract.content import Key

__all__ = ["MANAGER_ODDITIES", "ContentCheckedManager", "ReportingManager"]


class ContentCheckedManager(CleanManager):
    """Any hash will do, also one of a few bits."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.contents: dict[int, int] = {}
        self.numbers: dict[tuple[Any, ...], int] = {}

    def _find(self, sequence: CleanSequence, entry: int) -> int | None:
        wanted = self._content_of(sequence, entry)
        carriers = self.pool.index.get(self._key(sequence, entry), ())
        return next(
            (b for b in carriers if self._is_usable(b) and self.contents[b] == wanted), None
        )

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        first = sequence.num_published
        super()._publish_up_to(sequence, num_tokens)
        for entry in range(first, sequence.num_published):
            self.contents[sequence.table[entry]] = self._content_of(sequence, entry)

    def _content_of(self, sequence: CleanSequence, entry: int) -> int:
        """A number for what the KV of a block depends on, the same one for the same content."""
        size, contents = self.block_size, sequence.contents
        while len(contents) <= entry:
            first = len(contents) * size
            tokens = tuple(sequence.tokens[first : first + size])
            extra_keys = extra_keys_within(sequence.extra_keys or (), first, first + len(tokens))
            parent = contents[-1] if contents else -1
            contents.append(self._number_of(parent, tokens, tuple(extra_keys)))
        return contents[entry]

    def _number_of(self, parent: int, tokens: tuple[int, ...], extra_keys: tuple[Any, ...]) -> int:
        """A parent stands for all before it: whole prefixes of a long prompt take gigabytes."""
        return self.numbers.setdefault((parent, tokens, extra_keys), len(self.numbers))


class ReportingManager(CleanManager):
    """Before a step the worker hears the new blocks, or the whole table where it was rewritten."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.reported: dict[int, list[int]] = {}

    def take_table_update(self, seq_id: int, group: int = 0) -> tuple[bool, list[int]]:  # noqa: ARG002 - one group
        """Whether the blocks replace what the worker has, and the blocks."""
        table = self.sequences[seq_id].table
        reported = self.reported.get(seq_id, [])
        self.reported[seq_id] = list(table)
        if self._is_rewritten(reported, table):
            return True, list(table)
        return False, table[len(reported) :]

    def preempt(self, seq_id: int) -> None:
        """The worker forgets the sequence, and hears the whole table when it comes back."""
        super().preempt(seq_id)
        self.reported.pop(seq_id, None)

    def _is_rewritten(self, reported: list[int], table: list[int]) -> bool:
        return table[: len(reported)] != reported


SLIDING = {"kind": "sliding", "window": 8}


class FirstCarrierManager(CleanManager):
    """Of two equal blocks the first keeps the key, the second ends without one."""

    profile: ClassVar[dict[str, Any]] = {"duplicates": "first", "eviction": "unhashed-first"}


class MergingManager(CleanManager):
    """Of two equal blocks the second is given back, and the table names the first from then on."""

    profile: ClassVar[dict[str, Any]] = {"duplicates": "first", "tables": "merged"}

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        first = sequence.num_published
        super()._publish_up_to(sequence, num_tokens)
        for entry in range(first, sequence.num_published):
            own, carrier = sequence.table[entry], self._find(sequence, entry)
            assert carrier is not None
            if carrier != own:
                sequence.table[entry] = carrier
                self.pool.touch([carrier])
                self.pool.free([own])


class WholePromptManager(CleanManager):
    """A prompt that is cached to its end computes nothing at all."""

    profile: ClassVar[dict[str, Any]] = {"full_hit": "allowed"}


class LifoManager(CleanManager):
    """What was freed last is reused first, cached or not."""

    profile: ClassVar[dict[str, Any]] = {"eviction": "lifo", "misuse": "ignores"}


class NullBlockManager(CleanManager):
    """Block 5 is never handed out, although nothing ever slides out of a window."""

    profile: ClassVar[dict[str, Any]] = {"null_block": 5}


class DeferringManager(CleanManager):
    """What is given back is free once the next step is over."""

    profile: ClassVar[dict[str, Any]] = {"frees": "after-step", "eviction": "unhashed-first"}


class ReservingManager(CleanManager):
    """A sequence has blocks for all of its tokens from its first chunk on."""

    profile: ClassVar[dict[str, Any]] = {"reserves": "sequence", "never": "untold"}


class WatchfulManager(CleanManager):
    """An admission leaves two blocks free, and room for three tokens is kept ahead."""

    profile: ClassVar[dict[str, Any]] = {"watermark_blocks": 2, "lookahead_tokens": 3}


class EarlyPublisher(CleanManager):
    """Keys are found from the moment that the blocks are taken, also in the same step."""

    profile: ClassVar[dict[str, Any]] = {"publishes": "scheduled", "same_step_hit": "allowed"}


class RewritingManager(CleanManager):
    """Of a prompt that is cached to its end the last token is computed again, in its old place."""

    profile: ClassVar[dict[str, Any]] = {}

    def _most_cached(self, sequence: CleanSequence) -> int:
        return len(sequence.tokens)

    def _plan(self, sequence: CleanSequence, cached: int, num_tokens: int | None) -> None:
        super()._plan(sequence, min(cached, len(sequence.tokens) - 1), num_tokens)

    def _admit(self, sequence: CleanSequence, num_tokens: int | None) -> int | str:
        answer = super()._admit(sequence, num_tokens)
        return answer if isinstance(answer, str) else sequence.num_computed

    def _enter(self, sequence: CleanSequence) -> None:
        sequence.num_published = len(sequence.table)
        sequence.num_offered = sequence.num_computed
        # From behind the hits on: the block that is written anew stays shared.
        self._grow(sequence, len(sequence.table) * self.block_size)
        self.sequences[sequence.seq_id] = sequence
        self._publish_scheduled(sequence)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: tuple[Any, ...] | None = None) -> int:
        return min(super().lookup_prefix(tokens, extra_keys=extra_keys), len(tokens) - 1)


class RegainingManager(CleanManager):
    """A block that was taken and given back before anything was written is found as before."""

    profile: ClassVar[dict[str, Any]] = {}

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.former_keys: dict[int, Key] = {}

    def _grow(self, sequence: CleanSequence, first_new: int) -> Copies:
        keys = list(self.pool.hashes)
        before = len(sequence.table)
        copies = super()._grow(sequence, first_new)
        for block in sequence.table[before:]:
            key = keys[block]
            if key is not None:
                self.former_keys[block] = key
        return copies

    def step(self, batch: list[tuple[int, int]], **told: Any) -> None:
        for seq_id, _ in batch:
            self._written(self.sequences[seq_id])
        super().step(batch, **told)

    def loaded(self, seq_id: int) -> None:
        self._written(self.sequences[seq_id])
        super().loaded(seq_id)

    def _written(self, sequence: CleanSequence) -> None:
        """What the blocks held is gone, as far as anybody knows."""
        for block in sequence.table:
            self.former_keys.pop(block, None)

    def _free(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            key = self.former_keys.pop(block, None)
            if key is not None and self.pool.ref_count(block) == 1:
                self.pool.cache([block], [key])
        super()._free(blocks)


class LatePublisher(CleanManager):
    """Keys are found once the sequence that computed their blocks has ended."""

    profile: ClassVar[dict[str, Any]] = {"hits": "sound"}

    def _publish(self, sequence: CleanSequence) -> None:
        """Not yet."""

    def _release(self, sequence: CleanSequence) -> None:
        if sequence.place == "device" and not sequence.loading:
            super()._publish(sequence)
        super()._release(sequence)


class EarlyShower(CleanManager):
    """Full blocks are shown as cached from the moment they are taken, and found once computed."""

    profile: ClassVar[dict[str, Any]] = {}

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.filled_by: dict[int, int] = {}

    def is_cached(self, block_id: int) -> bool:
        sequence = self.sequences.get(self.filled_by.get(block_id, -1))
        is_full = sequence is not None and block_id in self._full(sequence)
        return (is_full and self.enable_caching) or super().is_cached(block_id)

    def _grow(self, sequence: CleanSequence, first_new: int) -> Copies:
        copies = super()._grow(sequence, first_new)
        self.filled_by.update(dict.fromkeys(self._full(sequence), sequence.seq_id))
        return copies

    def _full(self, sequence: CleanSequence) -> list[int]:
        return sequence.table[: len(sequence.tokens) // self.block_size]


class StepEndSlider(CleanWindowManager):
    """What no later token reads is given back at the end of a step, not when more is taken."""

    profile: ClassVar[dict[str, Any]] = {"null_block": 0, "groups": [SLIDING]}

    def step(self, batch: list[tuple[int, int]], **told: Any) -> None:
        super().step(batch, **told)
        for seq_id, _ in batch:
            self._slide(self.sequences[seq_id])


class QuietMerger(MergingManager):
    """Duplicates are merged, and the profile does not say so."""

    profile: ClassVar[dict[str, Any]] = {"duplicates": "first"}


class CachelessManager(CleanManager):
    """There is no prefix cache."""

    profile: ClassVar[dict[str, Any]] = {"publishes": "never"}


class ShyManager(CleanManager):
    """It uses at most one cached block, and puts off what would leave less than two free."""

    profile: ClassVar[dict[str, Any]] = {"hits": "sound", "admission": "sound"}

    def _hits(self, sequence: CleanSequence) -> list[int]:
        return super()._hits(sequence)[:1]

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        return self.pool.num_free() > 2 and super()._has_room(sequence, further)


class EagerForker(CleanManager):
    """A fork copies the partly filled tail at once, or has to wait."""

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        parent = self.sequences[seq_id]
        partial = parent.num_computed % self.block_size != 0
        if partial and not self.pool.num_free():
            return "later"
        super().fork(seq_id, child_id)
        if not partial:
            return []
        return self._copy_on_write(self.sequences[child_id], parent.num_computed)


class BlackBoxManager(CleanManager):
    """It shows its tables and nothing else."""

    num_free = free_order = ref_count = is_cached = None  # type: ignore[assignment]  # not shown


class Number:
    """An integer that is none to `isinstance`, as arrays give them."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __eq__(self, other: object) -> bool:
        return self.value == other

    __hash__ = None  # type: ignore[assignment]  # nor can it be a key


class ArrayManager(CleanManager):
    """It answers with tuples, and with numbers that are no plain integers."""

    def admit(self, *arguments: Any, **named: Any) -> Any:
        return _in_other_types(super().admit(*arguments, **named))

    def append(self, seq_id: int, tokens: list[int]) -> Any:
        return _in_other_types(super().append(seq_id, tokens))

    def schedule(self, seq_id: int, num_tokens: int) -> Any:
        return _in_other_types(super().schedule(seq_id, num_tokens))

    def draft(self, seq_id: int, tokens: list[int]) -> Any:
        return _in_other_types(super().draft(seq_id, tokens))

    def fork(self, seq_id: int, child_id: int) -> Any:
        return _in_other_types(super().fork(seq_id, child_id)) or None

    def block_table(self, seq_id: int, group: int = 0) -> Any:
        return _in_other_types(super().block_table(seq_id, group))

    def num_free(self) -> Any:
        return Number(super().num_free())

    def free_order(self) -> Any:
        return _in_other_types(super().free_order())


def _in_other_types(answer: Any) -> Any:
    """Tuples for lists, `Number` for integers."""
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        return tuple(_in_other_types(item) for item in answer)
    return Number(answer) if isinstance(answer, int) else answer


class BitmapManager:
    """The whole pool is two integers: free blocks are set bits, the highest goes first.

    One sequence a block at most: nothing is shared, nothing cached, nothing forked.
    """

    profile: ClassVar[dict[str, Any]] = {"publishes": "never", "eviction": "unspecified"}

    def __init__(self, num_blocks: int, block_size: int, *, enable_caching: bool = True) -> None:
        del enable_caching
        self.block_size, self.num_blocks = block_size, num_blocks
        self.free_bits = (1 << num_blocks) - 1
        self.rows: dict[int, list[int]] = {}
        self.lengths: dict[int, int] = {}

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:
        del extra_keys
        needed = -(-len(tokens) // self.block_size)
        if needed > self.num_blocks:
            return "never"
        if needed > self.num_free():
            return "later"
        self.rows[seq_id] = [self._take() for _ in range(needed)]
        self.lengths[seq_id] = len(tokens)
        return 0

    def append(self, seq_id: int, tokens: list[int]) -> str | None:
        length = self.lengths[seq_id] + len(tokens)
        missing = -(-length // self.block_size) - len(self.rows[seq_id])
        if missing > self.num_free():
            return "later"
        self.rows[seq_id] += [self._take() for _ in range(missing)]
        self.lengths[seq_id] = length
        return None

    def step(self, batch: list[tuple[int, int]]) -> None:
        """What is computed changes nothing here."""

    def finish(self, seq_id: int) -> None:
        for block in self.rows.pop(seq_id, ()):
            self.free_bits |= 1 << block

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return self.rows[seq_id]

    def num_free(self) -> int:
        return self.free_bits.bit_count()

    def _take(self) -> int:
        block = self.free_bits.bit_length() - 1
        self.free_bits &= ~(1 << block)
        return block


class SlidingManager(CleanWindowManager):
    """A window that is no whole number of blocks."""

    profile: ClassVar[dict[str, Any]] = {"null_block": 0, "groups": [{**SLIDING, "window": 7}]}


class ChunkedManager(CleanWindowManager):
    """Attention in chunks: at the start of one nothing before is read, and nothing is missed."""

    profile: ClassVar[dict[str, Any]] = {
        "null_block": 0,
        "groups": [{"kind": "chunked", "window": 8}],
    }


class RingManager(CleanRingManager):
    """A table that goes round."""

    profile: ClassVar[dict[str, Any]] = {
        "publishes": "never",
        "window_blocks": "reused",
        "eviction": "lifo",
        "groups": [SLIDING],
    }


class SwappingManager(CleanSwappingManager):
    """Families of forks move to host memory and back."""

    profile: ClassVar[dict[str, Any]] = {"host_blocks": 6}


class HybridManager(CleanHybridManager):
    """Full attention in blocks of eight beside a window in blocks of four."""

    profile: ClassVar[dict[str, Any]] = {
        "null_block": 0,
        "groups": [{"kind": "full", "block_size": 8}, SLIDING],
    }


MANAGER_ODDITIES: tuple[type, ...] = (
    FirstCarrierManager,
    MergingManager,
    WholePromptManager,
    LifoManager,
    NullBlockManager,
    DeferringManager,
    ReservingManager,
    WatchfulManager,
    EarlyPublisher,
    RewritingManager,
    RegainingManager,
    LatePublisher,
    EarlyShower,
    StepEndSlider,
    QuietMerger,
    CachelessManager,
    ShyManager,
    EagerForker,
    BlackBoxManager,
    ArrayManager,
    BitmapManager,
    ContentCheckedManager,
    ReportingManager,
    SlidingManager,
    ChunkedManager,
    RingManager,
    SwappingManager,
    HybridManager,
    CleanNanoManager,
)
