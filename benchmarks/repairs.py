"""Repairs of vLLM, ours and public ones: what each repairs, leaves, breaks, and costs in hits.

Each is judged as `poolproof certify TARGET --patch DIFF` judges it, at depth quick with so many
chunks of runs for a target. A target that names a patch already is judged with it on both sides:
the other diff has both changes. Needs the target's environment (`make vllm`).

Usage: .venv-vllm/bin/python benchmarks/repairs.py [NAME ...] [--chunks N] [--workers N]
           [--again] [--record]
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

from record import RECORDED, add_destination, surroundings, write_record

from poolproof.api import judge_patch
from poolproof.certification.certificate import Certificate
from poolproof.certification.depths import BUDGETS
from poolproof.certification.progress import progress_to
from poolproof.certification.repair import PatchEffect, RepairReport
from poolproof.contract.depth import Depth
from poolproof.contract.target import TargetError

_FIRST = "docs/findings/upstream/vllm-hybrid-one-token-prompt/fix.diff"
_BEHIND_IT = f"vllm-hybrid[patch={_FIRST}]"
_PRIORITY = "docs/findings/upstream/vllm-priority-leak/fix.diff"
_CALL_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Repair:
    """A diff, whose idea it is, and where it is judged."""

    name: str
    whose: str
    what: str
    target: str
    patch: str
    layouts: tuple[str, ...]


REPAIRS = (
    Repair(
        "one-token",
        "ours",
        "pads only requests that have computed something",
        "vllm-hybrid",
        _FIRST,
        # In the other set-ups other causes show the same words (docs/engines.md).
        ("gdn+draft+drop+chunks",),
    ),
    Repair(
        "wait-for-counts",
        "vllm#53919, from its description",
        "waits for accepted counts before rows move, and does not look them up by the old rows",
        _BEHIND_IT,
        "docs/repairs/wait-for-counts.diff",
        ("gdn+async+drafts+drop+reset", "gdn+async+drafts+lag"),
    ),
    Repair(
        "drop-last-state",
        "vllm#48375 and vllm#57128, from their descriptions",
        "where drafts drop the last block of a hit, takes the state before the last one as well",
        _BEHIND_IT,
        "docs/repairs/drop-last-state.diff",
        ("gdn+draft+drop+chunks",),
    ),
    Repair(
        "keep-counts",
        "ours",
        "keeps how many drafts were right of a request that a step leaves out",
        _BEHIND_IT,
        "docs/repairs/keep-counts.diff",
        ("gdn+drafts+priority",),
    ),
    Repair(
        "decode-rows",
        "ours",
        "counts as a decode what computes one token and its drafts, whatever the prompt's length",
        _BEHIND_IT,
        "docs/repairs/decode-rows.diff",
        ("mamba2+drafts",),
    ),
    Repair(
        "priority-leak",
        "ours",
        "withdraws the keys of a chunk whose request is preempted in the pass that planned it",
        "vllm-engine",
        _PRIORITY,
        ("priority", "priority+async", "priority+drafts"),
    ),
    Repair(
        "without-51113",
        "vllm#51113, which is in the release, undone by us",
        "chunks behind the last boundary that is cached end anywhere",
        _BEHIND_IT,
        "docs/repairs/without-51113.diff",
        ("gdn+draft+drop+chunks",),
    ),
    Repair(
        "without-49502",
        "vllm#49502, which is in the release, undone by us",
        "a hit of states may be a block longer than attention's",
        _BEHIND_IT,
        "docs/repairs/without-49502.diff",
        ("gdn+draft+drop+chunks",),
    ),
    Repair(
        "without-55178",
        "vllm#55178, which is in the release, undone by us",
        "the padded end of a prompt is computed as a prompt",
        _BEHIND_IT,
        "docs/repairs/without-55178.diff",
        ("mamba2+drafts",),
    ),
)


def judged(repair: Repair, chunks: int, workers: int) -> dict[str, Any]:
    """What one of them does, cut to what the table shows. Raises TargetError."""
    BUDGETS[Depth.QUICK] = replace(BUDGETS[Depth.QUICK], engine_chunks=chunks)
    with progress_to(sys.stderr) as progress:
        report = judge_patch(
            repair.target,
            repair.patch,
            depth="quick",
            layouts=repair.layouts,
            workers=workers,
            call_timeout_s=_CALL_TIMEOUT_S,
            progress=progress,
        )
    return {
        **asdict(repair),
        "release": report.before.target_version,
        "chunks": chunks,
        "status": report.exit_status,
        "effects": {effect.value: _findings(report, effect) for effect in PatchEffect},
        "steps": [_steps(report.before), _steps(report.after)],
        "hits": [hits.to_json() for hits in report.hits],
        "unconcluded": list(report.unconcluded),
        **surroundings(),
    }


def _findings(report: RepairReport, effect: PatchEffect) -> list[dict[str, Any]]:
    return [
        {
            "invariant": found.finding.violation.invariant,
            "commands": len(found.finding.trace.commands),
            "sentence": found.finding.violation.sentence,
            "why": found.why,
        }
        for found in report.of(effect)
    ]


def _steps(certificate: Certificate) -> int:
    return sum(stage.steps for stage in certificate.stages)


def main() -> int:
    """Write the record after each row; 2 where one cannot be judged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them; all by default")
    parser.add_argument("--chunks", type=int, default=16, help="of runs; depth quick has 16")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="also what was recorded before")
    add_destination(parser, "repairs")
    options = parser.parse_args()
    known = {repair.name: repair for repair in REPAIRS}
    unknown = sorted(set(options.names) - set(known))
    if unknown:
        print(f"no repair {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    for name in options.names or known:
        if name in recorded() and not options.again:
            continue
        try:
            row = judged(known[name], options.chunks, options.workers)
        except TargetError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        print(f"{name}: status {row['status']}", flush=True)
        rows = {**recorded(), name: row}  # another run may have written in between
        ordered = {each: rows[each] for each in known if each in rows}
        if not write_record(options.json, {"rows": ordered}):
            return 1
    return 0


def recorded() -> dict[str, Any]:
    """The rows that are there."""
    path = RECORDED / "repairs.json"
    if not path.exists():
        return {}
    rows: dict[str, Any] = json.loads(path.read_text("utf-8"))["rows"]
    return rows


if __name__ == "__main__":
    sys.exit(main())
