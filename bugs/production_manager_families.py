"""Families of manager bugs that show only at the sizes of servers, as functions of a constant.

Each is the clean manager with one step changed, and begins at the constant that it is made with: a
hash of so many bits, a row of so many entries, a count that wraps. No constant is special, so that
whoever adds one sees whether the runs at production sizes find it. `depth` is the least depth of
`certify` that has to refuse it, `script` the run that is made for it.

`production_look_alikes.py` has correct managers that look alike and must not be accused.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from poolproof.bugs.careless_keys import (
    bits_of_image_places,
    cut_texts,
    ends_of_texts,
    few_keys,
    fork_keys,
    images_once,
    images_up_to,
    joined_texts,
    some_keys,
)
from poolproof.bugs.clean_manager import CleanManager, CleanSequence, Copies
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.production_families import FAMILIES as POOL_FAMILIES

__all__ = ["BLOCK_SIZES", "FAMILIES", "OF_BLOCK_SIZES", "Family", "FamilyMember"]

TokenHash = Callable[[Sequence[int]], object]
"""What a manager makes of the tokens of one block."""


@dataclass(frozen=True, slots=True)
class FamilyMember:
    """One member of a family: a manager class, and the least depth that refuses it."""

    name: str
    cls: type[CleanManager]
    script: str
    depth: str


class Family(dict[str, FamilyMember]):
    """The members of one family, by their constants in words."""

    def __init__(
        self,
        name: str,
        script: str,
        make: Callable[..., type[CleanManager]],
        quick: Sequence[object],
        standard: Sequence[object] = (),
    ) -> None:
        super().__init__()
        self.name = name
        for depth, constants in (("quick", quick), ("standard", standard)):
            for constant in constants:
                arguments = constant if isinstance(constant, tuple) else (constant,)
                words = " ".join(map(str, arguments))
                self[words] = FamilyMember(f"{name} {words}", make(*arguments), script, depth)


def _hashing(tokens: TokenHash) -> type[CleanManager]:
    """A manager whose keys have a parent, a hash of the block's tokens, and the extra keys."""

    class Hashing(CleanManager):
        def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
            size = self.block_size
            block = sequence.tokens[entry * size : (entry + 1) * size]
            parent = sequence.keys[entry - 1] if entry else b""
            extra = self._extra_keys(sequence.extra_keys or (), entry * size, (entry + 1) * size)
            return self.digest(parent + repr((tokens(block), extra)).encode())

    return Hashing


def _polynomial(base: int, modulus: int) -> type[CleanManager]:
    def tokens(block: Sequence[int]) -> int:
        value = 0
        for token in block:
            value = (value * base + token) % modulus
        return value

    return _hashing(tokens)


def _polynomial_from_the_end(base: int, modulus: int) -> type[CleanManager]:
    return _hashing(lambda block: sum(t * base**i for i, t in enumerate(block)) % modulus)


def _exclusive_or_polynomial(base: int, start: int) -> type[CleanManager]:
    def tokens(block: Sequence[int]) -> int:
        value = start
        for token in block:
            value = (value * base ^ token) % 2**32
        return value

    return _hashing(tokens)


def _wide_polynomial(base: int, modulus: int) -> type[CleanManager]:
    """Tokens are mixed in before the product, as in FNV-1a."""

    def tokens(block: Sequence[int]) -> int:
        value = 2_166_136_261
        for token in block:
            value = (value ^ token) * base % modulus
        return value

    return _hashing(tokens)


def _shifted_in(bits: int, how: str) -> type[CleanManager]:
    def tokens(block: Sequence[int]) -> int:
        value = 0
        for place, token in enumerate(block):
            shifted = token << bits * place
            value = value + shifted if how == "added" else value ^ shifted
        return value

    return _hashing(tokens)


def _left_out(special: int) -> type[CleanManager]:
    return _hashing(lambda block: [token for token in block if token != special])


def _put_for_none(special: int) -> type[CleanManager]:
    return _hashing(lambda block: [token or special for token in block])


def _moments(order: int) -> type[CleanManager]:
    def tokens(block: Sequence[int]) -> list[int]:
        return [
            sum(place**power * token for place, token in enumerate(block))
            for power in range(order + 1)
        ]

    return _hashing(tokens)


def _bits_of_each(bits: int) -> type[CleanManager]:
    """Each token is hashed by itself, to a few bits."""
    return _hashing(lambda block: [token * 2_654_435_761 % 2**32 >> (32 - bits) for token in block])


def _masked(bits: int) -> type[CleanManager]:
    return _hashing(lambda block: [token & (1 << bits) - 1 for token in block])


def _shifted(bits: int) -> type[CleanManager]:
    return _hashing(lambda block: [token >> bits for token in block])


def _modulo(modulus: int) -> type[CleanManager]:
    return _hashing(lambda block: [token % modulus for token in block])


def _padded(width: int) -> type[CleanManager]:
    return _hashing(lambda block: "".join(f"{token:0{width}d}" for token in block))


def _padded_hexadecimal(width: int) -> type[CleanManager]:
    return _hashing(lambda block: "".join(f"{token:0{width}x}" for token in block))


def _packed(kind: str) -> type[CleanManager]:
    return _hashing(lambda block: struct.pack(f"{len(block)}{kind}", *block))


def _summary(name: str) -> type[CleanManager]:
    summaries: dict[str, TokenHash] = {
        "sum": sum,
        "sorted": sorted,
        "set": lambda block: sorted(set(block)),
        "ends": lambda block: (block[0], block[-1]),
        "first two": lambda block: block[:2],
        "last three": lambda block: block[-3:],
        "weighted": lambda block: sum(i * t for i, t in enumerate(block, start=1)),
        "exclusive or": _exclusive_or,
        "byte lengths": lambda b: b"".join(t.to_bytes(-(-t.bit_length() // 8), "big") for t in b),
    }
    return _hashing(summaries[name])


def _exclusive_or(block: Sequence[int]) -> int:
    value = 0
    for token in block:
        value ^= token
    return value


def _checksum(name: str) -> type[CleanManager]:
    checksums: dict[str, TokenHash] = {
        "crc32 int32": lambda b: zlib.crc32(struct.pack(f"<{len(b)}I", *b)),
        "crc32 int64": lambda b: zlib.crc32(struct.pack(f"<{len(b)}q", *b)),
        "crc32 text": lambda b: zlib.crc32(str(list(b)).encode()),
        "crc32 commas": lambda b: zlib.crc32(",".join(map(str, b)).encode()),
        "adler32 int32": lambda b: zlib.adler32(struct.pack(f"<{len(b)}I", *b)),
    }
    return _hashing(checksums[name])


def _short_key(bits: int) -> type[CleanManager]:
    class ShortKey(CleanManager):
        def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
            key = int.from_bytes(super()._block_key(sequence, entry)[:8], "big")
            return (key >> (64 - bits)).to_bytes(8, "big")

    return ShortKey


def _short_parent(bits: int) -> type[CleanManager]:
    class ShortParent(CleanManager):
        def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
            size, parent = self.block_size, 0
            if entry:
                parent = int.from_bytes(sequence.keys[entry - 1][:8], "big") >> (64 - bits)
            tokens = sequence.tokens[entry * size : (entry + 1) * size]
            extra = self._extra_keys(sequence.extra_keys or (), entry * size, (entry + 1) * size)
            return self.digest(repr((parent, tokens, extra)).encode())

    return ShortParent


def _last_blocks(count: int) -> type[CleanManager]:
    """A key of the last blocks alone, so many of them."""

    class LastBlocks(CleanManager):
        def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
            first, end = max(0, entry + 1 - count) * self.block_size, (entry + 1) * self.block_size
            extra = self._extra_keys(sequence.extra_keys or (), 0, end)
            return self.digest(repr((sequence.tokens[first:end], extra)).encode())

    return LastBlocks


def _with_parent(parent: Callable[[Sequence[bytes], int], object]) -> type[CleanManager]:
    """A key of the block and of what `parent(keys before, entry)` says of those before it."""

    class WithParent(CleanManager):
        def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
            size = self.block_size
            tokens = sequence.tokens[entry * size : (entry + 1) * size]
            extra = self._extra_keys(sequence.extra_keys or (), entry * size, (entry + 1) * size)
            return self.digest(repr((parent(sequence.keys, entry), tokens, extra)).encode())

    return WithParent


def _no_parent_at(depth: int) -> type[CleanManager]:
    return _with_parent(lambda keys, entry: keys[entry - 1] if entry not in (0, depth) else None)


def _no_parent_every(count: int) -> type[CleanManager]:
    return _with_parent(lambda keys, entry: keys[entry - 1] if entry % count else None)


def _ancestor(depth: int) -> type[CleanManager]:
    """Deeper blocks name the one at `depth`, and where they stand."""

    def parent(keys: Sequence[bytes], entry: int) -> object:
        return (entry, keys[min(entry - 1, depth)]) if entry else None

    return _with_parent(parent)


def _place_for_parent() -> type[CleanManager]:
    class PlaceForParent(CleanManager):
        def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
            size = self.block_size
            tokens = sequence.tokens[entry * size : (entry + 1) * size]
            extra = self._extra_keys(sequence.extra_keys or (), 0, (entry + 1) * size)
            return self.digest(repr((entry, tokens, extra)).encode())

    return PlaceForParent


def _first_tokens(count: int) -> type[CleanManager]:
    """Tokens beyond so many are not in any key."""

    class FirstTokens(CleanManager):
        def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
            tokens, sequence.tokens = sequence.tokens, sequence.tokens[:count]
            try:
                return super()._block_key(sequence, entry)
            finally:
                sequence.tokens = tokens

    return FirstTokens


def _generation_bits(bits: int) -> type[CleanManager]:
    """Who comes back takes its blocks, if their generations of so many bits are as they were."""

    class CountsGenerations(CleanPool):
        def __init__(self, num_blocks: int, **options: Any) -> None:
            super().__init__(num_blocks, **options)
            self.generations = [0] * num_blocks

        def allocate(self, n: int) -> list[int]:
            taken = super().allocate(n)
            for block in taken:
                self.generations[block] += 1
            return taken

    class GenerationBits(CleanManager):
        pool_class = CountsGenerations

        def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
            super().__init__(num_blocks, block_size, **options)
            self.parked: dict[int, list[tuple[int, int]]] = {}

        def _generation(self, block: int) -> int:
            assert isinstance(self.pool, CountsGenerations)
            return self.pool.generations[block] % (1 << bits)

        def preempt(self, seq_id: int) -> None:
            sequence = self.sequences[seq_id]
            kept = sequence.table[: sequence.num_published]
            super().preempt(seq_id)
            self.parked[seq_id] = [(block, self._generation(block)) for block in kept]

        def _hits(self, sequence: CleanSequence) -> list[int]:
            parked = self.parked.pop(sequence.seq_id, [])
            if parked and all(
                self._generation(block) == was and self.pool.block_hash(block) is not None
                for block, was in parked
            ):
                return [block for block, _ in parked]
            return super()._hits(sequence)

    return GenerationBits


def _epochs(count: int) -> type[CleanManager]:
    """What is cached is found in its own of so many epochs; a reset begins the next."""
    (family,) = (f for f in POOL_FAMILIES if f.title == "blocks have one of n epochs")

    class Epochs(CleanManager):
        pool_class = family.make(count)

    return Epochs


def _short_counts(bits: int) -> type[CleanManager]:
    class ShortCounts(CleanPool):
        def touch(self, block_ids: list[int]) -> None:
            super().touch(block_ids)
            for block_id in block_ids:
                self.ref_counts[block_id] &= (1 << bits) - 1

    class CountsInShort(CleanManager):
        pool_class = ShortCounts

    return CountsInShort


def _narrow_row(width: int) -> type[CleanManager]:
    """A row of so many entries, and what is written behind it lands at its beginning."""

    class NarrowRow(CleanManager):
        def block_table(self, seq_id: int, group: int = 0) -> list[int]:
            table = super().block_table(seq_id, group)
            return table if len(table) <= width else table[width:] + table[len(table) - width :]

    return NarrowRow


def _beyond_the_row(ahead: int) -> type[CleanManager]:
    """Slots ahead of the scheduled tokens, also where the row is full."""

    class BeyondTheRow(CleanManager):
        profile: ClassVar[dict[str, Any]] = {"max_tokens": 2_048, "lookahead_tokens": ahead}

        def _within_row(self, slots: int) -> int:
            return slots

    return BeyondTheRow


def _few_rows(count: int) -> type[CleanManager]:
    """A row is taken before room is looked for, and lost where there is none."""

    class FewRows(CleanManager):
        lost = 0

        def admit(self, seq_id: int, tokens: list[int], **named: Any) -> int | str:
            if len(self.sequences) + self.lost >= count:
                return "later"
            answer = super().admit(seq_id, tokens, **named)
            if answer == "later" and self.sequences:
                self.lost += 1
            return answer

    return FewRows


def _rows_in_turn(count: int) -> type[CleanManager]:
    """Tables are kept in so many rows, and the next sequence takes the next one."""

    class RowsInTurn(CleanManager):
        def block_table(self, seq_id: int, group: int = 0) -> list[int]:
            newest = max(other for other in self.sequences if other % count == seq_id % count)
            return super().block_table(newest, group)

    return RowsInTurn


def _short_ids(bits: int) -> type[CleanManager]:
    class ShortIds(CleanManager):
        def block_table(self, seq_id: int, group: int = 0) -> list[int]:
            return [block & (1 << bits) - 1 for block in super().block_table(seq_id, group)]

    return ShortIds


def _small_index(count: int) -> type[CleanManager]:
    """What is cached beyond so many keys is not found."""

    class SmallIndex(CleanPool):
        def lookup(self, block_hash: Any) -> int | None:
            found = super().lookup(block_hash)
            return found if len(self.index) <= count else None

    class WithSmallIndex(CleanManager):
        pool_class = SmallIndex

    return WithSmallIndex


def _stale_after(count: int) -> type[CleanManager]:
    """After so many reused blocks the next ones keep the keys of what they held before."""

    class StalePool(CleanPool):
        reused = 0

        def _recycle(self, block_id: int) -> None:
            self.reused += 1
            if self.reused <= count:
                super()._recycle(block_id)

    class Stale(CleanManager):
        pool_class = StalePool

    return Stale


def _worn_out(count: int) -> type[CleanManager]:
    """After so many calls a sequence that ends keeps its last block."""

    class WornOut(CleanManager):
        calls = 0

        def step(self, batch: list[tuple[int, int]], **told: Any) -> None:
            self.calls += 1
            super().step(batch, **told)

        def admit(self, seq_id: int, tokens: list[int], **named: Any) -> int | str:
            self.calls += 1
            return super().admit(seq_id, tokens, **named)

        def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
            self.calls += 1
            return super().append(seq_id, tokens)

        def _give_back(self, sequence: CleanSequence) -> None:
            self.calls += 1
            if self.calls > count:
                del sequence.table[-1:]
            super()._give_back(sequence)

    return WornOut


def _preempted_often(count: int) -> type[CleanManager]:
    """At every so manyth preemption a block is not given back."""

    class Preempted(CleanManager):
        preemptions = 0

        def preempt(self, seq_id: int) -> None:
            self.preemptions += 1
            if self.preemptions % count == 0:
                del self.sequences[seq_id].table[-1:]
            super().preempt(seq_id)

    return Preempted


def _shared_up_to(count: int) -> type[CleanManager]:
    """A fork counts its first so many blocks."""

    class SharedUpTo(CleanManager):
        def _share(self, parent: CleanSequence, child: CleanSequence) -> None:
            computed = -(-parent.num_computed // self.block_size)
            child.table = parent.table[:computed]
            self._touch(child.table[:count])

    return SharedUpTo


def _written_beyond(count: int) -> type[CleanManager]:
    """Behind so many blocks a shared one is written over and not copied."""

    class WrittenBeyond(CleanManager):
        def _is_shared(self, sequence: CleanSequence, position: int) -> bool:
            is_near = position // self.block_size < count
            return is_near and super()._is_shared(sequence, position)

    return WrittenBeyond


def _generations(count: int) -> type[CleanManager]:
    """A fork of a fork, so many deep, is not counted."""

    class Generations(CleanManager):
        def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
            super().__init__(num_blocks, block_size, **options)
            self.generation: dict[int, int] = {}

        def fork(self, seq_id: int, child_id: int) -> Copies | str:
            answer = super().fork(seq_id, child_id)
            generation = self.generation.get(seq_id, 0) + 1
            self.generation[child_id] = generation
            if generation % count == 0 and answer != "later":
                self.pool.free(self.sequences[child_id].table[-1:])
            return answer

    return Generations


def _kept_stale(count: int) -> type[CleanManager]:
    """What takes more than so many blocks at once leaves their old keys in the index."""

    class BulkPool(CleanPool):
        is_bulk = False

        def allocate(self, n: int) -> list[int]:
            self.is_bulk = n > count
            return super().allocate(n)

        def _recycle(self, block_id: int) -> None:
            if not self.is_bulk:
                super()._recycle(block_id)

    class KeptStale(CleanManager):
        pool_class = BulkPool

    return KeptStale


def _few_at_once(count: int) -> type[CleanManager]:
    """A sequence that grows takes at most so many blocks."""

    class FewAtOnce(CleanManager):
        def _append(self, sequence: CleanSequence, tokens: list[int]) -> Copies:
            before = len(sequence.table)
            copies = super()._append(sequence, tokens)
            if before and (further := sequence.table[before + count :]):
                del sequence.table[before + count :]
                self.pool.free(further[::-1])
            return copies

    return FewAtOnce


def _keys_kept(count: int) -> type[CleanManager]:
    """A sequence that is cut forgets its last keys, so many of them and no more."""

    class KeysKept(CleanManager):
        def _forget_keys(self, sequence: CleanSequence, full: int) -> None:
            kept = sequence.keys[: max(full, len(sequence.keys) - count)]
            super()._forget_keys(sequence, full)
            sequence.keys = kept

    return KeysKept


def _taken_at_a_refusal(blocks: int) -> type[CleanManager]:
    """A growth by more than so many blocks that is refused keeps what was free."""

    class TakenAtARefusal(CleanManager):
        def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
            answer = super().append(seq_id, tokens)
            free = self.pool.num_free()
            if answer == "later" and len(tokens) > blocks * self.block_size:
                self.sequences[seq_id].table += self.pool.allocate(free)
            return answer

    return TakenAtARefusal


def _refused_often(count: int) -> type[CleanManager]:
    """At every so manyth refused growth the first token is kept."""

    class RefusedOften(CleanManager):
        refusals = 0

        def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
            answer = super().append(seq_id, tokens)
            if answer == "later":
                self.refusals += 1
                if self.refusals % count == 0:
                    self.sequences[seq_id].tokens.append(tokens[0])
            return answer

    return RefusedOften


def _gives_up(count: int) -> type[CleanManager]:
    """A sequence that was refused so often waits for three more turns, room or not."""

    class GivesUp(CleanManager):
        def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
            super().__init__(num_blocks, block_size, **options)
            self.refusals: dict[int, int] = {}
            self.turns = 0

        def _admit(self, sequence: CleanSequence, num_tokens: int | None) -> int | str:
            if self.turns:
                self.turns -= 1
                return "later"
            answer = super()._admit(sequence, num_tokens)
            if answer == "later":
                seen = self.refusals.get(sequence.seq_id, 0) + 1
                self.refusals[sequence.seq_id] = seen
                self.turns = 3 * (seen >= count)
            return answer

    return GivesUp


def _free_hits(count: int) -> type[CleanManager]:
    """Of more than so many hits nobody asks whether they wait in the free queue."""

    class FreeHits(CleanManager):
        def _fits(self, needed: int, hits: list[int]) -> bool:
            return super()._fits(needed, hits if len(hits) <= count else [])

    return FreeHits


def _short_count_of_tokens(bits: int) -> type[CleanManager]:
    class ShortCount(CleanManager):
        def _num_entries(self, sequence: CleanSequence) -> int:
            covered = sequence.num_computed + sequence.num_scheduled
            over = covered >> bits << bits
            entries = super()._num_entries(sequence)
            return entries - over // self.block_size if over else entries

    return ShortCount


def _few_drafts(count: int) -> type[CleanManager]:
    """Of more than so many drafts that are accepted the others count as not computed."""

    class FewDrafts(CleanManager):
        def accept(self, seq_id: int, num_tokens: int, **told: Any) -> None:
            super().accept(seq_id, num_tokens, **told)
            self.sequences[seq_id].num_computed -= max(0, num_tokens - count)

    return FewDrafts


def _few_carriers(count: int) -> type[CleanManager]:
    """Of more than so many blocks with one key the index forgets the first."""

    class FewCarriers(CleanPool):
        def _index_insert(self, key: Any, block_id: int) -> None:
            super()._index_insert(key, block_id)
            del self.index[key][: len(self.index[key]) - count]

        def _index_remove(self, key: Any, block_id: int) -> None:
            if block_id in self.index.get(key, ()):
                super()._index_remove(key, block_id)

    class WithFewCarriers(CleanManager):
        pool_class = FewCarriers

    return WithFewCarriers


def _half_reset(count: int) -> type[CleanManager]:
    """A reset forgets so many keys and no more."""

    class HalfReset(CleanPool):
        def reset(self) -> bool:
            kept = dict(list(self.index.items())[count:])
            hashes = self.hashes
            if not super().reset():
                return False
            self.index = kept
            self.hashes = [key if key in kept else None for key in hashes]
            return True

    class WithHalfReset(CleanManager):
        pool_class = HalfReset

    return WithHalfReset


def _lost_without_cache(count: int) -> type[CleanManager]:
    """Without a cache a sequence of more than so many blocks keeps the last one."""

    class LostWithoutCache(CleanManager):
        def _give_back(self, sequence: CleanSequence) -> None:
            if not self.enable_caching and len(sequence.table) > count:
                del sequence.table[-1:]
            super()._give_back(sequence)

    return LostWithoutCache


def _freed_while_loading(count: int) -> type[CleanManager]:
    """A sequence that is ended gives back what a transfer of more than so many blocks writes."""

    class FreedWhileLoading(CleanManager):
        def _end(self, sequence: CleanSequence) -> None:
            if sequence.loading > count * self.block_size:
                sequence.loading = 0
            super()._end(sequence)

    return FreedWhileLoading


def _one_short(blocks: int) -> type[CleanManager]:
    """One block too many where a sequence fills exactly so many, or a multiple."""

    class OneShort(CleanManager):
        def _num_entries(self, sequence: CleanSequence) -> int:
            covered = sequence.num_computed + sequence.num_scheduled
            is_full = covered and covered % (self.block_size * blocks) == 0
            return super()._num_entries(sequence) + bool(is_full)

    return OneShort


def _tokens_of_block(first: int, last: int) -> type[CleanManager]:
    """A key of the first and the last tokens of a block, so many of each."""
    return _hashing(lambda b: (b[:first], b[max(first, len(b) - last) :]))


def _place_left_out(place: int) -> type[CleanManager]:
    return _hashing(lambda block: [token for at, token in enumerate(block) if at != place])


def _blocks_by_shift(smallest: int) -> type[CleanManager]:
    """From some size of a block on it is taken for the power of two below it."""

    class BlocksByShift(CleanManager):
        def _num_entries(self, sequence: CleanSequence) -> int:
            size = self.block_size
            if size < smallest or not size & (size - 1):
                return super()._num_entries(sequence)
            covered = sequence.num_computed + sequence.num_scheduled
            bits = size.bit_length() - 1
            return max((covered + (1 << bits) - 1) >> bits, len(sequence.table))

    return BlocksByShift


def _long_growth(count: int) -> type[CleanManager]:
    """A sequence that has so many blocks is written over at its beginning when it grows."""

    class LongGrowth(CleanManager):
        def _num_entries(self, sequence: CleanSequence) -> int:
            entries = super()._num_entries(sequence)
            return entries if entries <= count or not sequence.table else len(sequence.table)

    return LongGrowth


_M61 = 2**61 - 1

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("polynomial", "bases", _polynomial,
               [(31, 2**32), (131, _M61), (257, 2**64), (8_191, 2**61)],
               [(65_537, 2**31 - 1), (1_000_003, _M61)]),
        Family("polynomial with a large base", "token values", _polynomial,
               [(1_000_003, 2**32), (16_777_619, 2**32), (2_654_435_761, 2**32)]),
        Family("polynomial from the end", "bases", _polynomial_from_the_end,
               [(33, _M61), (131, 2**32)]),
        Family("polynomial with exclusive or", "bases", _exclusive_or_polynomial,
               [(31, 0), (131, 0)]),
        Family("lower bits of a token", "token values", _masked, [4, 8, 16, 20, 24, 30]),
        Family("upper bits of a token", "token values", _shifted, [1, 4, 8, 16]),
        Family("token modulo", "bases", _modulo, [10, 1_000, 32_000, 50_257], [99_991]),
        Family("token modulo a vocabulary", "token values", _modulo, [128_256, 151_936, 10**6]),
        Family("joined decimals", "token values", _padded, [0, 3, 5, 9]),
        Family("joined hexadecimals", "token values", _padded_hexadecimal, [0, 2, 4]),
        Family("tokens as floats", "token values", _packed, ["f"]),
        Family("summary", "token values", _summary,
               ["sum", "sorted", "set", "ends", "first two", "last three", "weighted",
                "exclusive or", "byte lengths"]),
        Family("checksum", "token values", _checksum,
               ["crc32 int32", "crc32 int64", "crc32 text", "crc32 commas", "adler32 int32"]),
        Family("bits of a key", "many prompts", _short_key, [8, 12, 16], [20, 22]),
        Family("bits of the parent", "short parents", _short_parent, [0, 4, 8, 12], [16]),
        Family("the last blocks", "parents", _last_blocks, [1, 2, 4, 16, 64]),
        Family("place instead of parent", "parents", _place_for_parent, [()]),
        Family("the first tokens", "long prompts", _first_tokens, [64, 512, 1_024, 3_000]),
        Family("the first tokens of a long prompt", "far tokens", _first_tokens, [],
               [20_000, 32_768, 65_536]),
        Family("cut texts", "extra keys", cut_texts,
               [("salt", 8), ("salt", 64), ("lora", 16), ("image", 32), ("image", -16)]),
        Family("both ends of texts", "extra keys", ends_of_texts, [4, 16, 64, 128, 500]),
        Family("images of one name", "extra keys", images_once, ["first", "last"]),
        Family("keys of a fork", "forks", fork_keys, ["image", "salt", "lora"]),
        Family("bits of a generation", "comes back", _generation_bits, [3, 6, 8]),
        Family("epochs of resets", "resets", _epochs, [16, 64, 256]),
        Family("joined texts", "extra keys", joined_texts, ["lora", "image"]),
        Family("bits of a count", "many references", _short_counts, [4, 8], [10, 12]),
        Family("entries of a row", "long prompts", _narrow_row, [64, 100, 256, 1_000]),
        Family("beyond the row", "row width", _beyond_the_row, [1, 3, 8]),
        Family("rows lost at refusals", "refusals", _few_rows, [64, 100]),
        Family("rows in turn", "many sequences", _rows_in_turn, [64, 128, 256], [1_000]),
        Family("bits of a block id", "long prompts", _short_ids, [8, 9]),
        Family("keys in the index", "many prompts", _small_index, [12, 100, 500]),
        Family("reused blocks", "long run", _stale_after, [500, 2_048], [15_000]),
        Family("calls", "long run", _worn_out, [4_096, 5_000], [20_000]),
        Family("preemptions", "preemptions", _preempted_often, [64, 100, 256]),
        Family("two tokens in one number", "token values", _polynomial,
               [(128_256, 2**64), (151_936, 2**64), (200_019, 2**64), (100_000_007, 2**64)]),
        Family("any factor in 32 bits", "token values", _polynomial,
               [(3_141_592_653, 2**32), (2_718_281_829, 2**32), (123_456_788, 2**32)]),
        Family("a known factor in 64 bits", "token values", _polynomial,
               [(6_364_136_223_846_793_005, 2**64), (0x9E3779B97F4A7C15, 2**64)]),
        Family("product after exclusive or", "token values", _wide_polynomial,
               [(16_777_619, 2**32), (0x5BD1E995, 2**32), (777_777_777, 2**32)]),
        Family("shifted tokens", "token values", _shifted_in,
               [(8, "exclusive"), (16, "added"), (17, "added"), (20, "exclusive"), (24, "added")]),
        Family("special ids left out", "token values", _left_out,
               [2, 50_256, 100_257, 128_009, 151_643]),
        Family("special ids for none", "token values", _put_for_none, [50_256, 128_001]),
        Family("moments", "token values", _moments, [1, 2]),
        Family("bits of each token", "many prompts", _bits_of_each, [12, 16], [20, 22]),
        Family("no parent at a depth", "depths", _no_parent_at, [3, 31, 100, 127, 513], [300, 450]),
        Family("no parent at every so manyth", "depths", _no_parent_every, [3, 7, 64, 100],
               [300]),
        Family("an ancestor for the parent", "depths", _ancestor, [1, 16, 64, 100, 333, 800]),
        Family("images up to a depth", "depths", images_up_to, [1, 8, 64, 300, 512]),
        Family("some of several keys", "extra keys", some_keys,
               ["first", "last", "lora over salt", "salt over lora", "image over salt",
                "image over lora"]),
        Family("the first keys", "extra keys", few_keys, [1, 2, 4, 8, 16, 32]),
        Family("blocks that a fork counts", "long prompts", _shared_up_to, [8, 64, 500]),
        Family("blocks that are copied", "long prompts", _written_beyond, [16, 64, 256, 600]),
        Family("generations of forks", "many references", _generations, [8, 20]),
        Family("stale keys of a bulk", "long prompts", _kept_stale, [64, 100, 300, 500]),
        Family("blocks in one growth", "long prompts", _few_at_once, [1, 2, 16, 64, 128]),
        Family("keys that a cut forgets", "long prompts", _keys_kept, [4, 16, 64, 128]),
        Family("blocks of a refused growth", "refusals", _taken_at_a_refusal, [1, 4, 32]),
        Family("refused growths", "refusals", _refused_often, [64, 100, 255]),
        Family("refusals of one sequence", "refusals", _gives_up, [20, 100, 250]),
        Family("hits that wait", "refusals", _free_hits, [4, 32, 64]),
        Family("drafts that are accepted", "long prompts", _few_drafts, [17, 32, 64]),
        Family("blocks with one key", "duplicates", _few_carriers, [2, 4, 8, 64, 200]),
        Family("keys that a reset forgets", "many prompts", _half_reset, [64, 500, 900]),
        Family("blocks that are lost without a cache", "without a cache", _lost_without_cache,
               [30, 64, 300]),
        Family("blocks of a transfer", "long prompts", _freed_while_loading, [30, 64, 200]),
        Family("exactly full", "every length", _one_short, [5, 64, 100, 300, 600, 1_000]),
        Family("blocks while growing", "long prompts", _long_growth, [32, 64, 256]),
    )
}  # fmt: skip
"""By name."""

BLOCK_SIZES = "block sizes"
"""For members that show only in blocks of other sizes than the usual one: no script."""

OF_BLOCK_SIZES: dict[str, Family] = {
    family.name: family
    for family in (
        Family("tokens of a block", BLOCK_SIZES, _tokens_of_block,
               [(5, 0), (8, 0), (15, 0), (63, 0), (200, 0), (0, 8), (0, 100), (4, 4), (32, 32)]),
        Family("a place of a block", BLOCK_SIZES, _place_left_out,
               [4, 7, 15, 31, 63, 64, 127, 255]),
        Family("bits of a count of tokens", BLOCK_SIZES, _short_count_of_tokens, [14, 15, 16]),
        Family("bits of an image's place", BLOCK_SIZES, bits_of_image_places, [2, 3, 4, 5, 6]),
        Family("blocks by a shift", BLOCK_SIZES, _blocks_by_shift, [3, 5]),
    )
}  # fmt: skip
"""By name."""
