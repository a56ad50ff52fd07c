"""The target `lmdeploy`: the block manager and the prefix trie of LMDeploy's PyTorch engine.

All of it is unmodified, its sequences included. The adapter does what LMDeploy's scheduler does
around the two. A prompt is matched in the trie, without its last token; blocks follow for the chunk
of this step, for which leaves of the trie are evicted; then its full blocks go into the trie, so
before the step that computes them. A block that the trie has already is taken in place of the
sequence's own: an aligned prompt that is sent again computes its last block once more in place,
with the same content. Adapters have a root of their own, images are part of a block's identity, and
no hit ends inside one.

Where it stands in for the scheduler:
- room: an admission asks for the blocks of its chunk; how many tokens a batch has is policy.
- a preempted sequence keeps its blocks there until somebody needs them; here it frees them at once.
- the clock, by which leaves are evicted, counts its calls: the engine keeps whole seconds, in which
  ties are broken by memory addresses, so that no run would be like another.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import BlankModule
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import TokenNames

__all__ = ["LMDEPLOY", "LmdeployManager"]


class LmdeployManager:
    """`blocks` under `trie`, driven as LMDeploy's scheduler does; `new_sequence` makes its own.

    A sequence has `state`, whose `free` gives back what it holds; `decoding` says that tokens which
    it is given were sampled.
    """

    def __init__(
        self, blocks: Any, trie: Any, new_sequence: Any, decoding: Any, *, enable_caching: bool
    ) -> None:
        self._blocks = blocks
        self._trie = trie
        self._new_sequence = new_sequence
        self._decoding = decoding
        self._names = TokenNames(enable_caching=enable_caching)
        self._sequences: dict[int, Any] = {}
        self._settings: dict[int, tuple[object, ...]] = {}

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        sequence = self._sequences.get(seq_id)
        setting = self._settings.get(seq_id, ())
        if sequence is None:
            keys = extra_keys or ()
            salts = tuple(key for key in keys if key[0] == "salt")
            setting = self._names.setting(salts)
            adapters = [value for kind, value, _, _ in keys if kind == "lora"]
            sequence = self._new_sequence(seq_id, adapters[0] if adapters else None)
            sequence.update_token_ids(
                self._names.named(tokens, setting), multimodals=_multimodals(keys)
            )
        self._trie.match(sequence)
        cached: int = sequence.num_history_ids
        if not self._take(sequence, cached + (num_tokens or len(tokens))):
            sequence.state.free()
            return "later"
        self._sequences[seq_id], self._settings[seq_id] = sequence, setting
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        if not self._has_room(sequence, len(tokens)):
            return "later"
        named = self._names.named(tokens, self._settings[seq_id])
        sequence.update_token_ids(named, mode=self._decoding)
        self._take(sequence, sequence.num_all_ids)
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        return [] if self._take(sequence, sequence.kv_token_limit + num_tokens) else "later"

    def step(self, batch: list[tuple[int, int]]) -> None:
        """The forward pass; after a chunk of a prompt the next begins behind it."""
        for seq_id, _ in batch:
            sequence = self._sequences[seq_id]
            if sequence.kv_token_limit is not None:
                sequence.set_step(sequence.kv_token_limit)

    def preempt(self, seq_id: int) -> None:
        self._sequences[seq_id].state.free()

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is not None:
            sequence.state.free()

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        table: list[int] = self._blocks.get_block_table(self._sequences[seq_id]).tolist()
        return table

    def num_free(self) -> int:
        """Free blocks, and those that the trie alone holds."""
        counts = self._blocks.allocator.get_ref_count(slice(None)).tolist()
        held = {
            block
            for sequence in self._sequences.values()
            for block in sequence.logical_blocks.get_real_blocks().tolist()
        }
        in_trie: int = counts.count(1) - sum(counts[block] == 1 for block in held)
        free: int = self._blocks.get_num_free_gpu_blocks()
        return free + in_trie

    def _has_room(self, sequence: Any, num_tokens: int) -> bool:
        """Whether tokens beyond those that it has get blocks; leaves are evicted for them."""
        required = self._blocks.num_required_blocks(sequence, num_tokens)
        missing = required - self._blocks.get_num_free_gpu_blocks()
        if missing > 0:
            self._trie.evict(missing)
        return bool(required <= self._blocks.get_num_free_gpu_blocks())

    def _take(self, sequence: Any, end: int) -> bool:
        """Blocks for the tokens before `end`, and a place in the trie for those that are full."""
        before = sequence.kv_token_limit
        sequence.kv_token_limit = end if end < sequence.num_all_ids else None
        if not self._has_room(sequence, 0):
            sequence.kv_token_limit = before
            return False
        self._blocks.allocate(sequence)
        self._trie.allocate(sequence)
        return True


class _Given(SimpleNamespace, HandedOver):
    """What the engine asks of its session, its scheduler and an image."""


def _multimodals(keys: Any) -> dict[str, list[_Given]] | None:
    """The images of a prompt in the form in which the engine is given them."""
    images = [
        _Given(modality="image", content_hash=value, start=first, end=end)
        for kind, value, first, end in keys
        if kind == "image"
    ]
    return {"image": images} if images else None


_ENGINE = "lmdeploy.pytorch"


def _stubs() -> Mapping[str, ModuleType]:
    names = (
        "torch", "lmdeploy.messages", "lmdeploy.utils", "lmdeploy.vl.constants",
        f"{_ENGINE}.disagg.conn.protocol", f"{_ENGINE}.multimodal.data_type",
        f"{_ENGINE}.engine.model_agent", f"{_ENGINE}.model_inputs",
        f"{_ENGINE}.paging.state_manager", f"{_ENGINE}.strategies.base.sequence",
    )  # fmt: skip
    return {name: BlankModule(name) for name in names}


def _manager(
    modules: Modules, num_blocks: int, block_size: int, enable_caching: bool
) -> LmdeployManager:
    messages, states = modules["pytorch.messages"], modules["pytorch.paging.seq_states.states"]
    base = modules["pytorch.paging.block_manager.base_block_manager"]
    vars(base)["time"] = HandedFields(perf_counter=count().__next__)
    blocks = modules["pytorch.paging.block_manager.default_block_manager"].DefaultBlockManager(
        num_blocks, 0
    )
    trie = modules["pytorch.paging.block_trie.trie"].BlockTrie(
        allocator=blocks.allocator, block_size=block_size, enabled=enable_caching
    )
    settings = _Given(enable_prefix_caching=enable_caching)
    scheduler = _Given(cache_config=settings, block_trie=trie, block_manager=blocks)
    meta = messages.SequenceMeta(block_size)
    session = _Given(session_id=0, scheduler=scheduler, seq_meta=meta)

    def new_sequence(seq_id: int, adapter_name: Any) -> Any:
        sequence = modules["pytorch.strategies.ar.sequence"].SchedulerSequenceDefault(
            seq_id=seq_id, session=session, adapter_name=adapter_name
        )
        waiting = messages.MessageStatus.WAITING
        sequence.set_state(states.build_seq_state(scheduler, sequence, waiting))
        return sequence

    decoding = messages.UpdateTokenMode.DECODE
    return LmdeployManager(blocks, trie, new_sequence, decoding, enable_caching=enable_caching)


_MODULES = (
    "pytorch.block",
    "pytorch.prefix_cache_state",
    "pytorch.messages",
    "pytorch.paging.seq_states.states",
    "pytorch.paging.block_manager.base_block_manager",
    "pytorch.paging.block_manager.default_block_manager",
    "pytorch.paging.block_trie.node",
    "pytorch.paging.block_trie.checkpoint",
    "pytorch.paging.block_trie.checkpoint_lifecycle",
    "pytorch.paging.block_trie.kv_lifecycle",
    "pytorch.paging.block_trie.trie",
    "pytorch.strategies.ar.sequence",
)

_USES = (
    Use("pytorch.messages", "SequenceMeta", (Call("__init__", ("block_size",)),)),
    Use("pytorch.messages", "MessageStatus", reads=("WAITING",)),
    Use("pytorch.messages", "UpdateTokenMode", reads=("DECODE",)),
    Use(
        "pytorch.paging.seq_states.states",
        calls=(Call("build_seq_state", ("scheduler", "seq", "status")),),
    ),
    Use("pytorch.paging.seq_states.states", "StateBase", (Call("free"),)),
    Use("pytorch.block", "LogicalTokenBlocks", (Call("get_real_blocks"),)),
    Use(
        "pytorch.paging.block_manager.default_block_manager", "DefaultBlockManager",
        (
            Call("__init__", ("num_gpu_blocks", "num_cpu_blocks")), Call("allocate", ("msg",)),
            Call("get_block_table", ("msg",)), Call("get_num_free_gpu_blocks"),
            Call("num_required_blocks", ("obj", "prealloc_size")),
        ),
        ("allocator",),
    ),
    Use(
        "pytorch.paging.block_manager.base_block_manager", "LogicalAllocator",
        (Call("get_ref_count", ("blocks",)),),
    ),
    Use(
        "pytorch.paging.block_trie.trie", "BlockTrie",
        (
            Call("__init__", (), ("allocator", "block_size", "enabled")), Call("match", ("seq",)),
            Call("allocate", ("seq",)), Call("evict", ("max_num_blocks",)),
        ),
    ),
    Use(
        "pytorch.strategies.ar.sequence", "SchedulerSequenceDefault",
        (
            Call("__init__", (), ("seq_id", "session", "adapter_name")),
            Call("update_token_ids", ("token_ids",), ("multimodals",)),
            Call("update_token_ids", ("token_ids",), ("mode",)),
            Call("set_step", ("step",)), Call("set_state", ("state",)),
        ),
        ("state", "num_history_ids", "num_all_ids", "kv_token_limit", "logical_blocks"),
    ),
)  # fmt: skip


LMDEPLOY = SourceEngine(
    name="lmdeploy",
    what="the block manager and BlockTrie of LMDeploy's PyTorch engine",
    address="https://github.com/InternLM/lmdeploy",
    commit="1263d5cd889b7ad500e85b8eb20401327a4516ab",
    files=(*(f"lmdeploy/{name.replace('.', '/')}.py" for name in _MODULES), "LICENSE"),
    package="lmdeploy",
    modules=_MODULES,
    stubs=_stubs,
    manager=_manager,
    real_class=lambda modules: modules["pytorch.paging.block_trie.trie"].BlockTrie,
    uses=_USES,
    rows={
        # A repeated prompt writes its last block again, into the block that the trie shares.
        "index": "content",
        "publishes": "scheduled",
        "same_step_hit": "allowed",
        "tables": "merged",
        "duplicates": "first",
        "hits": "sound",
        # A sequence whose hit would end inside an image computes that block again and keeps it;
        # what it publishes behind it hangs below the block of the trie, which cannot go till then.
        "admission": "sound",
        "retention": "may-drop",
        "never": "untold",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "misuse": "undefined",
    },
    needs=("numpy",),
    notes=(
        "salts: there are none, so tokens under them are other tokens",
        "recurrent states and their checkpoints, windows, swapping, routed experts: not driven",
        "forks, truncation, drafts, transfers: the manager has none",
    ),
)
