"""Smaller variants of a failing trace of a pool or queue, one idea per function.

The minimiser tries them. All work on commands in relative form, so that what is left keeps its
meaning. Whether a variant still fails, and the same way, is found out by `minimise.py`.

In traces of a large pool prompts become shorter and plainer. A bug that begins at some length
keeps that length and loses the rest. All prompts are changed in the same way at once, so that what
was equal stays equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    Lookup,
    LookupChain,
    PopLeftN,
    Touch,
)
from poolproof.contract.content import ContentKey, Key, TokenChain
from poolproof.harness.relative import RelativeCommand

__all__ = [
    "Candidate",
    "blocks_handed_out_earlier",
    "calls_merged",
    "for_one_block_less",
    "hashes_of",
    "lowered",
    "one_reference_less",
    "prompt_weight",
    "shorter_prompts",
    "two_commands_less",
]


Candidate = Sequence[RelativeCommand]

FEW = 16
"""Larger counts and longer lists are bisected and not tried number by number."""

MOST_ENTRIES = 500
"""Longer traces, entries of lists counted, are not searched for pairs of references."""

MOST_FOR_PAIRS = 24
"""Longer traces are not searched for pairs of commands to delete, whose number grows squared."""


def two_commands_less(commands: Candidate) -> Iterator[Candidate]:
    """The commands without two of them, where neither can go alone."""
    if len(commands) <= MOST_FOR_PAIRS:
        for pair in combinations(range(len(commands)), 2):
            yield [item for place, item in enumerate(commands) if place not in pair]


def calls_merged(commands: Candidate) -> Iterator[Candidate]:
    """Two calls of one verb as one call, in the place of the first or of the second."""
    if len(commands) > MOST_FOR_PAIRS:
        return
    for first, second in combinations(range(len(commands)), 2):
        merged = _merged(commands[first], commands[second])
        if merged is not None:
            for kept, gone in ((first, second), (second, first)):
                changed = [*commands[:kept], merged, *commands[kept + 1 :]]
                del changed[gone]
                yield changed


def one_reference_less(concrete: Sequence[Command], commands: Candidate) -> Iterator[Candidate]:
    """The commands with one reference less that a touch takes and a later free gives back.

    Without the one alone the other is misuse, which would hide what comes after.
    """
    if sum(1 + len(getattr(command, "block_ids", ())) for command in concrete) > MOST_ENTRIES:
        return
    for taking, touch in enumerate(concrete):
        if not isinstance(touch, Touch):
            continue
        for block in dict.fromkeys(touch.block_ids):
            for giving, free in enumerate(concrete[taking + 1 :], start=taking + 1):
                if isinstance(free, Free) and block in free.block_ids:
                    fewer = list(commands)
                    fewer[taking] = _without(fewer[taking], touch.block_ids.index(block))
                    fewer[giving] = _without(fewer[giving], free.block_ids.index(block))
                    emptied = {place for place in (taking, giving) if not fewer[place].roles}
                    yield [item for place, item in enumerate(fewer) if place not in emptied]
                    break


def for_one_block_less(commands: Candidate) -> Iterator[Candidate]:
    """What may still fail in a pool with one block less.

    As it is; with an allocation that asks for one block less, for a bug that needs a nearly empty
    queue; and with one command, one block of a list, or two commands less, for one that needs
    every block free or held.
    """
    yield commands
    for place, item in enumerate(commands):
        if isinstance(item.command, Allocate) and not item.roles and item.command.count > 0:
            fewer = replace(item, command=Allocate(item.command.count - 1))
            yield (*commands[:place], fewer, *commands[place + 1 :])
    for place in range(len(commands)):
        yield [*commands[:place], *commands[place + 1 :]]
    for place, item in enumerate(commands):
        if hasattr(item.command, "block_ids") and len(item.roles) > 1:
            for role in range(len(item.roles)):
                yield [*commands[:place], _without(item, role), *commands[place + 1 :]]
    yield from two_commands_less(commands)


def lowered(item: RelativeCommand, context: Sequence[Command]) -> Iterator[RelativeCommand]:
    """One command with smaller arguments, the smallest first.

    `context` are the commands of the trace, whose hashes may stand in for each other.
    """
    command, roles = item.command, item.roles
    if isinstance(command, Allocate) and roles:
        kind, amount = roles[0]
        yield replace(item, command=Allocate(1), roles=())
        if kind == "beyond" and amount > 1:
            yield replace(item, roles=((kind, 1),))
    elif isinstance(command, Allocate | PopLeftN):
        for count in _smaller_counts(command.count):
            yield replace(item, command=type(command)(count))
    if len(roles) > 1 and hasattr(command, "block_ids"):
        for start, end in _windows(len(roles)):
            yield _without(item, start, end)
    for place, (role, rank) in enumerate(roles):
        for lower in range(rank) if role not in ("raw", "given") else ():
            yield RelativeCommand(command, (*roles[:place], (role, lower), *roles[place + 1 :]))
    yield from _with_other_hashes(item, context)


def _smaller_counts(count: int) -> Iterator[int]:
    """All smaller numbers, smallest first; of a large one those that bisect it."""
    if count <= FEW:
        yield from range(count)
        return
    yield from range(4)
    step = count // 2
    while step:
        yield count - step
        step //= 2


def _windows(length: int) -> Iterator[tuple[int, int]]:
    """What to leave out of a list: single entries; of a long list large windows of it first."""
    size = 1 if length <= FEW else length // 2
    while size:
        for start in range(0, length, size):
            if size < length:
                yield start, min(start + size, length)
        size //= 2


def hashes_of(command: Command) -> tuple[Key, ...]:
    """The hashes that stand in a command."""
    if isinstance(command, Cache | Acquire):
        return command.hashes
    return (command.block_hash,) if isinstance(command, Lookup) else ()


def _merged(first: RelativeCommand, second: RelativeCommand) -> RelativeCommand | None:
    """One command that does what two of the same verb do, where the verb takes several."""
    one, two = first.command, second.command
    roles = (*first.roles, *second.roles)
    if isinstance(one, Allocate) and isinstance(two, Allocate) and not roles:
        return replace(first, command=Allocate(one.count + two.count))
    if isinstance(one, Cache) and isinstance(two, Cache):
        return RelativeCommand(replace(one, hashes=(*one.hashes, *two.hashes)), roles)
    if type(one) is type(two) and isinstance(one, Touch | Free | Evict):
        return RelativeCommand(one, roles)
    return None


def _without(item: RelativeCommand, start: int, end: int | None = None) -> RelativeCommand:
    """The command without some of its blocks, usually one (and without their hashes)."""
    if end is None:
        end = start + 1
    changes: dict[str, Any] = {}
    hashes = getattr(item.command, "hashes", None)
    if hashes is not None and len(hashes) == len(item.roles):
        changes["hashes"] = (*hashes[:start], *hashes[end:])
    roles = (*item.roles[:start], *item.roles[end:])
    return replace(item, command=replace(item.command, **changes), roles=roles)


def _with_other_hashes(
    item: RelativeCommand, context: Sequence[Command]
) -> Iterator[RelativeCommand]:
    """The command with hashes that stand earlier in the trace."""
    own = hashes_of(item.command)
    earlier = list(dict.fromkeys(key for command in context for key in hashes_of(command)))
    name = "hashes" if hasattr(item.command, "hashes") else "block_hash"
    if len(own) > FEW:
        return
    for place, key in enumerate(own):
        for other in earlier[: min(earlier.index(key), FEW)] if key in earlier else ():
            hashes = (*own[:place], other, *own[place + 1 :])
            value = hashes if name == "hashes" else hashes[0]
            yield RelativeCommand(replace(item.command, **{name: value}), item.roles)


USUAL_TOKENS = 64
"""Prompts of small runs are shorter; they are read as they are."""

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
