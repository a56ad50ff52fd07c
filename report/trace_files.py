"""Where traces of findings are kept, and how the commands that take a TRACE find them.

A TRACE is a path, or a fingerprint of which the last certification in this folder left a trace. The
trace up to the wrong read to which `f-...` leads is `r-...`; a campaign leaves one under `p-...` of
a failing run that is not minimised yet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from poolproof.certification.consequence import read_name
from poolproof.certification.finding import Finding
from poolproof.contract.trace import Trace, TraceError, read_trace
from poolproof.report.finding_report import finding_report
from poolproof.report.output_files import write_if_possible
from poolproof.report.text_form import plain_text

__all__ = ["DEFAULT_FOLDER", "find_trace", "write_findings"]

DEFAULT_FOLDER = Path(".poolproof", "findings")


def find_trace(text: str) -> tuple[Path, Trace]:
    """The trace that the user named, and its file. Raises TraceError."""
    if not text.strip():
        raise TraceError(
            "TRACE is empty (is a variable unset?); give a trace file or the fingerprint "
            "of a finding"
        )
    path = Path(text)
    if re.fullmatch(r"[fpr]-[0-9a-f]{1,8}", text) and not path.exists():
        path = _by_fingerprint(text)
    return path, read_trace(path)


def _by_fingerprint(text: str) -> Path:
    found = sorted(DEFAULT_FOLDER.glob(f"{text}*.jsonl"))
    if not found:
        raise TraceError(
            f"no trace {text} in {DEFAULT_FOLDER}; give the path of a trace file, such as one "
            "that `poolproof certify --report DIR` wrote"
        )
    if len(found) > 1:
        raise TraceError(
            f"{text} fits {len(found)} traces: {', '.join(path.stem for path in found)}; "
            "give more digits"
        )
    return found[0]


def write_findings(folder: Path, findings: Sequence[Finding]) -> dict[str, str]:
    """Write trace and report of each form of the findings into a folder; paths by fingerprint.

    What cannot be written is named on standard error.
    """
    written: dict[str, str] = {}
    alone = [form for finding in findings for form in finding.forms]
    for finding in (*findings, *alone):
        path = folder / f"{finding.fingerprint}.jsonl"
        with suppress(OSError):  # then no file can be written, which is said of each
            folder.mkdir(parents=True, exist_ok=True)
        if write_if_possible(path, "\n".join(finding.whole_trace().lines()) + "\n"):
            written[finding.fingerprint] = str(path)
        if finding.consequence is not None and finding.consequence.trace is not None:
            read = finding.consequence.trace
            name = folder / f"{read_name(finding.fingerprint)}.jsonl"
            write_if_possible(name, "\n".join(read.lines()) + "\n")
        report = plain_text(finding_report(finding, str(path)))
        write_if_possible(path.with_suffix(".txt"), report)
    return written
