"""Releases of vLLM are targets by their sources: here a small one in their shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from poolproof.contract.target import TargetError, capabilities_of
from poolproof.harness.random_driver import PoolCampaign
from poolproof.targets.load import load_target
from poolproof.targets.vllm_release import fetch_vllm

POOL = Path(__file__).with_name("toy_pool.py").read_text(encoding="utf-8")


@pytest.fixture
def engines(tmp_path, monkeypatch):
    """The folder of the engines, with a release 0.99.0 that has a pool and no manager."""
    core = tmp_path / "vllm-0.99.0" / "vllm" / "v1" / "core"
    core.mkdir(parents=True)
    imports = "import torch\nfrom vllm.logger import init_logger\nfrom vllm.config import Config\n"
    text = POOL.replace("from typing import Any\n", f"from typing import Any\n{imports}")
    assert imports in text
    (core / "block_pool.py").write_text(text, encoding="utf-8")
    (core / "kv_cache_utils.py").write_text(
        "from vllm.v1.core.block_pool import FreeQueue as FreeKVCacheBlockQueue\n", encoding="utf-8"
    )
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    return tmp_path


def test_a_pool_is_driven_without_the_engine(engines):
    target = load_target("vllm@0.99.0")
    assert (target.level, target.shape, target.version) == ("pool", "vllm-v1", "vllm 0.99.0")
    assert any("token chains are not driven, because" in note for note in target.notes)
    assert target.companion_queue.name == "vllm-queue@0.99.0"
    campaign = PoolCampaign(name=target.name, make=target.make, profile=target.profile)
    assert all(campaign.run(number).trace is None for number in range(40))


def test_a_queue_is_driven(engines):
    target = load_target("vllm-queue@0.99.0")
    assert (target.level, target.version) == ("queue", "vllm 0.99.0")
    assert "popleft_n" in capabilities_of(target.make(4, True)).verbs


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("vllm-index@0.99.0", "this release has no vllm.v1.core.block_pool.BlockHashToBlockMap"),
        ("vllm-manager@0.99.0", "this release has no vllm.v1.core.kv_cache_manager.KVCacheManager"),
        ("vllm@0.98.0", "run `poolproof engines vllm==0.98.0`"),
        ("vllm@", "write the version of a release, as vllm@0.28.0"),
    ],
)
def test_what_a_release_lacks_is_said(engines, text, why):
    with pytest.raises(TargetError) as refusal:
        load_target(text)
    assert why in str(refusal.value)


def test_rows_that_ask_more_of_a_caller_are_stated_and_can_be_taken_back(engines):
    path = engines / "vllm-0.99.0" / "vllm" / "v1" / "core" / "block_pool.py"
    text = path.read_text(encoding="utf-8").replace(
        "            if not block.is_null:\n", "            if True:\n"
    )
    path.write_text(text, encoding="utf-8")
    target = load_target("vllm@0.99.0")
    assert (target.profile.null_in_lists, target.profile.repeats_in_free) == ("uncached", "allowed")
    assert any(note.startswith("null_in_lists=uncached: ") for note in target.notes)
    assert load_target("vllm@0.99.0[null_in_lists=ignored]").profile.null_in_lists == "ignored"


MANAGER_OF_V0 = """
from vllm.sequence import SequenceStatus
from vllm.utils import Device


class BlockSpaceManager:
    def __init__(self, block_size, num_gpu_blocks, num_cpu_blocks, watermark=0.01): ...
    def can_allocate(self, seq_group): ...
    def allocate(self, seq_group): ...
    def can_append_slot(self, seq_group): ...
    def append_slot(self, seq): ...
    def free(self, seq): ...
    def get_block_table(self, seq): ...
    def get_num_free_gpu_blocks(self): ...
"""


def v0_release_in(engines, version, manager):
    """A release of V0 whose manager has this text."""
    folder = engines / f"vllm-{version}" / "vllm"
    (folder / "core").mkdir(parents=True)
    (folder / "utils.py").write_text("import torch\nclass Device: ...\n", encoding="utf-8")
    (folder / "sequence.py").write_text(
        "from vllm.sampling_params import SamplingParams\n"
        "class Sequence:\n"
        "    def __init__(self, seq_id, prompt, tokens, block_size): self.seq_id = seq_id\n"
        "class SequenceGroup:\n    def __init__(self, *_): raise ValueError\n"
        "class SequenceStatus:\n    WAITING = RUNNING = SWAPPED = FINISHED_STOPPED = 1\n",
        encoding="utf-8",
    )
    if manager:
        (folder / "core" / "block_manager.py").write_text(manager, encoding="utf-8")


def test_a_release_of_v0_is_a_target_by_its_version(engines):
    v0_release_in(engines, "0.3.1", MANAGER_OF_V0)
    target = load_target("vllm-v0@0.3.1")
    assert (target.version, target.real_class.__name__) == ("vllm 0.3.1", "BlockSpaceManager")
    assert any(layout.name == "full" and layout.make for layout in target.layouts)


def test_a_release_of_v0_with_another_manager_is_not_driven(engines):
    v0_release_in(engines, "0.3.9", "")
    with pytest.raises(TargetError, match=r"vLLM 0\.3\.9 has no core/block_manager\.py"):
        load_target("vllm-v0@0.3.9")
    with pytest.raises(TargetError, match="write its version"):
        load_target("vllm-v0@")
    with pytest.raises(TargetError, match=r"run `poolproof engines vllm==0\.3\.0`"):
        load_target("vllm-v0@0.3.0")


def test_releases_between_the_two_shapes_are_refused(engines):
    with pytest.raises(TargetError, match=r"begins with 0\.8\.0"):
        fetch_vllm("0.7.3")


@pytest.mark.parametrize("name", ["vllm", "vllm-queue", "vllm-index", "vllm-manager"])
def test_a_release_before_the_v1_core_is_not_said_to_be_fetched(name, engines):
    with pytest.raises(TargetError, match=r"begins with 0\.8\.0") as refusal:
        load_target(f"{name}@0.7.0")
    assert "poolproof engines" not in str(refusal.value)


def test_a_release_after_those_of_v0_is_not_said_to_be_fetched(engines):
    with pytest.raises(TargetError, match=r"end with 0\.3\.3") as refusal:
        load_target("vllm-v0@0.7.0")
    assert "poolproof engines" not in str(refusal.value)


def test_the_command_says_one_line(poolproof, engines):
    result = poolproof("certify", "vllm@0.98.0")
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert poolproof("engines", "vllm==0.7.3").exit_code == 2


def test_a_fork_that_was_not_fetched_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError, match=r"is not in .*; run `poolproof engines aphrodite`"):
        load_target("aphrodite")


def test_a_folder_without_the_core_of_a_fork_is_named(tmp_path):
    with pytest.raises(TargetError, match="it has no folder aphrodite/v1/core"):
        load_target(f"aphrodite:{tmp_path}")


def test_a_fork_is_found_under_the_names_of_vllm(tmp_path):
    package = tmp_path / "aphrodite" / "v1" / "core"
    package.mkdir(parents=True)
    (package / "kv_cache_manager.py").write_text(
        "from aphrodite.logger import init_logger\n"
        "class KVCacheManager:\n    log = init_logger(__name__)\n",
        encoding="utf-8",
    )
    with pytest.raises(TargetError, match="KVCacheManager"):
        load_target(f"aphrodite:{tmp_path}")
