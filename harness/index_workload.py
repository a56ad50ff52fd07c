"""The grammar of index workloads: the plan of a run, and the next command.

Every pair of a key and a block is legal to name, so only the choice matters: pairs that are filed,
keys that several blocks carry, and keys or pairs that are absent.

Keys come in families that an index may confuse. Hashes have the families of
`production_hashes.py`; numbers agree in their low bits or in Python's own hash; pairs agree in the
hash, the group, or the sum of both. All hashes of one run have one length, as in a server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from random import Random

from poolproof.contract.commands import Command
from poolproof.contract.index_commands import Clear, Contains, Get, IndexKey, Insert, Pop
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.harness.index_session import MANY_CARRIERS, MANY_KEYS
from poolproof.harness.production import HASH_BYTES, ProductionSizes, size_near_a_border
from poolproof.harness.production_hashes import HASH_FAMILIES
from poolproof.reference.dict_index import DictIndex

__all__ = [
    "FAMILIES",
    "IndexPlan",
    "IndexWorkload",
    "family_of",
    "mixed_keys",
    "production_index_plan",
    "required_index_facts",
    "small_index_plan",
]


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
    """1 to `most` different keys of one family of that kind; fewer if it has no more."""
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
    """Up to `num_keys` different keys of one kind, a share from each of its families."""
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


MOST_BLOCKS = 2**17
"""Block ids of the first long run: each has another one that is equal in 16 bits."""

_MANY_KEYS = 4_000
_MOST_OF_ONE_FAMILY = 4
_PHASE = 2_048
"""Commands of a large run for which an index rather grows, or rather shrinks."""


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """How many blocks and keys a run may name, and how many commands it has.

    `is_large` means the sizes of servers. `hash_bytes` is the length of hashes; None means any.
    """

    num_blocks: int
    num_keys: int
    num_steps: int
    is_large: bool = False
    hash_bytes: int | None = None

    def keys(self, choices: Choices, key_kinds: Sequence[str]) -> list[IndexKey]:
        """The keys: a few of one family, or many of all, of a kind that the index takes."""
        kind = key_kinds[choices.below(len(key_kinds))]
        if self.hash_bytes is None or self.num_keys <= _MOST_OF_ONE_FAMILY:
            return family_of(choices, kind, self.num_keys, self.hash_bytes)
        return mixed_keys(choices, kind, self.num_keys, self.hash_bytes)


def small_index_plan(choices: Choices, hash_bytes: int | None = None) -> IndexPlan:
    """1 to 8 blocks, 1 to 4 keys, 10 to 70 commands."""
    num_blocks, num_keys = 1 + choices.below(8), 1 + choices.below(4)
    return IndexPlan(num_blocks, num_keys, 10 + choices.below(61), hash_bytes=hash_bytes)


def production_index_plan(
    sizes: ProductionSizes, seed: int, number: int, hash_bytes: int | None = None
) -> IndexPlan:
    """As in a server: thousands of keys or, in every second long run, thousands of blocks.

    Block ids go beyond those of pools, which cost memory: an index has only the ids it is given.
    """
    run = sizes.run(seed, number, hash_bytes)
    place = sizes.place_of_long(number)
    if place is None:
        return IndexPlan(run.num_blocks, run.num_hashes, run.num_steps, hash_bytes=run.hash_bytes)
    is_crowded = place % 2 == 1
    return IndexPlan(
        num_blocks=max(run.num_blocks, MOST_BLOCKS) if place == 0 else run.num_blocks,
        num_keys=1 + place % _MOST_OF_ONE_FAMILY if is_crowded else _MANY_KEYS,
        num_steps=run.num_steps,
        is_large=True,
        hash_bytes=run.hash_bytes,
    )


def required_index_facts(
    profile: Profile, can: Capabilities, *, is_large: bool = False
) -> list[str]:
    """The facts that a campaign against such an index must reach."""
    facts = [
        "a block was filed under a key that another one carries",
        "a block was filed twice under a key",
        "a key lost its last block",
        "a key was looked up that no block carries",
        "a pop named a block that does not carry the key",
    ]
    if profile.duplicates == "kept":
        facts.append("a key lost one of several blocks")
    if "clear" in can.verbs:
        facts.append("blocks lost their keys by a clear")
    if is_large and 256**profile.usual_hash_bytes > MANY_KEYS:
        facts.append(f"blocks carried more than {MANY_KEYS:,} keys")
    if is_large and profile.duplicates == "kept":
        facts.append(f"one key had more than {MANY_CARRIERS} blocks")
    return facts


class IndexWorkload:
    """Chooses commands for one index, of the size of a plan; `keys` are those that it names."""

    def __init__(
        self, choices: Choices, index: DictIndex, can: Capabilities, plan: IndexPlan
    ) -> None:
        self.choices = choices
        self.below = choices.below
        self.index = index
        self.plan = plan
        self.keys = plan.keys(choices, can.key_kinds)
        methods: dict[str, Callable[[], Command]] = {
            "insert": self.insert,
            "pop": self.pop,
            "get": self.get,
            "contains": self.contains,
            "clear": self.clear,
        }
        self.verbs = {verb: method for verb, method in methods.items() if verb in can.verbs}
        often = {"insert": 6, "pop": 5, "get": 2}
        self._urn = [
            method for verb, method in self.verbs.items() for _ in range(often.get(verb, 1))
        ]
        self._num_commands = 0

    def bias(self) -> None:
        """Sometimes one verb dominates a run."""
        if self.below(3) == 0:
            self._urn += [self._urn[self.below(len(self._urn))]] * 12

    def next(self) -> Command:
        """The next command."""
        self._num_commands += 1
        if self.plan.is_large:
            return self._next_of_many()
        return self._urn[self.below(len(self._urn))]()

    def _next_of_many(self) -> Command:
        """A large index grows for a while and shrinks for a while, and is seldom cleared."""
        if "clear" in self.verbs and self.below(4 * _PHASE) == 0:
            return Clear()
        if self.below(8) == 0:
            asks = "contains" in self.verbs and self.below(4) == 0
            return self.contains() if asks else self.get()
        is_growing = self._num_commands // _PHASE % 3 != 2
        return self.insert() if is_growing == (self.below(8) > 0) else self.pop()

    def insert(self) -> Command:
        """Mostly any key and block; sometimes a pair that is filed already."""
        if self.below(8) == 0:
            pair = self._filed_pair()
            if pair is not None:
                return Insert(*(self._beside(*pair) if self.plan.is_large else pair))
        return Insert(self._any_key(), self._any_block())

    def pop(self) -> Command:
        """Mostly a pair that is filed, else any."""
        pair = self._filed_pair() if self.below(4) else None
        return Pop(*pair) if pair is not None else Pop(self._any_key(), self._any_block())

    def get(self) -> Command:
        return Get(self._any_key())

    def contains(self) -> Command:
        pair = self._filed_pair() if self.below(2) else None
        return Contains(*(pair if pair is not None else (self._any_key(), self._any_block())))

    def clear(self) -> Command:
        return Clear()

    def _any_key(self) -> IndexKey:
        return self.keys[self.below(len(self.keys))]

    def _any_block(self) -> int:
        """Any block; of many sometimes one at a power of two, or the last, where ids may wrap."""
        if self.plan.is_large and self.below(8) == 0:
            return size_near_a_border(self.choices, self.plan.num_blocks) - 1
        return self.below(self.plan.num_blocks)

    def _beside(self, key: IndexKey, block: int) -> tuple[IndexKey, int]:
        """Half of the time, another block for the key, whose number differs in one bit."""
        other = block ^ (1 << self.below(self.plan.num_blocks.bit_length()))
        return key, (other if other < self.plan.num_blocks and self.below(2) else block)

    def _filed_pair(self) -> tuple[IndexKey, int] | None:
        """A key that is carried, with one of its blocks; None where a few draws find none."""
        for _ in range(8):
            key = self._any_key()
            carriers = self.index.carriers.get(key)
            if carriers:
                return key, next(islice(carriers, self.below(len(carriers)), None))
        return None
