"""The named set-ups in which vLLM's schedulers are driven, and the limits that each keeps.

A set-up says which configuration a server would be started with, and which cache groups its model
has. Sizes are small, so that preemption, eviction and waiting happen all the time. Nothing of vLLM
is imported here; `vllm_engine_parts.py` builds what is described.

Not driven: recurrent states, models of an encoder and a decoder, pooling models, ranks of a
pipeline or of context parallelism, streaming sessions, reasoning before a grammar begins, grammars
that cannot be compiled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from mmap import PAGESIZE
from typing import Any

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup

__all__ = [
    "BLOCK_SIZE",
    "CONNECTOR_SETUPS",
    "FAULT_CONNECTOR",
    "LMCACHE_CONNECTOR",
    "LMCACHE_NOTES",
    "LMCACHE_SETUPS",
    "LONGEST_REQUEST",
    "SETUPS",
    "ConnectorSetup",
    "EngineSetup",
]

BLOCK_SIZE = 4
"""Tokens in a block of every group."""

LONGEST_REQUEST = 2**16
"""Tokens of the longest request of any set-up: those of a pool of long blocks."""

_BATCH_TOKENS = 16
_RUNNING = 4
_DRAFTS = 2


@dataclass(frozen=True)
class ConnectorSetup:
    """A connector by vLLM's name, and what it is configured with.

    `worker` names the worker side that is simulated for it (`vllm_connector_workers.py`), `rows`
    are those of the profile that it decides. `parts` are the connectors that it puts together, the
    first of which is asked first. What `outlives_resets` is kept outside by vLLM's own decision.
    Where it `is_tagged`, a request names its adapter and salt once more, in parameters for it.
    """

    name: str
    worker: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[ConnectorSetup, ...] = ()
    outlives_resets: bool = False
    is_tagged: bool = False

    def transfer_arguments(self) -> dict[str, Any]:
        """What vLLM's `KVTransferConfig` is given."""
        extra = dict(self.extra)
        if self.parts:
            extra["connectors"] = [part.transfer_arguments() for part in self.parts]
        return {
            "kv_connector": self.name,
            "kv_role": "kv_both",
            "kv_connector_extra_config": extra,
            **self.arguments,
        }


@dataclass(frozen=True)
class EngineSetup:
    """One set-up: its cache groups, and what a server is started with beyond the defaults.

    `arguments` are those of vLLM's `EngineArgs`. With `is_async` the scheduler is the asynchronous
    one, one step ahead. `draft_tokens` are speculated for each request and step; `drafter` is the
    method, of which the scheduler knows only how many slots it takes. `connector` moves blocks
    between the device and elsewhere. `pipeline_stages` steps are in flight at once, each of other
    requests. A prompt has images where `image_tokens` is more than 0; the encoder takes as many
    positions in a step as its cache keeps, `encoder_tokens`. With `reset_preempts` a reset takes
    the blocks of requests that run, as before new weights are loaded. One that `sleeps` is put to
    sleep instead, and awakes at once: "keep" computes running requests anew, "wait" goes to sleep
    when they have ended. With `has_grammars` every other request has a grammar
    (`vllm_grammars.py`). `ranks` workers share every step by tensor parallelism.
    """

    name: str
    groups: tuple[CacheGroup, ...] = (CacheGroup(),)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    policy: str = "fcfs"
    is_async: bool = False
    draft_tokens: int = 0
    drafter: str = "ngram"
    max_running: int = _RUNNING
    max_batch_tokens: int = _BATCH_TOKENS
    connector: ConnectorSetup | None = None
    pipeline_stages: int = 1
    max_adapters: int = 0
    image_tokens: int = 0
    encoder_tokens: int = 0
    reset_preempts: bool = False
    sleeps: str = ""
    has_grammars: bool = False
    ranks: int = 1

    def profile(self) -> EngineProfile:
        """What is promised of the steps."""
        return EngineProfile(
            null_block=0,
            policy=self.policy,
            max_batch_tokens=self.max_batch_tokens,
            max_running=self.max_running,
            reset="preempts" if self.reset_preempts or self.sleeps == "keep" else "idle",
            steps_in_flight=2 if self.is_async else self.pipeline_stages,
            draft_tokens=self.draft_tokens,
            max_adapters=self.max_adapters,
            image_tokens=self.image_tokens,
            encoder_cache_tokens=self.encoder_tokens,
            max_encoder_tokens=self.encoder_tokens,
            ranks=self.ranks,
            groups=self.groups,
            **({} if self.connector is None else self.connector.rows),
        )

    def engine_arguments(self) -> dict[str, Any]:
        """What vLLM's `EngineArgs` are given, the model and its longest request aside."""
        arguments = {
            "skip_tokenizer_init": True,
            "enforce_eager": True,
            "dtype": "float32",
            "block_size": BLOCK_SIZE,
            "enable_prefix_caching": True,
            "max_num_seqs": self.max_running,
            "max_num_batched_tokens": self.max_batch_tokens,
            "scheduling_policy": self.policy,
            "tensor_parallel_size": self.ranks,
            **self.arguments,
        }
        if self.max_adapters:
            arguments |= {"enable_lora": True, "max_loras": self.max_adapters}
        if self.draft_tokens:
            arguments["speculative_config"] = {
                "method": self.drafter,
                "num_speculative_tokens": self.draft_tokens,
                "prompt_lookup_max": 2,
            }
        return arguments


_SLIDING = CacheGroup("sliding", 0, 6)
# A long prompt leaves room for others in each step: somebody is admitted behind one that is still
# computing its prompt, and may preempt it. More than a block, so that most chunks fill one and
# begin another.
_LONG = {"long_prefill_token_threshold": 5}

# A block of the model that is described to vLLM: 4 tokens, keys and values of 64 numbers.
_BLOCK_BYTES = 2 * BLOCK_SIZE * 64 * 4
_PLACES = 9
_FEW_PLACES = 5


def _simple(ranks: int = 1, **extra: Any) -> ConnectorSetup:
    """One of its places is the null block. The ranks share the bytes."""
    return ConnectorSetup(
        "SimpleCPUOffloadConnector",
        "simple",
        {"cpu_bytes_to_use": ranks * (_PLACES + 1) * _BLOCK_BYTES, **extra},
        rows={"transfers": "never-fail", "transfer_order": "fifo"},
    )


def _offloading(ranks: int = 1, **extra: Any) -> ConnectorSetup:
    """A place takes a page of the machine's memory at least, for each of the ranks."""
    places = _PLACES // extra.get("blocks_per_chunk", 1)
    return ConnectorSetup(
        "OffloadingConnector",
        "offloading",
        {"cpu_bytes_to_use": ranks * places * max(PAGESIZE, _BLOCK_BYTES), **extra},
        rows={"transfers": "never-fail", "transfer_order": "fifo"},
    )


_EXAMPLE = ConnectorSetup("ExampleConnector", "example", outlives_resets=True)

FAULT_TIER = "poolproof.targets.vllm_fault_tier"


def _tiering(**extra: Any) -> ConnectorSetup:
    """Fewer places on the host, and a tier behind it that keeps everything."""
    return ConnectorSetup(
        "OffloadingConnector",
        "tiering",
        {
            "spec_name": "TieringOffloadingSpec",
            "cpu_bytes_to_use": _FEW_PLACES * max(PAGESIZE, _BLOCK_BYTES),
            "secondary_tiers": [{"type": "FaultTier", "module_path": FAULT_TIER}],
            **extra,
        },
        rows={"transfers": "never-fail", "transfer_order": "fifo"},
        outlives_resets=True,
    )


FAULT_CONNECTOR = "poolproof.targets.vllm_fault_connector"


def _faults(*, loads: str, policy: str, stores: str = "steps") -> ConnectorSetup:
    return ConnectorSetup(
        "FaultConnector",
        "faults",
        {"loads": loads, "stores": stores},
        {"kv_connector_module_path": FAULT_CONNECTOR, "kv_load_failure_policy": policy},
        {
            "stale_outputs": "may-drop",
            "failed_loads": "recomputed" if policy == "recompute" else "may-end-requests",
        },
    )


LMCACHE_CONNECTOR = "poolproof.targets.lmcache_vllm"


def _lmcache(
    *, objects: int = 6, disk_objects: int = 0, is_tagged: bool = True, **options: Any
) -> ConnectorSetup:
    """LMCache's connector; it keeps what it has over resets. A failed load ends its request."""
    return ConnectorSetup(
        "LmcacheConnector",
        "lmcache",
        {
            "objects": objects,
            "disk_objects": disk_objects,
            "lmcache": {"chunk_size": BLOCK_SIZE, **options},
        },
        {"kv_connector_module_path": LMCACHE_CONNECTOR},
        {"failed_loads": "may-end-requests"},
        outlives_resets=True,
        is_tagged=is_tagged,
    )


def _multi(*parts: ConnectorSetup) -> ConnectorSetup:
    """Several connectors. Where one of them cannot report a loss, and ends in order, none does."""
    rows: dict[str, Any] = {}
    for part in parts:
        rows |= part.rows
    policy = [part.arguments for part in parts if "kv_load_failure_policy" in part.arguments]
    arguments = {
        name: value
        for given in policy
        for name, value in given.items()
        if name.startswith("kv_load")
    }
    return ConnectorSetup("MultiConnector", "multi", arguments=arguments, rows=rows, parts=parts)


SETUPS = (
    EngineSetup("fcfs"),
    EngineSetup("priority", arguments=_LONG, policy="priority", max_batch_tokens=8),
    EngineSetup("fcfs+async", is_async=True),
    EngineSetup(
        "priority+async", arguments=_LONG, policy="priority", is_async=True, max_batch_tokens=8
    ),
    EngineSetup("priority+drafts", policy="priority", draft_tokens=_DRAFTS),
    EngineSetup("fcfs+drafts", draft_tokens=_DRAFTS),
    EngineSetup("async+drafts", draft_tokens=_DRAFTS, is_async=True, drafter="ngram_gpu"),
    EngineSetup("fcfs+chunks", arguments={"long_prefill_token_threshold": 3}),
    EngineSetup("sliding", (_SLIDING,)),
    EngineSetup("full+sliding", (CacheGroup(), _SLIDING)),
    EngineSetup("chunked", (CacheGroup("chunked", 0, 8),)),
    EngineSetup("pipeline", pipeline_stages=2),
    EngineSetup("adapters", max_adapters=1),
    EngineSetup("images", image_tokens=6, encoder_tokens=8),
    EngineSetup("async+reset", is_async=True, reset_preempts=True),
    EngineSetup(
        "async+drafts+images+reset",
        is_async=True,
        draft_tokens=_DRAFTS,
        drafter="ngram_gpu",
        image_tokens=6,
        encoder_tokens=8,
        reset_preempts=True,
    ),
    EngineSetup(
        "async+images+sleep", is_async=True, image_tokens=6, encoder_tokens=8, sleeps="keep"
    ),
    EngineSetup("drafts+sleep-wait", draft_tokens=_DRAFTS, sleeps="wait"),
    EngineSetup("grammars", has_grammars=True),
    EngineSetup("drafts+grammars", draft_tokens=_DRAFTS, has_grammars=True),
    EngineSetup(
        "async+drafts+grammars",
        is_async=True,
        draft_tokens=_DRAFTS,
        drafter="ngram_gpu",
        has_grammars=True,
    ),
)
"""Those that have found nothing at first, then those that have more parts."""

CONNECTOR_SETUPS = (
    EngineSetup("simple-cpu", connector=_simple()),
    EngineSetup("simple-cpu+async", is_async=True, connector=_simple()),
    EngineSetup("simple-cpu+lazy", connector=_simple(lazy_offload=True)),
    EngineSetup("simple-cpu+lazy+async", is_async=True, connector=_simple(lazy_offload=True)),
    EngineSetup("simple-cpu+sliding", (CacheGroup(), _SLIDING), connector=_simple()),
    EngineSetup(
        "simple-cpu+async+drafts",
        draft_tokens=_DRAFTS,
        is_async=True,
        drafter="ngram_gpu",
        connector=_simple(),
    ),
    EngineSetup("offloading", connector=_offloading()),
    EngineSetup("offloading+arc", connector=_offloading(eviction_policy="arc")),
    EngineSetup("offloading+async", is_async=True, connector=_offloading()),
    EngineSetup("offloading+chunks-of-2", connector=_offloading(blocks_per_chunk=2)),
    EngineSetup(
        "offloading+sliding", (CacheGroup(), _SLIDING), is_async=True, connector=_offloading()
    ),
    EngineSetup(
        "offloading+async+drafts",
        draft_tokens=_DRAFTS,
        is_async=True,
        drafter="ngram_gpu",
        connector=_offloading(),
    ),
    EngineSetup("example", max_batch_tokens=128, connector=_EXAMPLE),
    EngineSetup("example+chunks", connector=_EXAMPLE),
    EngineSetup("tiering", connector=_tiering()),
    EngineSetup("tiering+arc+async", is_async=True, connector=_tiering(eviction_policy="arc")),
    EngineSetup("faults+sync", connector=_faults(loads="sync", policy="recompute")),
    EngineSetup("faults+sync+fail", connector=_faults(loads="sync", policy="fail")),
    EngineSetup("faults+late", connector=_faults(loads="async", policy="recompute", stores="end")),
    EngineSetup("faults+late+fail", connector=_faults(loads="async", policy="fail")),
    EngineSetup(
        "faults+late+async",
        is_async=True,
        connector=_faults(loads="async", policy="recompute", stores="end"),
    ),
    EngineSetup(
        "faults+late+priority",
        policy="priority",
        connector=_faults(loads="async", policy="recompute"),
    ),
    EngineSetup(
        "faults+sync+async", is_async=True, connector=_faults(loads="sync", policy="recompute")
    ),
    EngineSetup("simple-cpu+ranks", ranks=2, connector=_simple(ranks=2)),
    EngineSetup("offloading+ranks", ranks=2, is_async=True, connector=_offloading(ranks=2)),
    EngineSetup(
        "faults+late+ranks",
        ranks=2,
        connector=_faults(loads="async", policy="recompute", stores="end"),
    ),
    EngineSetup("multi+simple-cpu+offloading", connector=_multi(_simple(), _offloading())),
    EngineSetup("multi+offloading+simple-cpu", connector=_multi(_offloading(), _simple())),
    EngineSetup(
        "multi+faults+offloading",
        connector=_multi(_faults(loads="async", policy="recompute", stores="end"), _offloading()),
    ),
    EngineSetup(
        "multi+simple-cpu+faults",
        connector=_multi(_simple(), _faults(loads="sync", policy="fail", stores="end")),
    ),
    EngineSetup(
        "multi+faults+faults+async",
        is_async=True,
        connector=_multi(
            _faults(loads="async", policy="recompute", stores="end"),
            _faults(loads="async", policy="recompute", stores="end"),
        ),
    ),
)
"""With a connector each: vLLM's own, then ours that fails as the interface allows."""

LMCACHE_SETUPS = (
    EngineSetup("untagged", connector=_lmcache(is_tagged=False)),
    EngineSetup("cpu", connector=_lmcache()),
    EngineSetup(
        "cpu+unfull", connector=_lmcache(chunk_size=2 * BLOCK_SIZE, save_unfull_chunk=True)
    ),
    EngineSetup("cpu+priority", policy="priority", connector=_lmcache(save_decode_cache=True)),
    EngineSetup(
        "cpu+async+drafts",
        draft_tokens=_DRAFTS,
        is_async=True,
        drafter="ngram_gpu",
        connector=_lmcache(save_decode_cache=True),
    ),
    EngineSetup("disk", connector=_lmcache(objects=24, disk_objects=60)),
    EngineSetup("disk+lfu", connector=_lmcache(objects=24, disk_objects=40, cache_policy="LFU")),
    EngineSetup("disk+small", connector=_lmcache(objects=14, disk_objects=20)),
)
"""With LMCache's connector: what it keeps in host memory, and on disk."""

LMCACHE_NOTES = (
    "LMCache 0.5.6: its connector in both roles, lookup client, engine and backends, unmodified",
    "what moves KV between device and host, sockets, threads, the monitor of pins: simulated",
    "layers one by one, asynchronous loading, remote backends, blending, several ranks: not driven",
)
"""What the adapter of LMCache's connector stands in for, and what it leaves out."""
