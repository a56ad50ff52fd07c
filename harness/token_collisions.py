"""Prompts that careless keys confuse: different tokens that come to one hash.

Each `Confusion` is made for mistakes that engines have made or could make: keys that forget the
order of tokens, their upper or lower bits, or the blocks before them; sums, polynomials and texts
joined without a separator; checksums of known kinds. Nothing of it is random where it can be
solved: for every base below a bound some cached and some asked prompt collide (baby steps and giant
steps, as for discrete logarithms), whatever the modulus.

A key that tells different prefixes apart confuses none of them. What is out of reach: good hashes
cut to more bits than the number of prompts finds by chance, about 20 bits for 1,000 and 1,000.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from math import comb
from operator import add

from poolproof.contract.content import Image, TokenChain

__all__ = ["LARGEST_TOKEN", "ConfusablePrompts", "Confusion"]

LARGEST_TOKEN = 2**31 - 1
"""Token ids are those of an int32 that are not negative."""

Tokens = tuple[int, ...]
Pair = tuple[Tokens, Tokens]

_VOCABULARIES = (
    32_000, 32_064, 32_768, 49_152, 50_257, 50_304, 64_000, 65_024, 73_448, 92_544, 100_277,
    100_352, 102_400, 128_000, 128_256, 129_280, 130_528, 131_072, 151_552, 151_643, 151_665,
    151_669, 151_936, 152_064, 152_960, 163_840, 200_019, 200_064, 201_088, 202_048, 248_320,
    250_880, 255_000, 256_000, 256_128, 256_206, 262_144, 262_208, 1_000_003,
)  # fmt: skip
"""Sizes of vocabularies: an id may be reduced by one, or two ids packed into one number."""

_SPECIAL_IDS = (
    2, 3, 29_871, 32_000, 32_007, 50_256, 100_257, 100_265, 128_000, 128_001, 128_004, 128_008,
    128_009, 151_643, 151_644, 151_645, 151_655, 199_999, 200_002, 200_018, 255_999, 65_535,
    LARGEST_TOKEN,
)  # fmt: skip
"""Ids that mark an end, a filling or an image, and that keys may leave out or put for none."""

_LARGE_BASES = (
    65_537, 65_599, 69_069, 131_071, 524_287, 1_000_003, 12_582_917, 16_777_619, 19_260_817,
    100_000_007, 201_326_611, 402_653_189, 805_306_457, 911_382_323, 998_244_353, 1_000_000_007,
    1_000_000_009, 1_664_525, 22_695_477, 134_775_813, 1_103_515_245, 1_540_483_477,
    1_566_083_941, 1_812_433_253, 2_246_822_519, 2_654_435_761, 2_654_435_769, 2_147_483_629,
    3_266_489_917, 3_432_918_353, 4_294_967_291,
)  # fmt: skip
"""Known multipliers beyond what giant steps cover."""
_MODULI = (2**31 - 1, 2**31, 2**32, 1_000_000_007, 998_244_353, 972_663_749, 2**61 - 1)

_MULTIPLIERS_OF_64_BITS = (
    6_364_136_223_846_793_005, 2_862_933_555_777_941_757, 3_202_034_522_624_059_733,
    1_181_783_497_276_652_981, 0x9E3779B97F4A7C15, 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53,
    0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x2545F4914F6CDD1D, 0x100000001B3,
    11_400_714_785_074_694_791, 14_029_467_366_897_019_727, 1_609_587_929_392_839_161,
    9_650_029_242_287_828_579, 2_870_177_450_012_600_261, 0x85EBCA6B, 0xC2B2AE35,
)  # fmt: skip
"""Those of known generators and hashes (Knuth, Fibonacci, MurmurHash, SplitMix, FNV, xxHash)."""

_TEXT_LENGTHS = (7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256)
_LONG_TEXTS = (9, 33, 65, 129, 257, 300, 513, 1_025, 4_097)
SHORTEST_RELATION = 4
"""So many tokens have more values than 64 bits, so that some are one in any polynomial."""

_DISTANCES = (0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256)
"""How many blocks lie between a block and the one before it that is left out of its key."""


@dataclass(frozen=True, slots=True)
class Confusion:
    """Prompts that are computed first, and prompts that must not be found because of them."""

    name: str
    cached: tuple[TokenChain, ...]
    asked: tuple[TokenChain, ...]


class ConfusablePrompts:
    """Makes confusions of blocks of `size` tokens, with `num_after` equal blocks behind them."""

    def __init__(self, seed: str, size: int, num_after: int = 0) -> None:
        self._random = random.Random(seed)
        self._size = size
        self._after = self.block() * num_after
        self._common = self.block()

    def block(self) -> Tokens:
        """A block of any tokens."""
        return tuple(self._random.randrange(LARGEST_TOKEN + 1) for _ in range(self._size))

    def prompt(self, *blocks: Sequence[int]) -> TokenChain:
        """A prompt of these blocks, of which all can be cached: something stands behind them."""
        return TokenChain((*(token for block in blocks for token in block), *self._after, 1))

    def of_tokens(self) -> Iterator[Confusion]:
        """Pairs of blocks that differ in few tokens, first in a prompt or behind a common block."""
        for name, (first, second) in self._pairs():
            if len(first) <= self._size:
                ends = self._at_end(first), self._at_end(second)
                if self._random.randrange(2):
                    chains = [self.prompt(self._common, end) for end in ends]
                else:
                    chains = [self.prompt(end) for end in ends]
                yield Confusion(name, (chains[0],), (chains[1],))

    def of_bases(self, num_steps: int) -> Iterator[Confusion]:
        """For every base and every modulus below the square of `num_steps` two that collide.

        With one token t: (j) and (num_steps * i) are equal modulo m for every m. With two tokens
        (0, c + j) and (1, c - num_steps * i) have one value in every polynomial whose base is
        j + num_steps * i; so do (0, j) and (1, num_steps * i) where the last is xored.
        """
        steps = range(num_steps)
        middle = 2**30
        small: list[Tokens] = [(j,) for j in steps]
        giant: list[Tokens] = [(num_steps * i,) for i in range(1, num_steps + 1)]
        yield self._many("a token id modulo a number", small, giant)
        if self._size < 2:
            return
        small = [(0, middle + j) for j in steps]
        giant = [(1, middle - num_steps * i) for i in steps]
        yield self._many("a polynomial of the tokens", small, giant)
        yield self._many(
            "a polynomial of the tokens, the first one first",
            [pair[::-1] for pair in small],
            [pair[::-1] for pair in giant],
        )
        yield self._many(
            "a polynomial with exclusive or",
            [(0, j) for j in steps],
            [(1, num_steps * i) for i in steps],
        )

    def of_parents(self, most_blocks: int) -> Iterator[Confusion]:
        """The same blocks behind others, up to `most_blocks` in a prompt."""
        x, y, z = self.block(), self.block(), self.block()
        prompt = self.prompt
        yield Confusion("the parent", (prompt(x, y),), (prompt(y),))
        yield Confusion("the parent behind another", (prompt(x, y), prompt(z)), (prompt(z, y),))
        yield Confusion("the order of blocks", (prompt(x, y), prompt(y)), (prompt(y, x),))
        yield Confusion("blocks that cancel out", (prompt(x, x), prompt(z)), (prompt(x, x, z),))
        yield Confusion("how often a block stands there", (prompt(x, x),), (prompt(x, x, x),))
        if self._size > 1:
            left, right = self.block()[:-1], self.block()[1:]
            yield Confusion(
                "the border between blocks",
                (prompt((*left, 1), (23, *right)), prompt((*left, 12))),
                (prompt((*left, 12), (3, *right)),),
            )
        for distance in _DISTANCES:
            if 2 * distance + 8 <= most_blocks:
                x, y, z = self.block(), self.block(), self.block()
                between = [self.block() for _ in range(distance)]
                yield Confusion(
                    f"what lies {distance + 1} blocks back",
                    (prompt(x, *between, z), prompt(y, *between)),
                    (prompt(y, *between, z),),
                )

    def of_depths(self, most_blocks: int, every: int = 130) -> Iterator[Confusion]:
        """Prompts of up to `most_blocks` whose blocks change their parents at some depth.

        Behind the first blocks of one prompt comes the next block of another, at many depths: a hit
        ends at the first block that is not found, so that each is asked for alone. Then the same
        behind a long beginning that both have, where a key may name the beginning alone. Up to
        `every` each depth is tried, and some beyond.
        """
        depth = max(1, most_blocks)
        powers = {2**bit + off for bit in range(7, depth.bit_length()) for off in (-1, 0, 1)}
        some = {self._random.randrange(depth) for _ in range(8)}
        depths = [*range(1, min(depth, every)), *sorted({*powers, *some})]
        one, other = ([self.block() for _ in range(depth)] for _ in range(2))
        asked = [
            self.prompt(*one[:at], other[at]) for at in dict.fromkeys(depths) if 0 < at < depth
        ]
        cached = self.prompt(*one), self.prompt(*other)
        yield Confusion("a depth at which the parent is left out", cached, tuple(asked))
        for at in sorted({0, 1, 2, *(2**bit for bit in range(2, 14)), depth - 1}):
            if at < depth:
                tokens, first = self.prompt(*one[: at + 1]).tokens, at * self._size
                chains = [TokenChain(tokens, images=(Image(i, first, 1),)) for i in ("p", "q")]
                yield Confusion("an image far behind", (chains[0],), (chains[1],))
        for length in (depth // 8, depth // 3, depth - 2):
            if length > 0:
                x, y, z, v = (self.block() for _ in range(4))
                head = one[:length]
                pair = self.prompt(*head, x, z), self.prompt(*head, y, v)
                yield Confusion("a parent behind a long head", pair, (self.prompt(*head, x, v),))

    def of_far_tokens(self, num_tokens: int) -> Confusion:
        """Two prompts that are equal for at least so many tokens, and differ behind them."""
        head = [self.block() for _ in range(-(-num_tokens // self._size))]
        pair = self.prompt(*head, self.block()), self.prompt(*head, self.block())
        return Confusion("the first tokens alone", pair[:1], pair[1:])

    def of_short_parents(self, count: int) -> Confusion:
        """`count` parents with one child, asked for behind `count` others: cut parent hashes."""
        child = self.block()
        ours, others = ([self.block() for _ in range(count)] for _ in range(2))
        cached = [self.prompt(parent, child) for parent in ours]
        cached += [self.prompt(parent) for parent in others]
        asked = [self.prompt(parent, child) for parent in others]
        return Confusion("a few bits of the parent", tuple(cached), tuple(asked))

    def of_places(self) -> Iterator[Confusion]:
        """One block, and the same with another token at each of many places, or with two swapped.

        Of a long block the places beside powers of two are tried, and some others.
        """
        size, block = self._size, self.block()
        near = {place for bit in range(size.bit_length()) for place in (2**bit - 1, 2**bit)}
        any_ = {self._random.randrange(size) for _ in range(16)}
        places = range(size) if size <= 32 else sorted({*near, *any_, size - 1})
        changed = []
        for place in places:
            if place < size:
                changed.append((*block[:place], block[place] ^ 1, *block[place + 1 :]))
            if 0 < place < size:
                swapped = [*block]
                swapped[place - 1], swapped[place] = swapped[place], swapped[place - 1]
                changed.append(tuple(swapped))
        asked = [self.prompt(other) for other in changed if other != block]
        yield Confusion("one token of a block", (self.prompt(block),), tuple(asked))
        behind = [self.prompt(self._common, other) for other in changed if other != block]
        cached = self.prompt(self._common, block)
        yield Confusion("one token of a later block", (cached,), tuple(behind))

    def of_image_places(self) -> Iterator[Confusion]:
        """One image at two places of a block, and one that stands in it more than once.

        The tokens are the same: only the place in the key tells these prompts apart.
        """
        size, tokens = self._size, self.prompt(self.block()).tokens

        def pair(name: str, first: Sequence[int], second: Sequence[int]) -> Confusion:
            chains = [
                TokenChain(tokens, images=tuple(Image("p", place, 1) for place in places))
                for places in (first, second)
            ]
            return Confusion(name, (chains[0],), (chains[1],))

        for bit in range((size - 1).bit_length()):
            place = self._random.randrange(size - 2**bit)
            yield pair(f"{bit} bits of where an image begins", [place], [place + 2**bit])
        if size > 2:
            first, second, third = sorted(self._random.sample(range(size), 3))
            yield pair("an image that stands there twice", [first, second], [first, third])
            yield pair("how often an image stands there", [first, second], [first])
            yield pair("the first of two equal images", [first, third], [second, third])

    def of_chance(self, count: int) -> Confusion:
        """`count` prompts that are cached, and as many others: hashes of few bits.

        They differ in one token, so that a hash of each token by itself is told from as many.
        """
        block, place = self.block(), self._random.randrange(self._size)

        def other() -> TokenChain:
            token = self._random.randrange(LARGEST_TOKEN + 1)
            return self.prompt((*block[:place], token, *block[place + 1 :]))

        cached, asked = ([other() for _ in range(count)] for _ in range(2))
        known = set(cached)
        asked = [chain for chain in asked if chain not in known]
        return Confusion("a few bits of the hash", tuple(cached), tuple(asked))

    def of_keys(self) -> Iterator[Confusion]:
        """The same tokens under adapters, salts and images that are alike."""
        tokens = self.prompt(self.block()).tokens
        for first, second in self._texts():
            salts = [TokenChain(tokens, None, salt) for salt in (first, second)]
            names = [TokenChain(tokens, (name, "at")) for name in (first, second)]
            paths = [TokenChain(tokens, ("adapter", path)) for path in (first, second)]
            images = [TokenChain(tokens, images=(Image(i, 0, 1),)) for i in (first, second)]
            for kind, (cached, asked) in zip(
                ("salts", "names of adapters", "paths of adapters", "images"),
                (salts, names, paths, images),
                strict=True,
            ):
                yield Confusion(f"{kind} that are alike", (cached,), (asked,))
        yield from self._joined_keys(tokens)

    def _joined_keys(self, tokens: Tokens) -> Iterator[Confusion]:
        plain = TokenChain(tokens)

        def pair(name: str, first: TokenChain, second: TokenChain) -> Confusion:
            return Confusion(name, (first,), (second,))

        yield pair("an adapter's name and path", TokenChain(tokens, ("a", "bc")),
                   TokenChain(tokens, ("ab", "c")))  # fmt: skip
        yield pair("an adapter's name for its path", TokenChain(tokens, ("a", "b")),
                   TokenChain(tokens, ("b", "a")))  # fmt: skip
        yield pair("an adapter and a salt", TokenChain(tokens, ("a", "b")),
                   TokenChain(tokens, None, "ab"))  # fmt: skip
        yield pair("an adapter and a salt, joined", TokenChain(tokens, ("a", "b"), "c"),
                   TokenChain(tokens, ("a", "bc"), "d"))  # fmt: skip
        yield pair("an image and a salt", TokenChain(tokens, images=(Image("ab", 0, 1),)),
                   TokenChain(tokens, None, "ab"))  # fmt: skip
        yield pair("no salt and one of that name", plain, TokenChain(tokens, None, "None"))
        yield pair("no adapter and one of that name", plain, TokenChain(tokens, ("None", "None")))
        for salt, token in (("1", 23), ("7", 89)):
            other = TokenChain((int(str(token)[1:]), *tokens[1:]), None, salt + str(token)[0])
            yield pair("a salt and the first token", TokenChain((token, *tokens[1:]), None, salt),
                       other)  # fmt: skip
        for count in (2, 3, 5, 9, 17, 33):
            filled = [self.block() for _ in range(-(-count // self._size))]
            images = [Image(f"i{place}", place, 1) for place in range(count)]
            chains = [
                TokenChain(self.prompt(*filled).tokens, images=(*images[:-1], last))
                for last in (images[-1], Image("another", count - 1, 1))
            ]
            yield pair("the last of many images", *chains)
        for first, second in self._one_of_several(tokens):
            yield pair("one of several keys", first, second)
        if self._size > 1:
            first = TokenChain(tokens, images=(Image("ab", 0, 1), Image("c", 1, 1)))
            joined = TokenChain(tokens, images=(Image("a", 0, 1), Image("bc", 1, 1)))
            swapped = TokenChain(tokens, images=(Image("c", 0, 1), Image("ab", 1, 1)))
            yield pair("the names of two images", first, joined)
            yield pair("the order of two images", first, swapped)
            yield pair("where an image begins", TokenChain(tokens, images=(Image("p", 0, 1),)),
                       TokenChain(tokens, images=(Image("p", 1, 1),)))  # fmt: skip

    @staticmethod
    def _one_of_several(tokens: Tokens) -> Iterator[tuple[TokenChain, TokenChain]]:
        """An adapter, a salt and an image at once, of which one or two differ or are missing."""
        for mask in range(1, 7):
            chains = []
            for name in ("p", "q"):
                lora, salt, image = (name if mask & bit else "r" for bit in (1, 2, 4))
                chains.append(
                    TokenChain(tokens, (lora, "at"), f"salt {salt}", (Image(f"i{image}", 0, 1),))
                )
            yield chains[0], chains[1]
            kept = chains[0]
            yield (
                chains[0],
                TokenChain(
                    tokens,
                    None if mask & 1 else kept.lora,
                    None if mask & 2 else kept.salt,
                    () if mask & 4 else kept.images,
                ),
            )

    @staticmethod
    def _texts() -> Iterator[tuple[str, str]]:
        """Texts that short, careless or ordered comparisons take for one."""
        for length in _TEXT_LENGTHS:
            yield "s" * length + "1", "s" * length + "2"
            yield "1" + "s" * length, "2" + "s" * length
        for length in _LONG_TEXTS:  # A key may be made of the two ends alone.
            start, end = "s" * (length // 2), "s" * ((length - 1) // 2)
            yield f"{start}1{end}", f"{start}2{end}"
        # "Aa" and "BB" have one value in the polynomial of base 31.
        yield from (("ab", "ba"), ("Aa", "BB"), ("x", "X"), ("x", "x "), ("1", "01"), ("1", "1.0"))
        yield from (("one/x", "two/x"), ("x.1", "x.2"), ("x-1", "x_1"), ("\u00e9", "\u00e8"))
        # In djb2 (base 33) and sdbm; then with one CRC-32, and one Adler-32.
        yield from (("bb", "cA"), ("plumless", "buckeroo"), ("aca", "bab"))

    def _at_end(self, tokens: Tokens) -> Tokens:
        """A block that ends with these tokens; the others are the same in all of them."""
        return (*self._common[: self._size - len(tokens)], *tokens)

    def _many(self, name: str, cached: Sequence[Tokens], asked: Sequence[Tokens]) -> Confusion:
        # Other tokens before them than in the other confusions, or they would be found.
        start = self.block()

        def prompt(tokens: Tokens) -> TokenChain:
            return self.prompt((*start[: self._size - len(tokens)], *tokens))

        found = {prompt(tokens) for tokens in cached}
        return Confusion(
            name, tuple(map(prompt, cached)), tuple(c for c in map(prompt, asked) if c not in found)
        )

    def _pairs(self) -> Iterator[tuple[str, Pair]]:
        """Short runs of tokens that are one to somebody, and different."""
        yield from self._of_one_token()
        yield from self._of_order_and_sums()
        yield from self._of_shifts_and_products()
        yield from self._of_text()
        yield from self._of_checksums()
        for base in _LARGE_BASES:
            for modulus in _MODULI:
                off = -base % modulus
                off -= modulus * (off > modulus // 2)
                first, second = max(0, -off), max(0, -off) + off
                if max(first, second) > LARGEST_TOKEN:
                    continue  # no two tokens are so far apart
                pair = (0, first), (1, second)
                yield "a polynomial with a large base", pair
                yield "a polynomial with a large base", (pair[0][::-1], pair[1][::-1])

    def _of_one_token(self) -> Iterator[tuple[str, Pair]]:
        for bits in range(4, 31):
            low = self._random.randrange(2**bits)
            yield f"the lower {bits} bits of a token", ((low,), (low + 2**bits,))
        for digits in range(1, 10):
            low = self._random.randrange(10**digits)
            yield f"the last {digits} digits of a token", ((low,), (low + 10**digits,))
        for bits in (8, 11, 24, 30):
            yield "a token as a short float", ((2**bits,), (2**bits + 1,))
        yield "the upper bits of a token", ((LARGEST_TOKEN,), (LARGEST_TOKEN - 1,))
        for vocabulary in _VOCABULARIES:
            yield "a token modulo the vocabulary", ((17,), (17 + vocabulary,))
            low = self._random.randrange(2**20)
            yield "two tokens in one number", ((0, low + vocabulary), (1, low))
            yield "two tokens in one number", ((low + vocabulary, 0), (low, 1))
        for special in _SPECIAL_IDS:
            other = self._random.randrange(2**20, 2**30)
            yield "no token and one that marks something", ((0,), (special,))
            yield "a token that is left out", ((special, other), (other, special))
        yield "the sign of a token", ((0,), (LARGEST_TOKEN,))
        yield "the first token ids", ((0,), (1,))

    def _of_order_and_sums(self) -> Iterator[tuple[str, Pair]]:
        draw = self._random.randrange
        x, y, z = (draw(2**20, 2**30) for _ in range(3))
        yield "the order of tokens", ((x, y), (y, x))
        yield "the order of tokens", ((x, y, z), (z, y, x))
        yield "how often a token stands there", ((x, x, y), (x, y, y))
        yield "tokens that cancel out", ((x, x), (y, y))
        yield "a product", ((6, 35), (10, 21))
        for off in (1, 2**8, 2**16, 2**20 - 1):
            yield "a sum", ((x, y), (x + off, y - off))
            yield "an exclusive or", ((x, y), (x ^ off, y ^ off))
        for place in range(1, self._size):
            yield "a sum with places", ((x, y), (x + place + 1, y - place))
            yield "a sum with places from 0", ((x, y), (x + place, y - place + 1))
        # What is summed over and over forgets ever longer rows of a binomial: 1 -2 1, 1 -3 3 -1.
        for order in range(2, min(self._size, 7)):
            start = [draw(2**20, 2**30) for _ in range(order + 1)]
            row = [(-1) ** place * comb(order, place) for place in range(order + 1)]
            yield "a sum of sums", (tuple(start), tuple(map(add, start, row)))
        # Every token counts, wherever it stands; a hash of the first or last few forgets some.
        block = self.block()
        for place, token in enumerate(block):
            yield f"token {place} of a block", (
                block, (*block[:place], token ^ 1, *block[place + 1 :])
            )  # fmt: skip

    def _of_shifts_and_products(self) -> Iterator[tuple[str, Pair]]:
        """Tokens that are shifted into one another, or whose upper bits a product loses.

        In 32 bits every odd factor turns 2**30 into itself or its negative, and every even one
        loses it in the end; an exclusive or beside it does as much in every second draw.
        """
        draw = self._random.randrange
        for bits in range(1, 31):
            yield "shifted tokens", ((0, 2**bits), (1, 0))
            yield "shifted tokens", ((2**bits, 0), (0, 1))
        top = 2**30
        for _ in range(6):
            x, y, z = draw(top), draw(top), draw(top)
            yield "the upper bits of a product", ((x, y), (x + top, y + top))
            yield "the upper bits of a product", ((x, y + top), (x + top, y))
            yield "the upper bits of a product", ((x, y, z), (x + top, y, z + top))
        if self._size >= SHORTEST_RELATION:
            for base in _MULTIPLIERS_OF_64_BITS:
                off = _relation(base, 2**64)
                start = tuple(draw(2**29, 2**30) for _ in off)
                yield "a polynomial of 64 bits", (start, tuple(map(add, start, off)))
        x, *others = (draw(2**29) for _ in range(self._size))
        yield "the upper bits of the first token", ((x, *others), (x + 2**29, *others))

    def _of_text(self) -> Iterator[tuple[str, Pair]]:
        """Tokens written one behind the other, plain or in fields of some width."""
        for base, alphabet, widest in ((10, "123456789", 9), (16, "1234567", 7)):
            for width in range(1, widest + 1):
                # No token begins with more than a 1, or the longest would be no int32.
                digits = self._random.choices(alphabet, k=2 * width - 1)
                text = "1" + "".join(digits[: width - 1]) + "1" + "".join(digits[width - 1 :])
                yield (
                    "tokens joined without a separator",
                    (
                        (int(text[: width + 1], base), int(text[width + 1 :], base)),
                        (int(text[:width], base), int(text[width:], base)),
                    ),
                )
        yield "tokens joined as their bytes", ((0x01, 0x0203), (0x0102, 0x03))
        yield "tokens joined as their bytes", ((0x01, 0x0302), (0x0201, 0x03))

    def _of_checksums(self) -> Iterator[tuple[str, Pair]]:
        """CRC-32 and Adler-32 of the tokens' bytes or text, whatever stands before them."""
        low = 0x010203
        yield "Adler-32 of the tokens", ((low,), (low + 1 - 2 * 256 + 65536,))
        count = min(self._size, 4)
        for name, encode, free_bits in (
            ("4 bytes each", lambda t: t.to_bytes(4, "little"), range(30)),
            ("8 bytes each", lambda t: t.to_bytes(8, "little"), range(30)),
            ("4 bytes each, the highest first", lambda t: t.to_bytes(4, "big"), range(30)),
        ):
            found = _equal_crc(count, free_bits, _joined(encode, b""))
            if found is not None:
                yield f"CRC-32 of {name}", found
        for separator in (b", ", b",", b" ", b""):
            found = _equal_crc_of_text(count, separator)
            if found is not None:
                yield "CRC-32 of the tokens as text", found


@cache
def _relation(base: int, modulus: int) -> Tokens:
    """Small numbers, not all 0, that are 0 as a polynomial in this base.

    They are a short vector of the lattice of all that are (Lenstra, Lenstra and Lovasz, 1982).
    """
    count = SHORTEST_RELATION
    powers = [pow(base, count - 1 - place, modulus) for place in range(count)]
    rows = [[int(row == place) for place in range(count)] for row in range(count)]
    for row in rows[:-1]:
        row[-1] = -powers[rows.index(row)] % modulus
    rows[-1][-1] = modulus
    return tuple(min(_reduced(rows), key=lambda row: max(map(abs, row))))


def _reduced(rows: list[list[int]]) -> list[list[int]]:
    """A basis of the same lattice with short rows; exact, but for what decides where to go on."""
    place = 1
    while place < len(rows):
        for before in reversed(range(place)):
            _, parts = _orthogonal(rows)
            whole = round(parts[place][before])
            rows[place] = [a - whole * b for a, b in zip(rows[place], rows[before], strict=True)]
        squares, parts = _orthogonal(rows)
        if squares[place] >= (0.75 - parts[place][place - 1] ** 2) * squares[place - 1]:
            place += 1
        else:
            rows[place - 1], rows[place] = rows[place], rows[place - 1]
            place = max(1, place - 1)
    return rows


def _orthogonal(rows: Sequence[Sequence[int]]) -> tuple[list[float], list[list[float]]]:
    """Squared lengths of the rows made orthogonal one after the other, and what each took off."""
    vectors: list[list[float]] = []
    parts: list[list[float]] = []
    squares: list[float] = []
    for row in rows:
        vector = list(map(float, row))
        parts.append([])
        for other, square in zip(vectors, squares, strict=True):
            part = sum(a * b for a, b in zip(map(float, row), other, strict=True)) / square
            parts[-1].append(part)
            vector = [a - part * b for a, b in zip(vector, other, strict=True)]
        vectors.append(vector)
        squares.append(sum(a * a for a in vector))
    return squares, parts


def _joined(encode: Callable[[int], bytes], separator: bytes) -> Callable[[Sequence[int]], bytes]:
    return lambda tokens: separator.join(map(encode, tokens))


def _equal_crc(
    count: int, bits: Sequence[int], encode: Callable[[Sequence[int]], bytes]
) -> Pair | None:
    """Two runs of `count` tokens that differ in some of these bits and have one CRC-32.

    The checksum of equally long texts is linear in what differs, so that a set of bits whose
    changes cancel out is found by elimination; None where there are too few bits.
    """
    changes = [(place, 1 << bit) for place in range(count) for bit in bits]
    return _cancelling(tuple([0] * count), changes, encode)


def _equal_crc_of_text(count: int, separator: bytes) -> Pair | None:
    """The same for tokens as decimal text: digits from 0 to 7 are changed into one another."""
    digits = 8
    start = tuple([int("1" * (digits + 1))] * count)

    def encode(flips: Sequence[int]) -> bytes:
        texts = []
        for token, flip in zip(start, flips, strict=True):
            text = bytearray(str(token).encode())
            for digit in range(digits):
                text[1 + digit] ^= flip >> (3 * digit) & 7
            texts.append(bytes(text))
        return separator.join(texts)

    changes = [(place, 1 << bit) for place in range(count) for bit in range(3 * digits)]
    found = _cancelling(tuple([0] * count), changes, encode)
    if found is None:
        return None
    text = separator or b"\0"
    return (
        tuple(start),
        tuple(int(part) for part in encode(found[1]).split(text))
        if separator
        else _split(encode(found[1]), digits + 1),
    )


def _split(text: bytes, width: int) -> Tokens:
    bounds = range(0, len(text) + 1, width)
    return tuple(int(text[first:end]) for first, end in pairwise(bounds))


def _cancelling(
    start: Tokens, changes: Sequence[tuple[int, int]], encode: Callable[[Sequence[int]], bytes]
) -> Pair | None:
    """`start`, and `start` with some of the changes, where these leave the CRC-32 as it is."""
    whole = zlib.crc32(encode(start))
    reduced: dict[int, tuple[int, frozenset[int]]] = {}
    for number, (place, bits) in enumerate(changes):
        changed = list(start)
        changed[place] ^= bits
        difference, used = zlib.crc32(encode(changed)) ^ whole, frozenset([number])
        while difference:
            top = difference.bit_length()
            if top not in reduced:
                reduced[top] = difference, used
                break
            other, others = reduced[top]
            difference, used = difference ^ other, used ^ others
        else:
            other_tokens = list(start)
            for chosen in used:
                other_tokens[changes[chosen][0]] ^= changes[chosen][1]
            return start, tuple(other_tokens)
    return None
