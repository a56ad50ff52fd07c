"""The targets in vLLM V0's shape: `vllm-v0` (0.2.7), `impl-vllm-v0`, and any class of the shape.

vLLM 0.2.7 is read from its wheel: `block.py`, `utils.py`, `sampling_params.py`, `sequence.py` and
`core/block_manager.py` are the engine's own files, unmodified. Stubbed, because they are only named
there and never called by the block manager: `torch` (`Tensor`, in an annotation), `psutil` and
`vllm._C.cuda_utils`. `vllm/__init__.py`, which starts the engine, is not run.

A manager asks its groups for sequences of a status, so it works with the `SequenceStatus` that its
own module imports and with the `Sequence` and `SequenceGroup` beside that. For a class whose module
names none of them there are Poolproof's own.

The adapter does what V0's scheduler does around the manager: tokens are appended before their slots
are asked for, one token a call where the manager wants that; every refusal is asked about before it
is made; forks join the group of their parent, and a group is swapped as a whole. Nothing of the
manager is replaced. Where it is more than that scheduler, which preempts by recomputation only
groups of one sequence: an admission is asked for with a group of the one sequence, also when a fork
is resumed, and the sequence stays with its relatives for growing and swapping. Several tokens
appended at once are asked for before the first is taken, and refused where the worst case does not
fit. Copies are performed when they are ordered; the scheduler's dict from source to destinations,
which loses their order, is not driven. `reset()` drops what is held, which no command of the
contract means, and is not driven either.

Layouts: `full`; `sliding`, where a table is a ring over the window; and `sliding-single`, the same
for requests of one sequence, without forks and swapping. All keep one block free as watermark and
have four blocks in host memory, since V0's default watermark rounds to nothing in a small pool.

vLLM 0.2.7 frees the blocks of a sequence in the order of a set of objects, which is that of their
addresses; so no order is declared for it. Its `can_append_slot` wants a free block for each running
sequence of the group, whether it needs one or not: growth may be refused although it fits, and
admission is exact.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import ProfileError
from poolproof.contract.target import TargetError
from poolproof.impl import sequence_group
from poolproof.impl.block_space_manager import BlockSpaceManager
from poolproof.targets.adapter_fit import Call, misfit, require_fit, tried
from poolproof.targets.engine_sources import engine_folder, import_from_source, stub_module
from poolproof.targets.manager_target import MANAGER_SHAPES, ManagerShape, manager_target
from poolproof.targets.target import Make, ManagerLayout, Target, source_of
from poolproof.targets.target_spec import builtin_profile

__all__ = [
    "MODULES",
    "VLLM_V0",
    "V0Manager",
    "V0Parts",
    "impl_vllm_v0_manager",
    "published_v0_target",
    "v0_parts",
    "v0_stubs",
    "vllm_v0",
    "vllm_v0_manager",
]


VLLM_V0 = "vllm-0.2.7"
"""Name and version, which is also the name of its folder."""

MODULES = ("utils", "block", "sampling_params", "sequence", "core.block_manager")


@dataclass(frozen=True)
class VllmV0:
    """What the adapter uses of the engine, by the engine's own names."""

    folder: Path
    BlockSpaceManager: Any
    BlockAllocator: Any
    AllocStatus: Any
    Sequence: Any
    SequenceGroup: Any
    SequenceStatus: Any
    SamplingParams: Any


def v0_stubs() -> dict[str, ModuleType]:
    """Modules that are named there, and never called by what is run."""
    return {
        "torch": stub_module("torch", Tensor=object),
        "psutil": stub_module("psutil"),
        "vllm._C": stub_module("vllm._C", cuda_utils=None),
    }


def vllm_v0() -> VllmV0:
    """The engine's classes. Raises TargetError, which says how to get the sources."""
    folder = engine_folder(VLLM_V0)
    modules = import_from_source(folder, "vllm", MODULES, v0_stubs())
    blocks, sequences = modules["core.block_manager"], modules["sequence"]
    return VllmV0(
        folder=folder,
        BlockSpaceManager=blocks.BlockSpaceManager,
        BlockAllocator=blocks.BlockAllocator,
        AllocStatus=blocks.AllocStatus,
        Sequence=sequences.Sequence,
        SequenceGroup=sequences.SequenceGroup,
        SequenceStatus=sequences.SequenceStatus,
        SamplingParams=modules["sampling_params"].SamplingParams,
    )


@dataclass(frozen=True)
class V0Parts:
    """What a manager of this shape takes.

    With `one_slot_a_call`, `append_slot` makes room for one token; without, for all new ones.
    """

    new_sequence: Callable[[int, list[int]], Any]
    new_group: Callable[[Sequence[Any]], Any]
    append_token: Callable[[Any, int], None]
    waiting: Any
    running: Any
    swapped: Any
    finished: Any
    one_slot_a_call: bool


_PARTS = ("Sequence", "SequenceGroup", "SequenceStatus")
_STATUS = ("WAITING", "RUNNING", "SWAPPED")


def v0_parts(manager_class: type, block_size: int) -> V0Parts:
    """The parts of one manager class, for blocks of `block_size` tokens.

    Raises TargetError where one of them is missing.
    """
    classes = _classes_of(manager_class)
    status: Any = getattr(classes, "SequenceStatus", None)
    missing = [f"no {name}" for name in _PARTS if not hasattr(classes, name)]
    missing += [f"no SequenceStatus.{name}" for name in _STATUS if not hasattr(status, name)]
    if missing:
        raise TargetError(
            f"{manager_class.__name__} is not driven, because {classes.__name__} has "
            f"{', '.join(missing)}, which a manager in vLLM V0's shape stands beside"
        )
    finished = getattr(status, "FINISHED", None) or getattr(status, "FINISHED_STOPPED", None)
    is_published = "prompt" in inspect.signature(classes.Sequence).parameters

    def new_sequence(seq_id: int, tokens: list[int]) -> Any:
        if is_published:
            return classes.Sequence(seq_id, "", tokens, block_size)
        return classes.Sequence(seq_id, tokens, block_size)

    def new_group(sequences: Sequence[Any]) -> Any:
        name = str(sequences[0].seq_id)
        if is_published:
            params = classes.SamplingParams(n=1, best_of=1)
            return classes.SequenceGroup(name, list(sequences), params, 0.0)
        return classes.SequenceGroup(name, sequences)

    def append_token(sequence: Any, token: int) -> None:
        if is_published:
            sequence.append_token_id(token, {token: 0.0})
        else:
            sequence.append_tokens([token])

    return V0Parts(
        new_sequence, new_group, append_token,
        status.WAITING, status.RUNNING, status.SWAPPED, finished, is_published,
    )  # fmt: skip


def _classes_of(manager_class: type) -> ModuleType:
    """The module that has the sequence classes of a manager."""
    for base in manager_class.__mro__:
        status = getattr(sys.modules.get(base.__module__), "SequenceStatus", None)
        if status is not None:
            return sys.modules[status.__module__]
    return sequence_group


class V0Allocator:
    """What a device's allocator lets be seen, by block number.

    Published ones have a stack `free_blocks`, whose last block is the next; ours answer
    `free_order` and `ref_count`. Built while every block is free. With `mirrored`, numbers are
    counted from the other end: the first block that is handed out is then 0.
    """

    def __init__(self, allocator: Any, num_blocks: int, *, mirrored: bool) -> None:
        self._allocator = allocator
        self._last = num_blocks - 1
        self._mirrored = mirrored
        stack = getattr(allocator, "free_blocks", None)
        self._blocks = {block.block_number: block for block in stack or ()}

    @property
    def is_seen(self) -> bool:
        """Whether counts and free blocks can be read."""
        return bool(self._blocks) or hasattr(self._allocator, "free_order")

    def shown(self, block_number: int) -> int:
        """Our number for one of the engine's, and the other way round."""
        return self._last - block_number if self._mirrored else block_number

    def free_order(self) -> list[int]:
        """The free blocks, the next one first."""
        if self._blocks:
            numbers = [block.block_number for block in reversed(self._allocator.free_blocks)]
        else:
            numbers = self._allocator.free_order()
        return [self.shown(number) for number in numbers]

    def ref_count(self, block_id: int) -> int:
        """How many references a block has."""
        number = self.shown(block_id)
        if self._blocks:
            count: int = self._blocks[number].ref_count
        else:
            count = self._allocator.ref_count(number)
        return count


V0_METHODS = ("can_allocate", "allocate", "can_append_slot", "append_slot", "free")
"""The methods that tell the shape."""

Copies = list[tuple[int, int]]

_NUM_KEPT = 100
"""Sequences that have ended and may be ended again; engines forget them at once."""


class V0Manager:
    """`manager`, driven as V0's scheduler drives it, with sequences made of `parts`.

    With `mirrored`, block numbers are counted from the other end of the pool; without `forks` or
    `swaps`, the target does not have these verbs.
    """

    def __init__(
        self,
        manager: Any,
        parts: V0Parts,
        num_blocks: int,
        block_size: int,
        *,
        mirrored: bool = False,
        forks: bool = True,
        swaps: bool = True,
    ) -> None:
        self._manager = manager
        self._parts = parts
        self._block_size = block_size
        self._sequences: dict[int, Any] = {}
        self._families: dict[int, Any] = {}
        self._ended: dict[int, Any] = {}
        device = V0Allocator(getattr(manager, "gpu_allocator", None), num_blocks, mirrored=mirrored)
        self._shown = device.shown
        if device.is_seen:
            self.free_order, self.ref_count = device.free_order, device.ref_count
        if forks and callable(getattr(manager, "fork", None)):
            self.fork = self._fork
        if swaps and callable(getattr(manager, "swap_out", None)):
            self.swap_out, self.swap_in = self._swap_out, self._swap_in
            self.num_free_host = manager.get_num_free_cpu_blocks

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str:  # noqa: ARG002 - nothing is cached
        sequence = self._sequences.get(seq_id)
        if sequence is None:
            sequence = self._parts.new_sequence(seq_id, list(tokens))
        group = self._parts.new_group([sequence])
        answer = self._manager.can_allocate(group)
        if isinstance(answer, bool):  # 0.2.2: nobody is told that a prompt never fits
            refusal = "" if answer else "later"
        else:
            refusal = answer.name.lower().replace("ok", "")
        if refusal:
            return refusal
        self._manager.allocate(group)
        sequence.status = self._parts.running
        self._sequences[seq_id] = sequence
        self._families.setdefault(seq_id, group)
        return 0

    def append(self, seq_id: int, tokens: list[int]) -> Copies | str:
        sequence, parts = self._sequences[seq_id], self._parts
        if not self._has_slots(sequence, tokens):
            return "later"
        copies = []
        for token in tokens:
            parts.append_token(sequence, token)
            if parts.one_slot_a_call:
                copies.append(self._manager.append_slot(sequence))
        if not parts.one_slot_a_call:
            copies.append(self._manager.append_slot(sequence))
        shown = self._shown
        return [(shown(pair[0]), shown(pair[1])) for pair in copies if pair is not None]

    def step(self, batch: list[tuple[int, int]]) -> None:
        """Nothing is published, so the manager has no part in a forward pass."""

    def preempt(self, seq_id: int) -> None:
        """By recomputation: the blocks go, and the sequence waits with all its tokens."""
        sequence = self._sequences[seq_id]
        self._manager.free(sequence)
        sequence.status = self._parts.waiting

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is None:
            sequence = self._ended.get(seq_id)
            if sequence is None:
                return  # nobody has a sequence of that name that could be given back
        sequence.status = self._parts.finished
        self._manager.free(sequence)
        self._families.pop(seq_id, None)
        self._ended[seq_id] = sequence
        if len(self._ended) > _NUM_KEPT:
            del self._ended[next(iter(self._ended))]

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        sequence = self._sequences[seq_id]
        table = self._manager.get_block_table(sequence)
        if sequence.status is self._parts.swapped:
            return list(table)
        return [self._shown(number) for number in table]

    def num_free(self) -> int:
        count: int = self._manager.get_num_free_gpu_blocks()
        return count

    def _has_slots(self, sequence: Any, tokens: list[int]) -> bool:
        """Whether the manager says yes to the group as it will be, the new tokens appended."""
        grown = sequence.fork(sequence.seq_id)
        for token in tokens:
            self._parts.append_token(grown, token)
        family = self._families[sequence.seq_id].get_seqs()
        asking = self._parts.new_group([grown if s is sequence else s for s in family])
        if not _says_yes(self._manager.can_append_slot(asking)):
            return False
        if len(tokens) == 1 or not self._parts.one_slot_a_call:
            return True
        further = -(-(len(tokens) - 1) // self._block_size)
        return 1 + further <= self.num_free()

    def _fork(self, seq_id: int, child_id: int) -> Copies:
        parent, family = self._sequences[seq_id], self._families[seq_id]
        child = parent.fork(child_id)
        family.add(child)
        self._manager.fork(parent, child)
        self._sequences[child_id], self._families[child_id] = child, family
        return []

    def _swap_out(self, seq_id: int) -> Copies | str:
        family = self._families[seq_id]
        if not _says_yes(self._manager.can_swap_out(family)):
            return "later"
        moved = dict(self._manager.swap_out(family))
        self._set_status(family, self._parts.running, self._parts.swapped)
        return [(self._shown(block), host_block) for block, host_block in moved.items()]

    def _swap_in(self, seq_id: int) -> Copies | str:
        family = self._families[seq_id]
        if not _says_yes(self._manager.can_swap_in(family)):
            return "later"
        moved = dict(self._manager.swap_in(family))
        self._set_status(family, self._parts.swapped, self._parts.running)
        return [(host_block, self._shown(block)) for host_block, block in moved.items()]

    @staticmethod
    def _set_status(family: Any, before: Any, after: Any) -> None:
        for sequence in family.get_seqs(before):
            sequence.status = after


def _says_yes(answer: Any) -> bool:
    """Later versions answer an `AllocStatus`, of which every member is true."""
    return bool(answer.name == "OK") if hasattr(answer, "name") else bool(answer)


_BLOCK_SIZE = 4
_LAYOUTS = (("full", "full"), ("sliding", "sliding:8"), ("sliding-single", "sliding:8"))

_SHAPE = {
    "publishes": "never",
    "reserves": "sequence",
    "watermark_blocks": 1,
    "host_blocks": 4,
}
_PUBLISHED = {
    "admission": "exact-at-admission",
    "eviction": "unspecified",
    "release_order": "unspecified",
    "misuse": "undefined",
}
# The block freed last is used first, so the head goes back first for the tail to go out first.
_OWN = {"eviction": "lifo", "release_order": "head-first"}

_NOTES = (
    "a cache of prefixes: the shape has none, so adapters, salts and images make no difference",
    "reset(), which drops what is held: no command means that",
    "the scheduler's dict of copies, which loses their order: copies are performed when ordered",
)
_STUBS = (
    "stand-ins: torch, psutil and vllm._C.cuda_utils, which are named and never called",
    "vllm/__init__.py, which starts the engine, is not run",
)


def vllm_v0_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The class of vLLM 0.2.7, unmodified. Raises TargetError where its sources are not there."""
    cls = vllm_v0().BlockSpaceManager
    return published_v0_target(name, cls, overrides, VLLM_V0.replace("-", " "), _STUBS)


def published_v0_target(
    name: str, cls: type, overrides: Mapping[str, Any], version: str, notes: Sequence[str]
) -> Target:
    """The manager of a release, under the rows that hold for 0.2.7. Raises TargetError."""
    require_fit(cls, "vLLM V0's shape", _CALLS)

    told = hasattr(sys.modules[cls.__module__], "AllocStatus")
    never = {} if told else {"never": "untold"}

    def profile_of(rows: Mapping[str, Any]) -> ManagerProfile:
        return builtin_profile(name, {**_SHAPE, **_PUBLISHED, **never}, rows, ManagerProfile)

    layouts = _layouts(name, cls, overrides, profile_of)
    return manager_target(
        name, "v0", layouts, version=version, source=source_of(cls), real_class=cls,
        notes=(*notes, *_NOTES),
    )  # fmt: skip


def impl_vllm_v0_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """Poolproof's own class in this shape. Raises TargetError for a row that it does not have."""

    def profile_of(rows: Mapping[str, Any]) -> ManagerProfile:
        return builtin_profile(name, {**_SHAPE, **_OWN}, rows, ManagerProfile)

    layouts = _layouts(name, BlockSpaceManager, overrides, profile_of)
    return manager_target(
        name, "v0", layouts, source=source_of(BlockSpaceManager), real_class=BlockSpaceManager,
        notes=("block ids are counted from the last block, which is handed out first", *_NOTES),
    )  # fmt: skip


def _class_in_this_shape(
    name: str, cls: type, overrides: Mapping[str, Any], version: str | None
) -> Target:
    """Any class with the shape's methods. Raises TargetError."""
    methods = (*V0_METHODS, "get_block_table", "get_num_free_gpu_blocks")
    missing = [method for method in methods if not callable(getattr(cls, method, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{method}()' for method in missing)}, which a "
            "manager in vLLM V0's shape has"
        )
    require_fit(cls, "vLLM V0's shape", _CALLS)
    declared = getattr(cls, "profile", {})

    def profile_of(rows: Mapping[str, Any]) -> ManagerProfile:
        try:
            ManagerProfile.from_mapping(declared)
            return ManagerProfile.from_mapping({**_SHAPE, **_PUBLISHED, **declared, **rows})
        except ProfileError as error:
            raise TargetError(f"{name}: {error}") from error

    layouts = _layouts(name, cls, overrides, profile_of)
    notes = [
        f"not driven: {what}, because {'; '.join(found)}"
        for what, calls in (("forks", _FORKS), ("swapping", _SWAPS))
        if (found := _misfits(cls, calls))
    ]
    return manager_target(
        name, "v0", layouts, version=version, source=source_of(cls), real_class=cls,
        notes=(*notes, *_NOTES),
    )  # fmt: skip


_CALLS = (
    Call("__init__", ("block_size", "num_gpu_blocks", "num_cpu_blocks"), ("watermark",)),
    Call("can_allocate", ("seq_group",)),
    Call("allocate", ("seq_group",)),
    Call("can_append_slot", ("seq_group",)),
    Call("append_slot", ("seq",)),
    Call("free", ("seq",)),
    Call("get_block_table", ("seq",)),
    Call("get_num_free_gpu_blocks"),
)
"""What every layout calls; a fork and swapping are left out where theirs do not fit."""

_FORKS = (Call("fork", ("parent_seq", "child_seq")),)
_SWAPS = (
    Call("can_swap_out", ("seq_group",)),
    Call("swap_out", ("seq_group",)),
    Call("can_swap_in", ("seq_group",)),
    Call("swap_in", ("seq_group",)),
    Call("get_num_free_cpu_blocks"),
)


def _misfits(cls: type, calls: Sequence[Call]) -> list[str]:
    return [what for call in calls if (what := misfit(cls, call)) is not None]


def _a_few_calls(make: Make) -> None:
    """A prompt that grows past a block, waits, and ends."""
    manager = make(12, True)
    manager.admit(0, list(range(_BLOCK_SIZE)))
    manager.step([(0, _BLOCK_SIZE)])
    manager.append(0, [7])
    manager.block_table(0)
    manager.preempt(0)
    manager.admit(0, list(range(_BLOCK_SIZE)))
    manager.finish(0)


# For `--api v0`, and for classes that have all these methods.
MANAGER_SHAPES["v0"] = ManagerShape(V0_METHODS, _class_in_this_shape)


def _layouts(
    name: str, cls: type, overrides: Mapping[str, Any], profile_of: Any
) -> list[ManagerLayout]:
    """The named layouts, or the one that `groups` in brackets asks for."""
    wanted = [("", overrides["groups"])] if "groups" in overrides else _LAYOUTS
    layouts = []
    for layout, groups in wanted:
        rows = {**overrides, "groups": groups}
        if layout == "sliding-single":
            rows["host_blocks"] = 0
        profile = profile_of(rows)
        if profile.groups[0].is_sliding:
            profile = profile_of({"window_blocks": "reused", **rows})
        layouts.append(_layout(name, layout, cls, profile))
    return layouts


def _layout(name: str, layout: str, cls: type, profile: ManagerProfile) -> ManagerLayout:
    (group, *others) = profile.groups
    if others or group.is_chunked or group.is_state or group.window % _BLOCK_SIZE:
        raise TargetError(
            f"{name}: managers in vLLM V0's shape have one group, full or with a sliding window of "
            f"a multiple of {_BLOCK_SIZE} tokens, not {profile.layout_name}"
        )
    layout = layout or profile.layout_name
    window = group.window or None
    if window is not None and "sliding_window" not in inspect.signature(cls).parameters:
        why_not = f"{cls.__name__}() takes no sliding_window"
        return ManagerLayout(layout, profile, None, _BLOCK_SIZE, why_not)
    parts = v0_parts(cls, _BLOCK_SIZE)
    options = {
        "mirrored": profile.eviction != "unspecified",
        "forks": layout != "sliding-single" and not _misfits(cls, _FORKS),
        "swaps": profile.host_blocks > 0 and not _misfits(cls, _SWAPS),
    }

    def make(num_blocks: int, enable_caching: bool) -> V0Manager:  # noqa: ARG001 - see Target.make
        named: dict[str, Any] = {} if window is None else {"sliding_window": window}
        # A half is added, so that rounding down after a multiplication gives the number again.
        watermark = (profile.watermark_blocks + 0.5) / num_blocks
        manager = cls(_BLOCK_SIZE, num_blocks, profile.host_blocks, watermark=watermark, **named)
        return V0Manager(manager, parts, num_blocks, _BLOCK_SIZE, **options)

    what = None if cls is BlockSpaceManager else tried(lambda: _a_few_calls(make))
    return ManagerLayout(layout, profile, None if what else make, _BLOCK_SIZE, what or "")
