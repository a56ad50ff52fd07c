"""A recording as an engine: its plans are those that were recorded, whatever is asked of it.

So the engine level replays, draws and judges what a real scheduler did, without the scheduler. It
is made for the short stories that `poolproof audit --report` writes. Each request's whole chain
stands as its prompt, with one token more, so that nothing depends on what was sampled; where a
chain changes (rejected drafts) it goes on as another request, which finds its beginning computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import AnswerStep, Cancel, PlanStep, RunStep, Submit
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.recording import RecordingHeader, open_recording
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import EngineLayout, Target

__all__ = ["RECORDING_PREFIX", "PlayedRecording", "recorded_target", "recorded_trace"]

RECORDING_PREFIX = "recording:"
MOST_PARTS = 100_000
"""A story that is told at the engine level is kept in memory, with every table."""


@dataclass(slots=True)
class _Told:
    """A request of the story."""

    number: int
    tokens: tuple[int, ...] = ()
    tables: list[list[int]] = field(default_factory=list)
    has_ended: bool = False


@dataclass(slots=True)
class _Story:
    """Commands and plans, in step: each plan belongs to one command that plans."""

    requests: list[_Told] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    plans: list[EnginePlan] = field(default_factory=list)


class _Teller:
    """Turns steps into commands and plans, with requests and prefixes that have small numbers."""

    def __init__(self, header: RecordingHeader, steps: Sequence[StepRecord]) -> None:
        self.story = _Story()
        self._sizes = header.block_sizes
        self._current: dict[str, _Told] = {}
        self._symbols: dict[int, int] = {}
        self._num_transfers = 0
        tellings = [self._step(step) for step in steps]
        extra = len(self._symbols) + 1  # a token that is never computed, and so never sampled
        for begun, unread in tellings:
            for told in begun:
                chain = TokenChain((*told.tokens, extra))
                self.story.commands.append(Submit(told.number, chain, 1, 0))
            if unread:
                self.story.commands.append(PlanStep())
                self.story.commands += [Cancel(number) for number in unread]
                self.story.commands.append(AnswerStep(1, 0, 0))
            else:
                self.story.commands.append(RunStep(1, 0, 0))

    def most_tokens(self) -> int:
        """Tokens of the longest request, with those that it may be given."""
        return max((len(told.tokens) + 2 for told in self.story.requests), default=0)

    def _step(self, step: StepRecord) -> tuple[list[_Told], list[int]]:
        known = len(self.story.requests)
        told = [self._part(part) for part in step.computed]
        parts = tuple(
            PlannedPart(
                request.number, part.first, part.count, 0, tuple(map(tuple, request.tables))
            )
            for part, request in zip(step.computed, told, strict=True)
        )
        transfers = [self._transfer(step.loads, is_load=True)] if step.loads else []
        transfers += [self._transfer(step.stores, is_load=False)] if step.stores else []
        self.story.plans.append(EnginePlan(parts, step.copies, transfers=tuple(transfers)))
        unread = [r for r, part in zip(told, step.computed, strict=True) if not part.is_read]
        for request in unread:
            request.has_ended = True
        return self.story.requests[known:], [request.number for request in unread]

    def _part(self, part: ComputedTokens) -> _Told:
        tokens = self._named(part.chain.tokens[: part.first + part.count])
        told = self._current.get(part.request_id)
        if told is None or not self._goes_on(told, tokens):
            told = self._new(told, part)
        if part.replaced or not told.tables:
            told.tables = [list(table) for table in part.blocks]
        else:
            for table, blocks in zip(told.tables, part.blocks, strict=False):
                table.extend(blocks)
        told.tokens = max(told.tokens, tokens, key=len)
        return told

    def _new(self, before: _Told | None, part: ComputedTokens) -> _Told:
        tables = [] if before is None else [list(table) for table in before.tables]
        told = self._current[part.request_id] = _Told(len(self.story.requests), tables=tables)
        self.story.requests.append(told)
        return told

    @staticmethod
    def _goes_on(told: _Told, tokens: tuple[int, ...]) -> bool:
        both = min(len(told.tokens), len(tokens))
        return not told.has_ended and told.tokens[:both] == tokens[:both]

    def _named(self, digests: Sequence[int]) -> tuple[int, ...]:
        """A digest stands for a whole prefix, so each has a token of its own."""
        symbols = self._symbols
        return tuple(symbols.setdefault(digest, len(symbols) + 1) for digest in digests)

    def _transfer(self, pairs: Sequence[tuple[int, int]], *, is_load: bool) -> Transfer:
        self._num_transfers += 1
        blocks, places = zip(*pairs, strict=True)
        return Transfer(self._num_transfers, is_load, True, blocks, places)


class PlayedRecording:
    """A native engine that plans what was recorded; its requests are those of `recorded_trace`."""

    def __init__(self, plans: Sequence[EnginePlan]) -> None:
        self._plans = list(reversed(plans))

    def submit(self, request_id: int, tokens: list[int], **_named: Any) -> None:
        """A request comes, as it did."""

    def cancel(self, request_id: int) -> None:
        """A user has gone, as it did."""

    def plan(self) -> EnginePlan:
        """The next step of the recording; nothing is computed after the last."""
        return self._plans.pop() if self._plans else EnginePlan()

    def answer(
        self,
        tokens: dict[int, list[int]],  # noqa: ARG002 -- the contract's signature
        drafts: dict[int, list[int]],  # noqa: ARG002 -- the same
        /,
    ) -> list[tuple[int, list[int], bool]]:
        """Nobody is given anything: every token stands in a prompt."""
        return []


def recorded_trace(header: RecordingHeader, steps: Sequence[StepRecord], path: Path) -> Trace:
    """The story as a trace of the engine level; its plans are read from the recording at `path`.

    The pool has as many blocks as the engine's, or more where a request has slid over more.
    """
    teller = _Teller(header, steps)
    profile = _profile(header, teller.story)
    size = header.block_sizes[0]
    return Trace(
        f"{RECORDING_PREFIX}{path}",
        Level.ENGINE,
        profile,
        _num_blocks(header, teller.most_tokens()),
        True,
        tuple(teller.story.commands),
        target_version=header.engine or None,
        options={"block_size": size, "layout": profile.layout_name},
    )


def recorded_target(text: str, overrides: Mapping[str, Any]) -> Target:
    """The target `recording:FILE`. Raises TargetError."""
    path = Path(text.removeprefix(RECORDING_PREFIX))
    if overrides:
        raise TargetError(f"{text}: what was recorded states all rows; leave out the brackets")
    try:
        recording = open_recording(path)
        steps: list[StepRecord] = []
        num_parts = 0
        for step in recording:
            steps.append(step)
            num_parts += len(step.computed)
            if num_parts > MOST_PARTS:
                raise TargetError(
                    f"{path} has more than {MOST_PARTS:,} parts, too many to be played at the "
                    f"engine level; `poolproof audit {path} --report DIR` takes out what a "
                    "finding needs"
                )
        teller = _Teller(recording.header, steps)
        profile = _profile(recording.header, teller.story)
    except ValueError as error:
        raise TargetError(str(error)) from error
    size = recording.header.block_sizes[0]
    plans = teller.story.plans
    layout = EngineLayout(
        profile.layout_name, profile, lambda _blocks, _caching: PlayedRecording(plans), size
    )
    return manager_target(
        text,
        "native-engine",
        [layout],
        level=Level.ENGINE,
        version=recording.header.engine or None,
        source=str(path),
        real_class=PlayedRecording,
        notes=("plays the plans of a recording, whatever is asked of it",),
    )


def _profile(header: RecordingHeader, story: _Story) -> EngineProfile:
    """The least limits that the plans keep."""
    positions = [sum(part.count for part in plan.parts) for plan in story.plans]
    return EngineProfile(
        max_batch_tokens=max([1, *positions]),
        max_running=max([1, *(len(plan.parts) for plan in story.plans)]),
        groups=header.groups,
    )


def _num_blocks(header: RecordingHeader, most_tokens: int) -> int:
    needed = sum(-(-most_tokens // size) for size in header.block_sizes)
    return max(header.num_blocks, needed)
