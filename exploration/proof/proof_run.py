"""One run of the proof: every condition discharged, decided again, and the proof itself checked.

Z3 works in this process. The second solver and the checks of the proof (planted bugs, vacuity) run
beside it in two others, since each of them takes longer than the proof.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.all_planted import PLANTED
from poolproof.exploration.proof.conditions import conditions
from poolproof.exploration.proof.finite_search import SCOPES, FiniteSearch
from poolproof.exploration.proof.model import Model
from poolproof.exploration.proof.planted import catch
from poolproof.exploration.proof.pool_bridge import BridgeError, PoolScope, compare_pool, profiles
from poolproof.exploration.proof.prover import Discharge, discharge
from poolproof.exploration.proof.queue_bridge import LinkedQueue, compare_queue
from poolproof.exploration.proof.second_solver import SecondOpinion, decide_again
from poolproof.exploration.proof.step_table import StepTable, step_table
from poolproof.exploration.proof.vacuity import Vacuity, vacuity

__all__ = [
    "Bridge",
    "CaughtBug",
    "FailedStep",
    "ProofChecks",
    "ProofRun",
    "discharge_all",
    "run_proof",
    "smt_file_name",
]

_TEXTS_A_TASK = 60


@dataclass(frozen=True)
class FailedStep:
    """A condition that was not proved, and where there is one, the step that shows why."""

    discharge: Discharge
    counterexample: StepTable | None


@dataclass(frozen=True)
class CaughtBug:
    """A planted bug as plain values; `counterexample` is None when it got through."""

    name: str
    model: str
    action: str
    invariant: str
    sentence: str
    thread: str
    broken: tuple[str, ...]
    counterexample: StepTable | None


@dataclass(frozen=True)
class ProofChecks:
    """Of one model: the planted bugs, and whether actions happen and invariants are needed."""

    bugs: tuple[CaughtBug, ...]
    vacuity: Vacuity


@dataclass(frozen=True)
class Bridge:
    """How many (state, step) were compared with what runs; `difference` says where they differ."""

    num_pool_steps: int = 0
    num_queue_steps: int = 0
    difference: str = ""


@dataclass(frozen=True)
class ProofRun:
    """What came of a run. `opinions` are in the order of `discharges`, empty without cvc5."""

    discharges: tuple[Discharge, ...]
    failed: tuple[FailedStep, ...]
    opinions: tuple[SecondOpinion, ...]
    checks: tuple[ProofChecks, ...]
    bridge: Bridge

    @property
    def bugs(self) -> tuple[CaughtBug, ...]:
        """All planted bugs, in their order."""
        return tuple(bug for checks in self.checks for bug in checks.bugs)

    @property
    def disagreements(self) -> tuple[tuple[Discharge, SecondOpinion], ...]:
        """What the second solver did not confirm."""
        pairs = zip(self.discharges, self.opinions, strict=False)
        return tuple((d, o) for d, o in pairs if d.verdict == "proved" and o.answer != "unsat")

    @property
    def vacuous(self) -> tuple[str, ...]:
        """Sentences about actions that never happen and invariants that nothing rests on."""
        found = []
        for checks in self.checks:
            name = checks.vacuity.model
            found += [f"{name}: {action} never happens" for action in checks.vacuity.never_enabled]
            found += [
                f"{name}: nothing rests on {need.invariant}"
                for need in checks.vacuity.needs
                if not need.is_needed
            ]
        return tuple(found)

    @property
    def exit_status(self) -> int:
        """0 proved; 1 refuted, by a solver or the bridge; 2 not decided, or too little shown."""
        if any(failed.discharge.verdict == "refuted" for failed in self.failed):
            return 1
        if any(opinion.answer == "sat" for _, opinion in self.disagreements):
            return 1
        if self.bridge.difference:
            return 1
        missed = any(bug.counterexample is None for bug in self.bugs)
        return 2 if self.failed or self.disagreements or self.vacuous or missed else 0


def run_proof(
    timeout_s: float,
    make_queue: Callable[[int], LinkedQueue],
    *,
    with_second_solver: bool,
    heard: Callable[[Discharge], None] = lambda _: None,
) -> ProofRun:
    """Prove all models. `heard` is told of each condition as it is decided.

    `make_queue` is the linked list that the queue's model is compared with; other processes import
    it by its name.
    """
    # Forked children would inherit a solver in the middle of its work.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        asked: list[Future[list[SecondOpinion]]] = []
        checks = [pool.submit(check_proof_of, name) for name in MODELS]
        bridge = pool.submit(compare_with_what_runs, make_queue)
        discharges = list(discharge_all(MODELS.values(), timeout_s, heard))
        if with_second_solver:
            texts = [found.smt_lib for found in discharges]
            for start in range(0, len(texts), _TEXTS_A_TASK):
                part = texts[start : start + _TEXTS_A_TASK]
                asked.append(pool.submit(decide_again, part, timeout_s))
        failed = tuple(
            FailedStep(found, counterexample(MODELS[found.condition.model], found))
            for found in discharges
            if found.verdict != "proved"
        )
        return ProofRun(
            tuple(discharges),
            failed,
            tuple(opinion for part in asked for opinion in part.result()),
            tuple(check.result() for check in checks),
            bridge.result(),
        )


def discharge_all(
    models: Iterable[Model], timeout_s: float, heard: Callable[[Discharge], None] = lambda _: None
) -> Iterable[Discharge]:
    """Z3's answers to all conditions of these models."""
    for model in models:
        for condition in conditions(model):
            found = discharge(condition, timeout_s)
            heard(found)
            yield found


def counterexample(model: Model, found: Discharge) -> StepTable | None:
    """A step in a small pool after which the condition does not hold; None where there is none."""
    steps = [action for action in model.actions if action.name == found.condition.step]
    for scope in range(len(SCOPES) if steps else 0):
        step = FiniteSearch(model, steps[0], scope).counterexample([found.condition.name])
        if step is not None:
            return step_table(step)
    return None


def check_proof_of(name: str) -> ProofChecks:
    """The planted bugs of a model, and its vacuity. Runs in a process of its own."""
    caught = [catch(planted) for planted in PLANTED if planted.model == name]
    bugs = tuple(
        CaughtBug(
            found.planted.name,
            found.planted.model,
            found.planted.action,
            found.planted.invariant,
            found.planted.sentence,
            found.planted.thread,
            found.broken,
            None if found.example is None else step_table(found.example),
        )
        for found in caught
    )
    return ProofChecks(bugs, vacuity(MODELS[name], caught))


def compare_with_what_runs(make_queue: Callable[[int], LinkedQueue]) -> Bridge:
    """The bridge at sizes that take half a second. Runs in a process of its own."""
    try:
        every, null = list(profiles(has_null=False)), list(profiles(has_null=True))
        pool_steps = sum(compare_pool(PoolScope(2, 1, 2), profile) for profile in every[::5])
        pool_steps += sum(compare_pool(PoolScope(2, 1, 1), profile) for profile in every)
        pool_steps += sum(compare_pool(PoolScope(2, 1, 1, True), profile) for profile in null)
        return Bridge(pool_steps, compare_queue(3, make_queue))
    except BridgeError as error:
        return Bridge(difference=str(error))


def smt_file_name(number: int, found: Discharge) -> str:
    """A name that sorts in the order of the run and says what the file is about."""
    said = re.sub(r"[^a-z0-9]+", "-", str(found.condition).lower()).strip("-")
    return f"{number:03}-{said[:80]}.smt2"
