"""The target `tokasaurus`: Tokasaurus's `BlockAllocator` with its prefix tree, unmodified.

The adapter does what `tokasaurus/manager/manager.py` does around it, which imports the server. A
prompt is matched without its last token, gets blocks for all of itself, and its full blocks are in
the tree at once, before they are computed. A sequence that ends, or is bumped, gives its blocks
back with the tokens that were computed: what hangs at the end of the tree and is used by nobody
else leaves it, and what is full is put in again.

Where it stands in for the server:
- room: an admission needs the blocks of its prompt; predictions of later use are policy.
- chunked prompts: the scheduler computes prompts in the order of their admission, so that a hit is
  computed before it is read. Here a prompt is computed in one step.
- the clock, by which leaves are evicted, counts its calls, so that every run is like another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from types import ModuleType
from typing import Any

from poolproof.contract.adapter_fault import HandedFields
from poolproof.targets.adapter_fit import Call
from poolproof.targets.adapter_uses import Use
from poolproof.targets.engine_sources import stub_module
from poolproof.targets.source_engines import Modules, SourceEngine
from poolproof.targets.token_names import TokenNames

__all__ = ["TOKASAURUS", "TokasaurusManager"]


class _Sequence:
    """What the server keeps of a sequence; `name` is new for each admission, as of a bumped one."""

    def __init__(self, name: str, tokens: list[int], setting: tuple[object, ...]) -> None:
        self.name = name
        self.tokens = tokens
        self.setting = setting
        self.table: list[int] = []
        self.num_computed = 0


class TokasaurusManager:
    """`allocator`, driven as Tokasaurus's manager drives it; `no_space` is what it raises."""

    def __init__(self, allocator: Any, no_space: type[Exception], *, enable_caching: bool) -> None:
        self._allocator = allocator
        self._no_space = no_space
        self._names = TokenNames(enable_caching=enable_caching)
        self._numbers = count()
        self._sequences: dict[int, _Sequence] = {}

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:
        setting = self._names.setting(extra_keys)
        named = self._names.named(tokens, setting, extra_keys)
        sequence = _Sequence(f"{seq_id}-{next(self._numbers)}", named, setting)
        try:
            sequence.table, cached = self._allocator.allocate_with_prefix_match(
                sequence.name, list(named)
            )
        except self._no_space:
            return "later"
        sequence.num_computed = cached
        self._sequences[seq_id] = sequence
        return int(cached)

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        length = len(sequence.tokens) + len(tokens)
        needed = self._allocator.num_blocks_needed(sequence.table, length)
        if needed > self._allocator.num_free_blocks:
            return "later"
        sequence.tokens += self._names.named(tokens, sequence.setting)
        sequence.table += self._allocator.allocate_up_to_length(
            sequence.name, sequence.table, length
        )
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, num_tokens in batch:
            self._sequences[seq_id].num_computed += num_tokens

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is not None:
            computed = sequence.tokens[: sequence.num_computed]
            self._allocator.free_and_update(sequence.name, sequence.table, computed)

    def preempt(self, seq_id: int) -> None:
        self.finish(seq_id)

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        return self._sequences[seq_id].table

    def num_free(self) -> int:
        free: int = self._allocator.num_free_blocks
        return free

    def ref_count(self, block_id: int) -> int:
        return len(self._allocator.all_blocks[block_id].seq_ids)


def _untracked() -> Callable[[Any], Any]:
    return lambda function: function


def _stubs() -> Mapping[str, ModuleType]:
    name = "tokasaurus.manager.monitoring"
    return {name: stub_module(name, track_time_decorator=_untracked)}


def _manager(
    modules: Modules, num_blocks: int, block_size: int, enable_caching: bool
) -> TokasaurusManager:
    module = modules["manager.allocator"]
    vars(module)["time"] = HandedFields(time=count().__next__)
    allocator = module.BlockAllocator(num_blocks, block_size)
    return TokasaurusManager(allocator, module.NoSpaceException, enable_caching=enable_caching)


_USES = (
    Use("manager.allocator", "NoSpaceException"),
    Use(
        "manager.allocator", "BlockAllocator",
        (
            Call("__init__", ("num_blocks", "page_size")),
            Call("allocate_with_prefix_match", ("seq_id", "prompt_ids")),
            Call("num_blocks_needed", ("kv_indices", "length")),
            Call("allocate_up_to_length", ("seq_id", "kv_indices", "length")),
            Call("free_and_update", ("seq_id", "kv_indices", "token_ids")),
        ),
        ("num_free_blocks", "all_blocks"),
    ),
    Use("manager.allocator", "PrefixTreeBlock", reads=("seq_ids",)),
)  # fmt: skip


TOKASAURUS = SourceEngine(
    name="tokasaurus",
    what="the BlockAllocator of Tokasaurus with its prefix tree",
    address="https://github.com/ScalingIntelligence/tokasaurus",
    commit="726890525a97f6ab156224f60f1e75e4f0db1f59",
    files=("tokasaurus/manager/allocator.py", "LICENSE"),
    package="tokasaurus",
    modules=("manager.allocator",),
    stubs=_stubs,
    manager=_manager,
    real_class=lambda modules: modules["manager.allocator"].BlockAllocator,
    uses=_USES,
    rows={
        # Prompts are in the tree as soon as they have blocks, sampled tokens at the end.
        "index": "content",
        "publishes": "scheduled",
        "same_step_hit": "allowed",
        "duplicates": "first",
        "hits": "sound",
        # A tail that nobody else uses leaves the tree, and comes back as far as it was computed.
        "retention": "may-drop",
        "never": "untold",
        "eviction": "unspecified",
        "release_order": "unspecified",
        "misuse": "undefined",
    },
    notes=(
        "adapters, salts and images: there are none, so tokens under them are other tokens",
        "the cache has no switch; with caching off no two prompts have a token in common",
        "chunked prompts: not driven; the scheduler keeps the order that makes hits computed",
        "forks, truncation, drafts, swapping, transfers: the allocator has none",
    ),
)
