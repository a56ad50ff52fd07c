"""Shows that the checks of live engines work here: what is broken on purpose must be caught.

A small server of our own serves requests that share beginnings, and one thing is corrupted: a
table, a key, a free, a copy. What its workers are told goes to the oracle of the watch, and into a
recording that is audited. Both must see each corruption, and nothing where there is none.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from poolproof.certification.audit import audit_recording
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import FULL
from poolproof.contract.recording import RecordingWriter
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.watch.digests import Digests
from poolproof.watch.live_memory import LiveMemory

__all__ = ["CORRUPTIONS", "SelfTest", "selftest"]

_SIZE = 4
_NUM_BLOCKS = 64
_NUM_STEPS = 60
_AT_STEP = 30

CORRUPTIONS = {
    "nothing": "nothing is corrupted",
    "table": "a table names a block of another request",
    "key": "a key leads to the block of another prefix",
    "free": "a block is freed while its owner still runs",
    "early key": "a key is published for a block that nobody computes",
    "copy": "a block is copied over one that is in use",
    "outside": "a table names a block that the pool has not",
}


@dataclass(frozen=True, slots=True)
class SelfTest:
    """What became of one corruption: the first sentence of the watch's oracle and of the audit."""

    name: str
    corrupted_in: int | None
    watch: str | None
    audit: str | None

    @property
    def holds(self) -> bool:
        """Whether both have seen it, or neither has seen anything where nothing was corrupted."""
        if self.name == "nothing":
            return self.watch is None and self.audit is None
        return None not in (self.corrupted_in, self.watch, self.audit)

    def sentence(self) -> str:
        """The result in one line."""
        what = CORRUPTIONS[self.name]
        if self.name == "nothing":
            found = self.watch or self.audit
            return f"{what}: {found or f'nothing was found in {_NUM_STEPS} steps'}"
        if self.holds:
            return f"{what} (step {self.corrupted_in}): caught in {self.watch}"
        missed = [name for name in ("watch", "audit") if getattr(self, name) is None]
        return f"{what} (step {self.corrupted_in}): NOT caught by {' and '.join(missed)}"


@dataclass(slots=True)
class _Request:
    tokens: list[int]
    table: list[int]
    computed: int
    limit: int
    is_new: bool = True
    told: int = 0


@dataclass(slots=True)
class _Server:
    """A server that shares blocks by whole prefixes, with room for one corruption."""

    corruption: str
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    free: list[int] = field(default_factory=lambda: list(range(1, _NUM_BLOCKS)))
    index: dict[tuple[int, ...], int] = field(default_factory=dict)
    users: dict[int, int] = field(default_factory=dict)
    live: dict[str, _Request] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    corrupted_in: int | None = None
    number: int = 0
    num_requests: int = 0
    _texts: list[list[int]] = field(default_factory=list)

    def steps(self) -> Iterator[StepRecord]:
        """What the workers are told."""
        for self.number in range(1, _NUM_STEPS + 1):
            while len(self.live) < 4:
                self._admit()
            copies: tuple[tuple[int, int], ...] = ()
            if self.number >= _AT_STEP and self.corrupted_in is None:
                copies = self._corrupt()
            ended, self.ended = tuple(self.ended), []
            parts = tuple(self._part(name, request) for name, request in self.live.items())
            yield StepRecord(self.number, parts, copies, ended)
            for name in [n for n, r in self.live.items() if r.computed >= r.limit]:
                self._end(name)

    def _admit(self) -> None:
        kept = self.rng.choice(self._texts)[:8] if self._texts else []
        tokens = [*kept, *(self.rng.randrange(3, 9) for _ in range(self.rng.randrange(1, 9)))]
        self._texts = [*self._texts[-3:], tokens]
        hits = 0
        while (hits + 1) * _SIZE < len(tokens) and self._key(tokens, hits) in self.index:
            hits += 1
        table = [self.index[self._key(tokens, entry)] for entry in range(hits)]
        for block in table:
            self.users[block] = self.users.get(block, 0) + 1
            if block in self.free:
                self.free.remove(block)
        self.num_requests += 1
        limit = len(tokens) + self.rng.randrange(2, 10)
        self.live[f"request-{self.num_requests}"] = _Request(tokens, table, hits * _SIZE, limit)

    def _part(self, name: str, request: _Request) -> ComputedTokens:
        """All that is left of a prompt, or one token more."""
        first = request.computed
        if first == len(request.tokens):
            request.tokens.append(self.rng.randrange(3, 9))
        end = len(request.tokens)
        while len(request.table) * _SIZE < end:
            request.table.append(self._take())
        told = request.table if request.is_new else request.table[request.told :]
        part = ComputedTokens(
            name, TokenChain(tuple(request.tokens)), first, end - first, (tuple(told),),
            request.is_new,
        )  # fmt: skip
        request.is_new, request.told, request.computed = False, len(request.table), end
        for entry in range(first // _SIZE, end // _SIZE):
            self.index.setdefault(self._key(request.tokens, entry), request.table[entry])
        return part

    def _take(self) -> int:
        block = self.free.pop(0)
        self.users[block] = 1
        for key in [key for key, other in self.index.items() if other == block]:
            del self.index[key]
        return block

    def _end(self, name: str) -> None:
        self.ended.append(name)
        for block in reversed(self.live.pop(name).table):
            self.users[block] -= 1
            if self.users[block] == 0 and block not in self.free:
                self.free.append(block)

    @staticmethod
    def _key(tokens: list[int], entry: int) -> tuple[int, ...]:
        return tuple(tokens[: (entry + 1) * _SIZE])

    def _corrupt(self) -> tuple[tuple[int, int], ...]:
        """Break one thing where there is one to break; copies that are told in this step."""
        name = self.corruption
        copies: tuple[tuple[int, int], ...] = ()
        running = [r for r in self.live.values() if not r.is_new and len(r.table) > 1]
        fresh = [r for r in self.live.values() if r.is_new and r.table]
        if name in ("table", "outside") and fresh and running:
            wrong = running[0].table[-1] if name == "table" else _NUM_BLOCKS + 5
            fresh[0].table[0] = wrong
            self.users[wrong] = self.users.get(wrong, 0) + 1
        elif name in ("key", "early key") and running:
            # The next request begins with these tokens, and takes the block as cached.
            wrong = running[0].table[0] if name == "key" else self.free[-1]
            tokens = [1] * (2 * _SIZE)
            self.index[tuple(tokens[:_SIZE])] = wrong
            victim = _Request(tokens, [wrong], _SIZE, len(tokens) + 2)
            self.users[wrong] = self.users.get(wrong, 0) + 1
            self.free = [block for block in self.free if block != wrong]
            self.live["victim"] = victim
        elif name == "free" and running:
            # Somebody is given it at once, and overwrites what its owner goes on reading.
            self.free.insert(0, running[0].table[0])
            self.live["taker"] = _Request([1] * _SIZE, [], 0, _SIZE)
        elif name == "copy" and len(running) > 1:
            copies = ((running[1].table[-1], running[0].table[0]),)
        else:
            return ()
        self.corrupted_in = self.number
        return copies


def selftest(name: str) -> SelfTest:
    """Corrupt one thing, and see whether the watch's oracle and an audit name it."""
    server = _Server(name)
    memory = LiveMemory(_NUM_BLOCKS, FULL, [_SIZE], Digests())
    first: str | None = None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "steps.gz")
        with RecordingWriter(path, _NUM_BLOCKS, FULL, [_SIZE]) as writer:
            for step in server.steps():
                writer.record(step)
                found = memory.record(step)
                if found and first is None:
                    first = found[0].sentence
        audit = audit_recording(path)
    audited = audit.findings[0].sentence if audit.findings else None
    return SelfTest(name, server.corrupted_in, first, audited)
