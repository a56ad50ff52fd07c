"""The prompts of a manager workload: token chains that have to do with one another.

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
    """Makes prompts for blocks of `block_size` tokens, from those that it was told to remember."""

    def __init__(self, choices: Choices, block_size: int, num_symbols: int) -> None:
        self.below = choices.below
        self.block_size = block_size
        self.num_symbols = num_symbols
        self.earlier: list[TokenChain] = []
        self.usual_blocks = [self.tokens(block_size) for _ in range(2)]

    def tokens(self, count: int) -> tuple[int, ...]:
        """Tokens that have to do with nothing."""
        below, symbols = self.below, self.num_symbols
        return tuple([below(symbols) for _ in range(count)])

    def next(self) -> TokenChain:
        """A prompt that mostly has to do with an earlier one."""
        kind = self.below(8)
        if not self.earlier or kind == 0:
            return TokenChain(self.tokens(self._length()))
        # Rather a late one than an early one, which may have been evicted.
        below, count = self.below, len(self.earlier)
        earlier = self.earlier[max(below(count), below(count))]
        has_keys = earlier.lora or earlier.salt or earlier.images
        if below(2 if has_keys else 8) == 0:
            return self._with_other_keys(earlier)
        tokens = earlier.tokens
        if kind < 4:  # the same beginning
            kept = tokens[: 1 + self.below(len(tokens))]
            tokens = (*kept, *self.tokens(self.below(self.block_size + 2)))
        elif kind == 4:  # its later blocks, under another parent or none
            size = self.block_size
            tokens = tokens[size:] or tokens
        elif kind == 5:  # blocks that come again and again, each under many parents
            count = 1 + self.below(3)
            again = [self.usual_blocks[self.below(2)] for _ in range(count)]
            tokens = (*[t for block in again for t in block], *self.tokens(self.below(3)))
        elif kind == 6:  # another first block before the same tokens
            tokens = (*self.tokens(self.block_size), *tokens[self.block_size :])
        tokens = tokens[: 6 * self.block_size + 2]
        return TokenChain(tokens, earlier.lora, earlier.salt, _within(earlier.images, tokens))

    def _with_other_keys(self, chain: TokenChain) -> TokenChain:
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

    def remember(self, chain: TokenChain) -> None:
        """Later prompts may have to do with this one."""
        if chain.images:
            images = _within(chain.images, chain.tokens)  # a cut may have left some behind
            chain = TokenChain(chain.tokens, chain.lora, chain.salt, images)
        self.earlier.append(chain)
        if len(self.earlier) > MOST_PROMPTS:
            del self.earlier[self.below(MOST_PROMPTS)]

    def _length(self) -> int:
        """Lengths around the end of a block, mostly of one to three blocks."""
        size = self.block_size
        blocks = 1 + self.below(3) if self.below(8) else 1 + self.below(6)
        return max(1, blocks * size + (-1, 0, 0, 1, 1, 2)[self.below(6)])


def _within(images: Sequence[Image], tokens: Sequence[int]) -> tuple[Image, ...]:
    return tuple([i for i in images if i.offset + i.length <= len(tokens)])
