"""The watch over vLLM's real schedulers in many set-ups: what it finds, and whether that is true.

Random runs of the engine level drive each set-up (targets/vllm_engine_setups.py) with the watch
attached; what the steps read is judged by the session of the engine level as well, with the
readable oracle. Findings in a run in which the session broke nothing are false alarms, but for `I3`
(published, dropped, never computed), which is true before anybody reads. Prints and writes a row
for each set-up.

Usage: python benchmarks/watch_alarms.py [--runs N] [--setup NAME ...] [--record]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record


def watched_runs(setup: Any, runs: int, folder: Path) -> dict[str, Any]:
    """One row of the table."""
    from poolproof.harness.engine_driver import EngineCampaign
    from poolproof.targets.vllm_engine import vllm_engine_layouts
    from poolproof.targets.vllm_watch import VllmWatch, attach
    from poolproof.watch.settings import WatchSettings

    (layout,) = vllm_engine_layouts([setup])
    made: list[VllmWatch | None] = []

    def make(num_blocks: int, enable_caching: bool, /) -> Any:
        engine = layout.make(num_blocks, enable_caching)
        # Every read is compared, however busy the machine is.
        made.append(attach(engine.scheduler, WatchSettings("log", folder, budget=9.0)))
        return engine

    campaign = EngineCampaign(layout.name, make, layout.profile, layout.block_size)
    counts: Counter[str] = Counter()
    found: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    off, false_alarms, examples = 0, 0, []
    began_s = time.monotonic()
    for number in range(runs):
        made.clear()
        trace = campaign.run(number).trace
        violation = None if trace is None else trace.violation
        watch = made[0]
        if watch is None or not watch.watcher.is_on:
            off += 1
            continue
        watch.watcher.end()
        for name in (
            "steps",
            "computed_tokens",
            "admissions_with_hits",
            "resumes",
            "unknown_reads",
        ):
            counts[name] += getattr(watch.watcher.counts, name)
        found.update(watch.watcher.violations)
        judged.update([] if violation is None else [violation.invariant])
        for finding in watch.watcher.findings:
            if finding.invariant != "I3" and violation is None:
                false_alarms += 1
                examples.append(f"run {number}: {finding.sentence}")
    return {
        "setup": setup.name,
        "runs": runs,
        **counts,
        "took_s": round(time.monotonic() - began_s, 1),
        "switched_off": off,
        "watch": dict(found),
        "session": dict(judged),
        "false_alarms": false_alarms,
        "examples": examples[:3],
    }


def main() -> int:
    """The command."""
    os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_CONFIGURE_LOGGING="0")
    from poolproof.targets.vllm_engine_setups import CONNECTOR_SETUPS, SETUPS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--setup", action="append", default=[])
    add_destination(parser, "watch_alarms")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for setup in (*SETUPS, *CONNECTOR_SETUPS):
            if not arguments.setup or setup.name in arguments.setup:
                rows.append(watched_runs(setup, arguments.runs, Path(folder)))
                print(rows[-1], flush=True)
                # Whole at every time: it may be ended.
                if not write_record(arguments.json, {**surroundings(), "rows": rows}, tells=False):
                    return 2
    print(sum(row["steps"] for row in rows), "steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
