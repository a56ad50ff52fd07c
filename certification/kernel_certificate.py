"""The certificate of a kernel: what its checks gave, and what that is judged to be.

Plain frozen values, as in `certificate.py`; `verdict.py` judges both by the same rules. The JSON
form is what `--baseline` and `--case` read back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from poolproof.certification.certificate import Verdict
from poolproof.certification.finding import FindingStatus, Identity
from poolproof.contract.violation import Severity
from poolproof.kernels.findings import KernelFinding, KernelRun

__all__ = ["FORMAT", "JudgedKernelFinding", "KernelCertificate"]

FORMAT = "poolproof-kernels"


@dataclass(frozen=True, slots=True)
class JudgedKernelFinding:
    """A finding about a kernel, and whether it fails the run."""

    seen: KernelFinding
    status: FindingStatus = FindingStatus.NEW

    @property
    def fingerprint(self) -> str:
        """Its name, the same for every seed."""
        return self.seen.fingerprint

    @property
    def identities(self) -> frozenset[Identity]:
        """What it is known by again."""
        return frozenset({Identity(self.seen.fingerprint, self.seen.kind)})

    @property
    def severities(self) -> frozenset[Severity]:
        """How bad it is."""
        return frozenset({self.seen.severity})

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        fingerprint = {"fingerprint": self.fingerprint, "status": self.status.value}
        return fingerprint | self.seen.to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCertificate:
    """One certification of a kernel. The status of the findings and the verdict are judged later.

    `named` is the target as the user named it, with its rows in brackets. `one_case` says that the
    checks ran on a case of an earlier report alone, which cannot say that something is gone.
    `fixed_known` and `expired_known` are entries of the known file.
    """

    run: KernelRun
    named: str
    poolproof_version: str = ""
    one_case: bool = False
    findings: tuple[JudgedKernelFinding, ...] = ()
    fixed_known: tuple[str, ...] = ()
    expired_known: tuple[str, ...] = ()
    fail_on: tuple[Severity, ...] = tuple(Severity)
    verdict: Verdict | None = None

    @classmethod
    def of(
        cls, run: KernelRun, named: str, *, version: str, one_case: bool = False
    ) -> KernelCertificate:
        """A run that nobody has judged, seen by this `version` of Poolproof."""
        findings = tuple(map(JudgedKernelFinding, run.findings))
        return cls(
            run=run, named=named, poolproof_version=version, one_case=one_case, findings=findings
        )

    @property
    def target(self) -> str:
        """The target without its rows."""
        return self.run.target

    @property
    def canaries_caught(self) -> tuple[str, ...]:
        """Faulty kernels that were caught by all checks that have to."""
        return self.run.canaries_caught

    @property
    def canaries_missed(self) -> tuple[str, ...]:
        """Those that were not."""
        return self.run.canaries_missed

    def to_json(self) -> dict[str, Any]:
        """This certificate as plain JSON values, with a format mark."""
        assert self.verdict is not None, "judge the certificate first"
        return {
            "format": FORMAT,
            "version_of_format": 1,
            "verdict": self.verdict.name,
            "poolproof_version": self.poolproof_version,
            **self.run.to_json(),
            "findings": [finding.to_json() for finding in self.findings],
            "fixed_known": list(self.fixed_known),
            "expired_known": list(self.expired_known),
            "fail_on": [severity.value for severity in self.fail_on],
        }
