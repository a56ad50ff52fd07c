"""Certifies every kernel target that can be used in this environment, for the table of the manual.

Rows of targets that cannot be used here stay as they were, so that the script can be run in several
environments one after another. A row has the seconds of one core that its certification took, all
processes together, with what it took to make findings smaller. Also written, where triton is: the
faulty kernels and which checks see them.

Usage: .venv-kernels/bin/python benchmarks/kernel_targets.py [--depth quick] [--record] [TARGET ...]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from record import add_destination, tell_destination, write_record

from poolproof.kernels.catalogue import BUILT_INS
from poolproof.kernels.interpreter import missing_packages

GPU_ONLY = {"flash-attn", "flashinfer"}


def main() -> int:
    """Run, merge, write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("targets", nargs="*")
    parser.add_argument("--depth", default="quick", choices=["quick", "standard", "deep"])
    add_destination(parser, "kernel_targets")
    arguments = parser.parse_args()
    rows = json.loads(arguments.json.read_text("utf-8")) if arguments.json.is_file() else {}
    for name in arguments.targets or usable():
        print(f"{name} ...", flush=True)
        before_s = cpu_of_children_s()
        report = certified(name, arguments.depth)
        if report is not None:
            rows[name] = row_of(report) | {"cpu_s": round(cpu_of_children_s() - before_s)}
    ordered = {name: rows[name] for name in BUILT_INS if name in rows}
    if not write_record(arguments.json, ordered, indent=1):
        return 2
    if not arguments.targets and not missing_packages():
        faults = arguments.json.with_name("kernel_faults.json")
        poolproof("kernels", "--faulty", "--json", str(faults))
        tell_destination(faults)
    return 0


def usable() -> list[str]:
    """Attention whose packages are here, and that needs no GPU where there is none."""
    return [
        name
        for name, row in BUILT_INS.items()
        if not row.missing and name not in GPU_ONLY and row.is_attention
    ]


def poolproof(*arguments: str) -> int:
    """Run the command line; what it prints goes to the screen."""
    command = [sys.executable, "-m", "poolproof", *arguments]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode


def cpu_of_children_s() -> float:
    """What all processes that this one has started and waited for have used, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def certified(name: str, depth: str) -> dict[str, Any] | None:
    """The report on a target, None where it cannot be run."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        if poolproof("kernels", name, "--depth", depth, "--json", str(path)) == 2:
            return None
        report: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return report


def row_of(report: dict[str, Any]) -> dict[str, Any]:
    """What the manual quotes of a report."""
    kept = ("version", "device", "torch", "triton", "level", "seed", "verdict", "findings")
    ratios = {name: round(max(found), 2) for name, found in report["ratios"].items()}
    lines = {
        line["name"]: {"result": line["result"], "outputs": line["compared"], "note": line["note"]}
        for line in report["lines"]
    }
    return {**{name: report[name] for name in kept}, "worst_ratios": ratios, "lines": lines}


if __name__ == "__main__":
    sys.exit(main())
