"""What the way through C costs: the embedded pool called from C, and the same calls from Python.

Each round is a prompt: blocks are allocated, cached, found again, held once more and freed twice.
Hash bytes are made in both. The two take turns, and are over the same build of the pool: with
PYTHONPATH=build/compiled the compiled one. Process time on one core; needs `make embedded`.

Usage: python benchmarks/embedded_speed.py [--rounds N] [--repeats N] [--record]
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

from poolproof.impl.block_pool import BlockPool

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ROOT / "build" / "embedded"
NUM_BLOCKS, HASH_SIZE = 4096, 32
LENGTHS = (1, 16, 256)
"""Blocks of a prompt: what a call costs, and what a block does."""


def program() -> Path:
    """Compile the half in C. Raises SystemExit where that cannot be done."""
    compiler = shutil.which("cc")
    if compiler is None or not (LIBRARY / "libpoolproof.so").exists():
        raise SystemExit("there is no C compiler (cc), or no library; run `make embedded` first")
    made = LIBRARY / "embedded_speed"
    source = Path(__file__).with_suffix(".c")
    command = [compiler, "-std=c11", "-O2", f"-I{LIBRARY}", source, LIBRARY / "libpoolproof.so"]
    subprocess.run([*command, f"-Wl,-rpath,{LIBRARY}", "-o", made], check=True)
    return made


def from_python(rounds: int, count: int) -> float:
    """Seconds of the same rounds."""
    pool, named, rest = BlockPool(NUM_BLOCKS), 0, bytes(HASH_SIZE - 8)
    began = time.process_time()
    for _ in range(rounds):
        block_ids = pool.allocate(count)
        hashes = [(named + i).to_bytes(8, "little") + rest for i in range(count)]
        named += count
        pool.cache(block_ids, hashes)
        found = pool.lookup_prefix(hashes)
        pool.touch(found)
        pool.free(found)
        pool.free(found)
    return time.process_time() - began


def figures(rounds: int, repeats: int) -> list[dict[str, Any]]:
    """For each length nanoseconds a block from C and from Python, and how much longer from C."""
    made, rows = program(), []
    for count in LENGTHS:
        turns = max(1, rounds // count)
        pairs = []
        for _ in range(repeats):
            done = subprocess.run(
                [made, str(turns), str(count)], check=True, capture_output=True, text=True
            )
            pairs.append((float(done.stdout), from_python(turns, count)))
        scale = 1e9 / turns / count
        ratios = [one / other for one, other in pairs]
        rows.append({
            "blocks": count,
            "from C": round(statistics.median(one for one, _ in pairs) * scale),
            "from Python": round(statistics.median(other for _, other in pairs) * scale),
            "ratio": round(statistics.median(ratios), 2),
            "spread": [round(min(ratios), 2), round(max(ratios), 2)],
        })  # fmt: skip
        print(rows[-1], flush=True)
    return rows


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200_000, help="blocks of all rounds together")
    parser.add_argument("--repeats", type=int, default=5)
    add_destination(parser, "embedded_speed")
    arguments = parser.parse_args()
    record = {**surroundings(), "rows": figures(arguments.rounds, arguments.repeats)}
    return int(not write_record(arguments.json, record))


if __name__ == "__main__":
    sys.exit(main())
