"""Smaller variants of a trace of a large pool: prompts that are shorter and plainer.

A bug that begins at some length keeps that length and loses the rest. All prompts are changed in
the same way at once, so that what was equal stays equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from poolproof.contract.commands import CacheChain, CachePartial, Command, Lookup, LookupChain
from poolproof.contract.content import ContentKey, TokenChain
from poolproof.harness.relative import RelativeCommand

__all__ = ["blocks_handed_out_earlier", "prompt_weight", "shorter_prompts"]

USUAL_TOKENS = 64
"""Prompts of small runs are shorter; they are read as they are."""

Candidate = Sequence[RelativeCommand]
_Tokens = Callable[[tuple[int, ...]], tuple[int, ...]]


def shorter_prompts(commands: Candidate, block_size: int) -> Iterator[Candidate]:
    """Prompts without what no command uses; without so many of their first blocks; plain tokens."""
    longest = max(map(_used, commands), default=0)
    if longest <= USUAL_TOKENS:
        return
    kept = [_without_tail(item, block_size) for item in commands]
    if kept != list(commands):
        yield kept
    blocks = longest // block_size
    step = blocks
    while step:
        fewer = [_without_head(item, step, block_size) for item in commands]
        if None not in fewer:
            yield [item for item in fewer if item is not None]
        step //= 2
    for modulus in (1, 2):
        plain = [_with_tokens(item, partial(_modulo, modulus)) for item in commands]
        if plain != list(commands):
            yield plain


def blocks_handed_out_earlier(commands: Candidate) -> Iterator[Candidate]:
    """The blocks that were handed out first in place of later ones, all of them or each alone."""
    numbers = sorted({n for item in commands for kind, n in item.roles if kind == "given"})
    first = {number: place for place, number in enumerate(numbers)}
    if first != {number: number for number in numbers}:
        yield [_renumbered(item, first) for item in commands]
    for place, number in enumerate(numbers):
        step = (number - place) // 2
        while step:
            if number - step not in first:
                yield [_renumbered(item, {number: number - step}) for item in commands]
            step //= 2


def prompt_weight(command: Command) -> int:
    """How long a long prompt is, and how plain its tokens are; 0 for any other command."""
    chain = getattr(command, "chain", None)
    if not isinstance(chain, TokenChain) or len(chain.tokens) <= USUAL_TOKENS:
        return 0
    return len(chain.tokens) + sum(token != 0 for token in chain.tokens)


def _renumbered(item: RelativeCommand, names: dict[int, int]) -> RelativeCommand:
    roles = tuple((kind, names.get(n, n) if kind == "given" else n) for kind, n in item.roles)
    return replace(item, roles=roles) if roles != item.roles else item


def _used(item: RelativeCommand) -> int:
    """How many tokens of a prompt a command speaks of; 0 for one that speaks of none."""
    command = item.command
    if isinstance(command, CacheChain):
        return len(command.chain.tokens)
    if isinstance(command, CachePartial | LookupChain):
        return command.num_tokens
    if isinstance(command, Lookup) and isinstance(command.block_hash, ContentKey):
        return len(command.block_hash.tokens)
    return 0


def _without_tail(item: RelativeCommand, block_size: int) -> RelativeCommand:
    command = item.command
    if isinstance(command, CacheChain):
        needed = len(item.roles or command.block_ids) * block_size
    elif isinstance(command, CachePartial | LookupChain):
        needed = command.num_tokens
    else:
        return item
    if needed >= len(command.chain.tokens):
        return item
    chain = replace(command.chain, tokens=command.chain.tokens[:needed])
    return replace(item, command=replace(command, chain=chain))


def _without_head(item: RelativeCommand, blocks: int, block_size: int) -> RelativeCommand | None:
    """The command about prompts that begin so many blocks later; None where nothing is left."""
    cut = blocks * block_size
    if not _used(item):
        return item
    if _used(item) <= cut:
        return None
    shorter = _with_tokens(item, lambda tokens: tokens[cut:])
    command = shorter.command
    if isinstance(command, CachePartial | LookupChain):
        return replace(shorter, command=replace(command, num_tokens=command.num_tokens - cut))
    if isinstance(command, CacheChain):
        if command.num_cached < blocks:
            return None
        return replace(
            shorter,
            command=replace(command, num_cached=command.num_cached - blocks),
            roles=shorter.roles[blocks:],
        )
    return shorter


def _with_tokens(item: RelativeCommand, changed: _Tokens) -> RelativeCommand:
    command = item.command
    new: Command
    if isinstance(command, CacheChain | CachePartial | LookupChain):
        chain: TokenChain = replace(command.chain, tokens=changed(command.chain.tokens))
        new = replace(command, chain=chain)
    elif isinstance(command, Lookup) and isinstance(command.block_hash, ContentKey):
        key = replace(command.block_hash, tokens=changed(command.block_hash.tokens))
        new = replace(command, block_hash=key)
    else:
        return item
    return replace(item, command=new)


def _modulo(modulus: int, tokens: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(token % modulus for token in tokens)
