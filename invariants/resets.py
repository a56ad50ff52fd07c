"""What a reset of the prefix cache must answer: True while nobody holds a block, False otherwise.

A reset that is refused for no reason (IDX) leaves every entry in the index: after new weights were
loaded, requests go on reading the KV of the old ones. One that is granted while blocks are held has
done what it had to refuse (ATOM).
"""

from __future__ import annotations

from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation

__all__ = ["wrong_reset"]


def wrong_reset(answer: object, *, nobody_holds: bool) -> Violation | None:
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
