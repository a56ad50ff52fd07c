"""The target `gllm`: gLLM's `PrefixMemoryManager` over its `PrefixSegment`, unmodified.

The adapter does what gLLM's scheduler does around the manager. A prompt looks up its pages and
takes them; pages for the chunk of this step follow. A full page has its key when it is allocated,
so before the step that computes it. A sampled token is appended, the page that it completes gets
its key, and the next page is taken. With caching off the engine itself takes `MemoryManager`.

Where it stands in for the scheduler:
- a prompt without room keeps the pages that it hit until it fits; here it gives them back, so the
  order of the free pages means nothing and is not declared.
- room: what the scheduler keeps in reserve for decoding is its policy, and is not kept here.
- the KV tensors are blank: `torch` is a module whose every name does nothing, and
  `torch.cuda.mem_get_info` tells as many bytes as the pages need.
"""

from __future__ import annotations

from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import BlankModule, stub_module
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import TokenNames

__all__ = ["GLLM", "GllmManager", "memory_of", "stubs"]


class GllmManager:
    """`manager`, driven as gLLM's scheduler drives it; `new_sequence` makes its own sequences."""

    def __init__(self, manager: Any, new_sequence: Any, *, enable_caching: bool) -> None:
        self._manager = manager
        self._new_sequence = new_sequence
        self._enable_caching = enable_caching
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
            setting = self._names.setting(extra_keys)
            named = self._names.named(tokens, setting, extra_keys)
            sequence = self._new_sequence(seq_id, named, [])
        if self._enable_caching:
            self._manager.pre_allocate_computed_page([sequence])
        cached: int = sequence.computed_token_num
        left = len(sequence) - cached
        if not self._take(sequence, min(num_tokens or left, left)):
            self._manager.free(sequence)
            sequence.preempt()
            return "later"
        self._sequences[seq_id], self._settings[seq_id] = sequence, setting
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        if not self._has_room(sequence, len(tokens)):
            return "later"
        for token in self._names.named(tokens, self._settings[seq_id]):
            sequence.append(token)
            self._manager.register_decode_boundary(sequence, len(sequence) - 1)
        self._take(sequence, len(tokens))
        return []

    def schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]] | str:
        return [] if self._take(self._sequences[seq_id], num_tokens) else "later"

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, count in batch:
            sequence = self._sequences[seq_id]
            sequence.computed_token_num += count
            sequence.to_compute_token_num -= count

    def preempt(self, seq_id: int) -> None:
        sequence = self._sequences[seq_id]
        self._manager.free(sequence)
        sequence.to_compute_token_num = 0
        sequence.preempt()

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is not None:
            self._manager.free(sequence)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        table: list[int] = self._sequences[seq_id].page_table
        return table

    def num_free(self) -> int:
        free: int = self._manager.get_num_free_pages()
        return free

    def _has_room(self, sequence: Any, num_tokens: int) -> bool:
        end: int = sequence.seq_len + num_tokens
        pages: int = -(-end // self._manager.page_size) - len(sequence.page_table)
        return pages <= self.num_free()

    def _take(self, sequence: Any, num_tokens: int) -> bool:
        """Pages for the next tokens, if there is room."""
        if not self._has_room(sequence, num_tokens):
            return False
        sequence.to_compute_token_num += num_tokens
        self._manager.pre_allocate_page([sequence])
        return True


_TORCH = BlankModule("torch")
"""Stands for `torch`; how much memory there is, is said before a manager is built."""


def stubs() -> dict[str, Any]:
    """What stands in for modules that the manager imports, by their names."""
    blank = {name: BlankModule(name) for name in ("torch.distributed", "transformers", "logger")}
    named = {
        "gllm.dist_utils": stub_module("gllm.dist_utils", get_pp_size=lambda: 1),
        "gllm.utils": stub_module(
            "gllm.utils",
            async_tensor_h2d=None,
            get_dtype_bytes=lambda _dtype: 1,
            unify_decode=None,
        ),
    }
    return {"torch": _TORCH, **blank, **named}


def memory_of(modules: Modules, num_blocks: int, block_size: int, enable_caching: bool) -> Any:
    """The engine's own manager of so many pages; without a prefix cache its `MemoryManager`."""
    memory = modules["memory_manager"]
    manager_class = memory.PrefixMemoryManager if enable_caching else memory.MemoryManager
    manager = manager_class(
        gpu_memory_util=1.0, num_layers=1, dtype=None, page_size=block_size, kv_head_num=1,
        kv_head_dim=1, vocab_size=1,
    )  # fmt: skip
    num_bytes = num_blocks * manager.get_sizeof_KV_per_page()
    vars(_TORCH)["cuda"] = HandedFields(mem_get_info=lambda: (num_bytes, num_bytes))
    manager.init()
    return manager


def _manager(
    modules: Modules, num_blocks: int, block_size: int, enable_caching: bool
) -> GllmManager:
    manager = memory_of(modules, num_blocks, block_size, enable_caching)
    return GllmManager(manager, modules["sequence"].Sequence, enable_caching=enable_caching)


_CALLS = (
    Call("__init__", (), (
        "gpu_memory_util", "num_layers", "dtype", "page_size", "kv_head_num", "kv_head_dim",
        "vocab_size",
    )),
    Call("get_sizeof_KV_per_page"), Call("init"), Call("pre_allocate_page", ("seqs",)),
    Call("register_decode_boundary", ("seq", "pos")), Call("free", ("seq",)),
    Call("get_num_free_pages"),
)  # fmt: skip
_USES = (
    Use("memory_manager", "MemoryManager", _CALLS, ("page_size",)),
    Use(
        "memory_manager", "PrefixMemoryManager",
        (*_CALLS, Call("pre_allocate_computed_page", ("seqs",))), ("page_size",),
    ),
    Use(
        "sequence", "Sequence",
        (
            Call("__init__", ("seq_id", "token_ids", "finish_tokens")), Call("__len__"),
            Call("append", ("token_id",)), Call("preempt"),
        ),
        ("computed_token_num", "to_compute_token_num", "page_table", "seq_len"),
    ),
)  # fmt: skip


GLLM = SourceEngine(
    name="gllm",
    what="the PrefixMemoryManager of gLLM",
    address="https://github.com/gty111/gLLM",
    commit="bc91d98d512de7ee4efc1727244b4e5be6aa79e4",
    files=(
        "gllm/id_allocator.py",
        "gllm/memory_manager.py",
        "gllm/sequence.py",
        "LICENSE",
    ),
    package="gllm",
    modules=("id_allocator", "sequence", "memory_manager"),
    stubs=stubs,
    manager=_manager,
    real_class=lambda modules: modules["memory_manager"].PrefixMemoryManager,
    uses=_USES,
    rows={
        # A prompt that is cached whole computes its last token again, in the page that it shares.
        "index": "content",
        "publishes": "scheduled",
        "same_step_hit": "allowed",
        "duplicates": "last",
        "hits": "sound",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "never": "untold",
        "collisions": "trusted",
        "misuse": "undefined",
    },
    notes=(
        "adapters, salts and images: the token ids that are hashed differ, as the server does it",
        "room: a prompt that does not fit gives its hits back; the engine's scheduler keeps them",
        "recurrent states, repetition penalties: not driven",
        "forks, truncation, drafts, swapping, transfers: the manager has none",
    ),
)
