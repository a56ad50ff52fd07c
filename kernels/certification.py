"""Certifies a kernel: its checks are jobs of `harness.isolation`, and this puts them together.

A kernel that reads wild addresses kills its process. Each check has a worker of its own, which
writes down every example before it begins; if the worker is lost, that example is the finding. The
other checks continue, and the case is made smaller afterwards, in workers that are lost in the same
way. This process needs neither torch nor triton.

The importer loads the target, and workers fork from it. On a GPU each worker loads it for itself,
because nothing that CUDA has set up survives a fork.
"""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from poolproof.contract.depth import Depth
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.harness.isolation import (
    Beacon,
    Died,
    Finished,
    Hung,
    ImporterError,
    InProcess,
    Isolation,
    Limits,
    Lost,
    raise_if_ours,
)
from poolproof.kernels.findings import (
    NOT_RUN,
    VIOLATED,
    CheckLine,
    CheckResult,
    KernelFinding,
    KernelRun,
)
from poolproof.kernels.interpreter import choose_interpreter, missing_packages

if TYPE_CHECKING:
    from poolproof.kernels.kind import Certifiable

__all__ = ["KernelJob", "Progress", "certify_kernel"]

MOST_CRASHES = 8
MOST_SMALLER_CRASHES = 24
LONGEST_HANG_S = 5.0
"""A case that hangs costs its time limit for each smaller form; above this it is left as it is."""

START_TIMEOUT_S = 600.0
NO_LIMIT_MIB = 1 << 26
"""More than any address space: CUDA and the check of 64-bit offsets map far more than they use."""

_CANARIES = "canaries"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelJob:
    """What to certify and how; plain values, no torch.

    `device` None: the GPU where there is one. `pool` is the `module:Class` of a native block pool
    for whole requests, `managers` the `module:function` that gives managers to serve requests
    under; None leaves them out. With a `case` each check runs on that case alone. `checks` names
    the checks to run; none names all. `workers` is the number of child processes at once.
    """

    target: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    depth: Depth = Depth.STANDARD
    seed: int = 0
    case_timeout_s: float = 120.0
    pool: str | None = None
    managers: str | None = None
    case: Mapping[str, Any] | None = None
    checks: tuple[str, ...] = ()
    workers: int = 1


class Progress(Protocol):
    """The part of the command line's progress that is needed here."""

    def begin(self, stage: str, total: int | None = None, unit: str = "steps") -> None: ...
    def advance(self, number: int) -> None: ...
    def end(self) -> None: ...


def certify_kernel(job: KernelJob, progress: Progress, *, in_process: bool = False) -> KernelRun:
    """The results of all checks, run in child processes unless there is no fork() or `in_process`.

    Raises TargetError when the target cannot be run.
    """
    began = time.monotonic()
    prepare = partial(_prepare, job)
    limits = Limits(job.case_timeout_s, NO_LIMIT_MIB, START_TIMEOUT_S, NO_LIMIT_MIB)
    executor: Isolation[_Bench] | InProcess[_Bench]
    if in_process or not Isolation.is_available:
        executor = InProcess(prepare)
    else:
        executor = Isolation(prepare, limits, workers=job.workers)
    try:
        with executor, tempfile.TemporaryDirectory(prefix="poolproof-kernel-") as folder:
            run = _Certification(job, executor, Path(folder), progress).run()
    except ImporterError as error:
        raise error.as_known() from error
    progress.end()
    return replace(run, seconds=time.monotonic() - began)


@dataclass(slots=True)
class _Bench:
    """What the jobs need: torch, set up for the device, and the target once it is loaded."""

    job: KernelJob
    device: str
    loaded: Certifiable | None = None

    @property
    def target(self) -> Certifiable:
        """The target, loaded now if it was not yet. Raises TargetError."""
        if self.loaded is None:
            self.loaded = _load(self.job, self.device)
        return self.loaded


def _prepare(job: KernelJob) -> _Bench:
    device = choose_interpreter(job.device)
    import torch

    # Once, for all workers.
    importlib.import_module("poolproof.kernels.check_run")
    from poolproof.kernels.interpreter import prepare_interpreter

    prepare_interpreter()
    # Kernels this small lose more by threads than they gain, and threads do not survive a fork.
    torch.set_num_threads(1)
    return _Bench(job, device, _load(job, device) if device == "cpu" else None)


def _load(job: KernelJob, device: str) -> Certifiable:
    from poolproof.kernels.load import load_kernel
    from poolproof.kernels.target import KernelTarget

    target = load_kernel(job.target, device, job.overrides)
    if not isinstance(target, KernelTarget):
        return target
    if job.pool is not None:
        target = replace(target, make_pool=_named(job.pool))
    if job.managers is not None:
        target = replace(target, managers=_named(job.managers)())
    return target


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True, slots=True)
class _Task:
    """A check to run; `words_file` gets each example before it begins.

    With a `case` its smaller forms are tried, to find the first that costs the worker.
    """

    check: str
    words_file: Path
    case: Mapping[str, Any] | None = None

    def last_words(self) -> tuple[Mapping[str, Any], str] | None:
        """The case of the example that was begun last, and the case in words; None before any."""
        try:
            case, words = json.loads(self.words_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return case, words

    def announcer(self, beacon: Beacon) -> _Announcer:
        """Called in the worker, with each case."""
        return _Announcer(self.words_file, beacon)


@dataclass(frozen=True, slots=True)
class _Announcer:
    words_file: Path
    beacon: Beacon

    def __call__(self, case: Any) -> None:
        self.words_file.write_text(json.dumps([case.to_json(), case.words()]), encoding="utf-8")
        self.beacon.bump()


def _describe(bench: _Bench, _task: None, beacon: Beacon) -> tuple[KernelRun, list[str]]:
    """The job: what is looked at, in a run that has no line yet, and the names of all checks."""
    from poolproof.kernels.check_run import head_of, kind_of

    with beacon.bumping():
        target = bench.target
        return head_of(target, bench.job.depth, bench.job.seed), list(kind_of(target).checks)


def _run_check(bench: _Bench, task: _Task, beacon: Beacon) -> CheckResult | _Canaries:
    """The job: one check of the target, or the faulty kernels that must be caught."""
    from poolproof.kernels.case import CaseError
    from poolproof.kernels.check_run import certify_check, check_case, kind_of

    with beacon.bumping():
        target = bench.target
        if task.check == _CANARIES:
            return _canaries(target)
    announce, job = task.announcer(beacon), bench.job
    if job.case is None:
        return certify_check(target, task.check, job.depth, job.seed, announce)
    try:
        case = kind_of(target).read_case(job.case)
        return check_case(target, task.check, case, announce)
    except CaseError as error:
        raise TargetError(str(error)) from error


def _try_smaller_cases(bench: _Bench, task: _Task, beacon: Beacon) -> None:
    """The job: run a check on each smaller form of a case, and return if the worker survives."""
    from poolproof.kernels.check_run import kind_of, run_case

    with beacon.bumping():
        target = bench.target
    kind, announce = kind_of(target), task.announcer(beacon)
    for case in kind.smaller(kind.read_case(task.case), target.declaration):
        announce(case)
        run_case(target, kind.checks[task.check], case)


@dataclass(frozen=True, slots=True)
class _Canaries:
    """Faulty kernels that were caught by all checks that must, and those that were missed."""

    caught: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()


def _canaries(target: Certifiable) -> _Canaries:
    if target.device != "cpu" or (target.kind is None and missing_packages()):
        return _Canaries()
    from poolproof.kernels.functions.faulty import (
        FUNCTION_CANARIES,
        FUNCTION_FAULTS,
        catch_function,
    )

    caught: list[str] = []
    missed: list[str] = []
    if target.kind is not None:
        for fault in map(FUNCTION_FAULTS.__getitem__, FUNCTION_CANARIES[target.kind.name]):
            seen = len(catch_function(fault.make(), fault.checks)) == len(fault.checks)
            (caught if seen else missed).append(f"{fault.id}: {fault.title}")
        return _Canaries(tuple(caught), tuple(missed))
    from poolproof.kernels.faulty_kernels import CANARIES, FAULTY_KERNELS, catch

    for faulty in map(FAULTY_KERNELS.__getitem__, CANARIES):
        is_caught = len(catch(faulty)) == len(faulty.checks)
        (caught if is_caught else missed).append(f"{faulty.id}: {faulty.title}")
    return _Canaries(tuple(caught), tuple(missed))


class _Certification:
    """One certification: which checks run, and with what outcome."""

    def __init__(
        self,
        job: KernelJob,
        executor: Isolation[_Bench] | InProcess[_Bench],
        folder: Path,
        progress: Progress,
    ) -> None:
        self._job, self._executor, self._folder, self._progress = job, executor, folder, progress
        self._results: dict[str, CheckResult] = {}
        self._canaries = _Canaries()
        self._lost: dict[str, Lost] = {}

    def run(self) -> KernelRun:
        """Everything in the order of the checks. Raises TargetError."""
        (described,) = self._executor.map(_describe, [None])
        match raise_if_ours(described):
            case Finished((head, known)):
                pass
            case Lost() as lost:
                raise TargetError(f"the target cannot be run: {_words(lost)}")
        order = self._chosen(known)
        self._progress.begin("checks", len(order) + 1, "checks")
        tasks = [self._task(name) for name in (_CANARIES, *order)]
        for index, outcome in self._executor.as_completed(_run_check, self._until_crashes(tasks)):
            ended = raise_if_ours(outcome)
            if isinstance(ended, Lost):
                self._lose(tasks[index], ended)
            elif isinstance(ended.value, _Canaries):
                self._canaries = ended.value
            else:
                self._results[tasks[index].check] = ended.value
            self._progress.advance(1)
        for name in self._lost:
            self._progress.begin(f"a smaller case: {name}")
            self._make_smaller(name)
        return self._put_together(head, order)

    def _chosen(self, known: list[str]) -> list[str]:
        for name in self._job.checks:
            if name not in known:
                raise TargetError(f"unknown check {name!r}; known are {', '.join(known)}")
        return [name for name in known if not self._job.checks or name in self._job.checks]

    def _task(self, name: str, case: Mapping[str, Any] | None = None) -> _Task:
        return _Task(name, self._folder / f"{name}.json", case)

    def _until_crashes(self, tasks: Iterable[_Task]) -> Iterator[_Task]:
        """The tasks on demand; no more once too many workers are lost."""
        for task in tasks:
            if len(self._lost) >= MOST_CRASHES:
                return
            yield task

    def _lose(self, task: _Task, lost: Lost) -> None:
        """Report the worker's last example as the finding. Raises TargetError if there is none."""
        words = task.last_words()
        if words is None:
            raise TargetError(f"the target cannot be run: {_words(lost)}, before its first example")
        self._lost[task.check] = lost
        finding = KernelFinding(
            check=task.check,
            severity=Severity.STALL if isinstance(lost, Hung) else Severity.CRASH,
            sentence=_words(lost),
            case=words[0],
            words=words[1],
            example=0,
            frames=_frames_of_target(lost),
        )
        line = CheckLine(name=task.check, sentence=_words(lost), result=VIOLATED, note=_words(lost))
        self._results[task.check] = CheckResult(line, finding)

    def _make_smaller(self, check: str) -> None:
        """Put the smallest case that still costs its worker in the same way into the finding.

        A worker tries one smaller form after another; the form at which it is lost fails as well,
        and the next worker continues from there. So a step costs one worker, however many it tried.
        """
        result = self._results[check]
        finding = result.finding
        assert finding is not None
        if finding.severity is Severity.STALL and self._job.case_timeout_s > LONGEST_HANG_S:
            return
        with self._executor.serve(_try_smaller_cases) as attempt:
            for _ in range(MOST_SMALLER_CRASHES):
                task = self._task(check, finding.case)
                outcome = attempt(task)
                words = task.last_words()
                if not isinstance(outcome, Lost) or _words(outcome) != finding.sentence:
                    break
                assert words is not None
                finding = replace(finding, case=words[0], words=words[1])
        self._results[check] = replace(result, finding=finding)

    def _put_together(self, head: KernelRun, order: list[str]) -> KernelRun:
        results = [self._results[name] for name in order if name in self._results]
        lines = [result.line for result in results]
        if len(results) < len(order):
            sentence = f"not run after {MOST_CRASHES} crashes"
            lines.append(
                CheckLine(name="the checks that are left", sentence=sentence, result=NOT_RUN)
            )
        ratios: dict[str, list[float]] = {}
        for precision, found in chain.from_iterable(result.ratios.items() for result in results):
            ratios.setdefault(precision, []).extend(found)
        return replace(
            head,
            lines=tuple(lines),
            findings=tuple(result.finding for result in results if result.finding is not None),
            ratios=ratios,
            canaries_caught=self._canaries.caught,
            canaries_missed=self._canaries.missed,
        )


def _words(lost: Lost) -> str:
    """How a worker ended. Fingerprints are made of these words, so they must not change."""
    if isinstance(lost, Hung):
        return f"no answer within {lost.seconds:g} s"
    if isinstance(lost, Died):
        how = lost.how.removeprefix("killed by ").removeprefix("exited with ")
        return f"the process ended with {how if lost.status < 0 else f'exit {how}'}"
    return lost.sentence("an example")


def _frames_of_target(lost: Lost) -> tuple[str, ...]:
    """The innermost frames at the end that are not ours, in the form that `run_case` gives them."""
    ours = Path(__file__).parent
    outside = (frame for frame in lost.stack() if ours not in frame[0].parents)
    return tuple(f"{path} line {line} in {name}" for path, line, name in islice(outside, 3))
