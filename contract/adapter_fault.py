"""Whether an exception is the fault of one of our adapters, and not of the target behind it.

An adapter calls an engine with the arguments of the releases that it was written for, and reads the
attributes that these have. Of another release, or of a clone, the call does not bind or the
attribute is not there. That says nothing of the engine, so it must never become a finding.

Such an error is a TypeError or an AttributeError that begins in an adapter's own frame, an answer
that it cannot unpack, what a stand-in cannot do (NotImplementedError), or an attribute that the
engine reads of an object that the adapter handed it. Where an engine is run from its sources alone,
a module that it imports late and does not get is one, too. Other answers are checked by the adapter
where they are used, which reports a wrong one as what it is.
"""

from __future__ import annotations

import re
import traceback
from types import FrameType, SimpleNamespace

from poolproof.contract.outside import said_by

__all__ = ["HandedFields", "HandedOver", "adapters_fault"]

_ADAPTERS = f"{__name__.partition('.')[0]}.targets"
_NOT_UNPACKED = re.compile(r"values to unpack \(expected \d+(, got \d+)?\)")
_NO_ADAPTERS = frozenset(
    f"{_ADAPTERS}.{name}"
    for name in ("paired", "command_target", "command_engine", "command_process", "serve")
)
"""These pass a target's own calls and answers on; they know no shape."""
_IMPORTERS = frozenset(f"{_ADAPTERS}.{name}" for name in ("engine_sources", "release_modules"))
"""These answer the imports of an engine that is run without its package."""


class HandedOver:
    """Base class of objects that an adapter hands to an engine in place of the engine's own."""

    __slots__ = ()
    engine_derives = False
    """Whether the engine's own classes derive from this one; then their names are not ours."""


class HandedFields(SimpleNamespace, HandedOver):
    """Fields that an engine reads, in place of an object of its own."""


def adapters_fault(error: BaseException) -> str | None:
    """What does not fit, in a few words; None for an error that is the target's own.

    The words name our function, and the method or attribute as Python names it.
    """
    kinds = (TypeError, AttributeError, NotImplementedError, ImportError, ValueError)
    if not isinstance(error, kinds):
        return None
    frames = list(traceback.walk_tb(error.__traceback__))
    if not frames:
        return None
    said = (said_by(error, 300).splitlines() or [type(error).__name__])[0]
    frame, line = frames[-1]
    if isinstance(error, ImportError):
        is_ours = any(_module_of(each) in _IMPORTERS for each, _ in frames)
        return f"an import of the engine: {said}" if is_ours else None
    if isinstance(error, ValueError) and not _NOT_UNPACKED.search(said):
        return None
    module = _module_of(frame)
    if module.startswith(f"{_ADAPTERS}.") and module not in _NO_ADAPTERS:
        return f"{frame.f_code.co_name}() of {module.rpartition('.')[2]}.py (line {line}): {said}"
    if not isinstance(error, TypeError | AttributeError):
        return None
    if isinstance(getattr(error, "obj", None), HandedOver) or _names_one(said):
        return f"{frame.f_code.co_name}(), line {line}, of the engine: {said}"
    return None


def _module_of(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _names_one(said: str) -> bool:
    """Whether a message is about an object that was handed over: it has no length, no items."""
    waiting, names = HandedOver.__subclasses__(), set()
    while waiting:
        cls = waiting.pop()
        waiting += () if cls.engine_derives else cls.__subclasses__()
        names.add(cls.__name__)
    return any(re.search(rf"\b{re.escape(name)}\b", said) for name in names)
