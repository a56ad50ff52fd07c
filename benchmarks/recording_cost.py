"""What a recording costs the thread of a scheduler, and what an audit of it costs later.

Requests of 1,000 tokens that share nothing are admitted, then each is decoded by a token in each
step. No engine takes part: the steps are made before, so that the writer alone is timed.

Usage: python benchmarks/recording_cost.py [--record]
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

import poolproof
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import FULL
from poolproof.contract.recording import RecordingWriter
from poolproof.contract.step_record import ComputedTokens, StepRecord

CONTEXT, STEPS, BLOCK_SIZE = 1_000, 100, 16
RUNNING = (8, 64, 256)


def steps_of(num_running: int) -> tuple[list[StepRecord], list[StepRecord]]:
    """Admissions, one in a step; then decode steps of all requests."""
    rng = random.Random(num_running)
    needed = -(-(CONTEXT + STEPS) // BLOCK_SIZE)
    texts = [tuple(rng.randrange(150_000) for _ in range(CONTEXT)) for _ in range(num_running)]
    tables = [
        tuple(range(1 + number * needed, 1 + (number + 1) * needed))
        for number in range(num_running)
    ]
    admissions = [
        StepRecord(
            number + 1,
            (ComputedTokens(str(number), TokenChain(text), 0, CONTEXT, (tables[number],), True),),
        )
        for number, text in enumerate(texts)
    ]
    decodes = []
    for step in range(STEPS):
        texts = [(*text, rng.randrange(150_000)) for text in texts]
        parts = tuple(
            ComputedTokens(str(number), TokenChain(text), CONTEXT + step, 1, (), False)
            for number, text in enumerate(texts)
        )
        decodes.append(StepRecord(num_running + step + 1, parts))
    return admissions, decodes


def measure(num_running: int, path: Path) -> dict[str, Any]:
    """CPU time of the writer a step, bytes a token, and of an audit a step."""
    admissions, decodes = steps_of(num_running)
    num_blocks = 1 + num_running * -(-(CONTEXT + STEPS) // BLOCK_SIZE)
    with RecordingWriter(path, num_blocks, FULL, [BLOCK_SIZE]) as writer:
        began = time.thread_time()
        for step in admissions:
            writer.record(step)
        admitted = time.thread_time()
        prompt_bytes = writer.num_bytes
        for step in decodes:
            writer.record(step)
        decoded = time.thread_time()
        decode_bytes = writer.num_bytes - prompt_bytes
    began_audit = time.thread_time()
    audit = poolproof.audit(path)
    assert audit.holds, audit.sentence()
    return {
        "running": num_running,
        "admission_ms": (admitted - began) * 1e3 / len(admissions),
        "decode_ms": (decoded - admitted) * 1e3 / len(decodes),
        "bytes_per_prompt_token": prompt_bytes / (num_running * CONTEXT),
        "bytes_per_decoded_token": decode_bytes / (num_running * STEPS),
        "audit_ms": (time.thread_time() - began_audit) * 1e3 / audit.num_steps,
    }


def main() -> int:
    """Measure all sizes, print them and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add_destination(parser, "recording_cost")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(number, Path(folder, f"{number}.gz")) for number in RUNNING]
    for row in rows:
        print(", ".join(f"{name} {value:.3g}" for name, value in row.items()))
    record = {**surroundings(), "context": CONTEXT, "rows": rows}
    return 0 if write_record(arguments.json, record) else 1


if __name__ == "__main__":
    sys.exit(main())
