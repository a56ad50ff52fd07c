"""The harm that a failing run was shown to do, as the first line of its trace file says it.

Whoever has the file can say how bad the failure is without running the target again. An invariant
such as IDX only fears wrong data; whether anybody reads it is tried out, which takes a target and
some time, and is kept here. Campaigns keep the same in their folders, with the read itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from poolproof.contract.violation import Severity

__all__ = ["TraceHarm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHarm:
    """What a failing run leads to, as far as was tried.

    `severity` is what was shown, and `sentence` what was read; `sentence` is empty if no wrong read
    was seen in `num_continuations` with `num_commands` behind the trace. `invariant` is what that
    read breaks, else what the trace itself breaks; `operation` is the first bad operation, the one
    that shows this. `read` is the trace up to the wrong read, as text, where it is kept. `remark`
    says what ended the search early. Where `was_tried` is false nobody looked for a read, and
    `severity` is what is feared.
    """

    severity: Severity
    invariant: str = ""
    operation: str = ""
    sentence: str = ""
    read: str = ""
    num_continuations: int = 0
    num_commands: int = 0
    remark: str = ""
    was_tried: bool = True

    def to_json(self) -> dict[str, Any]:
        """This harm as plain JSON values; what is empty is left out."""
        values = {name: getattr(self, name) for name in (*_TEXTS, *_NUMBERS)}
        given = {name: value for name, value in values.items() if value}
        return {"severity": self.severity.value, **given, "was_tried": self.was_tried}

    @classmethod
    def from_json(cls, value: object) -> TraceHarm:
        """What `to_json` wrote; older campaigns know fewer fields. Raises ValueError."""
        if not isinstance(value, Mapping):
            raise ValueError("it is no object")
        try:
            severity = Severity(value["severity"])
        except KeyError as error:
            raise ValueError("it lacks its severity") from error
        texts = {name: value.get(name, "") for name in _TEXTS}
        numbers = {name: value.get(name, 0) for name in _NUMBERS}
        was_tried = value.get("was_tried", True)
        for name, text in texts.items():
            if not isinstance(text, str):
                raise ValueError(f"its {name} is no text")
        for name, number in numbers.items():
            if type(number) is not int or number < 0:
                raise ValueError(f"its {name} is no count")
        if not isinstance(was_tried, bool):
            raise ValueError("its was_tried is neither true nor false")
        return cls(severity=severity, was_tried=was_tried, **texts, **numbers)


_TEXTS = ("invariant", "operation", "sentence", "read", "remark")
_NUMBERS = ("num_continuations", "num_commands")
