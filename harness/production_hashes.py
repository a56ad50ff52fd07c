"""Hashes of one length that a careless index takes for each other.

Real hashes look random, and are not all that a server stores: four bytes for the cache group
stand behind each, a test engine counts upwards, a key of a draft model begins like its parent's.
An index that compares a part of a hash, ends it at a zero byte, adds its bytes up or takes one
value for "none" meets two of these families within one run.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
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
    _text,
)
"""From a source of randomness and a length in bytes to the hashes of a family."""
