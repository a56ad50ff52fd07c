"""A manager in the shape of vLLM V1's `KVCacheManager`, behind the native manager contract.

Each verb is what the engine's scheduler does: an admission is a lookup and an allocation, growth is
an allocation, a preemption frees and starts over, a step moves the number of computed tokens and
nothing else. Calls, refusals and exceptions pass through unchanged; the adapter repairs nothing.

What differs between engines of this shape (how a manager and a request are made, where the counters
are) is in their `EngineParts`; vLLM's own are `VllmParts`. All of vLLM is imported by name at first
use, because an import costs seconds and half a gigabyte. Layers are of one head of one float32
number: a manager counts blocks and never sees a tensor. Constructor arguments that a version does
not know are left out.

A prompt is cut into chunks by the workload, not by the engine's scheduler, and an abort comes after
the step that computes what was scheduled, as the scheduler sees to it. Not driven: forks, swapping
and truncation, which the shape does not have; the watermark and `full_sequence_must_fit`, which
are arguments of admission policy; asynchronous scheduling; encoder tokens.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Protocol

from poolproof.contract.adapter_fault import HandedFields
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.outside import shown
from poolproof.contract.target import TargetError
from poolproof.targets.vllm_manager_layouts import BLOCK_SIZE, MAX_MODEL_LEN, NamedLayout
from poolproof.targets.vllm_pool_parts import LinkedBlocks
from poolproof.targets.vllm_requests import vllm_requests
from poolproof.targets.vllm_shape import parameters_of

__all__ = ["EarlyManager", "EngineParts", "ManagerAdapter", "VllmParts"]


Copies = list[tuple[int, int]]
HeadCopies = list[tuple[int, int, int]]
ExtraKeys = Sequence[tuple[str, Any, int, int | None]] | None


class EngineParts(Protocol):
    """What an engine of this shape does in its own way."""

    def make_manager(self, num_blocks: int, enable_caching: bool, /) -> Any:
        """A fresh manager."""
        ...

    def make_request(self, request_id: str, chain: TokenChain, /) -> Any:
        """A request whose prompt is the chain."""
        ...

    def append(self, request: Any, tokens: list[int], /) -> None:
        """The request has further tokens."""
        ...

    def set_running(self, request: Any, /) -> None:
        """The request was admitted."""
        ...

    def set_preempted(self, request: Any, /) -> None:
        """The request lost its blocks and waits."""
        ...

    def take_copies(self, manager: Any, /) -> Copies:
        """The block copies that were ordered since the last call, done with."""
        ...

    def observers(self, manager: Any, num_blocks: int, /) -> Mapping[str, Callable[..., Any]]:
        """The observers of the native contract that the engine's pool can serve."""
        ...


@dataclass(slots=True)
class RunningSequence:
    """A sequence that has not ended, as a scheduler knows it."""

    request: Any
    prompt: TokenChain
    outputs: list[int] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    num_scheduled: int = 0
    loading: int = 0
    ended: bool = False


class ManagerAdapter:
    """One manager and the requests that a scheduler would keep beside it.

    `num_lookahead_tokens` is passed to each allocation for tokens to be computed.
    """

    def __init__(
        self,
        parts: EngineParts,
        num_blocks: int,
        *,
        enable_caching: bool = True,
        num_lookahead_tokens: int = 0,
        stops_every: int = 0,
        without: Sequence[str] = (),
    ) -> None:
        self._parts = parts
        self._stops_every = stops_every
        self._manager = parts.make_manager(num_blocks, enable_caching)
        self._lookahead = num_lookahead_tokens
        self._sequences: dict[int, RunningSequence] = {}
        self._ended: dict[int, Any] = {}
        self._reports: dict[int, tuple[bool, list[list[int]]]] = {}
        for name, observer in parts.observers(self._manager, num_blocks).items():
            setattr(self, name, observer)
        for verb in without:
            setattr(self, verb, None)

    # How a sequence comes to hold blocks.

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: ExtraKeys = None,
        num_tokens: int | None = None,
    ) -> int | str | tuple[int, HeadCopies]:
        """A lookup and an allocation; a preempted request comes back as it is."""
        sequence = self._sequences.get(seq_id)
        if sequence is None:
            sequence = self._new(seq_id, TokenChain.from_extra_keys(tokens, extra_keys))
        blocks, cached = self._look_up(sequence.request)
        left = sequence.request.num_tokens - cached
        count = min(num_tokens or left, left)
        if self._stops_every:
            count = min(count, self._stop(sequence, cached) - cached)
        new = self._manager.allocate_slots(
            sequence.request, count, cached, blocks, num_lookahead_tokens=self._lookahead
        )
        if new is None:
            return "later"
        sequence.num_scheduled = count
        self._enter(seq_id, sequence, cached)
        copies = self._parts.take_copies(self._manager)
        inside = cached % BLOCK_SIZE
        return (cached, [(*pair, inside) for pair in copies]) if copies else cached

    def _stop(self, sequence: RunningSequence, start: int) -> int:
        """Where the scheduler ends a step that begins at `start`, so that a state is kept there.

        At the end of a block that it begins inside; and where a hit of the prompt ends inside one,
        unless a whole block ends behind it.
        """
        last: int = sequence.request.num_tokens - 1
        every = self._stops_every
        stops = [last + 1]
        if start % BLOCK_SIZE:
            stops.append(start - start % BLOCK_SIZE + BLOCK_SIZE)
        kept: int = (len(sequence.prompt.tokens) - 1) // every * every
        if start < kept and kept > last - last % BLOCK_SIZE:
            stops.append(kept)
        return min(stops)

    def load(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: ExtraKeys = None,
        num_tokens: int | None = None,
    ) -> int | str:
        """An admission of which a connector writes the next tokens; nothing is computed yet."""
        sequence = self._new(seq_id, TokenChain.from_extra_keys(tokens, extra_keys))
        blocks, cached = self._look_up(sequence.request)
        count = min(num_tokens or 0, sequence.request.num_tokens - cached)
        new = self._manager.allocate_slots(
            sequence.request,
            0,
            cached,
            blocks,
            num_external_computed_tokens=count,
            delay_cache_blocks=True,
        )
        if new is None:
            return "later"
        sequence.loading = count
        return self._enter(seq_id, sequence, cached)

    def loaded(self, seq_id: int, /) -> None:
        """The connector is done: the blocks are cached now, or go if the request has ended."""
        sequence = self._sequences[seq_id]
        count, sequence.loading = sequence.loading, 0
        if sequence.ended:
            self._free(seq_id)
            return
        sequence.request.num_computed_tokens += count
        self._manager.cache_blocks(sequence.request, sequence.request.num_computed_tokens)

    def lookup_prefix(self, tokens: list[int], *, extra_keys: ExtraKeys = None) -> int:
        """A lookup without an allocation."""
        chain = TokenChain.from_extra_keys(tokens, extra_keys)
        request = self._parts.make_request("looked up", chain)
        cached = self._look_up(request)[1]
        if isinstance(self._manager, EarlyManager):
            self._manager.free(request)  # it keeps the hashes of whom it was asked about
        return cached

    # How it grows, and is computed.

    def append(self, seq_id: int, tokens: list[int], /) -> Copies | str:
        """Tokens that were sampled, and slots for them."""
        sequence = self._sequences[seq_id]
        self._parts.append(sequence.request, list(tokens))
        copies = self._grow(seq_id, sequence, len(tokens))
        if copies == "later":
            # The engine would keep the tokens and preempt somebody; here they were never there.
            sequence.request = self._again(seq_id, sequence)
        else:
            sequence.outputs += tokens
        return copies

    def schedule(self, seq_id: int, num_tokens: int, /) -> Copies | str:
        """The next chunk of a prompt."""
        return self._grow(seq_id, self._sequences[seq_id], num_tokens)

    def draft(self, seq_id: int, tokens: list[int], /) -> Copies | str:
        """Slots for speculative tokens beside those that are scheduled."""
        sequence = self._sequences[seq_id]
        copies = self._grow(seq_id, sequence, len(tokens))
        if copies != "later":
            sequence.drafts = list(tokens)
            sequence.num_scheduled -= len(tokens)
        return copies

    def accept(self, seq_id: int, num_tokens: int, /) -> None:
        """Rejected drafts are not computed after all."""
        sequence = self._sequences[seq_id]
        drafts, sequence.drafts = sequence.drafts, []
        sequence.request.num_computed_tokens -= len(drafts) - num_tokens
        self._parts.append(sequence.request, drafts[:num_tokens])
        sequence.outputs += drafts[:num_tokens]

    def step(self, batch: list[tuple[int, int]], /) -> None:
        """The forward pass: scheduled tokens and drafts count as computed; the next step begins."""
        for seq_id, count in batch:
            sequence = self._sequences[seq_id]
            assert count == sequence.num_scheduled + len(sequence.drafts)
            sequence.request.num_computed_tokens += count
            sequence.num_scheduled = 0
        # Managers before recurrent states are told of no step.
        if hasattr(self._manager, "new_step_starts"):
            self._manager.new_step_starts()

    # How it loses its blocks.

    def preempt(self, seq_id: int, /) -> None:
        """The blocks go; the request waits with all its tokens and nothing computed."""
        sequence = self._sequences[seq_id]
        self._manager.free(sequence.request)
        self._parts.set_preempted(sequence.request)
        sequence.request.num_computed_tokens = 0
        if hasattr(sequence.request, "num_preemptions"):  # from 0.11
            sequence.request.num_preemptions += 1
        sequence.drafts = []
        sequence.num_scheduled = 0
        self._reports.pop(seq_id, None)

    def finish(self, seq_id: int, /) -> None:
        """`free`, also for a request that has ended, or never got blocks."""
        sequence = self._sequences.get(seq_id)
        if sequence is not None and sequence.loading:
            # A scheduler keeps the blocks until the connector has written them.
            sequence.ended = True
        elif sequence is not None:
            self._free(seq_id)
        else:
            request = self._ended.get(seq_id)
            if request is None:
                request = self._parts.make_request(str(seq_id), TokenChain((0,)))
            self._manager.free(request)

    def abort(self, seq_id: int, /) -> None:
        """The same."""
        self.finish(seq_id)

    def reset(self) -> Any:
        """Empty the prefix cache."""
        return self._manager.reset_prefix_cache()

    # What it shows.

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:
        """The blocks of a request in a group, the null block where none is needed any more."""
        return list(self._manager.get_block_ids(str(seq_id))[group])

    def take_table_update(self, seq_id: int, group: int) -> tuple[bool, list[int]]:
        """What the worker is told: the whole table after an admission, later only new blocks."""
        replaced, blocks = self._reports.get(seq_id, (False, []))
        if not blocks:
            return False, []
        told, blocks[group] = blocks[group], []
        if group == len(blocks) - 1:
            self._reports.pop(seq_id)
        return replaced, told

    def _new(self, seq_id: int, chain: TokenChain) -> RunningSequence:
        return RunningSequence(self._parts.make_request(str(seq_id), chain), chain)

    def _again(self, seq_id: int, sequence: RunningSequence) -> Any:
        """The request as it was before tokens that found no slots; managers know it by its id."""
        request = self._parts.make_request(str(seq_id), sequence.prompt)
        self._parts.append(request, list(sequence.outputs))
        self._parts.set_running(request)
        for name in ("num_computed_tokens", "num_preemptions"):
            if hasattr(request, name):
                setattr(request, name, getattr(sequence.request, name))
        return request

    def _look_up(self, request: Any) -> tuple[Any, int]:
        answer = self._manager.get_computed_blocks(request)
        if not isinstance(answer, tuple) or len(answer) < 2:
            raise TargetError(
                f"`get_computed_blocks` answered {shown(answer)}; the adapter for managers in vLLM "
                "V1's shape knows a tuple of blocks and a number of tokens"
            )
        blocks, cached, *junction = answer
        if junction:
            request.shared_prefix_boundary = junction[0]
        return blocks, cached

    def _enter(self, seq_id: int, sequence: RunningSequence, cached: int) -> int:
        self._parts.set_running(sequence.request)
        sequence.request.num_computed_tokens = cached
        self._sequences[seq_id] = sequence
        self._reports[seq_id] = (True, [list(t) for t in self._manager.get_block_ids(str(seq_id))])
        return cached

    def _grow(self, seq_id: int, sequence: RunningSequence, count: int) -> Copies | str:
        """One allocation for all that the next step computes of the sequence."""
        new = self._manager.allocate_slots(
            sequence.request,
            sequence.num_scheduled + len(sequence.drafts) + count,
            num_lookahead_tokens=self._lookahead,
        )
        if new is None:
            return "later"
        sequence.num_scheduled += count
        added = [list(blocks) for blocks in new.get_block_ids()]
        replaced, told = self._reports.get(seq_id, (False, [[] for _ in added]))
        self._reports[seq_id] = (replaced, [a + b for a, b in zip(told, added, strict=True)])
        return self._parts.take_copies(self._manager)

    def _free(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id)
        self._manager.free(sequence.request)
        self._reports.pop(seq_id, None)
        self._ended[seq_id] = sequence.request


class VllmParts:
    """The parts of one manager class in one layout, of which `layout` is what the version knows."""

    def __init__(
        self,
        cls: type,
        layout: NamedLayout,
        modules: Callable[[str], Any] = importlib.import_module,
    ) -> None:
        self._cls = cls
        self._modules = modules
        config = modules("vllm.v1.kv_cache_interface").KVCacheConfig
        if "prefix_cache_retention_interval" not in {each.name for each in fields(config)}:
            layout = replace(layout, retention_tokens=None)  # an older version keeps them all
        self.layout = layout
        states = [group for group in layout.groups if group.is_state]
        spec = modules("vllm.v1.kv_cache_interface").MambaSpec if states else None
        if spec is not None and "mamba_cache_mode" not in {each.name for each in fields(spec)}:
            raise TypeError("this vLLM has no mamba_cache_mode, so no states in its prefix cache")
        if spec is not None and layout.state_mode == "all" and not _reserves_every_state(spec):
            raise TypeError(
                'vLLM: mamba_cache_mode is "align" or "none"; no state is kept at the end of each '
                "block"
            )
        if spec is not None and "num_speculative_blocks" not in {f.name for f in fields(spec)}:
            raise TypeError("this vLLM has no blocks for states behind drafts")
        if layout.hash_block_size and "hash_block_size" not in self._constructor():
            raise TypeError("this vLLM has no hash_block_size: hashes are of whole blocks")
        self._hash_block_size = layout.hash_block_size or min(layout.sizes())
        self._request_of = vllm_requests(self._hash_block_size, modules=modules)
        self._status = modules("vllm.v1.request").RequestStatus
        _register_specs(modules)

    def make_manager(self, num_blocks: int, enable_caching: bool, /) -> Any:
        arguments = {
            "max_model_len": MAX_MODEL_LEN,
            "scheduler_block_size": math.lcm(*self.layout.sizes()),
            "hash_block_size": self._hash_block_size,
            "enable_caching": enable_caching,
            "use_eagle": self.layout.use_eagle,
        }
        known = self._constructor()
        config = _config(self._modules, num_blocks, self.layout)
        manager = self._cls(config, **{k: v for k, v in arguments.items() if k in known})
        return EarlyManager(manager) if hasattr(manager, "free_block_hashes") else manager

    @property
    def knows_groups(self) -> bool:
        """Whether there may be several cache groups: from 0.9 on."""
        return hasattr(self._cls, "get_block_ids")

    def knows(self, parameter: str) -> bool:
        """Whether the release's constructor takes it."""
        return parameter in self._constructor()

    def _constructor(self) -> set[str]:
        return {parameter.name for parameter in parameters_of(self._cls, "__init__")}

    def make_request(self, request_id: str, chain: TokenChain, /) -> Any:
        request = self._request_of(chain)
        request.request_id = request_id
        return request

    def append(self, request: Any, tokens: list[int], /) -> None:
        shift = getattr(request, "poolproof_shift", 0)
        request.append_output_token_ids([token + shift for token in tokens])

    def set_running(self, request: Any, /) -> None:
        request.status = self._status.RUNNING

    def set_preempted(self, request: Any, /) -> None:
        request.status = self._status.PREEMPTED

    def take_copies(self, manager: Any, /) -> list[tuple[int, int]]:
        """The blocks that the copies hold on to go back, as the engine sees to it after a step."""
        if not hasattr(manager, "take_kv_cache_block_copies"):
            return []
        copies, retained = manager.take_kv_cache_block_copies()
        if retained:
            manager.block_pool.free_blocks(retained)
        return [(copy.src_block_id, copy.dst_block_id) for copy in copies]

    def observers(self, manager: Any, num_blocks: int, /) -> Mapping[str, Callable[..., Any]]:
        pool = manager.block_pool
        blocks = pool.blocks
        found: dict[str, Callable[..., Any]] = {
            "num_free": pool.get_num_free_blocks,
            "ref_count": lambda block_id: blocks[block_id].ref_cnt,
            "is_cached": lambda block_id: blocks[block_id].block_hash is not None,
        }
        links = LinkedBlocks.find(pool.free_block_queue, blocks, num_blocks)
        if links is not None:
            found |= {"free_order": links.free_order, "free_neighbours": links.free_neighbours}
        return found


class EarlyManager:
    """A manager of releases up to 0.9 under the signatures that later ones have.

    It keeps the hashes of a request by its id until it is told that the request has ended, and is
    told how many of the tokens are drafts. That of 0.8 has one cache group, and answers lists.
    """

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self.block_pool = manager.block_pool
        self.reset_prefix_cache = manager.reset_prefix_cache
        self._parameters = {each.name for each in parameters_of(type(manager), "allocate_slots")}
        if hasattr(manager, "cache_blocks"):
            self.cache_blocks = manager.cache_blocks

    def get_computed_blocks(self, request: Any) -> tuple[Any, int]:
        found: tuple[Any, int] = self._manager.get_computed_blocks(request)
        return found

    def allocate_slots(
        self,
        request: Any,
        num_new_tokens: int,
        num_new_computed_tokens: int = 0,
        new_computed_blocks: Any = None,
        *,
        num_lookahead_tokens: int = 0,
        **further: Any,
    ) -> Any:
        end = request.num_computed_tokens + num_new_computed_tokens + num_new_tokens
        num_drafts = max(0, end - request.num_tokens)
        if "num_draft_tokens" in self._parameters:
            further["num_draft_tokens"] = num_drafts
        if "num_new_computed_tokens" in self._parameters:
            new = self._manager.allocate_slots(
                request, num_new_tokens, num_new_computed_tokens, new_computed_blocks,
                num_lookahead_tokens=num_lookahead_tokens, **further,
            )  # fmt: skip
        else:
            request.spec_token_ids = [0] * num_drafts
            new = self._manager.allocate_slots(
                request, num_new_tokens, new_computed_blocks, num_lookahead_tokens
            )
        if new is None and new_computed_blocks is not None:
            self._manager.free_block_hashes(request)
        return _OneTable(new) if isinstance(new, list) else new

    def free(self, request: Any) -> None:
        self._manager.free(request)
        self._manager.free_block_hashes(request)

    def get_block_ids(self, request_id: str) -> Any:
        if hasattr(self._manager, "get_block_ids"):
            return self._manager.get_block_ids(request_id)
        return _OneTable(self._manager.req_to_blocks[request_id]).get_block_ids()


class _OneTable:
    """New blocks of a manager with one cache group, as later releases answer them."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        self._blocks = blocks

    def get_block_ids(self) -> tuple[list[int]]:
        return ([block.block_id for block in self._blocks],)


def _config(modules: Callable[[str], Any], num_blocks: int, layout: NamedLayout) -> Any:
    interface = modules("vllm.v1.kv_cache_interface")
    float32 = modules("torch").float32
    groups = [
        interface.KVCacheGroupSpec([f"layer{place}"], _spec(interface, float32, group, layout))
        for place, group in enumerate(layout.groups)
    ]
    known = {each.name for each in fields(interface.KVCacheConfig)}
    tensors: dict[str, Any] = {"tensors": {}}
    if "kv_cache_tensors" in known:
        tensors = {"kv_cache_tensors": []}
    config = interface.KVCacheConfig(num_blocks=num_blocks, kv_cache_groups=groups, **tensors)
    if layout.retention_tokens is not None:
        config.prefix_cache_retention_interval = layout.retention_tokens
    return config


def _reserves_every_state(spec: Any) -> bool:
    """Whether a release has mode "all": then it reserves a state for each block of a sequence."""
    made = spec(block_size=1, shapes=(), dtypes=(), page_size_padded=1, mamba_cache_mode="all")
    config = HandedFields(
        cache_config=HandedFields(mamba_cache_mode="all"),
        model_config=HandedFields(max_model_len=MAX_MODEL_LEN),
    )
    return bool(made.max_memory_usage_bytes(config) == MAX_MODEL_LEN)


def _spec(interface: Any, float32: Any, group: CacheGroup, layout: NamedLayout) -> Any:
    """What vLLM calls a group of layers that read alike."""
    size = group.block_size or BLOCK_SIZE
    if group.is_state:
        return interface.MambaSpec(
            block_size=size,
            shapes=((1,),),
            dtypes=(float32,),
            mamba_cache_mode=layout.state_mode,
            num_speculative_blocks=layout.state_blocks,
        )
    common = {"block_size": size, "num_kv_heads": 1, "head_size": 1, "dtype": float32}
    if "use_mla" in {each.name for each in fields(interface.FullAttentionSpec)}:
        common["use_mla"] = False  # up to 0.10 it had to be said
    if group.is_sliding:
        return interface.SlidingWindowSpec(**common, sliding_window=group.window)
    if group.is_chunked:
        return interface.ChunkedLocalAttentionSpec(**common, attention_chunk_size=group.window)
    return interface.FullAttentionSpec(**common)


@cache
def _register_specs(modules: Callable[[str], Any]) -> None:
    """Once a process: which manager class is for which group; older versions need no call."""
    managers = modules("vllm.v1.core.single_type_kv_cache_manager")
    register = getattr(managers, "register_all_kvcache_specs", None)
    if register is not None:
        register(None)
