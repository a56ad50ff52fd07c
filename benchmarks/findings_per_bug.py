"""How many findings one planted bug gives a certificate, and in how many forms it was met.

Each planted bug is certified alone. One bug should give one finding: what stands in the column
"findings" is what a person has to look at, "forms" counts every minimal trace by its fingerprint.

Bugs that show only under weakened hashes are left out: their stage comes after all others.

Usage: python benchmarks/findings_per_bug.py [--every N] [--depth DEPTH] [--json FILE] [ID ...]
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from record import write_record

from poolproof.certification.certify import certify
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.contract.depth import Depth
from poolproof.kill_matrix.subject import MatrixSubject, subjects


@dataclass(frozen=True, slots=True)
class Row:
    """What the certificate of one planted bug lists; `cpu_s` is the time of all its processes."""

    id: str
    level: str
    num_findings: int
    num_forms: int
    cpu_s: float


def row_of(subject: MatrixSubject, depth: str) -> Row:
    """Certify one planted bug."""
    began_s = _cpu_s()
    found = certify(subject.target, CertifyOptions(depth=depth), SilentProgress())
    num_forms = sum(len(finding.each_form) for finding in found.findings)
    used_s = round(_cpu_s() - began_s, 1)
    return Row(subject.id, subject.level, len(found.findings), num_forms, used_s)


def _cpu_s() -> float:
    """Seconds of processor time, of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> int:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="of the bugs, each so many-th alone")
    parser.add_argument("--depth", choices=list(Depth), default="quick")
    parser.add_argument("--json", type=Path, help="where the figures go; nowhere by default")
    parser.add_argument("ids", nargs="*", help="these planted bugs alone")
    options = parser.parse_args()
    planted = {
        name: found
        for name, found in subjects().items()
        if not found.is_oddity and not found.weak_hashes
    }
    unknown = [name for name in options.ids if name not in planted]
    if unknown or options.every < 1:
        wrong = f"no planted bug {unknown[0]!r}" if unknown else "--every must be at least 1"
        print(f"{wrong}; `poolproof bugs` lists the bugs", file=sys.stderr)
        return 2
    rows = []
    for name in options.ids or list(planted)[:: options.every]:
        row = row_of(planted[name], options.depth)
        rows.append(row)
        print(
            f"  {name:<16} {row.num_findings:>3} findings {row.num_forms:>3} forms "
            f"{row.cpu_s:>6.1f} s",
            flush=True,
        )
    summary = {
        "bugs": len(rows),
        "findings": sum(row.num_findings for row in rows),
        "forms": sum(row.num_forms for row in rows),
        "one_finding": sum(row.num_findings == 1 for row in rows),
        "cpu_s": round(sum(row.cpu_s for row in rows), 1),
    }
    print(", ".join(f"{name} {value}" for name, value in summary.items()))
    if options.json is None:
        return 0
    record = {"level": options.depth, "summary": summary, "rows": [asdict(row) for row in rows]}
    return 0 if write_record(options.json, record, indent=1) else 2


if __name__ == "__main__":
    sys.exit(main())
