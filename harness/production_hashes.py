"""Hashes of one length that a careless index confuses.

Real hashes look random, and are not all that a server stores: four bytes for the cache group
stand behind each, a test engine counts upwards, a key of a draft model begins like its parent's.
An index that compares a part of a hash, ends it at a zero byte, adds its bytes up, keeps a checksum
in its place or takes one value for "none" meets two of these families within one run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, permutations

__all__ = ["HASH_FAMILIES", "hashes_that_look_alike"]


def hashes_that_look_alike(number: int, length: int, seed: str) -> list[bytes]:
    """Up to `number` different hashes of `length` bytes (at least 1), of all families in turn.

    Fewer only where there are not so many of that length. The same seed gives the same hashes.
    """
    source = random.Random(f"hashes {seed}")
    families = [family(source, length) for family in HASH_FAMILIES]
    found: dict[bytes, None] = {}
    tries = 0
    while len(found) < min(number, 256**length) and tries < 64 * number + 64:
        tries += 1
        family = families[tries % len(families)]
        made = next(family, None)
        if made is None:
            made = source.randbytes(length)
        found[made] = None
    return list(found)


def _random(source: random.Random, length: int) -> Iterator[bytes]:
    return (source.randbytes(length) for _ in count())


def _one_value(_source: random.Random, length: int) -> Iterator[bytes]:
    """Zeros, which many take for "none", ones, and other bytes all the same."""
    return (bytes([value]) * length for value in (0, 255, 1, 127, 128, 32, 48))


def _one_beginning(source: random.Random, length: int) -> Iterator[bytes]:
    """All bytes but the last two are the same."""
    begin = source.randbytes(max(length - 2, 0))
    return (begin + source.randbytes(length - len(begin)) for _ in count())


def _one_end(source: random.Random, length: int) -> Iterator[bytes]:
    """All bytes but the first two are the same."""
    end = source.randbytes(max(length - 2, 0))
    return (source.randbytes(length - len(end)) + end for _ in count())


def _one_byte_differs(source: random.Random, length: int) -> Iterator[bytes]:
    """From one hash in one byte, each place in turn; by one bit or by all of them."""
    base = source.randbytes(length)
    yield base
    for mask in (1, 128, 255, 32):
        for place in range(length):
            yield base[:place] + bytes([base[place] ^ mask]) + base[place + 1 :]


def _zero_inside(source: random.Random, length: int) -> Iterator[bytes]:
    """A zero byte somewhere, the same before it and different behind it, or the reverse."""
    for number in count():
        begin = source.randbytes(length)
        place = number % length
        for _ in range(2):
            yield begin[:place] + b"\0" + source.randbytes(length - place - 1)
        yield begin[:place].ljust(length, b"\0")
        yield begin[place:].rjust(length, b"\0")


def _groups(source: random.Random, length: int) -> Iterator[bytes]:
    """One hash in several cache groups: the group's number stands in the last four bytes."""
    while True:
        own = source.randbytes(max(length - 4, 0))
        for group in (0, 1, 2, 255, 256):
            yield (own + group.to_bytes(4, "big"))[-length:]


def _counters(_source: random.Random, length: int) -> Iterator[bytes]:
    """Small numbers, in either order of bytes."""
    for number in count():
        if number >= 256 ** min(length, 4):
            return
        yield number.to_bytes(length, "big")
        yield number.to_bytes(length, "little")


def _same_sum(source: random.Random, length: int) -> Iterator[bytes]:
    """The same bytes in other orders: equal in every sum, product and exclusive or."""
    for _ in count():
        base = source.randbytes(length)
        words = [base[at : at + 4] for at in range(0, length, 4)]
        yield base
        yield base[::-1]
        yield base[1:] + base[:1]
        for order in permutations(range(min(len(words), 3))):
            yield b"".join(words[place] for place in order) + b"".join(words[len(order) :])


def _same_words(source: random.Random, length: int) -> Iterator[bytes]:
    """The same two words of any width in the other order: equal as sets of words."""
    for number in count():
        width = min((1, 2, 8, 16, 32)[number % 5], length // 2)
        base = source.randbytes(length)
        yield base
        yield base[width : 2 * width] + base[:width] + base[2 * width :]


def _same_polynomial(source: random.Random, length: int) -> Iterator[bytes]:
    """Of every base below 256 two that agree, as a polynomial over bytes in either direction.

    The bytes (x, 240 + j) and (x + 1, 240 - 16 i) do in base j + 16 i: steps of one and of 16.
    """
    while length > 1:
        base, place = source.randbytes(length), source.randrange(length - 1)
        high = source.randrange(255)
        ends = [(high, 240 + step) for step in range(16)]
        ends += [(high + 1, 240 - 16 * step) for step in range(16)]
        order = source.choice((1, -1))
        for pair in ends:
            yield base[:place] + bytes(pair[::order]) + base[place + 2 :]


_CRC_32 = (0x1_04C1_1DB7, 0x1_1EDC_6F41)
"""Generators of CRC-32 and CRC-32C. Where a multiple of it is added, the checksum stays."""

_MODULI = (65_521, 1_000_003, 998_244_353, 1_000_000_007, 2**31 - 1, 2**32 - 5, 2**61 - 1)
"""Primes by which numbers are reduced, and that of Python's own `hash`."""

_FNV_PRIME = 16_777_619


def _same_checksum(source: random.Random, length: int) -> Iterator[bytes]:
    """Pairs that agree in a checksum that others use for hashes of their own."""
    if length < 3:
        return
    pairs = (_same_crc, _same_adler, _same_residue, _same_fnv)
    for number in count(source.randrange(len(pairs))):
        yield from pairs[number % len(pairs)](source, length)


def _same_crc(source: random.Random, length: int) -> tuple[bytes, ...]:
    generator = source.choice(_CRC_32)
    added = sum(1 << place for place in range(33) if generator >> (32 - place) & 1)
    if length < 5:
        return ()
    base, shift = int.from_bytes(source.randbytes(length), "little"), source.randrange(length - 4)
    return tuple(n.to_bytes(length, "little") for n in (base, base ^ added << 8 * shift))


def _same_adler(source: random.Random, length: int) -> tuple[bytes, ...]:
    place = source.randrange(length - 2) if length > 2 else 0
    return _moved(source, length, place, (1, -2, 1))


def _same_residue(source: random.Random, length: int) -> tuple[bytes, ...]:
    modulus, order = source.choice(_MODULI), source.choice(("big", "little"))
    if 8 * length <= modulus.bit_length():
        return ()
    base = source.randrange(256**length - modulus)
    return tuple(n.to_bytes(length, order) for n in (base, base + modulus))  # type: ignore[arg-type]  # "big" or "little"


def _same_fnv(source: random.Random, length: int) -> tuple[bytes, ...]:
    """FNV-1a of 32 bits: beginnings that agree in all but the last byte, which the next mends."""
    first, second, difference = _fnv_beginnings()
    if length < len(first) + 1:
        return ()
    rest = source.randbytes(length - len(first))
    return first + rest, second + bytes([rest[0] ^ difference]) + rest[1:]


@cache
def _fnv_beginnings() -> tuple[bytes, bytes, int]:
    """Two of 4 bytes, and by what the next byte must differ."""
    seen: dict[int, tuple[bytes, int]] = {}
    source = random.Random("FNV-1a")
    for _ in count():
        beginning = source.randbytes(4)
        state = 2_166_136_261
        for byte in beginning:
            state = ((state ^ byte) * _FNV_PRIME) & 0xFFFF_FFFF
        other, low = seen.setdefault(state >> 8, (beginning, state & 255))
        if other != beginning:
            return other, beginning, low ^ state & 255
    raise AssertionError("the numbers do not end")


def _moved(
    source: random.Random, length: int, place: int, by: tuple[int, ...]
) -> tuple[bytes, ...]:
    """A hash, and the same with these numbers added to the bytes from `place` on."""
    if length < len(by):
        return ()
    base, other = bytearray(source.randbytes(length)), bytearray()
    for at, number in enumerate(by, place):
        base[at] = source.randrange(max(0, -number), min(256, 256 - number))
    other[:] = base
    for at, number in enumerate(by, place):
        other[at] += number
    return bytes(base), bytes(other)


def _text(source: random.Random, length: int) -> Iterator[bytes]:
    """Letters and digits that differ in case, blanks or leading zeros, and no valid UTF-8."""
    for _ in count():
        word = bytes(source.choice(b"abcdef0123456789") for _ in range(length))
        yield word
        yield word.upper()
        yield (word[:-1] + b" ")[-length:]
        yield (b"0" + word)[:length]
        yield (b"\xff\xfe" + word)[:length]


HASH_FAMILIES: tuple[Callable[[random.Random, int], Iterator[bytes]], ...] = (
    _random,
    _one_value,
    _one_beginning,
    _one_byte_differs,
    _one_end,
    _zero_inside,
    _groups,
    _counters,
    _same_sum,
    _same_words,
    _same_polynomial,
    _same_checksum,
    _text,
)
"""From a source of randomness and a length in bytes to the hashes of a family."""
