"""The specification of a manager: which sequence holds which blocks, and what it may expect.

Sequences of tokens over the blocks of a `DictPool`. For each operation `sequence_needs.py` says
beforehand what must come out (how many tokens are cached, whether the blocks suffice, how long the
tables are), and afterwards the model follows the tables that the target shows, so that it holds for
every choice that the profile leaves open. Whether a command is legal is decided in
`manager_legality.py`; whether what the target showed is right is judged by the harness before the
model follows it.

KV contents are not covered here, but in `shadow_memory.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from poolproof.contract.content import TokenChain
from poolproof.reference.content_names import Content
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.sequence_needs import SequenceNeeds
from poolproof.reference.sequence_state import SequenceState, Tables
from poolproof.reference.sightings import Sightings

__all__ = ["SequenceModel", "SequenceState", "Tables"]


class SequenceModel(SequenceNeeds):
    """Sequences and what they hold, as the target has shown it."""

    def admit(
        self,
        sequence: SequenceState,
        cached: int,
        tables: Tables,
        num_shared: Sequence[int] | None = None,
        alike: Collection[int] = (),
    ) -> None:
        """The sequence was admitted with `cached` tokens and these tables.

        In each group the first `num_shared` entries are hits, by default all full cached blocks;
        the other blocks are its own, also those to which cached tokens were copied. Those that are
        `alike` keep their holders and keys: they hold what will be written to them.
        """
        if num_shared is None:
            num_shared = [cached // size for size in self.block_sizes]
        if self.profile.keyed == "checkpoints":
            longest = self.longest_of_full(sequence)
            sequence.junction = longest if longest > cached else 0
        sequence.num_computed = sequence.num_offered = cached
        for group, table in enumerate(tables):
            self.pool.command_number = sequence.seq_id
            self.pool.touch(table[: num_shared[group]])
        for group, table in enumerate(tables):
            self._take(sequence, table[num_shared[group] :], alike)
            sequence.num_keyed[group] = num_shared[group]
        sequence.tables = tables
        sequence.place = "device"
        self.sequences[sequence.seq_id] = sequence

    def asked(self, sequence: SequenceState) -> None:
        """The sequence was asked for, whatever was found: by an admission, or by a lookup."""
        if self.sightings is not None:
            self.sightings.ask(self.full_keys(sequence))
            sequence.num_asked = sequence.num_tokens

    def regain(self, sequence: SequenceState, cached: int, num_shared: Sequence[int]) -> None:
        """What an admission was right to find has its keys, if it had lost them.

        In each group `num_shared` entries were found, the others copied.
        """
        for group in range(len(self.groups)):
            for entry in self.hit_entries(group, cached):
                if entry >= num_shared[group]:
                    break
                block, key = sequence.tables[group][entry], self.key(sequence, group, entry)
                if key not in self.pool.keys[block]:
                    self.pool.cache([block], [key])

    def follow(self, sequence: SequenceState, tables: Tables, alike: Collection[int] = ()) -> None:
        """The tables of an admitted sequence are these now: take and give back what differs.

        A block that left its place and stands at another was given back and taken again. New ones
        that are `alike` keep their holders and keys.
        """
        if tables == sequence.tables:
            return
        taken: list[int] = []
        for old, new in self.in_group_order(list(zip(sequence.tables, tables))):
            if new[: len(old)] == old:
                taken += [b for b in new[len(old) :] if b not in old]
            elif old != new:
                stay = {was for was, now in zip(old, new) if was == now}
                given_back = [b for b in dict.fromkeys(reversed(old)) if b not in stay]
                self.pool.release(given_back, sequence.seq_id)
                taken += [b for b in new if b not in stay]
        self._take(sequence, taken, alike)
        sequence.tables = tables

    def merge(self, sequence: SequenceState, tables: Tables) -> None:
        """Duplicates were merged: entries name other carriers of the same keys now."""
        for old, new in zip(sequence.tables, tables):
            for was, now in zip(old, new):
                if was != now:
                    self.pool.command_number = sequence.seq_id
                    self.pool.touch([now])
                    self.pool.release([was], sequence.seq_id)
        sequence.tables = tables

    def share(self, parent: SequenceState, child: SequenceState) -> None:
        """The child came to hold all blocks of its parent."""
        self.pool.command_number = child.seq_id
        for table in parent.tables:
            self.pool.touch(dict.fromkeys(table))
        child.tables = [list(table) for table in parent.tables]
        child.num_computed = parent.num_computed
        child.num_offered = parent.num_offered
        child.num_keyed = list(parent.num_keyed)
        child.num_reserved = 0
        child.family = parent.family
        self.sequences[child.seq_id] = child

    def family_of(self, sequence: SequenceState) -> list[SequenceState]:
        """The sequences that were forked from one another, this one included."""
        return [s for s in self.sequences.values() if s.family == sequence.family]

    def release(self, sequence: SequenceState) -> None:
        """Everything that the sequence holds goes back, mostly the tail of each chain first."""
        # Host memory has no null block: the block of that number is one like the others there.
        null = None if sequence.place == "host" else self.pool.null_block
        head_first = self.release_order == "head-first"
        for table in self.in_group_order(sequence.tables):
            ordered = table if head_first else reversed(table)
            blocks = [b for b in dict.fromkeys(ordered) if b != null]
            if sequence.place == "host":
                self.host.release(blocks, sequence.seq_id)
            elif self.profile.frees == "after-step":
                self.leaving.append((blocks, sequence.seq_id))
            else:
                self.pool.release(blocks, sequence.seq_id)
        sequence.tables = [[] for _ in self.groups]
        sequence.num_keyed = [0] * len(self.groups)

    def preempt(self, sequence: SequenceState) -> None:
        """The sequence lost its blocks, and with them all that was computed."""
        self._publish_at_end(sequence)
        self.release(sequence)
        self.drop_drafts(sequence)
        sequence.num_computed = sequence.num_scheduled = 0
        sequence.num_reserved = self._reserved(sequence.num_tokens)
        sequence.is_sampling = False
        sequence.told = None
        sequence.num_loaded = 0
        sequence.place = "nowhere"

    def end(self, sequence: SequenceState, *, finished: bool = False) -> None:
        """The sequence is over; while a transfer writes its blocks they stay taken.

        Where only prompts are published, what it sampled follows once it has `finished` by itself.
        """
        if sequence.loading:
            sequence.ended = True
            return
        waits = sequence.num_scheduled or sequence.place != "device"
        if finished and not waits and self.profile.publishes == "prompts":
            sequence.num_offered = sequence.num_computed
            self.publish(sequence)
        self._publish_at_end(sequence)
        self.release(sequence)
        del self.sequences[sequence.seq_id]
        self.ended_ids.add(sequence.seq_id)

    def drain(self) -> None:
        """After a step: what was given back before it is free now."""
        leaving, self.leaving = self.leaving, []
        for blocks, seq_id in leaving:
            self.pool.release(blocks, seq_id)

    def computed(self, sequence: SequenceState) -> None:
        """The forward pass over what was scheduled, or a transfer, is over."""
        sequence.num_computed += sequence.loading or sequence.num_scheduled
        if sequence.loading:
            sequence.num_loaded = sequence.num_computed
        sequence.loading = sequence.num_scheduled = 0
        sequence.drafts_computed = bool(sequence.num_drafts)
        if not sequence.is_sampling:
            sequence.num_offered = sequence.num_computed
        sequence.is_sampling = False

    @staticmethod
    def sampled(sequence: SequenceState, num_drafts: int = 0) -> int:
        """The token that is sampled behind a sequence, of whose drafts so many are accepted.

        No language model runs here. Any token will do, if sequences often get different ones and
        a replayed trace gets the same.
        """
        return (sequence.seq_id + sequence.num_tokens + num_drafts) % 2

    def sampled_by_step(self) -> dict[int, int]:
        """By sequence, the tokens that the next step samples and tells, where the profile says so.

        Sequences with drafts are told theirs once some of those are accepted.
        """
        if self.profile.sampled != "with-step":
            return {}
        return {
            s.seq_id: self.sampled(s)
            for s in self.sequences.values()
            if s.num_scheduled
            and not s.num_drafts
            and s.num_computed + s.num_scheduled == s.num_tokens
        }

    def publish(self, sequence: SequenceState) -> None:
        """Full blocks get their keys, as far as the profile lets their tokens be found."""
        covered, profile = sequence.num_computed, self.profile
        if profile.publishes == "scheduled":
            covered += sequence.num_scheduled
        elif profile.publishes == "prompts":
            covered = sequence.num_offered
        if profile.publishes != "finish":
            self._publish_up_to(sequence, covered)

    def _publish_at_end(self, sequence: SequenceState) -> None:
        """Where it is the row, what a sequence has computed is published as its blocks go back."""
        if self.profile.publishes == "finish" and sequence.place == "device":
            if self.profile.may_merge and self._has_duplicates(sequence):
                # Duplicates go before the rest, and nobody sees which.
                self.pool.ordered = False
            self._publish_up_to(sequence, sequence.num_computed)

    def _has_duplicates(self, sequence: SequenceState) -> bool:
        """Whether a block that was computed holds what another one is found for."""
        covered = min(sequence.num_computed, sequence.num_tokens)
        return any(
            set(self.pool.lookup(self.key(sequence, group, entry))) - {table[entry]}
            for group, (table, size) in enumerate(zip(sequence.tables, self.block_sizes))
            for entry in range(covered // size)
        )

    def _publish_up_to(self, sequence: SequenceState, covered: int) -> None:
        if not self.enable_caching or sequence.loading:
            return
        covered = min(covered, sequence.num_tokens)
        for group, _, size in self._numbered:
            keyed, full = sequence.num_keyed[group], self._coverable(covered, size) // size
            if full <= keyed:
                continue
            for entry in range(keyed, full):
                if self._is_keyed(sequence, group, entry):
                    self._file(sequence, group, entry)
            sequence.num_keyed[group] = full

    def _file(self, sequence: SequenceState, group: int, entry: int) -> None:
        """A block gets its key, or may get it: the first carrier may have lost it already."""
        pool, profile = self.pool, self.profile
        block, key = sequence.tables[group][entry], self.key(sequence, group, entry)
        carriers = pool.lookup(key)
        if self.fillings is not None and block != pool.null_block:
            self.fillings.note(block, key)
        if self.sightings is not None and block != pool.null_block:
            takes = self._sight(self.sightings, sequence, group, entry)
            if takes is None:
                # With `duplicates` at "last" it takes the key from the others, if it gets it.
                pool.doubtful.update(carriers if profile.duplicates == "last" else ())
                pool.cache_in_doubt(block, key)
            if not takes:
                return
        if self.is_exclusive and profile.by_content and self._has_rival(block, carriers):
            # An index may leave out what is held and take it again at its end: whose key is the
            # first or the last one then is open.
            pool.doubtful.update(carriers)
            pool.cache_in_doubt(block, key)
            return
        if profile.duplicates == "first" and self._may_be_second(block, key):
            pool.cache_in_doubt(block, key)
        else:
            pool.cache([block], [key])

    def _may_be_second(self, block: int, key: Content) -> bool:
        """Whether it is open if another block has a key already.

        Every block that has it as far as is known may have lost it; or none has, and one that was
        filled with the same may have taken it unseen.
        """
        pool, may_drop = self.pool, self.profile.retention == "may-drop"
        carriers = pool.lookup(key)
        if carriers:
            return all(b in pool.doubtful or (may_drop and b in pool.free) for b in carriers)
        return self.fillings is not None and self.fillings.has_twin(block, key)

    def _sight(
        self, sightings: Sightings, sequence: SequenceState, group: int, entry: int
    ) -> bool | None:
        """Whether a block that is full now gets its key, after its content was seen once more."""
        key, size = self.key(sequence, group, entry), self.block_sizes[group]
        carriers = self.pool.lookup(key)
        num_unsure = sum(block in self.pool.doubtful for block in carriers)
        was_asked_for = (entry + 1) * size <= sequence.num_asked
        return sightings.takes(
            key,
            num_sure=len(carriers) - num_unsure,
            num_unsure=num_unsure,
            was_asked_for=was_asked_for,
            is_counted=was_asked_for and entry * size >= sequence.num_loaded,
        )

    def _has_rival(self, block: int, carriers: Sequence[int]) -> bool:
        """Whether a key that a block is to get belongs to one block, and another one has it."""
        return self.profile.duplicates != "kept" and bool({*carriers} - {block})

    def _coverable(self, covered: int, size: int) -> int:
        """Of so many tokens those whose blocks a hit can need: to an end, and what proves it."""
        if self.profile.keyed == "full":
            return covered
        end = covered - covered % self._alignment
        return min(covered, end + self.profile.proof_blocks * size) if end else 0

    def _is_keyed(self, sequence: SequenceState, group: int, entry: int) -> bool:
        """Whether a full block gets a key, because a hit that ends somewhere needs it.

        Of windows and states a hit needs nothing else than what lies at its end.
        """
        profile, kind = self.profile, self.groups[group].kind
        if profile.keyed == "full" or kind == "full":
            return True
        if profile.keyed == "reachable":
            return self._is_regular(group, entry, self._alignment)
        if kind == "chunked":
            return True
        every = profile.checkpoint_tokens
        return (every > 0 and self._is_regular(group, entry, every)) or any(
            entry in self._tail(group, end) for end in self._ends_of_prompt(sequence)
        )

    def _is_regular(self, group: int, entry: int, every: int) -> bool:
        """Whether a hit that ends at a multiple of `every` tokens needs the entry."""
        size, tail = self.block_sizes[group], self._tail(group, every)
        if len(tail) * size >= every:
            return True  # the tails of two ends touch, and nothing is left out before the first
        before = entry * size - entry * size % every
        ends = [before, before + every] if before else [every]
        return any(entry in self._tail(group, end) for end in ends)

    def _tail(self, group: int, end: int) -> range:
        """The entries that a hit needs which ends there, and those that prove it."""
        needed = self.hit_entries(group, end)
        if self.groups[group].is_state:
            return needed
        return range(needed.start, end // self.block_sizes[group] + self.profile.proof_blocks)

    def _ends_of_prompt(self, sequence: SequenceState) -> set[int]:
        """Where hits of the same prompt end, of one that parts from it, and of a longer one."""
        ends = {self._floored(sequence.num_prompt - 1)}
        if self.profile.proof_blocks:
            ends.add(self._floored(sequence.num_prompt))
            proof = self.profile.proof_blocks * self._alignment
            ends = {max(0, end - proof) for end in ends}
        return {*ends, self._floored(sequence.junction)} if sequence.junction else ends

    def _floored(self, num_tokens: int) -> int:
        """The last common block end up to there."""
        return num_tokens - num_tokens % self._alignment

    def append(self, sequence: SequenceState, tokens: Sequence[int]) -> None:
        """The sequence has further tokens."""
        self._extend_contents(sequence, tokens)
        chain = sequence.chain
        sequence.chain = TokenChain((*chain.tokens, *tokens), chain.lora, chain.salt, chain.images)
        sequence.num_tokens += len(tokens)

    def will_write(self, sequence: SequenceState, first: int) -> None:
        """Slots from position `first` on are granted: what they hold is written over, or copied.

        A block that the sequence has alone may have lost its key already, and has lost it once it
        is written.
        """
        pool = self.pool
        for block in self.written_from(sequence, first):
            if pool.keys[block] and pool.holders[block] == [sequence.seq_id]:
                pool.doubtful.add(block)

    def draft(self, sequence: SequenceState, tokens: Sequence[int]) -> None:
        """Speculative tokens follow the sequence."""
        self._extend_contents(sequence, tokens)
        sequence.num_drafts = len(tokens)
        sequence.drafts_computed = False

    def accept(self, sequence: SequenceState, tokens: Sequence[int]) -> None:
        """These first drafts are tokens now; what was computed for the others is void."""
        was_computed = sequence.drafts_computed
        self.drop_drafts(sequence)
        self.append(sequence, tokens)
        if was_computed:
            sequence.num_computed += len(tokens)

    def drop_drafts(self, sequence: SequenceState) -> None:
        """The drafts are void."""
        for contents in sequence.contents:
            del contents[sequence.num_tokens :]
        sequence.num_drafts = 0
        sequence.drafts_computed = False

    def truncate(self, sequence: SequenceState, num_tokens: int) -> None:
        """The sequence keeps its first `num_tokens` tokens; keys over the others go.

        Only those of blocks that nobody else holds.
        """
        chain = sequence.chain
        sequence.chain = TokenChain(chain.tokens[:num_tokens], chain.lora, chain.salt, chain.images)
        sequence.num_tokens = num_tokens
        sequence.told = None
        sequence.num_reserved = 0
        sequence.num_computed = min(sequence.num_computed, num_tokens)
        sequence.num_offered = min(sequence.num_offered, num_tokens)
        sequence.num_asked = min(sequence.num_asked, num_tokens)
        self.drop_drafts(sequence)
        for group, _, size in self._numbered:
            full = num_tokens // size
            # Also a key that another one published, who shared the block.
            mine = [b for b in sequence.tables[group][full:] if b != self.pool.null_block]
            self.pool.forget_keys(b for b in mine if self.pool.holders[b] == [sequence.seq_id])
            sequence.num_keyed[group] = min(sequence.num_keyed[group], full)

    def _extend_contents(self, sequence: SequenceState, tokens: Sequence[int]) -> None:
        for group, contents in enumerate(sequence.contents):
            parent = contents[-1] if contents else self.names.root(sequence.chain, group)
            contents.extend(self.names.extended(parent, sequence.chain, tokens, len(contents)))

    def settle(
        self,
        family: Sequence[SequenceState],
        tables: Sequence[Tables],
        pool: DictPool,
    ) -> None:
        """A family that has moved to `pool` holds the blocks of `tables`, shared as they show."""
        for sequence, shown in zip(family, tables):
            pool.command_number = sequence.seq_id
            for table in shown:
                distinct = [b for b in dict.fromkeys(table) if b != pool.null_block]
                free = [b for b in distinct if b in pool.free]
                pool.allocate(len(free), free)
                pool.touch(b for b in distinct if b not in free)
            sequence.tables = shown
            sequence.num_asked = 0  # what moved is published again, and not computed again

    def reset(self) -> bool:
        """Every key goes, unless a block is held."""
        is_done = self.pool.reset()
        if is_done and self.sightings is not None:
            self.sightings.reset()
        return is_done

    def _take(
        self, sequence: SequenceState, blocks: Iterable[int], alike: Collection[int] = ()
    ) -> None:
        """The sequence was given these blocks, each of which was free or is `alike`."""
        new = [b for b in dict.fromkeys(blocks) if b != self.pool.null_block]
        self.pool.command_number = sequence.seq_id
        if alike:
            self.pool.touch([b for b in new if b in alike])
            new = [b for b in new if b not in alike]
        self.pool.allocate(len(new), new)
