"""The traces of docs/recurrent-states.md: each planted bug of states, found from nothing and cut.

A bug is found by the plain driver under the profile that it is stated under, from seed 0, and its
trace minimised. `generators/generate.py` draws them.

Usage: python benchmarks/state_traces.py [ID ...]    write docs/pictures/states/ID.jsonl
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from poolproof.bugs.engine_specimen import BLOCK_SIZE, EngineSpecimen
from poolproof.bugs.engine_state_bugs import ENGINE_STATE_BUGS
from poolproof.certification.engine_watch import watch_engine
from poolproof.contract.trace import Trace, write_trace
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.fingerprint import fingerprint_of
from poolproof.harness.minimise import minimise, run_candidate

_FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures" / "states"
_MOST_RUNS = 400


def found_and_cut(bug: EngineSpecimen) -> Trace | None:
    """The smallest trace of the first failure, with what was planned; None where it is missed."""
    campaign = EngineCampaign(bug.id, bug.make, bug.profile, BLOCK_SIZE)
    runs = map(campaign.run, range(_MOST_RUNS))
    trace = next((run.trace for run in runs if run.trace is not None), None)
    if trace is None:
        return None
    small = minimise(trace, lambda setup, commands: run_candidate(setup, commands, bug.make))
    small = replace(small, fingerprint=fingerprint_of(small))
    return replace(small, shown=watch_engine(small, bug.make).shown)


def main() -> int:
    """Write the traces; 1 where a bug is not found, 2 for an id that is none."""
    chosen = sys.argv[1:] or list(ENGINE_STATE_BUGS)
    unknown = sorted(set(chosen) - set(ENGINE_STATE_BUGS))
    if unknown:
        print(f"no bug of states: {', '.join(unknown)}", file=sys.stderr)
        return 2
    _FOLDER.mkdir(parents=True, exist_ok=True)
    status = 0
    for name in chosen:
        trace = found_and_cut(ENGINE_STATE_BUGS[name])
        if trace is None:
            print(f"{name}: not found in {_MOST_RUNS} runs", file=sys.stderr)
            status = 1
            continue
        write_trace(trace, _FOLDER / f"{name}.jsonl")
        print(f"{name}: {len(trace.commands)} commands", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
