"""What of a recording a finding needs: the steps that led to it, made small.

Each request's life is kept with those on whose blocks it was built, as long as somebody can still
read one of them. When the finding comes, whatever it was not built on is left out; then requests,
parts and moves are dropped, and parts of one request joined, while the oracle goes on to find the
same.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

from poolproof.certification.audit import Audit, AuditFinding, findings_in, oracle_for
from poolproof.certification.engine_watch import watch_engine
from poolproof.contract.recording import (
    RecordingError,
    RecordingHeader,
    RecordingWriter,
    StepRecording,
    open_recording,
)
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.contract.trace import Trace, write_trace
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.targets.load import load_target
from poolproof.targets.played_recording import recorded_trace

__all__ = ["story_of", "write_story"]

MOST_WORK = 5_000_000
"""Positions that the oracle follows while a story is made small: some ten seconds."""


@dataclass(slots=True, eq=False)
class _Part:
    """One part of a life, with as much of the life's tables as there was then."""

    step: int
    part: ComputedTokens
    tables: list[list[int]]
    lengths: tuple[int, ...]

    def whole(self) -> ComputedTokens:
        """The part with its whole tables, which says the same whatever came before."""
        tables = (t[:n] for t, n in zip(self.tables, self.lengths, strict=True))
        return replace(self.part, blocks=tuple(map(tuple, tables)), replaced=True)


@dataclass(slots=True, eq=False)
class _Node:
    """Something that put KV into blocks: a request's life, or one move between blocks or places."""

    parts: list[_Part] = field(default_factory=list)
    move: tuple[int, str, tuple[int, int]] | None = None
    built_on: set[_Node] = field(default_factory=set)


class _Lives:
    """Who put into each block what stands there, step after step."""

    def __init__(self, header: RecordingHeader) -> None:
        self._header = header
        self._blocks: dict[int, set[_Node]] = {}
        self._places: dict[int, set[_Node]] = {}
        self._live: dict[str, _Node] = {}

    def follow(self, step: StepRecord) -> None:
        """What a step moves and computes."""
        for request_id in step.ended:
            self._live.pop(request_id, None)
        moved = [(b, self._moved(step, "copies", (a, b), self._blocks)) for a, b in step.copies]
        moved += [(b, self._moved(step, "loads", (p, b), self._places)) for b, p in step.loads]
        self._blocks.update(moved)
        nodes = [(part, self._computed(step.number, part)) for part in step.computed]
        for part, node in nodes:
            if len(node.parts) == 1 or part.replaced:
                for block in self._read(node.parts[-1]):
                    node.built_on |= self._blocks.get(block, set()) - {node}
        self._places.update(
            [(p, self._moved(step, "stores", (b, p), self._blocks)) for b, p in step.stores]
        )

    def needed(self, finding: AuditFinding) -> list[StepRecord]:
        """The steps of all that the reader, and who wrote what it read, were built on."""
        begin = {self._live[str(finding.reader)], *self._blocks.get(finding.block or 0, ())}
        met, left = set(begin), list(begin)
        while left:
            new = left.pop().built_on - met
            met |= new
            left += new
        steps: dict[int, StepRecord] = {}
        for node in met:
            for part in node.parts:
                if part.step <= finding.step:
                    _add(steps, part.step, computed=(part.whole(),))
            if node.move is not None:
                number, kind, pair = node.move
                _add(steps, number, **{kind: (pair,)})
        return [steps[number] for number in sorted(steps)]

    def _moved(
        self, step: StepRecord, kind: str, pair: tuple[int, int], origin: dict[int, set[_Node]]
    ) -> set[_Node]:
        """`pair` is (from, to); a record has (block, place) both ways."""
        source, target = pair
        told = (target, source) if kind == "loads" else pair
        node = _Node(move=(step.number, kind, told), built_on=set(origin.get(source, ())))
        return {node}

    def _computed(self, number: int, part: ComputedTokens) -> _Node:
        node = self._live.get(part.request_id)
        if node is None:
            node = self._live[part.request_id] = _Node()
        if not node.parts or part.replaced:
            tables = [list(table) for table in part.blocks]
        else:
            tables = node.parts[-1].tables
            for table, blocks in zip(tables, part.blocks, strict=False):
                table.extend(blocks)
        node.parts.append(_Part(number, part, tables, tuple(map(len, tables))))
        end = part.first + part.count
        for table, size in zip(tables, self._header.block_sizes, strict=True):
            for entry in range(part.first // size, -(-end // size)):
                block = table[entry]
                is_whole = part.first <= entry * size
                before = set() if is_whole else self._blocks.get(block, set())
                self._blocks[block] = {*before, node}
        return node

    def _read(self, part: _Part) -> Iterator[int]:
        first = part.part.first
        for table, group in zip(part.tables, self._header.groups, strict=True):
            size = group.block_size
            yield from table[group.first_read(first) // size : -(-first // size)]


def _add(steps: dict[int, StepRecord], number: int, **more: tuple[object, ...]) -> None:
    step = steps.get(number) or StepRecord(number, ())
    values = {name: (*getattr(step, name), *value) for name, value in more.items()}
    steps[number] = replace(step, **values)  # type: ignore[arg-type]  # each is a tuple of its kind


def story_of(recording: StepRecording, finding: AuditFinding) -> list[StepRecord]:
    """The fewest steps found that lead to `finding`, which was the first one of the recording.

    Every part stands with its whole table. Empty where the finding is none of DATA, or shows only
    with what was left out.
    """
    if finding.invariant != "DATA":
        return []
    lives = _Lives(recording.header)
    for step in recording:
        lives.follow(step)
        if step.number == finding.step:
            break
    small = _Smaller(recording.header, finding)
    needed = lives.needed(finding)
    return small.of(needed) if small.shows(needed) else []


def write_story(audit: Audit, folder: Path) -> Path:
    """Write the story of the first finding, and its trace for the engine level; the trace's path.

    The story, `NAME.story.gz`, is a recording; the trace, `NAME.story.jsonl`, has it as its target.
    Raises RecordingError where there is none, saying why, and OSError.
    """
    finding = audit.findings[0]
    recording = open_recording(audit.path)
    header = recording.header
    steps = story_of(recording, finding)
    if not steps:
        raise RecordingError(_why_not(header, finding))
    name = audit.path.name.partition(".")[0]
    told, trace_path = folder / f"{name}.story.gz", folder / f"{name}.story.jsonl"
    new = told.with_name(f".{told.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    with RecordingWriter(
        new, header.num_blocks, header.groups, header.block_sizes, engine=header.engine,
        plain_ids=True,
    ) as writer:  # fmt: skip
        for step in steps:
            writer.record(step)
    new.replace(told)
    write_trace(_judged(recorded_trace(open_recording(told).header, steps, told)), trace_path)
    return trace_path


def _judged(trace: Trace) -> Trace:
    """The trace with the violation that it shows. Raises RecordingError where that is another."""
    target = load_target(trace.target)
    watched = watch_engine(trace, target.make)
    violation = watched.violation
    if violation is None or violation.invariant != "DATA":
        what = "nothing" if violation is None else f"this: {violation.sentence}"
        raise RecordingError(f"no trace: at the engine level the finding's steps show {what}")
    commands = tuple(seen.command for seen in watched.seen if seen.command is not None)
    judged = replace(trace, commands=commands, violation=violation, shown=watched.shown)
    return replace(judged, fingerprint=fingerprint_of(judged))


def _why_not(header: RecordingHeader, finding: AuditFinding) -> str:
    if finding.invariant != "DATA":
        return "no trace: the engine level replays wrong reads, and this is a table that is wrong"
    if not header.is_whole:
        return "no trace: what the finding needs was computed before the recording began"
    return "no trace: the finding does not show without the rest of the recording"


class _Smaller:
    """Makes steps fewer and smaller while the last of them shows the same finding."""

    def __init__(self, header: RecordingHeader, finding: AuditFinding) -> None:
        self._header = header
        self._finding = finding
        self._work = 0

    def shows(self, steps: list[StepRecord]) -> bool:
        """Whether the first finding is the same one."""
        self._work += sum(len(part.chain.tokens) for step in steps for part in step.computed)
        first = next(findings_in(steps, oracle_for(self._header)), None)
        return first is not None and _same(first, self._finding)

    def of(self, steps: list[StepRecord]) -> list[StepRecord]:
        """The smallest found."""
        best = self._without_requests(steps)
        is_smaller = True
        while is_smaller and self._work < MOST_WORK:
            is_smaller = False
            for candidate in self._candidates(best):
                if self._work >= MOST_WORK:
                    break
                if self.shows(candidate):
                    best, is_smaller = candidate, True
                    break
        return best

    def _without_requests(self, steps: list[StepRecord]) -> list[StepRecord]:
        """Halves, quarters ... of the requests are left out."""
        left = list(dict.fromkeys(part.request_id for step in steps for part in step.computed))
        size = max(1, len(left) // 2)
        while left and self._work < MOST_WORK:
            for begin in range(0, len(left), size):
                dropped = set(left[begin : begin + size])
                candidate = _filtered(steps, lambda part, d=dropped: part.request_id not in d)
                if self.shows(candidate):
                    steps = candidate
                    left = [request_id for request_id in left if request_id not in dropped]
                    break
            else:
                if size == 1:
                    break
                size //= 2
        return steps

    def _candidates(self, steps: list[StepRecord]) -> Iterator[list[StepRecord]]:
        """One change each, those that save most first."""
        requests = dict.fromkeys(part.request_id for step in steps for part in step.computed)
        for request_id in requests:
            yield from _joined(steps, request_id)
        for step in steps:
            for part in step.computed:
                yield _filtered(steps, lambda other, p=part: other is not p)
        for number, step in enumerate(steps):
            for name in ("copies", "loads", "stores"):
                moves = getattr(step, name)
                for place in range(len(moves)):
                    fewer = replace(step, **{name: moves[:place] + moves[place + 1 :]})
                    yield _tidy([*steps[:number], fewer, *steps[number + 1 :]])


def _same(one: AuditFinding, other: AuditFinding) -> bool:
    names = ("invariant", "reader", "group", "position", "block", "slot", "writer")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _filtered(steps: Iterable[StepRecord], keeps: object) -> list[StepRecord]:
    assert callable(keeps)
    return _tidy(replace(s, computed=tuple(p for p in s.computed if keeps(p))) for s in steps)


def _tidy(steps: Iterable[StepRecord]) -> list[StepRecord]:
    return [s for s in steps if s.computed or s.copies or s.loads or s.stores]


def _joined(steps: list[StepRecord], request_id: str) -> Iterator[list[StepRecord]]:
    """Two or more parts of a request become one, at the place of the first or of the last."""
    own = [
        (number, part)
        for number, step in enumerate(steps)
        for part in step.computed
        if part.request_id == request_id
    ]
    spans = [(0, len(own))] if len(own) > 2 else []
    spans += [(0, len(own) // 2), (len(own) // 2, len(own))] if len(own) > 3 else []
    spans += [(begin, begin + 2) for begin in range(len(own) - 1)]
    for begin, end in spans:
        chosen = own[begin:end]
        joined = _one_of([part for _, part in chosen])
        if joined is not None:
            for place in (chosen[0][0], chosen[-1][0]):
                yield _with_one(steps, [part for _, part in chosen], joined, place)


def _one_of(parts: Sequence[ComputedTokens]) -> ComputedTokens | None:
    """One part that computes what these do; None where they do not follow one another."""
    for before, after in pairwise(parts):
        known, told = before.chain.tokens, after.chain.tokens
        if before.first + before.count != after.first or known != told[: len(known)]:
            return None
    last = parts[-1]
    first = parts[0].first
    return replace(last, first=first, count=last.first + last.count - first)


def _with_one(
    steps: list[StepRecord], parts: list[ComputedTokens], joined: ComputedTokens, place: int
) -> list[StepRecord]:
    changed = []
    for number, step in enumerate(steps):
        computed = tuple(
            part for part in step.computed if not any(part is other for other in parts)
        )
        if number == place:
            computed = (*computed, joined)
        changed.append(replace(step, computed=computed))
    return _tidy(changed)
