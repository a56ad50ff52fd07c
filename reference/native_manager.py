"""The specification of a manager as a target: `SequenceModel` that chooses its own blocks.

The model says what must come out and follows the tables that it is shown; this class also makes the
tables, in the plainest way: hits are the oldest carriers of their keys, new blocks come from the
head of the free queue. `certify reference-manager` runs one model against another, which shows
that harness, checks and specification agree. It expects legal calls and does not check for misuse.

Forks and truncation are offered for a single group of full attention, transfers where nothing
slides, swapping there as well if there are host blocks. Drafts over states need blocks for them
(`state_blocks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.recurrent_states import most_scheduled, waits_for_state
from poolproof.reference.sequence_model import SequenceModel, SequenceState, Tables

__all__ = ["NativeSequenceManager"]

Copies = list[tuple[int, int]]
ExtraKeys = Sequence[tuple[str, Any, int, int | None]] | None


class NativeSequenceManager:
    """A native manager target under any profile."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        profile: ManagerProfile | None = None,
    ) -> None:
        self._profile = profile or ManagerProfile()
        self._model = SequenceModel(
            num_blocks, block_size, self._profile, enable_caching=enable_caching
        )
        self._drafts: dict[int, list[int]] = {}
        self.profile = self._profile.to_json()
        for verb in _not_offered(self._profile):
            setattr(self, verb, None)

    # How a sequence comes to hold blocks.

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: ExtraKeys = None,
        num_tokens: int | None = None,
    ) -> int | str:
        """A new sequence, or a preempted one again: cached tokens, "later" or "never"."""
        sequence = self._model.sequences.get(seq_id)
        if sequence is None:
            sequence = self._model.new_sequence(
                seq_id, TokenChain.from_extra_keys(tokens, extra_keys)
            )
        return self._enter(sequence, num_tokens)

    def load(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: ExtraKeys = None,
        num_tokens: int | None = None,
    ) -> int | str:
        """A new sequence; `num_tokens` behind the cached ones are written from elsewhere."""
        sequence = self._model.new_sequence(seq_id, TokenChain.from_extra_keys(tokens, extra_keys))
        sequence.loading = num_tokens or sequence.num_tokens
        answer = self._enter(sequence, num_tokens)
        sequence.loading, sequence.num_scheduled = sequence.num_scheduled, 0
        return answer

    def loaded(self, seq_id: int, /) -> None:
        """The transfer is over; a sequence that was ended meanwhile goes now."""
        sequence = self._model.sequences[seq_id]
        self._model.computed(sequence)
        if sequence.ended:
            self._model.end(sequence)
        else:
            self._model.publish(sequence)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: ExtraKeys = None) -> int:
        """How many tokens are cached; nothing is taken."""
        sequence = self._model.new_sequence(-1, TokenChain.from_extra_keys(tokens, extra_keys))
        return self._model.cached_prefix(sequence)

    # How it grows and shrinks.

    def append(self, seq_id: int, tokens: list[int], /) -> Copies | str:
        """Further tokens, scheduled for the next step."""
        sequence = self._model.sequences[seq_id]
        before = sequence.chain
        is_sampling = len(tokens) == 1 and not sequence.num_scheduled
        self._model.append(sequence, tokens)
        sequence.num_scheduled += len(tokens)
        copies = self._grow(sequence, len(before.tokens))
        if copies == "later":
            sequence.num_scheduled -= len(tokens)
            sequence.chain, sequence.num_tokens = before, len(before.tokens)
            self._model.drop_drafts(sequence)
        else:
            sequence.is_sampling = is_sampling
        return copies

    def schedule(self, seq_id: int, num_tokens: int, /) -> Copies | str:
        """The next tokens of a partly computed prompt."""
        sequence = self._model.sequences[seq_id]
        first = sequence.num_computed + sequence.num_scheduled
        sequence.num_scheduled += num_tokens
        copies = self._grow(sequence, first)
        if copies == "later":
            sequence.num_scheduled -= num_tokens
        else:
            sequence.is_sampling = False
        return copies

    def draft(self, seq_id: int, tokens: list[int], /) -> Copies | str:
        """Speculative tokens behind the sequence."""
        sequence = self._model.sequences[seq_id]
        self._model.draft(sequence, tokens)
        copies = self._grow(sequence, sequence.num_tokens)
        if copies == "later":
            self._model.drop_drafts(sequence)
        self._drafts[seq_id] = list(tokens)
        return copies

    def accept(self, seq_id: int, num_tokens: int, /, *, sampled: int | None = None) -> None:
        """The first drafts are tokens now; the blocks of the others stay."""
        del sampled  # what is published depends on what is computed alone
        sequence = self._model.sequences[seq_id]
        self._model.accept(sequence, self._drafts.pop(seq_id)[:num_tokens])
        if self._profile.publishes != "scheduled":
            self._model.publish(sequence)

    def step(
        self, batch: list[tuple[int, int]], /, *, sampled: Sequence[tuple[int, int]] = ()
    ) -> None:
        """What was scheduled is computed."""
        del sampled
        for seq_id, _ in batch:
            sequence = self._model.sequences[seq_id]
            self._model.computed(sequence)
            self._model.publish(sequence)
        self._model.drain()

    def fork(self, seq_id: int, child_id: int, /) -> Copies | str:
        """The child shares the blocks that are computed; who writes first copies."""
        parent = self._model.sequences[seq_id]
        child = self._model.new_sequence(child_id, parent.chain)
        self._model.share(parent, child)
        self._model.follow(child, self._cut(child))
        return []

    def truncate(self, seq_id: int, num_tokens: int, /) -> Copies | str:
        """The tail goes; a shared block that will be written again is copied."""
        sequence = self._model.sequences[seq_id]
        is_partial = bool(num_tokens % self._model.block_size)
        copies = is_partial and self._model.is_shared(sequence, num_tokens)
        if copies and not self._model.pool.free:
            return "later"
        self._model.truncate(sequence, num_tokens)
        self._model.follow(sequence, self._cut(sequence))
        return self._take(sequence, num_tokens if copies else None)

    # How it loses its blocks.

    def preempt(self, seq_id: int, /) -> None:
        """The blocks go back; `admit` brings the sequence back."""
        self._drafts.pop(seq_id, None)
        self._model.preempt(self._model.sequences[seq_id])

    def swap_out(self, seq_id: int, /) -> Copies | str:
        """A family moves to host memory."""
        return self._move(seq_id, self._model.host, "host")

    def swap_in(self, seq_id: int, /) -> Copies | str:
        """A family comes back."""
        copies = self._move(seq_id, self._model.pool, "device")
        if copies != "later":
            for sequence in self._model.family_of(self._model.sequences[seq_id]):
                self._model.publish(sequence)
        return copies

    def finish(self, seq_id: int, /) -> None:
        """The end of a sequence; one that is not there is none."""
        sequence = self._model.sequences.get(seq_id)
        if sequence is not None:
            self._model.end(sequence, finished=True)

    def abort(self, seq_id: int, /) -> None:
        """The same, in whatever state the sequence is."""
        sequence = self._model.sequences.get(seq_id)
        if sequence is not None:
            self._model.end(sequence)

    def reset(self) -> bool:
        """Every key goes, unless a block is held."""
        return self._model.reset()

    # What it shows.

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        """The blocks of a sequence in a group."""
        return list(self._model.sequences[seq_id].tables[group])

    def num_free(self) -> int:
        """How many blocks nobody holds."""
        return len(self._model.pool.free)

    def free_order(self) -> list[int]:
        """The free blocks, head first."""
        return list(self._model.pool.free)

    def ref_count(self, block_id: int, /) -> int:
        """How many sequences hold the block."""
        return len(self._model.pool.holders[block_id])

    def is_cached(self, block_id: int, /) -> bool:
        """Whether the block can be found."""
        return bool(self._model.pool.keys[block_id])

    def num_free_host(self) -> int:
        """How many host blocks are free."""
        return len(self._model.host.free)

    # How blocks are chosen.

    def _enter(self, sequence: SequenceState, num_tokens: int | None) -> int | str:
        model = self._model
        cached = model.cached_prefix(sequence)
        if self._leaves_one and waits_for_state(model, sequence, cached):
            return "later"
        _schedule_head(model, sequence, cached, num_tokens)
        watermark = self._profile.watermark_blocks
        if model.most_blocks_needed(sequence, cached) + watermark > len(model.pool.free):
            _schedule_head(model, sequence, 0, num_tokens)
            usable = model.pool.num_blocks - (model.pool.null_block is not None)
            fits_alone = model.num_new_entries(sequence) + watermark <= usable
            sequence.num_computed = sequence.num_scheduled = 0
            return "later" if fits_alone or self._profile.never == "untold" else "never"
        tables = [self._hits(sequence, group, cached) for group in range(len(model.groups))]
        hits = {block for table in tables for block in table}
        self._fill(sequence, tables, [block for block in model.pool.free if block not in hits])
        model.admit(sequence, cached, tables)
        model.publish(sequence)
        return cached

    def _hits(self, sequence: SequenceState, group: int, cached: int) -> list[int]:
        """The cached part of a table: carriers of the keys, null blocks where nothing is read."""
        model = self._model
        table = [model.pool.null_block or 0] * (cached // model.block_sizes[group])
        for entry in model.hit_entries(group, cached):
            table[entry] = model.found(model.key(sequence, group, entry))[0]
        return table

    def _grow(self, sequence: SequenceState, first_new: int) -> Copies | str:
        """Slots from position `first_new` on: what slid out of the window goes back before."""
        model = self._model
        slid = set(model.sliding_out(sequence))
        needed = model.num_new_entries(sequence) + model.is_shared(sequence, first_new)
        if needed > len(model.pool.free) + len(slid):
            return "later"
        null = model.pool.null_block or 0
        model.follow(
            sequence,
            [[null if block in slid else block for block in table] for table in sequence.tables],
        )
        copies = self._take(sequence, first_new)
        model.publish(sequence)
        return copies

    def _take(self, sequence: SequenceState, first_new: int | None) -> Copies:
        """Take the missing blocks, and one's own for a shared one with the slot `first_new`."""
        model = self._model
        tables = [list(table) for table in sequence.tables]
        free = list(model.pool.free)
        copies: Copies = []
        if first_new is not None and model.is_shared(sequence, first_new):
            entry = first_new // model.block_size
            copies.append((tables[0][entry], free[0]))
            tables[0][entry] = free.pop(0)
        self._fill(sequence, tables, free)
        model.follow(sequence, tables)
        return copies

    def _fill(self, sequence: SequenceState, tables: Tables, free: list[int]) -> None:
        """Each table gets its missing entries from the head of `free`; a ring names old ones."""
        model = self._model
        for group, table in enumerate(tables):
            ring = 0
            if self._leaves_one and model.groups[group].is_state:
                self._fill_states(sequence, group, table, free)
                continue
            if model.groups[group].is_sliding and self._profile.window_blocks == "reused":
                ring = -(-model.groups[group].window // model.block_sizes[group])
            while len(table) < model.num_entries(sequence, group):
                wraps = ring and len(table) >= ring
                table.append(table[len(table) - ring] if wraps else free.pop(0))

    def _fill_states(
        self, sequence: SequenceState, group: int, table: list[int], free: list[int]
    ) -> None:
        """One state is left before the drafts, in the last entry but those for drafts.

        The entries in front of it that were not reached yet are the null block. Blocks for states
        behind drafts that stood there move to the end; an admission takes them anew.
        """
        model, null = self._model, self._model.pool.null_block or 0
        length = model.num_entries(sequence, group)
        if len(table) >= length:
            return
        behind_drafts = self._profile.state_blocks
        column = length - 1 - behind_drafts
        held = len(table) - behind_drafts if sequence.tables[group] else len(table)
        moved = table[held:column]
        table[held:column] = [null] * len(moved)
        table += [null] * (column - len(table))
        table += moved
        table += [free.pop(0) for _ in range(length - len(table))]

    @property
    def _leaves_one(self) -> bool:
        """Whether a step leaves one state of what is no draft, at its end."""
        return self._profile.states == "step-end"

    def _cut(self, sequence: SequenceState) -> Tables:
        """The tables without the entries that hold nothing computed."""
        size = self._model.block_size
        return [table[: -(-sequence.num_computed // size)] for table in sequence.tables]

    def _move(self, seq_id: int, pool: DictPool, place: str) -> Copies | str:
        """The family of a sequence goes to the first free blocks of `pool`."""
        family = self._model.family_of(self._model.sequences[seq_id])
        null = self._model.pool.null_block
        tables = [sequence.tables for sequence in family]
        moving = dict.fromkeys(
            block for groups in tables for table in groups for block in table if block != null
        )
        if len(moving) > len(pool.free):
            return "later"
        into = dict(zip(moving, pool.free))
        for sequence in family:
            self._model.release(sequence)
            sequence.place = place
        moved = [[[into.get(b, b) for b in table] for table in groups] for groups in tables]
        self._model.settle(family, moved, pool)
        return list(into.items())


def _schedule_head(
    model: SequenceModel, sequence: SequenceState, cached: int, num_tokens: int | None
) -> None:
    sequence.num_computed, sequence.num_scheduled = cached, 0
    left = most_scheduled(model, sequence)
    sequence.num_scheduled = min(num_tokens or left, left)


def _not_offered(profile: ManagerProfile) -> list[str]:
    """Verbs that the plain choices above do not cover under the profile."""
    kinds = [group.kind for group in profile.groups]
    left_out = [] if kinds == ["full"] else ["fork", "truncate"]
    left_out += [] if set(kinds) == {"full"} else ["load", "loaded"]
    # A state that has passed a rejected draft cannot be had back: each draft needs one of its own.
    keeps_one = "state" in kinds and not profile.state_blocks
    left_out += ["draft", "accept"] if keeps_one else []
    swaps = profile.host_blocks and set(kinds) == {"full"}
    left_out += [] if swaps else ["swap_out", "swap_in", "num_free_host"]
    return left_out
