"""The `Target` of a class in vLLM V1's shape, with the profile that it declares or shows.

What such a class does not declare is what the published engine does, except where versions
differ: the place in the free queue of a freed block without a hash, whether block 0 is the null
block, and whether events name their cache group are looked at once on a small instance. What it
raises there is left for the run itself to report.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.level import Level
from poolproof.contract.outside import shown
from poolproof.contract.profile import FEWEST_BYTES_OF_CONTENTS, Profile, ProfileError
from poolproof.contract.target import TargetError
from poolproof.targets.apart import NoAnswerError, apart
from poolproof.targets.target import Target, source_of
from poolproof.targets.vllm_pool import VllmPool
from poolproof.targets.vllm_pool_parts import (
    index_beside,
    queue_beside,
    vllm_index_target,
    vllm_queue_target,
)
from poolproof.targets.vllm_requests import (
    BYTES_OF_VLLM_HASHES,
    RequestOf,
    prepare_vllm,
    stand_in_requests,
    vllm_requests,
)
from poolproof.targets.vllm_shape import VLLM_REQUIRED, VllmShape, shape_of

__all__ = ["eviction_of", "vllm_target"]

BYTES_OF_A_GROUP = 4
"""vLLM packs the number of the cache group behind a hash, and the two are the key of its map."""

_PUBLISHED: dict[str, Any] = {
    "null_block": 0,
    "eviction": "unhashed-first",
    "duplicates": "kept",
    "recache": "forbidden",
    "null_in_lists": "ignored",
    "keys": "partial",
    "retention": "exact",
    "events": "per-copy",
    "misuse": "undefined",
    "same_step_hit": "forbidden",
    "hash_bytes": "any",
}


def vllm_target(
    name: str,
    cls: type,
    declared: Mapping[str, Any],
    version: str | None,
    modules: Callable[[str], Any] | None = None,
) -> Target:
    """The target of a class in this shape; `modules` gives those of a vLLM that is not installed.

    `declared` are the rows that the class or the user states. Raises TargetError for a missing
    method or an argument that the adapter does not know, and for a profile that does not exist.
    """
    missing = [verb for verb in VLLM_REQUIRED if not callable(getattr(cls, verb, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{verb}()' for verb in missing)}, which a pool in "
            "vLLM V1's shape has; add it, or write a native target (`poolproof new FILE`)"
        )
    shape = shape_of(cls)
    is_real = modules is not None or _uses_vllm(cls)
    if is_real:
        prepare_vllm()
    notes = list(shape.notes)
    why_no_partial = _why_no_partial(shape)
    if why_no_partial is not None:
        notes.append(why_no_partial)
        shape = replace(shape, cache_partial=None, hash_block_size=shape.block_size)
    try:
        length = Profile.from_mapping(declared).usual_hash_bytes
        rows = {**_PUBLISHED, **_observed(shape, declared, notes, length), **declared}
        if not shape.cache_partial:
            rows["keys"] = declared.get("keys", "block")
        profile = Profile.from_mapping(rows)
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error
    # Events that nobody reads are not asked for: to announce one, releases up to 0.13 want the hash
    # of the block before, which caching itself does not need.
    shape = replace(shape, with_events=profile.events != "none")
    if not is_real:
        # Of vLLM itself these rows are known; of a class in its shape they are taken over.
        assumed = tuple(row for row in profile.to_json() if row not in declared)
        profile = replace(profile, assumed=assumed)
    if is_real and profile.events != "none":
        notes.append("events carry whole hashes here, where vLLM by default publishes 64 bits")
    if not is_real:
        by = "SHA-256" if profile.fixed_hash_bytes is None else "SHAKE256"
        notes.append(f"written without vLLM: token chains are hashed by {by}, not by an engine")

    @cache
    def requests() -> RequestOf:
        if is_real:
            importing = modules or importlib.import_module
            return vllm_requests(shape.hash_block_size, grow=True, modules=importing)
        return stand_in_requests(shape.hash_block_size, profile.fixed_hash_bytes)

    def request_of(chain: TokenChain) -> Any:
        # Made late: of a release without chains no request can be made, and none is asked for.
        return requests()(chain)

    why_no_chains = _why_no_chains(profile, is_real=is_real)
    if why_no_chains is None and is_real and shape.has_groups:
        why_no_chains = _why_no_requests(requests)
    if why_no_chains is not None:
        notes.append(why_no_chains)

    def make(num_blocks: int, enable_caching: bool) -> VllmPool:
        return VllmPool(
            shape,
            request_of,
            num_blocks,
            enable_caching=enable_caching,
            with_events=profile.events != "none",
        )

    queue_class, index_class = queue_beside(cls), index_beside(cls)
    queue = index = None
    if queue_class is not None:
        queue = vllm_queue_target(_part_name(name, "queue", queue_class), queue_class, version)
    if index_class is not None:
        rows = _rows_of_index(shape, profile, index_class)
        part_name = _part_name(name, "index", index_class)
        part_name += "".join(f"[{row}={value}]" for row, value in rows.items())
        index = vllm_index_target(part_name, index_class, version, rows)
    return Target(
        name=name,
        level=Level.POOL,
        shape="vllm-v1",
        profile=profile,
        version=version,
        source=source_of(cls),
        make=make,
        make_chained=make if shape.has_groups and why_no_chains is None else None,
        companion_queue=queue,
        companion_index=index,
        real_class=cls,
        notes=tuple(notes),
        block_size=shape.block_size,
        hash_block_size=shape.hash_block_size,
    )


def _why_no_chains(profile: Profile, *, is_real: bool) -> str | None:
    """Why no tokens can be hashed for a pool whose hashes have one length; None if they can."""
    length = profile.fixed_hash_bytes
    if is_real and length not in (None, BYTES_OF_VLLM_HASHES):
        return (
            f"vLLM hashes tokens to {BYTES_OF_VLLM_HASHES} bytes, the profile says {length}: token "
            "chains are not driven"
        )
    if length is not None and length < FEWEST_BYTES_OF_CONTENTS:
        return f"hashes of {length} bytes collide by chance: token chains are not driven"
    return None


_SOME_CONTENT = TokenChain((1, 2, 3, 4), ("a", "/a"), "salt", (Image("image", 0, 2),))


def _why_no_requests(requests: Callable[[], RequestOf]) -> str | None:
    """Why the engine's own requests cannot be made as the adapter makes them; None if they can."""
    try:
        requests()(_SOME_CONTENT)
    except Exception as error:
        lines = str(error).splitlines() or [""]
        what = (
            lines[0] if isinstance(error, AttributeError) else f"{type(error).__name__}: {lines[0]}"
        )
        return f"token chains are not driven, because no request can be made of them: {what}"
    return None


def _why_no_partial(shape: VllmShape) -> str | None:
    """Why partial entries are not driven: some releases have a narrower domain, by an assertion."""
    if shape.cache_partial is None:
        return None

    def ends_with_a_block() -> bool:
        pool: Any = shape.build(6, enable_caching=True)
        blocks = pool.get_new_blocks(1)
        request = shape.opaque_request([bytes(BYTES_OF_VLLM_HASHES)])
        try:
            shape.call_cache_partial(pool, request, blocks[0], shape.block_size, 0)
        except AssertionError:
            return False
        return True

    try:
        is_allowed = apart(ends_with_a_block)
    except NoAnswerError:
        return None
    if is_allowed:
        return None
    return (
        "partial entries are not driven, because cache_partial_block() forbids a prefix that ends "
        "with its block, which later releases allow and the adapter asks for"
    )


def _rows_of_index(shape: VllmShape, profile: Profile, index_class: type) -> dict[str, Any]:
    """What the pool's profile says of the index beside it: how long its keys are."""
    length = profile.fixed_hash_bytes
    if length is None:
        return {}
    is_packed = shape.has_groups and "bytes" in getattr(index_class, "key_kinds", ("bytes",))
    return {"hash_bytes": length + (BYTES_OF_A_GROUP if is_packed else 0)}


def _part_name(name: str, level: str, part: type) -> str:
    """A target string that finds the pool's queue or index again."""
    base = name.rsplit("[", 1)[0] if name.endswith("]") else name
    engine, at, release = base.partition("@")
    if engine == "vllm":
        return f"vllm-{level}{at}{release}"
    if part.__module__.startswith("vllm."):
        return f"{part.__module__}:{part.__qualname__}"
    return f"{base.rsplit(':', 1)[0]}:{part.__qualname__}"


def _uses_vllm(cls: type) -> bool:
    """Whether the class comes from vLLM, is derived from it, or stands beside parts of it."""
    if any(base.__module__.split(".")[0] == "vllm" for base in cls.__mro__):
        return True
    module = sys.modules.get(cls.__module__)
    neighbours = vars(module).values() if module else ()
    origins = (getattr(value, "__module__", None) for value in neighbours)
    return any(isinstance(origin, str) and origin.split(".")[0] == "vllm" for origin in origins)


def _observed(
    shape: VllmShape, declared: Mapping[str, Any], notes: list[str], hash_bytes: int
) -> dict[str, Any]:
    """The rows in which versions of the shape differ, seen on small instances."""
    if set(declared) >= {"null_block", "eviction", "events"}:
        return {}
    rows: dict[str, Any] = {}
    how = "is a guess, because a freed block went to no known place"
    try:
        rows = apart(lambda: _look(shape, hash_bytes))
    except NoAnswerError as error:
        how = f"is a guess, because looking at a small instance ended in {error}"
    if "eviction" in rows:
        how = "was observed on a small instance"
    rows.setdefault("eviction", _PUBLISHED["eviction"] if shape.cache_partial else "lru")
    rows.setdefault("events", "per-copy" if _has_events(shape) else "none")
    if "eviction" not in declared:
        notes.append(
            f"eviction {rows['eviction']!r} {how}; a class states it as "
            "`profile = {'eviction': ...}`"
        )
    if rows["events"] == "none" and "events" not in declared:
        notes.append("no events, or none that name cache group and whole hash: EVT is not checked")
    return rows


def _look(shape: VllmShape, hash_bytes: int) -> dict[str, Any]:
    """What is seen on pools of six blocks; a row that cannot be told is left out."""
    pool: Any = shape.build(6, enable_caching=True)
    null = getattr(pool, "null_block", None)
    rows: dict[str, Any] = {"null_block": None if null is None else null.block_id}
    eviction = eviction_of(shape, null is not None)
    if eviction is not None:
        rows["eviction"] = eviction
    if _has_events(shape) and not _events_are_whole(pool, shape, hash_bytes):
        rows["events"] = "none"
    return rows


def eviction_of(shape: VllmShape, has_null: bool) -> str | None:
    """Where two freed blocks without a hash go: ahead of two others, in which order, or behind."""
    pool: Any = shape.build(4 + has_null, enable_caching=True)
    answer = pool.get_new_blocks(2)
    if isinstance(answer, list | tuple) and not all(hasattr(each, "block_id") for each in answer):
        raise TargetError(
            f"{shape.cls.__name__} is not driven, because `get_new_blocks` answers "
            f"{shown(answer)}, and the adapter for vLLM V1's shape knows a list of block objects; "
            "write a native target (`poolproof new FILE`)"
        )
    first, second = answer
    pool.free_blocks([first, second])
    order = [block.block_id for block in pool.get_new_blocks(4)]
    freed = [first.block_id, second.block_id]
    if order[2:] == freed:
        return "lru"
    if order[:2] == freed:
        return "unhashed-first"
    return "lifo" if order[:2] == freed[::-1] else None


def _has_events(shape: VllmShape) -> bool:
    return "enable_kv_cache_events" in shape.constructor and hasattr(shape.cls, "take_events")


def _events_are_whole(pool: Any, shape: VllmShape, hash_bytes: int) -> bool:
    """Whether the event of a cached block names its cache group and all of its hash."""
    blocks = pool.get_new_blocks(1)
    some_hash = bytes(hash_bytes)
    shape.call_cache_full(pool, shape.opaque_request([some_hash]), blocks, 0, 0)
    events = pool.take_events()
    return bool(events) and all(
        hasattr(event, "group_idx") and list(event.block_hashes) == [some_hash] for event in events
    )
