"""Reads the fields of a JSON or TOML object, each with its type, and names the one that is wrong.

Used for files that come from outside: certificates and lists of known findings. Trace files have
a reader of their own in the contract.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, TypeVar

from poolproof.contract.outside import shown

__all__ = ["FieldError", "Fields"]

Choice = TypeVar("Choice", bound=enum.Enum)


class FieldError(ValueError):
    """A field that is missing or of the wrong type; the message names object and field."""


class Fields:
    """The fields of one object; `what` names the object in messages. Raises FieldError."""

    def __init__(self, value: Any, what: str) -> None:
        if not isinstance(value, Mapping):
            raise FieldError(f"{what} is not an object but {shown(value, 60)}")
        self._value = value
        self._what = what

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self._value.get(name) is not None

    def text(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, str):
            raise self._wrong(name, "text", value)
        return value

    def optional_text(self, name: str) -> str | None:
        return self.text(name) if self.has(name) else None

    def integer(self, name: str) -> int:
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, "a whole number", value)
        return value

    def number(self, name: str) -> float:
        value = self._get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._wrong(name, "a number", value)
        return float(value)

    def items(self, name: str) -> list[Any]:
        value = self._get(name)
        if not isinstance(value, list):
            raise self._wrong(name, "a list", value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name)
        for value in values:
            if not isinstance(value, str):
                raise self._wrong(name, "a list of texts", values)
        return tuple(values)

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self._get(name)
        if not isinstance(value, Mapping):
            raise self._wrong(name, "an object", value)
        return value

    def optional_mapping(self, name: str) -> Mapping[str, Any]:
        return self.mapping(name) if self.has(name) else {}

    def one_of(self, name: str, choices: type[Choice]) -> Choice:
        value = self._get(name)
        for choice in choices:
            if choice.value == value:
                return choice
        allowed = ", ".join(str(choice.value) for choice in choices)
        raise self._wrong(name, f"one of {allowed}", value)

    def _get(self, name: str) -> Any:
        if name not in self._value:
            raise FieldError(f"{self._what} lacks the field {shown(name)}")
        return self._value[name]

    def _wrong(self, name: str, wanted: str, value: Any) -> FieldError:
        where = f"{self._what} field {shown(name)}"
        return FieldError(f"{where} must be {wanted}, not {shown(value, 60)}")
