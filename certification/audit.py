"""Judges a recording of steps with the oracle that certifies engines and watches live ones.

The answer is that no sequence read a slot that was not computed for it, or the first that did. What
is needed for that finding is then taken out of the recording and made small
(`recorded_story.py`), so that the engine level can replay it.

Not judged: kinds of attention of which the header says that they are left out, who owns blocks, and
whether the numbers in a block are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.outside import printable
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.recording import (
    RecordingError,
    RecordingHeader,
    StepRecording,
    open_recording,
)
from poolproof.contract.step_record import StepRecord
from poolproof.reference.content_names import Content, ContentNames
from poolproof.reference.step_oracle import StepOracle, WrongRead

__all__ = ["Audit", "AuditFinding", "audit_recording", "oracle_for"]

MOST_FINDINGS = 1_000
"""So many are kept; the rest is counted."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A slot that was read in a step and did not hold what was computed for its reader.

    `writer` and `written_in` are None where nobody has written; requests are named as in the
    recording. With `invariant` PLAN a table was too short, or named no block of the pool.
    """

    invariant: str
    step: int
    sentence: str
    reader: str | None = None
    group: int | None = None
    position: int | None = None
    block: int | None = None
    slot: int | None = None
    writer: str | None = None
    written_in: int | None = None

    @classmethod
    def of(cls, wrong: WrongRead) -> AuditFinding:
        """The finding, without the digests that stand for tokens."""
        where = (
            f"step {wrong.step}: request {wrong.reader} reads at position {wrong.position} (group "
            f"{wrong.group}, block {wrong.block}, slot {wrong.slot}) KV that "
        )
        if wrong.writer is None:
            what = "nobody has computed"
        elif wrong.writer == wrong.reader:
            what = f"it computed itself in step {wrong.written_in}, for another prefix"
        else:
            what = f"was computed for request {wrong.writer} in step {wrong.written_in}"
        return cls(
            "DATA", wrong.step, printable(where + what), wrong.reader, wrong.group, wrong.position,
            wrong.block, wrong.slot, wrong.writer, wrong.written_in,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The finding as plain values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(frozen=True, slots=True)
class Audit:
    """What became of a recording: how much was judged, what was found, how it ended.

    `num_findings` counts those beyond `findings` too; `num_unknown` are reads of what was computed
    before the recording began, or brought from elsewhere. `notes` say what was not judged, and how
    the file ends.
    """

    path: Path
    engine: str
    num_steps: int
    num_tokens: int
    findings: tuple[AuditFinding, ...] = ()
    num_findings: int = 0
    num_unknown: int = 0
    notes: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing was found in the steps that were judged, of which there is one."""
        return not self.findings and self.num_steps > 0

    def sentence(self) -> str:
        """The answer in one line."""
        if self.findings:
            more = self.num_findings - 1
            return self.findings[0].sentence + (f" (and {more:,} more)" if more else "")
        if not self.num_steps:
            return f"{self.path} has no step: nothing was judged"
        return (
            "no sequence read a slot that was not computed for it in "
            f"{self.num_steps:,} step{'s' * (self.num_steps != 1)}: look at kernels and numerics"
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as plain values."""
        return {
            "recording": str(self.path),
            "engine": self.engine,
            "holds": self.holds,
            "sentence": self.sentence(),
            "steps": self.num_steps,
            "computed_tokens": self.num_tokens,
            "unknown_reads": self.num_unknown,
            "num_findings": self.num_findings,
            "findings": [finding.to_json() for finding in self.findings],
            "notes": list(self.notes),
        }


class _DigestNames(ContentNames):
    """A digest is a name already, so none are given out and none are kept.

    The oracle's memory is then that of the pool and the live requests.
    """

    def root(self, chain: TokenChain, group: int = 0) -> Content:
        del chain  # its adapter and its salt are in the digests
        return bytes([group])

    def extended(
        self, parent: Content, chain: TokenChain, tokens: Sequence[int], offset: int
    ) -> list[Content]:
        del chain, offset  # the same
        group = parent[-1:]
        return [digest.to_bytes(8, "big") + group for digest in tokens]

    def prefix(self, content: Content) -> Prefix:
        """Nothing is known of a prefix but its group."""
        return Prefix((), group=content[-1])


def oracle_for(header: RecordingHeader) -> StepOracle:
    """The oracle for a recording. Raises RecordingError for groups that it does not judge."""
    if any(group.is_state for group in header.groups):
        raise RecordingError("the recording has recurrent states, which recordings do not tell")
    try:
        return StepOracle(header.num_blocks, header.groups, header.block_sizes, _DigestNames())
    except ValueError as error:
        raise RecordingError(f"the recording cannot be judged: {error}") from error


def audit_recording(path: str | Path) -> Audit:
    """Judge all steps of a recording. Raises RecordingError for a file that is none."""
    recording = open_recording(path)
    oracle = oracle_for(recording.header)
    findings: list[AuditFinding] = []
    num_findings = num_unknown = 0
    for finding in findings_in(recording, oracle):
        if finding.invariant == "DATA" and finding.writer is None and not recording.header.is_whole:
            num_unknown += 1
            continue
        num_findings += 1
        if len(findings) < MOST_FINDINGS:
            findings.append(finding)
    return Audit(
        recording.path,
        recording.header.engine,
        recording.num_steps,
        oracle.counts.computed_tokens,
        tuple(findings),
        num_findings,
        num_unknown,
        tuple(_notes(recording, num_unknown)),
    )


def findings_in(
    steps: StepRecording | list[StepRecord], oracle: StepOracle
) -> Iterator[AuditFinding]:
    """What the oracle finds, step by step; a step that cannot be followed is the last one."""
    for step in steps:
        try:
            found = oracle.record(step)
        except ValueError as error:
            yield AuditFinding("PLAN", step.number, printable(f"step {step.number}: {error}"))
            return
        except IndexError:
            what = f"step {step.number} goes on with a request of which no table was told"
            yield AuditFinding("PLAN", step.number, what)
            return
        # There are no recurrent states from which a step could start wrongly (`oracle_for`).
        yield from (AuditFinding.of(wrong) for wrong in found if isinstance(wrong, WrongRead))


def _notes(recording: StepRecording, num_unknown: int) -> Iterator[str]:
    for left_out in recording.header.left_out:
        yield f"not judged: {left_out}"
    if not recording.header.is_whole:
        yield (
            "the recording began on a running engine, or KV comes from elsewhere: "
            f"{num_unknown:,} reads met what is not known"
        )
    if recording.is_cut:
        yield f"the last line was cut and dropped: {recording.num_steps:,} whole steps were judged"
    if recording.end:
        yield recording.end
