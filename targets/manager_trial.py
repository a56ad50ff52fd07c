"""A few legal calls on a fresh manager, which show whether an adapter fits what is behind it.

What a declaration cannot tell (`adapter_uses.py`) shows here: attributes that only instances have,
answers of another kind, what the engine asks of the objects that it is handed. The calls are made
in a process of their own. What the engine itself raises is left for the run to report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from poolproof.contract.outside import shown
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import tried
from poolproof.targets.target import Make, TargetLayout

__all__ = ["require_a_few_calls"]

_NUM_BLOCKS = 16
_OBSERVERS = ("free_order", "lookup_prefix", "num_free", "ref_count", "is_cached")


def require_a_few_calls(name: str, layouts: Iterable[TargetLayout], adapter: str) -> None:
    """Raises TargetError where the adapter does not fit; `adapter` says what it is made for."""
    found: dict[str, list[str]] = {}
    for layout in layouts:
        make, size = layout.make, layout.block_size
        if make is not None:
            groups = len(getattr(layout.profile, "groups", ())) or 1
            what = tried(partial(_with_and_without_cache, make, size, groups))
            if what is not None:
                found.setdefault(what, []).append(layout.name)
    if found:
        raise TargetError(
            f"{name} is not driven, because {'; '.join(found)}; the adapter was written for "
            f"{adapter}"
        )


def _with_and_without_cache(make: Make, block_size: int, num_groups: int) -> None:
    for enable_caching in (True, False):
        _a_few_calls(make(_NUM_BLOCKS, enable_caching), block_size, num_groups)


def _a_few_calls(manager: Any, block_size: int, num_groups: int) -> None:
    """One prompt twice, which grows by a token; the one is preempted, the other finished."""
    prompt = list(range(1, 2 * block_size + 2))
    for seq_id in range(2):
        answer = manager.admit(seq_id, list(prompt))
        if isinstance(answer, str):
            return  # It says that there is no room, which the run will judge.
        cached = answer[0] if isinstance(answer, tuple) else answer
        if not _is_number(cached):
            raise _WrongAnswerError("admit", answer, "a number of tokens")
        manager.step([(seq_id, len(prompt) - cached)])
        if manager.append(seq_id, [7]) != "later":
            manager.step([(seq_id, 1)])
        for group in range(num_groups):
            table = manager.block_table(seq_id, group)
            if not isinstance(table, list | tuple) or not all(map(_is_number, table)):
                raise _WrongAnswerError("block_table", table, "a list of numbers")
            _look_at(manager, table, prompt)
    if hasattr(manager, "preempt"):
        manager.preempt(0)
    else:
        manager.abort(0)
    manager.finish(1)
    _in_chunks(manager, prompt)


def _in_chunks(manager: Any, prompt: list[int]) -> None:
    """Another prompt, in two parts where the adapter has them; a fork of it where it has forks."""
    other = [token + len(prompt) for token in prompt]
    if not hasattr(manager, "schedule"):
        return
    first = len(prompt) // 2
    if isinstance(manager.admit(2, other, num_tokens=first), str):
        return
    manager.step([(2, first)])
    if manager.schedule(2, len(other) - first) != "later":
        manager.step([(2, len(other) - first)])
    if getattr(manager, "fork", None) and manager.fork(2, 3) != "later":
        manager.finish(3)
    manager.abort(2)
    if hasattr(manager, "reset"):
        manager.reset()


def _look_at(manager: Any, table: Sequence[int], prompt: list[int]) -> None:
    for observer in _OBSERVERS:
        look = getattr(manager, observer, None)
        if look is None:
            continue
        if observer == "lookup_prefix":
            answer = look(list(prompt))
        elif observer in ("ref_count", "is_cached"):
            answer = look(max(table, default=0))
        else:
            answer = look()
        if observer == "num_free" and not _is_number(answer):
            raise _WrongAnswerError(observer, answer, "a number of blocks")


def _is_number(answer: object) -> bool:
    """Also of a compiled module, such as numpy's."""
    return hasattr(type(answer), "__index__")


class _WrongAnswerError(TargetError):
    """What the adapter makes of the engine's answer is nothing that the contract knows."""

    def __init__(self, method: str, answer: object, wanted: str) -> None:
        super().__init__(f"`{method}` of the adapter answers {shown(answer)} instead of {wanted}")
