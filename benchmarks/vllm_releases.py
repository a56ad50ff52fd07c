"""Certifies releases of vLLM from their sources, stage by stage, and records the table.

A release is fetched where it is not there (`poolproof engines vllm==VERSION`) and certified at
depth quick as vllm@VERSION, vllm-queue@, vllm-index@ and vllm-manager@: the pools of all releases,
then the next, so that an interrupted run compares like with like. What is not run keeps the row
that it has. Without a name it is the last patch of each minor release from 0.8 on
that the package index has. Exit status 1 when a certificate could not be had.

With --repaired the managers alone, and of each a copy whose hashes tell apart what they confuse
(docs/repairs/distinct-keys*.diff): what else a release has is seen only then.

Usage: python benchmarks/vllm_releases.py [VERSION ...] [--targets NAMES] [--workers N] [--repaired]
                                          [--certificates FOLDER] [--record]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

from poolproof.contract.target import TargetError
from poolproof.targets.release_sources import releases_of
from poolproof.targets.vllm_release import RELEASES, fetch_vllm

_NOT_DRIVEN = 2
_DEPTH = "quick"

_MANAGER = "vllm-manager"
_REPAIRED = "vllm-manager-repaired"
"""The name of a row, and of no target."""

_REPAIRS = Path(__file__).resolve().parents[1] / "docs" / "repairs"
_DISTINCT_KEYS = [_REPAIRS / f"distinct-keys{release}.diff" for release in ("-0.18", "")]
"""For releases up to 0.18, whose hashes leave out where an image is, and for those from 0.19 on.

The second applies to all of them, so it comes last.
"""


def latest_patches() -> list[str]:
    """The last patch of each minor release that has a V1 core."""
    latest: dict[tuple[int, int], str] = {}
    for version in releases_of("vllm"):
        major, minor = version.split(".")[:2]
        latest[int(major), int(minor)] = version
    return [version for minor, version in latest.items() if minor >= (0, 8)]


def row(target: str, workers: int, kept: Path | None = None) -> dict[str, Any]:
    """One certificate, cut to what the table shows; the whole of it stays where it is kept."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        certificate = kept or Path(folder) / "certificate.json"
        certificate.unlink(missing_ok=True)
        command = [sys.executable, "-m", "poolproof", "certify", target, "--depth", _DEPTH]
        command += ["--workers", str(workers), "--json", str(certificate)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        if not certificate.is_file():
            said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            verdict = "not driven" if done.returncode == _NOT_DRIVEN else "failed"
            return {"verdict": verdict, "why": said.removeprefix("poolproof: ")}
        found = json.loads(certificate.read_text("utf-8"))
    defaults = {"null_in_lists": "ignored", "repeats_in_free": "allowed"}
    return {
        "verdict": found["verdict"],
        "steps": sum(stage.get("steps") or 0 for stage in found["stages"]),
        "rows": {
            name: value
            for name, usual in defaults.items()
            if (value := found["profile"].get(name, usual)) not in {usual, "misuse"}
        },
        "findings": kinds_of(found["findings"]),
        "not_driven": [note for note in found["notes"] if "not driven" in note],
        "not_run": found["not_run"],
        "seconds": round(time.monotonic() - began, 1),
    }


def repaired_row(version: str, workers: int, kept: Path | None = None) -> dict[str, Any]:
    """The row of a manager whose hashes are repaired, by the first diff that applies."""
    for repair in _DISTINCT_KEYS:
        found = row(f"{_MANAGER}@{version}[patch={repair}]", workers, kept)
        if "why" in found:
            # Where the checkout lies is nobody's business.
            found["why"] = found["why"].replace(f"{repair}", repair.name)
        if "does not apply" not in found.get("why", ""):
            break
    return found


def kinds_of(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was broken and how badly, each once; what is taken for a form may be another bug."""
    kept: dict[tuple[str, str], dict[str, Any]] = {}
    for each in (form for finding in findings for form in (finding, *finding["forms"])):
        kind = {name: each[name] for name in ("invariant", "severity", "num_commands", "sentence")}
        kept.setdefault((kind["invariant"], kind["severity"]), kind)
    return list(kept.values())


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--targets", default=",".join(RELEASES), help="some of these, by commas")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--repaired", action="store_true", help="managers with distinct keys")
    parser.add_argument(
        "--certificates", type=Path, metavar="FOLDER", help="keep them, with every trace"
    )
    add_destination(parser, "vllm_releases")
    arguments = parser.parse_args()
    names = [_REPAIRED] if arguments.repaired else arguments.targets.split(",")
    path: Path = arguments.json
    known = json.loads(path.read_text("utf-8"))["releases"] if path.is_file() else {}
    status = 0
    versions = arguments.versions or latest_patches()
    folder: Path | None = arguments.certificates
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        for version in versions:
            try:
                fetch_vllm(version)
                kept = folder.resolve() / f"{name}-{version}.json" if folder else None
                if name == _REPAIRED:
                    found = repaired_row(version, arguments.workers, kept)
                else:
                    found = row(f"{name}@{version}", arguments.workers, kept)
            except TargetError as error:
                found = {"verdict": "failed", "why": str(error)}
            known.setdefault(version, {})[name] = found
            status |= found["verdict"] == "failed"
            print(version, name, found["verdict"], found.get("why", ""), flush=True)
            record = {"depth": _DEPTH, **surroundings(), "releases": known}
            # After each one, so that an interrupted run keeps what it has.
            if not write_record(path, record, indent=1):
                return 1
    return status


if __name__ == "__main__":
    raise SystemExit(main())
