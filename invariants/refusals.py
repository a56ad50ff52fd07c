"""ATOM: a refused operation leaves the state as it was, the order of the queue included.

The check after a refusal compares the target with the unchanged ledger; whatever differs then
was changed by the refused call, so the finding is named ATOM and quotes what differs.

A reset of the prefix cache is refused, by answering False, while anybody holds a block. One that is
granted then has done what it had to refuse (ATOM). One that is refused for no reason (IDX) leaves
every entry in the index: after new weights were loaded, requests go on reading the KV of the old
ones. An answer that is no truth value means nothing (CRASH).
"""

from __future__ import annotations

from dataclasses import replace

from poolproof.contract.commands import Command
from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation

__all__ = ["reset_iff_nobody_holds", "unchanged_by_refusal"]


def unchanged_by_refusal(command: Command, difference: Violation | None) -> Violation | None:
    """A violation of ATOM in what differs after a command was refused, or None."""
    return difference and replace(
        difference,
        invariant="ATOM",
        sentence=f"{command} was refused and yet changed the state: {difference.sentence}",
    )


def reset_iff_nobody_holds(answer: object, *, nobody_holds: bool) -> Violation | None:
    """A violation in the answer of a reset, or None."""
    if answer is nobody_holds:
        return None
    if not isinstance(answer, bool):
        why = "nobody holds a block" if nobody_holds else "blocks are still held"
        return Violation(
            "CRASH",
            Severity.CRASH,
            f"reset() answered {shown(answer)}; it must answer {nobody_holds}, since {why}",
        )
    if nobody_holds:
        return Violation(
            "IDX",
            Severity.FALSE_REFUSAL,
            "reset() was refused (it answered False), although nobody holds a block: the index "
            "cannot be emptied",
        )
    return Violation(
        "ATOM",
        Severity.WRONG_DATA_OF_ANOTHER,
        "reset() answered True, although blocks are still held: it must be refused until they are "
        "given back",
    )
