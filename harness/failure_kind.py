"""What kind of failure a violation is; accepted findings are compared by it.

Two failures are of one kind if the same invariant breaks, equally badly, after the same operation,
and, if that was misuse, by the same misuse with the same outcome. Collecting, minimising and
replacing traces by shorter ones must not change the kind: otherwise one accepted bug would hide
another that is worse.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from poolproof.contract.commands import Command
from poolproof.contract.misuse import MisuseFailure
from poolproof.contract.trace_harm import TraceHarm
from poolproof.contract.violation import Severity, Violation

__all__ = ["CONSTRUCTION", "EVERY_KIND", "EveryKind", "FailureKind", "failure_kind", "harm_feared"]

CONSTRUCTION = "construction"
"""The operation of what breaks before any command."""


@dataclass(frozen=True, slots=True)
class FailureKind:
    """The kind of a failure; `operation` is that of the command that showed it."""

    invariant: str
    severity: Severity
    operation: str
    misuse: MisuseFailure | None = None

    def __str__(self) -> str:
        words = f"{self.invariant} {self.severity.value} {self.operation}"
        return words if self.misuse is None else f"{words} ({self.misuse})"

    @property
    def promise(self) -> str:
        """The promise that is broken, such as "IDX" or "MISUSE free", however badly."""
        is_misuse = self.invariant == "MISUSE" and self.operation != CONSTRUCTION
        return f"MISUSE {self.operation}" if is_misuse else self.invariant


class EveryKind(Container[FailureKind]):
    """Every kind of failure."""

    def __contains__(self, kind: object) -> bool:
        return isinstance(kind, FailureKind)


EVERY_KIND = EveryKind()


def failure_kind(violation: Violation, commands: Sequence[Command]) -> FailureKind:
    """The kind of a failure after `commands`."""
    operation = commands[-1].operation if commands else CONSTRUCTION
    return FailureKind(violation.invariant, violation.severity, operation, violation.misuse)


def harm_feared(violation: Violation, commands: Sequence[Command]) -> TraceHarm:
    """The harm of a failure after `commands` where nobody looked for what it leads to."""
    kind = failure_kind(violation, commands)
    return TraceHarm(
        severity=kind.severity,
        invariant=kind.invariant,
        operation=kind.operation,
        was_tried=False,
    )
