"""A real `LLM` of random weights under the oracle's watch, each in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.vllm

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "live_vllm.py"


def run(tmp_path, scenario: str, steps: int) -> dict:
    out = tmp_path / "out.json"
    command = [sys.executable, str(SCRIPT), "--scenario", scenario, "--steps", str(steps)]
    done = subprocess.run(
        [*command, "--json", str(out)], capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = json.loads(out.read_text())
    return row


@pytest.mark.parametrize("scenario", ["pressure", "async"])
def test_nothing_is_accused_under_memory_pressure(tmp_path, scenario):
    row = run(tmp_path, scenario, 300)
    assert row["findings"] == []
    assert row["steps"] >= 300
    assert row["resumes"] >= 5
    assert row["admissions_with_hits"] >= 10


def test_an_index_that_keeps_evicted_blocks_is_seen(tmp_path):
    row = run(tmp_path, "planted", 120)
    finding = row["findings"][0]
    assert finding["writer"] != finding["reader"]
    assert finding["found"] is not None


def test_priority_preemption_leaves_keys_of_kv_that_was_never_computed(tmp_path):
    """vLLM 0.32, `scheduling_policy="priority"`: a finding that is true (see docs/live.md)."""
    row = run(tmp_path, "priority", 0)
    (finding,) = row["findings"]
    assert finding["reader"].startswith("low")
    assert (finding["position"], finding["writer"]) == (128, None)
    assert finding["kv_in_block"] == 0  # the tensor itself says that nobody has written it
