"""The judges of a pool's answers: each applies its commands to target and reference.

A command goes to the target, its answer is judged (I2, ADM, ORD, IDX, MISUSE), and the reference
follows. An `Effect` holds what the command may have changed; `pool_session.py` compares the state
after it. Judges know one another where they must, and no session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import islice
from operator import index
from typing import Any

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    Lookup,
    LookupChain,
    Reset,
    Touch,
    Usage,
)
from poolproof.contract.content import Key
from poolproof.contract.misuse import Misuse
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.every_invariant import EveryInvariant
from poolproof.harness.facts import PoolFacts
from poolproof.harness.pool_check import IncrementalCheck, PoolDiagnosis
from poolproof.harness.target_call import crash, raised
from poolproof.invariants.admission import (
    allocates_only_what_fits,
    answers_so_many_blocks,
    refuses_only_what_does_not_fit,
)
from poolproof.invariants.events import evicted_hashes_are_told
from poolproof.invariants.index_answers import (
    answers_a_carrier,
    answers_all_groups,
    answers_longest_prefix,
    hits_in_all_groups,
)
from poolproof.invariants.misuse import answers_as_promised
from poolproof.invariants.ownership import usage_is_share_held
from poolproof.invariants.refusals import reset_iff_nobody_holds
from poolproof.invariants.reuse_order import allocated_from_head
from poolproof.invariants.stable_ids import (
    hands_out_free_blocks,
    remaps_each_block,
    remaps_to_carrier,
)
from poolproof.reference.dict_pool import DictPool

__all__ = [
    "AnswerJudge",
    "BlockJudge",
    "CachingJudge",
    "ChainJudge",
    "Effect",
    "KnownKeys",
    "LookupJudge",
    "MisuseJudge",
    "PoolCalls",
    "Revivals",
]

REFUSALS = (MemoryError, ValueError)


class Effect:
    """What the last command did, for the checks after it and for the choice of the next one.

    `taken` are the blocks on which it took a reference, `remapped` the (old, new) pairs that a
    `cache` call merged, `found` what a lookup answered, `touched` and `touched_keys` what it may
    have changed, `refused` whether it had to change nothing, and `cached_again` whether it gave
    each block the one hash that it had.
    """

    __slots__ = (
        "cached_again",
        "found",
        "refused",
        "remapped",
        "taken",
        "touched",
        "touched_keys",
    )

    def __init__(self) -> None:
        self.taken: Sequence[int] = ()
        self.remapped: list[tuple[int, int]] = []
        self.found: Any = None
        self.touched: Sequence[int] = ()
        self.touched_keys: Sequence[Key] = ()
        self.refused = False
        self.cached_again = False


class KnownKeys(list[Key]):
    """The keys that full checks look up, in the order in which they were first named."""

    def __init__(self) -> None:
        super().__init__()
        self._members: set[Key] = set()

    def know(self, keys: Sequence[Key]) -> None:
        """Keys that full checks look up from now on."""
        members = self._members
        for key in keys:
            if key not in members:
                members.add(key)
                self.append(key)

    def keep(self, keys: Iterable[Key]) -> None:
        """These keys and no others."""
        self[:] = keys
        self._members.clear()
        self._members.update(self)


class AnswerJudge:
    """What happens to an answer after it was copied: it is the caller's, and a list is emptied.

    That exposes a target that still uses the list.
    """

    def received(self, _command: Command, answer: Any) -> None:
        """The target answered with block ids."""
        if type(answer) is list:
            answer.clear()

    def received_id(self, command: Command, answer: Any) -> None:
        """The target answered with one block id, which is no plain integer."""

    def received_events(self, events: Any) -> None:
        """The target answered with events."""
        if type(events) is list:
            events.clear()


class PoolCalls:
    """How a pool is called with arguments that are legal.

    A list that was passed to the target is emptied after the call, since it is the caller's: a
    deferred free that keeps it frees nothing, or later another request's blocks (sglang#34067).
    """

    def __init__(self, target: Any, can: Capabilities) -> None:
        # Looked up once: a target's methods may be set on the instance, and lookups cost.
        self.methods: dict[str, Callable[..., Any]] = {
            verb: getattr(target, verb) for verb in can.verbs
        }
        self.allocate = self.methods["allocate"]
        self.free = self.methods["free"]
        self.cache = self.methods["cache"]
        self.touch = self.methods.get("touch")

    def call(self, command: Command, *arguments: Any) -> Any:
        """What the target answers. Raises ViolationError if it raises."""
        try:
            answer = self.methods[command.verb](*arguments)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        for argument in arguments:
            if isinstance(argument, list) and argument is not answer:
                argument.clear()
        return answer


class Revivals:
    """Free cached blocks that are about to leave the queue, from wherever they stand in it.

    `incremental` is the check that looks at the gaps which they leave, if there is one.
    """

    def __init__(
        self, reference: DictPool, facts: PoolFacts, incremental: IncrementalCheck | None
    ) -> None:
        self._free = reference.free
        self._facts = facts
        self._incremental = incremental

    def note(self, block: int) -> None:
        """A command is about to take a reference on a free block."""
        self._facts.after_revival(self._free, block)
        if self._incremental is not None:
            self._incremental.note_gap(block)


@dataclass(slots=True, eq=False)
class BlockJudge:
    """Who holds a block: judges what is handed out, and follows references."""

    calls: PoolCalls
    reference: DictPool
    effect: Effect
    facts: PoolFacts
    answers: AnswerJudge
    revivals: Revivals
    invariants: EveryInvariant
    _keys_die: bool = False

    def __post_init__(self) -> None:
        self._keys_die = self.reference.profile.retention == "while-held"

    def allocate(self, command: Allocate) -> None:
        """So many blocks, from the head of the queue."""
        count = command.count
        pool, effect = self.reference, self.effect
        free = pool.free
        try:
            answer = self.calls.allocate(count)
        except REFUSALS as error:
            if count <= len(free):
                self.invariants.report(
                    refuses_only_what_does_not_fit(count, len(free), raised(error))
                )
            effect.touched, effect.touched_keys, effect.refused = (), (), True
            self.facts.add("an allocation was refused")
            return
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        if count > len(free):  # campaigns spend their time here: the predicate is asked only then
            raise_for(allocates_only_what_fits(count, len(free), answer))
        told = None
        if type(answer) is tuple and len(answer) == 2 and isinstance(answer[0], list | tuple):
            answer, told = answer  # the blocks; beside them stand the hashes that it evicted
        # Ours from here on: the target may keep its list and change it later.
        taken = list(islice(free, count))
        if type(answer) is not list or answer != taken:
            taken = self._judge_allocation(answer, taken)
        self.answers.received(command, answer)
        all_keys = pool.keys
        evicted = [key for block in taken for key in all_keys[block]]
        if told is not None:
            self._judge_told(told, taken, evicted)
        pool.allocate(count, taken)
        effect.touched, effect.touched_keys, effect.taken = taken, evicted, taken
        if evicted:
            self.facts.add("an allocation evicted a cached block")
        if not free:
            self.facts.add("the queue was emptied")
        if count != 1:
            self.facts.add(
                "several blocks were allocated at once" if count else "zero blocks were allocated"
            )

    def _judge_allocation(self, answer: Any, expected: list[int]) -> list[int]:
        """The blocks of an answer that is not plainly the expected one, as plain integers."""
        raise_for(answers_so_many_blocks(len(expected), answer))
        # Other integers (numpy's, say) are as good as Python's; what is none stays for I2 to name.
        blocks = [index(b) if hasattr(b, "__index__") else b for b in answer]
        ledger = self.reference.ledger()
        violation = hands_out_free_blocks(blocks, self.reference.num_blocks, ledger)
        if violation is None and ledger.ordered:
            violation = allocated_from_head(blocks, expected, self.reference.profile.eviction)
        self.invariants.report(violation)
        return blocks

    def _judge_told(self, told: Any, taken: Sequence[int], evicted: Sequence[Key]) -> None:
        """The hashes that an allocation says it has evicted, where it is sure which it had."""
        pool = self.reference
        is_plain = isinstance(told, list | tuple) and all(type(key) is bytes for key in told)
        if not is_plain or pool.profile.retention != "exact" or pool.profile.keys != "block":
            return
        if pool.doubtful.isdisjoint(taken):
            gone = [key for key in evicted if set(pool.carriers[key]) <= set(taken)]
            self.invariants.report(evicted_hashes_are_told(told, evicted, gone))

    def touch(self, command: Touch) -> None:
        """One more reference on each block."""
        ids = command.block_ids
        pool, effect, facts = self.reference, self.effect, self.facts
        free = pool.free
        for block in ids:
            if block in free:
                self.revivals.note(block)
        assert self.calls.touch is not None
        given = list(ids)
        try:
            self.calls.touch(given)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        given.clear()
        pool.touch(ids)
        effect.touched, effect.touched_keys, effect.taken = ids, (), ids
        if pool.null_block in ids:
            facts.add("the null block stood in a list")
            effect.taken = [block for block in ids if block != pool.null_block]
        for block in ids:
            references = len(pool.holders[block])
            if references > 1 and references > facts.most_references:
                facts.after_sharing(references)
        if len(ids) > 1 and len(set(ids)) < len(ids):
            facts.add("a block stood twice in one touch")

    def free(self, command: Free) -> None:
        """One reference less on each block."""
        ids = command.block_ids
        pool, effect = self.reference, self.effect
        given = list(ids)
        try:
            self.calls.free(given)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        given.clear()
        if self._keys_die:
            effect.touched_keys = [key for block in ids for key in pool.keys[block]]
        else:
            effect.touched_keys = ()
        freed = pool.release(ids)
        effect.touched = ids
        if len(ids) > 1:
            self.facts.after_free_of_several(ids, freed, pool)
        elif ids and not freed:
            self.facts.add("a shared block was freed by one owner")


@dataclass(slots=True, eq=False)
class CachingJudge:
    """Which block carries which hash: caching, eviction, reset."""

    calls: PoolCalls
    reference: DictPool
    keys: KnownKeys
    effect: Effect
    facts: PoolFacts
    answers: AnswerJudge
    invariants: EveryInvariant

    def cache(self, command: Cache) -> None:
        """Blocks get hashes; a target that merges duplicates answers other blocks."""
        ids, hashes = command.block_ids, command.hashes
        pool, effect = self.reference, self.effect
        self.keys.know(hashes)
        dropped: list[Key] = []
        if pool.enable_caching:
            self.facts.before_cache(ids, hashes, pool)
            dropped = [key for block in ids for key in pool.keys[block]]
            # Most calls give other hashes, which one comparison of lists tells.
            effect.cached_again = dropped == [*hashes] and all(
                len(pool.keys[block]) == 1 for block in ids
            )
        given, given_hashes = list(ids), list(hashes)
        try:
            answer = self.calls.cache(given, given_hashes)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        if isinstance(answer, list | tuple):
            blocks = list(answer)
            if answer is not given:  # it may be the very list that it was given
                self.answers.received(command, answer)
            answer = blocks
        given.clear()
        given_hashes.clear()
        pool.cache(ids, hashes)
        effect.touched, effect.touched_keys = ids, (*hashes, *dropped)
        # An object may say that it equals every id.
        is_plain = isinstance(answer, list) and all(type(block) is int for block in answer)
        if isinstance(answer, list) and not (is_plain and answer == list(ids)):
            self._remap(command, answer)
            effect.touched = (*ids, *(new for _, new in effect.remapped))

    def _remap(self, command: Cache, answer: Sequence[Any]) -> None:
        """A pool that merges duplicates hands the caller another block for the same hash."""
        pool = self.reference
        raise_for(remaps_each_block(command, len(command.block_ids), answer))
        # As in an allocation: what is no integer stays for the sentence to show.
        blocks = [index(b) if hasattr(b, "__index__") else b for b in answer]
        for old, new, key in zip(command.block_ids, blocks, command.hashes, strict=True):
            if type(new) is int and new == old:
                continue
            carriers = pool.lookup(key) if type(new) is int else ()
            raise_for(remaps_to_carrier(command, old, new, carriers))
            pool.touch([new])
            pool.forget_keys([old])
            pool.release([old])
            self.effect.remapped.append((old, new))

    def evict(self, command: Evict) -> None:
        """Blocks lose their hashes."""
        ids, pool, effect = command.block_ids, self.reference, self.effect
        self.facts.before_evict(ids, pool)
        dropped = [key for block in ids for key in pool.keys[block]]
        self.calls.call(command, list(ids))
        pool.evict(ids)
        effect.touched, effect.touched_keys = ids, dropped

    def reset(self, command: Reset) -> None:
        """All blocks lose their hashes, if nobody holds one."""
        answer = self.calls.call(command)
        expected = self.reference.reset()
        self.invariants.report(reset_iff_nobody_holds(answer, nobody_holds=expected))
        self.facts.add("a reset was done" if expected else "a reset was refused")
        effect = self.effect
        effect.refused = not expected
        effect.touched, effect.touched_keys = (), self.keys[-8:]


@dataclass(slots=True, eq=False)
class LookupJudge:
    """Questions to the prefix index: `lookup`, and `acquire` where a target has it.

    A hit must carry the key, a miss must be one; which of several carriers answers is free.
    """

    calls: PoolCalls
    reference: DictPool
    keys: KnownKeys
    effect: Effect
    facts: PoolFacts
    answers: AnswerJudge
    revivals: Revivals
    diagnosis: PoolDiagnosis
    invariants: EveryInvariant

    def lookup(self, command: Lookup) -> None:
        """A block that carries the hash, or None."""
        key = command.block_hash
        self.keys.know((key,))
        answer = self.calls.call(command, key)
        self.judge_lookup(command, key, answer)
        effect = self.effect
        effect.found, effect.touched, effect.touched_keys = answer, (), (key,)

    def judge_lookup(self, command: Command, key: Key, answer: Any) -> None:
        """See that the answer is a block that carries the key, or None if there is none."""
        if answer is not None and type(answer) is not int:
            self.answers.received_id(command, answer)
        carriers = self.reference.lookup(key)
        if answer in carriers:
            self.facts.add("a lookup hit")
        elif answer is None and not carriers:
            self.facts.add("a lookup missed")
        else:
            violation = self.diagnosis.diagnose()  # also follows a `may-drop` target
            if violation is None and answer is None and not self.reference.lookup(key):
                return
            self.invariants.report(violation or answers_a_carrier(command, answer, carriers))

    def acquire(self, command: Acquire) -> None:
        """A reference on each block of the longest cached prefix."""
        hashes, pool, effect = command.hashes, self.reference, self.effect
        self.keys.know(hashes)
        answer = self.calls.call(command, list(hashes))
        expected = pool.longest_prefix(hashes)
        if pool.profile.retention == "may-drop" and isinstance(answer, list | tuple):
            for missed in hashes[len(answer) : expected][:1]:
                pool.forget_vanished(missed)
            expected = pool.longest_prefix(hashes)
        raise_for(answers_longest_prefix(command, answer, hashes, expected, pool.lookup))
        taken = list(map(index, answer))
        self.answers.received(command, answer)
        for block in taken:
            if block in pool.free:
                self.revivals.note(block)
        pool.touch(taken)
        effect.touched, effect.touched_keys, effect.taken = taken, hashes, taken
        self.facts.add("a lookup hit" if taken else "a lookup missed")


@dataclass(slots=True, eq=False)
class ChainJudge:
    """Commands on token chains: caching, lookup over groups, partial entries, usage.

    These exist for targets that hash real tokens themselves (vLLM V1's shape); the reference
    compares contents, the target its own hashes.
    """

    calls: PoolCalls
    reference: DictPool
    keys: KnownKeys
    effect: Effect
    facts: PoolFacts
    lookups: LookupJudge
    diagnosis: PoolDiagnosis
    invariants: EveryInvariant

    def cache_chain(self, command: CacheChain) -> None:
        """Full blocks of a chain get their keys."""
        chain, ids, pool, effect = command.chain, command.block_ids, self.reference, self.effect
        size = pool.block_size
        keys = _keys_of(command, size)
        self.keys.know(keys)
        self.facts.before_cache_chain(command, pool)
        dropped = [key for block in ids for key in pool.keys[block]]
        self.calls.call(command, chain, list(ids), command.num_cached, command.group)
        for position, key in enumerate(keys, start=command.num_cached):
            pool.cache_full(ids[position], key, (position + 1) * size)
        effect.touched, effect.touched_keys = ids, (*keys, *dropped)

    def cache_partial(self, command: CachePartial) -> None:
        """A block that is not full gets a key for the tokens that it has."""
        pool, effect = self.reference, self.effect
        key = command.chain.prefix(command.num_tokens, command.group)
        self.keys.know((key,))
        block = command.block_id
        old = list(pool.keys[block])
        self.calls.call(command, command.chain, block, command.num_tokens, command.group)
        pool.cache_partial(block, key, command.num_tokens)
        effect.touched, effect.touched_keys = (block,), (key, *old)
        self.facts.after_cache_partial(old, pool.keys[block])

    def lookup_chain(self, command: LookupChain) -> None:
        """A block for each of several groups, or None if one of them has none."""
        pool, effect = self.reference, self.effect
        keys = [command.chain.prefix(command.num_tokens, group) for group in command.groups]
        self.keys.know(keys)
        answer = self.calls.call(command, command.chain, command.num_tokens, list(command.groups))
        effect.touched, effect.touched_keys = (), keys
        hit = all(pool.lookup(key) for key in keys)
        if answer is None and not hit:
            self.facts.add("a lookup over groups missed")
        elif isinstance(answer, list) and len(answer) == len(keys):
            for key, block in zip(keys, answer, strict=True):
                self.lookups.judge_lookup(command, key, block)
            self.invariants.report(hits_in_all_groups(command, answer))
            if len(keys) > 1:
                self.facts.add("a lookup over several groups hit")
        else:
            found = self.diagnosis.diagnose()  # also follows a `may-drop` target
            if found is None and answer is None and not all(map(pool.lookup, keys)):
                return
            self.invariants.report(found or answers_all_groups(command, answer, len(keys), hit=hit))

    def usage(self, command: Usage) -> None:
        """The share of the blocks that are held."""
        answer = self.calls.call(command)
        self.invariants.report(usage_is_share_held(answer, self.reference.usage()))
        self.effect.touched, self.effect.touched_keys = (), ()


@dataclass(slots=True, eq=False)
class MisuseJudge:
    """Calls that the profile forbids: what it promises about them must hold."""

    calls: PoolCalls
    reference: DictPool
    keys: KnownKeys
    effect: Effect
    facts: PoolFacts
    diagnosis: PoolDiagnosis
    invariants: EveryInvariant

    def apply(self, command: Command, misuse: Misuse) -> None:
        """Call the target with misuse and see that it answers as the profile promises."""
        arguments = [getattr(command, field.name) for field in fields(command)]
        arguments = [list(value) if isinstance(value, tuple) else value for value in arguments]
        pool, effect = self.reference, self.effect
        existing = range(pool.num_blocks)
        named, effect.touched_keys = _named_in(command, pool.block_size)
        effect.touched, effect.taken = [block for block in named if block in existing], ()
        self.keys.know(effect.touched_keys)
        self.facts.add("misuse was tried")
        what, is_value_error = None, False
        try:
            self.calls.methods[command.verb](*arguments)
        except (Exception, SystemExit) as error:
            what, is_value_error = raised(error), isinstance(error, ValueError)
        self.invariants.report(
            answers_as_promised(
                command,
                misuse,
                what,
                is_value_error=is_value_error,
                ignores=pool.profile.misuse == "ignores",
                left_behind=self._left_behind,
            )
        )

    def _left_behind(self) -> Violation | None:
        """What misuse has broken on its way, as far as it can still be read."""
        try:
            return self.diagnosis.diagnose()
        except Exception:
            return None


def _named_in(command: Command, block_size: int) -> tuple[Sequence[int], Sequence[Key]]:
    """The blocks and the keys that a command names."""
    match command:
        case CacheChain(chain=chain, block_ids=ids):
            # Misuse may name more blocks than the chain fills.
            filled = len(chain.tokens) // block_size
            return ids, _keys_of(replace(command, block_ids=ids[:filled]), block_size)
        case CachePartial(chain=chain, block_id=block_id, num_tokens=num_tokens):
            within = 0 < num_tokens <= len(chain.tokens)
            keys = (chain.prefix(num_tokens, command.group),) if within else ()
            return (block_id,), keys
        case _:
            return getattr(command, "block_ids", ()), getattr(command, "hashes", ())


def _keys_of(command: CacheChain, block_size: int) -> list[Key]:
    """A key for each block that is not cached already."""
    return [
        command.chain.prefix((position + 1) * block_size, command.group)
        for position in range(max(command.num_cached, 0), len(command.block_ids))
    ]
