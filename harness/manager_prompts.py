"""The prompts of a manager workload: token chains that are related to one another.

Two or three symbols, lengths around the end of a block, and mostly the beginning of an earlier
prompt, its blocks under another parent, or its tokens under another adapter, salt or image.
"""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.content import Image, TokenChain
from poolproof.harness.choices import Choices

__all__ = ["ManagerPrompts"]

MOST_PROMPTS = 12


class ManagerPrompts:
    """Makes prompts for blocks of `block_size` tokens, from those that it was told to remember.

    `variants` are the same tokens under every adapter, salt and image, in runs that are about
    them; with `only_usual_blocks` prompts are two blocks in every order. With `are_long` many are
    longer than a window: nothing slides out of it before.
    """

    def __init__(
        self, choices: Choices, block_size: int, num_symbols: int, *, are_long: bool = False
    ) -> None:
        self.below = choices.below
        self.block_size = block_size
        self.num_symbols = num_symbols
        self.earlier: list[TokenChain] = []
        self.variants: list[TokenChain] = []
        self._of_images: list[TokenChain] = []
        self._of_text: list[TokenChain] = []
        self.only_usual_blocks = False
        self.are_long = are_long
        self.most_blocks = (3, 5, 6, 6)[self.below(4)] if are_long else (2, 2, 3, 3)[self.below(4)]
        self.usual_blocks = [self.tokens(block_size) for _ in range(2)]

    def tokens(self, count: int) -> tuple[int, ...]:
        """Tokens unrelated to any others."""
        below, symbols = self.below, self.num_symbols
        return tuple([below(symbols) for _ in range(count)])

    def filling(self, count: int) -> tuple[int, ...]:
        """One of the usual blocks, as often as it takes."""
        size = self.block_size
        return (self.usual_blocks[self.below(2)] * (1 + count // size))[: max(0, count)]

    def next(self) -> TokenChain:
        """A prompt, mostly related to an earlier one."""
        kind = 5 if self.only_usual_blocks else self.below(8)
        if not self.earlier or kind == 0:
            return TokenChain(self.tokens(self._length()))
        below, earlier = self.below, self.a_late_one()
        has_keys = earlier.lora or earlier.salt or earlier.images
        if below(2 if has_keys else 8) == 0:
            return self.with_other_keys(earlier)
        tokens = earlier.tokens
        if kind == 3:  # whole blocks of it, so that it may be cached to its end
            size = self.block_size
            tokens = tokens[: below(len(tokens) + size) // size * size] or tokens
        elif kind < 3:  # the same beginning
            kept = tokens[: 1 + self.below(len(tokens))]
            tokens = (*kept, *self.tokens(self.below(self.block_size + 2)))
        elif kind == 4:  # its later blocks, under another parent or none
            size = self.block_size
            tokens = tokens[size:] or tokens
        elif kind == 5:  # blocks that come again and again, each under many parents
            count = 1 + self.below(2)
            again = [self.usual_blocks[self.below(2)] for _ in range(count)]
            tokens = (*[t for block in again for t in block], *self.tokens(self.below(3)))
        elif kind == 6:  # another first block before the same tokens
            tokens = (*self.tokens(self.block_size), *tokens[self.block_size :])
        tokens = tokens[: (6 if self.are_long else 3) * self.block_size + 2]
        return TokenChain(tokens, earlier.lora, earlier.salt, _within(earlier.images, tokens))

    def a_late_one(self) -> TokenChain:
        """Rather a late one than an early one, which may have been evicted."""
        below, count = self.below, len(self.earlier)
        return self.earlier[max(below(count), below(count))]

    def vary_keys(self, *, of_images: bool) -> None:
        """From now on many prompts have the same tokens, under every image, or adapter and salt."""
        if not self._of_images:
            self._make_variants()
        self.variants = self._of_images if of_images else self._of_text

    def _make_variants(self) -> None:
        size = self.block_size
        tokens = self.tokens((size + 1, 2 * size)[self.below(2)])
        first = self.below(max(1, size - 1))
        images = (Image("p1", first, 1), Image("q1", first, 1), Image("p1", first + 1, 1))
        plain, salted = TokenChain(tokens), TokenChain(tokens, None, "x")
        adapters = [TokenChain(tokens, ("x", path)) for path in "01"]
        self._of_images = [plain, *[TokenChain(tokens, images=(image,)) for image in images]]
        self._of_text = [plain, salted, salted, *adapters]

    def be_usual(self) -> None:
        """From now on prompts are related to earlier ones, as in most runs."""
        self.variants, self.only_usual_blocks = [], False

    def variant(self) -> TokenChain:
        """One of the variants, each as likely as the others."""
        return self.variants[self.below(len(self.variants))]

    def fitting(self, num_free: int, num_blocks: int, num_groups: int) -> TokenChain:
        """One that just fits into the free blocks, or just does not; seldom into the whole pool.

        Where much is free, mostly any: what is long costs time, and fills no better than two.
        """
        if self.below(3 if self.are_long else 24) == 0 or not self.earlier:
            chain, blocks = self.next(), num_blocks + 1 - self.below(3)
        elif num_free > 3 and not self.are_long and self.below(4):
            return self.next()
        else:
            chain = self.next() if self.below(2) else self.earlier[self.below(len(self.earlier))]
            blocks = num_free + self.below(2 * num_groups)
        count = max(1, blocks // num_groups * self.block_size - self.below(2))
        tokens = (*chain.tokens[:count], *self.filling(count - len(chain.tokens)))
        return TokenChain(tokens, chain.lora, chain.salt, _within(chain.images, tokens))

    def cut(self, chain: TokenChain, kept: int, more: int) -> TokenChain:
        """Its first `kept` tokens, and `more` others behind them."""
        tokens = (*chain.tokens[:kept], *self.filling(more))
        return TokenChain(tokens, chain.lora, chain.salt, _within(chain.images, tokens))

    def longer(self) -> TokenChain:
        """An earlier prompt and up to a block more, so that much of it may be cached."""
        if not self.earlier:
            return self.next()
        chain = self.earlier[self.below(len(self.earlier))]
        tokens = chain.tokens[: 6 * self.block_size + 2]
        tokens = (*tokens, *self.tokens(1 + self.below(self.block_size + 1)))
        return TokenChain(tokens, chain.lora, chain.salt, _within(chain.images, tokens))

    def with_other_keys(self, chain: TokenChain) -> TokenChain:
        """The same tokens under another adapter, salt or image, or without."""
        tokens, kind = chain.tokens, self.below(3)
        if kind == 0 and (chain.lora or chain.salt or chain.images):
            return TokenChain(tokens)
        if chain.lora:
            # One name with two paths: an adapter that was loaded anew (vllm#30931). The salt may
            # read as an adapter's name does (vllm#44701).
            other = ("x", "1" if chain.lora[1] == "0" else "0")
            return TokenChain(tokens, other) if kind == 1 else TokenChain(tokens, None, "x")
        if chain.salt:
            other = ("x", "0")
            salt = "y" if chain.salt == "x" else "x"
            return TokenChain(tokens, other) if kind == 1 else TokenChain(tokens, None, salt)
        if chain.images:
            return TokenChain(tokens, images=(self._other_image(chain, chain.images[0]),))
        if kind == 0:
            return TokenChain(tokens, ("x", "0"))
        if kind == 1:
            return TokenChain(tokens, None, "x")
        return TokenChain(tokens, images=(self._image("p", len(tokens)),))

    def _other_image(self, chain: TokenChain, image: Image) -> Image:
        """Another image in the same place, or the same one elsewhere (vllm#56655)."""
        if self.below(2):
            other = "q" if image.identifier[0] == "p" else "p"
            return Image(f"{other}{image.length}", image.offset, image.length)
        room = len(chain.tokens) - image.length
        offset = image.offset + 1 if image.offset < room else max(0, image.offset - 1)
        return Image(image.identifier, offset, image.length)

    def _image(self, letter: str, num_tokens: int) -> Image:
        """An image over some of the first tokens; what it shows decides how many stand for it."""
        offset = self.below(min(num_tokens, self.block_size))
        length = 1 + self.below(min(num_tokens - offset, self.block_size))
        return Image(f"{letter}{length}", offset, length)

    def remember(self, chain: TokenChain) -> TokenChain:
        """Later prompts may be related to this one, which is returned as it is remembered."""
        if chain.images:
            images = _within(chain.images, chain.tokens)  # a cut may have left some behind
            chain = TokenChain(chain.tokens, chain.lora, chain.salt, images)
        self.earlier.append(chain)
        if len(self.earlier) > MOST_PROMPTS:
            del self.earlier[self.below(MOST_PROMPTS)]
        return chain

    def _length(self) -> int:
        """Lengths around the end of a block; in some runs they are longer than in others."""
        size = self.block_size
        blocks = 1 + self.below(self.most_blocks)
        return max(1, blocks * size + (-1, 0, 0, 1, 1, 2)[self.below(6)])


def _within(images: Sequence[Image], tokens: Sequence[int]) -> tuple[Image, ...]:
    return tuple([i for i in images if i.offset + i.length <= len(tokens)])
