"""A manager without bugs, written to be read and to be broken: the base of manager specimens.

It speaks the native manager contract over a `CleanPool`, with one cache group of full attention:
admission with prefix reuse, growth, chunks, drafts, forks with copy on write, truncation,
preemption and resume, transfers that complete later. A subclass swaps families of forked sequences
to host memory and back; sharing is kept. Windows and several groups are in `clean_groups.py`.

Between the verbs of `CleanManager` and the pool stand the steps, each a small method that a
specimen can replace: finding hits, judging whether something fits, taking and sharing blocks,
publishing keys, giving blocks back. Keys are chained digests over tokens and extra keys, so that
equal keys mean equal prefixes, as long as the digests do not collide.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile

__all__ = [
    "CleanManager",
    "CleanSequence",
    "CleanSwappingManager",
    "Copies",
    "ManagerSteps",
    "Sampled",
    "block_content",
    "extra_keys_within",
]


@dataclass(slots=True)
class CleanSequence:
    """One sequence: its tokens and drafts, its blocks, and how far it is computed."""

    seq_id: int
    tokens: list[int]
    extra_keys: tuple[Any, ...] | None
    table: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    # What a manager that compares contents keeps beside the keys: a number for each of them.
    contents: list[int] = field(default_factory=list)
    num_computed: int = 0
    num_scheduled: int = 0
    num_reserved: int = 0
    num_published: int = 0
    drafts: list[int] = field(default_factory=list)
    loading: int = 0
    ended: bool = False
    place: str = "device"
    family: int = 0
    # Where only prompts are published: how far, and whether one sampled token is all that waits.
    num_offered: int = 0
    is_sampling: bool = False
    is_aborted: bool = False
    # The token that a step has told, until the next step; tokens come by `append` all the same.
    sampled: int | None = None


def block_content(parent: bytes, tokens: list[int], extra_keys: Sequence[Any]) -> bytes:
    """What is hashed for a full block behind `parent`: everything that flows into its KV."""
    return parent + repr((tokens, extra_keys)).encode()


def extra_keys_within(extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
    """What besides tokens flows into the block from `first` to `end`, with its place in it."""
    return [
        (kind, value, start - first, None if stop is None else min(stop, end) - first)
        for kind, value, start, stop in extra_keys
        if start < end and (stop is None or stop > first)
    ]


Copies = list[tuple[int, int]]
Sampled = Sequence[tuple[int, int]]


class ManagerSteps:
    """What a manager consists of; `group` is the cache group that it serves.

    Managers of several groups share one `pool` and one list of blocks that are `leaving`.
    """

    profile: ClassVar[dict[str, Any]] = {}
    pool_class: type[CleanPool] = CleanPool

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        rules: ManagerProfile | None = None,
        group: int = 0,
        pool: CleanPool | None = None,
    ) -> None:
        self.rules = rules or ManagerProfile.from_mapping(self.profile)
        self.group = group
        self.kind = self.rules.groups[group]
        self.block_size = self.kind.block_size or block_size
        self.enable_caching = enable_caching and self.rules.publishes != "never"
        self.pool = pool or self.pool_class(
            num_blocks, enable_caching=self.enable_caching, rules=self.rules
        )
        self.release_order = self.rules.release_order
        if not enable_caching and self.rules.uncached_order != "same":
            self.release_order = self.rules.uncached_order
        self.num_usable = self.pool.num_free()
        self.sequences: dict[int, CleanSequence] = {}
        self.sightings: dict[bytes, int] = {}
        self.leaving: list[list[int]] = []
        self.digest: Callable[[bytes], bytes] = _sha256

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        """Whether it is right under a profile."""
        is_full = len(profile.groups) == 1 and profile.groups[0].is_full
        return is_full and cls._knows(profile)

    @staticmethod
    def _knows(profile: ManagerProfile) -> bool:
        """Whether the rows have values that the clean managers can follow."""
        if profile.publishes == "scheduled" and profile.same_step_hit == "forbidden":
            return False
        kinds = {group.kind for group in profile.groups}
        plain = profile.keyed == "full" and not profile.proof_blocks and "state" not in kinds
        return plain and profile.window_blocks == "freed"

    def _known_or_new(
        self, seq_id: int, tokens: list[int], extra_keys: tuple[Any, ...] | None
    ) -> CleanSequence:
        """A preempted sequence comes back under its own id, to its own family."""
        known = self.sequences.get(seq_id)
        sequence = CleanSequence(seq_id, list(tokens), extra_keys)
        sequence.family = seq_id if known is None else known.family
        if self.rules.generation_tokens:
            sequence.num_reserved = len(tokens) + self.rules.generation_tokens
        return sequence

    # Admission.

    def _admit(self, sequence: CleanSequence, num_tokens: int | None) -> int | str:
        hits = self._hits(sequence)
        cached = len(hits) * self.block_size
        self._plan(sequence, cached, num_tokens)
        needed = self._num_entries(sequence) - len(hits)
        if not self._fits(needed, hits):
            return "never" if self._never_fits(sequence, num_tokens) else "later"
        self._take_hits(sequence, hits)
        self._enter(sequence)
        return cached

    def _plan(self, sequence: CleanSequence, cached: int, num_tokens: int | None) -> None:
        """What of a sequence is computed, and what the next step computes."""
        left = len(sequence.tokens) - cached
        sequence.num_computed = cached
        sequence.num_scheduled = min(num_tokens or left, left)

    def _enter(self, sequence: CleanSequence) -> None:
        """The hits are taken; further blocks follow."""
        sequence.num_published = len(sequence.table)
        sequence.num_offered = sequence.num_computed
        self._grow(sequence, sequence.num_computed)
        self.sequences[sequence.seq_id] = sequence
        self._publish_scheduled(sequence)

    def _hits(self, sequence: CleanSequence) -> list[int]:
        """Blocks of the longest cached prefix; one token at least is left to compute."""
        hits: list[int] = []
        for entry in range(self._most_cached(sequence) // self.block_size):
            block = self._find(sequence, entry)
            if block is None:
                break
            hits.append(block)
        return hits

    def _hits_of(self, sequence: CleanSequence, num_entries: int) -> list[int] | None:
        """The table entries of a cached prefix of that length, or None if it is not cached."""
        hits: list[int] = []
        for entry in range(num_entries):
            block = self._find(sequence, entry)
            if block is None:
                return None
            hits.append(block)
        return hits

    def _num_found(self, sequence: CleanSequence, most: int) -> int:
        """How many of the first entries are cached, of those within so many tokens."""
        most_entries = most // self.block_size
        entries = range(most_entries)
        return next((e for e in entries if self._find(sequence, e) is None), most_entries)

    def _most_cached(self, sequence: CleanSequence) -> int:
        return len(sequence.tokens) - (self.rules.full_hit == "recompute-token")

    def _find(self, sequence: CleanSequence, entry: int) -> int | None:
        """A block that is cached under the key of an entry, and that nobody else has to itself."""
        key = self._key(sequence, entry)
        if self.rules.held_blocks == "shared":
            return self.pool.lookup(key)
        return next((b for b in self.pool.index.get(key, ()) if self._is_usable(b)), None)

    def _is_usable(self, block: int) -> bool:
        """Whether a cached block can be had, which a held one cannot where they are exclusive."""
        return self.rules.held_blocks == "shared" or self.pool.ref_count(block) == 0

    def _key(self, sequence: CleanSequence, entry: int) -> bytes:
        while len(sequence.keys) <= entry:
            sequence.keys.append(self._block_key(sequence, len(sequence.keys)))
        return sequence.keys[entry]

    def _block_key(self, sequence: CleanSequence, entry: int) -> bytes:
        first = entry * self.block_size
        parent = sequence.keys[entry - 1] if entry else self._root_key()
        tokens = sequence.tokens[first : first + self.block_size]
        extra_keys = self._extra_keys(sequence.extra_keys or (), first, first + len(tokens))
        return self.digest(block_content(parent, tokens, extra_keys))

    def _root_key(self) -> bytes:
        """The parent of first blocks: one for each cache group."""
        return b"group %d" % self.group

    def _extra_keys(self, extra_keys: Sequence[Any], first: int, end: int) -> list[Any]:
        """What besides the tokens flows into the block from `first` to `end`."""
        return extra_keys_within(extra_keys, first, end)

    def _fits(self, needed: int, hits: list[int]) -> bool:
        """Hits that wait in the free queue leave it, too (vllm#11565)."""
        leaving = sum(self.pool.ref_count(block) == 0 for block in self._real(hits))
        return needed + leaving + self.rules.watermark_blocks <= self.pool.num_free()

    def _never_fits(self, sequence: CleanSequence, num_tokens: int | None) -> bool:
        if self.rules.never == "untold":
            return False
        self._plan(sequence, 0, num_tokens)
        return self._num_entries(sequence) + self.rules.watermark_blocks > self.num_usable

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        self._touch(hits)
        sequence.table = list(hits)

    # Growth.

    def _append(self, sequence: CleanSequence, tokens: list[int]) -> Copies:
        first_new = len(sequence.tokens)
        sequence.is_sampling = len(tokens) == 1 and not sequence.num_scheduled
        sequence.tokens += tokens
        sequence.num_scheduled += len(tokens)
        copies = self._grow(sequence, first_new)
        self._publish_scheduled(sequence)
        return copies

    def _schedule(self, sequence: CleanSequence, num_tokens: int) -> Copies:
        first_new = sequence.num_computed + sequence.num_scheduled
        sequence.num_scheduled += num_tokens
        sequence.is_sampling = False
        copies = self._grow(sequence, first_new)
        self._publish_scheduled(sequence)
        return copies

    def _draft(self, sequence: CleanSequence, tokens: list[int]) -> Copies:
        sequence.drafts = list(tokens)
        return self._grow(sequence, len(sequence.tokens))

    def _computed(self, sequence: CleanSequence) -> None:
        """The forward pass over what was scheduled is done."""
        sequence.num_computed += sequence.num_scheduled
        sequence.num_scheduled = 0
        if not sequence.is_sampling:
            sequence.num_offered = sequence.num_computed
        sequence.is_sampling = False
        self._publish(sequence)

    def _truncate(self, sequence: CleanSequence, num_tokens: int) -> Copies:
        del sequence.tokens[num_tokens:]
        sequence.num_reserved = 0
        sequence.num_computed = min(sequence.num_computed, num_tokens)
        sequence.num_offered = min(sequence.num_offered, num_tokens)
        self._forget_keys(sequence, num_tokens // self.block_size)
        kept = -(-num_tokens // self.block_size)
        self._free(sequence.table[kept:][::-1])
        del sequence.table[kept:]
        return self._copy_on_write(sequence, num_tokens)

    def _num_cut(self, sequence: CleanSequence, num_tokens: int) -> int:
        """Whether a cut leaves a shared block partly filled, which is then copied: 0 or 1."""
        return int(num_tokens % self.block_size != 0 and self._is_shared(sequence, num_tokens))

    def _slide(self, sequence: CleanSequence) -> None:
        """Give back what no later token reads; full attention reads everything."""

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        """Whether the blocks for so many further tokens are there."""
        needed = self._new_blocks_for(sequence, sequence.num_scheduled + further)
        return needed <= self.pool.num_free()

    def _num_entries(self, sequence: CleanSequence) -> int:
        """How many blocks the slots of a sequence need."""
        covered = sequence.num_computed + sequence.num_scheduled
        if self.rules.reserves == "sequence":
            covered = len(sequence.tokens)
        lookahead = self.rules.lookahead_tokens if sequence.num_scheduled else 0
        slots = max(covered + len(sequence.drafts) + lookahead, sequence.num_reserved)
        return -(-self._within_row(slots) // self.block_size)

    def _within_row(self, slots: int) -> int:
        """So many slots, as far as a row is wide."""
        return min(slots, self.rules.max_tokens or slots)

    def _new_blocks_for(self, sequence: CleanSequence, num_uncomputed: int) -> int:
        """Blocks that a growth takes, the one for a copy on write included."""
        slots = sequence.num_computed + num_uncomputed
        if self.rules.reserves == "sequence":
            slots = max(slots, len(sequence.tokens))
        slots = max(slots + self.rules.lookahead_tokens, sequence.num_reserved)
        needed = -(-self._within_row(slots) // self.block_size) - len(sequence.table)
        first_new = sequence.num_computed + sequence.num_scheduled
        return max(needed, 0) + self._is_shared(sequence, first_new)

    def _grow(self, sequence: CleanSequence, first_new: int) -> Copies:
        """Take what is missing, and a block of one's own where a shared one would be written."""
        copies = self._copy_on_write(sequence, first_new)
        sequence.table += self.pool.allocate(self._num_missing(sequence))
        return copies

    def _num_missing(self, sequence: CleanSequence) -> int:
        """Rejected drafts may have left more blocks than are needed (vllm#52707)."""
        return max(self._num_entries(sequence) - len(sequence.table), 0)

    def _is_shared(self, sequence: CleanSequence, position: int) -> bool:
        entry = position // self.block_size
        return entry < len(sequence.table) and self.pool.ref_count(sequence.table[entry]) > 1

    def _copy_on_write(self, sequence: CleanSequence, position: int) -> Copies:
        if not self._is_shared(sequence, position):
            return []
        entry = position // self.block_size
        shared = sequence.table[entry]
        (own,) = self.pool.allocate(1)
        sequence.table[entry] = own
        self.pool.free([shared])
        return [(shared, own)]

    def _share(self, parent: CleanSequence, child: CleanSequence) -> None:
        """The child shares what is computed; blocks beyond that stay with the parent alone."""
        computed = -(-parent.num_computed // self.block_size)
        child.table = parent.table[:computed]
        self._touch(child.table)

    # Publication.

    def _publish_scheduled(self, sequence: CleanSequence) -> None:
        if self.rules.publishes == "scheduled":
            covered = min(sequence.num_computed + sequence.num_scheduled, len(sequence.tokens))
            self._publish_up_to(sequence, covered)

    def _publish(self, sequence: CleanSequence) -> None:
        if self.rules.publishes == "finish":
            return
        covered = min(sequence.num_computed, len(sequence.tokens))
        if self.rules.publishes == "prompts":
            covered = min(covered, sequence.num_offered)
        self._publish_up_to(sequence, covered)

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        full = num_tokens // self.block_size
        if not self.enable_caching or sequence.loading:
            return
        for entry in range(sequence.num_published, full):
            block = sequence.table[entry]
            if block != self.pool.null_block:  # it slid out of the window before it was published
                self._publish_entry(sequence, entry)
        sequence.num_published = max(sequence.num_published, full)

    def _publish_entry(self, sequence: CleanSequence, entry: int) -> None:
        key = self._key(sequence, entry)
        if self._is_taken(key):
            self.pool.cache([sequence.table[entry]], [key])

    def _is_taken(self, key: bytes) -> bool:
        """Whether the index takes a key, which it has to have seen so often before."""
        if not self.rules.prior_sightings:
            return True
        self.sightings[key] = self.sightings.get(key, 0) + 1
        return self.sightings[key] > self.rules.prior_sightings

    def _publish_at_end(self, sequence: CleanSequence) -> None:
        """What is computed can be found once the blocks go back, where nothing is found before."""
        if self.rules.publishes == "finish" and sequence.place == "device":
            self._publish_up_to(sequence, min(sequence.num_computed, len(sequence.tokens)))

    def _forget_keys(self, sequence: CleanSequence, full: int) -> None:
        """Blocks from entry `full` on may be written again: nobody may find them any more."""
        for block in self._real(sequence.table[full:]):
            if self.pool.ref_count(block) == 1:
                self.pool.evict([block])
        del sequence.keys[full:], sequence.contents[full:]
        sequence.num_published = min(sequence.num_published, full)

    # Giving back.

    def _end(self, sequence: CleanSequence) -> None:
        if sequence.loading:
            sequence.ended = True
            return
        is_settled = sequence.place == "device" and not sequence.num_scheduled
        if self.rules.publishes == "prompts" and is_settled and not sequence.is_aborted:
            sequence.num_offered = sequence.num_computed
            self._publish(sequence)
        self._publish_at_end(sequence)
        self._release(sequence)
        del self.sequences[sequence.seq_id]

    def _release(self, sequence: CleanSequence) -> None:
        self._give_back(sequence)
        sequence.table = []
        sequence.num_published = sequence.num_computed = sequence.num_scheduled = 0
        sequence.drafts = []

    def _give_back(self, sequence: CleanSequence) -> None:
        """The tail of the chain goes first, so that it is evicted first, or as the profile says."""
        head_first = self.release_order == "head-first"
        blocks = sequence.table[:] if head_first else sequence.table[::-1]
        if self.rules.frees == "after-step":
            self.leaving.append(blocks)
        else:
            self._free(blocks)

    def _drain(self) -> None:
        """After a step: what was given back before it is free now."""
        for blocks in self.leaving:
            self._free(blocks)
        self.leaving.clear()

    def _touch(self, blocks: Sequence[int]) -> None:
        self.pool.touch(self._real(blocks))

    def _free(self, blocks: Sequence[int]) -> None:
        self.pool.free(self._real(blocks))

    def _real(self, blocks: Sequence[int]) -> list[int]:
        """The entries of a table that are blocks and not the null block."""
        return [block for block in blocks if block != self.pool.null_block]


def _sha256(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


class CleanManager(ManagerSteps):
    """Sequences over `num_blocks` blocks of `block_size` tokens, under `rules`."""

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: tuple[Any, ...] | None = None,
        num_tokens: int | None = None,
    ) -> int | str:
        sequence = self._known_or_new(seq_id, tokens, extra_keys)
        return self._admit(sequence, num_tokens)

    def load(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: tuple[Any, ...] | None = None,
        num_tokens: int = 0,
    ) -> int | str:
        """Like `admit`; the `num_tokens` behind the cached ones are written from elsewhere."""
        sequence = self._known_or_new(seq_id, tokens, extra_keys)
        sequence.loading = num_tokens
        answer = self._admit(sequence, num_tokens)
        sequence.loading, sequence.num_scheduled = sequence.num_scheduled, 0
        return answer

    def loaded(self, seq_id: int) -> None:
        sequence = self.sequences[seq_id]
        sequence.num_computed += sequence.loading
        sequence.num_offered = sequence.num_computed
        sequence.loading = 0
        if sequence.ended:
            self._end(sequence)
        else:
            self._publish(sequence)

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence = self.sequences[seq_id]
        self._slide(sequence)
        if not self._has_room(sequence, len(tokens)):
            return "later"
        return self._append(sequence, tokens)

    def schedule(self, seq_id: int, num_tokens: int) -> Copies | str:
        sequence = self.sequences[seq_id]
        self._slide(sequence)
        if not self._has_room(sequence, num_tokens):
            return "later"
        return self._schedule(sequence, num_tokens)

    def draft(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence = self.sequences[seq_id]
        self._slide(sequence)
        if not self._has_room(sequence, len(tokens)):
            return "later"
        return self._draft(sequence, tokens)

    def accept(self, seq_id: int, num_tokens: int, *, sampled: int | None = None) -> None:
        """The first drafts are tokens now; blocks that were taken for the others stay."""
        sequence = self.sequences[seq_id]
        accepted, sequence.drafts = sequence.drafts[:num_tokens], []
        sequence.tokens += accepted
        sequence.sampled = sampled
        sequence.num_computed += len(accepted)
        if self.rules.publishes != "scheduled":
            self._publish(sequence)

    def step(self, batch: list[tuple[int, int]], *, sampled: Sampled = ()) -> None:
        told = dict(sampled)
        for seq_id, _ in batch:
            sequence = self.sequences[seq_id]
            sequence.sampled = told.get(seq_id)
            self._computed(sequence)
        self._drain()

    def fork(self, seq_id: int, child_id: int) -> Copies | str:
        parent = self.sequences[seq_id]
        child = CleanSequence(child_id, list(parent.tokens), parent.extra_keys)
        child.num_computed, child.num_published = parent.num_computed, parent.num_published
        child.num_offered = parent.num_offered
        child.keys, child.family = list(parent.keys), parent.family
        child.contents = list(parent.contents)
        self._share(parent, child)
        self.sequences[child_id] = child
        return []

    def truncate(self, seq_id: int, num_tokens: int) -> Copies | str:
        """Keep the blocks; what is cached beyond the tokens that stay loses its key."""
        sequence = self.sequences[seq_id]
        if self._num_cut(sequence, num_tokens) > self.pool.num_free():
            return "later"
        return self._truncate(sequence, num_tokens)

    def preempt(self, seq_id: int) -> None:
        sequence = self.sequences[seq_id]
        self._publish_at_end(sequence)
        self._release(sequence)
        sequence.place = "nowhere"

    def finish(self, seq_id: int) -> None:
        sequence = self.sequences.get(seq_id)
        if sequence is not None:
            self._end(sequence)

    def abort(self, seq_id: int) -> None:
        if seq_id in self.sequences:
            self.sequences[seq_id].is_aborted = True
        self.finish(seq_id)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: tuple[Any, ...] | None = None) -> int:
        sequence = CleanSequence(-1, tokens, extra_keys)
        return len(self._hits(sequence)) * self.block_size

    def reset(self) -> bool:
        return self.pool.reset()

    def use_hash(self, digest: Callable[[bytes], bytes]) -> None:
        """Hash keys with another function from now on; called before anything else."""
        self.digest = digest

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return self.sequences[seq_id].table

    def num_free(self) -> int:
        return self.pool.num_free()

    def free_order(self) -> list[int]:
        return self.pool.free_order()

    def ref_count(self, block_id: int) -> int:
        return self.pool.ref_count(block_id)

    def is_cached(self, block_id: int) -> bool:
        return self.pool.block_hash(block_id) is not None


class CleanSwappingManager(CleanManager):
    """Sequences that were forked from one another move together, each shared block once."""

    @classmethod
    def serves(cls, profile: ManagerProfile) -> bool:
        return super().serves(profile) and profile.host_blocks > 0

    def __init__(self, num_blocks: int, block_size: int, **options: Any) -> None:
        super().__init__(num_blocks, block_size, **options)
        guard = Profile(misuse="undefined")
        self.host = CleanPool(self.rules.host_blocks, enable_caching=False, rules=guard)

    def swap_out(self, seq_id: int) -> Copies | str:
        return self._move(self._family(seq_id), self.host, "host")

    def swap_in(self, seq_id: int) -> Copies | str:
        family = self._family(seq_id)
        copies = self._move(family, self.pool, "device")
        if copies != "later":
            for sequence in family:
                self._publish(sequence)
        return copies

    def num_free_host(self) -> int:
        return self.host.num_free()

    def _family(self, seq_id: int) -> list[CleanSequence]:
        family = self.sequences[seq_id].family
        return [s for s in self.sequences.values() if s.family == family]

    def _move(self, family: list[CleanSequence], target: CleanPool, place: str) -> Copies | str:
        """Give each sequence a table in the other memory; the copies from old to new blocks."""
        if self._num_moving(family) > target.num_free():
            return "later"
        moved: dict[int, int] = {}
        for sequence in family:
            table = self._moved_table(sequence, target, moved)
            self._give_back(sequence)
            sequence.table, sequence.place = table, place
            sequence.num_published = 0
        return list(moved.items())

    def _num_moving(self, family: list[CleanSequence]) -> int:
        """How many blocks the family takes where it goes."""
        return len({block for sequence in family for block in sequence.table})

    def _moved_table(
        self, sequence: CleanSequence, target: CleanPool, moved: dict[int, int]
    ) -> list[int]:
        """The table in the other memory; a block that moved already is shared there, too."""
        table = []
        for block in sequence.table:
            if block in moved:
                target.touch([moved[block]])
            else:
                (moved[block],) = target.allocate(1)
            table.append(moved[block])
        return table

    def _give_back(self, sequence: CleanSequence) -> None:
        if sequence.place == "host":
            self.host.free(sequence.table[::-1])
        else:
            super()._give_back(sequence)
