"""Admissions: new, resumed and loading sequences, and lookups without use.

The answer is judged against the model (how many tokens are cached, whether it fits: I4, IDX, ADM),
the new table by `manager_tables.py`, the cached KV by `manager_memory.py` (DATA).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.manager_commands import (
    Admit,
    Load,
    Loaded,
    LookupPrefix,
    Resume,
)
from poolproof.contract.violation import ViolationError
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.manager_cache import CacheJudge
from poolproof.harness.manager_calls import HeadCopies, ManagerCalls
from poolproof.harness.manager_facts import ManagerFacts
from poolproof.harness.manager_memory import ManagerMemory
from poolproof.harness.manager_tables import TableJudge
from poolproof.invariants.admission import (
    keeps_watermark,
    leaves_a_token_to_compute,
    never_only_if_too_large,
    put_off_only_if_full,
    waits_only_if_it_can_fit,
)
from poolproof.invariants.cached_usable import reports_all_that_is_cached
from poolproof.invariants.index_answers import (
    found_after_sightings,
    reports_no_more_than_indexed,
)
from poolproof.invariants.legal_calls import meaningless_answer
from poolproof.reference.recurrent_states import most_scheduled, waits_for_state
from poolproof.reference.sequence_model import SequenceModel, SequenceState, Tables

__all__ = ["AdmissionJudge"]


@dataclass(slots=True, eq=False)
class AdmissionJudge:
    """Commands by which a sequence comes to hold blocks.

    If the target `takes_chunks`, only a part of a prompt may be scheduled at first.
    """

    calls: ManagerCalls
    model: SequenceModel
    tables: TableJudge
    memory: ManagerMemory
    cache: CacheJudge
    facts: ManagerFacts
    invariants: EveryInvariant
    takes_chunks: bool
    _by_content: bool = field(init=False)

    def __post_init__(self) -> None:
        # Whether a hit is right if what is read of it is, whichever keys the model has.
        self._by_content = self.model.profile.by_content and self.model.enable_caching

    def admit(self, command: Admit) -> None:
        sequence = self.model.new_sequence(command.seq_id, command.chain)
        self._enter(command, sequence, command.num_tokens)

    def resume(self, command: Resume) -> None:
        sequence = self.model.sequences[command.seq_id]
        if self._enter(command, sequence, command.num_tokens):
            self.facts.add("a preempted sequence was resumed")
            if sequence.num_computed:
                self.facts.add("a resumed sequence found its own blocks")

    def load(self, command: Load) -> None:
        sequence = self.model.new_sequence(command.seq_id, command.chain)
        sequence.loading = command.num_tokens
        if self._enter(command, sequence, command.num_tokens):
            sequence.loading, sequence.num_scheduled = sequence.num_scheduled, 0
            self.facts.add("a transfer was ordered")

    def _enter(self, command: Command, sequence: SequenceState, num_tokens: int) -> bool:
        """Admit a sequence, of which `num_tokens` beyond the cached ones are scheduled (0: all)."""
        if self.cache.follows_drops:
            self.cache.follow_drops(sequence)
        chain = sequence.chain
        expected = self.model.cached_prefix(sequence)
        self._schedule_head(sequence, expected, num_tokens)
        named: dict[str, Any] = {"extra_keys": chain.extra_keys()}
        if self.takes_chunks or sequence.loading:
            named["num_tokens"] = num_tokens or None
        answer = self.calls.call(command, sequence.seq_id, list(chain.tokens), **named)
        if isinstance(answer, str):
            self._judge_refusal(command, sequence, expected, answer)
            self.model.asked(sequence)
            return False
        found, copies = self.calls.admission(command, answer, max(self.model.block_sizes))
        cached = self._judge_cached(command, sequence, found)
        if cached != expected:
            self._schedule_head(sequence, cached, num_tokens)
        tables = self.tables.shown(sequence)
        shared = self._num_shared(cached, tables, copies)
        told = self._num_told(cached, shared) if copies else cached
        alike = self.tables.judge_admission(command, sequence, cached, tables, shared)
        if copies:
            self.memory.copy_heads(copies)
            self.facts.add("a part of a block was copied at admission")
        self._judge_early(command, sequence, cached)
        self.model.asked(sequence)
        if cached:
            is_right = self.memory.judge_hit(sequence, cached, tables) and self._by_content
            told = min(told, expected) if is_right else told
            self._judge_count(command, sequence, cached, expected, told)
            if not is_right:
                self.tables.judge_hits(sequence, cached, tables, shared)
        elif expected:
            self._judge_count(command, sequence, cached, expected, told)
        watermark = self.model.profile.watermark_blocks
        self.facts.after_admission(self.model, sequence, cached, tables, shared)
        self.model.admit(sequence, cached, tables, shared, alike)
        if self._by_content and not self.memory.is_waiting(sequence):
            self.model.regain(sequence, cached, shared)
        self.invariants.report(keeps_watermark(command, len(self.model.pool.free), watermark))
        self.cache.publish(sequence)
        return True

    def _schedule_head(self, sequence: SequenceState, cached: int, num_tokens: int) -> None:
        sequence.num_computed, sequence.num_scheduled = cached, 0
        left = most_scheduled(self.model, sequence)
        chunked = num_tokens and (self.takes_chunks or sequence.loading)
        sequence.num_scheduled = min(num_tokens, left) if chunked else left

    def _judge_cached(self, command: Command, sequence: SequenceState, answer: Any) -> int:
        try:
            cached = index(answer)
        except TypeError as error:
            expected = 'a number of cached tokens, "later" or "never"'
            raise ViolationError(meaningless_answer(command, answer, expected)) from error
        if not 0 <= cached <= sequence.num_tokens:
            expected = f"a number of cached tokens from 0 to {sequence.num_tokens}"
            raise ViolationError(meaningless_answer(command, answer, expected))
        most = sequence.num_tokens - (self.model.profile.full_hit == "recompute-token")
        self.invariants.report(leaves_a_token_to_compute(command, cached, most))
        return cached

    def _num_shared(self, cached: int, tables: Tables, copies: HeadCopies) -> list[int]:
        """How many entries of each table are hits: the cached ones in front of the first copied."""
        copied = {destination for _, destination, _ in copies}
        shared = []
        for table, size in zip(tables, self.model.block_sizes, strict=True):
            entries = table[: cached // size]
            own = [entry for entry, block in enumerate(entries) if block in copied]
            shared.append(own[0] if own else len(entries))
        return shared

    def _num_told(self, cached: int, shared: Sequence[int]) -> int:
        """How many tokens of a hit are said to be in the index, where the others are copied."""
        hits = zip(shared, self.model.block_sizes, strict=True)
        return min(cached, *(count * size for count, size in hits))

    def _judge_count(
        self, command: Command, sequence: SequenceState, cached: int, expected: int, told: int
    ) -> None:
        """No more is `told` to be in the index than is; what is copied beyond, the reads judge.

        So they do of all where contents decide.
        """
        profile = self.model.profile
        self.invariants.report(reports_no_more_than_indexed(command, told, expected))
        if cached >= expected or profile.hits == "sound":
            return
        if not self.cache.may_have_dropped(sequence, cached, expected):
            is_promised = not profile.by_content or profile.declares("hits")
            self.invariants.report(
                reports_all_that_is_cached(command, cached, expected, is_promised=is_promised)
            )

    def _judge_early(self, command: Command, sequence: SequenceState, cached: int) -> None:
        """Nothing is found that no index can have seen often enough; exact ones say so by keys.

        A filter that is only about right takes some too early and some too late, and says `sound`.
        """
        sightings, model = self.model.sightings, self.model
        if sightings is None or not self._by_content or model.profile.hits == "sound":
            return
        for group in range(len(model.groups)):
            for entry in model.hit_entries(group, cached):
                seen = sightings.num_seen(model.key(sequence, group, entry))
                self.invariants.report(
                    found_after_sightings(command, entry, seen, sightings.num_prior)
                )

    def _judge_refusal(
        self, command: Command, sequence: SequenceState, cached: int, answer: str
    ) -> None:
        """What fits must get neither "later" nor "never", and neither may replace the other."""
        if answer not in ("later", "never"):
            expected = 'a number of cached tokens, "later" or "never"'
            raise ViolationError(meaningless_answer(command, answer, expected))
        self.calls.refused = True
        self.facts.add("an admission was refused")
        profile, pool = self.model.profile, self.model.pool
        needed = self._most_needed(command, sequence, cached)
        sequence.num_computed = sequence.num_scheduled = 0
        if profile.admission == "sound" or waits_for_state(self.model, sequence, cached):
            return
        if answer == "later" and self.model.has_no_row():
            return
        usable = pool.num_blocks - (pool.null_block is not None)
        usable -= profile.watermark_blocks
        if answer == "never":
            self.facts.add("an admission was refused for ever")
            alone = self._needed_alone(sequence, command)
            # Who is asked for the first chunk may think of the whole prompt.
            alone = max(alone, self.model.num_without_windows(sequence))
            self.invariants.report(never_only_if_too_large(command, alone, usable))
            return
        if profile.never == "told":
            alone = self._needed_alone(sequence, command)
            self.invariants.report(waits_only_if_it_can_fit(command, alone, usable))
            if alone > usable:
                return
        self.invariants.report(
            put_off_only_if_full(
                command,
                needed,
                len(pool.free),
                reserve=profile.watermark_blocks,
                num_rows=self.model.num_rows(),
            )
        )

    def _most_needed(self, command: Command, sequence: SequenceState, cached: int) -> int:
        """The most blocks that the admission may take, counted until they do not fit."""
        fit = len(self.model.pool.free) - self.model.profile.watermark_blocks
        needed = self.model.most_blocks_needed(sequence, cached)
        if self._by_content:
            needed += self.memory.num_revivable(sequence, cached)
        if needed > fit:
            return needed
        for found in self._other_hits(sequence, cached):
            self._schedule_head(sequence, found, getattr(command, "num_tokens", 0))
            unknown = self.model.num_unknown(sequence, found)
            needed = max(needed, self.model.most_blocks_needed(sequence, found) + unknown)
            if needed > fit:
                break
        return needed

    def _other_hits(self, sequence: SequenceState, cached: int) -> Iterator[int]:
        """How many tokens the target may have found in place of `cached`, and then needs more."""
        profile, size = self.model.profile, self.model.block_size
        finds_less = profile.by_content and not profile.declares("hits")
        finds_less = finds_less and not self.cache.shows(sequence, cached)
        finds_less = finds_less or self.cache.may_have_dropped(sequence, 0, cached)
        if profile.hits == "sound" or finds_less:
            yield from range(0, cached, size)
        if self._by_content:
            # With more found a chunk may end in a further block; the last hit may end inside one.
            most = sequence.num_tokens - (profile.full_hit == "recompute-token")
            if profile.hash_tokens:
                # A state may be there where a shorter one is not, at the end of a block or inside.
                inside = range(profile.hash_tokens, most + 1, profile.hash_tokens)
                search = self.memory.search(sequence)
                yield from filter(search.holds, inside)
                return
            search = self.memory.search(sequence, is_usable=self.tables.has_room_in)
            longer = range(cached - cached % size + size, sequence.num_tokens, size)
            for found in (*longer, most) if most > cached else longer:
                if search.holds(found):
                    yield found
                elif not self.model.has_windows:
                    # A window or a chunk may hold what a longer hit reads and not a shorter one's.
                    return

    def _needed_alone(self, sequence: SequenceState, command: Any) -> int:
        """Blocks that the sequence would need in an empty pool."""
        self._schedule_head(sequence, 0, command.num_tokens)
        needed = self.model.num_new_entries(sequence)
        sequence.num_computed = sequence.num_scheduled = 0
        return needed

    def lookup(self, command: LookupPrefix) -> None:
        chain = command.chain
        sequence = self.model.new_sequence(-1, chain)
        extra = chain.extra_keys()
        answer = self.calls.call(command, list(chain.tokens), extra_keys=extra)
        cached = self._judge_cached(command, sequence, answer)
        expected = self.model.cached_prefix(sequence)
        finds_more = cached > expected and self._by_content
        is_right = finds_more and self.memory.holds_hit(sequence, cached)
        # Who looks up may be told of what is cached and held as well, exclusive or not.
        is_right = is_right or expected < cached <= self.model.indexed_prefix(sequence)
        self._judge_count(command, sequence, cached, expected, expected if is_right else cached)
        self._judge_early(command, sequence, cached)
        self.model.asked(sequence)
        self.facts.add("a prefix was looked up and not used")

    def loaded(self, command: Loaded) -> None:
        sequence = self.model.sequences[command.seq_id]
        self.calls.call(command, sequence.seq_id)
        self.memory.load(sequence)
        self.model.computed(sequence)
        if sequence.ended:
            self.facts.add("a sequence was ended while its KV was being loaded")
            self.model.end(sequence)
            return
        if not self.takes_chunks:
            sequence.num_scheduled = sequence.num_tokens - sequence.num_computed
        self.cache.publish(sequence)
