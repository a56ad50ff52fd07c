"""What a kernel certification found, as plain values: they go to text, JSON, JUnit and the picture.

Nothing here needs torch, so that the command line can print a report that a child process made.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.violation import Severity

__all__ = ["FORMAT", "CheckLine", "CheckResult", "KernelFinding", "KernelReport"]

FORMAT = "poolproof-kernels"

HOLDS = "holds"
VIOLATED = "VIOLATED"
WEAKER = "not promised"
NOT_APPLICABLE = "not applicable"
NOT_RUN = "not run"
UNSEEN = "nothing to compare"

_NUMBER = re.compile(r"-?\d[\d.,]*(?:e[+-]?\d+)?|\bnan\b|-?\binf\b")
_OPTIONAL = ("sliding_window", "softcap", "cache_dtype", "alibi", "sinks", "shared_blocks")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One check: in how many examples it compared how many outputs, and what came of it."""

    name: str
    sentence: str
    result: str
    examples: int = 0
    compared: int = 0
    max_ratio: float | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFinding:
    """One broken promise, with the smallest case that shows it.

    `status` is "new", "known" (an accepted finding) or "baseline" (an earlier report has it).
    """

    check: str
    severity: Severity
    sentence: str
    case: Mapping[str, Any]
    words: str
    example: int
    frames: tuple[str, ...] = ()
    status: str = "new"

    @property
    def fingerprint(self) -> str:
        """Its name, the same for every seed, every size and every number in it.

        Made of the check, the severity, the sentence without its numbers, and which features the
        smallest case needs. So a finding that is accepted does not hide another one of the same
        check that needs a window, or fp8, or a prompt.
        """
        needs = [name for name in _OPTIONAL if self.case.get(name)]
        sequences = self.case.get("sequences", [])
        needs += [] if self.case.get("causal", True) else ["non_causal"]
        needs += ["several sequences"] * (len(sequences) > 1)
        needs += ["prefill"] * any(queries > 1 for queries, _ in sequences)
        sentence = _NUMBER.sub("#", self.sentence)
        words = "\0".join((self.check, self.severity.value, sentence, *needs))
        return f"f-{hashlib.blake2b(words.encode(), digest_size=4).hexdigest()}"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "fingerprint": self.fingerprint,
            "status": self.status,
            "check": self.check,
            "severity": self.severity.value,
            "sentence": self.sentence,
            "case": dict(self.case),
            "words": self.words,
            "example": self.example,
            "frames": list(self.frames),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KernelFinding:
        """What `to_json` wrote."""
        plain = {name: value[name] for name in cls.__slots__ if name in value}
        plain |= {"severity": Severity(value["severity"]), "frames": tuple(value["frames"])}
        return cls(**plain)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What one check gave: its line, its finding, the errors over bounds by precision."""

    line: CheckLine
    finding: KernelFinding | None = None
    ratios: Mapping[str, list[float]] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class KernelReport:
    """A kernel certification. `ratios` are errors over bounds of dense examples, by precision.

    `fixed_known` and `expired_known` are entries of the known file; `fail_on` are the severities
    that fail the run.
    """

    poolproof_version: str = ""
    target: str = ""
    version: str = ""
    source: str = ""
    device: str = ""
    device_name: str = ""
    torch: str = ""
    triton: str = ""
    python: str = ""
    level: str = ""
    seed: int = 0
    declaration: dict[str, Any] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    lines: list[CheckLine] = field(default_factory=list)
    findings: list[KernelFinding] = field(default_factory=list)
    ratios: dict[str, list[float]] = field(default_factory=dict)
    canaries_caught: list[str] = field(default_factory=list)
    canaries_missed: list[str] = field(default_factory=list)
    not_covered: list[str] = field(default_factory=list)
    seconds: float = 0.0
    fixed_known: list[str] = field(default_factory=list)
    expired_known: list[str] = field(default_factory=list)
    fail_on: list[str] = field(default_factory=lambda: [severity.value for severity in Severity])

    @property
    def failing(self) -> list[KernelFinding]:
        """The findings that fail the run."""
        return [
            finding
            for finding in self.findings
            if finding.status == "new" and finding.severity.value in self.fail_on
        ]

    def reasons_inconclusive(self) -> list[str]:
        """Why the run says less than it should; empty if it says all."""
        reasons = [f"canary not caught: {name}" for name in self.canaries_missed]
        reasons += [
            f"{line.name}: {line.note or line.result}"
            for line in self.lines
            if line.result in {UNSEEN, NOT_RUN}
        ]
        if not self.lines:
            reasons.append("no check was run")
        return reasons

    @property
    def verdict(self) -> str:
        """REFUSED, INCONCLUSIVE or HOLDS; a violation beats the rest."""
        if self.failing or self.fixed_known:
            return "REFUSED"
        return "INCONCLUSIVE" if self.reasons_inconclusive() else "HOLDS"

    @property
    def exit_status(self) -> int:
        """0 holds, 1 refused, 2 inconclusive."""
        return {"HOLDS": 0, "REFUSED": 1, "INCONCLUSIVE": 2}[self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Plain values, with a format mark."""
        plain = {name: getattr(self, name) for name in self.__slots__}
        plain["lines"] = [line.to_json() for line in self.lines]
        plain["findings"] = [finding.to_json() for finding in self.findings]
        plain["ratios"] = {
            name: [round(ratio, 4) for ratio in ratios] for name, ratios in self.ratios.items()
        }
        plain["seconds"] = round(self.seconds, 1)
        return {"format": FORMAT, "version_of_format": 1, "verdict": self.verdict, **plain}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> KernelReport:
        """What `to_json` wrote."""
        plain = {name: value[name] for name in cls.__slots__ if name in value}
        plain["lines"] = [CheckLine(**line) for line in value["lines"]]
        plain["findings"] = [KernelFinding.from_json(item) for item in value["findings"]]
        return cls(**plain)
