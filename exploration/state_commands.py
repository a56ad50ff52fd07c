"""Which commands are tried in a state of a pool, and how to get back to it from each.

The narrow alphabet is the transition relation of `orbit_space.py` with everything around it that
must change nothing: every allocation from none to one too many, a reset that is refused, an
eviction of what has no hash, the same hash again. The wide one adds calls for two blocks and
misuse. What the profile does not define is left out by whoever executes the commands.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Reset, Touch
from poolproof.contract.profile import USUAL_HASH_BYTES
from poolproof.exploration.representative import Representative
from poolproof.exploration.scope import Scope

__all__ = ["Try", "narrow_tries", "wide_tries"]

Try = tuple[Command, tuple[Command, ...] | None]
"""A command and what leads back to the state; None where only a fresh pool does."""

_STAYS: tuple[Command, ...] = ()


def narrow_tries(scope: Scope, state: Representative, null: int | None = None) -> Iterator[Try]:
    """Commands of one block, allocations, the reset; the null block where lists may name it."""
    num_free = len(state.free)
    yield Allocate(0), _STAYS
    yield Allocate(num_free + 1), _STAYS
    if state.references:
        yield Reset(), _STAYS
    if null is not None:
        for command in (Touch((null,)), Free((null,)), *(Cache((null,), (k,)) for k in state.keys)):
            yield command, _STAYS
    for block in state.distinct_held():
        yield from _on_held(scope, state, block, state.references[block])
    for block in state.free:
        if state.label_of[block]:
            yield Touch((block,)), state.requeueing(block)
            yield Evict((block,)), state.restoring(num_free)
    unhashed = state.first_unhashed()
    if unhashed is not None:
        yield Evict((unhashed,)), _STAYS
    for count in state.counts():
        yield Allocate(count), state.restoring(num_free - count)
    if not state.references:
        yield Reset(), state.restoring(num_free)


def wide_tries(
    state: Representative, null: int | None = None, hash_bytes: int = USUAL_HASH_BYTES
) -> Iterator[Try]:
    """Calls for two blocks, the same one twice included, and misuse of each kind."""
    beside = [] if null is None else [null]
    held = [*state.references, *beside]
    cached = [b for b in state.free if state.label_of[b]]
    keys = state.keys
    for pair in product([*held, *cached], repeat=2):
        yield Touch(pair), None
        yield Evict(pair), None
    for pair in product(held, repeat=2):
        yield Free(pair), None
    for pair, pair_keys in product(permutations(held, 2), product(keys, repeat=2)):
        yield Cache(pair, pair_keys), None
    beyond = (max([*state.label_of, *beside]) + 1,)
    some = state.spare_keys[:1] or keys[:1] or (b"\1" * hash_bytes,)
    yield Allocate(-1), _STAYS
    for misuse in (Touch(beyond), Free(beyond), Free((-1,)), Evict(beyond), Cache(beyond, some)):
        yield misuse, _STAYS
    yield Cache((), some), _STAYS
    for block, count in state.references.items():
        yield Free((block,) * (count + 1)), _STAYS
        yield Cache((block, block), some * 2), _STAYS
    for block in state.free:
        yield Free((block,)), _STAYS
        yield Cache((block,), some), _STAYS


def _on_held(scope: Scope, state: Representative, block: int, references: int) -> Iterator[Try]:
    """Commands for a held block; most have a command that undoes them."""
    one = (block,)
    label = state.label_of[block]
    if references < scope.max_references:
        yield Touch(one), (Free(one),)
    if references > 1 or label:
        yield Free(one), (Touch(one),)
    elif scope.eviction == "lru":
        yield Free(one), state.restoring(len(state.free) + 1)
    else:
        yield Free(one), (Allocate(1),)
    if label:
        yield Evict(one), (Cache(one, (state.key_of(block),)),)
    alone = scope.duplicates == "kept"
    for number, key in enumerate(state.keys, 1):
        if number == label:
            yield Cache(one, (key,)), _STAYS
        elif not alone or (not label and "evict" not in scope.verbs):
            yield Cache(one, (key,)), None
        elif label:
            yield Cache(one, (key,)), (Cache(one, (state.key_of(block),)),)
        else:
            yield Cache(one, (key,)), (Evict(one),)
