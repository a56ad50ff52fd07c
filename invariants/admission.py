"""ADM: nothing fails after OK, nothing that fits is refused.

A pool grants an allocation if and only if that many blocks are free. A manager answers an
admission, and each growth, exactly as the blocks allow: "later" if it does not fit now, "never" if
it can never fit, and what was granted has the slots that it needs. The model knows how many blocks
a sequence needs, and passes that in.
"""

from __future__ import annotations

from poolproof.contract.commands import Command
from poolproof.contract.outside import shown
from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import number_of_blocks, sequence_name

__all__ = [
    "allocates_only_what_fits",
    "answers_so_many_blocks",
    "covers_its_tokens",
    "holds_no_more_than_needed",
    "keeps_watermark",
    "leaves_a_token_to_compute",
    "never_only_if_too_large",
    "put_off_only_if_full",
    "refuses_only_what_does_not_fit",
    "unusable_answer",
    "waits_only_if_it_can_fit",
]

MANY_ROWS = 16
"""With so many sequences a refusal may be for want of a row."""


def refuses_only_what_does_not_fit(count: int, num_free: int, reason: str) -> Violation | None:
    """A violation of ADM in the refusal of an allocation, or None."""
    if count > num_free:
        return None
    return Violation(
        "ADM",
        Severity.FALSE_REFUSAL,
        f"allocate({count}) was refused ({reason}), although "
        f"{number_of_blocks(num_free, 'are')} free",
    )


def allocates_only_what_fits(count: int, num_free: int, answer: object) -> Violation | None:
    """A violation of ADM in an allocation that was answered, or None."""
    if count <= num_free:
        return None
    return Violation(
        "ADM",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"allocate({count}) must be refused, since only {number_of_blocks(num_free, 'are')} free, "
        f"but it answered {shown(answer)}",
    )


def answers_so_many_blocks(count: int, answer: object) -> Violation | None:
    """A violation of ADM in the form of an allocation's answer, or None."""
    if isinstance(answer, list | tuple) and len(answer) == count:
        return None
    return unusable_answer(f"allocate({count})", answer, f"a list of {count} blocks")


def unusable_answer(call: str, answer: object, expected: str) -> Violation:
    """The violation that a call did not answer in the form `expected`."""
    return Violation(
        "ADM",
        Severity.CRASH,
        f"{call} must answer {expected}, but answered {shown(answer)}",
    )


def put_off_only_if_full(
    command: Command, needed: int, num_free: int, *, reserve: int = 0, num_rows: int = 0
) -> Violation | None:
    """A violation of ADM in the answer "later", or None.

    `needed` blocks are the most that the command takes; it may leave `reserve` of the free ones.
    `num_rows` sequences hold blocks beside it.
    """
    if needed + reserve > num_free:
        return None
    sentence = f'{command} answered "later", although it needs at most {needed} of {num_free} free'
    hint = ""
    if num_rows >= MANY_ROWS:
        hint = f" ({num_rows} sequences hold blocks; one that has no more rows says max_sequences)"
    return Violation("ADM", Severity.FALSE_REFUSAL, f"{sentence} blocks{hint}")


def never_only_if_too_large(command: Command, needed: int, usable: int) -> Violation | None:
    """A violation of ADM in the answer "never" to what needs `needed` of `usable` blocks."""
    if needed > usable:
        return None
    return Violation(
        "ADM",
        Severity.FALSE_REFUSAL,
        f'{command} answered "never", although it needs {number_of_blocks(needed)} and the pool '
        f"has {usable}",
    )


def waits_only_if_it_can_fit(command: Command, needed: int, usable: int) -> Violation | None:
    """A violation of ADM in the answer "later" to what needs `needed` of `usable` blocks."""
    if needed <= usable:
        return None
    return Violation(
        "ADM",
        Severity.STALL,
        f'{command} answered "later", but it needs {number_of_blocks(needed)} and there will never '
        f"be more than {usable}: it waits for ever",
    )


def keeps_watermark(command: Command, left: int, watermark: int) -> Violation | None:
    """A violation of ADM in an admission that leaves `left` blocks free, or None."""
    if left >= watermark:
        return None
    return Violation(
        "ADM",
        Severity.STALL,
        f"{command} was granted and leaves {number_of_blocks(left)} free, fewer than the watermark "
        f"of {watermark}",
    )


def leaves_a_token_to_compute(command: Command, cached: int, most: int) -> Violation | None:
    """A violation of ADM in a number of cached tokens, of which `most` may be, or None."""
    if cached <= most:
        return None
    return Violation(
        "ADM",
        Severity.STALL,
        f"{command} reports all {cached} tokens as cached: nothing is left to compute, "
        "and the first new token has no logits to come from",
    )


def covers_its_tokens(command: Command, seq_id: int, entries: int, needed: int) -> Violation | None:
    """A violation of ADM in a table that is too short for its tokens, or None."""
    if entries >= needed:
        return None
    return Violation(
        "ADM",
        Severity.WRONG_DATA_OF_ANOTHER,
        f"after {command} the table of {sequence_name(seq_id)} has {number_of_blocks(entries)}, "
        f"but its tokens need {needed}: the kernel writes beyond it",
    )


def holds_no_more_than_needed(
    command: Command, seq_id: int, entries: int, needed: int
) -> Violation | None:
    """A violation of ADM in a table that is too long for its tokens, or None."""
    if entries <= needed:
        return None
    return Violation(
        "ADM",
        Severity.LEAK,
        f"after {command} the table of {sequence_name(seq_id)} has {number_of_blocks(entries)}, "
        f"but its tokens need {needed}",
    )
