"""Families of manager bugs that show only at the sizes of servers, as functions of a constant.

Each is the clean manager with one step changed, and begins at the constant that it is made with: a
hash of so many bits, a row of so many entries, a count that wraps. No constant is special, so that
whoever adds one sees whether the runs at production sizes find it. `level` is the least level of
`certify` that has to refuse it, `script` the run that is made for it.

Below stand correct managers that look alike and must not be accused.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_manager_steps import Copies
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.clean_sequence import CleanSequence

__all__ = ["FAMILIES", "LOOK_ALIKES", "Family", "Variant"]

TokenHash = Callable[[Sequence[int]], object]
"""What a manager makes of the tokens of one block."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One member of a family: a manager class, and the least level that refuses it."""

    name: str
    cls: type[CleanManager]
    script: str
    level: str


class Family(dict[str, Variant]):
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
        for level, constants in (("quick", quick), ("standard", standard)):
            for constant in constants:
                arguments = constant if isinstance(constant, tuple) else (constant,)
                words = " ".join(map(str, arguments))
                self[words] = Variant(f"{name} {words}", make(*arguments), script, level)


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


def _cut_texts(what: str, length: int) -> type[CleanManager]:
    class CutTexts(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            return [
                (kind, _cut(value, length) if kind == what else value, *place)
                for kind, value, *place in super()._extra_keys(extra_keys, first, end)
            ]

    return CutTexts


def _cut(value: Any, length: int) -> Any:
    """The first characters of a text or of each of two, or with a negative length the last."""
    if isinstance(value, tuple):
        return tuple(_cut(part, length) for part in value)
    return value[length:] if length < 0 else value[:length]


def _joined_texts(what: str) -> type[CleanManager]:
    """Adapters, or all values of several extra keys, are one text without a separator."""

    class JoinedTexts(CleanManager):
        def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
            keys = super()._extra_keys(extra_keys, first, end)
            if what == "lora":
                return [(k, "".join(v) if k == what else v, *place) for k, v, *place in keys]
            joined = "".join(str(value) for kind, value, *_ in keys if kind == what)
            places = [place for kind, _, *place in keys if kind == what]
            return [joined, places, *(key for key in keys if key[0] != what)]

    return JoinedTexts


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

        def step(self, batch: list[tuple[int, int]]) -> None:
            self.calls += 1
            super().step(batch)

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
        Family("cut texts", "extra keys", _cut_texts,
               [("salt", 8), ("salt", 64), ("lora", 16), ("image", 32), ("image", -16)]),
        Family("joined texts", "extra keys", _joined_texts, ["lora", "image"]),
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
        Family("blocks while growing", "long prompts", _long_growth, [32, 64, 256]),
    )
}  # fmt: skip
"""By name."""


class HashesTheOtherWay(CleanManager):
    """The last block's tokens come first, with their number, and then the parent."""

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        size = self.block_size
        tokens = sequence.tokens[entry * size : (entry + 1) * size][::-1]
        parent = sequence.keys[entry - 1] if entry else b"nobody"
        extra = self._extra_keys(sequence.extra_keys or (), entry * size, (entry + 1) * size)
        content = struct.pack(f">{len(tokens)}I", *tokens) + parent + repr(extra).encode()
        return hashlib.blake2b(content, digest_size=20).digest()


class HashesOfPython(CleanManager):
    """Hashes of tuples, which have 64 bits."""

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        size = self.block_size
        tokens = tuple(sequence.tokens[entry * size : (entry + 1) * size])
        parent = sequence.keys[entry - 1] if entry else None
        extra = self._extra_keys(sequence.extra_keys or (), entry * size, (entry + 1) * size)
        return hash((parent, tokens, repr(extra))).to_bytes(8, "big", signed=True)


class ManyTables(CleanManager):
    """Tables are made anew whenever somebody asks, as tuples."""

    def block_table(self, seq_id: int, group: int = 0) -> Any:
        return tuple(super().block_table(seq_id, group))


class GrowingRows(CleanManager):
    """Rows of 16 entries, which double when they are full."""

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        self.rows: dict[int, list[int]] = {}

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        table = super().block_table(seq_id, group)
        row = self.rows.setdefault(seq_id, [-1] * 16)
        while len(row) < len(table):
            row += [-1] * len(row)
        row[: len(table)] = table
        return row[: len(table)]


class DeclaredRows(CleanManager):
    """It has 70 rows and says so; a row has 500 tokens."""

    profile: ClassVar[dict[str, Any]] = {
        "max_sequences": 70,
        "max_tokens": 500,
        "lookahead_tokens": 2,
    }

    def _has_row(self) -> bool:
        return sum(s.place != "nowhere" for s in self.sequences.values()) < 70

    def admit(self, seq_id: int, tokens: list[int], **named: Any) -> int | str:
        return super().admit(seq_id, tokens, **named) if self._has_row() else "later"

    def load(self, seq_id: int, tokens: list[int], **named: Any) -> int | str:
        return super().load(seq_id, tokens, **named) if self._has_row() else "later"

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        return super().fork(seq_id, child_id) if self._has_row() else "later"


LOOK_ALIKES: tuple[type[CleanManager], ...] = (
    CleanManager,
    HashesTheOtherWay,
    HashesOfPython,
    ManyTables,
    GrowingRows,
    DeclaredRows,
)
"""Correct, with what the families above get wrong."""
