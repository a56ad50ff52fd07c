"""ATOM: a refused operation leaves the state as it was, the order of the queue included.

The check after a refusal compares the target with the unchanged ledger; whatever differs then
was changed by the refused call, so the finding is named ATOM and quotes what differs.
"""

from __future__ import annotations

from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.violation import Violation

__all__ = ["changed_by_refusal"]


def changed_by_refusal(command: Command, difference: Violation) -> Violation:
    """The finding that a refused command changed the state."""
    return replace(
        difference,
        invariant="ATOM",
        sentence=f"{command} was refused and yet changed the state: {difference.sentence}",
    )
