"""Watches engines that plan a step, compute it and hear of it, in a loop of their own process.

What differs from engine to engine is an `EngineLoop`: which methods plan and end a step, and whose
positions the planned step computes through which blocks. `LoopWatch` puts the taps around them and
follows each step when it is planned. Nothing of the engine is changed: the mode `quarantine`, which
would have to, is vLLM's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from poolproof.contract.manager_profile import CacheGroup
from poolproof.watch.digests import Digests
from poolproof.watch.findings import LiveFinding, request_name
from poolproof.watch.live_memory import ComputedPart, LiveMemory
from poolproof.watch.settings import WatchSettings
from poolproof.watch.taps import Taps
from poolproof.watch.watcher import Watcher

__all__ = ["EngineLoop", "LoopFacts", "LoopRequest", "LoopStep", "LoopWatch"]


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """What does not change in the life of a loop: its names, its memory, what is left out.

    `block_sizes` are tokens; `is_running` says that something may have been computed already.
    """

    engine: str
    scheduler: str
    num_blocks: int
    groups: Sequence[CacheGroup | None]
    block_sizes: Sequence[int]
    left_out: Sequence[str] = ()
    is_running: bool = False


@dataclass(frozen=True, slots=True)
class LoopRequest:
    """The positions `first` to `first + count - 1` are computed, through these whole tables.

    `tokens` are those of the request from position 0 on, as far as they are known; they may grow.
    Of the first `brought` positions something else than a forward pass has brought the KV.
    """

    request_id: str
    tokens: Sequence[int]
    first: int
    count: int
    tables: Sequence[Sequence[int]]
    brought: int = 0


@dataclass(frozen=True, slots=True)
class LoopStep:
    """One forward pass; `copies` are (source, destination) blocks, all performed before it."""

    requests: Sequence[LoopRequest]
    copies: Sequence[tuple[int, int]] = ()
    ended: Sequence[str] = field(default=())


class EngineLoop(Protocol):
    """What an engine's loop has to be able to say."""

    facts: LoopFacts

    def taps(self) -> Iterable[tuple[Any, str]]:
        """The object and the method that plan a step, then those that end one or change blocks."""

    def planned(self, answer: Any) -> LoopStep | None:
        """The step that was planned, by what the planning method answered; None for no step."""

    def called(self, name: str, arguments: tuple[Any, ...]) -> None:
        """Another of the tapped methods is about to be called."""

    def blocks(self) -> tuple[int, int]:
        """How many blocks somebody holds, and how many can be given to others."""

    def is_at_rest(self) -> bool:
        """Whether nobody runs or waits."""


class LoopWatch:
    """One loop under watch, from now on."""

    def __init__(self, loop: EngineLoop, settings: WatchSettings) -> None:
        self._loop, facts = loop, loop.facts
        self._digests = Digests(settings.key)
        self._root = self._digests.root()
        self._memory = LiveMemory(
            facts.num_blocks,
            facts.groups,
            facts.block_sizes,
            self._digests,
            is_running=facts.is_running,
        )
        self._tables: dict[str, list[list[int]]] = {}
        self._was_at_rest = True
        self._taps = Taps(lambda: self.watcher.is_on)
        self.watcher = Watcher(
            settings,
            self._memory,
            self._digests,
            {
                "engine": facts.engine,
                "scheduler": facts.scheduler,
                "attached": "running" if facts.is_running else "start",
                "blocks": facts.num_blocks,
                "groups": list(_rows(facts)),
                "left_out": [
                    *facts.left_out,
                    *["quarantine: what is found is logged"] * (settings.mode == "quarantine"),
                ],
                "tokens_of": self._tokens_of,
            },
            pool=loop.blocks,
            describe=self._describe,
            untap=self._taps.remove,
        )
        (planner, plan), *others = loop.taps()
        self._taps.put(planner, plan, self._around_plan)
        for owner, name in others:
            self._taps.put(owner, name, self._around(name))

    def _around_plan(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        answer = original(*args, **named)
        self.watcher.guarded(self._follow, answer)
        return answer

    def _around(self, name: str) -> Callable[..., Any]:
        def around(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
            self.watcher.guarded(self._loop.called, name, args)
            answer = original(*args, **named)
            self.watcher.guarded(self._look_at_rest)
            return answer

        return around

    def _follow(self, answer: Any) -> None:
        """Let the shadow memory follow the step that was just planned."""
        step = self._loop.planned(answer)
        if step is None:
            return
        memory = self._memory
        for request_id in step.ended:
            self._tables.pop(request_id, None)
        memory.begin(step.ended, step.copies)
        for planned in step.requests:
            for group, table in enumerate(planned.tables):
                if planned.brought:
                    memory.load(group, table, 0, planned.brought)
        for planned in step.requests:
            memory.compute(self._part_of(planned))
        found = memory.end()
        self.watcher.ring.append((memory.counts.steps, step))
        self._tell(found)
        self.watcher.step_is_over()

    def _part_of(self, planned: LoopRequest) -> ComputedPart:
        """With what is added to its tables; with all of them where they are others than before."""
        known = self._tables.get(planned.request_id)
        is_same = known is not None and all(
            table[: len(before)] == before
            for before, table in zip(known, planned.tables, strict=True)
        )
        blocks: list[list[int]] = [list(table) for table in planned.tables]
        self._tables[planned.request_id] = [*map(list, blocks)]
        if known is not None and is_same:
            blocks = [table[len(before) :] for before, table in zip(known, blocks, strict=True)]
        return ComputedPart(
            request_id=planned.request_id,
            root=self._root,
            tokens=planned.tokens,
            images=(),
            first=planned.first,
            count=planned.count,
            drafts=(),
            blocks=blocks,
            replaced=not is_same,
        )

    def _look_at_rest(self) -> None:
        """Nobody runs or waits: all blocks must be free, or be there for the next who asks."""
        if not self._loop.is_at_rest():
            self._was_at_rest = False
            return
        if self._was_at_rest:
            return
        self._was_at_rest = True
        self._memory.counts.quiescent += 1
        lost, _ = self._loop.blocks()
        before, self.watcher.lost = self.watcher.lost, lost
        if lost > before:
            total = self._loop.facts.num_blocks
            sentence = f"nobody runs or waits, and {lost} of {total} blocks are not free"
            self._tell([self._memory.finding("LEAK", sentence)])

    def _tell(self, found: Sequence[LiveFinding]) -> None:
        action = "raised" if self.watcher.settings.mode == "raise" else "logged"
        self.watcher.report(found, [action] * len(found))

    def _tokens_of(self, finding: LiveFinding) -> dict[str, Any]:
        known = self._memory.requests.get(finding.request_id or "")
        end = None if finding.position is None else finding.position + 1
        is_known = known is not None and end is not None
        wanted = list(known.tokens[:end]) if known is not None and is_known else None
        return {"reader": finding.request_id, "writer": None, "wanted": wanted}

    def _describe(self, item: tuple[int, LoopStep]) -> dict[str, Any]:
        """A line of `steps.jsonl`."""
        number, step = item
        return {
            "step": number,
            "computed": [
                {
                    "request": self._name(planned.request_id),
                    "first": planned.first,
                    "count": planned.count,
                    "drafts": 0,
                    "blocks": [list(table) for table in planned.tables],
                    "replaced": True,
                    "digest": self._memory.digest_at(
                        planned.request_id, planned.first + planned.count
                    ),
                }
                for planned in step.requests
            ],
            "copies": [list(copy) for copy in step.copies],
            "ended": [self._name(request_id) for request_id in step.ended],
        }

    def _name(self, request_id: str) -> str:
        return request_name(self._digests.name(request_id))


def _rows(facts: LoopFacts) -> Iterator[dict[str, Any]]:
    for group, size in zip(facts.groups, facts.block_sizes, strict=True):
        kind, window = (group.kind, group.window) if group else (None, 0)
        yield {"kind": kind, "spec": kind, "block_size": size, "window": window}
