"""Certifies an unfinished allocator: one thing to do next, in a helpful order, and nothing else.

If methods of a class still raise NotImplementedError, a few runs show which of them are reached and
what is wrong in the written part. The learner first corrects that, then writes the next method.
Without this, a learner would meet a wall of findings that all mean "not written yet".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from poolproof.certification.certificate import StageOutcome, StageResult
from poolproof.certification.driving import Driving
from poolproof.certification.jobs import campaign_of
from poolproof.certification.levels import LEVELS
from poolproof.certification.run_kinds import Chunk, RunKind
from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon, Finished
from poolproof.invariants.catalogue import STATEMENTS
from poolproof.targets.target import Target

__all__ = ["UNFINISHED", "FirstLook", "first_look", "lead_on"]

UNFINISHED = "unfinished, first look"
"""The one stage of a certification whose target raises NotImplementedError; its note says what to
do next.
"""

_RUNS = 40
_FIRST = ("CRASH", "I1", "OWN", "I2", "LINK", "I3", "IDX", "DATA", "I4", "ADM", "ATOM", "ORD")
"""In which order broken invariants are put right; those that are not named come last."""


@dataclass(slots=True)
class FirstLook:
    """What a few runs met: the shortest trace to each unwritten method, and to each broken promise.

    Misuse is left for the finished allocator: the code that must refuse it is not written yet.
    """

    num_steps: int = 0
    unwritten: dict[str, Trace] = field(default_factory=dict)
    broken: dict[str, Trace] = field(default_factory=dict)


def first_look(target: Target, chunk: Chunk, beacon: Beacon) -> FirstLook:
    """The job: a chunk of runs, sorted by what ended them."""
    look = FirstLook()
    campaign = campaign_of(target, chunk)
    for number in chunk.numbers:
        beacon.mark(number + 1)
        run = campaign.run(number, beacon.bump)
        look.num_steps += run.num_steps
        if run.trace is None or run.trace.violation is None:
            continue
        violation = run.trace.violation
        if "NotImplementedError" in violation.sentence:
            _keep_shortest(look.unwritten, _method_of(run.trace), run.trace)
        elif violation.invariant != "MISUSE":
            _keep_shortest(look.broken, violation.invariant, run.trace)
    return look


def lead_on(driving: Driving, kinds: Sequence[RunKind], seed: int) -> bool:
    """Say what comes next for an allocator that may be unfinished; return whether it is."""
    for kind in kinds:
        outcome = driving.one(first_look, Chunk(kind, seed, 0, _RUNS))
        if not isinstance(outcome, Finished):
            return False  # a hang or a crash is met again by the stages, which say all of it
        look: FirstLook = outcome.value
        if look.unwritten:
            _tell(driving, kind.level, look)
            return True
    return False


def _tell(driving: Driving, level: Level, look: FirstLook) -> None:
    later = set(look.unwritten)
    if look.broken:
        order = [*_FIRST, *look.broken]
        first = min(look.broken, key=order.index)
        driving.collector.add(UNFINISHED, look.broken[first])
        todo = f"put {first} right before you go on: {STATEMENTS[first]}"
    else:
        lesson = LEVELS[level].lesson_for(later)
        later.remove(lesson.method)
        driving.collector.add(UNFINISHED, look.unwritten[lesson.method])
        todo = lesson.sentence
    if later:
        todo += f"; not written yet: {', '.join(sorted(later))}"
    driving.stages.append(
        StageResult(
            level=level,
            stage=UNFINISHED,
            outcome=StageOutcome.REFUSED,
            steps=look.num_steps,
            runs=_RUNS,
            note=todo,
        )
    )


def _method_of(trace: Trace) -> str:
    """The unwritten method: the innermost frame of the target's, else that of the last command."""
    assert trace.violation is not None
    if trace.violation.frames:
        return trace.violation.frames[0].rpartition(" ")[2]
    verb = trace.commands[-1].verb
    return LEVELS[trace.level].method_of(verb)


def _keep_shortest(kept: dict[str, Trace], name: str, trace: Trace) -> None:
    known = kept.get(name)
    if known is None or len(trace.commands) < len(known.commands):
        kept[name] = trace
