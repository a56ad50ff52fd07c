"""Whether a class has what an adapter calls and reads, asked before it is driven.

An adapter is written for the published releases of a shape. Of others, methods take other
arguments, attributes are missing, an answer is of another kind. What differs is named here, in
words that a certificate can print; the adapter then leaves that stage out, or says that the class
cannot be driven. Signatures are read from the class; the rest shows on a small instance, in a
process of its own, by a few legal calls.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from poolproof.contract.adapter_fault import adapters_fault
from poolproof.contract.target import TargetError
from poolproof.targets.apart import NoAnswerError, apart

__all__ = ["Call", "misfit", "require_fit", "tried"]


@dataclass(frozen=True)
class Call:
    """How an adapter calls a method: the arguments by position and those by name.

    Their words are what a sentence shows.
    """

    method: str
    arguments: tuple[str, ...] = ()
    named: tuple[str, ...] = ()

    def written(self, *before: str) -> str:
        """The arguments as they are written, after those of the method itself."""
        named = (f"{name}=..." for name in self.named)
        return f"({', '.join((*before, *self.arguments, *named))})"


def misfit(cls: type | ModuleType, call: Call) -> str | None:
    """Why the class cannot be called like this, as a clause; None where it can, or is unknown.

    A method that the class lacks may be set on its instances, and is not looked at. In place of a
    class it may be a module, which has functions.
    """
    function = inspect.getattr_static(cls, call.method, None)
    if not callable(function) and not isinstance(function, staticmethod | classmethod):
        return None
    shown = "the constructor" if call.method == "__init__" else f"`{call.method}`"
    try:
        bound = getattr(cls, call.method)
        signature = inspect.signature(bound)
        is_bound = isinstance(function, staticmethod | classmethod) or not isinstance(cls, type)
    except (AttributeError, TypeError, ValueError):
        return None
    try:
        signature.bind(
            *([] if is_bound else [object()]), *call.arguments, **dict.fromkeys(call.named)
        )
    except TypeError:
        names = ", ".join(_written(parameter) for parameter in signature.parameters.values())
        asked = call.written() if is_bound else call.written("self")
        return f"{shown} takes ({names}), the adapter calls it with {asked}"
    return None


def _written(parameter: inspect.Parameter) -> str:
    """A parameter without its annotation, which may be long."""
    is_rest = parameter.kind is parameter.VAR_POSITIONAL
    stars = "*" if is_rest else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    default = "" if parameter.default is parameter.empty else "=..."
    return f"{stars}{parameter.name}{default}"


def require_fit(cls: type, shape: str, calls: Iterable[Call]) -> None:
    """Raises TargetError where a call does not bind; the message names all that do not."""
    found = [what for call in calls if (what := misfit(cls, call)) is not None]
    if found:
        raise TargetError(
            f"{cls.__name__} is not driven, because {'; '.join(found)} ({shape}); write a native "
            "target (`poolproof new FILE`)"
        )


def tried(scenario: Callable[[], Any]) -> str | None:
    """What does not fit in a few legal calls on a fresh instance; None where they went through.

    What the target itself raises, or how else it ends, is left for the run to report.
    """

    def question() -> str | None:
        try:
            scenario()
        except TargetError as error:
            return str(error)
        except Exception as error:
            return adapters_fault(error)
        return None

    try:
        return apart(question)
    except NoAnswerError:
        return None
