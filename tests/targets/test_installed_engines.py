"""Engines are found where they lie, and their absence is said with the next step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets import engine_sources, installed_sglang, transformers_manager
from poolproof.targets.engine_sources import stub_module
from poolproof.targets.installed_sglang import sglang_parts
from poolproof.targets.nano_manager import nano_vllm
from poolproof.targets.transformers_manager import transformers_parts
from poolproof.targets.v0_manager import vllm_v0


def nano_checkout(root: Path, package: str = "nanovllm") -> Path:
    """The shape of a checkout, with our own few lines."""
    folder = root / package
    (folder / "engine").mkdir(parents=True)
    (folder / "sampling_params.py").write_text("class SamplingParams: pass\n")
    (folder / "engine/sequence.py").write_text(
        f"from {package}.sampling_params import SamplingParams\nclass Sequence: pass\n"
    )
    (folder / "engine/block_manager.py").write_text(
        f"from {package}.engine.sequence import Sequence\nclass BlockManager: wants = Sequence\n"
    )
    return root


def v0_folder(root: Path) -> Path:
    folder = root / "vllm-0.2.7" / "vllm"
    (folder / "core").mkdir(parents=True)
    (folder / "utils.py").write_text("import psutil, torch\nfrom vllm._C import cuda_utils\n")
    (folder / "block.py").write_text("")
    (folder / "sampling_params.py").write_text("import torch\nclass SamplingParams: pass\n")
    (folder / "sequence.py").write_text(
        "import enum\nclass Sequence: pass\nclass SequenceGroup: pass\n"
        "class SequenceStatus(enum.Enum): WAITING = 1\n"
    )
    (folder / "core/block_manager.py").write_text(
        "class BlockSpaceManager: pass\nclass BlockAllocator: pass\nclass AllocStatus: pass\n"
    )
    return root


def test_the_named_folder_is_the_only_one_looked_at(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    with pytest.raises(TargetError) as caught:
        vllm_v0()
    assert str(caught.value) == (
        f"vllm-0.2.7 is not in {tmp_path}; run `make engine-sources` in a checkout of Poolproof, "
        "or set POOLPROOF_ENGINES to the folder that holds vllm-0.2.7/"
    )


def test_build_engines_below_the_current_folder_comes_first(tmp_path, monkeypatch):
    monkeypatch.delenv("POOLPROOF_ENGINES", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build/engines/some-1.0").mkdir(parents=True)
    assert engine_sources.engine_folder("some-1.0") == tmp_path / "build/engines/some-1.0"


def test_v0_is_loaded_without_torch_and_without_its_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(v0_folder(tmp_path)))
    before = set(sys.modules)
    found = vllm_v0()
    assert found.BlockSpaceManager.__name__ == "BlockSpaceManager"
    assert found.folder == tmp_path / "vllm-0.2.7"
    assert all(name.startswith("poolproof_") for name in set(sys.modules) - before)


def test_a_checkout_is_found_by_its_folder_or_its_package(tmp_path):
    root = nano_checkout(tmp_path)
    by_folder, by_package = nano_vllm(root), nano_vllm(root / "nanovllm")
    assert by_folder.BlockManager.wants is by_folder.Sequence
    assert by_package.BlockManager is by_folder.BlockManager


def test_a_port_under_another_name_is_a_checkout_too(tmp_path):
    assert nano_vllm(nano_checkout(tmp_path, "nanoport")).BlockManager


def test_without_a_path_the_published_port_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    nano_checkout(tmp_path / "nano-vllm-npu-0.0.2", "nanovllmnpu")
    assert nano_vllm().folder == tmp_path / "nano-vllm-npu-0.0.2"


def test_a_folder_without_a_checkout_is_refused(tmp_path):
    with pytest.raises(TargetError, match=r"holds no package with engine/block_manager\.py; clone"):
        nano_vllm(tmp_path)
    with pytest.raises(TargetError, match="is not a folder; clone nano-vLLM and give its folder"):
        nano_vllm(tmp_path / "nowhere")


def test_two_packages_in_one_folder_have_to_be_told_apart(tmp_path):
    nano_checkout(tmp_path, "one")
    nano_checkout(tmp_path, "two")
    with pytest.raises(TargetError, match=r"holds several packages \(one, two\); name one of them"):
        nano_vllm(tmp_path)


@pytest.fixture
def fake_transformers(monkeypatch):
    """Modules with the names that are asked for, and nothing behind them."""
    modules: dict = {}
    for module, name in transformers_manager._WANTED:
        parts = module.split(".")
        for depth in range(1, len(parts) + 1):
            above = ".".join(parts[:depth])
            modules.setdefault(above, stub_module(above))
        vars(modules[module])[name] = name
    vars(modules[f"{transformers_manager._BATCHING}.cache"])["CachePool"] = "pool"
    for name, made in modules.items():
        monkeypatch.setitem(sys.modules, name, made)
    return modules


def test_transformers_is_taken_as_it_is_installed(fake_transformers):
    found = transformers_parts()
    assert found.PagedAttentionCache == "PagedAttentionCache"
    assert found.version.startswith("transformers ")


def test_another_shape_of_transformers_is_refused(fake_transformers):
    del fake_transformers[f"{transformers_manager._BATCHING}.cache"].CachePool
    with pytest.raises(TargetError, match=r"has another continuous-batching cache than 5\.19"):
        transformers_parts()


def test_a_missing_class_of_transformers_is_named(fake_transformers):
    del fake_transformers[f"{transformers_manager._BATCHING}.requests"].RequestState
    with pytest.raises(TargetError, match=r"requests\.RequestState of transformers .* Attribute"):
        transformers_parts()


def test_without_transformers_the_next_step_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(TargetError, match=r"transformers.*; run `make vllm`"):
        transformers_parts()


@pytest.fixture
def no_sglang(monkeypatch):
    """The import system as it was, whatever a test puts into it."""
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang"]:
        del sys.modules[name]


def sglang_folder(root: Path) -> Path:
    """The module tree that the loader asks for; the cache leans on what is stubbed."""
    cache = root / "sglang/srt/mem_cache"
    cache.mkdir(parents=True)
    (root / "sglang/__init__.py").write_text("raise RuntimeError('the engine was started')\n")
    wanted: dict = {}
    for module, name in installed_sglang._WANTED:
        wanted.setdefault(module.rsplit(".", 1)[1], []).append(name)
    for module, names in wanted.items():
        (cache / f"{module}.py").write_text("".join(f"{name} = {name!r}\n" for name in names))
    with (cache / "radix_cache.py").open("a") as file:
        file.write(
            "import orjson\n"
            "from sglang.kernels.ops.memory import launch\n"
            "from sglang.srt.layers.quantization import Method\n"
            "launched = launch(1)\n"
            "method = Method(bits=4)\n"
            "other = launch.anything\n"
        )
    return root


def test_sglang_is_loaded_with_stubs_and_without_its_front_end(tmp_path, monkeypatch, no_sglang):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    monkeypatch.delitem(sys.modules, "orjson", raising=False)
    sglang_folder(tmp_path / "sglang-0.5.23")
    found = sglang_parts()
    assert found.RadixCache == "RadixCache"
    cache = sys.modules["sglang.srt.mem_cache.radix_cache"]
    assert not cache.launched
    assert not cache.method
    assert not cache.other
    assert not hasattr(cache.launched, "__len__")
    assert not hasattr(sys.modules["sglang.kernels"], "__all__")
    assert "orjson" not in sys.modules
    assert sglang_parts().folder == found.folder


def test_an_installed_sglang_is_preferred(tmp_path, monkeypatch, no_sglang):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path / "none"))
    monkeypatch.syspath_prepend(str(sglang_folder(tmp_path)))
    real = stub_module("orjson")
    monkeypatch.setitem(sys.modules, "orjson", real)
    assert sglang_parts().folder == tmp_path / "sglang"
    assert sys.modules["orjson"] is real


def test_a_requirement_that_sglang_lacks_is_named(tmp_path, monkeypatch, no_sglang):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    root = sglang_folder(tmp_path / "sglang-0.5.23")
    (root / "sglang/srt/mem_cache/allocator.py").write_text("import no_such_library\n")
    with pytest.raises(TargetError, match=r"needs the module no_such_library.* `make engines`"):
        sglang_parts()


def test_what_sglang_raises_is_said_in_one_line(tmp_path, monkeypatch, no_sglang):
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path))
    root = sglang_folder(tmp_path / "sglang-0.5.23")
    (root / "sglang/srt/mem_cache/allocator.py").write_text("1 / 0\n")
    with pytest.raises(TargetError, match="cannot be imported: ZeroDivisionError"):
        sglang_parts()
