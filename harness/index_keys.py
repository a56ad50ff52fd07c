"""Families of keys that an index can take for one another.

Of hashes they are those of `production_hashes.py`; of numbers the low bits are equal, or what
Python's own hash makes of them; of pairs the hash, the group, or the sum of both. All hashes of one
run have one length, as those of a server have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from random import Random

from poolproof.contract.index_commands import IndexKey
from poolproof.harness.choices import Choices
from poolproof.harness.production import HASH_BYTES
from poolproof.harness.production_hashes import HASH_FAMILIES

__all__ = ["FAMILIES", "family_of", "mixed_keys"]

Family = Callable[[Random, int], Iterator[IndexKey]]
"""From a source of randomness and the length of hashes in bytes."""

_PYTHON_HASH_MODULUS = 2**61 - 1
_MOST_TRIES = 8


def _random_numbers(source: Random, _length: int) -> Iterator[IndexKey]:
    return (source.getrandbits(64) for _ in count())


def _small_numbers(_source: Random, _length: int) -> Iterator[IndexKey]:
    return count()


def _same_low_bits(source: Random, _length: int) -> Iterator[IndexKey]:
    shift = source.choice((8, 16, 31, 32, 48))
    base = source.getrandbits(8)
    return (base + (number << shift) for number in range(2 ** (64 - shift)))


def _same_high_bits(_source: Random, _length: int) -> Iterator[IndexKey]:
    return (2**64 - 1 - number for number in count())


def _same_as_floats(_source: Random, _length: int) -> Iterator[IndexKey]:
    return (2**60 + number for number in count())


def _same_python_hash(source: Random, _length: int) -> Iterator[IndexKey]:
    base = source.getrandbits(16)
    return (base + number * _PYTHON_HASH_MODULUS for number in range(8))


def _hashes_with_groups(source: Random, length: int) -> Iterator[IndexKey]:
    return ((source.randbytes(length), source.getrandbits(2)) for _ in count())


def _one_hash_in_groups(source: Random, length: int) -> Iterator[IndexKey]:
    base = source.randbytes(length)
    return ((base, group) for group in count())


def _same_when_added(source: Random, length: int) -> Iterator[IndexKey]:
    most = min(2**16, 256**length - 1)
    total = max(source.getrandbits(8 * length - 1), most)
    return (((total - number).to_bytes(length, "big"), number) for number in range(most))


FAMILIES: dict[str, tuple[Family, ...]] = {
    "bytes": HASH_FAMILIES,
    "int": (
        _random_numbers, _small_numbers, _same_low_bits, _same_high_bits, _same_as_floats,
        _same_python_hash,
    ),
    "pair": (_hashes_with_groups, _one_hash_in_groups, _same_when_added),
}  # fmt: skip
"""The families of each kind of key, first one that looks random and does not end."""


def family_of(choices: Choices, kind: str, most: int, length: int | None = None) -> list[IndexKey]:
    """1 to `most` different keys of one family of that kind; fewer where it has no more."""
    families = FAMILIES[kind]
    family = families[choices.below(len(families))]
    # Of a source only the seed is chosen, so that a key costs a tape two bytes.
    source = Random(choices.below(2**16))
    length = length or HASH_BYTES[choices.below(len(HASH_BYTES))]
    # Hashes of a byte or two are too short for some families.
    for each in (family, families[0]):
        keys = dict.fromkeys(islice(each(source, length), _MOST_TRIES * most))
        if keys:
            break
    return list(keys)[:most]


def mixed_keys(choices: Choices, kind: str, num_keys: int, length: int) -> list[IndexKey]:
    """Up to so many different keys of one kind, a share from each of its families."""
    source = Random(choices.below(2**16))
    share = -(-num_keys // len(FAMILIES[kind]))
    keys: dict[IndexKey, None] = {}
    for family in FAMILIES[kind]:
        keys.update(dict.fromkeys(islice(family(source, length), share)))
    # What the short families left over is drawn from the first, which does not end.
    endless = islice(FAMILIES[kind][0](source, length), _MOST_TRIES * num_keys)
    while len(keys) < num_keys and (key := next(endless, None)) is not None:
        keys[key] = None
    return list(keys)[:num_keys]
