"""The `Target` of a class that speaks the native contract itself; instances come without adapter.

What can be read from the class is: its methods, its constructor's signature, its profile. An
instance is built only where the class leaves something open (methods or a profile that the
constructor sets); what that raises is left for the run to report.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import engine_capabilities_of
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.contract.outside import shown
from poolproof.contract.profile import ProfileError
from poolproof.contract.target import Capabilities, TargetError, capabilities_of
from poolproof.targets.adapter_fit import Call, misfit
from poolproof.targets.apart import NoAnswerError, apart
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import EngineLayout, Make, ManagerLayout, Target, source_of

__all__ = ["ask_instance", "declared_profile", "native_target", "usual_block_size"]

_Answer = TypeVar("_Answer")

_TOLD = ("sampled",)

_BLOCK_SIZE = 4
"""Tokens a block that a native manager is built with, unless it or the target string says others.

Runs with other sizes are a stage of their own.
"""

_MOST_BLOCK_SIZE = 256
"""Runs have a few blocks of tokens, and beyond this they would take minutes."""


def native_target(
    name: str, cls: type, level: Level, overrides: Mapping[str, Any], version: str | None
) -> Target:
    """A native engine, manager, pool, queue or index class as a target.

    Raises TargetError for a missing method, a constructor with other arguments, or a profile with
    an unknown row.
    """
    _check_constructor(cls, level)
    _check_methods(cls, level)
    declared = declared_profile(cls, level)
    rows = level.profile_class
    block_size = _BLOCK_SIZE
    if level.has_layouts and isinstance(declared, Mapping):
        block_size, declared, overrides = usual_block_size(name, declared, overrides)
    try:
        rows.from_mapping(declared)
        profile = rows.from_mapping({**declared, **overrides})
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error
    if isinstance(profile, ManagerProfile):
        _check_told(name, cls, profile)
        layout = ManagerLayout(
            profile.layout_name,
            profile,
            _manager_maker(cls, block_size),
            block_size,
            make_of=partial(_manager_maker, cls),
        )
        return manager_target(
            name, "native-manager", [layout], version=version, source=source_of(cls), real_class=cls
        )
    if isinstance(profile, EngineProfile):
        set_up = EngineLayout(
            profile.layout_name,
            profile,
            _manager_maker(cls, block_size),
            block_size,
            make_of=partial(_manager_maker, cls),
        )
        return manager_target(
            name,
            "native-engine",
            [set_up],
            level=level,
            version=version,
            source=source_of(cls),
            real_class=cls,
        )
    return Target(
        name=name,
        level=level,
        shape=NATIVE_AT[level].shape,
        profile=profile,
        version=version,
        source=source_of(cls),
        make=NATIVE_AT[level].maker(cls),
        real_class=cls,
    )


def usual_block_size(
    name: str, declared: Mapping[str, Any], overrides: Mapping[str, Any]
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """The usual tokens a block that were asked for, and the mappings without that key."""
    size = overrides.get("block_size", declared.get("block_size", _BLOCK_SIZE))
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= _MOST_BLOCK_SIZE:
        raise TargetError(
            f"{name}: block_size is a number of tokens from 1 to {_MOST_BLOCK_SIZE}, not "
            f"{shown(size)}"
        )
    rest = [{k: v for k, v in rows.items() if k != "block_size"} for rows in (declared, overrides)]
    return size, rest[0], rest[1]


def declared_profile(cls: type, level: Level = Level.POOL) -> Mapping[str, Any]:
    """The rows that the class states, or that its constructor seems to set; else none."""
    found = getattr(cls, "profile", None)
    if found is None or inspect.isdatadescriptor(found) or callable(found):
        found = None
        if _mentions_profile(cls):
            found = ask_instance(cls, level, lambda instance: getattr(instance, "profile", None))
    return {} if found is None else found


def ask_instance(cls: type, level: Level, question: Callable[[Any], _Answer]) -> _Answer | None:
    """The answer of an instance of four blocks; None where it cannot be built or asked.

    Raises TargetError where the question does.
    """
    try:
        return apart(lambda: question(NATIVE_AT[level].maker(cls)(4, True)))
    except NoAnswerError:
        return None


def _queue_maker(cls: type) -> Make:
    return lambda num_blocks, enable_caching: cls(num_blocks)  # noqa: ARG005 -- see Target.make


def _index_maker(cls: type) -> Make:
    if _takes_num_blocks(cls):
        return _queue_maker(cls)
    return lambda num_blocks, enable_caching: cls()  # noqa: ARG005 -- see Target.make


def _pool_maker(cls: type) -> Make:
    return lambda num_blocks, enable_caching: cls(num_blocks, enable_caching=enable_caching)


def _manager_maker(cls: type, block_size: int = _BLOCK_SIZE) -> Make:
    return lambda num_blocks, enable_caching: cls(
        num_blocks, block_size, enable_caching=enable_caching
    )


def _takes_num_blocks(cls: type) -> bool:
    """Whether an index is built with a number of blocks, which it may or may not need."""
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(
        parameter.name == "num_blocks"
        or (
            parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        )
        for parameter in parameters
    )


@dataclass(frozen=True, slots=True)
class _NativeLevel:
    """How the native classes of a level are built, and which methods they have."""

    shape: str
    maker: Callable[[type], Make]
    arguments: Callable[[type], tuple[str, list[int], dict[str, bool]]]
    """How a call reads, and the arguments to try the constructor's signature with."""
    capabilities_of: Callable[[object], Capabilities] = capabilities_of


_CACHING = {"enable_caching": True}

NATIVE_AT: Mapping[Level, _NativeLevel] = {
    Level.QUEUE: _NativeLevel("queue", _queue_maker, lambda _: ("num_blocks", [4], {})),
    Level.INDEX: _NativeLevel(
        "index",
        _index_maker,
        lambda cls: ("num_blocks", [4], {}) if _takes_num_blocks(cls) else ("", [], {}),
    ),
    Level.POOL: _NativeLevel(
        "native", _pool_maker, lambda _: ("num_blocks, enable_caching=True", [4], _CACHING)
    ),
    Level.MANAGER: _NativeLevel(
        "native-manager",
        _manager_maker,
        lambda _: ("num_blocks, block_size, enable_caching=True", [4, _BLOCK_SIZE], _CACHING),
        manager_capabilities_of,
    ),
    Level.ENGINE: _NativeLevel(
        "native-engine",
        _manager_maker,
        lambda _: ("num_blocks, block_size, enable_caching=True", [4, _BLOCK_SIZE], _CACHING),
        engine_capabilities_of,
    ),
}


def _check_constructor(cls: type, level: Level) -> None:
    call, numbers, named = NATIVE_AT[level].arguments(cls)
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*numbers, **named)
    except TypeError as error:
        raise TargetError(
            f"{cls.__name__}{signature} cannot be built as {cls.__name__}({call}): {error}"
        ) from error


def _check_methods(cls: type, level: Level) -> None:
    """Methods may also be set on instances, so the class alone is not enough to refuse a target."""
    capabilities = NATIVE_AT[level].capabilities_of
    try:
        found: Level | None = capabilities(cls).level
    except TargetError:
        found = ask_instance(cls, level, lambda instance: capabilities(instance).level)
    if found is not None and found is not level:
        raise TargetError(
            f"{cls.__name__} is {found.with_article}, not {level.with_article}; leave out --api"
        )


def _check_told(name: str, cls: type, profile: ManagerProfile) -> None:
    """Raises TargetError where a profile asks for sampled tokens that a method does not take."""
    if profile.sampled != "with-step":
        return
    calls = (Call("step", ("batch",), _TOLD), Call("accept", ("seq_id", "num_tokens"), _TOLD))
    for call in calls:
        if misfit(cls, call) is not None:
            signature = inspect.signature(getattr(cls, call.method))
            raise TargetError(
                f"{name}: its profile says sampled=with-step, so that {call.method} is called with "
                f"sampled=..., and it is {call.method}{signature}; add that argument, or leave the "
                "row out"
            )


def _mentions_profile(cls: type) -> bool:
    """Whether any method of the class names an attribute `profile`."""
    for base in cls.__mro__[:-1]:
        for value in vars(base).values():
            function = value.fget if isinstance(value, property) else value
            code = getattr(function, "__code__", None)
            if code is not None and "profile" in code.co_names:
                return True
    return isinstance(getattr(cls, "profile", None), property)
