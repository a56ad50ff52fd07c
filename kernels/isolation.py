"""Certifies a kernel in a child process: a kernel that reads wild addresses ends its process.

The child says what it is about to do before each example; when it dies or stays silent for too
long, that example is the finding, and another child goes on with the checks that are left. The
parent needs neither torch nor triton.
"""

from __future__ import annotations

import importlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.kernels.report import NOT_RUN, VIOLATED, CheckLine, KernelFinding, KernelReport

__all__ = ["Job", "certify_in_child", "certify_in_process"]

MOST_CRASHES = 8
START_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be certified and how.

    `device` None: the GPU where there is one. `pool` is the `module:Class` of a native block pool
    for whole requests, None leaves them out. With a `case` each check runs on that case alone.
    `checks` names the checks to run; none names all.
    """

    target: str
    overrides: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    level: str = "standard"
    seed: int = 0
    case_timeout_s: float = 120.0
    pool: str | None = None
    case: Mapping[str, Any] | None = None
    checks: tuple[str, ...] = ()


class Progress(Protocol):
    """The command line's progress, as far as it is needed here."""

    def begin(self, stage: str, total_steps: int | None = None) -> None: ...
    def advance(self, steps: int) -> None: ...
    def end(self) -> None: ...


class _Told:
    """Passes what a certification says about itself to a function."""

    def __init__(self, tell: Any) -> None:
        self._tell = tell

    def begin(self, stage: str, total: int) -> None:
        self._tell(("begin", stage, total))

    def advance(self, steps: int) -> None:
        self._tell(("advance", steps))

    def case(self, check: str, case: Any) -> None:
        self._tell(("case", check, case.to_json(), case.words()))


def _work(tell: Any, job: Job, done: tuple[str, ...]) -> None:
    """Run the checks that are not done; every result is told at once."""
    import torch

    from poolproof.kernels.interpreter import choose_interpreter, missing_packages

    device = choose_interpreter(job.device)
    from poolproof.kernels.case import Case
    from poolproof.kernels.certification import certify_check, check_case, head_of
    from poolproof.kernels.checks.catalogue import CHECKS
    from poolproof.kernels.interpreter_speed import prepare_interpreter
    from poolproof.kernels.load import load_kernel

    prepare_interpreter()
    # Kernels this small lose more by threads than they gain.
    torch.set_num_threads(1)
    target = load_kernel(job.target, device, job.overrides)
    if job.pool is not None:
        target = replace(target, make_pool=_pool_class(job.pool))
    listener = _Told(tell)
    tell(("head", head_of(target, job.level, job.seed).to_json()))
    if "canaries" not in done and device == "cpu" and not missing_packages():
        listener.begin("checking the ruler", 8)
        tell(("canaries", *_canaries(listener)))
    unknown = [name for name in job.checks if name not in CHECKS]
    if unknown:
        raise TargetError(f"unknown check {unknown[0]!r}; known are {', '.join(CHECKS)}")
    for name in job.checks or CHECKS:
        if name not in done:
            if job.case is None:
                result = certify_check(target, name, job.level, job.seed, listener)
            else:
                result = check_case(target, name, Case.from_json(job.case), listener)
            tell(("result", result.line.to_json(), result.finding and result.finding.to_json(),
                  result.ratios))  # fmt: skip
    tell(("end",))


def _pool_class(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def _canaries(listener: _Told) -> tuple[list[str], list[str]]:
    from poolproof.kernels.specimens.catalogue import CANARIES, SPECIMENS, catch

    caught: list[str] = []
    missed: list[str] = []
    for name in CANARIES:
        specimen = SPECIMENS[name]
        found = catch(specimen)
        (caught if len(found) == len(specimen.checks) else missed).append(
            f"{name}: {specimen.title}"
        )
        listener.advance(1)
    return caught, missed


def _child(connection: Any, job: Job, done: tuple[str, ...]) -> None:
    """The child's main function."""
    # An interruption at the terminal reaches the parent, which ends the child.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _work(connection.send, job, done)
    except (TargetError, ValueError) as error:
        connection.send(("error", str(error)))
    except Exception as error:  # noqa: BLE001 -- passed on to the parent, which raises it
        connection.send(("bug", "".join(traceback.format_exception(error))))


@dataclass(slots=True)
class _Collected:
    """What the children have told so far."""

    report: KernelReport = field(default_factory=KernelReport)
    done: list[str] = field(default_factory=list)
    last: tuple[str, dict[str, Any], str] | None = None
    ended: bool = False

    def take(self, message: tuple[Any, ...], progress: Progress) -> None:
        """Raises TargetError when the target cannot be run."""
        kind, *rest = message
        if kind == "begin":
            progress.begin(*rest)
        elif kind == "advance":
            progress.advance(*rest)
        elif kind == "case":
            self.last = (rest[0], rest[1], rest[2])
        elif kind == "head" and not self.report.target:
            self.report = KernelReport.from_json(rest[0])
        elif kind == "canaries":
            self.report.canaries_caught, self.report.canaries_missed = rest
            self.done.append("canaries")
        elif kind == "result":
            self._take_result(*rest)
        elif kind == "error":
            raise TargetError(rest[0])
        elif kind == "bug":
            raise RuntimeError(f"in the child process: {rest[0]}")
        elif kind == "end":
            self.ended = True

    def _take_result(self, line: Any, finding: Any, ratios: Any) -> None:
        self.report.lines.append(CheckLine(**line))
        self.done.append(line["name"])
        self.last = None
        if finding is not None:
            self.report.findings.append(_finding(finding))
        for name, found in ratios.items():
            self.report.ratios.setdefault(name, []).extend(found)

    def lost(self, sentence: str, severity: Severity) -> None:
        """The child is gone: what it was at is the finding."""
        if self.last is None:
            raise TargetError(f"the target cannot be run: {sentence}, before its first example")
        check, case, words = self.last
        self.report.findings.append(
            KernelFinding(
                check=check, severity=severity, sentence=sentence, case=case, words=words, example=0
            )
        )
        self.report.lines.append(
            CheckLine(name=check, sentence=sentence, result=VIOLATED, note=sentence)
        )
        self.done.append(check)
        self.last = None


def _finding(value: Mapping[str, Any]) -> KernelFinding:
    rest = {**value, "severity": Severity(value["severity"]), "frames": tuple(value["frames"])}
    return KernelFinding(**rest)


def certify_in_process(job: Job, progress: Progress) -> KernelReport:
    """The report of `job`, made in this process. Raises TargetError."""
    began = time.monotonic()
    collected = _Collected()
    _work(lambda message: collected.take(message, progress), job, ())
    progress.end()
    collected.report.seconds = time.monotonic() - began
    return collected.report


def certify_in_child(job: Job, progress: Progress) -> KernelReport:
    """The report of `job`, made in one child process or several. Raises TargetError."""
    began = time.monotonic()
    collected = _Collected()
    for _ in range(MOST_CRASHES):
        _one_child(job, collected, progress)
        if collected.ended:
            break
    else:
        collected.report.lines.append(
            CheckLine(
                name="the checks that are left",
                sentence=f"not run after {MOST_CRASHES} crashes",
                result=NOT_RUN,
            )
        )
    progress.end()
    collected.report.seconds = time.monotonic() - began
    return collected.report


def _one_child(job: Job, collected: _Collected, progress: Progress) -> None:
    # Not forked: torch's threads do not survive a fork, and the parent has no torch.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, job, tuple(collected.done)), daemon=True)
    child.start()
    there.close()
    try:
        while not collected.ended:
            # Imports and faulty kernels come before the first example and have no such limit.
            is_running = collected.last is not None
            if not here.poll(job.case_timeout_s if is_running else START_TIMEOUT_S):
                child.kill()
                collected.lost(f"no answer within {job.case_timeout_s:g} s", Severity.STALL)
                return
            collected.take(here.recv(), progress)
    except EOFError:
        child.join()
        code = child.exitcode or 0
        name = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        collected.lost(f"the process ended with {name}", Severity.CRASH)
    finally:
        child.kill()
        child.join()
        here.close()
