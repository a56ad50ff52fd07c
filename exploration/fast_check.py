"""The fast form of the narrow alphabet: does the target show what it must, yes or no.

Bare calls and plain lists, no commands, no reference and no facts, because a scope of eight blocks
has a million tries. On a no, or when anything is raised, the caller executes the state again with
sessions (`state_check.py`): those are the specification, this is their fast form, and
tests/exploration/test_state_check.py holds the two together, call by call and state by state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from poolproof.contract.content import Key
from poolproof.contract.observation import Neighbours
from poolproof.contract.profile import Profile, joins_head
from poolproof.contract.target import Capabilities, capabilities_of
from poolproof.exploration.representative import Representative
from poolproof.exploration.scope import Scope

__all__ = ["FastCheck"]

Make = Callable[[int, bool], Any]
Blocks = Sequence[int]


class FastCheck:
    """Checks states of one scope. `num_commands` counts the calls that were compared.

    Only for scopes that are closed (`Scope.is_closed`) and have all verbs.
    """

    def __init__(self, make: Make, profile: Profile, scope: Scope) -> None:
        self.num_commands = 0
        self.num_blocks = scope.num_blocks + (profile.null_block is not None)
        self._make = make
        self._scope = scope
        self._null = profile.null_block
        self._null_is_listed = profile.null_in_lists != "misuse"
        self._null_is_cached = profile.null_in_lists == "ignored"
        self._can: Capabilities | None = None
        self._all = range(self.num_blocks)
        self._one_copy = profile.events == "per-hash"
        self._has_events = profile.events != "none"

    def passes(self, state: Representative) -> bool:
        """Whether every command in the state does what it must; a no may also be a false alarm."""
        try:
            return self._passes(state)
        except Exception:  # noqa: BLE001 -- the session says what it was
            return False

    def _passes(self, state: Representative) -> bool:
        self._enter(state)
        self.num_commands -= 1  # the look at the state itself is no command
        return (
            self._shows(self._counts, self._order, self._hashes)
            and self._what_stays(state)
            and self._on_held(state)
            and self._on_free(state)
        )

    def _enter(self, state: Representative) -> None:
        """A fresh target in the state, and what it must show there."""
        target = self._target = self._make(self.num_blocks, True)
        can = self._can = self._can or capabilities_of(target)
        self._ref_count = target.ref_count if can.sees("ref_count") else None
        self._block_hash = target.block_hash if can.sees("block_hash") else None
        self._free_order = target.free_order if can.sees("free_order") else None
        self._neighbours = target.free_neighbours if can.sees("free_neighbours") else None
        shows_events = self._has_events and can.sees("take_events")
        self._take_events = target.take_events if shows_events else None
        self._keys = state.keys
        self._order = list(state.free)
        self._linked: Blocks | None = None
        self._links: list[Neighbours] = []
        self._counts = [state.references.get(block, 0) for block in self._all]
        labels = state.label_of
        self._hashes = [state.key_of(b) if labels.get(b) else None for b in self._all]
        self._own_copies = self._copies(self._hashes) if shows_events else {}
        self._furnishing = [
            (verb, getattr(target, verb), arguments)
            for verb, arguments in map(self._plain, state.restoring(0))
        ]
        for verb, arguments in map(self._plain, state.building()):
            getattr(target, verb)(*map(list, arguments) if verb != "allocate" else arguments)
        self._forget_events()

    @staticmethod
    def _plain(command: Any) -> tuple[str, tuple[Any, ...]]:
        if command.verb == "allocate":
            return command.verb, (command.count,)
        if command.verb == "cache":
            return command.verb, (command.block_ids, command.hashes)
        return command.verb, (command.block_ids,)

    def _restore(self, num_free: int, revived: int | None = None) -> None:
        """Back to the state: what is free is held, what shall be free is furnished and freed.

        A revived block has kept its hash: caching it again may be forbidden.
        """
        target = self._target
        if num_free:
            target.allocate(num_free)
        for verb, method, arguments in self._furnishing:
            if verb == "cache" and revived in arguments[0]:
                pairs = [p for p in zip(*arguments, strict=True) if p[0] != revived]
                if pairs:
                    method(*map(list, zip(*pairs, strict=True)))
            else:
                method(*map(list, arguments))
        self._forget_events()

    def _requeue(self, place: int) -> None:
        """Back to the state after a revival: those behind, if all can be revived, or all anew."""
        behind = self._order[place + 1 :]
        if self._scope.eviction == "lifo" or None in [self._hashes[block] for block in behind]:
            self._restore(len(self._order) - 1, self._order[place])
            return
        if behind:
            self._target.touch(behind.copy())
        self._target.free(self._order[place:])

    def _forget_events(self) -> None:
        if self._take_events is not None:
            self._take_events()

    def _what_stays(self, state: Representative) -> bool:
        """Commands that change nothing, a refused allocation among them, and one look after all."""
        target = self._target
        if list(target.allocate(0)) != []:
            return False
        try:
            target.allocate(len(self._order) + 1)
        except (MemoryError, ValueError):
            pass
        else:
            return False
        if state.references and target.reset() is not False:
            return False
        unhashed = state.first_unhashed()
        if unhashed is not None:
            target.evict([unhashed])
        if self._null is not None and self._null_is_listed:
            target.touch([self._null])
            target.free([self._null])
            keys = self._keys if self._null_is_cached else ()
            for key in keys:
                target.cache([self._null], [key])
            self.num_commands += 2 + len(keys)
        self.num_commands += 1 + bool(state.references) + (unhashed is not None)
        return self._shows(self._counts, self._order, self._hashes)

    def _on_held(self, state: Representative) -> bool:
        """Commands for a held block, each undone by another."""
        target, counts, hashes, order = self._target, self._counts, self._hashes, self._order
        scope = self._scope
        for block in state.distinct_held():
            references, own = counts[block], hashes[block]
            if references < scope.max_references:
                target.touch([block])
                if not self._shows(_with(counts, block, references + 1), order, hashes):
                    return False
                target.free([block])
            target.free([block])
            joined = order if references > 1 else self._joined(block, own)
            if not self._shows(_with(counts, block, references - 1), joined, hashes):
                return False
            if references > 1 or own is not None:
                target.touch([block])
            elif scope.eviction == "lru":
                self._restore(len(order) + 1)
            else:
                target.allocate(1)
            if own is not None:
                target.evict([block])
                if not self._shows(counts, order, _with(hashes, block, None)):
                    return False
                target.cache([block], [own])
                self._forget_events()
            if not self._caches(block, own):
                return False
        return True

    def _caches(self, block: int, own: Key | None) -> bool:
        """Every hash, for one held block."""
        target, hashes = self._target, self._hashes
        for key in self._keys:
            if own is not None and self._scope.recache == "forbidden":
                continue
            target.cache([block], [key])
            if not self._shows(self._counts, self._order, _with(hashes, block, key)):
                return False
            if own is None:
                target.evict([block])
            elif key != own:
                target.cache([block], [own])
            self._forget_events()
        return True

    def _on_free(self, state: Representative) -> bool:
        """Revivals, evictions in the queue, allocations and the reset."""
        target, counts, hashes, order = self._target, self._counts, self._hashes, self._order
        num_free = len(order)
        for place, block in enumerate(order):
            if hashes[block] is None:
                continue
            target.touch([block])
            left = order[:place] + order[place + 1 :]
            if not self._shows(_with(counts, block, 1), left, hashes):
                return False
            self._requeue(place)
            target.evict([block])
            if not self._shows(counts, order, _with(hashes, block, None)):
                return False
            self._restore(num_free)
        for count in state.counts():
            taken = order[:count]
            if list(target.allocate(count)) != taken:
                return False
            held, bare = counts, hashes
            for block in taken:
                held, bare = _with(held, block, 1), _with(bare, block, None)
            if not self._shows(held, order[count:], bare):
                return False
            self._restore(num_free - count)
        if not state.references:
            if target.reset() is not True:
                return False
            return self._shows(counts, order, [None] * self.num_blocks)
        return True

    def _joined(self, block: int, own: Key | None) -> list[int]:
        if joins_head(self._scope.eviction, own is not None):
            return [block, *self._order]
        return [*self._order, block]

    def _shows(self, counts: list[int], order: list[int], hashes: list[Key | None]) -> bool:
        """Whether the target shows this and nothing else; its events lead from the state to it."""
        self.num_commands += 1
        target, null = self._target, self._null
        if target.num_free() != len(order):
            return False
        if self._free_order is not None and list(self._free_order()) != order:
            return False
        if self._ref_count is not None:
            shown = list(map(self._ref_count, self._all))
            if null is not None:
                shown[null] = 0
            if shown != counts:
                return False
        if self._block_hash is not None and list(map(self._block_hash, self._all)) != hashes:
            return False
        if self._neighbours is not None:
            if order is not self._linked:
                self._linked, self._links = order, _links(order, self.num_blocks)
            links = list(map(self._neighbours, self._all))
            if null is not None:
                links[null] = None
            if links != self._links:
                return False
        lookup = target.lookup
        for key in self._keys:
            block = lookup(key)
            if (key in hashes) if block is None else (hashes[block] != key):
                return False
        return self._take_events is None or self._mirrors(hashes)

    def _mirrors(self, hashes: list[Key | None]) -> bool:
        """Whether the events since the last look lead from the state's index to this one."""
        assert self._take_events is not None
        events = self._take_events()
        own = self._own_copies
        expected = own if hashes is self._hashes else self._copies(hashes)
        if not events:
            return expected == own
        copies = own.copy()
        for event in events:
            if event["type"] == "cleared":
                copies.clear()
            elif event["group"] == 0:
                for key in event["hashes"]:
                    number = copies.get(key, 0)
                    if event["type"] == "stored":
                        copies[key] = 1 if self._one_copy else number + 1
                    elif event["type"] == "removed":
                        copies[key] = number - 1
        return {key: number for key, number in copies.items() if number} == expected

    def _copies(self, hashes: list[Key | None]) -> dict[Key, int]:
        copies: dict[Key, int] = {}
        for key in hashes:
            if key is not None:
                copies[key] = 1 if self._one_copy else copies.get(key, 0) + 1
        return copies


def _with(values: list[Any], block: int, value: Any) -> list[Any]:
    changed = values.copy()
    changed[block] = value
    return changed


def _links(order: list[int], num_blocks: int) -> list[Neighbours]:
    links: list[Neighbours] = [None] * num_blocks
    before = None
    for block, after in zip(order, [*order[1:], None]):
        links[block] = (before, after)
        before = block
    return links
