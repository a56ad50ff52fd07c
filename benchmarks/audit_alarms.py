"""Recordings of vLLM's real schedulers in many set-ups, audited: what is found, and is it true?

Random runs of the engine level drive each set-up (targets/vllm_engine_setups.py) with the recorder
on the scheduler. What the steps read is judged by the session as well, which knows every token and
transfer. An audit that finds a wrong read in a run in which the session saw none has raised a false
alarm; one that finds nothing where the session saw one has missed it, which connectors make
possible: what they bring is unknown to a recording.

Usage: python benchmarks/audit_alarms.py [--runs N] [--setup NAME ...] [--record]
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

import poolproof


def audited_runs(setup: Any, runs: int, folder: Path) -> dict[str, Any]:
    """One row of the table."""
    from poolproof.harness.engine_driver import EngineCampaign
    from poolproof.targets.vllm_engine import vllm_engine_layouts
    from poolproof.targets.vllm_record import VllmRecorder, record_scheduler

    (layout,) = vllm_engine_layouts([setup])
    made: list[VllmRecorder | None] = []

    def make(num_blocks: int, enable_caching: bool, /) -> Any:
        engine = layout.make(num_blocks, enable_caching)
        made.append(record_scheduler(engine.scheduler, folder / "steps.gz"))
        return engine

    campaign = EngineCampaign(layout.name, make, layout.profile, layout.block_size)
    row: dict[str, Any] = {
        "setup": setup.name, "runs": runs, "ended_early": 0, "steps": 0, "tokens": 0, "unknown": 0,
        "wrong": 0, "found": 0, "false_alarms": 0, "missed": 0, "examples": [],
    }  # fmt: skip
    for number in range(runs):
        made.clear()
        trace = campaign.run(number).trace
        recorder = made[0]
        assert recorder is not None, setup.name
        row["ended_early"] += not recorder.is_on
        recorder.close()
        audit = poolproof.audit(recorder.path)
        recorder.path.unlink()
        violation = None if trace is None else trace.violation
        is_wrong = violation is not None and violation.invariant == "DATA"
        row["steps"] += audit.num_steps
        row["tokens"] += audit.num_tokens
        row["unknown"] += audit.num_unknown
        row["wrong"] += is_wrong
        row["found"] += bool(audit.findings)
        row["false_alarms"] += bool(audit.findings) and not is_wrong
        row["missed"] += is_wrong and not audit.findings
        if bool(audit.findings) != is_wrong and len(row["examples"]) < 3:
            said = "" if violation is None else violation.sentence
            row["examples"].append({"run": number, "session": said, "audit": audit.sentence()})
    return row


def main() -> int:
    """Record and audit every set-up, print a row each and write them."""
    os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_CONFIGURE_LOGGING="0")
    from poolproof.targets.vllm_engine_setups import CONNECTOR_SETUPS, SETUPS

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--setup", action="append", default=[])
    add_destination(parser, "audit_alarms")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for setup in (*SETUPS, *CONNECTOR_SETUPS):
            if not arguments.setup or setup.name in arguments.setup:
                rows.append(audited_runs(setup, arguments.runs, Path(folder)))
                print(rows[-1], flush=True)
                # Whole at every time: it may be ended.
                if not write_record(arguments.json, {**surroundings(), "rows": rows}, tells=False):
                    return 2
    print(sum(row["steps"] for row in rows), "steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
