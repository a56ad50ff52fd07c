"""The fast form of the exhaustive check for targets that take whole tapes.

Every command in a state, and the way back from it, stand on one tape behind the commands that
build the state, so that a state costs one question. What must be answered and shown is known from
the reference before the tape is played. As with `fast_check.py`, a no is only a suspicion: the
caller executes the state again with sessions, which name the invariant, and
tests/exploration/test_tape_check.py holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from poolproof.contract.commands import Allocate, Cache, Command, Evict, Free, Reset, Touch
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.tapes import PlaysTapes, TapeLostError, is_predictable
from poolproof.contract.target import Capabilities
from poolproof.exploration.representative import Representative
from poolproof.exploration.scope import Scope
from poolproof.exploration.state_check import Try, narrow_tries, wide_tries
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.legality import misuse_of, undefined_in

__all__ = ["TapeCheck", "suits_tapes"]

_ANY = object()
_REFUSED = object()

_PARTS = {
    "free_order": "free_order",
    "ref_count": "ref_counts",
    "block_hash": "block_hashes",
    "free_neighbours": "neighbours",
}


def suits_tapes(profile: Profile, can: Capabilities) -> bool:
    """Whether every answer is known beforehand, and nothing has to be followed beside it."""
    return is_predictable(profile, can) and not (
        profile.events != "none" and can.sees("take_events")
    )


class TapeCheck:
    """Checks states of one scope. `num_commands` counts the commands that were compared."""

    def __init__(
        self,
        tapes: PlaysTapes,
        profile: Profile,
        scope: Scope,
        *,
        wide: bool = False,
    ) -> None:
        self.num_commands = 0
        self.num_blocks = scope.num_blocks + (profile.null_block is not None)
        self._tapes = tapes
        self._profile = profile
        self._scope = scope
        self._wide = wide
        self._parts = [part for name, part in _PARTS.items() if tapes.can.sees(name)]

    def passes(self, state: Representative) -> bool:
        """Whether every command in the state does what it must; a no may also be a false alarm."""
        passed = all(self._play(tape) for tape in self._tapes_of(state))
        if not passed:
            self._tapes.renew()
        return passed

    def _tapes_of(self, state: Representative) -> Iterable[_Tape]:
        """The tries of a state; one from which only a fresh pool leads back ends its tape."""
        tape: _Tape | None = None
        for command, back in self._tries(state):
            if tape is None:
                tape = self._begin(state)
            if not tape.tries(command, self._tapes.can):
                continue
            self.num_commands += 1
            if back is None:
                yield tape
                tape = None
            else:
                for step in back:
                    tape.add(step)
        if tape is not None:
            yield tape

    def _tries(self, state: Representative) -> Iterable[Try]:
        null = self._profile.null_block
        listed = self._profile.null_in_lists != "misuse"
        yield from narrow_tries(self._scope, state, null if listed else None)
        if self._wide:
            yield from wide_tries(state, null, self._profile.usual_hash_bytes)

    def _begin(self, state: Representative) -> _Tape:
        tape = _Tape(DictPool(self.num_blocks, self._profile))
        for command in state.building():
            tape.add(command)
        tape.look()
        return tape

    def _play(self, tape: _Tape) -> bool:
        """Whether the target answers and shows what stands on the tape."""
        try:
            played = self._tapes.play(self.num_blocks, True, tape.commands)
        except TapeLostError:
            return False
        if len(played.answers) != len(tape.commands):
            return False
        shown = dict(played.state)
        try:
            return all(
                self._answers(answer, result) and self._shows(shown, answer, expected)
                for answer, result, expected in zip(
                    played.answers, tape.results, tape.expected, strict=True
                )
            )
        except (TypeError, ValueError, LookupError):  # an answer that is none: sessions name it
            return False

    @staticmethod
    def _answers(answer: Mapping[str, Any], result: Any) -> bool:
        if result is _REFUSED:
            return "refused" in answer
        if "refused" in answer or "error" in answer or "skipped" in answer:
            return False
        return result is _ANY or answer.get("result") == result

    def _shows(
        self, shown: dict[str, Any], answer: Mapping[str, Any], expected: _Expected | None
    ) -> bool:
        shown.update(answer)
        return expected is None or (
            shown["num_free"] == len(expected.order)
            and expected.lookups_pass(shown.get("lookups", ()))
            and all(expected.equals(part, shown[part]) for part in self._parts)
        )


class _Expected:
    """What a right pool shows at some place of a tape."""

    __slots__ = ("counts", "hashes", "named", "null", "order")

    def __init__(self, pool: DictPool, named: Sequence[str], texts: Mapping[Key, str]) -> None:
        self.null = pool.null_block
        self.order = list(pool.free)
        self.counts = [len(holders) for holders in pool.holders.values()]
        self.hashes = [texts[keys[0]] if keys else None for keys in pool.keys.values()]
        self.named = named

    def equals(self, part: str, shown: Any) -> bool:
        """Whether a part is shown as it is; the null block's count and links mean nothing."""
        if part == "free_order":
            return bool(shown == self.order)
        if part == "block_hashes":
            return bool(shown == self.hashes)
        expected = self.counts if part == "ref_counts" else self._neighbours()
        if self.null is None:
            return bool(shown == expected)
        return len(shown) == len(expected) and all(
            block == self.null or one == other
            for block, (one, other) in enumerate(zip(shown, expected, strict=True))
        )

    def lookups_pass(self, lookups: Sequence[int | None]) -> bool:
        """Whether the blocks that are found carry their hashes; of several any may be found."""
        hashes = self.hashes
        if len(lookups) != len(self.named):
            return False
        for text, block in zip(self.named, lookups, strict=True):
            if (text in hashes) if block is None else (hashes[block] != text):
                return False
        return True

    def _neighbours(self) -> list[list[int | None] | None]:
        links: list[list[int | None] | None] = [None] * len(self.counts)
        before: list[int | None] | None = None
        last = None
        for block in self.order:
            here: list[int | None] = [last, None]
            links[block] = here
            if before is not None:
                before[1] = block
            before, last = here, block
        return links


class _Tape:
    """Commands with what must be answered to each, and shown after those that are looked at."""

    def __init__(self, pool: DictPool) -> None:
        self.commands: list[Command] = []
        self.results: list[Any] = []
        self.expected: list[_Expected | None] = []
        self._pool = pool
        self._texts: dict[Key, str] = {}
        self._named: list[str] = []

    def tries(self, command: Command, can: Capabilities) -> bool:
        """Add a command and look after it, if the target has it and the profile defines it."""
        if command.verb not in can.verbs:
            return False
        pool = self._pool
        if misuse_of(pool, command) is not None:
            if pool.profile.misuse == "undefined":
                return False
            self._name(command)
            self.commands.append(command)
            self.results.append(_REFUSED if pool.profile.misuse == "raises" else _ANY)
            self.expected.append(None)
        elif undefined_in(pool, command) is not None:
            return False
        else:
            self.add(command)
        self.look()
        return True

    def add(self, command: Command) -> None:
        """Add a command that is legal."""
        self._name(command)
        self.commands.append(command)
        self.results.append(_result(self._pool, command))
        self.expected.append(None)

    def look(self) -> None:
        """Have the state compared after the last command."""
        self.expected[-1] = _Expected(self._pool, tuple(self._named), self._texts)

    def _name(self, command: Command) -> None:
        if isinstance(command, Cache):
            for key in command.hashes:
                if key not in self._texts and isinstance(key, bytes):
                    self._texts[key] = key.hex()
                    self._named.append(self._texts[key])


def _result(pool: DictPool, command: Command) -> Any:
    """What a legal command does to the reference, and answers."""
    match command:
        case Allocate(count=count):
            return pool.allocate(count) if count <= len(pool.free) else _REFUSED
        case Touch(block_ids=ids):
            pool.touch(ids)
        case Free(block_ids=ids):
            pool.release(ids)
        case Cache(block_ids=ids, hashes=hashes):
            pool.cache(ids, hashes)
        case Evict(block_ids=ids):
            pool.evict(ids)
        case Reset():
            return pool.reset()
    return None
