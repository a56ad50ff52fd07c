"""The certificate: everything that one certification found, did, left out and assumed.

Plain frozen values that other files fill, judge, print and write; the JSON form is what
`--baseline` reads back, checked field by field. Nothing here decides a verdict (`verdict.py`) or
lays out text.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from poolproof.certification.finding import Finding, FindingStatus, PublicBug
from poolproof.certification.json_fields import FieldError, Fields
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.errors import PoolproofError
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.violation import Severity
from poolproof.harness.extent import Extent

__all__ = [
    "CERTIFICATE_VERSION",
    "THE_REST",
    "Certificate",
    "CertificateError",
    "Finding",
    "FindingStatus",
    "NotRun",
    "PublicBug",
    "StageOutcome",
    "StageResult",
    "Verdict",
]

FORMAT = "poolproof-certificate"
CERTIFICATE_VERSION = 2


class CertificateError(PoolproofError, ValueError):
    """JSON that is not a certificate that we can read; the message says which field and why."""


class StageOutcome(enum.Enum):
    """The outcome of one stage."""

    HOLDS = "holds"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"
    NOT_RUN = "not run"


class Verdict(enum.Enum):
    """The outcome of the whole certification, with its exit status."""

    HOLDS = "holds"
    REFUSED = "refused"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_status(self) -> int:
        """0 holds, 1 a violation was found, 2 the run could not be concluded."""
        return {Verdict.HOLDS: 0, Verdict.REFUSED: 1, Verdict.INCONCLUSIVE: 2}[self]


THE_REST = "the rest"
"""The stage that stands for all that a run did not come to, because it was ended too early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageResult:
    """One driver at one level: what it did, and with what result.

    `level` is "queue", "pool", "events" ...; `stage` the driver's name, such as "random driver".
    `facts_required` are the named situations that must have occurred for a pass to mean anything.
    """

    level: str
    stage: str
    outcome: StageOutcome
    steps: int = 0
    runs: int = 0
    seconds: float = 0.0
    facts_reached: tuple[str, ...] = ()
    facts_required: tuple[str, ...] = ()
    note: str = ""
    extent: Extent = field(default_factory=Extent)
    """The smallest and largest of each size that the stage really tried."""

    @property
    def missing_facts(self) -> tuple[str, ...]:
        """The required facts that never occurred, in the order in which they are required."""
        reached = set(self.facts_reached)
        return tuple(fact for fact in self.facts_required if fact not in reached)

    def to_json(self) -> dict[str, Any]:
        """This stage as plain JSON values."""
        return {
            "level": self.level,
            "stage": self.stage,
            "outcome": self.outcome.value,
            "steps": self.steps,
            "runs": self.runs,
            "seconds": round(self.seconds, 3),
            "facts_reached": list(self.facts_reached),
            "facts_required": list(self.facts_required),
            "missing_facts": list(self.missing_facts),
            "note": self.note,
            "extent": {name: list(range_) for name, range_ in self.extent},
        }

    @classmethod
    def from_json(cls, value: Any) -> StageResult:
        """The stage that `to_json` wrote. Raises FieldError."""
        read = Fields(value, "stage")
        return cls(
            level=read.text("level"),
            stage=read.text("stage"),
            outcome=read.one_of("outcome", StageOutcome),
            steps=read.integer("steps"),
            runs=read.integer("runs"),
            seconds=read.number("seconds"),
            facts_reached=read.texts("facts_reached"),
            facts_required=read.texts("facts_required"),
            note=read.text("note"),
            extent=_extent(read),
        )


def _extent(read: Fields) -> Extent:
    """The extent of a stage; older certificates have none. Raises FieldError."""
    extent = Extent()
    for name, values in read.optional_mapping("extent").items():
        if (
            not isinstance(values, list)
            or len(values) != 2
            or not all(type(value) is int for value in values)
        ):
            raise FieldError(f"stage field 'extent' needs two numbers for {name!r}")
        extent.note(name, *values)
    return extent


@dataclass(frozen=True, slots=True)
class NotRun:
    """Something that a certification of this kind could have done and did not."""

    what: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """What was certified, how, and what came of it.

    `verdict`, `fixed_known`, `expired_known` and the status of each finding are filled in by
    `judge` of `verdict.py`; `verdict` is None before. `source` names the file and its SHA-256;
    `behaves_as` the row, such as "eviction=lifo", under which a target that fails ORD alone holds.
    `hardening` holds what undefined misuse showed; it never fails a run.
    """

    poolproof_version: str
    contract_version: int
    target: str
    target_version: str | None
    source: str
    profile: Profile
    depth: str
    seed: int
    workers: int
    limits: tuple[str, ...]
    python: str
    platform: str
    shape: str = "native"
    stages: tuple[StageResult, ...] = ()
    findings: tuple[Finding, ...] = ()
    canaries_caught: tuple[str, ...] = ()
    canaries_missed: tuple[str, ...] = ()
    never_called: tuple[str, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    not_covered: tuple[str, ...] = ()
    behaves_as: str | None = None
    hardening: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    verdict: Verdict | None = None
    fixed_known: tuple[str, ...] = ()
    expired_known: tuple[str, ...] = ()
    fail_on: tuple[Severity, ...] = field(default_factory=lambda: tuple(Severity))

    @property
    def assumed(self) -> tuple[str, ...]:
        """The rows of the profile that the target did not declare."""
        return self.profile.assumed

    @property
    def num_canaries(self) -> int:
        """How many bugs were planted to see whether the checks catch them."""
        return len(self.canaries_caught) + len(self.canaries_missed)

    @property
    def missing_facts(self) -> tuple[str, ...]:
        """The required facts that a stage did not reach, each once."""
        missing = (fact for stage in self.stages for fact in stage.missing_facts)
        return tuple(dict.fromkeys(missing))

    def found_by(self, stage: StageResult) -> tuple[str, ...]:
        """The fingerprints of what a stage met, forms of findings included."""
        return tuple(
            form.fingerprint
            for finding in self.findings
            for form in finding.each_form
            if form.level == stage.level and stage.stage in form.stages
        )

    def to_json(self) -> dict[str, Any]:
        """This certificate as plain JSON values."""
        return {
            "format": FORMAT,
            "version": CERTIFICATE_VERSION,
            "verdict": self.verdict.value if self.verdict else None,
            "poolproof_version": self.poolproof_version,
            "contract_version": self.contract_version,
            "target": self.target,
            "target_version": self.target_version,
            "source": self.source,
            "shape": self.shape,
            "profile": self.profile.to_json(),
            "assumed": list(self.assumed),
            "level": self.depth,
            "seed": self.seed,
            "workers": self.workers,
            "limits": list(self.limits),
            "python": self.python,
            "platform": self.platform,
            "seconds": round(self.seconds, 3),
            "stages": [
                {**stage.to_json(), "findings": list(self.found_by(stage))} for stage in self.stages
            ],
            "findings": [finding.to_json() for finding in self.findings],
            "canaries_caught": list(self.canaries_caught),
            "canaries_missed": list(self.canaries_missed),
            "never_called": list(self.never_called),
            "not_run": [{"what": skipped.what, "why": skipped.why} for skipped in self.not_run],
            "not_covered": list(self.not_covered),
            "behaves_as": self.behaves_as,
            "hardening": [finding.to_json() for finding in self.hardening],
            "notes": list(self.notes),
            "fixed_known": list(self.fixed_known),
            "expired_known": list(self.expired_known),
            "fail_on": [severity.value for severity in self.fail_on],
        }

    @classmethod
    def from_json(cls, value: Any) -> Certificate:
        """The certificate that `to_json` wrote. Raises CertificateError."""
        try:
            return _read(value)
        except (FieldError, ProfileError) as error:
            raise CertificateError(str(error)) from error


def _read(value: Any) -> Certificate:
    if not isinstance(value, Mapping) or value.get("format") != FORMAT:
        raise CertificateError(f'not a certificate: it lacks "format": "{FORMAT}"')
    read = Fields(value, "certificate")
    version = read.integer("version")
    if version > CERTIFICATE_VERSION:
        raise CertificateError(
            f"certificate version {version} is newer than this Poolproof, which reads up to "
            f"{CERTIFICATE_VERSION}; upgrade Poolproof to read it"
        )
    rows = read.mapping("profile")
    kinds = {"publishes": ManagerProfile, "steps_in_flight": EngineProfile}
    kind: type[Profile] = next((kinds[row] for row in kinds if row in rows), Profile)
    profile = replace(kind.from_mapping(rows), assumed=read.texts("assumed"))
    return Certificate(
        poolproof_version=read.text("poolproof_version"),
        contract_version=read.integer("contract_version"),
        target=read.text("target"),
        target_version=read.optional_text("target_version"),
        source=read.text("source"),
        shape=read.text("shape"),
        profile=profile,
        depth=read.text("level"),
        seed=read.integer("seed"),
        workers=read.integer("workers"),
        limits=read.texts("limits"),
        python=read.text("python"),
        platform=read.text("platform"),
        seconds=read.number("seconds"),
        stages=tuple(StageResult.from_json(item) for item in read.items("stages")),
        findings=tuple(Finding.from_json(item) for item in read.items("findings")),
        canaries_caught=read.texts("canaries_caught"),
        canaries_missed=read.texts("canaries_missed"),
        never_called=read.texts("never_called"),
        not_run=tuple(_not_run(item) for item in read.items("not_run")),
        not_covered=read.texts("not_covered"),
        behaves_as=read.optional_text("behaves_as"),
        hardening=tuple(Finding.from_json(item) for item in read.items("hardening")),
        notes=read.texts("notes"),
        verdict=read.one_of("verdict", Verdict) if value.get("verdict") is not None else None,
        fixed_known=read.texts("fixed_known"),
        expired_known=read.texts("expired_known"),
        fail_on=tuple(_severity(name) for name in read.texts("fail_on")),
    )


def _not_run(value: Any) -> NotRun:
    read = Fields(value, "not_run entry")
    return NotRun(read.text("what"), read.text("why"))


def _severity(name: str) -> Severity:
    try:
        return Severity(name)
    except ValueError as error:
        raise FieldError(f"certificate field 'fail_on' has an unknown severity {name!r}") from error
