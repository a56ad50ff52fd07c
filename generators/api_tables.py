"""The reference of the public functions and types, made of their signatures and docstrings."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Iterable
from typing import Any

import poolproof
from poolproof import Severity

__all__ = ["public_errors", "public_functions", "public_types"]


def public_functions() -> str:
    """Each function: how it is called, and what it says of itself."""
    return _page(
        f"### `poolproof.{name}`\n\n```python\n{_signature(name, value)}\n```\n\n{_text_of(value)}"
        for name, value in _public()
        if inspect.isfunction(value)
    )


def public_types() -> str:
    """Each type that is no error: what it is, its values or fields, its methods."""
    return _page(
        f"### `poolproof.{name}`\n\n{_text_of(value)}{_members(value)}"
        for name, value in _public()
        if inspect.isclass(value) and not issubclass(value, Exception)
    )


def public_errors() -> str:
    """The exceptions, with what each is raised for."""
    lines = ["| error | is a | what it says |", "|---|---|---|"]
    for name, value in _public():
        if inspect.isclass(value) and issubclass(value, Exception):
            bases = ", ".join(f"`{base.__name__}`" for base in value.__bases__)
            lines.append(f"| `{name}` | {bases} | {_first_sentence(value)} |")
    return _page(["\n".join(lines)])


def _page(sections: Iterable[str]) -> str:
    return "\n\n".join(sections) + "\n"


def _public() -> list[tuple[str, Any]]:
    return [(name, getattr(poolproof, name)) for name in poolproof.__all__]


def _signature(name: str, function: Any) -> str:
    """One argument a line where it would be too long for one."""
    signature = inspect.signature(function)
    parameters = [_parameter(parameter) for parameter in signature.parameters.values()]
    first = next(
        (
            place
            for place, parameter in enumerate(signature.parameters.values())
            if parameter.kind is parameter.KEYWORD_ONLY
        ),
        None,
    )
    if first is not None:
        parameters.insert(first, "*")
    answer = signature.return_annotation
    whole = f"def {name}({', '.join(parameters)}) -> {answer}: ..."
    if len(whole) <= 90:
        return whole
    return "\n".join(
        [f"def {name}(", *(f"    {one}," for one in parameters), f") -> {answer}: ..."]
    )


def _parameter(parameter: inspect.Parameter) -> str:
    named = f"{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return named
    default = parameter.default
    if isinstance(default, str):
        return f'{named} = "{default}"'
    return f"{named} = {'tuple(Severity)' if default == tuple(Severity) else default}"


def _text_of(value: Any) -> str:
    """The docstring, with its arguments or fields as a list."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(_listed(paragraph.removeprefix("Args:\n")) for paragraph in paragraphs)


def _listed(paragraph: str) -> str:
    """`name: what it is`, one after another, as a list; any other paragraph as it is."""
    items = re.split(r"\n(?=\S)", textwrap.dedent(paragraph))
    if not all(re.match(r"\w+: ", item) for item in items):
        return paragraph
    return "\n".join(re.sub(r"^(\w+): ", r"- `\1`: ", " ".join(item.split())) for item in items)


def _members(cls: type) -> str:
    if issubclass(cls, enum.Enum):
        return "\n\n" + ", ".join(f"`{member.name}`" for member in cls)
    lines = []
    if dataclasses.is_dataclass(cls):
        named = ", ".join(f"`{f.name}`" for f in dataclasses.fields(cls) if f.repr)
        lines.append(f"Fields: {named}.")
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        target = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if isinstance(member, property):
            lines.append(f"- `{name}`: {_first_sentence(member.fget)}")
        elif inspect.isfunction(target):
            lines.append(_method(name, target))
    return "\n\n" + "\n".join(_spaced(lines)) if lines else ""


def _spaced(lines: list[str]) -> list[str]:
    """A blank line between the fields and the list."""
    if len(lines) > 1 and lines[0].startswith("Fields"):
        return [lines[0], "", *lines[1:]]
    return lines


def _method(name: str, function: Any) -> str:
    names = [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]
    said = _first_sentence(function)
    return f"- `{name}({', '.join(names)})`{f': {said}' if said else ''}"


def _first_sentence(value: Any) -> str:
    """The first paragraph in one line, as a cell of a table takes it."""
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    return text.replace("|", "\\|")
