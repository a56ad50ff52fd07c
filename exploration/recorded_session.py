"""Sessions for searches that replay prefixes: quick to replay, with a name for the state reached.

Two states are merged when the reference is in the same state and the target's whole contents, as
pickle writes them, are the same: then no command can tell them apart. A target that cannot be
pickled (an adapter over a process, say) is judged by what it shows up to a renaming of blocks and
hashes, together with each block's history: whether it was revived, or named by a command that
changed nothing, since it was last handed out. Managers are compared by model and shadow memory in
place of the reference. Without pickle that is a heuristic: a faulty target that remembers more
than this without showing it can hide a failure from a search that merges such states.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Sequence
from hashlib import blake2b
from itertools import permutations
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.content import Key
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Violation
from poolproof.harness.index_session import IndexSession
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.queue_session import QueueSession
from poolproof.reference.content_names import ContentNames

__all__ = ["RecordedIndex", "RecordedManager", "RecordedPool", "RecordedQueue"]


class RecordedPool(PoolSession):
    """A pool session that can skip its checks while it replays, and knows each block's history.

    `is_exact` says whether the last `state()` was made of the target's contents.
    """

    def __init__(
        self, target: Any, profile: Profile, num_blocks: int, *, enable_caching: bool = True
    ) -> None:
        super().__init__(target, profile, num_blocks, enable_caching=enable_caching, full_every=1)
        self.replaying = False
        self.is_exact = False
        self.history: dict[int, str] = dict.fromkeys(range(num_blocks), "")

    def step(self, command: Command) -> Violation | None:
        pool = self.reference
        named = getattr(command, "block_ids", ())
        before = [(block, list(pool.keys[block]), block in pool.free) for block in named]
        violation = super().step(command)
        for block in self.last.taken if command.verb == "allocate" else ():
            self.history[block] = ""
        for block, keys, was_free in before:
            was_revived = was_free and block not in pool.free
            if was_revived or (command.verb in ("cache", "evict") and keys == pool.keys[block]):
                self.history[block] = command.verb
        return violation

    def look(self) -> Violation | None:
        """The violation of a pool that nobody holds, or None; after a step that showed none."""
        return self.end() if self.nobody_holds() else None

    def shape_of(self, ids: Sequence[int]) -> Hashable:
        """The same for two lists that differ only in held blocks which cannot be told apart."""
        pool = self.reference
        return tuple(
            (len(pool.holders[block]), *pool.keys[block], self.history[block], self._rank(block),
             ids.index(block)) if pool.holders[block] else block
            for block in ids
        )  # fmt: skip

    def state(self) -> Hashable:
        """The same for two sessions that need not both be continued."""
        contents = contents_of(self.target)
        self.is_exact = contents is not None
        if contents is None:
            orders = permutations(range(len(self.keys)))
            return min(self._shown(dict(zip(self.keys, names, strict=True))) for names in orders)
        pool = self.reference
        holders = tuple(map(len, pool.holders.values()))
        keys = tuple(map(tuple, pool.keys.values()))
        return contents, tuple(pool.free), holders, keys, tuple(self.keys)

    def _shown(self, names: dict[Key, int]) -> tuple[Any, ...]:
        pool = self.reference
        shapes = {
            block: (len(pool.holders[block]), tuple(names[key] for key in keys),
                    self.history[block], self._rank(block))
            for block, keys in pool.keys.items()
        }  # fmt: skip
        order: Sequence[int] = list(pool.free)
        if self.profile.eviction == "unspecified" and self.can.sees("free_order"):
            order = self.target.free_order()
        held = sorted(shapes[b] for b, holders in pool.holders.items() if holders)
        return len(names), tuple(shapes[block] for block in order), tuple(held)

    def _rank(self, block: int) -> int:
        """Where the block stands among the carriers of its key, and whether lookup names it."""
        keys = self.reference.keys[block]
        if not keys or len(self.reference.carriers[keys[0]]) == 1:
            return 0
        is_named = "lookup" in self.can.verbs and self.target.lookup(keys[0]) == block
        return 2 * self.reference.carriers[keys[0]].index(block) + is_named

    def _check(self, command: Command) -> None:
        # A `may-drop` target is followed at every step, or the reference falls behind.
        if not self.replaying or self.profile.retention == "may-drop":
            super()._check(command)


class RecordedQueue(QueueSession):
    """The same for a queue; blocks outside it are told apart by the verb that took them out."""

    def __init__(self, target: Any, num_blocks: int) -> None:
        super().__init__(target, num_blocks)
        self.replaying = False
        self.is_exact = False
        self.history: dict[int, str] = dict.fromkeys(range(num_blocks), "")

    def step(self, command: Command) -> Violation | None:
        before = list(self.reference.order)
        violation = super().step(command)
        for block in before:
            if block not in self.reference.order:
                self.history[block] = command.verb
        return violation

    def look(self) -> Violation | None:
        """A queue has no end to check."""
        return None

    def state(self) -> Hashable:
        """The same for two sessions that need not both be continued."""
        order = self.reference.order
        contents = contents_of(self.target)
        self.is_exact = contents is not None
        if contents is not None:
            return contents, tuple(order)
        outside = sorted(verb for block, verb in self.history.items() if block not in order)
        return tuple(self.history[block] for block in order), tuple(outside)

    def diagnose(self) -> Violation | None:
        return None if self.replaying else super().diagnose()


class RecordedIndex(IndexSession):
    """The same for an index; `named_blocks` are those that some command named.

    It is read while it is replayed as well: a lookup may leave something behind in an index that
    keeps its last answer, and the states of two replays would not be the same.
    """

    def __init__(self, target: Any, num_blocks: int, profile: Profile) -> None:
        super().__init__(target, num_blocks, profile)
        self.replaying = False
        self.is_exact = False
        self.named_blocks: set[int] = set()

    def step_any(self, command: Command) -> Violation | None:
        block: int | None = getattr(command, "block_id", None)
        if block is not None:
            self.named_blocks.add(block)
        return super().step_any(command)

    def look(self) -> Violation | None:
        """Everything was read by the step."""
        return None

    def state(self) -> Hashable:
        """The same for two sessions that need not both be continued."""
        contents = contents_of(self.target)
        self.is_exact = contents is not None
        carriers = {key: tuple(blocks) for key, blocks in self.reference.carriers.items()}
        return contents, frozenset(carriers.items()), frozenset(self.named_blocks)


def contents_of(target: Any) -> bytes | None:
    """A digest of everything inside the target; None where pickle cannot write it."""
    try:
        written = pickle.dumps(target, protocol=5)
    except Exception:  # noqa: BLE001 - whatever stands in the way, the answer is the same
        return None
    return blake2b(written, digest_size=16).digest()


class RecordedManager(ManagerSession):
    """A manager session whose states can be told apart; `names` are shared by a whole search."""

    def __init__(
        self,
        target: Any,
        profile: ManagerProfile,
        num_blocks: int,
        block_size: int,
        names: ContentNames,
        *,
        enable_caching: bool = True,
    ) -> None:
        super().__init__(target, profile, num_blocks, block_size, enable_caching=enable_caching)
        self.model.names = names
        self.replaying = False
        self.is_exact = False

    def look(self) -> Violation | None:
        """The violation of a manager without sequences, or None."""
        return self.end() if self.nobody_holds() else None

    def state(self) -> Hashable:
        """The same for two sessions that need not both be continued."""
        contents = contents_of(self.target)
        self.is_exact = contents is not None
        if contents is not None:
            return contents, self._shown({})
        return self._shown(self._blocks_in_order())

    def _shown(self, renamed: dict[int, int]) -> Hashable:
        """Model and memory; blocks under their new numbers, in which they are listed."""
        model, memory = self.model, self.memory.device

        def block(number: int) -> int:
            return renamed.get(number, number)

        sequences = tuple(
            (
                s.seq_id, s.chain, s.num_computed, s.num_scheduled, s.num_drafts,
                tuple(s.contents[0][s.num_tokens :]), s.drafts_computed, s.place, s.loading,
                s.ended, s.family, tuple(s.num_keyed), s.num_prompt, s.junction,
                tuple(tuple(map(block, table)) for table in s.tables),
            )
            for s in model.sequences.values()
        )  # fmt: skip
        blocks = sorted(
            (block(b), tuple(keys), tuple(memory.slots[b])) for b, keys in model.pool.keys.items()
        )
        free = tuple(map(block, model.pool.free))
        seen: Hashable = None
        if model.sightings is not None:
            asked = tuple((s.num_asked, s.num_loaded) for s in model.sequences.values())
            seen = model.sightings.state(), asked
        return sequences, tuple(blocks), free, bool(model.leaving), len(model.ended_ids) > 0, seen

    def _blocks_in_order(self) -> dict[int, int]:
        """New numbers: blocks as they appear in the tables, then in the free queue."""
        tables = [b for s in self.model.sequences.values() for table in s.tables for b in table]
        order = dict.fromkeys([*tables, *self.model.pool.free, *self.model.pool.keys])
        null = self.model.pool.null_block
        fixed = [] if null is None else [null]
        return {b: n for n, b in enumerate(dict.fromkeys([*fixed, *order]))}

    def _check(self, command: Command) -> None:
        if not self.replaying:
            super()._check(command)
        else:
            # What a target does by itself is followed at every step, or the model falls behind.
            self.follow(command)
