"""Who is left out of an asynchronous step without caching: what vLLM does, and what a mend does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

DOCS = Path(__file__).resolve().parents[2] / "docs"
PLAYED = """
import json, sys
from pathlib import Path
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import PlanStep, RunStep, Submit
from poolproof.contract.trace import read_trace
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.replay import start_session
from poolproof.targets.load import load_target
from poolproof.targets.vllm_hybrid import vllm_hybrid_layouts
from poolproof.targets.vllm_hybrid_setups import HybridSetup

target, trace = load_target(sys.argv[1]), read_trace(Path(sys.argv[2]))
step = RunStep(1, 0, 0)
layout = next(each for each in target.layouts if each.name == trace.options["layout"])
tight = HybridSetup(
    "tight",
    arguments={"long_prefill_token_threshold": 3},
    draft_tokens=2,
    is_async=True,
    max_batch_tokens=6,
)
(tight,) = vllm_hybrid_layouts((tight,))
played = {
    "no-room": (start_session(trace, layout.make), trace.commands),
    # The prompts of A and B end one step after the other, and then nothing is left for C.
    "no-tokens": (
        EngineSession(tight.make(24, False), tight.profile, 24, tight.block_size),
        [
            Submit(0, TokenChain((1,) * 4), 9, 0),
            Submit(1, TokenChain((1,) * 7), 2, 0),
            Submit(2, TokenChain((1,) * 2), 9, 0),
            PlanStep(), step, RunStep(1, 0, 1), RunStep(1, 1, 0), step, step,
        ],
    ),
}
found = {}
for cause, (session, commands) in played.items():
    violation = next(filter(None, map(session.step, commands)), None)
    found[cause] = violation and f"{violation.invariant}: {violation.sentence}"
print(json.dumps(found))
"""
"""Two ways to be left out, beside a connector and without one; in a process of its own."""


def played_on(target):
    """What each of them comes to."""
    trace = DOCS / "findings" / "vllm-hybrid-left-out-none.jsonl"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLAYED, target, str(trace)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_who_is_left_out_goes_on_from_before_its_right_draft():
    found = played_on("vllm-hybrid-connectors")
    no_room, no_tokens = found["no-room"], found["no-tokens"]
    assert no_room.startswith("DATA: step 7: request C starts at position 3 ")
    assert no_room.endswith("wanted that of <1 1 1>, found that of <1 1>")
    assert "request C starts at position 4 " in no_tokens
    assert no_tokens.endswith("wanted that of <1 1 1 2>, found that of <1 1 1>")


def test_with_its_count_kept_it_goes_on_behind_it():
    diff = DOCS / "repairs" / "left-out-counts.diff"
    found = played_on(f"vllm-hybrid-connectors[patch={diff}]")
    assert found == {"no-room": None, "no-tokens": None}
