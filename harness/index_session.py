"""One index under test and its reference: applies a command, judges the answer, reads the rest.

A small index is read completely after every command: every key that was ever named, and membership
of every block. For a large one, each step reads the key that the command named, two others in turn
and the number of keys, so that a step costs the same at every size; everything is read at every
1,000th command and at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import index
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.index_commands import (
    Clear,
    Contains,
    Get,
    IndexKey,
    Insert,
    Pop,
    index_key_text,
)
from poolproof.contract.observation import IndexObservation
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities, capabilities_of
from poolproof.contract.violation import Violation, ViolationError, raise_for
from poolproof.harness.target_call import crash
from poolproof.invariants.index_answers import (
    answers_contains,
    answers_pop,
    index_answers_what_was_filed,
)
from poolproof.invariants.legal_calls import meaningless_answer
from poolproof.reference.dict_index import DictIndex
from poolproof.reference.legality import hash_of_other_length

__all__ = ["MANY_CARRIERS", "MANY_KEYS", "IndexSession"]

MANY_CARRIERS = 255
"""One block more under a key, and a count of 8 bits would not do."""
MANY_KEYS = 1_000

_MOST_KEYS_TO_READ_ALL = 8
_MOST_BLOCKS_TO_READ_ALL = 64
_MOST_BLOCKS_TO_ASK_ALL = 16
_MOST_TO_LIST = 8
_EVERYTHING_EVERY = 1_000
_KEYS_IN_TURN = 2


class IndexSession:
    """An index and its reference, in step; no call of an index is misuse."""

    def __init__(self, target: Any, num_blocks: int, profile: Profile | None = None) -> None:
        self.target = target
        self.num_blocks = num_blocks
        self.profile = profile or Profile()
        self.can: Capabilities = capabilities_of(target)
        self.reference = DictIndex(self.profile.duplicates)
        self.num_commands = 0
        self.facts: set[str] = set()
        self.most_carriers = 0
        self._named: dict[IndexKey, None] = {}
        self._in_turn: list[IndexKey] = []
        self._contains = target.contains if "contains" in self.can.verbs else None
        self._num_keys = target.num_keys if self.can.sees("num_keys") else None
        self._carriers = target.carriers if self.can.sees("carriers") else None
        self._apply: dict[type[Command], Callable[[Any], None]] = {
            Insert: self._insert,
            Pop: self._pop,
            Get: self._get,
            Contains: self._ask,
            Clear: self._clear,
        }

    def step(self, command: Command) -> Violation | None:
        """Apply a command; return the violation that it shows, or None."""
        self.num_commands += 1
        key: IndexKey | None = getattr(command, "key", None)
        if key is not None and key not in self._named:
            self._named[key] = None
            self._in_turn.append(key)
        try:
            self._apply[type(command)](command)
            violation = self.diagnose(key, getattr(command, "block_id", None))
        except ViolationError as found:
            violation = found.violation
        return violation and replace(violation, command_index=self.num_commands - 1)

    step_any = step

    def is_defined(self, command: Command) -> bool:
        """Whether the target has the verb; every pair of key and block may be named.

        The exception: hashes of another length than the profile prescribes.
        """
        is_fitting = hash_of_other_length(self.profile, command) is None
        return command.verb in self.can.verbs and is_fitting

    def first_look(self) -> Violation | None:
        """Before any command: the fresh index must be empty."""
        try:
            return self.diagnose()
        except ViolationError as found:
            return found.violation

    def nobody_holds(self) -> bool:
        """An index holds no references, so a run can end after any command."""
        return True

    def end(self) -> Violation | None:
        """Read everything; return the violation, or None."""
        try:
            violation = self._judge(self._named, everything=True)
        except ViolationError as found:
            violation = found.violation
        return violation and replace(violation, command_index=self.num_commands - 1)

    def diagnose(self, key: IndexKey | None = None, block: int | None = None) -> Violation | None:
        """Read the index; return the first thing that is wrong, or None.

        `key` and `block` are those that a command named. Raises ViolationError for an index that
        cannot be read.
        """
        is_small = (
            self.num_blocks <= _MOST_BLOCKS_TO_READ_ALL
            and len(self._named) <= _MOST_KEYS_TO_READ_ALL
        )
        if is_small or self.num_commands % _EVERYTHING_EVERY == 0:
            return self._judge(self._named, everything=True)
        first = self.num_commands * _KEYS_IN_TURN
        named = self._in_turn
        keys = [named[(first + step) % len(named)] for step in range(_KEYS_IN_TURN * bool(named))]
        if key is not None:
            keys.append(key)
        return self._judge(dict.fromkeys(keys), asked=() if block is None else (block,))

    def _judge(
        self, keys: Iterable[IndexKey], *, asked: Sequence[int] = (), everything: bool = False
    ) -> Violation | None:
        found: dict[IndexKey, int | None] = {}
        members: dict[tuple[IndexKey, int], bool] = {}
        listed: dict[IndexKey, list[int]] = {}
        for key in keys:
            found[key] = self._read_get(key)
            carriers = self.reference.carriers.get(key, ())
            if self._contains is not None:
                for block in self._blocks_to_ask(carriers, asked, everything=everything):
                    members[key, block] = self._read_contains(key, block)
            if self._carriers is not None and (everything or len(carriers) <= _MOST_TO_LIST):
                listed[key] = self._read_carriers(key)
        num_keys = None if self._num_keys is None else self._read_num_keys()
        seen = IndexObservation(found, members, listed, num_keys)
        return index_answers_what_was_filed(seen, self.reference.ledger())

    def _blocks_to_ask(
        self, carriers: Iterable[int], asked: Sequence[int], *, everything: bool
    ) -> Iterable[int]:
        """All blocks of a small index; of a large one the carriers and their neighbours."""
        if not everything:
            return asked
        if self.num_blocks <= _MOST_BLOCKS_TO_ASK_ALL:
            return range(self.num_blocks)
        return dict.fromkeys(near for block in carriers for near in (block, block ^ 1))

    def _call(self, what: str, method: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(what, error)) from error

    def _read_get(self, key: IndexKey) -> int | None:
        try:
            answer = self.target.get(key)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(f"get({index_key_text(key)})", error)) from error
        if answer is None or type(answer) is int:
            return answer
        return _block_or_none(f"get({index_key_text(key)})", answer)

    def _read_contains(self, key: IndexKey, block: int) -> bool:
        assert self._contains is not None
        try:
            answer = self._contains(key, block)
        except (Exception, SystemExit) as error:
            raise ViolationError(crash(_contains_text(key, block), error)) from error
        # The sentence costs more than the call, and a large index is asked millions of times.
        return answer if type(answer) is bool else _truth(_contains_text(key, block), answer)

    def _read_carriers(self, key: IndexKey) -> list[int]:
        what = f"carriers({index_key_text(key)})"
        assert self._carriers is not None
        answer = self._call(what, self._carriers, key)
        try:
            return [index(block) for block in answer]
        except TypeError as error:
            raise _no_answer(what, answer, "a list of block ids") from error

    def _read_num_keys(self) -> int:
        answer = self._call("num_keys()", self._num_keys or int)
        try:
            return index(answer)
        except TypeError as error:
            raise _no_answer("num_keys()", answer, "an integer") from error

    def _insert(self, command: Insert) -> None:
        self._note_insert(command)
        self._call(str(command), self.target.insert, command.key, command.block_id)
        self.reference.insert(command.key, command.block_id)

    def _pop(self, command: Pop) -> None:
        self._note_pop(command)
        answer = self._call(str(command), self.target.pop, command.key, command.block_id)
        block = _block_or_none(str(command), answer)
        known = self.reference.ledger()
        raise_for(answers_pop(command, command.key, command.block_id, block, known))
        self.reference.pop(command.key, command.block_id)

    def _get(self, command: Get) -> None:
        if command.key not in self.reference.carriers:
            self.facts.add("a key was looked up that no block carries")
        # By itself: what is read afterwards is another call, which may answer something else.
        seen = IndexObservation({command.key: self._read_get(command.key)}, {}, {})
        raise_for(index_answers_what_was_filed(seen, self.reference.ledger()))

    def _ask(self, command: Contains) -> None:
        answer = self._read_contains(command.key, command.block_id)
        known = self.reference.ledger()
        raise_for(answers_contains(command, command.key, command.block_id, answer, known))

    def _clear(self, command: Clear) -> None:
        if self.reference.carriers:
            self.facts.add("blocks lost their keys by a clear")
        self._call(str(command), self.target.clear)
        self.reference.clear()

    def _note_insert(self, command: Insert) -> None:
        carriers = self.reference.carriers.get(command.key, ())
        self.most_carriers = max(self.most_carriers, len(carriers) + 1)
        if command.block_id in carriers:
            self.facts.add("a block was filed twice under a key")
        elif carriers:
            self.facts.add("a block was filed under a key that another one carries")
            if len(carriers) == MANY_CARRIERS:
                self.facts.add(f"one key had more than {MANY_CARRIERS} blocks")
        elif len(self.reference.carriers) == MANY_KEYS:
            self.facts.add(f"blocks carried more than {MANY_KEYS:,} keys")

    def _note_pop(self, command: Pop) -> None:
        carriers = self.reference.carriers.get(command.key, ())
        if command.block_id not in carriers:
            self.facts.add("a pop named a block that does not carry the key")
        elif len(carriers) == 1:
            self.facts.add("a key lost its last block")
        else:
            self.facts.add("a key lost one of several blocks")


def _contains_text(key: IndexKey, block: int) -> str:
    return f"contains({index_key_text(key)}, {block})"


def _block_or_none(what: str, answer: Any) -> int | None:
    """Raises ViolationError for anything but a block id or None."""
    try:
        return None if answer is None else index(answer)
    except TypeError as error:
        raise _no_answer(what, answer, "a block id or None") from error


def _truth(what: str, answer: Any) -> bool:
    """Raises ViolationError for anything but true or false."""
    if isinstance(answer, int) and answer in (0, 1):
        return bool(answer)
    raise _no_answer(what, answer, "True or False")


def _no_answer(what: str, answer: Any, expected: str) -> ViolationError:
    return ViolationError(meaningless_answer(what, answer, expected))
