"""Applies one pool command to a target and its reference, and judges what the target answered.

The answer is judged here (I2, ADM, ORD, MISUSE); the state after it is checked by
`pool_session.py`. Questions to the index are in `lookup_commands.py`, commands on token chains in
`chain_commands.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from itertools import islice
from operator import index
from typing import Any

from poolproof.contract.commands import (
    Allocate,
    Cache,
    Command,
    Evict,
    Free,
    Reset,
    Touch,
)
from poolproof.contract.content import Key
from poolproof.contract.misuse import Misuse
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities, capabilities_of
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.facts import PoolFacts
from poolproof.harness.target_call import crash, raised
from poolproof.invariants.admission import (
    allocates_only_what_fits,
    answers_so_many_blocks,
    refuses_only_what_does_not_fit,
)
from poolproof.invariants.misuse import answers_as_promised
from poolproof.invariants.refusals import reset_iff_nobody_holds
from poolproof.invariants.reuse_order import allocated_from_head
from poolproof.invariants.stable_ids import (
    hands_out_free_blocks,
    remaps_each_block,
    remaps_to_carrier,
)
from poolproof.reference.dict_pool import DictPool

__all__ = ["PoolCommands"]

REFUSALS = (MemoryError, ValueError)


class PoolCommands:
    """A target, its reference, and a method for each command.

    After a command, `taken` are the blocks on which it took a reference, `remapped` the (old,
    new) pairs that a `cache` call merged, `touched` and `touched_keys` what it may have changed,
    `refused` whether it had to change nothing, and `cached_again` whether it gave each block the
    one hash that it had. `remarks` are for the certificate. A list that was passed to the target is
    emptied after the call, since it is the caller's: a deferred free that keeps it frees nothing,
    or later another request's blocks (sglang#34067).
    """

    def __init__(self, target: Any, profile: Profile, reference: DictPool) -> None:
        self.target = target
        self.can: Capabilities = capabilities_of(target)
        self.profile = profile
        self.reference = reference
        self.facts = PoolFacts()
        self.remarks: set[str] = set()
        self.most_references = 0
        self.keys: list[Key] = []
        self.taken: Sequence[int] = ()
        self.remapped: list[tuple[int, int]] = []
        self.touched: Sequence[int] = ()
        self.touched_keys: Sequence[Key] = ()
        self.refused = False
        self.cached_again = False
        self._known_keys: set[Key] = set()
        # Looked up once: a target's methods may be set on the instance, and lookups cost.
        self._methods = {verb: getattr(target, verb) for verb in self.can.verbs}
        self._target_allocate = target.allocate
        self._target_free = target.free
        self._target_cache = target.cache
        self._target_touch = self._methods.get("touch")
        self._target_lookup = self._methods.get("lookup")
        self.apply: dict[type[Command], Callable[[Any], None]] = {
            Allocate: self._allocate,
            Touch: self._touch,
            Free: self._free,
            Cache: self._cache,
            Evict: self._evict,
            Reset: self._reset,
        }

    def diagnose(self) -> Violation | None:
        """Read the whole pool and name the first invariant that is broken."""
        raise NotImplementedError  # the session does it

    def report(self, violation: Violation | None) -> None:
        """What was found wrong, where the reference could follow nevertheless: raises it.

        A session that looks for one invariant passes over the others here. None is nothing wrong.
        """
        raise_for(violation)

    def received(self, _command: Command, answer: Any) -> None:
        """The target answered with block ids, which were copied: a list is ours to change."""
        if type(answer) is list:
            answer.clear()

    def received_events(self, events: Any) -> None:
        """The same for a list of events."""
        if type(events) is list:
            events.clear()

    def know(self, keys: Sequence[Key]) -> None:
        """Keys that full checks look up from now on."""
        for key in keys:
            if key not in self._known_keys:
                self._known_keys.add(key)
                self.keys.append(key)

    def call(self, command: Command, *arguments: Any) -> Any:
        """Call the target with arguments that are legal. Raises ViolationError if it raises."""
        try:
            answer = self._methods[command.verb](*arguments)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        for argument in arguments:
            if isinstance(argument, list) and argument is not answer:
                argument.clear()
        return answer

    def misuse(self, command: Command, misuse: Misuse) -> None:
        """Call the target with misuse and see that it answers as the profile promises."""
        arguments = [getattr(command, field.name) for field in fields(command)]
        arguments = [list(value) if isinstance(value, tuple) else value for value in arguments]
        existing = range(self.reference.num_blocks)
        named, self.touched_keys = self.named_in(command)
        self.touched, self.taken = [block for block in named if block in existing], ()
        self.know(self.touched_keys)
        self.facts.add("misuse was tried")
        what, is_value_error = None, False
        try:
            self._methods[command.verb](*arguments)
        except (Exception, SystemExit) as error:
            what, is_value_error = raised(error), isinstance(error, ValueError)
        self.report(
            answers_as_promised(
                command,
                misuse,
                what,
                is_value_error=is_value_error,
                ignores=self.profile.misuse == "ignores",
                left_behind=self._left_behind,
            )
        )

    def named_in(self, command: Command) -> tuple[Sequence[int], Sequence[Key]]:
        """The blocks and the keys that a command names."""
        return getattr(command, "block_ids", ()), getattr(command, "hashes", ())

    def _left_behind(self) -> Violation | None:
        """What misuse has broken on its way, as far as it can still be read."""
        try:
            return self.diagnose()
        except Exception:
            return None

    def _allocate(self, command: Allocate) -> None:
        count = command.count
        pool = self.reference
        free = pool.free
        try:
            answer = self._target_allocate(count)
        except REFUSALS as error:
            if count <= len(free):
                self.report(refuses_only_what_does_not_fit(count, len(free), raised(error)))
            self.touched, self.touched_keys, self.refused = (), (), True
            self.facts.add("an allocation was refused")
            return
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        if count > len(free):  # campaigns spend their time here: the predicate is asked only then
            raise_for(allocates_only_what_fits(count, len(free), answer))
        if type(answer) is tuple and len(answer) == 2 and isinstance(answer[0], list | tuple):
            answer = answer[0]  # the blocks; beside them stand the hashes that it evicted
        # Ours from here on: the target may keep its list and change it later.
        taken = list(islice(free, count))
        if type(answer) is not list or answer != taken:
            taken = self._judge_allocation(answer, taken)
        self.received(command, answer)
        all_keys = pool.keys
        evicted = [key for block in taken for key in all_keys[block]]
        pool.allocate(count, taken)
        self.touched, self.touched_keys, self.taken = taken, evicted, taken
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
            violation = allocated_from_head(blocks, expected, self.profile.eviction)
        self.report(violation)
        return blocks

    def _touch(self, command: Touch) -> None:
        ids = command.block_ids
        pool = self.reference
        free = pool.free
        for block in ids:
            if block in free:
                self._revives(block)
        assert self._target_touch is not None
        given = list(ids)
        try:
            self._target_touch(given)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        given.clear()
        pool.touch(ids)
        self.touched, self.touched_keys, self.taken = ids, (), ids
        if pool.null_block in ids:
            self.facts.add("the null block stood in a list")
            self.taken = [block for block in ids if block != pool.null_block]
        for block in ids:
            references = len(pool.holders[block])
            if references > 1:
                self.facts.add("a block had two owners or more")
                if references > self.most_references:
                    self.most_references = references
                    if references > 255:
                        self.facts.add("a block had more than 255 owners")
        if len(ids) > 1 and len(set(ids)) < len(ids):
            self.facts.add("a block stood twice in one touch")

    def _revives(self, block: int) -> None:
        """A free cached block is about to leave the queue."""
        self.facts.after_revival(self.reference.free, block)

    def _free(self, command: Free) -> None:
        ids = command.block_ids
        pool = self.reference
        given = list(ids)
        try:
            self._target_free(given)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        given.clear()
        freed = pool.release(ids)
        self.touched, self.touched_keys = ids, ()
        if len(ids) > 1:
            self.facts.after_free_of_several(ids, freed, pool)
        elif ids and not freed:
            self.facts.add("a shared block was freed by one owner")

    def _cache(self, command: Cache) -> None:
        ids, hashes = command.block_ids, command.hashes
        pool = self.reference
        self.know(hashes)
        dropped: list[Key] = []
        if pool.enable_caching:
            self.facts.before_cache(ids, hashes, pool)
            dropped = [key for block in ids for key in pool.keys[block]]
            # Most calls give other hashes, which one comparison of lists tells.
            self.cached_again = dropped == [*hashes] and all(
                len(pool.keys[block]) == 1 for block in ids
            )
        given, given_hashes = list(ids), list(hashes)
        try:
            answer = self._target_cache(given, given_hashes)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(str(command), error)) from error
        if isinstance(answer, list | tuple):
            blocks = list(answer)
            if answer is not given:  # it may be the very list that it was given
                self.received(command, answer)
            answer = blocks
        given.clear()
        given_hashes.clear()
        pool.cache(ids, hashes)
        self.touched, self.touched_keys = ids, (*hashes, *dropped)
        if isinstance(answer, list) and answer != list(ids):
            self._remap(command, answer)
            self.touched = (*ids, *(new for _, new in self.remapped))

    def _remap(self, command: Cache, answer: Sequence[Any]) -> None:
        """A pool that merges duplicates hands the caller another block for the same hash."""
        raise_for(remaps_each_block(command, len(command.block_ids), answer))
        for old, new, key in zip(command.block_ids, answer, command.hashes, strict=True):
            if new == old:
                continue
            raise_for(remaps_to_carrier(command, old, new, self.reference.lookup(key)))
            self.reference.touch([index(new)])
            self.reference.forget_keys([old])
            self.reference.release([old])
            self.remapped.append((old, index(new)))

    def _evict(self, command: Evict) -> None:
        ids = command.block_ids
        self.facts.before_evict(ids, self.reference)
        dropped = [key for block in ids for key in self.reference.keys[block]]
        self.call(command, list(ids))
        self.reference.evict(ids)
        self.touched, self.touched_keys = ids, dropped

    def _reset(self, command: Reset) -> None:
        answer = self.call(command)
        expected = self.reference.reset()
        self.report(reset_iff_nobody_holds(answer, nobody_holds=expected))
        self.facts.add("a reset was done" if expected else "a reset was refused")
        self.refused = not expected
        self.touched, self.touched_keys = (), self.keys[-8:]
