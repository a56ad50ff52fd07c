"""What the checks of a kernel found, as plain values.

Nothing here needs torch, so a process without it can judge and print what a worker found.
`certification/kernel_certificate.py` makes a certificate of it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.violation import Severity
from poolproof.harness.failure_kind import FailureKind

__all__ = ["CheckLine", "CheckResult", "KernelFinding", "KernelRun"]

HOLDS = "holds"
VIOLATED = "VIOLATED"
WEAKER = "not promised"
NOT_APPLICABLE = "not applicable"
NOT_RUN = "not run"
UNSEEN = "nothing to compare"

_NUMBER = re.compile(r"-?\d[\d.,]*(?:e[+-]?\d+)?|\bnan\b|-?\binf\b")
_OPTIONAL = (
    "sliding_window",
    "softcap",
    "cache_dtype",
    "alibi",
    "sinks",
    "shared_blocks",
    "latent",
    "fp8_query",
    "attention_chunk",
    "mask",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckLine:
    """One check: how many outputs it compared in how many examples, and the outcome."""

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
    """One broken promise, with the smallest case that shows it."""

    check: str
    severity: Severity
    sentence: str
    case: Mapping[str, Any]
    words: str
    example: int
    frames: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Its name, the same for every seed, every size and every number in it.

        Made of the check, the severity, the sentence without its numbers, and which features the
        smallest case needs. So a finding that is accepted does not hide another one of the same
        check that needs a window, or fp8, or a prompt.
        """
        needs = [name for name in _OPTIONAL if self.case.get(name)]
        cache, scales = self.case.get("cache_dtype"), self.case.get("scales", "tensor")
        needs += [cache] if cache in {"int8", "int4"} else []
        needs += [] if scales == "tensor" else [f"scales by {scales}"]
        sequences = self.case.get("sequences", [])
        needs += [] if self.case.get("causal", True) else ["non_causal"]
        needs += [] if self.case.get("window_ahead") is None else ["window_ahead"]
        needs += ["cross"] * any(queries > keys > 0 for queries, keys in sequences)
        needs += ["several sequences"] * (len(sequences) > 1)
        needs += ["prefill"] * any(queries > 1 for queries, _ in sequences)
        sentence = _NUMBER.sub("#", self.sentence)
        words = "\0".join((self.check, self.severity.value, sentence, *needs))
        return f"f-{hashlib.blake2b(words.encode(), digest_size=4).hexdigest()}"

    @property
    def kind(self) -> FailureKind:
        """What an entry of a known file must agree with; its `invariant` is the check."""
        return FailureKind(self.check, self.severity, "kernel")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "fingerprint": self.fingerprint,
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
    """The result of one check: its line, its finding, the errors over bounds by precision."""

    line: CheckLine
    finding: KernelFinding | None = None
    ratios: Mapping[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """The results of all checks of one target, and what was examined, where and with what.

    `ratios` are errors over bounds of dense examples, by precision. This layer does not judge the
    run.
    """

    target: str = ""
    version: str = ""
    source: str = ""
    device: str = ""
    device_name: str = ""
    torch: str = ""
    triton: str = ""
    python: str = ""
    depth: str = ""
    seed: int = 0
    declaration: Mapping[str, Any] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    lines: tuple[CheckLine, ...] = ()
    findings: tuple[KernelFinding, ...] = ()
    ratios: Mapping[str, list[float]] = field(default_factory=dict)
    canaries_caught: tuple[str, ...] = ()
    canaries_missed: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def reasons_inconclusive(self) -> tuple[str, ...]:
        """Why the run says less than it should; empty if it says all."""
        reasons = [f"canary not caught: {name}" for name in self.canaries_missed]
        reasons += [
            f"{line.name}: {line.note or line.result}"
            for line in self.lines
            if line.result in {UNSEEN, NOT_RUN}
        ]
        return tuple(reasons) if self.lines else (*reasons, "no check was run")

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        # In files a depth has always been called a level.
        plain = {
            "level" if name == "depth" else name: getattr(self, name) for name in self.__slots__
        }
        plain["lines"] = [line.to_json() for line in self.lines]
        plain["findings"] = [finding.to_json() for finding in self.findings]
        plain["ratios"] = {
            name: [round(ratio, 4) for ratio in ratios] for name, ratios in self.ratios.items()
        }
        plain["seconds"] = round(self.seconds, 1)
        return plain
