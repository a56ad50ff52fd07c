"""Tests that are written of traces of vLLM's schedulers, on vLLM itself."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import AnswerStep, PlanStep, RunStep, Submit
from poolproof.contract.target import TargetError
from poolproof.contract.trace import read_trace
from poolproof.report.engine_test import engine_test

LEAK = Path(__file__).parents[2] / "docs/findings/vllm-engine-1.jsonl"

# vllm#43569 mended: a preempted request keeps no key.
_MENDED = """
from vllm.v1.core.sched.scheduler import Scheduler

preempt = Scheduler._preempt_request


def mended(self, request, *arguments, **named):
    tables = self.kv_cache_manager.get_block_ids(request.request_id)
    self.kv_cache_manager.evict_blocks({block for table in tables for block in table})
    return preempt(self, request, *arguments, **named)


Scheduler._preempt_request = mended
"""
_RUN = """
import runpy
import sys


class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "poolproof":
            raise ImportError(f"{name} is not here")


sys.meta_path.insert(0, Refusing())
found = runpy.run_path(sys.argv[1])
#MENDED
for name, function in found.items():
    if name.startswith("test_"):
        function()
"""


def run_alone(written, *, mended):
    code = _RUN.replace("#MENDED", _MENDED if mended else "")
    return subprocess.run(
        [sys.executable, "-c", code, written.name],
        capture_output=True,
        text=True,
        check=False,
        cwd=written.parent,
        env={**os.environ, "PYTHONPATH": ""},
    )


def leak(*commands, **options):
    """The trace of the priority leak, with other commands."""
    trace = read_trace(LEAK)
    last = dataclasses.replace(trace.violation, command_index=len(commands) - 1)
    options = {**trace.options, **options}
    return dataclasses.replace(trace, commands=commands, violation=last, options=options, shown=())


# As in test_vllm_engine.py: B samples twice, which a model cannot be told to do as the trace does.
A_LONGER_LEAK = dataclasses.replace(
    leak(
        Submit(0, TokenChain((1, 2) * 11 + (1,)), max_new_tokens=1, priority=2),
        RunStep(1, 0, 0),
        Submit(1, TokenChain((2, 2, 2, 2)), max_new_tokens=2, priority=0),
        *[RunStep(1, 0, 0)] * 4,
    ),
    num_blocks=8,
)


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("trace", "said"),
    [
        (read_trace(LEAK), "without a prefix cache"),
        (A_LONGER_LEAK, "KV that nobody has computed"),
    ],
    ids=["a server", "the scheduler"],
)
def test_a_written_test_fails_on_vllm_and_passes_on_a_mended_one(tmp_path, trace, said):
    written = tmp_path / "test_leak.py"
    written.write_text(engine_test(trace, written), encoding="utf-8")
    red = run_alone(written, mended=False)
    assert "AssertionError: request A" in red.stderr
    assert said in red.stderr
    green = run_alone(written, mended=True)
    assert green.returncode == 0, green.stderr


def is_played_on_a_server(trace):
    return "from vllm import LLM" in engine_test(trace)


def test_requests_of_one_token_are_played_on_a_server_with_a_model():
    text = engine_test(read_trace(LEAK))
    assert "from vllm import LLM" in text
    assert "poolproof" not in text.partition("\n\n")[2]
    # Blocks of 32 tokens instead of 4, and every limit eight times what it was.
    assert "'max_num_batched_tokens': 64" in text
    assert "'long_prefill_token_threshold': 40" in text


def test_what_a_server_cannot_show_is_played_on_the_scheduler():
    first, *others = read_trace(LEAK).commands
    asynchronous = leak(first, *others, layout="priority+async")
    salted = dataclasses.replace(first, chain=dataclasses.replace(first.chain, salt="salt"))
    ahead = leak(first, PlanStep(), *others[1:2], AnswerStep(1, 0, 0))
    for trace in (A_LONGER_LEAK, asynchronous, leak(salted, *others), ahead):
        assert not is_played_on_a_server(trace)
        assert "class Play:" in engine_test(trace)
    at_once = leak(first, PlanStep(), AnswerStep(1, 0, 0), *others)
    assert is_played_on_a_server(at_once)


def test_a_set_up_that_is_not_known_is_named():
    trace = leak(*read_trace(LEAK).commands, layout="none")
    with pytest.raises(TargetError, match="of set-up 'none', and vLLM's are fcfs, priority"):
        engine_test(trace)
