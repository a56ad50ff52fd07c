"""The watch over vLLM's real schedulers in many set-ups: what it finds, and whether that is true.

Random runs of the engine level drive each set-up (targets/vllm_engine_setups.py, and those with
recurrent layers in targets/vllm_hybrid_setups.py) with the watch attached; what the steps read is
judged by the session of the engine level as well, with the readable oracle. Findings in a run in
which the session broke nothing are false alarms, but for `I3` (published, dropped, never computed),
which is true before anybody reads. A run ends with the first DATA of the session; the watch is told
that step as well, and `caught` counts the runs in which it has a finding of its own. Set-ups with
recurrent layers run once with a worker that the watch hears, and once with one out of its reach.
Prints and writes a row for each set-up; with --setup the rows of others that were written stay.

Usage: python benchmarks/watch_alarms.py [--runs N] [--setup NAME ...] [--record]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from record import add_destination, surroundings, write_record

OUT_OF_REACH = ", worker out of reach"


def layout_of(setup: Any) -> Any:
    """What makes the engines of a set-up."""
    from poolproof.targets.vllm_engine import vllm_engine_layouts
    from poolproof.targets.vllm_hybrid import vllm_hybrid_layouts
    from poolproof.targets.vllm_hybrid_setups import HybridSetup

    made = vllm_hybrid_layouts if isinstance(setup, HybridSetup) else vllm_engine_layouts
    (layout,) = made([setup])  # type: ignore[operator]  # either takes a sequence of its own
    return layout


def told_the_last_step(engine: Any) -> None:
    """The step in which a run has ended comes back as well, with nothing sampled."""
    with contextlib.suppress(IndexError):  # nothing is in flight
        engine.answer({}, {})


def watched_runs(name: str, setup: Any, runs: int, folder: Path) -> dict[str, Any]:
    """One row of the table."""
    from poolproof.harness.engine_driver import EngineCampaign
    from poolproof.targets.vllm_watch import VllmWatch, attach
    from poolproof.watch.settings import WatchSettings

    layout = layout_of(setup)
    made: list[tuple[Any, VllmWatch | None]] = []

    def make(num_blocks: int, enable_caching: bool, /) -> Any:
        engine = layout.make(num_blocks, enable_caching)
        # Every read is compared, however busy the machine is.
        watch = attach(engine.scheduler, WatchSettings("log", folder, budget=9.0))
        made.append((engine, watch))
        return engine

    campaign = EngineCampaign(layout.name, make, layout.profile, layout.block_size)
    counts: Counter[str] = Counter()
    found: Counter[str] = Counter()
    judged: Counter[str] = Counter()
    off, caught, false_alarms, examples = 0, 0, 0, []
    began_s = time.monotonic()
    for number in range(runs):
        made.clear()
        trace = campaign.run(number).trace
        violation = None if trace is None else trace.violation
        engine, watch = made[0]
        if violation is not None and violation.invariant == "DATA":
            told_the_last_step(engine)
        if watch is None or not watch.watcher.is_on:
            off += 1
            continue
        watch.watcher.end()
        for count in (
            "steps",
            "computed_tokens",
            "admissions_with_hits",
            "resumes",
            "unknown_reads",
        ):
            counts[count] += getattr(watch.watcher.counts, count)
        found.update(watch.watcher.violations)
        judged.update([] if violation is None else [violation.invariant])
        if violation is not None and violation.invariant == "DATA":
            caught += watch.watcher.violations["DATA"] > 0
        for finding in watch.watcher.findings:
            if finding.invariant != "I3" and violation is None:
                false_alarms += 1
                examples.append(f"run {number}: {finding.sentence}")
    return {
        "setup": name,
        "runs": runs,
        **counts,
        "took_s": round(time.monotonic() - began_s, 1),
        "switched_off": off,
        "watch": dict(found),
        "session": dict(judged),
        "caught": caught,
        "false_alarms": false_alarms,
        "examples": examples[:3],
    }


def kept_rows(path: Path, setups: list[str]) -> list[dict[str, Any]]:
    """The rows of the set-ups that are not run again."""
    if not setups or not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["setup"].removesuffix(OUT_OF_REACH) not in setups]


def main() -> int:
    """The command."""
    os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_CONFIGURE_LOGGING="0")
    from poolproof.targets import vllm_watch
    from poolproof.targets.vllm_engine_setups import CONNECTOR_SETUPS, SETUPS
    from poolproof.targets.vllm_hybrid_setups import HYBRID_SETUPS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=60)
    parser.add_argument("--setup", action="append", default=[])
    add_destination(parser, "watch_alarms")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows = kept_rows(arguments.json, arguments.setup)
    with tempfile.TemporaryDirectory() as folder:
        named = [(one.name, one) for one in (*SETUPS, *CONNECTOR_SETUPS, *HYBRID_SETUPS)]
        named += [(one.name + OUT_OF_REACH, one) for one in HYBRID_SETUPS]
        for name, setup in named:
            if arguments.setup and setup.name not in arguments.setup:
                continue
            reach = mock.patch.object(vllm_watch, "listen", return_value=False)
            with reach if name.endswith(OUT_OF_REACH) else contextlib.nullcontext():
                rows.append(watched_runs(name, setup, arguments.runs, Path(folder)))
            print(rows[-1], flush=True)
            # Whole at every time: it may be ended.
            if not write_record(arguments.json, {**surroundings(), "rows": rows}, tells=False):
                return 2
    print(sum(row["steps"] for row in rows), "steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
