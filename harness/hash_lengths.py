"""Whether an error of a target depends on the length of the hashes and on nothing else about them.

A pool with entries of one width raises on a hash of another, which the contract calls a crash
unless its profile says so (`hash_bytes`). To tell this from any other crash, the commands are
repeated with random hashes: of the same length, with which they must fail as before, and of others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from poolproof.contract.commands import Acquire, Cache, Command, Lookup
from poolproof.contract.content import Key
from poolproof.contract.index_commands import IndexKey
from poolproof.contract.trace import Trace
from poolproof.harness.careful_session import CAREFUL
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.pool_workload import different_hashes
from poolproof.harness.replay import replay
from poolproof.harness.smaller_index_traces import keys_of_index
from poolproof.harness.smaller_pool_traces import hashes_of

__all__ = ["length_of_hashes", "lengths_that_pass"]

_LENGTHS = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 48, 64, 96, 128, 256)
"""What hashes have: words, digests, digests with a number behind them. A program may have to be
started anew for each that it does not take, so these are few."""

_MOST_COMMANDS = 300
"""Longer traces cost too much to be given that often; one that depends on a length is short."""


def length_of_hashes(trace: Trace) -> int | None:
    """The one length in bytes of the hashes that a trace gives its target.

    None if the lengths differ, if tokens are hashed, or if the profile fixes the length.
    """
    is_opaque = trace.level.has_hashes and trace.options.get("block_size", 1) == 1
    if not is_opaque or trace.profile.fixed_hash_bytes is not None:
        return None
    lengths = {len(found) for found in _hashes_in(trace.commands)}
    if not lengths and trace.options.get(CAREFUL):
        return trace.profile.usual_hash_bytes  # the second instance is given a hash
    return lengths.pop() if len(lengths) == 1 else None


def lengths_that_pass(
    trace: Trace, make: Callable[[int, bool], Any], bump: Callable[[], None]
) -> tuple[int, ...]:
    """The lengths of hashes with which the commands of a failing trace pass.

    None of them if the trace does not fail with other hashes of its own length: then something else
    about its hashes is the cause. `bump` is called before each command.
    """
    own = length_of_hashes(trace)
    if own is None or len(trace.commands) > _MOST_COMMANDS:
        return ()
    assert trace.violation is not None
    hashes = list(dict.fromkeys(_hashes_in(trace.commands)))

    def kind_with(length: int) -> FailureKind | None:
        """How the commands fail with hashes of that length; None if they pass."""
        bump()
        done = replay(_with_hashes_of(trace, hashes, length), make, lambda _: bump())
        return None if done.violation is None else failure_kind(done.violation, done.applied)

    if kind_with(own) != failure_kind(trace.violation, trace.commands):
        return ()
    others = [length for length in _LENGTHS if length != own and 256**length >= len(hashes)]
    return tuple(length for length in others if kind_with(length) is None)


def _with_hashes_of(trace: Trace, hashes: Sequence[bytes], length: int) -> Trace:
    """The trace with random hashes of that length, different ones for different ones."""
    others = different_hashes(Random(f"hashes of {length}"), len(hashes), length)
    new = dict(zip(hashes, others, strict=True))
    return replace(
        trace,
        commands=tuple(_renamed(command, new) for command in trace.commands),
        profile=replace(trace.profile, hash_bytes=length),
        violation=None,
    )


def _renamed(command: Command, new: Mapping[bytes, bytes]) -> Command:
    def of_key(key: Any) -> Any:
        if isinstance(key, tuple):
            return new[key[0]], key[1]
        return new[key] if isinstance(key, bytes) else key

    if isinstance(command, Cache | Acquire):
        return replace(command, hashes=tuple(map(of_key, command.hashes)))
    if isinstance(command, Lookup):
        return replace(command, block_hash=of_key(command.block_hash))
    if hasattr(command, "key"):
        # The base class of commands has no such field; who comes here has.
        return replace(command, key=of_key(command.key))  # type: ignore[call-arg]  # see above
    return command


def _hashes_in(commands: Sequence[Command]) -> list[bytes]:
    """The hashes that the commands name, each as often as it occurs."""
    keys: list[Key | IndexKey] = [key for command in commands for key in hashes_of(command)]
    keys += keys_of_index(commands)
    hashes = [key[0] if isinstance(key, tuple) else key for key in keys]
    return [found for found in hashes if isinstance(found, bytes)]
