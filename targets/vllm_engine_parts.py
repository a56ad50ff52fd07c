"""Builds schedulers of vLLM V1 as a server builds them, without a model, a worker or a GPU.

The configuration is the engine's own, made from a model description of a few numbers in a temporary
folder. It is built once for each set-up; an instance gets a copy of the parts that say how many
blocks there are. Which platform runs here decides nothing: what vLLM's CPU platform switches off
(asynchronous scheduling) is switched on again before a scheduler is built.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.targets.adapter_fit import Call, require_fit
from poolproof.targets.installed_vllm import engine_module, import_of_vllm, part_of
from poolproof.targets.vllm_connector_workers import (
    FaultWorker,
    MultiWorker,
    OffloadingWorker,
    SimpleCpuWorker,
    WorkerSide,
)
from poolproof.targets.vllm_engine_setups import (
    BLOCK_SIZE,
    FAULT_CONNECTOR,
    LMCACHE_CONNECTOR,
    LONGEST_REQUEST,
    ConnectorSetup,
    EngineSetup,
)
from poolproof.targets.vllm_example_worker import ExampleWorker
from poolproof.targets.vllm_grammars import Grammars, has_grammar
from poolproof.targets.vllm_tier_worker import TieringWorker

__all__ = ["SchedulerParts"]

Tags = tuple[tuple[str, str], ...]
"""Parameters of a request for its connector."""

_MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "vocab_size": 64,
    "max_position_embeddings": LONGEST_REQUEST,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_CALLS = (
    Call("add_request", ("request",)),
    Call("finish_requests", ("ids", "status")),
    Call("schedule"),
    Call("update_from_output", ("scheduled", "output")),
    Call("update_draft_token_ids", ("drafts",)),
    Call("reset_prefix_cache"),
)
_CONSTRUCTOR = Call(
    "__init__",
    named=(
        "vllm_config",
        "kv_cache_config",
        "structured_output_manager",
        "block_size",
        "hash_block_size",
    ),
)


@contextmanager
def _environment_kept() -> Iterator[None]:
    """VLLM's CPU platform writes into the environment what suits one configuration.

    For NIXL that is the layout of convolutions (`VLLM_SSM_CONV_STATE_LAYOUT`), which other set-ups
    of this process would then have as well.
    """
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _engine_config(model: str, **arguments: Any) -> Any:
    """VLLM's own configuration for a model of this description."""
    engine_arguments = part_of(engine_module("vllm.engine.arg_utils"), "EngineArgs")
    with _environment_kept(), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(model, encoding="utf-8")
        return engine_arguments(
            model=folder, max_model_len=LONGEST_REQUEST, **arguments
        ).create_engine_config()


@cache
def _look_into(model: str) -> None:
    """Have vLLM look into the class of a model, while no instance waits for it.

    It does so in a process of its own, for ten seconds and more on a slow machine, and keeps the
    answer in memory and in a file. A worker that is ended because a constructor takes too long
    leaves neither, and so every instance would be refused where no vLLM has run before.
    """
    # What is wrong with a configuration is said where an instance is made.
    with suppress(Exception):
        _engine_config(model, skip_tokenizer_init=True, enforce_eager=True)


class SchedulerParts:
    """What a set-up needs of vLLM: its scheduler class, configuration, requests and outputs.

    Raises TargetError where vLLM is not installed, or is a release that has other parts.
    """

    def __init__(self, setup: EngineSetup) -> None:
        self.setup = setup
        self.block_size = BLOCK_SIZE
        name = "AsyncScheduler" if setup.is_async else "Scheduler"
        module = "async_scheduler" if setup.is_async else "scheduler"
        self.scheduler_class = import_of_vllm(f"vllm.v1.core.sched.{module}", name)
        require_fit(self.scheduler_class, "vLLM V1's scheduler", (_CONSTRUCTOR, *_CALLS))
        outputs = engine_module("vllm.v1.outputs")
        self.runner_output = part_of(outputs, "ModelRunnerOutput")
        self.connector_output = part_of(outputs, "KVConnectorOutput")
        self.draft_token_ids = part_of(outputs, "DraftTokenIds")
        self.aborted = part_of(engine_module("vllm.v1.request"), "RequestStatus").FINISHED_ABORTED
        self._request = part_of(engine_module("vllm.v1.request"), "Request")
        sampling = engine_module("vllm.sampling_params")
        self._sampling = part_of(sampling, "SamplingParams")
        inputs = engine_module("vllm.multimodal.inputs")
        self._features = part_of(inputs, "MultiModalFeatureSpec")
        self._place = part_of(inputs, "PlaceholderRange")
        cache = engine_module("vllm.v1.core.encoder_cache_manager")
        self._encoder_cache = part_of(cache, "EncoderCacheManager")
        self._lora = part_of(engine_module("vllm.lora.request"), "LoRARequest")
        self._structured = part_of(sampling, "StructuredOutputsParams")
        self._limits: dict[tuple[int, bool, Tags], Any] = {}
        self._adapters: dict[tuple[str, str], Any] = {}
        _look_into(json.dumps(self.model()))

    @cached_property
    def pauses(self) -> Any:
        """Awake, or asleep in one of two ways. A release whose set-ups never sleep may lack it."""
        return part_of(engine_module("vllm.v1.core.sched.interface"), "PauseState")

    def with_blocks_of(self, block_size: int) -> Self:
        """The same with so many tokens a block: what describes blocks is made anew."""
        if block_size == self.block_size:
            return self
        _ = self._config  # takes long to make, and is the same for all
        parts = copy.copy(self)
        parts.block_size = block_size
        for name in ("_hasher", "_groups"):
            vars(parts).pop(name, None)
        return parts

    def make_scheduler(self, num_blocks: int, *, enable_caching: bool) -> Any:
        """A scheduler of its own. What its constructor raises passes through."""
        config = self.configuration(num_blocks, enable_caching=enable_caching)
        return self.scheduler_of(config, self.cache_of(config))

    def configuration(self, num_blocks: int, *, enable_caching: bool) -> Any:
        """VLLM's configuration for so many blocks; what differs between instances is its own."""
        config = copy.copy(self._config)
        config.cache_config = copy.copy(config.cache_config)
        config.cache_config.num_gpu_blocks = num_blocks
        config.cache_config.block_size = self.block_size
        config.cache_config.enable_prefix_caching = enable_caching
        config.model_config = copy.copy(config.model_config)
        config.model_config.max_model_len = self._longest_request(num_blocks)
        if self.setup.connector is not None:
            # Memory that is shared with workers is named after the engine.
            config.kv_transfer_config = copy.copy(config.kv_transfer_config)
            config.kv_transfer_config.engine_id = f"poolproof-{os.getpid()}-{next(_ENGINES)}"
        if self.setup.pipeline_stages > 1:
            config.parallel_config = copy.copy(config.parallel_config)
            config.parallel_config.pipeline_parallel_size = self.setup.pipeline_stages
        return config

    def cache_of(self, config: Any) -> Any:
        """The cache groups of a configuration, and where their layers stand."""
        num_blocks = config.cache_config.num_gpu_blocks
        return self.interface.KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=self._tensors(num_blocks),
            kv_cache_groups=self.groups_of(config),
        )

    def groups_of(self, config: Any) -> list[Any]:  # noqa: ARG002 -- some groups depend on it
        """The cache groups of the set-up's model, as vLLM describes them."""
        return self._groups

    def scheduler_of(self, config: Any, cache: Any, block_size: int = 0, hash_size: int = 0) -> Any:
        """A scheduler with these settings; a size of 0 is that of the parts."""
        scheduler = self.scheduler_class(
            vllm_config=config,
            kv_cache_config=cache,
            structured_output_manager=self._structured_output_of(config),
            block_size=block_size or self.block_size,
            hash_block_size=hash_size or self.block_size,
        )
        if self.setup.connector is not None:
            # It may have memory that is not given back with it.
            weakref.finalize(scheduler, scheduler.connector.shutdown)
        if self.setup.encoder_tokens:
            # What a scheduler reads off the processor of a model with images, which needs weights.
            scheduler.max_num_encoder_input_tokens = self.setup.encoder_tokens
            scheduler.encoder_cache_manager = self._encoder_cache(self.setup.encoder_tokens)
        return scheduler

    def make_request(
        self, request_id: int, chain: TokenChain, *, max_new_tokens: int, priority: int
    ) -> Any:
        """A request of the engine's own class; those that come later have larger numbers."""
        return self._request(
            request_id=str(request_id),
            prompt_token_ids=list(chain.tokens),
            sampling_params=self._limit(
                max_new_tokens,
                constrained=self.setup.has_grammars and has_grammar(request_id),
                tags=self._tags_of(chain),
            ),
            pooling_params=None,
            arrival_time=float(request_id),
            lora_request=None if chain.lora is None else self._adapter(chain.lora),
            cache_salt=chain.salt,
            priority=priority,
            block_hasher=self._hasher,
            mm_features=[self._feature(image) for image in chain.images],
        )

    def make_workers(self, scheduler: Any) -> list[WorkerSide]:
        """The worker side, of each rank, that is simulated for the connector of this scheduler."""
        connector = self.setup.connector
        assert connector is not None
        return [_worker_of(connector, scheduler.connector) for _ in range(self.setup.ranks)]

    def make_aggregator(self, scheduler: Any) -> Any:
        """What vLLM's executor makes one output of those of all ranks with."""
        module = engine_module("vllm.distributed.kv_transfer.kv_connector.utils")
        aggregator = part_of(module, "KVOutputAggregator")
        return aggregator.from_connector(scheduler.connector, self.setup.ranks)

    def _tensors(self, num_blocks: int) -> list[Any]:
        """Where the layers of all groups stand in memory: connectors count bytes."""
        if self.setup.connector is None:
            return []
        page = self._spec(self.setup.groups[0]).page_size_bytes
        layers = [name for group in self._groups for name in group.layer_names]
        return [
            self.interface.KVCacheTensor(num_blocks * page, [name], page * num_blocks, page)
            for name in layers
        ]

    def _feature(self, image: Image) -> Any:
        place = self._place(offset=image.offset, length=image.length)
        return self._features(None, "image", image.identifier, place)

    def _tags_of(self, chain: TokenChain) -> Tags:
        connector = self.setup.connector
        if connector is None or not connector.is_tagged:
            return ()
        adapter = () if chain.lora is None else zip(("adapter", "path"), chain.lora)
        salt = () if chain.salt is None else (("salt", chain.salt),)
        return tuple((f"lmcache.tag.{name}", value) for name, value in (*adapter, *salt))

    def _limit(self, max_new_tokens: int, *, constrained: bool, tags: Tags) -> Any:
        kind = (max_new_tokens, constrained, tags)
        if kind not in self._limits:
            # Which grammar it is says nothing to a scheduler.
            grammar = self._structured(regex=".") if constrained else None
            self._limits[kind] = self._sampling(
                max_tokens=max_new_tokens,
                stop_token_ids=[0],
                ignore_eos=True,
                structured_outputs=grammar,
                extra_args={"kv_transfer_params": dict(tags)} if tags else None,
            )
        return self._limits[kind]

    def _structured_output_of(self, config: Any) -> Any:
        return Grammars(config).manager if self.setup.has_grammars else self._structured_output

    def _adapter(self, lora: tuple[str, str]) -> Any:
        if lora not in self._adapters:
            name, path = lora
            number = len(self._adapters) + 1
            self._adapters[lora] = self._lora(lora_name=name, lora_int_id=number, lora_path=path)
        return self._adapters[lora]

    def _longest_request(self, num_blocks: int) -> int:
        """As many tokens as the blocks hold: a server starts with no more."""
        usable = (num_blocks - 1) // len(self.setup.groups)
        return min(LONGEST_REQUEST, max(1, usable * self.block_size))

    def model(self) -> dict[str, Any]:
        """What describes the model, as in a checkpoint's `config.json`: a head for each rank."""
        heads = self.setup.ranks
        return {**_MODEL, "num_attention_heads": heads, "num_key_value_heads": heads}

    @cached_property
    def _config(self) -> Any:
        config = _engine_config(
            json.dumps(self.model()),
            kv_transfer_config=self._transfer_config(),
            **self.setup.engine_arguments(),
        )
        config.scheduler_config.async_scheduling = self.setup.is_async
        return config

    def _transfer_config(self) -> Any:
        connector = self.setup.connector
        if connector is None:
            return None
        config = part_of(engine_module("vllm.config"), "KVTransferConfig")
        return config(**connector.transfer_arguments())

    @cached_property
    def _structured_output(self) -> Any:
        return part_of(engine_module("vllm.v1.structured_output"), "StructuredOutputManager")(
            self._config
        )

    @cached_property
    def interface(self) -> Any:
        """VLLM's descriptions of cache groups."""
        return engine_module("vllm.v1.kv_cache_interface")

    @cached_property
    def _hasher(self) -> Any:
        utilities = engine_module("vllm.v1.core.kv_cache_utils")
        sha256 = part_of(engine_module("vllm.utils.hashing"), "sha256")
        utilities.init_none_hash(sha256)
        return part_of(utilities, "get_request_block_hasher")(self.block_size, sha256)

    @cached_property
    def _groups(self) -> list[Any]:
        return [
            self.interface.KVCacheGroupSpec([f"layer.{number}"], self._spec(group))
            for number, group in enumerate(self.setup.groups)
        ]

    def _spec(self, group: CacheGroup) -> Any:
        size = {
            "block_size": self.block_size,
            "num_kv_heads": 1,
            "head_size": 64,
            "dtype": engine_module("torch").float32,
        }
        if group.is_sliding:
            return self.interface.SlidingWindowSpec(**size, sliding_window=group.window)
        if group.is_chunked:
            return self.interface.ChunkedLocalAttentionSpec(
                **size, attention_chunk_size=group.window
            )
        return self.interface.FullAttentionSpec(**size)


_CONNECTORS = "vllm.distributed.kv_transfer.kv_connector.v1"


def _worker_of(setup: ConnectorSetup, connector: Any) -> WorkerSide:
    """The worker side of a set-up. Raises TargetError where vLLM lacks a part of it."""
    return _WORKERS[setup.worker](setup, connector)


def _simple(_setup: ConnectorSetup, _connector: Any) -> WorkerSide:
    module = engine_module("vllm.v1.simple_kv_offload.metadata")
    return SimpleCpuWorker(part_of(module, "SimpleCPUOffloadWorkerMetadata"))


def _offloading(setup: ConnectorSetup, _connector: Any) -> OffloadingWorker:
    module = engine_module(f"{_CONNECTORS}.offloading.common")
    blocks_per_chunk: Any = setup.extra.get("blocks_per_chunk", 1)
    return OffloadingWorker(part_of(module, "OffloadingWorkerMetadata"), blocks_per_chunk)


def _tiering(setup: ConnectorSetup, connector: Any) -> WorkerSide:
    (tier,) = connector.connector_scheduler.manager.secondary_tiers
    return TieringWorker(_offloading(setup, connector), tier)


def _example(_setup: ConnectorSetup, connector: Any) -> WorkerSide:
    """Its folders are those of one engine, and go with it."""
    folder = tempfile.TemporaryDirectory(prefix="poolproof-files-")
    weakref.finalize(connector, folder.cleanup)
    connector._storage_path = folder.name  # noqa: SLF001  # a server configures it once
    # A plain function: a method would keep the connector alive.
    name = type(connector)._generate_foldername_debug  # noqa: SLF001 -- its files' names are private
    return ExampleWorker(partial(name, HandedFields(_storage_path=folder.name)), BLOCK_SIZE)


def _faults(setup: ConnectorSetup, connector: Any) -> WorkerSide:
    module = engine_module(FAULT_CONNECTOR)
    return FaultWorker(
        part_of(module, "FaultWorkerMetadata"),
        tells_requests=connector.has_states,
        fails=bool(setup.extra.get("fails", True)),
    )


def _multi(setup: ConnectorSetup, connector: Any) -> WorkerSide:
    module = engine_module(f"{_CONNECTORS}.multi_connector")
    workers = list(map(_worker_of, setup.parts, connector.sub_connectors))
    return MultiWorker(workers, part_of(module, "MultiKVConnectorWorkerMetadata"))


def _lmcache(_setup: ConnectorSetup, connector: Any) -> WorkerSide:
    worker: WorkerSide = part_of(engine_module(LMCACHE_CONNECTOR), "LmcacheWorker")(connector)
    return worker


_WORKERS: dict[str, Callable[[ConnectorSetup, Any], WorkerSide]] = {
    "simple": _simple,
    "offloading": _offloading,
    "tiering": _tiering,
    "example": _example,
    "faults": _faults,
    "lmcache": _lmcache,
    "multi": _multi,
}

_ENGINES = itertools.count()
"""Numbers for engines of this process."""
