"""One check of one target: over drawn cases up to the first finding, which is then made smaller.

The same seed gives the same cases, so the same code gets the same verdict. What runs the checks,
and where, is `certification.py`.
"""

from __future__ import annotations

import platform
import random
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from poolproof.contract.depth import Depth
from poolproof.contract.violation import Severity
from poolproof.kernels.case import Case, CaseError
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.declaration import FEATURES, QUANTISED_FEATURES, SIGHTS, Declaration
from poolproof.kernels.findings import (
    HOLDS,
    NOT_APPLICABLE,
    UNSEEN,
    VIOLATED,
    WEAKER,
    CheckLine,
    CheckResult,
    KernelFinding,
    KernelRun,
)
from poolproof.kernels.grammar import (
    Choose,
    draw_case,
    draw_sighted_case,
    with_declared_values,
)
from poolproof.kernels.kind import Certifiable, Kind
from poolproof.kernels.large_cases import (
    KINDS,
    SIGHT_KINDS,
    Draw,
    draw_at_kind,
    draw_long_context,
    quantised_draws,
    quantised_small_draws,
)
from poolproof.kernels.layouts import LAYOUTS, REACHES
from poolproof.kernels.sights import declared_sights, is_sight_supported, sights_of, smaller_sights
from poolproof.kernels.target import KernelTarget

__all__ = [
    "ATTENTION",
    "NUM_EXAMPLES",
    "Announce",
    "certify_check",
    "check_case",
    "head_of",
    "in_order",
    "kind_of",
    "run_case",
    "shrink",
    "smaller_cases",
]


@dataclass(frozen=True, slots=True)
class NumExamples:
    """Examples of the dense comparison and of each other check, and large ones on top of these.

    Checks to which sizes mean nothing have none of the last.
    """

    dense: int
    others: int
    large: int
    large_of_others: int


NUM_EXAMPLES = {
    Depth.QUICK: NumExamples(100, 5, len(KINDS), 1),
    Depth.STANDARD: NumExamples(600, 16, 3 * len(KINDS), 3),
    Depth.DEEP: NumExamples(10_000, 300, 20 * len(KINDS), 20),
}

TIMES_WITHOUT_INTERPRETER = 2
"""As many large dense examples for a target that is not interpreted: most take milliseconds."""

# A case that has no room for a check costs no time; so many are drawn for one that has.
DRAWS_PER_EXAMPLE = 30

MOST_ATTEMPTS = 200
"""Of smaller cases, for each finding."""

LONG_CONTEXTS = 3
"""Sequences of more keys than 16 bits count, in a deep run."""

MOST_WORK = 4000
"""Of the same, in tiles of the interpreter, a quarter of a minute: one large case is worth many
small ones. No clock, so that the same seed gives the same case."""

Announce = Callable[[Any], None]
"""Called before each example, in case it is the last."""


def kind_of(target: Certifiable) -> Kind:
    """What kind of target it is."""
    return target.kind or ATTENTION


def head_of(target: Certifiable, depth: Depth, seed: int) -> KernelRun:
    """A run of which only the target, the machine and the versions are known so far."""
    return KernelRun(
        target=target.name,
        version=target.version,
        source=target.source,
        device=target.device,
        device_name=_device_name(target.device),
        torch=str(torch.__version__),
        triton=_triton_version(),
        python=platform.python_version(),
        depth=str(depth),
        seed=seed,
        declaration=target.declaration.to_json(),
        assumed=target.declaration.assumed,
        not_covered=tuple(kind_of(target).not_covered(target)),
    )


def certify_check(
    target: Certifiable, name: str, depth: Depth, seed: int, announce: Announce
) -> CheckResult:
    """Run one check as often as the depth says, or to its first finding."""
    return _Run(target, kind_of(target).checks[name], depth, seed, announce).result()


def check_case(target: Certifiable, name: str, case: Any, announce: Announce) -> CheckResult:
    """Run one check on one case, as it is. Raises CaseError if it needs a feature not declared."""
    kind = kind_of(target)
    if kind is ATTENTION:
        missing = sorted(sights_of(case) - set(target.declaration.features))
        if missing:
            raise CaseError(
                f"the case needs {' and '.join(missing)}, which {target.name} does not declare "
                "among its features"
            )
    check = kind.checks[name]
    about: dict[str, Any] = {"name": name, "sentence": check.sentence}
    is_far = case.reach != REACHES[0]
    if not check.applies(target) or is_far == (check.draws is None):
        return CheckResult(CheckLine(**about, result=NOT_APPLICABLE), None, {})
    announce(case)
    outcome, frames = run_case(target, check, case)
    ratios = {} if outcome.ratio is None else {kind.precision(case): [outcome.ratio]}
    about |= {"examples": 1, "compared": outcome.compared, "max_ratio": outcome.ratio}
    if outcome.wrong is None:
        result = HOLDS if outcome.compared else NOT_APPLICABLE
        return CheckResult(CheckLine(**about, result=result), None, ratios)
    finding = KernelFinding(
        check=name,
        severity=check.severity_of(outcome),
        sentence=outcome.wrong,
        case=case.to_json(),
        words=case.words(),
        example=1,
        frames=tuple(frames),
    )
    return CheckResult(CheckLine(**about, result=VIOLATED), finding, ratios)


def run_case(target: Certifiable, check: Check, case: Any) -> tuple[Outcome, list[str]]:
    """One check of one case; an error of the target is wrong as well: a crash, with its frames."""
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
        wrong = f"raised {type(error).__name__}: {text}"
        return Outcome(1, wrong, severity=Severity.CRASH), lines


def _is_of_the_target(frame: traceback.FrameSummary) -> bool:
    """Whether a frame is a call of the target, or of the kernels that fill its cache."""
    file = frame.filename.replace("\\", "/")
    ours = ("kernels/target.py", "functions/target.py")
    called = frame.name in {"__call__", "with_lse"} and file.endswith(ours)
    return called or "/kernels/paged/" in file or file.startswith("<poolproof_kernel")


def in_order(check: Check, target: KernelTarget, depth: Depth, choose: Choose) -> list[Draw]:
    """What draws each example of a check: small cases, with large ones evenly among them."""
    if check.draws is not None:
        return list(check.draws(target.declaration))
    counts = NUM_EXAMPLES[depth]
    is_interpreted = target.uses_triton and target.device == "cpu"
    times = 1 if is_interpreted else TIMES_WITHOUT_INTERPRETER
    small, large = counts.others, counts.large_of_others
    if check.name == "dense":
        small, large = counts.dense, times * counts.large
    sights = _sights_for(check, target)
    sighted: list[Draw] = [partial(draw_sighted_case, sight) for sight in sights]
    if check.name == "dense":
        # Half of the small cases are of these then: the others keep their number.
        small, sighted = small + len(sights) * (counts.dense // 8), []
    plain = sighted[0] if check.name == "masked keys" and sighted else draw_case
    if not check.takes_large_cases:
        return [*sighted, *[plain] * small]
    first = 0 if check.name == "dense" else choose(len(KINDS))
    drawn = [draw_at_kind(first + number) for number in range(large)]
    kinds = [kind for sight in sights for kind in SIGHT_KINDS[sight]]
    more = times * kinds if check.name == "dense" else kinds[first % max(1, len(kinds)) :][:1]
    drawn = [*more, *drawn]
    if check.name == "dense":
        drawn += quantised_draws(target.declaration)
    if depth is Depth.DEEP and check.name == "dense":
        drawn += [draw_long_context] * LONG_CONTEXTS
    order = sighted
    if check.name != "dense":
        order = [*order, *quantised_small_draws(target.declaration)]
    for number, draw in enumerate(drawn, 1):
        order += [plain] * (small * number // len(drawn) - small * (number - 1) // len(drawn))
        order.append(draw)
    return order


def _sights_for(check: Check, target: KernelTarget) -> tuple[str, ...]:
    """What a target declares of who sees which key, as far as it means something to a check."""
    about = {
        **dict.fromkeys(("serving", "managers", "recorded runs"), ()),
        **dict.fromkeys(("empty rows", "masked keys"), ("mask",)),
        "behind the window": ("chunked", "window_ahead"),
    }.get(check.name, SIGHTS)
    return tuple(sight for sight in declared_sights(target.declaration) if sight in about)


class _Run:
    """One check of one certification."""

    def __init__(
        self,
        target: Certifiable,
        check: Check,
        depth: Depth,
        seed: int,
        announce: Announce,
    ) -> None:
        self._target, self._check, self._announce = target, check, announce
        self._kind = kind_of(target)
        self._ratios: dict[str, list[float]] = {}
        self._finding: KernelFinding | None = None
        self._draw = random.Random(f"{seed} {check.name}")
        self._order = self._kind.in_order(check, target, depth, self._draw.randrange)

    def result(self) -> CheckResult:
        line = self._line()
        return CheckResult(line, self._finding, self._ratios)

    def _line(self) -> CheckLine:
        check, target = self._check, self._target
        about: dict[str, Any] = {"name": check.name, "sentence": check.sentence}
        if not check.applies(target):
            return CheckLine(**about, result=NOT_APPLICABLE, note=self._kind.why_not(check, target))
        weaker = check.stands(target.declaration)
        about["note"] = weaker or ""
        examples = compared = 0
        worst: float | None = None
        lesser: tuple[Any, int] | None = None
        for draw in self._order:
            case, outcome, frames = self._one_with_room(draw)
            compared += outcome.compared
            if outcome.ratio is not None:
                worst = max(worst or 0.0, outcome.ratio)
                self._ratios.setdefault(self._kind.precision(case), []).append(outcome.ratio)
            if outcome.wrong is not None and outcome.severity is not None and not frames:
                # It may stand in every example: the search for what the check is about goes on.
                lesser = lesser or (case, examples + 1)
            elif outcome.wrong is not None:
                self._finding = self._smallest(case, examples + 1)
                counts: dict[str, Any] = {
                    "examples": examples + 1,
                    "compared": compared,
                    "max_ratio": worst,
                }
                return CheckLine(**about, result=VIOLATED, **counts)
            examples += bool(outcome.compared)
        result = (WEAKER if weaker else HOLDS) if compared else UNSEEN
        if lesser is not None:
            self._finding = self._smallest(*lesser)
            result = VIOLATED
        return CheckLine(
            **about, result=result, examples=examples, compared=compared, max_ratio=worst
        )

    def _one_with_room(self, draw: Callable[[Choose, Any], Any]) -> tuple[Any, Outcome, list[str]]:
        """The first drawn case that the check can say something about, or the last one drawn."""
        for _ in range(DRAWS_PER_EXAMPLE):
            case = draw(self._draw.randrange, self._target.declaration)
            self._announce(case)
            outcome, frames = run_case(self._target, self._check, case)
            if outcome.compared or outcome.wrong is not None:
                break
        return case, outcome, frames

    def _smallest(self, case: Any, example: int) -> KernelFinding:
        check = self._check
        first, _ = run_case(self._target, check, case)
        worst = check.severity_of(first).rank

        def fails(smaller: Any) -> bool:
            nonlocal worst
            self._announce(smaller)
            outcome, _ = run_case(self._target, check, smaller)
            rank = check.severity_of(outcome).rank
            # At least as bad: a slot far behind the cache raises where a nearer one is overwritten.
            if outcome.wrong is None or rank > worst:
                return False
            worst = rank
            return True

        smallest = shrink(case, self._target.declaration, fails, self._kind)
        outcome, frames = run_case(self._target, check, smallest)
        if outcome.wrong is None:
            smallest = case
            outcome = Outcome(1, "wrong once and right the next time: the target is not repeatable")
            frames = []
        return KernelFinding(
            check=check.name,
            severity=check.severity_of(outcome),
            sentence=outcome.wrong or "",
            case=smallest.to_json(),
            words=smallest.words(),
            example=example,
            frames=tuple(frames),
        )


def shrink(case: Any, declared: Any, fails: Callable[[Any], bool], kind: Kind | None = None) -> Any:
    """A case that `fails` as well and is larger in nothing; greedy, with a limit on attempts."""
    kind = kind or ATTENTION
    attempts = work = 0
    improved = True
    while improved:
        improved = False
        for smaller in kind.smaller(case, declared):
            attempts += 1
            work += kind.work(smaller)
            if attempts > MOST_ATTEMPTS or work > MOST_WORK:
                return case
            if fails(smaller):
                case, improved = smaller, True
                break
    return case


def _work(case: Case) -> int:
    """About how many tiles an interpreted kernel takes for a case."""
    tiles = (
        (1 + queries * case.queries_per_kv_head // 32) * (1 + keys // 16)
        for queries, keys in case.sequences
    )
    return case.num_kv_heads * sum(tiles)


def smaller_cases(case: Case, declared: Declaration) -> Iterator[Case]:
    """Smaller cases that the target supports, the boldest first."""
    whole = (with_declared_values(smaller, declared) for smaller in _smaller(case, declared))
    return (smaller for smaller in whole if smaller != case and _supported(smaller, declared))


def _smaller(case: Case, declared: Declaration) -> Iterator[Case]:
    """Candidates, the boldest first."""
    count = len(case.sequences)
    if count > 3:
        yield replace(case, sequences=case.sequences[: count // 2])
        yield replace(case, sequences=case.sequences[count // 2 :])
    for index in range(count if count > 1 else 0):
        kept = case.sequences[:index] + case.sequences[index + 1 :]
        yield replace(case, sequences=kept)
    plain: dict[str, Any] = {
        "distribution": "plain", "layout": declared.layouts[0], "alibi": False, "sinks": False,
        "softcap": None, "sliding_window": None, "cache_dtype": None, "causal": True,
        "shared_blocks": 0, "spare_entries": 0, "spare_blocks": 1, "num_kv_heads": 1,
        "queries_per_kv_head": 1, "dtype": declared.dtypes[0], "seed": 0, "value_layout": None,
        "views": (), "scale": None, "fp8_query": False, "scales": declared.scales[0],
    }  # fmt: skip
    yield from smaller_sights(case)
    if declared.layouts[0] not in LAYOUTS[:1]:
        plain.pop("layout")
    for name, value in plain.items():
        if getattr(case, name) != value:
            yield replace(case, **{name: value})
    for name, sizes in (("head_size", declared.head_sizes), ("block_size", declared.block_sizes)):
        for size in sorted(sizes):
            if size < getattr(case, name):
                smaller: dict[str, Any] = {name: size}
                yield replace(case, **smaller)
    for index, (queries, keys) in enumerate(case.sequences):
        for pair in _shorter(queries, keys):
            sequences = (*case.sequences[:index], pair, *case.sequences[index + 1 :])
            yield replace(case, sequences=sequences)
    if case.sliding_window is not None and case.sliding_window > 1:
        yield replace(case, sliding_window=case.sliding_window // 2)
        yield replace(case, sliding_window=case.sliding_window - 1)


def _supported(case: Case, declared: Declaration) -> bool:
    asking = [queries for queries, _ in case.sequences if queries]
    kinds = {"decode" if queries == 1 else "prefill" for queries in asking}
    if not kinds or (case.sliding_window or 1 << 31) < declared.smallest_window:
        return False
    fits = kinds <= set(declared.modes) and (declared.mixed or len(kinds) == 1)
    return fits and is_sight_supported(case, declared)


def _shorter(queries: int, keys: int) -> Iterator[tuple[int, int]]:
    if queries > 1:
        yield 1, keys
        yield queries // 2, keys
        yield queries - 1, keys
    # Not only halves: a tail needs a length that is no multiple of the block size.
    for fewer in (1, 2, 3, keys // 2, keys // 2 + 1, keys - keys // 8, keys - 2, keys - 1):
        if 0 < fewer < keys:
            yield min(queries, fewer), fewer


def _precision(case: Case) -> str:
    if case.cache_dtype is None:
        return case.dtype
    cache = "fp8" if case.cache_dtype.startswith("float8") else case.cache_dtype
    return f"{case.dtype}, {cache} cache{', fp8 queries' if case.fp8_query else ''}"


def _why_not(check: Check, target: KernelTarget) -> str:
    if check.name == "64-bit offsets" and target.device == "cpu":
        return f"cache_reads: {target.declaration.cache_reads}"
    if check.name in {"read set", "64-bit offsets"}:
        return "only Triton kernels in the interpreter can be watched"
    if check.name in {"cache write", "block copy", "swap"}:
        return "the target is attention alone"
    if (
        check.name in {"serving", "managers", "recorded runs"}
        and not target.declaration.unquantised
    ):
        return "the model that is served has a cache in float32"
    if check.name in {"serving", "managers", "recorded runs"} and target.declaration.value_sizes:
        return "the model that is served has values of the keys' size"
    if check.name == "split keys":
        return "no log-sum-exp is returned"
    if check.name == "permuted elements":
        return "values have the keys' size"
    if check.name == "output rows":
        return "no output tensor can be handed in"
    if check.name == "empty rows":
        return f"empty_row: {target.declaration.empty_row}"
    return "not supported by the target"


def _not_covered(target: KernelTarget) -> list[str]:
    lines = ["rotary embedding, quantised output"]
    if not target.declaration.value_sizes:
        lines.insert(0, "head sizes of keys and values that differ (MLA)")
    if target.device == "cpu" and target.uses_triton:
        lines.append(
            "races between programs and the GPU's own rounding: the interpreter runs programs one "
            "after another"
        )
    names = (*FEATURES, *QUANTISED_FEATURES, *SIGHTS)
    absent = [name for name in names if name not in target.declaration.features]
    absent += [f"scales by {name}" for name in ("head", "token")
               if name not in target.declaration.scales and "fp8" not in absent]  # fmt: skip
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


ATTENTION = Kind(
    name="attention",
    checks=CHECKS,
    read_case=Case.from_json,
    in_order=in_order,
    smaller=smaller_cases,
    work=_work,
    precision=_precision,
    why_not=_why_not,
    not_covered=_not_covered,
)
