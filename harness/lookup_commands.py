"""Applies the questions to the prefix index: `lookup`, and `acquire` where a target has it.

A hit must carry the key, a miss must be one; which of several carriers answers is free.
"""

from __future__ import annotations

from operator import index
from typing import Any

from poolproof.contract.commands import Acquire, Command, Lookup
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.violation import raise_for
from poolproof.harness.pool_commands import PoolCommands
from poolproof.invariants.index_answers import answers_a_carrier, answers_longest_prefix
from poolproof.reference.dict_pool import DictPool

__all__ = ["LookupCommands"]


class LookupCommands(PoolCommands):
    """`PoolCommands` with the questions to the prefix index."""

    def __init__(self, target: Any, profile: Profile, reference: DictPool) -> None:
        super().__init__(target, profile, reference)
        self.apply |= {Lookup: self._lookup, Acquire: self._acquire}

    def _lookup(self, command: Lookup) -> None:
        key = command.block_hash
        self.know((key,))
        answer = self.call(command, key)
        self.judge_lookup(command, key, answer)
        self.touched, self.touched_keys = (), (key,)

    def judge_lookup(self, command: Command, key: Key, answer: Any) -> None:
        """See that the answer is a block that carries the key, or None if there is none."""
        carriers = self.reference.lookup(key)
        if answer in carriers:
            self.facts.add("a lookup hit")
        elif answer is None and not carriers:
            self.facts.add("a lookup missed")
        else:
            violation = self.diagnose()  # also follows a `may-drop` target
            if violation is None and answer is None and not self.reference.lookup(key):
                return
            self.report(violation or answers_a_carrier(command, answer, carriers))

    def _acquire(self, command: Acquire) -> None:
        hashes = command.hashes
        self.know(hashes)
        answer = self.call(command, list(hashes))
        expected = self.reference.longest_prefix(hashes)
        if self.profile.retention == "may-drop" and isinstance(answer, list | tuple):
            for missed in hashes[len(answer) : expected][:1]:
                self.reference.forget_vanished(missed)
            expected = self.reference.longest_prefix(hashes)
        raise_for(answers_longest_prefix(command, answer, hashes, expected, self.reference.lookup))
        taken = list(map(index, answer))
        self.received(command, answer)
        for block in taken:
            if block in self.reference.free:
                self._revives(block)
        self.reference.touch(taken)
        self.touched, self.touched_keys, self.taken = taken, hashes, taken
        self.facts.add("a lookup hit" if taken else "a lookup missed")
