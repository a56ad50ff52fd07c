"""Traces, findings and certificates that the tests of the interface print, write and judge."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from poolproof.certification.certificate import Certificate, NotRun, StageOutcome, StageResult
from poolproof.certification.finding import Finding, PublicBug
from poolproof.contract.commands import Allocate, Cache, Command, Free, Lookup
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation

HASH = bytes.fromhex("41f041f0")
OTHER = bytes.fromhex("c7aac7aa")

COMMANDS: tuple[Command, ...] = (
    Allocate(2),
    Cache((1, 2), (HASH, OTHER)),
    Free((2, 1)),
    Allocate(2),
    Lookup(HASH),
)


def trace(**changes: Any) -> Trace:
    """Three usable blocks and a null block; the lookup finds a block that was handed out."""
    violation = Violation(
        "IDX",
        Severity.WRONG_DATA_OF_ANOTHER,
        "lookup of hash 41f041f0 answers with block 3",
        blocks=(3,),
        command_index=4,
        frames=("pool.py:88 lookup",),
    )
    made = Trace(
        target="pool.py:Pool",
        level="pool",
        profile=Profile.from_mapping({"null_block": 0, "eviction": "lru"}),
        num_blocks=4,
        enable_caching=True,
        commands=COMMANDS,
        violation=violation,
        fingerprint="f-7d3f0a11",
    )
    return replace(made, **changes)


def finding(fingerprint: str = "f-7d3f0a11", **changes: Any) -> Finding:
    """A finding with everything that is known about it filled in."""
    found = trace(fingerprint=fingerprint)
    assert found.violation is not None
    made = Finding(
        fingerprint=fingerprint,
        violation=found.violation,
        trace=found,
        stages=("plain driver",),
        first_seen_steps=812,
        runs_seen=4,
        shortest_known="breadth-first to 5 commands: none shorter",
        similar=(PublicBug("D1", "nano-vllm#163"),),
        ruled_out=("a duplicate",),
    )
    return replace(made, **changes)


def of_severity(severity: Severity, fingerprint: str = "f-00000001") -> Finding:
    """A finding of another severity."""
    made = finding(fingerprint)
    violation = replace(made.violation, severity=severity)
    return replace(made, violation=violation, trace=replace(made.trace, violation=violation))


def certificate(*findings: Finding, **changes: Any) -> Certificate:
    """A certificate that holds, or is refused for these findings."""
    outcome = StageOutcome.REFUSED if findings else StageOutcome.HOLDS
    made = Certificate(
        poolproof_version="0.1.0",
        contract_version=1,
        target="pool.py:Pool",
        target_version="pool 2.0",
        source="pool.py (sha256 0123456789ab)",
        profile=Profile.from_mapping({"null_block": 0, "eviction": "lru"}),
        depth="quick",
        seed=7,
        workers=2,
        limits=("10 s a call",),
        python="CPython 3.11.7",
        platform="Linux",
        stages=(
            StageResult(
                level="queue", stage="state machine", outcome=StageOutcome.NOT_RUN, note="no queue"
            ),
            StageResult(
                level="pool",
                stage="plain driver",
                outcome=outcome,
                steps=123_456,
                runs=1_000,
                seconds=12.5,
                facts_reached=("a refusal", "an eviction"),
                facts_required=("a refusal", "an eviction"),
            ),
        ),
        findings=findings,
        canaries_caught=("A1 wrong count", "D1 stale entry"),
        never_called=("unpin_blocks",),
        not_run=(NotRun("manager level", "not part of this version"),),
        not_covered=("threads",),
        notes=("events are not driven",),
        seconds=14.2,
    )
    return replace(made, **changes)
