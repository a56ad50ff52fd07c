"""Certifies every system of verdict_systems.toml that can be run here, and records the verdicts.

Writes the verdicts, and the trace of each finding beside them; with --record the traces go into
docs/findings/, and `make pages` makes docs/verdicts.md of both: `make verdicts` does all of it.
Systems that are not here keep the row that they have; `poolproof engines` fetches most of them.
Exit status 1 when something was found that the table does not explain, or a check was inconclusive.

Usage: python benchmarks/verdicts.py [ID ...] [--depth quick|standard] [--record]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import RECORDED, add_destination, write_record

from poolproof.contract.trace import write_atomically

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
SYSTEMS = Path(__file__).with_name("verdict_systems.toml")
TRACES = ROOT / "docs" / "findings"
"""Where the traces of recorded findings go; others go beside the figures."""


def why_not_here(system: dict[str, Any]) -> str:
    """What a system needs that is not here, or nothing."""
    missing = [m for m in system.get("modules", ()) if importlib.util.find_spec(m) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def certified(system: dict[str, Any], depth: str) -> dict[str, Any] | str:
    """The certificate of a system as JSON, or why it could not be made."""
    target = system["target"]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "certificate.json"
        command = [str(Path(sys.executable).with_name("poolproof")), "certify", target]
        command += ["--depth", depth, "--json", str(path), "--report", scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
        if not path.is_file():
            return (done.stderr or done.stdout).strip()
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found


_NOT_DRIVEN = "is not driven, because"
"""How an adapter says that it does not fit."""


def row_of_not_driven(system: dict[str, Any], said: str) -> dict[str, Any]:
    """What is recorded of a system that its adapter refuses: why, in the adapter's words."""
    return {
        "system": system["system"],
        "document": system["document"],
        "target": system.get("public", system["target"]),
        "remark": system["remark"],
        "verdict": "not driven",
        "why": said.partition(_NOT_DRIVEN)[2].partition(";")[0].strip(),
        "stages": [],
        "findings": [],
        "unexplained": [],
    }


def says_one_of(sentence: str, parts: str | list[str]) -> bool:
    """Whether a sentence contains the part, or one of them."""
    return any(part in sentence for part in ([parts] if isinstance(parts, str) else parts))


def explained(system: dict[str, Any], finding: dict[str, Any]) -> dict[str, Any] | None:
    """The entry of the table that explains a finding, in a layout where it may be met."""
    layout = finding["trace"][0].get("options", {}).get("layout")
    for entry in system.get("finding", ()):
        if (
            finding["invariant"] in entry["invariants"]
            and says_one_of(finding["sentence"], entry["contains"])
            and layout in entry.get("layouts", [layout])
        ):
            found: dict[str, Any] = entry
            return found
    return None


def row_of(system: dict[str, Any], certificate: dict[str, Any], traces: Path) -> dict[str, Any]:
    """What is recorded of a system; the shortest trace of each explanation is written out."""
    shortest: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    seen: dict[str, dict[str, str]] = {}
    unexplained = []
    forms = [form for found in certificate["findings"] for form in (found, *found["forms"])]
    for finding in forms:
        entry = explained(system, finding)
        if entry is None:
            unexplained.append(f"{finding['invariant']}: {finding['sentence']}")
            continue
        seen.setdefault(entry["name"], {}).setdefault(finding["invariant"], finding["sentence"])
        if entry["name"] not in shortest or _order(finding) < _order(shortest[entry["name"]][1]):
            shortest[entry["name"]] = (entry, finding)
    public = system.get("public", system["target"])
    return {
        "system": system["system"],
        "document": system["document"],
        "target": public,
        "remark": system["remark"],
        "version": certificate["target_version"],
        "source": re.sub(r"\S*/", "", certificate["source"]),
        "level": certificate["level"],
        "python": certificate["python"],
        "verdict": certificate["verdict"],
        "stages": [
            {name: stage[name] for name in ("stage", "outcome", "steps", "runs")}
            for stage in certificate["stages"]
        ],
        "not_run": [entry for entry in certificate["not_run"] if "kernel" not in entry["what"]],
        "findings": [
            {
                **finding_row(traces / f"{system['id']}-{number}.jsonl", public, entry, finding),
                "seen": seen[entry["name"]],
            }
            for number, (entry, finding) in enumerate(shortest.values(), start=1)
        ],
        "unexplained": unexplained,
    }


def _order(finding: dict[str, Any]) -> tuple[bool, int]:
    """Wrong data rather than the bookkeeping behind it, then the shortest."""
    return finding["invariant"] != "DATA", finding["num_commands"]


def finding_row(
    path: Path, public: str, entry: dict[str, Any], finding: dict[str, Any]
) -> dict[str, Any]:
    """What is recorded of a finding; its trace goes to a file of its own."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header, *commands = finding["trace"]
    lines = [json.dumps(record) for record in ({**header, "target": public}, *commands)]
    write_atomically(path, "\n".join(lines) + "\n")
    kept = ("invariant", "severity", "sentence", "num_commands", "fingerprint")
    return {
        "name": entry["name"],
        "trace": os.path.relpath(path, ROOT),
        **{name: finding[name] for name in kept},
    }


def known_rows(path: Path) -> dict[str, Any]:
    """The rows of earlier runs."""
    if not path.is_file():
        return {}
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["systems"]
    return rows


def main() -> int:
    """Certify, record, and say what became of each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these systems")
    parser.add_argument("--depth", choices=("quick", "standard"), help="for all, not as the table")
    add_destination(parser, "verdicts")
    options = parser.parse_args()
    traces = TRACES if options.json.parent == RECORDED else options.json.with_name("findings")
    systems = tomllib.loads(SYSTEMS.read_text(encoding="utf-8"))["system"]
    known = [system["id"] for system in systems]
    unknown = [name for name in options.ids if name not in known]
    if unknown:
        parser.error(f"no system {', '.join(unknown)}; known are {', '.join(known)}")
    rows, wrong, before = known_rows(options.json), 0, known_rows(options.json)
    for system in systems:
        if options.ids and system["id"] not in options.ids:
            continue
        why_not = why_not_here(system)
        found: Any = why_not or certified(system, options.depth or system.get("level", "standard"))
        if isinstance(found, str) and _NOT_DRIVEN in found:
            rows[system["id"]] = row = row_of_not_driven(system, found)
            print(f"{system['id']}: not driven, because {row['why']}", flush=True)
            continue
        if isinstance(found, str):
            print(f"{system['id']}: not here, its row stays: {found}")
            continue
        rows[system["id"]] = row = row_of(system, found, traces)
        steps = sum(stage["steps"] for stage in row["stages"])
        print(f"{system['id']}: {row['verdict']}, {steps:,} steps", flush=True)
        for finding in row["findings"]:
            print(f"    {finding['num_commands']} commands: {finding['sentence']}")
            for invariant, sentence in finding["seen"].items():
                print(f"        {invariant}: {sentence}")
        for sentence in row["unexplained"]:
            print(f"    not explained: {sentence}")
        wrong += bool(row["unexplained"]) or row["verdict"] == "inconclusive"
    if rows != before:
        ordered = {name: rows[name] for name in known if name in rows}
        if not write_record(options.json, {"systems": ordered}):
            return 2
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
