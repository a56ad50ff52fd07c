"""ADM at manager level: an admission, and each growth, is answered exactly as the blocks allow.

Nothing fails after OK, nothing that fits is refused, "never" is said of what can never fit and of
nothing else. How many blocks a sequence needs is the model's knowledge and is passed in.
"""

from __future__ import annotations

from poolproof.contract.commands import Command
from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import number_of_blocks

__all__ = ["fits_and_was_refused", "no_answer", "passes_watermark", "waits_for_ever", "wrong_never"]


MANY_ROWS = 16
"""With so many sequences a refusal may be for want of a row."""


def fits_and_was_refused(
    command: Command, needed: int, num_free: int, num_rows: int = 0
) -> Violation:
    """What fits was put off, beside `num_rows` sequences."""
    sentence = f'{command} answered "later", although it needs at most {needed} of {num_free} free'
    hint = ""
    if num_rows >= MANY_ROWS:
        hint = f" ({num_rows} sequences hold blocks; one that has no more rows says max_sequences)"
    return Violation("ADM", Severity.FALSE_REFUSAL, f"{sentence} blocks{hint}")


def wrong_never(command: Command, needed: int, usable: int) -> Violation:
    """What can fit was turned away for ever."""
    return Violation(
        "ADM",
        Severity.FALSE_REFUSAL,
        f'{command} answered "never", although it needs {number_of_blocks(needed)} and the pool '
        f"has {usable}",
    )


def waits_for_ever(command: Command, needed: int, usable: int) -> Violation:
    """What can never fit was told to wait."""
    return Violation(
        "ADM",
        Severity.STALL,
        f'{command} answered "later", but it needs {number_of_blocks(needed)} and there will never '
        f"be more than {usable}: it waits for ever",
    )


def passes_watermark(command: Command, left: int, watermark: int) -> Violation:
    """An admission that had to wait was granted."""
    return Violation(
        "ADM",
        Severity.STALL,
        f"{command} was granted and leaves {number_of_blocks(left)} free, fewer than the watermark "
        f"of {watermark}",
    )


def no_answer(command: Command, answer: object, expected: str) -> Violation:
    """An answer that means nothing."""
    return Violation(
        "CRASH", Severity.CRASH, f"{command} answered {shown(answer)}; it must answer {expected}"
    )
