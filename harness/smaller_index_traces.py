"""Smaller variants of a failing trace of an index: fewer and simpler keys, smaller block ids.

A key or block is replaced everywhere at once, or the commands no longer speak of the same one.
Keys that an index takes for one another only fail together, so that all keys of a trace are also
cut, and their bytes or bits cleared, at one place at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.index_commands import IndexCommand, IndexKey
from poolproof.harness.relative import RelativeCommand

__all__ = ["index_weight", "keys_of_index", "least_num_blocks", "simpler_index_traces"]

_MOST_NAMES = 24
"""In a trace that names more keys or blocks they are replaced all at once only."""

_PLAIN_BYTES = 4
"""The shortest hash that the contract has."""

Simplify = Callable[[IndexKey], IndexKey]


def simpler_index_traces(
    items: Sequence[RelativeCommand], hash_bytes: int | None = None
) -> Iterator[list[RelativeCommand]]:
    """The trace with one key or block less, then with simpler ones, the boldest change first.

    With `hash_bytes` every hash keeps that length.
    """
    commands = [item.command for item in items]
    keys, blocks = keys_of_index(commands), _blocks(commands)
    length = hash_bytes or _PLAIN_BYTES
    yield _renamed(commands, {key: _plain(key, n, length) for n, key in enumerate(keys)}, {})
    yield _renamed(commands, {}, {block: n for n, block in enumerate(blocks)})
    if len(keys) <= _MOST_NAMES:
        for key in keys:
            for other in keys[: keys.index(key)]:
                yield _renamed(commands, {key: other}, {})
    if len(blocks) <= _MOST_NAMES:
        for block in blocks:
            for lower in _smaller_blocks(block, blocks):
                yield _renamed(commands, {}, {block: lower})
    for simplify in _simplifications(keys, may_cut=hash_bytes is None):
        together = {key: simplify(key) for key in keys}
        yield _renamed(commands, together, {})
        if len(keys) <= _MOST_NAMES:
            for key in keys:
                yield _renamed(commands, {key: together[key]}, {})


def index_weight(commands: Sequence[Command]) -> int:
    """What a trace is measured by besides its length: keys, how long and how plain, block ids.

    0 for commands of other levels.
    """
    if not isinstance(commands[0] if commands else None, IndexCommand):
        return 0
    keys = keys_of_index(commands)
    hashes = [key[0] if isinstance(key, tuple) else key for key in keys]
    length = sum(len(value) for value in hashes if isinstance(value, bytes))
    bits = sum(_ones(value) for value in hashes)
    bits += sum(_ones(key[1]) for key in keys if isinstance(key, tuple))
    blocks = _blocks(commands)
    return 10**9 * (len(keys) + len(blocks)) + 10**6 * length + 10**3 * bits + sum(blocks)


def least_num_blocks(commands: Sequence[Command]) -> int:
    """The smallest index that has all the blocks that are named."""
    return 1 + max(_blocks(commands), default=0)


def keys_of_index(commands: Sequence[Command]) -> list[IndexKey]:
    """The keys that the commands name, in the order of their first appearance."""
    named = (getattr(command, "key", None) for command in commands)
    return [key for key in dict.fromkeys(named) if key is not None]


def _blocks(commands: Sequence[Command]) -> list[int]:
    named = (getattr(command, "block_id", None) for command in commands)
    return [block for block in dict.fromkeys(named) if block is not None]


def _ones(value: bytes | int) -> int:
    number = int.from_bytes(value, "big") if isinstance(value, bytes) else abs(value)
    return number.bit_count()


def _smaller_blocks(block: int, blocks: Sequence[int]) -> Iterator[int]:
    """The lowest ids, then ever nearer to the block: what begins at 256 ends at 256."""
    lowest = range(min(block, len(blocks)))
    yield from lowest
    step = block
    while step > 1:
        step //= 2
        if block - step not in lowest:
            yield block - step


def _simplifications(keys: Sequence[IndexKey], *, may_cut: bool) -> Iterator[Simplify]:
    """Ways to make every key plainer or, where it may be cut, shorter."""
    longest = max((len(h) for h in map(_hash_of, keys) if isinstance(h, bytes)), default=0)
    for length in (4, 8, 16, 32):
        if may_cut and length < longest:
            yield _on_hash(_sliced(0, length))
            yield _on_hash(_sliced(-length, None))
    if may_cut and longest > 1:
        yield _on_hash(_sliced(0, -1))
        yield _on_hash(_sliced(1, None))
    for place in range(longest):
        yield _on_hash(_zero_at(place))
    most_bits = max((_number_of(key).bit_length() for key in keys), default=0)
    for shift in (32, 8, 1):
        if shift < most_bits:
            yield _on_number(_shifted(shift))
    for bit in reversed(range(most_bits)):
        yield _on_number(_bit_cleared(bit))


def _sliced(first: int, end: int | None) -> Callable[[bytes], bytes]:
    return lambda value: value[first:end]


def _zero_at(place: int) -> Callable[[bytes], bytes]:
    return lambda value: value[:place] + b"\0" + value[place + 1 :]


def _shifted(by: int) -> Callable[[int], int]:
    return lambda number: number >> by


def _bit_cleared(bit: int) -> Callable[[int], int]:
    return lambda number: number & ~(1 << bit)


def _hash_of(key: IndexKey) -> bytes | int:
    return key[0] if isinstance(key, tuple) else key


def _number_of(key: IndexKey) -> int:
    if isinstance(key, tuple):
        return key[1]
    return 0 if isinstance(key, bytes) else abs(key)


def _on_hash(change: Callable[[bytes], bytes]) -> Simplify:
    def simplify(key: IndexKey) -> IndexKey:
        if isinstance(key, tuple):
            return change(key[0]) or key[0], key[1]
        return (change(key) or key) if isinstance(key, bytes) else key

    return simplify


def _on_number(change: Callable[[int], int]) -> Simplify:
    def simplify(key: IndexKey) -> IndexKey:
        if isinstance(key, tuple):
            return key[0], change(key[1])
        return key if isinstance(key, bytes) else change(key)

    return simplify


def _plain(key: IndexKey, number: int, length: int) -> IndexKey:
    """A key of the same kind that says nothing but its number."""
    if isinstance(key, tuple):
        return number.to_bytes(length, "big"), key[1]
    return number.to_bytes(length, "big") if isinstance(key, bytes) else number


def _renamed(
    commands: Sequence[Command], keys: Mapping[IndexKey, IndexKey], blocks: Mapping[int, int]
) -> list[RelativeCommand]:
    def renamed(command: Command) -> Command:
        changes: dict[str, Any] = {}
        key: IndexKey | None = getattr(command, "key", None)
        block: int | None = getattr(command, "block_id", None)
        if key is not None and key in keys:
            changes["key"] = keys[key]
        if block is not None and block in blocks:
            changes["block_id"] = blocks[block]
        return replace(command, **changes) if changes else command

    return [RelativeCommand(renamed(command)) for command in commands]
