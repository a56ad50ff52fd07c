"""What sequences may expect of a manager: hits, blocks, lengths of tables.

For each operation, what must come out of it in the present state, under every profile. Nothing
here changes the state; `sequence_model.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import lcm
from typing import TypeVar

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.reference.content_names import Content, ContentNames
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.fillings import Fillings
from poolproof.reference.sequence_state import SequenceState
from poolproof.reference.sightings import Sightings

__all__ = ["SequenceNeeds"]

T = TypeVar("T")

Finds = Callable[[Content], Sequence[int]]
"""The blocks that count as found for a key."""


class SequenceNeeds:
    """Sequences over `num_blocks` blocks of `block_size` tokens, under `profile`."""

    pool_class: type[DictPool] = DictPool

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        profile: ManagerProfile,
        *,
        enable_caching: bool = True,
        names: ContentNames | None = None,
    ) -> None:
        self.profile = profile
        self.block_size = block_size
        self.enable_caching = enable_caching and profile.publishes != "never"
        self._caching_wanted = enable_caching
        self.release_order = profile.release_order
        if not enable_caching and profile.uncached_order != "same":
            self.release_order = profile.uncached_order
        rows = profile if self._has_order() else replace(profile, eviction="unspecified")
        self.pool = self.pool_class(num_blocks, rows, enable_caching=self.enable_caching)
        self.pool.owner_noun = "sequence"
        self.sightings = Sightings(profile) if profile.prior_sightings else None
        is_open = profile.by_content and profile.duplicates == "first"
        self.fillings = Fillings() if is_open else None
        self.is_exclusive = profile.held_blocks == "exclusive"
        self.found: Finds = self._free_carriers if self.is_exclusive else self.pool.lookup
        """The blocks that a hit of a key may name."""
        host = Profile(eviction="unspecified")
        self.host = self.pool_class(profile.host_blocks, host, enable_caching=False)
        self.names = ContentNames() if names is None else names
        self.sequences: dict[int, SequenceState] = {}
        self.ended_ids: set[int] = set()
        self.groups: tuple[CacheGroup, ...] = profile.groups
        self.block_sizes = [group.block_size or block_size for group in self.groups]
        self.leaving: list[tuple[list[int], int]] = []
        """(blocks, sequence) of what was given back and is free only after the next step."""
        self._alignment = lcm(*self.block_sizes)
        self._numbered = list(zip(range(len(self.groups)), self.groups, self.block_sizes))
        self.has_windows = any(not group.is_full for group in self.groups)

    def _has_order(self) -> bool:
        """Whether it can be known in which order blocks are free."""
        profile = self.profile
        sorts_by_keys = self.enable_caching and profile.reuses_unhashed_first
        may_lack_keys = profile.by_content and not profile.promises_hits
        return (
            self.release_order != "unspecified"
            and (len(profile.groups) == 1 or profile.group_order != "unspecified")
            and not (sorts_by_keys and may_lack_keys)
        )

    def new_sequence(self, seq_id: int, chain: TokenChain) -> SequenceState:
        """A sequence that holds nothing yet; `admit` enters it."""
        return SequenceState(
            seq_id=seq_id,
            chain=chain,
            contents=[self.names.of_chain(chain, g) for g in range(len(self.groups))],
            tables=[[] for _ in self.groups],
            num_tokens=len(chain.tokens),
            num_keyed=[0] * len(self.groups),
            num_reserved=self._reserved(len(chain.tokens)),
        )

    def _reserved(self, num_tokens: int) -> int:
        """How many slots an admission with so many tokens takes at least."""
        further = self.profile.generation_tokens
        return num_tokens + further if further else 0

    def in_group_order(self, of_groups: Sequence[T]) -> Sequence[T]:
        """What there is for each group, in the order in which the groups give back."""
        return of_groups[::-1] if self.profile.group_order == "last-to-first" else of_groups

    def cached_prefix(self, sequence: SequenceState) -> int:
        """The number of tokens at the head of the sequence that an admission finds cached.

        The longest prefix of whole blocks that every group has; at least one token is left to
        compute where the profile says so, and a further block is there where it asks for proof
        that the sequence goes on as cached (`proof_blocks`).
        """
        return self._longest_prefix(sequence, self.found)

    def indexed_prefix(self, sequence: SequenceState) -> int:
        """The same, blocks included that nobody finds because a sequence holds them."""
        return self._longest_prefix(sequence, self.pool.lookup)

    def users(self, block: int) -> list[int]:
        """The sequences that hold a block and have not given it back to be free after a step."""
        gone = [seq_id for blocks, seq_id in self.leaving if block in blocks]
        return [holder for holder in self.pool.holders[block] if holder not in gone]

    def _free_carriers(self, key: Content) -> Sequence[int]:
        return [block for block in self.pool.lookup(key) if block in self.pool.free]

    def _longest_prefix(self, sequence: SequenceState, found: Finds) -> int:
        if not self.enable_caching:
            return 0
        length = self.longest_hit(sequence.num_tokens)
        groups = range(len(self.groups))
        for group in groups:
            length = min(length, self._most_of_prefix(sequence, group, length, found))
        while length and not all(
            self._has_prefix(sequence, group, length, found) for group in groups
        ):
            length -= self._alignment
        return length

    def longest_of_full(self, sequence: SequenceState) -> int:
        """The longest hit that the full groups would give alone; 0 where there are none."""
        full = [group for group, kind in enumerate(self.groups) if kind.is_full]
        if not full or not self.enable_caching:
            return 0
        length = self.longest_hit(sequence.num_tokens)
        return min(self._most_of_prefix(sequence, group, length, self.found) for group in full)

    def hit_entries(self, group: int, length: int) -> range:
        """The whole blocks that a sequence with `length` cached tokens needs, as table entries.

        What it needs of a block in which the hit ends is copied (`hash_tokens`), a state with it.
        """
        _, kind, size = self._numbered[group]
        end = length // size
        if not length or (kind.is_state and length % size):
            return range(0)
        if kind.is_state:
            return range(end - 1, end)
        return range(kind.first_read(length) // size, end)

    def key(self, sequence: SequenceState, group: int, entry: int) -> Content:
        """The key of a full block: the prefix that ends with its last token."""
        return sequence.contents[group][(entry + 1) * self.block_sizes[group] - 1]

    def full_keys(self, sequence: SequenceState) -> Iterator[Content]:
        """The keys of all blocks that its tokens fill."""
        for group, _, size in self._numbered:
            for entry in range(sequence.num_tokens // size):
                yield self.key(sequence, group, entry)

    def num_slots(self, sequence: SequenceState, *, ahead: bool = True) -> int:
        """How many positions, from the first on, a sequence must have slots for.

        Some are `ahead` of its tokens, for what a drafting head writes (`lookahead_tokens`).
        """
        profile, covered = self.profile, sequence.num_tokens
        if profile.reserves == "scheduled":
            covered = sequence.num_computed + sequence.num_scheduled
        lookahead = profile.lookahead_tokens if ahead and sequence.num_scheduled else 0
        slots = max(covered + sequence.num_drafts + lookahead, sequence.num_reserved)
        return min(slots, profile.max_tokens) if profile.max_tokens else slots

    def has_no_row(self) -> bool:
        """Whether as many sequences hold blocks as there are rows for them."""
        most = self.profile.max_sequences
        return most > 0 and self.num_rows() >= most

    def num_rows(self) -> int:
        """How many sequences hold blocks."""
        return sum(s.place != "nowhere" for s in self.sequences.values())

    def num_entries(self, sequence: SequenceState, group: int) -> int:
        """How long the table of a group must be to have these slots.

        In a group of states blocks for the states behind drafts, at the end of each table, take the
        place of lookahead slots: a drafting head has no states.
        """
        _, kind, size = self._numbered[group]
        behind_drafts = self.profile.state_blocks if kind.is_state else 0
        slots = self.num_slots(sequence, ahead=not behind_drafts)
        return -(-slots // size) + behind_drafts

    def most_blocks_needed(self, sequence: SequenceState, cached: int) -> int:
        """Free blocks that admitting the sequence takes away, whichever carriers are hit.

        Blocks for what is not cached, and hits that wait in the free queue (vllm#11565).
        """
        needed = 0
        for group, kind, size in self._numbered:
            hits = self.hit_entries(group, cached)
            entries = self.num_entries(sequence, group)
            if kind.is_sliding and self.profile.window_blocks == "reused":
                entries = min(entries, -(-kind.window // size))
            needed += self._num_blocks(kind, entries - cached // size, is_new=True)
            needed += cached % size > 0  # what is copied from is no room until it is copied
            for entry in hits:
                carriers = self.found(self.key(sequence, group, entry))
                needed += any(block in self.pool.free for block in carriers)
        return needed

    def num_without_windows(self, sequence: SequenceState) -> int:
        """Blocks for all tokens in the groups that read everything: they are held to the end."""
        return sum(
            -(-sequence.num_tokens // size) for _, kind, size in self._numbered if kind.is_full
        )

    def num_unknown(self, sequence: SequenceState, cached: int) -> int:
        """How many entries of a hit have keys that find no block, as far as is known here."""
        return sum(
            not self.found(self.key(sequence, group, entry))
            for group in range(len(self.groups))
            for entry in self.hit_entries(group, cached)
        )

    def num_new_entries(self, sequence: SequenceState) -> int:
        """Blocks that must be added to the tables of an admitted sequence for its slots."""
        needed = 0
        for group, kind, size in self._numbered:
            have, entries = len(sequence.tables[group]), self.num_entries(sequence, group)
            if kind.is_sliding and self.profile.window_blocks == "reused":
                ring = -(-kind.window // size)
                have, entries = min(have, ring), min(entries, ring)
            needed += self._num_blocks(kind, entries - have, is_new=not have)
        return needed

    def _num_blocks(self, kind: CacheGroup, num_entries: int, *, is_new: bool) -> int:
        """Blocks for so many further table entries.

        Where a step leaves only one state before its drafts, the entries in front of that stay
        empty, and the blocks for the states behind drafts are taken once and move along with it.
        """
        if kind.is_state and self.profile.states == "step-end":
            num_entries = min(num_entries, 1 + (self.profile.state_blocks if is_new else 0))
        return max(0, num_entries)

    def sliding_out(self, sequence: SequenceState) -> list[int]:
        """Blocks of the sequence alone that no later token reads: they can be had back."""
        if self.profile.window_blocks == "reused" or not self.has_windows:
            return []
        return [
            block
            for group, kind, size in self._numbered
            for block in sequence.tables[group][: kind.first_read(sequence.num_computed) // size]
            if block != self.pool.null_block and self.pool.holders[block] == [sequence.seq_id]
        ]

    def is_shared(self, sequence: SequenceState, position: int) -> bool:
        """Whether the slot of a position lies in a block that another sequence holds, too."""
        for group, _, size in self._numbered:
            table = sequence.tables[group]
            entry = position // size
            if entry < len(table) and len(self.pool.holders[table[entry]]) > 1:
                return True
        return False

    def num_copied_on_write(self, sequence: SequenceState, first: int) -> int:
        """The most blocks that a write from position `first` on may copy before it.

        Those that others hold, too, and those with a key, whose contents somebody may yet want.
        """
        copied = sum(
            len(self.pool.holders[block]) > 1 or bool(self.pool.keys[block])
            for block in self.written_from(sequence, first)
        )
        return copied + self.num_kept_inside(sequence)

    def num_kept_inside(self, sequence: SequenceState) -> int:
        """The most states inside a block that are copied before the sequence goes on from them."""
        every, end = self.profile.hash_tokens, sequence.num_computed
        if not every or end % every:
            return 0
        return sum(kind.is_state and end % size > 0 for _, kind, size in self._numbered)

    def written_from(self, sequence: SequenceState, first: int) -> Iterator[int]:
        """The blocks of its tables that a write from position `first` on touches, each once."""
        for group, kind, size in self._numbered:
            table = sequence.tables[group]
            if kind.is_sliding and self.profile.window_blocks == "reused":
                ring, entries = -(-kind.window // size), self.num_entries(sequence, group)
                table = [table[e % ring] for e in range(first // size, entries)
                         if e % ring < len(table)]  # fmt: skip
            else:
                table = table[first // size :]
            yield from (b for b in dict.fromkeys(table) if b != self.pool.null_block)

    def last_boundary(self, sequence: SequenceState) -> int:
        """Where a hit of its prompt can end inside a block, if no whole block ends behind; or 0."""
        every = self.profile.hash_tokens
        if not every:
            return 0
        end, last = (sequence.num_prompt - 1) // every * every, sequence.num_tokens - 1
        return end if end > last - last % self._alignment else 0

    def num_forked(self, parent: SequenceState) -> int:
        """The most blocks that a fork may take.

        None where everything is shared until it is written. Otherwise the last block, if it is
        not full, is copied at once, and so is what cannot be shared: the blocks of other kinds
        than full attention, and everything where caching is off or held blocks are exclusive.
        """
        needed = 0
        shares = self._caching_wanted and not self.is_exclusive
        for group, kind, size in self._numbered:
            if kind.is_full and shares:
                needed += parent.num_computed % size != 0
            else:
                needed += len(set(parent.tables[group]) - {self.pool.null_block})
        return needed

    def num_cut(self, sequence: SequenceState, num_tokens: int) -> int:
        """How many shared blocks a cut to `num_tokens` leaves partly filled, to be copied."""
        return sum(
            len(self.pool.holders[sequence.tables[group][num_tokens // size]]) > 1
            for group, _, size in self._numbered
            if num_tokens % size
        )

    def is_gone(self, sequence: SequenceState, num_tokens: int) -> bool:
        """Whether a sequence cut to `num_tokens` would read what its windows have let go of."""
        for group, kind, size in self._numbered:
            table, first = sequence.tables[group], kind.first_read(num_tokens)
            if kind.is_sliding and self.profile.window_blocks == "reused":
                if first + -(-kind.window // size) * size < sequence.num_computed:
                    return True
            elif self.pool.null_block in table[first // size : -(-num_tokens // size)]:
                return True
            elif kind.is_state:
                is_whole = num_tokens % size == 0 or num_tokens == sequence.num_computed
                if not is_whole:
                    return True  # the state of the block has passed the tokens that go
        return False

    def longest_hit(self, num_tokens: int) -> int:
        """A bound for every hit of so many tokens, whatever is cached."""
        most = num_tokens - (self.profile.full_hit == "recompute-token")
        most -= self.profile.proof_blocks * max(self.block_sizes)
        return max(0, most - most % self._alignment)

    def _most_of_prefix(
        self, sequence: SequenceState, group: int, length: int, found: Finds
    ) -> int:
        """A bound for a hit of at most `length` tokens: full attention needs every block of it.

        A prompt of hundreds of blocks would take quadratic time otherwise.
        """
        _, kind, size = self._numbered[group]
        if not kind.is_full:
            return length
        most = min(length // size + self.profile.proof_blocks, sequence.num_tokens // size)
        end = 0
        while end < most and found(self.key(sequence, group, end)):
            end += 1
        most = max(0, end - self.profile.proof_blocks) * size
        return most - most % self._alignment

    def _has_prefix(self, sequence: SequenceState, group: int, length: int, found: Finds) -> bool:
        """Whether every block that a hit of this length needs is in the index."""
        entries = self.hit_entries(group, length)
        if self.groups[group].is_state:
            return all(self._has_state(sequence, group, entry, found) for entry in entries)
        for entry in range(entries.start, entries.stop + self.profile.proof_blocks):
            if not found(self.key(sequence, group, entry)):
                return False
        return True

    def _has_state(self, sequence: SequenceState, group: int, entry: int, found: Finds) -> bool:
        """Whether a state is in the index; one that this step writes is not there yet."""
        carriers = found(self.key(sequence, group, entry))
        if self.profile.states == "step-end":
            return bool(carriers)
        return not self.unwritten_states(group).issuperset(carriers)

    def unwritten_states(self, group: int) -> set[int]:
        """Blocks of a group with states that the step being scheduled is going to write."""
        size = self.block_sizes[group]
        return {
            block
            for sequence in self.sequences.values()
            if sequence.num_scheduled
            for block in sequence.tables[group][sequence.num_computed // size :]
        }
