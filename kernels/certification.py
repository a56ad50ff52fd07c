"""Certifies one kernel target: canaries, then every check over drawn cases, then smaller cases.

The same seed gives the same cases, so the same code gets the same verdict. Stops at the first
finding of each check, which is then made smaller; the other checks go on.
"""

from __future__ import annotations

import platform
import random
import traceback
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from poolproof.contract.violation import Severity
from poolproof.kernels.case import Case
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.checks.shrink import shrink
from poolproof.kernels.grammar import draw_case
from poolproof.kernels.report import (
    HOLDS,
    NOT_APPLICABLE,
    UNSEEN,
    VIOLATED,
    WEAKER,
    CheckLine,
    KernelFinding,
    KernelReport,
)
from poolproof.kernels.target import KernelTarget

__all__ = [
    "BUDGETS",
    "CheckResult",
    "Listener",
    "certify_check",
    "check_case",
    "crash_severity",
    "head_of",
    "run_case",
]


@dataclass(frozen=True, slots=True)
class Budget:
    """Examples of the dense comparison, and of each other check."""

    dense: int
    others: int


BUDGETS = {"quick": Budget(100, 5), "standard": Budget(600, 16), "deep": Budget(10_000, 300)}

# A case that has no room for a check costs no time; so many are drawn for one that has.
DRAWS_PER_EXAMPLE = 30


class Listener(Protocol):
    """Hears what is being done; `case` is called before each example, in case it is the last."""

    def begin(self, stage: str, total: int) -> None: ...
    def advance(self, steps: int) -> None: ...
    def case(self, check: str, case: Case) -> None: ...


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check gave: its line, its finding, the errors over bounds by precision."""

    line: CheckLine
    finding: KernelFinding | None
    ratios: dict[str, list[float]]


def head_of(target: KernelTarget, level: str, seed: int) -> KernelReport:
    """A report that says what was looked at, where and with what, and has no line yet."""
    return KernelReport(
        target=target.name,
        version=target.version,
        source=target.source,
        device=target.device,
        device_name=_device_name(target.device),
        torch=str(torch.__version__),
        triton=_triton_version(),
        python=platform.python_version(),
        level=level,
        seed=seed,
        declaration=target.declaration.to_json(),
        assumed=list(target.declaration.assumed),
        not_covered=_not_covered(target),
    )


def certify_check(
    target: KernelTarget, name: str, level: str, seed: int, listener: Listener
) -> CheckResult:
    """Run one check as often as the level says, or to its first finding."""
    return _Run(target, CHECKS[name], level, seed, listener).result()


def check_case(target: KernelTarget, name: str, case: Case, listener: Listener) -> CheckResult:
    """Run one check on one case, as it is."""
    check = CHECKS[name]
    about: dict[str, Any] = {"name": name, "sentence": check.sentence}
    if not check.applies(target) or name == "64-bit offsets":
        return CheckResult(CheckLine(**about, result=NOT_APPLICABLE), None, {})
    listener.case(name, case)
    outcome, frames = run_case(target, check, case)
    ratios = {} if outcome.ratio is None else {_precision(case): [outcome.ratio]}
    about |= {"examples": 1, "compared": outcome.compared, "max_ratio": outcome.ratio}
    if outcome.wrong is None:
        result = HOLDS if outcome.compared else NOT_APPLICABLE
        return CheckResult(CheckLine(**about, result=result), None, ratios)
    finding = KernelFinding(
        check=name,
        severity=crash_severity(check, outcome.wrong),
        sentence=outcome.wrong,
        case=case.to_json(),
        words=case.words(),
        example=1,
        frames=tuple(frames),
    )
    return CheckResult(CheckLine(**about, result=VIOLATED), finding, ratios)


def run_case(target: KernelTarget, check: Check, case: Case) -> tuple[Outcome, list[str]]:
    """One check of one case; what the target raises is wrong as well, with its frames."""
    try:
        return check.run(target, case), []
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        if not any(_is_of_the_target(frame) for frame in frames):
            # Raised outside of every call of the target: that is no finding but a bug of ours.
            raise
        outside = [frame for frame in frames if "poolproof" not in frame.filename] or frames[-1:]
        lines = [f"{frame.filename} line {frame.lineno} in {frame.name}" for frame in outside[-3:]]
        text = next(iter(str(error).splitlines()), "")
        return Outcome(1, f"raised {type(error).__name__}: {text}"), lines


def _is_of_the_target(frame: traceback.FrameSummary) -> bool:
    """Whether a frame is a call of the target, or of the kernels that fill its cache."""
    file = frame.filename.replace("\\", "/")
    called = frame.name == "__call__" and file.endswith("kernels/target.py")
    return called or "/kernels/paged/" in file or file.startswith("<poolproof_kernel")


def crash_severity(check: Check, sentence: str) -> Severity:
    """How bad a finding is: an exception is a crash, whatever check met it."""
    return Severity.CRASH if sentence.startswith("raised ") else check.severity


class _Run:
    """One check of one certification."""

    def __init__(
        self,
        target: KernelTarget,
        check: Check,
        level: str,
        seed: int,
        listener: Listener,
    ) -> None:
        self._target, self._check, self._listener = target, check, listener
        self._ratios: dict[str, list[float]] = {}
        self._finding: KernelFinding | None = None
        budget = BUDGETS[level]
        self._wanted = budget.dense if check.name == "dense" else budget.others
        if check.name == "64-bit offsets":
            self._wanted = 1
        self._draw = random.Random(f"{seed} {check.name}")

    def result(self) -> CheckResult:
        line = self._line()
        return CheckResult(line, self._finding, self._ratios)

    def _line(self) -> CheckLine:
        check, target = self._check, self._target
        about: dict[str, Any] = {"name": check.name, "sentence": check.sentence}
        if not check.applies(target):
            return CheckLine(**about, result=NOT_APPLICABLE, note=_why_not(check, target))
        weaker = check.stands(target.declaration)
        about["note"] = weaker or ""
        self._listener.begin(check.name, self._wanted)
        examples = compared = 0
        worst: float | None = None
        for _ in range(self._wanted * DRAWS_PER_EXAMPLE):
            if examples == self._wanted:
                break
            case = draw_case(self._draw.randrange, target.declaration)
            self._listener.case(check.name, case)
            outcome, _ = run_case(target, check, case)
            compared += outcome.compared
            if outcome.ratio is not None:
                worst = max(worst or 0.0, outcome.ratio)
                self._ratios.setdefault(_precision(case), []).append(outcome.ratio)
            if outcome.wrong is not None:
                self._finding = self._smallest(case, examples + 1)
                counts: dict[str, Any] = {
                    "examples": examples + 1,
                    "compared": compared,
                    "max_ratio": worst,
                }
                return CheckLine(**about, result=VIOLATED, **counts)
            if outcome.compared:
                examples += 1
                self._listener.advance(1)
        result = (WEAKER if weaker else HOLDS) if compared else UNSEEN
        return CheckLine(
            **about, result=result, examples=examples, compared=compared, max_ratio=worst
        )

    def _smallest(self, case: Case, example: int) -> KernelFinding:
        def fails(smaller: Case) -> bool:
            self._listener.case(self._check.name, smaller)
            return run_case(self._target, self._check, smaller)[0].wrong is not None

        smallest = shrink(case, self._target.declaration, fails)
        outcome, frames = run_case(self._target, self._check, smallest)
        if outcome.wrong is None:
            smallest = case
            sentence, frames = (
                "wrong once and right the next time: the target is not repeatable",
                [],
            )
        else:
            sentence = outcome.wrong
        return KernelFinding(
            check=self._check.name,
            severity=crash_severity(self._check, sentence),
            sentence=sentence,
            case=smallest.to_json(),
            words=smallest.words(),
            example=example,
            frames=tuple(frames),
        )


def _precision(case: Case) -> str:
    return case.dtype if case.cache_dtype is None else f"{case.dtype}, fp8 cache"


def _why_not(check: Check, target: KernelTarget) -> str:
    if check.name in {"read set", "64-bit offsets"}:
        return "only Triton kernels in the interpreter can be watched"
    if check.name in {"cache write", "block copy", "swap"}:
        return "the target is attention alone"
    if check.name == "output rows":
        return "no output tensor can be handed in"
    if check.name == "empty rows":
        return f"empty_row: {target.declaration.empty_row}"
    return "not supported by the target"


def _not_covered(target: KernelTarget) -> list[str]:
    lines = ["head sizes of keys and values that differ (MLA), rotary embedding, quantised output"]
    if target.device == "cpu" and target.uses_triton:
        lines.append(
            "races between programs and the GPU's own rounding: the interpreter runs programs one "
            "after another"
        )
    absent = [name for name in ("sliding_window", "softcap", "alibi", "sinks", "fp8", "non_causal")
              if name not in target.declaration.features]  # fmt: skip
    if absent:
        lines.append(f"not declared, so not driven: {', '.join(absent)}")
    return lines


def _device_name(device: str) -> str:
    if device == "cuda":
        return str(torch.cuda.get_device_name())
    return platform.processor() or platform.machine()


def _triton_version() -> str:
    try:
        import triton
    except ImportError:
        return ""
    return str(triton.__version__)
