"""Makes text from targets, programs and files safe to write anywhere.

An object's `__repr__` may have 50 MB, raise, lie or never end; an exception's text may hold half a
character or terminal control codes. All such text passes through here once: it is shown without
asking the object, escaped, and cut.
"""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import WrapperDescriptorType
from typing import Any

__all__ = [
    "FILE_MODULE",
    "MOST_CHARACTERS",
    "class_name",
    "cut",
    "module_of_file",
    "printable",
    "said_by",
    "shown",
    "unknown_name",
]

FILE_MODULE = "poolproof_target_"
"""So begins the name under which the file of a target is imported."""

MOST_CHARACTERS = 2_000
"""What a sentence may have: a screen."""

_MOST_SHOWN = 200
_DEEPEST = 4
_MOST_BITS = 256
_BUILT_IN = (bool, int, str, bytes, float, list, tuple, dict)


def printable(text: str) -> str:
    """Control characters, halves of characters and marks of direction are shown, not obeyed."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def cut(text: str, most: int = MOST_CHARACTERS) -> str:
    """The text, printable, or its beginning and how long it is."""
    # A subclass may have methods of its own; a slice by str itself is a plain text.
    length = str.__len__(text)
    start = printable(str.__getitem__(text, slice(0, most)))
    return start if length <= most else f"{start} ... ({length:,} characters)"


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """That there is no such thing, the nearest names, and all of them."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"has no {what} {shown(name)}{hint or ';'} known are {', '.join(names)}"


def said_by(error: BaseException, most: int = MOST_CHARACTERS) -> str:
    """The text of an exception, safe and cut; it may be as broken as the target that raised it."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 -- the target's own code raised it
        # KeyboardInterrupt as well: it may be the target's own.
        return "(its message cannot be shown)"
    return cut(text, most)


def module_of_file(stem: str, digest: str) -> str:
    """The name of the module that a file becomes; the digest tells files of one name apart."""
    return f"{FILE_MODULE}{stem}_{digest}"


def _module_for_users(name: str) -> str:
    """A module as its user knows it: of a file of theirs its name, and not what we made of it."""
    return name.removeprefix(FILE_MODULE).rpartition("_")[0] if _is_of_file(name) else name


def _is_of_file(name: str) -> bool:
    return name.startswith(FILE_MODULE) and "_" in name.removeprefix(FILE_MODULE)


def class_name(value: object) -> str:
    """The name of an object's class, with its module unless it is a built-in one."""
    cls = type(value)
    # Past a metaclass that has a name of its own to tell.
    name = type.__dict__["__name__"].__get__(cls)
    module = type.__dict__["__module__"].__get__(cls)
    known = isinstance(module, str) and module != "builtins"
    return cut(f"{_module_for_users(module)}.{name}" if known else name, _MOST_SHOWN)


def shown(value: object, most: int = _MOST_SHOWN) -> str:
    """An answer in a sentence, in about `most` characters at most, whatever it is.

    Built-in values as Python writes them; of any other object its class, and its number if it is
    one, since its own `__repr__` is never called.
    """
    return cut(_shown(value, most, _DEEPEST), 2 * most)


def _shown(value: object, most: int, deeper: int) -> str:
    if value is None:
        return "None"
    cls = type(value)
    for kind in _BUILT_IN:
        if issubclass(cls, kind):
            # By the built-in type's own methods; a subclass is named.
            text = _written(kind, value, most, deeper)
            return text if cls is kind else f"{class_name(value)}({text})"
    # Past a metaclass, as above.
    if isinstance(type.__dict__["__dict__"].__get__(cls).get("__index__"), WrapperDescriptorType):
        # A number of a compiled module, such as numpy's, whose method is no Python code. An array
        # has the method as well, and no number.
        with suppress(TypeError, ValueError, OverflowError):
            return f"{class_name(value)}({operator.index(value)})"  # type: ignore[arg-type] # has it
    return f"an object of class {class_name(value)}"


def _written(kind: Any, value: Any, most: int, deeper: int) -> str:
    """A value of a built-in kind; of a subclass no method is called."""
    if kind is bool or kind is float:
        return str(kind.__repr__(value))
    if kind is int:
        bits = int.bit_length(value)
        # Python refuses to write out thousands of digits.
        return int.__repr__(value) if bits <= _MOST_BITS else f"an int of {bits:,} bits"
    length = kind.__len__(value)
    if kind is str or kind is bytes:
        start = kind.__repr__(kind.__getitem__(value, slice(0, most)))
        unit = "characters" if kind is str else "bytes"
        return start if length <= most else f"{start}... ({length:,} {unit})"
    left, right = ("[", "]") if kind is list else ("(", ")") if kind is tuple else ("{", "}")
    if not deeper and length:
        return f"{left}...{right}"
    items = _items_of_dict(value, most, deeper) if kind is dict else (
        _shown(item, most, deeper - 1)
        for item in kind.__iter__(value)
    )  # fmt: skip
    comma = "," * (kind is tuple and length == 1)
    return f"{left}{_joined(items, length, most)}{comma}{right}"


def _items_of_dict(value: dict[Any, Any], most: int, deeper: int) -> Iterator[str]:
    for key, item in dict.items(value):
        yield f"{_shown(key, most, deeper - 1)}: {_shown(item, most, deeper - 1)}"


def _joined(items: Iterable[str], length: int, most: int) -> str:
    """As many as fit, no more of them made, and how many there are if that is not all."""
    fit: list[str] = []
    for item in items:
        fit.append(item)
        most -= len(item) + 2
        if most < 0:
            break
    inside = ", ".join(fit)
    return inside if len(fit) == length else f"{inside}, ... {length:,} in all"
