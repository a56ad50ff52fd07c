"""Which parts of vLLM V1's published shape a class has: constructor and method parameters, by name.

Engines change signatures every few weeks, and people re-implement the class from descriptions
with fewer parameters. Everything here is read from the class without building it; parameters
that the adapter leaves at their defaults become notes. What an instance does is not looked at.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call, misfit, require_fit
from poolproof.targets.vllm_requests import StandInRequest

__all__ = [
    "VLLM_REQUIRED",
    "VllmShape",
    "frees_to_either_end",
    "parameters_of",
    "shape_of",
]

VLLM_REQUIRED = ("get_new_blocks", "free_blocks", "touch", "cache_full_blocks", "get_cached_block")

_CONSTRUCTOR_KNOWN = ("enable_caching", "hash_block_size", "block_size", "enable_kv_cache_events")
_CACHE_FULL_KNOWN = (
    "request", "blocks", "block_hashes", "num_cached_blocks", "num_full_blocks", "block_size",
    "kv_cache_group_id", "hash_fn",
)  # fmt: skip
_CACHE_PARTIAL_KNOWN = ("request", "block", "num_tokens", "kv_cache_group_id", "block_size")

# What each is for, so that a note about it says what stays unchecked.
_NOT_DRIVEN = {
    "metrics_collector": "residency metrics read the wall clock and do not decide anything",
    "medium": "the name of the storage medium in events",
    "block_mask": "skips blocks of sparse groups; null blocks drive the same branch",
    "replace_existing_hashes": "used when a block's content is overwritten in place",
}

_CALLS = (
    Call("get_new_blocks", ("num_blocks",)),
    Call("free_blocks", ("ordered_blocks",)),
    Call("touch", ("blocks",)),
)
_OPTIONAL_CALLS = (
    Call("get_num_free_blocks"),
    Call("evict_blocks", ("block_ids",)),
    Call("reset_prefix_cache"),
    Call("get_usage"),
    Call("take_events"),
)
"""What is left out, and named, where it does not fit."""


@dataclass(frozen=True)
class VllmShape:
    """How to call one class of this shape.

    `constructor` names the constructor's parameters after the first, which takes the number of
    blocks; `cache_full` and `cache_partial` those of the two caching methods (None: no such
    method). `block_size` is that of full blocks, `hash_block_size` the grain of partial entries.
    `without` names optional methods that take other arguments, and are not called. Where hashes
    are tuples of a `hash_class`, as vLLM's were up to 0.10.1, each is wrapped into one.
    """

    cls: type
    constructor: frozenset[str]
    cache_full: frozenset[str]
    cache_partial: frozenset[str] | None
    has_groups: bool
    nested_touch: bool
    block_size: int
    hash_block_size: int
    notes: tuple[str, ...]
    without: frozenset[str] = frozenset()
    hash_class: Any = None
    with_events: bool = True

    def build(self, num_blocks: int, *, enable_caching: bool) -> Any:
        """A fresh instance. What its constructor raises passes through."""
        values = {
            "enable_caching": enable_caching,
            "hash_block_size": self.hash_block_size,
            "block_size": self.block_size,
            "enable_kv_cache_events": self.with_events,
        }
        return self.cls(num_blocks, **{k: v for k, v in values.items() if k in self.constructor})

    def call_cache_full(
        self, pool: Any, request: Any, blocks: list[Any], num_cached: int, group: int
    ) -> None:
        """`cache_full_blocks` with those of its arguments that the class knows."""
        values = {
            "request": request,
            "blocks": blocks,
            "block_hashes": request.block_hashes,
            "num_cached_blocks": num_cached,
            "num_full_blocks": len(blocks),
            "block_size": self.block_size,
            "kv_cache_group_id": group,
            "hash_fn": hash,
        }
        pool.cache_full_blocks(**{k: v for k, v in values.items() if k in self.cache_full})

    def call_cache_partial(
        self, pool: Any, request: Any, block: Any, num_tokens: int, group: int
    ) -> None:
        """`cache_partial_block` with those of its arguments that the class knows."""
        values = {
            "request": request,
            "block": block,
            "num_tokens": num_tokens,
            "kv_cache_group_id": group,
            "block_size": self.block_size,
        }
        names = self.cache_partial or frozenset()
        pool.cache_partial_block(**{k: v for k, v in values.items() if k in names})

    def opaque_request(self, hashes: Sequence[bytes]) -> StandInRequest:
        """A stand-in request whose full blocks have these hashes."""
        # A full block's hash is the last of the finer hashes within it.
        fine = [
            self.wrapped(h) for h in hashes for _ in range(self.block_size // self.hash_block_size)
        ]
        return StandInRequest(fine, range(len(hashes) * self.block_size))

    def wrapped(self, block_hash: bytes) -> Any:
        """A hash in the form in which the class takes it."""
        return block_hash if self.hash_class is None else self.hash_class(block_hash, ())

    def unwrapped(self, shown: Any) -> Any:
        """The hash that the class shows, as it was before it was wrapped."""
        is_wrapped = self.hash_class is not None and isinstance(shown, self.hash_class)
        return shown.hash_value if is_wrapped else shown


def _hash_class_beside(cls: type) -> Any:
    """The tuple of a hash and its contents that the module of the class names; None if none."""
    for base in cls.__mro__:
        module = sys.modules.get(base.__module__)
        for value in vars(module).values() if module else ():
            is_tuple = isinstance(value, type) and issubclass(value, tuple)
            if is_tuple and tuple(getattr(value, "_fields", ()))[:2] == _HASH_FIELDS:
                return value
    return None


_HASH_FIELDS = ("hash_value", "token_ids")


def shape_of(cls: type) -> VllmShape:
    """Read the shape of a class that has the required methods.

    Raises TargetError where a method needs an argument that the adapter does not know.
    """
    notes: list[str] = []
    require_fit(cls, "vLLM V1's shape", _CALLS)
    constructor = parameters_of(cls, "__init__")[1:]
    _check(cls, "__init__", constructor, _CONSTRUCTOR_KNOWN, notes)
    names = frozenset(parameter.name for parameter in constructor)
    if "enable_caching" not in names:
        notes.append(
            "the constructor knows no enable_caching: with caching off, the adapter never caches"
        )
    full = parameters_of(cls, "cache_full_blocks")
    _check(cls, "cache_full_blocks", full, _CACHE_FULL_KNOWN, notes)
    has_partial = callable(getattr(cls, "cache_partial_block", None))
    partial = parameters_of(cls, "cache_partial_block") if has_partial else []
    _check(cls, "cache_partial_block", partial, _CACHE_PARTIAL_KNOWN, notes)
    full_names = frozenset(parameter.name for parameter in full)
    lookup = parameters_of(cls, "get_cached_block")
    has_groups = "kv_cache_group_id" in full_names and len(lookup) > 1
    asked = ("block_hash", "kv_cache_group_ids")[: 1 + has_groups]
    require_fit(cls, "vLLM V1's shape", [Call("get_cached_block", asked)])
    left_out = {
        call.method: what for call in _OPTIONAL_CALLS if (what := misfit(cls, call)) is not None
    }
    notes += [f"{method}() is not driven, because {what}" for method, what in left_out.items()]
    if not has_groups:
        notes.append("the class knows no cache groups: token chains are not driven")
    if not has_partial:
        notes.append("the class has no cache_partial_block: partial entries are not driven")
    return VllmShape(
        cls=cls,
        constructor=names,
        cache_full=full_names,
        cache_partial=frozenset(p.name for p in partial) if has_partial else None,
        has_groups=has_groups,
        nested_touch=_takes_a_tuple(cls),
        block_size=4,
        hash_block_size=2 if has_partial else 4,
        notes=tuple(notes),
        without=frozenset(left_out),
        hash_class=_hash_class_beside(cls),
    )


def frees_to_either_end(cls: type) -> bool:
    """Whether who frees blocks says to which end of the queue they go, as in 0.23 alone."""
    return any(each.name == "prepend" for each in parameters_of(cls, "free_blocks"))


def parameters_of(cls: type, method: str) -> list[inspect.Parameter]:
    """A method's named parameters without `self`, through overrides that only pass `*args` on."""
    found: dict[str, inspect.Parameter] = {}
    for base in cls.__mro__:
        function = base.__dict__.get(method)
        if function is None:
            continue
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            break
        if not isinstance(function, staticmethod):
            parameters = parameters[1:]
        passes_on = False
        for parameter in parameters:
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}:
                passes_on = True
            else:
                found.setdefault(parameter.name, parameter)
        if not passes_on:
            break
    return list(found.values())


def _check(
    cls: type,
    method: str,
    parameters: list[inspect.Parameter],
    known: tuple[str, ...],
    notes: list[str],
) -> None:
    for parameter in parameters:
        if parameter.name in known:
            continue
        if parameter.default is parameter.empty:
            raise TargetError(
                f"{cls.__name__}.{method}() needs {parameter.name!r}, which the adapter for vLLM "
                f"V1's shape does not know; give it a default, or write a native target "
                "(`poolproof new FILE`)"
            )
        reason = _NOT_DRIVEN.get(parameter.name, "the adapter does not know it")
        where = "the constructor" if method == "__init__" else f"{method}()"
        notes.append(f"{where} is called without {parameter.name}: {reason}")


def _takes_a_tuple(cls: type) -> bool:
    """Whether touch() takes one list a cache group, as vLLM 0.9 and 0.10 did."""
    parameters = parameters_of(cls, "touch")
    annotation = parameters[0].annotation if parameters else ""
    return str(annotation).lower().startswith(("tuple[", "typing.tuple["))
