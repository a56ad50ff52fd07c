"""Applies the questions to the prefix index: `lookup`, and `acquire` where a target has it.

A hit must carry the key, a miss must be one; which of several carriers answers is free.
"""

from __future__ import annotations

from operator import index
from typing import Any

from poolproof.contract.commands import Acquire, Command, Lookup
from poolproof.contract.content import Key
from poolproof.contract.outside import shown
from poolproof.contract.prefix_words import listed
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.harness.pool_commands import PoolCommands
from poolproof.invariants.wording import number_of_blocks
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
            self.report(
                violation
                or Violation(
                    "IDX",
                    Severity.LOST_HIT if answer is None else Severity.WRONG_DATA_OF_ANOTHER,
                    f"{command} answered {shown(answer)}, but "
                    + (
                        f"the key is carried by {listed(carriers)}"
                        if carriers
                        else "no block carries the key"
                    ),
                )
            )

    def _acquire(self, command: Acquire) -> None:
        hashes = command.hashes
        self.know(hashes)
        answer = self.call(command, list(hashes))
        expected = self.reference.longest_prefix(hashes)
        if self.profile.retention == "may-drop" and isinstance(answer, list | tuple):
            for missed in hashes[len(answer) : expected][:1]:
                self.reference.forget_vanished(missed)
            expected = self.reference.longest_prefix(hashes)
        is_prefix = isinstance(answer, list | tuple) and len(answer) <= expected and all(
            block in self.reference.lookup(key)
            for block, key in zip(answer, hashes, strict=False)
        )  # fmt: skip
        if not is_prefix or len(answer) != expected:
            # What is found carries the right hashes, but there is more: only work is lost.
            is_lost = is_prefix or answer is None
            raise ViolationError(
                Violation(
                    "IDX",
                    Severity.LOST_HIT if is_lost else Severity.WRONG_DATA_OF_ANOTHER,
                    f"{command} answered {shown(answer)}; the longest cached prefix has "
                    f"{number_of_blocks(expected)}, each of which must carry its hash",
                )
            )
        taken = list(map(index, answer))
        self.received(command, answer)
        for block in taken:
            if block in self.reference.free:
                self._revives(block)
        self.reference.touch(taken)
        self.touched, self.touched_keys, self.taken = taken, hashes, taken
        self.facts.add("a lookup hit" if taken else "a lookup missed")
