"""Reads carefully what a target shows of itself: an invalid answer becomes a violation.

The fast checks trust the types of what they read. If one of them trips over an answer (None for a
count, something other than a list) or over compiled code that raises, the target is read again
through here, so that the finding names the method and what it answered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from operator import index
from typing import Any

from poolproof.contract.observation import Neighbours
from poolproof.contract.violation import ViolationError
from poolproof.harness.target_call import crash
from poolproof.invariants.legal_calls import meaningless_answer

__all__ = [
    "read",
    "read_block_or_none",
    "read_blocks",
    "read_count",
    "read_list",
    "read_neighbours",
]


def read(method: Callable[..., Any], *arguments: Any) -> Any:
    """The method's answer, whatever it is. Raises ViolationError if it raises."""
    try:
        return method(*arguments)
    except (Exception, SystemExit) as error:
        raise ViolationError(crash(_shown(method, arguments), error)) from error


def read_count(method: Callable[..., Any], *arguments: Any) -> int:
    """An integer. Raises ViolationError for anything else."""
    answer = read(method, *arguments)
    try:
        return index(answer)
    except TypeError as error:
        raise _no_answer(method, arguments, answer, "an integer") from error


def read_block_or_none(method: Callable[..., Any], *arguments: Any) -> int | None:
    """An integer or None. Raises ViolationError for anything else."""
    answer = read(method, *arguments)
    try:
        return None if answer is None else index(answer)
    except TypeError as error:
        raise _no_answer(method, arguments, answer, "a block id or None") from error


def read_blocks(method: Callable[[], Any]) -> list[int]:
    """A list of block ids, of which we keep a copy. Raises ViolationError for anything else."""
    return read_list(method, "a list of block ids")


def read_list(method: Callable[[], Any], wanted: str) -> list[int]:
    """A list of integers, of which we keep a copy. Raises ViolationError for anything else.

    `wanted` names what should have been answered.
    """
    answer = read(method)
    try:
        return [index(number) for number in answer]
    except TypeError as error:
        raise _no_answer(method, (), answer, wanted) from error
    except (Exception, SystemExit) as error:
        raise ViolationError(crash(_shown(method, ()), error)) from error


def read_neighbours(method: Callable[[int], Any], block: int) -> Neighbours:
    """None or a tuple of two, each an integer or None. Raises ViolationError for anything else."""
    answer = read(method, block)
    if answer is None:
        return None
    if isinstance(answer, tuple) and len(answer) == 2:
        with suppress(TypeError):
            # A subclass of int may print as anything; what is kept is a plain number.
            before, after = (None if side is None else index(side) for side in answer)
            return before, after
    raise _no_answer(method, (block,), answer, "None or a tuple of two neighbours")


def _shown(method: Callable[..., Any], arguments: tuple[Any, ...]) -> str:
    name = _name_of(method)
    shown = (a.hex()[:8] if isinstance(a, bytes) else str(a) for a in arguments)
    return name if name.endswith(")") else f"{name}({', '.join(shown)})"


def _name_of(method: Callable[..., Any]) -> str:
    """What the target calls a method of its own, whatever function a decorator put there."""
    function = getattr(method, "__func__", None)
    for cls in type(getattr(method, "__self__", None)).__mro__:
        for name, value in vars(cls).items():
            if function is not None and value is function:
                return name
    return str(getattr(method, "__name__", "the method"))


def _no_answer(
    method: Callable[..., Any], arguments: tuple[Any, ...], answer: Any, expected: str
) -> ViolationError:
    return ViolationError(meaningless_answer(_shown(method, arguments), answer, expected))
