"""How many findings one planted bug gives a campaign, and how often one bug hides another.

Each planted bug of `bugs/` is the target of a campaign of its own. "Before" counts its minimal
traces by fingerprint, as campaigns once reported them; "after" counts findings, where traces with
one symptom are forms of one finding. A symptom that two bugs share is the price: of all ordered
pairs of bugs of one level, in how many would everything that the second shows be taken for forms
of the first, were both in one allocator?

Bugs that show only under weakened hashes are left out: campaigns do not weaken any.

Usage: python benchmarks/campaign_duplicates.py [--steps N] [--seconds S] [--record] [ID ...]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from itertools import permutations

from record import add_destination, write_record

from poolproof.certification.fuzz_examiner import TargetExaminer
from poolproof.fuzz.coordinator import Campaign, CampaignBudget
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.workers import LocalWorkers
from poolproof.harness.isolation import Isolation, Limits
from poolproof.kill_matrix.subject import LAYOUT, MatrixSubject, subjects
from poolproof.targets.target import Target

USABLE_BLOCKS = {"queue": 5, "pool": 6, "manager": 8}
CALL_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Row:
    """What a campaign against one planted bug found."""

    id: str
    level: str
    num_kinds: int
    num_traces: int
    num_findings: int
    symptoms: tuple[str, ...]


def campaign_against(subject: MatrixSubject, budget: CampaignBudget) -> Row:
    """One campaign with one worker, as `poolproof fuzz` runs it."""
    settings = CampaignSettings(
        subject.id,
        subject.level,
        max(USABLE_BLOCKS[subject.level], subject.profile.null_block or 0),
        layout=LAYOUT if subject.level == "manager" else "",
    )

    def load() -> Target:
        return subject.target()

    limits = Limits(call_timeout_s=CALL_TIMEOUT_S)
    with Isolation(load, limits) as isolation, CampaignFolder(None, settings) as folder:
        workers = LocalWorkers(isolation, 1)
        try:
            Campaign(
                settings,
                workers,
                folder,
                TargetExaminer(isolation, settings),
                budget=budget,
                scope="",
                num_possible=None,
                show=lambda _: None,
                say=lambda _: None,
            ).run()
        finally:
            workers.close()
        findings = folder.findings()
        num_forms = sum(map(len, folder.forms().values()))
    return Row(
        subject.id,
        subject.level,
        len({finding.kind for finding in findings}),
        len(findings) + num_forms,
        len(findings),
        tuple(sorted({finding.symptom for finding in findings})),
    )


def summary_of(rows: list[Row]) -> dict[str, float]:
    """The figures of one level."""
    caught = [row for row in rows if row.symptoms]
    pairs = list(permutations(caught, 2))
    hidden = sum(set(second.symptoms) <= set(first.symptoms) for first, second in pairs)
    return {
        "bugs": len(rows),
        "caught": len(caught),
        "traces_per_bug": _mean([row.num_traces for row in caught]),
        "findings_per_bug": _mean([row.num_findings for row in caught]),
        "kinds_per_bug": _mean([row.num_kinds for row in caught]),
        "one_finding": sum(row.num_findings == 1 for row in caught),
        "pairs": len(pairs),
        "hidden_pairs": hidden,
    }


def _mean(numbers: list[int]) -> float:
    return round(statistics.mean(numbers), 2) if numbers else 0.0


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--steps", type=int, default=10_000, help="of each campaign")
    parser.add_argument("--seconds", type=float, default=60.0, help="at most, of each campaign")
    add_destination(parser, "campaign_duplicates")
    parser.add_argument("ids", nargs="*", help="these planted bugs alone; nothing is written")
    options = parser.parse_args()
    planted = {
        name: found
        for name, found in subjects().items()
        if not found.is_oddity and not found.weak_hashes
    }
    unknown = [name for name in options.ids if name not in planted]
    if unknown:
        print(f"no planted bug {unknown[0]!r}; `poolproof bugs` lists them", file=sys.stderr)
        return 2
    budget = CampaignBudget(seconds=options.seconds, steps=options.steps)
    rows = []
    for name in options.ids or planted:
        row = campaign_against(planted[name], budget)
        rows.append(row)
        print(f"  {name:<16} {row.num_traces:>3} traces {row.num_findings:>3} findings", flush=True)
    levels = {row.level: [other for other in rows if other.level == row.level] for row in rows}
    summary = {level: summary_of(of_level) for level, of_level in levels.items()}
    print(json.dumps(summary, indent=1))
    if options.ids:
        return 0
    record = {
        "steps": options.steps,
        "summary": summary,
        "rows": [asdict(row) for row in rows],
    }
    return 0 if write_record(options.json, record, indent=1) else 2


if __name__ == "__main__":
    sys.exit(main())
