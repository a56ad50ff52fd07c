"""OUT: each user is given what was sampled for the request, in order, once, and nothing more."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from poolproof.contract.violation import Severity, Violation
from poolproof.invariants.wording import sequence_name

__all__ = ["Due", "outputs_are_due"]

Output = tuple[int, tuple[int, ...], bool]
"""A request, the tokens that its user is given, and whether it ends with them."""

Due = tuple[tuple[int, ...], bool, bool]
"""What a user is to be given, whether the request ends with it, and whether it may be dropped."""


def outputs_are_due(
    outputs: Sequence[Output],
    due: Mapping[int, Due],
    late: Mapping[int, tuple[int, ...]],
    may_end: Collection[int] = (),
) -> Violation | None:
    """A violation of OUT in what users are given after a step, or None.

    `due` has the requests for which the step has sampled and whose users still wait. `late` has
    what it has sampled for those that were cancelled meanwhile, where that may still come. Those in
    `may_end` may end without a token.
    """
    given: set[int] = set()
    for number, tokens, ends in outputs:
        if number in given:
            return _wrong(f"request {sequence_name(number)} is given tokens twice in one step")
        given.add(number)
        if ends and not tokens and number in may_end:
            continue
        if number not in due:
            if (tokens or ends) and not (tokens and tokens == late.get(number)):
                return _wrong(
                    f"request {sequence_name(number)} is given {_listed(tokens)}"
                    f"{' and ends' if ends else ''}; nothing was sampled for it that anybody waits "
                    "for"
                )
            continue
        wanted, must_end, may_drop = due[number]
        if tokens == wanted and ends == must_end:
            continue
        if may_drop and not tokens and not ends:
            continue
        return _wrong(
            f"request {sequence_name(number)} is given {_listed(tokens)} and "
            f"{'ends' if ends else 'goes on'}; it was to be given {_listed(wanted)} and "
            f"{_must(must_end)}"
        )
    for number, (wanted, must_end, may_drop) in due.items():
        if wanted and not may_drop and number not in given:
            return _wrong(
                f"request {sequence_name(number)} is given nothing; it was to be given "
                f"{_listed(wanted)} and {_must(must_end)}"
            )
    return None


def _listed(tokens: Sequence[int]) -> str:
    return f"<{' '.join(map(str, tokens))}>" if tokens else "no token"


def _must(end: bool) -> str:
    return "to end" if end else "to go on"


def _wrong(sentence: str) -> Violation:
    return Violation("OUT", Severity.WRONG_DATA_OF_ONES_OWN, sentence)
