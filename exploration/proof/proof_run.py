"""One run of the proof: every condition discharged, decided again, and the proof itself checked.

Z3 discharges the conditions in this process, and writes each as SMT-LIB. Of that text cvc5, which
is optional and shares no code with Z3, decides the same conditions again; it is what anybody else
can check, too. A proof that proves nothing is found by planted bugs and by looking for vacuity:
actions that never happen (an action whose guard contradicts the invariants preserves everything),
and invariants without use. An invariant is needed when without it, in the state before, some step
breaks another condition, or when it alone catches a planted bug; the report says which.

The second solver and the checks of the proof run in two other processes, since each of them takes
longer than the proof.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

import z3

from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.conditions import Condition, conditions
from poolproof.exploration.proof.finite_search import SCOPES, FiniteSearch
from poolproof.exploration.proof.model import Model
from poolproof.exploration.proof.planted import PLANTED, Caught, Planted, catch
from poolproof.exploration.proof.pool_bridge import BridgeError, PoolScope, compare_pool, profiles
from poolproof.exploration.proof.queue_bridge import LinkedQueue, compare_queue
from poolproof.exploration.proof.step_table import StepTable, step_table

__all__ = [
    "Bridge",
    "FailedStep",
    "ProofRun",
    "SecondOpinion",
    "decide_again",
    "discharge",
    "discharge_all",
    "run_proof",
    "smt_file_name",
    "vacuity",
]


@dataclass(frozen=True)
class Discharge:
    """What a solver said of a condition: `proved`, `refuted`, or `unknown` with a reason."""

    condition: Condition
    verdict: str
    reason: str
    duration_s: float
    smt_lib: str


def discharge(condition: Condition, timeout_s: float) -> Discharge:
    """Ask Z3 whether the hypotheses hold without the goal anywhere."""
    solver = z3.Solver()
    solver.set("timeout", max(1, round(1000 * timeout_s)))
    solver.add(*condition.hypotheses)
    solver.add(z3.Not(condition.goal))
    began_s = time.perf_counter()
    answer = solver.check()
    duration_s = time.perf_counter() - began_s
    verdict = {"unsat": "proved", "sat": "refuted"}.get(str(answer), "unknown")
    reason = solver.reason_unknown() if verdict == "unknown" else ""
    text = f"; {condition}\n; unsat means proved\n(set-logic ALL)\n{solver.to_smt2()}"
    return Discharge(condition, verdict, reason, duration_s, text)


@dataclass(frozen=True)
class SecondOpinion:
    """The answer to one text: `unsat`, `sat`, `unknown`, or the solver's complaint."""

    answer: str
    duration_s: float


def decide_again(texts: Sequence[str], timeout_s: float) -> list[SecondOpinion]:
    """cvc5's answers to SMT-LIB texts, in their order."""
    return [_decide(text, timeout_s) for text in texts]


def _decide(text: str, timeout_s: float) -> SecondOpinion:
    """The answer; where instances found by matching are not enough, more are enumerated."""
    opinion = _ask(text, timeout_s, {})
    if opinion.answer.startswith("unknown"):
        opinion = _ask(text, timeout_s, {"full-saturate-quant": "true"})
    return opinion


def _ask(text: str, timeout_s: float, options: Mapping[str, str]) -> SecondOpinion:
    import cvc5

    solver = cvc5.Solver(cvc5.TermManager())
    for name, value in options.items():
        solver.setOption(name, value)
    solver.setOption("tlimit-per", str(max(1, round(1000 * timeout_s))))
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "condition")
    symbols = parser.getSymbolManager()
    began_s = time.perf_counter()
    said = ""
    while not (command := parser.nextCommand()).isNull():
        said += command.invoke(solver, symbols)
    return SecondOpinion(said.strip() or "no answer", time.perf_counter() - began_s)


@dataclass(frozen=True)
class InvariantNeed:
    """Why an invariant is needed: a step that no longer holds without it, or bugs it alone sees."""

    invariant: str
    step: str = ""
    alone_catches: tuple[str, ...] = ()

    @property
    def is_needed(self) -> bool:
        """Whether anything was found that rests on it."""
        return bool(self.step or self.alone_catches)


@dataclass(frozen=True)
class Vacuity:
    """For a model: actions that no state under the invariants enables, and each invariant's use."""

    model: str
    num_actions: int
    never_enabled: tuple[str, ...]
    needs: tuple[InvariantNeed, ...]


def vacuity(model: Model, caught: Sequence[Caught] = ()) -> Vacuity:
    """Whether every action is enabled, and every invariant needed, by a bug caught or a step."""
    steps = dict.fromkeys(model.invariants, "")
    alone: dict[str, tuple[str, ...]] = {}
    idle = {action.name for action in model.actions}
    for scope in range(len(SCOPES)):
        for action in model.actions:
            open_names = [name for name, step in steps.items() if not step and name not in alone]
            if action.name in idle or open_names:
                search = FiniteSearch(model, action, scope)
                if action.name in idle and search.is_enabled():
                    idle.remove(action.name)
                steps |= {name: _rests_on(search, name) for name in open_names}
        for name in [name for name, step in steps.items() if not step]:
            alone |= _sees_alone(name, model, caught)
    needs = tuple(InvariantNeed(name, step, alone.get(name, ())) for name, step in steps.items())
    return Vacuity(model.name, len(model.actions), tuple(sorted(idle)), needs)


def _rests_on(search: FiniteSearch, name: str) -> str:
    """The first other condition that the step breaks without this invariant before it."""
    others = [goal for goal in search.goals if goal != name]
    step = search.counterexample(others, without=[name]) if others else None
    if step is None:
        return ""
    broken = [goal for goal in step.broken if goal in others]
    return f"{search.action.name}: {broken[0]}"


def _sees_alone(name: str, model: Model, caught: Iterable[Caught]) -> dict[str, tuple[str, ...]]:
    """The first planted bug that breaks this condition and, in a larger scope too, no other."""
    for found in caught:
        planted = found.planted
        if planted.model == model.name and found.broken == (name,) and _breaks_only(planted, name):
            return {name: (planted.name,)}
    return {}


def _breaks_only(planted: Planted, name: str) -> bool:
    search = FiniteSearch(MODELS[planted.model], planted.wrong_action(), scope=1)
    return not search.breaks([goal for goal in search.goals if goal != name])


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
