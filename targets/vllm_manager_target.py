"""The targets in the shape of vLLM V1's `KVCacheManager`: the engine's, our own, and any class.

`vllm-manager` is the class of the vLLM that is installed here, unmodified; `impl-manager` is
`poolproof.impl.kv_cache_manager`. A class of one's own is built as the one of the two whose
constructor it has. Nothing of vLLM is imported before such a target is asked for.

Our own manager has the engine's shape, so the adapter drives it in the same way. Its requests hash
their own blocks, its pool shows its counters itself, and it orders no copies. It differs from the
engine in recurrent states: a block for each table entry, and a state that is only written in this
step is not found.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.outside import said_by
from poolproof.contract.profile import ProfileError
from poolproof.contract.target import TargetError
from poolproof.impl.block_hash import BlockHasher, LoRA, Salt
from poolproof.impl.kv_cache_group import ChunkedLocal, FullAttention, RecurrentState, SlidingWindow
from poolproof.impl.kv_cache_manager import KVCacheManager
from poolproof.impl.kv_cache_request import ImageSpan, Request
from poolproof.targets.adapter_fit import Call, misfit, require_fit, tried
from poolproof.targets.apart import NoAnswerError, apart
from poolproof.targets.installed_vllm import HOW_TO_GET_VLLM, import_of_vllm, version_of_vllm
from poolproof.targets.manager_target import MANAGER_SHAPES, ManagerShape, manager_target
from poolproof.targets.target import Make, ManagerLayout, Target, source_of
from poolproof.targets.vllm_manager import EngineParts, ManagerAdapter, VllmParts
from poolproof.targets.vllm_manager_layouts import (
    BLOCK_SIZE,
    LAYOUTS,
    MAX_MODEL_LEN,
    NOT_DRIVEN,
    NamedLayout,
)
from poolproof.targets.vllm_shape import frees_to_either_end, parameters_of, shape_of
from poolproof.targets.vllm_target import eviction_of

__all__ = [
    "impl_kv_cache_manager",
    "installed_vllm_manager",
    "is_from",
    "vllm_manager_target",
]


_WHY_NOT = {
    "full-hash-2": "",
    "full+mamba-all": (
        "full+mamba is just this here: a state is kept at the end of each block, whatever the mode"
    ),
    "full-2+sliding-4+lookahead": (
        "blocks get their keys before a hit can need them, for which `keyed` has no word"
    ),
}
"""What this manager does otherwise than the engine."""


def _own(layout: NamedLayout) -> NamedLayout:
    """The layout as this manager serves it: every state is kept, hashes of any granularity."""
    rows = {k: value for k, value in layout.rows.items() if k not in {"states", "full_hit"}}
    why_not = _WHY_NOT.get(layout.name, layout.why_not)
    return replace(layout, rows=rows, why_not=why_not, retention_tokens=None)


IMPL_LAYOUTS = tuple(map(_own, LAYOUTS))
"""The same names as for the engine."""


class ImplParts:
    """The parts of `poolproof.impl.kv_cache_manager`, or of a subclass, in one layout."""

    def __init__(self, cls: type[KVCacheManager], layout: NamedLayout) -> None:
        self._cls = cls
        self._layout = layout
        size = layout.hash_block_size or min(layout.sizes())
        # Any seed: no other process shares these hashes.
        self._hasher = BlockHasher(seed=b"poolproof", block_size=size)

    def make_manager(self, num_blocks: int, enable_caching: bool, /) -> KVCacheManager:
        return self._cls(
            num_blocks,
            BLOCK_SIZE,
            max_model_len=MAX_MODEL_LEN,
            groups=[_group(group, self._layout.state_blocks) for group in self._layout.groups],
            hash_block_size=self._layout.hash_block_size or None,
            enable_caching=enable_caching,
            use_eagle=self._layout.use_eagle,
        )

    def make_request(self, request_id: str, chain: TokenChain, /) -> Request:
        return Request(
            request_id,
            chain.tokens,
            hasher=self._hasher,
            lora=None if chain.lora is None else LoRA(*chain.lora),
            salt=None if chain.salt is None else Salt(chain.salt),
            images=[
                ImageSpan(image.identifier, image.offset, image.length) for image in chain.images
            ],
        )

    def append(self, request: Any, tokens: list[int], /) -> None:
        request.append(tokens)

    def set_running(self, request: Any, /) -> None:
        """A request knows no status."""

    def set_preempted(self, request: Any, /) -> None:
        """The same."""

    def take_copies(self, manager: Any, /) -> list[tuple[int, int]]:
        copies: list[tuple[int, int]] = manager.take_block_copies()
        return copies

    def observers(self, manager: Any, num_blocks: int, /) -> Mapping[str, Callable[..., Any]]:
        del num_blocks
        pool = manager.block_pool
        return {
            "num_free": pool.num_free,
            "free_order": pool.free_order,
            "free_neighbours": pool.free_neighbours,
            "ref_count": pool.ref_count,
            "is_cached": lambda block_id: pool.block_hash(block_id) is not None,
        }


def _group(group: CacheGroup, state_blocks: int) -> FullAttention:
    size = group.block_size or None
    if group.is_state:
        return RecurrentState(block_size=size, num_speculative_blocks=state_blocks)
    if group.is_sliding:
        return SlidingWindow(block_size=size, window=group.window)
    if group.is_chunked:
        return ChunkedLocal(block_size=size, chunk_size=group.window)
    return FullAttention(block_size=size)


_SHAPE = "vllm-v1-manager"
_METHODS = ("get_computed_blocks", "allocate_slots", "free", "get_block_ids")


_LOOKAHEAD = ("num_lookahead_tokens",)
_CALLS = (
    Call("get_computed_blocks", ("request",)),
    Call(
        "allocate_slots",
        ("request", "num_new_tokens", "num_new_computed_tokens", "new_computed_blocks"),
        _LOOKAHEAD,
    ),
    Call("allocate_slots", ("request", "num_new_tokens"), _LOOKAHEAD),
    Call("free", ("request",)),
    Call("get_block_ids", ("request_id",)),
    Call("reset_prefix_cache"),
)
_CALLS_OF_0_8 = (
    Call("get_computed_blocks", ("request",)),
    Call("allocate_slots", ("request", "num_tokens", "new_computed_blocks"), _LOOKAHEAD),
    Call("free", ("request",)),
    Call("free_block_hashes", ("request",)),
    Call("reset_prefix_cache"),
)
_TRANSFERS = (
    Call(
        "allocate_slots",
        ("request", "num_new_tokens", "num_new_computed_tokens", "new_computed_blocks"),
        ("num_external_computed_tokens", "delay_cache_blocks"),
    ),
    Call("cache_blocks", ("request", "num_computed_tokens")),
)
"""What a transfer calls beside; where it does not fit, transfers are left out."""


def _why_no_transfers(cls: type) -> str | None:
    if not callable(getattr(cls, "cache_blocks", None)):
        return f"{cls.__name__} has no cache_blocks()"
    found = [what for call in _TRANSFERS if (what := misfit(cls, call)) is not None]
    return "; ".join(found) or None


def _a_few_calls(make: Make) -> None:
    """A prompt in two chunks, a token, a wait, a hit and an end."""
    manager: Any = make(24, True)
    prompt = list(range(4 * BLOCK_SIZE + 1))
    manager.admit(0, prompt, num_tokens=2 * BLOCK_SIZE)
    manager.step([(0, 2 * BLOCK_SIZE)])
    manager.schedule(0, 2 * BLOCK_SIZE + 1)
    manager.step([(0, 2 * BLOCK_SIZE + 1)])
    manager.append(0, [7])
    manager.block_table(0)
    manager.take_table_update(0, 0)
    manager.preempt(0)
    manager.admit(1, prompt)
    manager.finish(1)
    manager.reset()


def installed_vllm_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """The real `KVCacheManager`. Raises TargetError where vLLM cannot be imported."""
    cls = import_of_vllm("vllm.v1.core.kv_cache_manager", "KVCacheManager")
    return _target(name, cls, LAYOUTS, overrides, version_of_vllm())


def vllm_manager_target(
    name: str,
    cls: type,
    overrides: Mapping[str, Any],
    version: str,
    modules: Callable[[str], Any],
) -> Target:
    """The class of a vLLM that is not installed, whose modules `modules` gives."""
    return _target(name, cls, LAYOUTS, overrides, version, modules=modules)


def impl_kv_cache_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """Our own. Raises TargetError for an unknown row of the profile."""
    return _target(name, KVCacheManager, IMPL_LAYOUTS, overrides, None)


def _class_in_this_shape(
    name: str, cls: type, overrides: Mapping[str, Any], version: str | None
) -> Target:
    """Any class with the shape's methods. Raises TargetError."""
    missing = [method for method in _METHODS if not callable(getattr(cls, method, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{method}()' for method in missing)}, which a "
            "manager in vLLM V1's shape has"
        )
    rows = {**getattr(cls, "profile", {}), **overrides}
    layouts = IMPL_LAYOUTS if issubclass(cls, KVCacheManager) else LAYOUTS
    return _target(name, cls, layouts, rows, version)


# For `--api vllm-v1-manager`, and for classes that have all these methods.
MANAGER_SHAPES[_SHAPE] = ManagerShape(_METHODS, _class_in_this_shape)


def make_of(parts: EngineParts, layout: NamedLayout, profile: ManagerProfile) -> Make:
    """Builds instances of a layout behind the native contract."""

    def make(num_blocks: int, enable_caching: bool) -> ManagerAdapter:
        return ManagerAdapter(
            parts,
            num_blocks,
            enable_caching=enable_caching,
            num_lookahead_tokens=profile.lookahead_tokens,
            stops_every=profile.hash_tokens if profile.states == "step-end" else 0,
            without=layout.without,
        )

    return make


def _target(
    name: str,
    cls: type,
    layouts: Sequence[NamedLayout],
    overrides: Mapping[str, Any],
    version: str | None,
    *,
    modules: Callable[[str], Any] | None = None,
) -> Target:
    notes = [f"{layout.name}: {note}" for layout in layouts for note in layout.notes]
    why_no_transfers = _why_no_transfers(cls)
    if why_no_transfers is not None:
        notes.append(f"not driven: transfers, because {why_no_transfers}")
        layouts = [
            replace(layout, without=tuple({*layout.without, "load", "loaded"}))
            for layout in layouts
        ]
    made = [_layout(name, cls, layout, overrides, modules, version=version) for layout in layouts]
    is_of_0_8 = not hasattr(cls, "get_block_ids") and hasattr(cls, "free_block_hashes")
    calls = _CALLS_OF_0_8 if is_of_0_8 else _CALLS
    require_fit(cls, "a manager in vLLM V1's shape", calls)
    return manager_target(
        name,
        _SHAPE,
        made,
        version=version,
        source=source_of(cls),
        real_class=cls,
        notes=(*notes, *(f"not driven: {what}" for what in NOT_DRIVEN)),
    )


def _layout(
    name: str,
    cls: type,
    layout: NamedLayout,
    overrides: Mapping[str, Any],
    modules: Callable[[str], Any] | None,
    *,
    version: str | None,
) -> ManagerLayout:
    why_not, parts = layout.why_not, None
    if not why_not:
        try:
            parts = _parts(cls, layout, modules)
        except (AttributeError, ImportError, TypeError) as error:
            why_not = str(error)
    if isinstance(parts, VllmParts):
        layout = parts.layout
        release = _release_to_ask(parts, layout, modules, version)
        if release is not None:
            why_not = _refused(release.parts) or _keeps_what_is_passed_by(release.parts)
            rows = {} if why_not else _rows_of_release(release)
            layout = replace(layout, rows={**layout.rows, **rows})
            parts = None if why_not else parts
    try:
        profile = ManagerProfile.from_mapping({**layout.profile_rows(), **overrides})
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error
    if parts is None:
        return ManagerLayout(layout.name, profile, None, BLOCK_SIZE, why_not)
    make = make_of(parts, layout, profile)
    what = tried(lambda: _a_few_calls(make)) if isinstance(parts, VllmParts) else None
    if what is not None:
        return ManagerLayout(layout.name, profile, None, BLOCK_SIZE, what)
    return ManagerLayout(layout.name, profile, make, BLOCK_SIZE)


def is_from(version: str | None, release: tuple[int, int]) -> bool:
    """Whether `version`, as `vllm 0.33.0`, is of a release, as (0, 33), or of a later one."""
    major, minor, *_ = [*(version or "").rpartition(" ")[2].split("."), "", ""]
    return major.isdigit() and minor.isdigit() and (int(major), int(minor)) >= release


_DESCRIBED, _NEXT = (0, 32), (0, 33)
"""The release whose rows LAYOUTS has, and the one after it."""


@dataclass(frozen=True, slots=True)
class _Release:
    """vLLM's own manager in a layout, and where it comes from."""

    parts: VllmParts
    modules: Callable[[str], Any]
    version: str | None


def _release_to_ask(
    parts: VllmParts,
    layout: NamedLayout,
    modules: Callable[[str], Any] | None,
    version: str | None,
) -> _Release | None:
    """The release that answers for its rows; None where LAYOUTS describes it.

    Of what is installed vLLM's own class answers, also for a subclass: what that does otherwise is
    to be found, not to be allowed.
    """
    if modules is not None:
        return _Release(parts, modules, version)
    installed = version_of_vllm()
    if is_from(installed, _DESCRIBED) and not is_from(installed, _NEXT):
        return None
    own = import_of_vllm("vllm.v1.core.kv_cache_manager", "KVCacheManager")
    return _Release(VllmParts(own, layout), importlib.import_module, installed)


def _rows_of_release(release: _Release) -> dict[str, Any]:
    """The rows in which a release differs from 0.32: its queue, the last block of a hit."""
    parts, version = release.parts, release.version
    layout = parts.layout
    pool_class = release.modules("vllm.v1.core.block_pool").BlockPool
    shape = shape_of(pool_class)
    rows: dict[str, Any] = {}
    try:
        eviction = apart(lambda: eviction_of(shape, has_null=True))
    except NoAnswerError:
        eviction = None
    if frees_to_either_end(pool_class):
        # Each kind of attention says which of its blocks go to the front, and when.
        eviction = "unspecified"
    if eviction is not None:
        rows["eviction"] = eviction
    if layout.use_eagle and len(layout.groups) > 1:
        rows |= _rows_of_drafting(parts)
    if layout.rows.get("keyed") == "reachable" and _keys_all(parts):
        rows["keyed"] = "full"
    if not parts.knows("hash_block_size"):
        rows |= _rows_up_to_0_11(parts)
    has_states = any(group.is_state for group in layout.groups)
    if has_states and layout.use_eagle and not is_from(version, (0, 30)):
        # They count a block more for the states behind drafts.
        rows["admission"] = "sound"
    if layout.rows.get("hash_tokens") and not _finds_inside_blocks(parts):
        rows |= _WHOLE_BLOCKS
    keeps_checkpoints = has_states or layout.retention_tokens is not None
    if is_from(version, _NEXT) and layout.use_eagle and keeps_checkpoints:
        # Windows and states keep one checkpoint more, a block before where the full groups had more
        # cached (for a drafting head of a sibling), for which `keyed` has no word.
        rows |= {"index": "content", "hits": "sound"}
    return rows


def _rows_up_to_0_11(parts: VllmParts) -> dict[str, Any]:
    """What the first releases lose without harm, by their kinds of groups."""
    layout = parts.layout
    kinds = {group.kind for group in layout.groups}
    rows: dict[str, Any] = {}
    if "chunked" in kinds:
        # Blocks before a chunk count as needed although they are the null block.
        rows |= {"hits": "sound", "admission": "sound"}
    if not parts.knows_groups:
        rows["uncached_order"] = "head-first"
        if kinds - {"full"}:
            # The null block, which nobody has to free, counts as one that a hit takes.
            rows["admission"] = "sound"
    return rows


def _rows_of_drafting(parts: VllmParts) -> dict[str, Any]:
    """What is found of a prompt of whole blocks by several groups under a drafting head.

    From 0.32 on the block that proves a hit may hold the last token. Releases up to 0.19 cut
    the hit once for each group (vllm#32802), so that less is found than could be.
    """

    def question() -> tuple[int, int]:
        manager = ManagerAdapter(parts, 24)
        prompt = list(range(_COMMON_BLOCKS * BLOCK_SIZE))
        # A block at a time: a recurrent state is left where a step ends.
        manager.admit(0, prompt, num_tokens=BLOCK_SIZE)
        manager.step([(0, BLOCK_SIZE)])
        for _ in range(_COMMON_BLOCKS - 1):
            manager.schedule(0, BLOCK_SIZE)
            manager.step([(0, BLOCK_SIZE)])
        return not_found(manager, prompt), not_found(manager, [*prompt, 0])

    def not_found(manager: Any, prompt: list[int]) -> int:
        """Of the blocks that were computed those that a prompt does not find."""
        return _COMMON_BLOCKS - int(manager.lookup_prefix(prompt)) // BLOCK_SIZE

    try:
        of_the_same, of_a_longer = apart(question)
    except NoAnswerError:
        return {}
    # The block that proves a hit is not found, and who may not have the last token from the cache
    # loses another one.
    rows = {"full_hit": "allowed" if of_the_same == 1 else "recompute-token"}
    if of_a_longer > 1:
        rows |= {"hits": "sound", "admission": "sound"}
    return rows


_COMMON_BLOCKS = 4


def _keys_all(parts: VllmParts) -> bool:
    """Whether every full block gets a key, also where no hit of all groups ends: up to 0.20."""
    sizes = parts.layout.sizes()
    group = sizes.index(min(sizes))

    def question() -> bool:
        manager: Any = ManagerAdapter(parts, 24)
        manager.admit(0, list(range(min(sizes) + 1)))
        manager.step([(0, min(sizes) + 1)])
        return bool(manager.is_cached(manager.block_table(0, group)[0]))

    try:
        return apart(question)
    except NoAnswerError:
        return False


_WHOLE_BLOCKS = {"hash_tokens": 0, "keys": "block", "index": "exact"}


def _finds_inside_blocks(parts: VllmParts) -> bool:
    """Whether a hit may end inside a block: from 0.26 on."""
    inside = BLOCK_SIZE + int(parts.layout.rows["hash_tokens"])

    def question() -> bool:
        manager: Any = ManagerAdapter(parts, 24)
        manager.admit(0, list(range(inside + 1)), num_tokens=inside)
        manager.step([(0, inside)])
        return bool(manager.lookup_prefix(list(range(inside + 1))) == inside)

    try:
        return apart(question)
    except NoAnswerError:
        return True


def _refused(parts: VllmParts) -> str:
    """Why the release's own constructor refuses the layout, or nothing."""

    def construct() -> str:
        try:
            parts.make_manager(8, True)
        except (AssertionError, NotImplementedError, ValueError) as error:
            said = said_by(error).splitlines()
            return f"the constructor of this release refuses it: {said[0] if said else 'assert'}"
        return ""

    try:
        return apart(construct)
    except NoAnswerError:
        return ""


def _keeps_what_is_passed_by(parts: VllmParts) -> str:
    """Why states inside blocks are not driven, or nothing.

    From 0.26 to 0.31 a state is kept where a request's tokens end when it is scheduled, and copied
    out when more are. Their scheduler schedules a request once a step; in the contract tokens may
    be appended before the step, which then computes past the state that was kept.
    """
    hash_tokens = int(parts.layout.rows.get("hash_tokens", 0))
    if not hash_tokens:
        return ""

    def question() -> bool:
        manager: Any = ManagerAdapter(parts, 24)
        manager.admit(0, [0] * hash_tokens)
        manager.append(0, [0])
        manager.step([(0, hash_tokens + 1)])
        return bool(manager.lookup_prefix([0] * (hash_tokens + 1)))

    try:
        is_kept = apart(question)
    except NoAnswerError:
        return ""
    if not is_kept:
        return ""
    return (
        "this release keeps the state behind the first tokens of a step also where the same step "
        "computes further; its scheduler schedules a request once a step, `append` does not wait "
        "for one"
    )


def _parts(cls: type, layout: NamedLayout, modules: Callable[[str], Any] | None) -> EngineParts:
    if issubclass(cls, KVCacheManager):
        return ImplParts(cls, layout)
    first = next((parameter.name for parameter in parameters_of(cls, "__init__")), "")
    if first != "kv_cache_config":
        raise TargetError(
            f"{cls.__name__}() takes {first or 'no argument'} first, and a manager in vLLM V1's "
            "shape a KVCacheConfig; write a native target (`poolproof new --manager FILE`)"
        )
    if modules is not None:
        return VllmParts(cls, layout, modules)
    try:
        importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        raise TargetError(
            f"{cls.__name__} is built from a KVCacheConfig of vLLM, which is not installed where "
            f"Poolproof runs; {HOW_TO_GET_VLLM}"
        ) from error
    return VllmParts(cls, layout)
