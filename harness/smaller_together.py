"""Smaller variants of a trace in which the pool and the lengths of all texts shrink together.

A bug that needs a pool to be full fails neither with fewer blocks and the same prompts, nor with
shorter prompts and the same blocks. So blocks go together with the tokens that filled them, of
every prompt or of the longest one. Lengths lose whole blocks: where a text ends within one, the
shorter one ends there too. Whether a variant still fails is found out by `minimise.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poolproof.harness.relative import RelativeCommand
from poolproof.harness.smaller_manager_traces import changed, with_tokens
from poolproof.harness.smaller_pool_traces import Candidate

__all__ = ["longest_shorter", "shorter_by_as_many", "shorter_in_proportion"]

Shorten = Callable[[int], int]
"""The number of tokens that is left of so many."""

_LENGTHS = ("num_tokens", "max_new_tokens")


def shorter_in_proportion(
    commands: Candidate, block_size: int, num_blocks: int, fewer: int
) -> list[RelativeCommand]:
    """All lengths as a pool of `num_blocks` shrinks that gets `fewer` blocks less."""

    def shorten(num_tokens: int) -> int:
        blocks, rest = divmod(num_tokens, block_size)
        return blocks * (num_blocks - fewer) // num_blocks * block_size + rest

    return _shortened(commands, shorten)


def shorter_by_as_many(
    commands: Candidate, block_size: int, fewer: int
) -> list[RelativeCommand] | None:
    """All that is longer than `fewer` blocks, without so many; None where nothing is."""
    cut = fewer * block_size
    if _longest(commands) <= cut:
        return None
    return _shortened(commands, lambda num_tokens: _without(num_tokens, cut))


def longest_shorter(
    commands: Candidate, block_size: int, fewer: int
) -> list[RelativeCommand] | None:
    """What is longest, without `fewer` blocks; None where nothing is longer than they are."""
    cut, longest = fewer * block_size, _longest(commands)
    if longest <= cut:
        return None
    return _shortened(commands, lambda n: _without(n, cut) if n == longest else n)


def _without(num_tokens: int, cut: int) -> int:
    return num_tokens - cut if num_tokens > cut else num_tokens


def _longest(commands: Candidate) -> int:
    return max((n for item in commands for n in _lengths(item.command)), default=0)


def _lengths(command: Any) -> Sequence[int]:
    """The lengths of texts that a command has or speaks of."""
    chain = getattr(command, "chain", None)
    tokens = getattr(command, "tokens", ()) if chain is None else chain.tokens
    return (len(tokens), *(getattr(command, name, 0) for name in _LENGTHS))


def _shortened(commands: Candidate, shorten: Shorten) -> list[RelativeCommand]:
    return [
        RelativeCommand(_shorter(item.command, shorten)) if any(_lengths(item.command)) else item
        for item in commands
    ]


def _shorter(command: Any, shorten: Shorten) -> Any:
    numbers = {
        name: shorten(getattr(command, name)) for name in _LENGTHS if getattr(command, name, 0)
    }
    chain = getattr(command, "chain", None)
    tokens = getattr(command, "tokens", ()) if chain is None else chain.tokens
    if tokens:
        command = with_tokens(command, tokens[: max(1, shorten(len(tokens)))])
    return changed(command, **numbers) if numbers else command
