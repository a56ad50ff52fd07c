"""From failing traces to findings: minimised, confirmed to be short, named, each once.

Many runs and several drivers meet the same bug. Each trace is minimised; then a breadth-first
search looks for a shorter one and, if it gets that far, replaces it by the first of the shortest,
so that the fingerprint does not depend on which run found it.

A finding also says which public bugs it is like. Every planted public bug has its forms in
`bug_forms.json`: what its minimised traces do, and what they show. A finding is like a bug only if
both are the same and the bug can act under the profile of the finding. Otherwise nothing is said:
a wrong hint costs more than none. The file is written by tests/bugs/make_golden.py, from the
traces that it minimises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.specimen import ManagerSpecimen, Specimen
from poolproof.certification.consequence import (
    Consequence,
    ReadSearch,
    consequence_of,
    fears_wrong_data,
    read_name,
    search_read,
    shorten_read,
)
from poolproof.certification.finding import Finding, PublicBug
from poolproof.certification.finding_groups import are_one_bug, grouped
from poolproof.certification.jobs import (
    Shrink,
    make_for,
    replay_trace,
    shrink_trace,
    try_hash_lengths,
    watch_trace,
)
from poolproof.certification.levels import LEVELS
from poolproof.certification.levels.certified_level import Wanted
from poolproof.contract.command_json import command_to_json
from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import CHAIN_VERBS
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.exploration.shortest import (
    ShortestResult,
)
from poolproof.fuzz.symptom import symptom_of
from poolproof.harness.failure_kind import FailureKind, failure_kind
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.hash_lengths import length_of_hashes
from poolproof.harness.isolation import Finished, Job, Lost
from poolproof.targets.target import Target

__all__ = ["FORMS", "FindingCollector", "Search", "form_of", "public_bugs_like", "search_shortest"]


FORMS = Path(__file__).with_name("bug_forms.json")

_MOST = 3
"""A form that more bugs share tells nothing about its cause."""

_MANY = 3
"""Counts and lists from here on are alike; below, none, one and two are different operations."""


def public_bugs_like(trace: Trace) -> tuple[Specimen | ManagerSpecimen, ...]:
    """The planted public bugs that a minimised trace is like, in the order of the catalogue."""
    if trace.violation is None or trace.violation.invariant == "CRASH":
        return ()  # there are as many reasons for a crash as there are programs
    form, forms = form_of(trace), _recorded_forms()
    specimens = MANAGER_SPECIMENS if trace.level.has_sequences else SPECIMENS
    alike = tuple(
        specimen
        for specimen in specimens.values()
        if specimen.thread
        and specimen.level == trace.level
        and form in forms.get(specimen.id, ())
        and _acts_under(specimen, trace.profile)
    )
    return alike if len(alike) <= _MOST else ()


def form_of(trace: Trace) -> str:
    """What a trace does and shows, whichever blocks, hashes, sequences and tokens it names."""
    steps = _manager_steps(trace) if trace.level.has_layouts else _pool_steps(trace)
    caching = "" if trace.enable_caching else "caching off | "
    return f"{caching}{'; '.join(steps)} | {symptom_of(trace)}"


def _acts_under(specimen: Specimen | ManagerSpecimen, profile: Profile) -> bool:
    """Whether the bug is one under the profile, which has the rows that it was stated for."""
    if isinstance(specimen, ManagerSpecimen):
        if not isinstance(profile, ManagerProfile) or not specimen.is_bug_under(profile):
            return False
        if [g.kind for g in profile.groups] != [g.kind for g in specimen.profile.groups]:
            return False
    elif not specimen.is_bug_under(profile):
        return False
    stated, usual = specimen.profile.to_json(), type(specimen.profile)().to_json()
    shown = profile.to_json()
    rows = (row for row, value in stated.items() if value != usual[row] and row != "groups")
    return all(_agree(row, stated[row], shown[row]) for row in rows)


def _agree(row: str, stated: Any, shown: Any) -> bool:
    """Which block is the null block, and how large a reserve is, makes no other bug."""
    if row == "null_block":
        return (stated is None) == (shown is None)
    if isinstance(stated, int) and isinstance(shown, int):
        return bool(stated) == bool(shown)
    return bool(stated == shown)


@lru_cache(maxsize=1)
def _recorded_forms() -> Mapping[str, frozenset[str]]:
    recorded = json.loads(FORMS.read_text(encoding="utf-8"))
    return {specimen_id: frozenset(forms) for specimen_id, forms in recorded.items()}


def _pool_steps(trace: Trace) -> Iterator[str]:
    """Each command with its blocks and hashes renamed in the order in which they appear."""
    names: dict[str, int] = {}

    def renamed(kind: str, values: Any) -> str:
        values = values if isinstance(values, list) else [values]
        numbers = [names.setdefault(f"{kind} {json.dumps(v)}", len(names)) for v in values]
        shown = " ".join(map(str, numbers[: _MANY - 1]))
        return shown if len(numbers) < _MANY else f"{shown} .. of many"

    for command in trace.commands:
        record = command_to_json(command)
        words = [record.pop("do")]
        for field, value in sorted(record.items()):
            if field in {"block_ids", "block_id"}:
                words.append(renamed("block", value))
            elif field in {"hashes", "block_hash", "chain"}:
                words.append(renamed("content", value))
            elif isinstance(value, int):
                words.append(str(value) if value < _MANY else "many")
        yield " ".join(words)


def _manager_steps(trace: Trace) -> Iterator[str]:
    """Each command with its sequences renamed, and with what its prompt has besides tokens."""
    names: dict[int, int] = {}
    for command in trace.commands:
        fields = ("seq_id", "child_id", "request_id")
        sequences = [getattr(command, f) for f in fields if hasattr(command, f)]
        words = [command.verb, *(str(names.setdefault(s, len(names))) for s in sequences)]
        chain = getattr(command, "chain", None)
        if isinstance(chain, TokenChain):
            words += ["with an adapter"] if chain.lora else []
            words += ["with a salt"] if chain.salt is not None else []
            words += ["with an image"] if chain.images else []
        yield " ".join(words)


A = TypeVar("A")
R = TypeVar("R")

APPLIED_FOR_A_STATE = 300
MOST_APPLIED = 5_000_000
"""What the search may apply; pools whose states merge take some 100 commands a state."""


@dataclass(frozen=True, slots=True)
class Search:
    """A minimised trace to find a shorter form of."""

    trace: Trace
    max_states: int

    @property
    def max_applied(self) -> int:
        """Commands that it may apply in all, those on the way to a state included."""
        return min(APPLIED_FOR_A_STATE * self.max_states, MOST_APPLIED)


class Bumped(Protocol):
    """Is told of each try, like a beacon."""

    def bump(self) -> None: ...


def search_shortest(target: Target, task: Search, beacon: Bumped) -> ShortestResult:
    """Breadth-first search up to the length of the trace, on as many blocks as the trace has."""
    trace = task.trace
    assert trace.violation is not None
    kind = failure_kind(trace.violation, trace.commands)
    build = make_for(target, trace)

    def is_wanted(violation: Violation, commands: tuple[Command, ...]) -> bool:
        # Another kind is not the same finding: an accepted one must not hide it.
        return failure_kind(violation, commands) == kind

    def make(num_blocks: int, enable_caching: bool) -> Any:
        beacon.bump()  # every try builds a fresh target
        return build(num_blocks, enable_caching)

    wanted = Wanted(len(trace.commands), task.max_states, task.max_applied, is_wanted)
    return LEVELS[trace.level].shortest(trace, make, wanted)


class RunsOne(Protocol):
    """Runs one job in a worker that holds the target."""

    def __call__(self, job: Job[Target, A, R], argument: A, /) -> Finished[R] | Lost:
        """Return the outcome; raise what the job raised."""
        ...


class FindingCollector:
    """Collects findings by fingerprint.

    `run` runs the jobs. `minimise_apart(trace, lost)` minimises a trace some candidates of which
    cost the worker. `options` are added to the options of every trace.
    """

    def __init__(
        self,
        run: RunsOne,
        minimise_apart: Callable[[Trace, Lost], Trace],
        shortest_states: int,
        options: Mapping[str, Any],
    ) -> None:
        self._run = run
        self._minimise_apart = minimise_apart
        self._shortest_states = shortest_states
        self._options = options
        self._findings: dict[str, Finding] = {}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """A finding for each bug: the worst first, then the shortest, misuse last."""
        return grouped(self._findings.values())

    @property
    def kinds(self) -> frozenset[FailureKind]:
        """The kinds of everything that was found."""
        return frozenset(finding.kind for finding in self._findings.values())

    def kinds_of(self, level: Level) -> frozenset[FailureKind]:
        """The kinds of everything that was found at a level."""
        found = self._findings.values()
        return frozenset(finding.kind for finding in found if finding.trace.level == level)

    def add(self, stage: str, trace: Trace, runs_seen: int = 1) -> None:
        """Add a failing trace that a stage met."""
        assert trace.violation is not None
        minimal = self._without_chains(self._minimised(trace))
        assert minimal.violation is not None
        shortest_known = ""
        if minimal.violation.invariant != "CRASH" or minimal.commands:
            minimal, shortest_known = self._shortest(minimal)
        assert minimal.violation is not None
        fingerprint = fingerprint_of(minimal)
        if fingerprint in self._findings:
            self._seen_again(fingerprint, stage, runs_seen)
            return
        finding = Finding(
            fingerprint=fingerprint,
            violation=minimal.violation,
            trace=self._finished(self._watched(minimal), fingerprint),
            stages=(stage,),
            first_seen_steps=len(trace.commands),
            runs_seen=runs_seen,
            shortest_known=shortest_known,
            similar=_similar(minimal),
            ruled_out=_ruled_out(minimal),
            remark=_remark(minimal) or self._about_hash_lengths(minimal),
        )
        consequence = self._consequence(finding, minimal, trace)
        self._findings[fingerprint] = replace(finding, consequence=consequence)

    def add_lost(self, stage: str, trace: Trace) -> None:
        """Add a trace that cost its worker and has been minimised as far as is affordable."""
        assert trace.violation is not None
        fingerprint = fingerprint_of(trace)
        if fingerprint in self._findings:
            self._seen_again(fingerprint, stage, 1)
            return
        self._findings[fingerprint] = Finding(
            fingerprint=fingerprint,
            violation=trace.violation,
            trace=self._finished(trace, fingerprint),
            stages=(stage,),
            first_seen_steps=len(trace.commands),
            similar=_similar(trace),
            shortest_known="minimised in few attempts, each in a worker of its own",
        )

    def _seen_again(self, fingerprint: str, stage: str, runs_seen: int) -> None:
        known = self._findings[fingerprint]
        stages = tuple(dict.fromkeys((*known.stages, stage)))
        runs_seen += known.runs_seen
        self._findings[fingerprint] = replace(known, stages=stages, runs_seen=runs_seen)

    def _finished(self, trace: Trace, fingerprint: str) -> Trace:
        options = {**trace.options, **self._options}
        return replace(trace, fingerprint=fingerprint, options=options)

    def _watched(self, trace: Trace) -> Trace:
        """The trace with what the target showed; unchanged if that is not available."""
        if not trace.level.has_layouts:
            return trace
        outcome = self._run(watch_trace, trace)
        return replace(trace, shown=outcome.value.shown) if isinstance(outcome, Finished) else trace

    def _consequence(self, finding: Finding, minimal: Trace, found: Trace) -> Consequence | None:
        """What a manager's finding leads to; None for what fears no wrong data, or is its read."""
        if not (minimal.level.has_sequences and fears_wrong_data(minimal)):
            return None
        is_further = any(are_one_bug(finding, other) for other in self._findings.values())
        task = ReadSearch(minimal, found, is_further)
        consequence = consequence_of(task, self._run(search_read, task))
        if consequence.trace is None:
            return consequence
        shorter = self._run(shorten_read, (minimal, consequence.trace))
        trace = shorter.value if isinstance(shorter, Finished) else consequence.trace
        assert trace.violation is not None
        return replace(
            consequence,
            severity=trace.violation.severity,
            trace=self._finished(trace, read_name(finding.fingerprint)),
        )

    def _minimised(self, trace: Trace) -> Trace:
        outcome = self._run(shrink_trace, Shrink(trace))
        if not isinstance(outcome, Finished):
            return self._minimise_apart(trace, outcome)
        minimal = outcome.value
        # Where it does not fail again when it is run alone, it is reported as it was seen.
        return trace if minimal.violation is None else minimal

    def _about_hash_lengths(self, trace: Trace) -> str:
        """How to declare that hashes have one length, if the target raised only because of that."""
        assert trace.violation is not None
        length = length_of_hashes(trace)
        if trace.violation.invariant != "CRASH" or length is None:
            return ""
        outcome = self._run(try_hash_lengths, trace)
        passing = outcome.value if isinstance(outcome, Finished) else ()
        if not passing:
            return ""
        declared = passing[0] if len(passing) == 1 else "N"
        *first, last = map(str, passing)
        lengths = f"{', '.join(first)} or {last}" if first else last
        return (
            f"with hashes of {lengths} bytes instead of {length} the same commands pass; "
            "a pool or index whose hashes all have one length says so in its profile: "
            f"hash_bytes={declared}"
        )

    def _without_chains(self, trace: Trace) -> Trace:
        """A trace that met a bug of plain commands on the way with token chains, in plain form."""
        if (
            trace.level.has_layouts
            or trace.options.get("block_size", 1) == 1
            or any(command.verb in (*CHAIN_VERBS, "lookup") for command in trace.commands)
        ):
            return trace
        plain = replace(trace, options={**trace.options, "block_size": 1})
        outcome = self._run(replay_trace, plain)
        again = outcome.value.violation if isinstance(outcome, Finished) else None
        return trace if again is None else replace(plain, violation=again)

    def _shortest(self, trace: Trace) -> tuple[Trace, str]:
        """The first of the shortest traces if the search gets there, and what is known."""
        level = LEVELS[trace.level]
        why_not = level.why_not_searched(trace)
        if why_not is not None:
            return trace, f"minimised by delta debugging; {why_not}"
        states = self._shortest_states // level.share_of_states
        outcome = self._run(search_shortest, Search(trace, states))
        if not isinstance(outcome, Finished):
            return trace, "minimised by delta debugging; the breadth-first search lost its worker"
        found = outcome.value
        assert trace.violation is not None
        if found.commands is None or found.violation is None:
            return (
                trace,
                f"breadth-first to length {found.depth}: none shorter, {level.search_grammar}",
            )
        shorter = replace(trace, commands=found.commands, violation=found.violation)
        return shorter, f"breadth-first: no shorter trace fails in this way, {level.search_grammar}"


def _remark(trace: Trace) -> str:
    """What to do where the finding follows from a row of the profile that was only assumed."""
    assert trace.violation is not None
    if trace.violation.invariant == "MISUSE" and "misuse" in trace.profile.assumed:
        return (
            "misuse=raises was assumed; declare misuse='undefined' in the profile if the pool "
            "promises nothing about misuse"
        )
    return ""


def _similar(trace: Trace) -> tuple[PublicBug, ...]:
    """The public bugs whose traces do and show the same."""
    return tuple(PublicBug(found.id, found.thread) for found in public_bugs_like(trace))


def _ruled_out(trace: Trace) -> tuple[str, ...]:
    """Legal behaviour that looks like the finding and was not taken for it."""
    assert trace.violation is not None
    profile = trace.profile
    ruled_out = {
        "IDX": [f"another carrier of the same hash (duplicates={profile.duplicates})"],
        "I4": ["a dropped cache entry (retention=exact)"] if profile.retention == "exact" else [],
        "LEAK": ["blocks that the prefix cache keeps: reclaimable, counted apart"],
        "OWN": ["the null block's own count"] if profile.null_block is not None else [],
        "ADM": ["a refusal for want of free blocks"],
        "EVT": [f"the rule for several copies (events={profile.events})"],
    }
    return tuple(ruled_out.get(trace.violation.invariant, []))
