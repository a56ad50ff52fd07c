"""The power of the checks over vLLM's own scheduler, as far as a test has time for it."""

import subprocess
import sys
from functools import partial

import pytest

from poolproof.certification.options import CertifyOptions, Limits
from poolproof.certification.progress import SilentProgress
from poolproof.power.planting import candidates
from poolproof.power.power_options import PowerOptions
from poolproof.power.power_run import power_run
from poolproof.targets.load import load_target

COMPUTED = "request.num_computed_tokens += num_scheduled_token"


@pytest.mark.vllm
def test_a_scheduler_that_forgets_what_it_computed_is_refused(small_budgets, monkeypatch, request):
    if "vllm" in sys.modules:
        # A power run plants in what it imports itself, and a test before this one has imported it.
        here = f"{__file__}::{request.node.name}"
        words = ["-m", "pytest", "-q", "-n", "0", "-m", "vllm", "-W", "default", here]
        ended = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, check=False
        )
        assert "1 passed" in ended.stdout, ended.stdout
        return

    def chosen(source, places, *, of_size):
        found = candidates(source, places, of_size=of_size)
        return [m for m in found if m.before == COMPUTED]

    monkeypatch.setattr("poolproof.power.power_run.candidates", chosen)
    limits = Limits(call_timeout_s=120.0)
    options = CertifyOptions(depth="quick", layouts=("fcfs",), workers=2, limits=limits)
    load = partial(load_target, "vllm-engine")
    with power_run(load, options, PowerOptions(), SilentProgress()) as run:
        report = run.measure(SilentProgress())
    assert [module.name for module in report.modules] == [
        "vllm.v1.core.sched.scheduler",
        "vllm.v1.core.sched.async_scheduler",
    ]
    assert report.mutants
    assert all(mutant.judged.refused for mutant in report.mutants)
