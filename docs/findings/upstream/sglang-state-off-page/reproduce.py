"""SGLang 0.5.23: the recurrent state of a longer prefix is found under a shorter key.

Usage: python reproduce.py FOLDER

FOLDER holds `sglang/srt` of the wheel, unpacked; PyTorch, Triton and msgspec must be installed. No
GPU and no model is used. Requests, batches, pools and the tree are the engine's own; modules of the
server that they only mention are blank.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from array import array
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

RUN = (
    "arg_groups",
    "constants",
    "disaggregation.decode_schedule_batch_mixin",
    "disaggregation.utils",
    "dllm",
    "environ",
    "managers.schedule_batch",
    "mem_cache",
    "model_executor.forward_batch_info",
    "multimodal.modality",
    "platforms",
    "plugins",
    "runtime_context",
    "sampling.sampling_params",
    "session.streaming_session",
    "utils",
)
NOT_RUN = ("mem_cache.allocator.hisparse", "mem_cache.kv_cache_builder")
PAGE = CHUNK = 64
TOKENS = list(range(1, 1000))


class Nothing:
    """Falsy; whatever is asked of it does nothing."""

    def __init__(self, *_given: object, **_options: object) -> None: ...

    def __call__(self, *_given: object, **_options: object) -> Nothing:
        return self

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __bool__(self) -> bool:
        return False


class Blank(ModuleType):
    """Has every name: a class where it is written like one."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Nothing,), {}) if name[:1].isupper() else Nothing()


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Answers for the modules of SGLang that are not run."""

    def find_spec(self, name: str, *_more: object) -> Any:
        if not name.startswith("sglang.") or name == "sglang.srt":
            return None
        rest = name.removeprefix("sglang.srt.")
        lies_in = any(rest == run or rest.startswith(f"{run}.") for run in RUN)
        if rest not in NOT_RUN and (lies_in or any(run.startswith(f"{rest}.") for run in RUN)):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return Blank(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing to run."""


def load(folder: Path) -> Any:
    """A function that imports a module below `sglang.srt`."""
    package = ModuleType("sglang")
    package.__path__ = [str(folder / "sglang")]
    sys.modules["sglang"] = package
    for name in ("orjson", "setproctitle"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = Blank(name)
    sys.meta_path.insert(0, Finder())
    return lambda name: importlib.import_module(f"sglang.srt.{name}")


def publish(module: Any) -> None:
    """The configuration of a server with an extra buffer and overlap scheduling."""
    mamba = SimpleNamespace(
        enable_mamba_extra_buffer=True,
        enable_mamba_extra_buffer_lazy=False,
        enable_int8_mamba_checkpoint=False,
        mamba_max_states_per_path=-1,
        mamba_track_interval=256,
    )
    context = module("runtime_context")._CONTEXT
    context._config_bags = {
        "exec": SimpleNamespace(mamba=mamba),
        "spec": SimpleNamespace(speculative_algorithm=None),
        "serving": SimpleNamespace(strip_thinking_cache=False),
        "memory": SimpleNamespace(enable_hisparse=False),
    }
    context._server_args = SimpleNamespace(_mamba_cache_chunk_size=CHUNK)
    ranks = module("runtime_context")._ConfigBag("parallel")
    ranks._set("dcp_enabled", False)
    context.parallel._config = ranks


def main() -> int:
    module = load(Path(sys.argv[1]))
    publish(module)
    memory, batches = module("mem_cache.memory_pool"), module("managers.schedule_batch")
    torch = memory.torch
    number = torch.float32
    pool = memory.HybridReqToTokenPool(
        size=4,
        mamba_size=20,
        mamba_spec_state_size=0,
        max_context_len=len(TOKENS),
        device="cpu",
        enable_memory_saver=False,
        cache_params=SimpleNamespace(
            shape=SimpleNamespace(conv=[(1, 1)], temporal=(1, 1, 1)),
            dtype=SimpleNamespace(conv=number, temporal=number),
            layers=[0],
            is_kda=False,
        ),
        mamba_layer_ids=[0],
        enable_mamba_extra_buffer=True,
        enable_overlap_schedule=True,
    )
    pages = module("mem_cache.allocator").PagedTokenToKVPoolAllocator(
        40 * PAGE, PAGE, None, "cpu", None, False
    )
    trees = module("mem_cache.unified_radix_cache")
    kinds = trees.ComponentType
    tree = trees.UnifiedRadixCache(
        module("mem_cache.cache_init_params").CacheInitParams(
            disable=False,
            req_to_token_pool=pool,
            token_to_kv_pool_allocator=pages,
            page_size=PAGE,
            enable_mamba_extra_buffer=True,
            tree_core_backend="python",
            tree_components=(kinds.FULL, kinds.MAMBA),
        )
    )
    limits = module("sampling.sampling_params").SamplingParams(max_new_tokens=4)

    def request(name: str) -> Any:
        made = batches.Req(name, "", array("q", TOKENS), limits)
        made.init_next_round_input(tree)
        return made

    def compute(first: Any, end: int) -> None:
        """The tracking and the checkpoint of an extend; of the forward pass, where it is kept."""
        first.extend_end = end
        first.refresh_fill_ids()
        slots = pages.alloc(-(-end // PAGE) * PAGE)[:end]
        pool.write((first.kv.req_pool_idx, slice(first.prefix_len, end)), slots[first.prefix_len :])
        first.kv.kv_allocated_len = first.kv.kv_committed_len = end
        batch = SimpleNamespace(
            tree_cache=tree,
            req_to_token_pool=pool,
            model_config=SimpleNamespace(hf_text_config=SimpleNamespace(mamba_chunk_size=CHUNK)),
        )
        method = batches.ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend
        position = method(batch, first).track_position
        depth = first.kv.mamba_last_track_seqlen
        if depth is not None:
            slot = first.kv.mamba_ping_pong_track_buffer[position]
            pool.mamba_pool.mamba_cache.temporal[:, slot] = depth
            print(f"  tokens {first.prefix_len} to {end - 1}: the state after {depth} is kept")
        module("mem_cache.common").checkpoint_kv_cache(first, tree)

    one = request("one")
    one.lock = tree.lock(one.last_node)
    pool.alloc([one])
    print("A prompt in chunks; decode rows that ride along have made the first one end at 123.")
    compute(one, 123)
    compute(one, 123 + 200)
    two = request("two")
    source = two.kv.mamba_cow_src_index
    found = int(pool.mamba_pool.mamba_cache.temporal[0, source].item())
    print("The same prompt comes again.")
    print(f"  hit: {two.prefix_len} tokens; it goes on from the state after {found}")
    print(f"  expected: the state after {two.prefix_len}")
    return found != two.prefix_len


if __name__ == "__main__":
    sys.exit(main())
