"""Times our kernels on a GPU, certifies them there, and looks for races and stray accesses.

Each part has a share of the time and is written as soon as it is known:

- `kernel_bandwidth.py`, first, because it needs the least.

- `poolproof kernels NAME --depth quick --device cuda` for each of ours. Its canaries are the read
  sets of compiled kernels: whatever must not be read holds NaN. It also measures the largest error
  over its bound on this GPU.
- races by repetition: drawn cases, each run many times; every bit has to be the same.
- compute-sanitizer, where it is installed: stray accesses (each tensor an allocation of its own, so
  that a read behind its end is seen) and races in shared memory.

Usage: python benchmarks/kernels_on_gpu.py [--seconds N] [--record]
Exit status 2 without a GPU, 1 if something was found or a goal of the speed is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from kernel_bandwidth import measured
from record import add_destination, write_record

KERNELS = ("paged-write", "paged-copy", "paged-swap", "paged")
REPEATED_CASES, REPEATS = 60, 50
SANITIZED_CASES = 6
TOOLS = ("memcheck", "racecheck")
SHARES = {"speed": 0.25, "certified": 0.85, "sanitized": 1.0}
"""Which share of the time has passed when a part must have ended."""


def main() -> int:
    """All parts, as far as the time goes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=540.0, help="for all parts together")
    parser.add_argument("--sanitized", type=int, metavar="N", help=argparse.SUPPRESS)
    add_destination(parser, "kernels_on_gpu")
    arguments = parser.parse_args()
    # Before triton is imported: these kernels are compiled.
    os.environ["TRITON_INTERPRET"] = "0"
    import torch

    if not torch.cuda.is_available():
        print("no CUDA device is visible to torch: nothing was certified", file=sys.stderr)
        return 2
    if arguments.sanitized:
        return repeated(arguments.sanitized, 2)["differed"]
    began = time.monotonic()

    def left_s(part: str) -> float:
        return began + SHARES[part] * arguments.seconds - time.monotonic()

    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "certified": {}}

    def keep(part: str, value: Any) -> None:
        found[part] = value
        print(f"{part}: {json.dumps(value)}", flush=True)
        write_record(arguments.json, found, indent=1, tells=False)

    speed = measured(arguments.json.with_name("kernel_bandwidth.json"), left_s("speed"))
    for name in KERNELS:
        keep("certified", {**found["certified"], name: certified(name, left_s("certified"))})
    keep("repeated", repeated(REPEATED_CASES, REPEATS))
    keep("sanitized", {tool: sanitized(tool, left_s("sanitized")) for tool in TOOLS})
    missed = [goal for goal, (wanted, best) in speed["goals"].items() if (best or 0) < wanted]
    print(f"goals of the speed that are missed: {', '.join(missed) or 'none'}")
    refused = [name for name, row in found["certified"].items() if row["verdict"] != "HOLDS"]
    stray = [tool for tool, said in found["sanitized"].items() if said.get("errors")]
    return int(bool(missed or refused or stray or found["repeated"]["differed"]))


def certified(name: str, timeout_s: float) -> dict[str, Any]:
    """The verdict of the command line, with what it compared and the largest errors over bounds."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "poolproof", "kernels", name, "--depth", "quick"]
        command += ["--device", "cuda", "--json", str(report)]
        if timeout_s <= 0:
            return {"verdict": "not begun: the time was over"}
        try:
            subprocess.run(command, timeout=timeout_s, capture_output=True, check=False)
        except subprocess.TimeoutExpired:
            return {"verdict": f"not concluded in {timeout_s:.0f} s"}
        if not report.exists():
            return {"verdict": "not carried out"}
        told = json.loads(report.read_text(encoding="utf-8"))
    return {
        "verdict": told["verdict"],
        "examples": sum(line["examples"] for line in told["lines"]),
        "findings": [finding["sentence"] for finding in told["findings"]],
        "ratios": {
            line["name"]: line["max_ratio"]
            for line in told["lines"]
            if line["max_ratio"] is not None
        },
        "seconds": round(told["seconds"], 1),
    }


def repeated(num_cases: int, repeats: int) -> dict[str, int]:
    """Drawn cases, run again and again: how many gave other bits."""
    import torch

    from poolproof.kernels.case import build
    from poolproof.kernels.grammar import draw_case
    from poolproof.kernels.target import paged_target

    target, draw = paged_target("cuda"), random.Random(2026)
    differed = 0
    for _ in range(num_cases):
        batch = build(draw_case(draw.randrange, target.declaration), "cuda")
        first = target(batch)
        differed += not all(torch.equal(target(batch), first) for _ in range(repeats))
    return {"cases": num_cases, "repeats": repeats, "differed": differed}


def sanitized(tool: str, timeout_s: float) -> dict[str, Any]:
    """What compute-sanitizer says of a few cases; why it says nothing, where it does not."""
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if timeout_s <= 0:
        return {"left_out": "the time was over"}
    if not Path(program).exists():
        return {"left_out": "compute-sanitizer is not installed"}
    command = [program, "--tool", tool, "--error-exitcode", "99", sys.executable, __file__]
    environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = subprocess.run(
            [*command, "--sanitized", str(SANITIZED_CASES)],
            env=environment, timeout=timeout_s, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"left_out": f"no answer in {timeout_s:.0f} s"}
    summary = [line for line in done.stdout.splitlines() if "SUMMARY" in line]
    if not summary:
        return {"left_out": (done.stdout + done.stderr)[-300:]}
    return {"errors": done.returncode == 99, "cases": SANITIZED_CASES, "says": summary[-1].strip()}


if __name__ == "__main__":
    sys.exit(main())
