"""Two targets as one: each call goes to both, and the first answers that differ are a finding.

Compares a subclass with its base, an optimised pool with the one it replaces, one version of an
engine with the next. The pair shows only what both have, and answers as the first does, so that
the harness drives it like any target. What differs is not judged: a profile may leave the choice
open (`poolproof diff` says whether it does).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from poolproof.contract.engine_target import ENGINE_METHODS, ENGINE_OBSERVERS, ENGINE_STATES
from poolproof.contract.level import Level
from poolproof.contract.manager_target import MANAGER_METHODS, MANAGER_OBSERVERS
from poolproof.contract.outside import shown
from poolproof.contract.profile import Profile
from poolproof.contract.target import (
    CHAIN_VERBS,
    INDEX_OBSERVERS,
    INDEX_VERBS,
    POOL_OBSERVERS,
    POOL_OPTIONAL_VERBS,
    POOL_REQUIRED,
    QUEUE_VERBS,
    TargetError,
    capabilities_of,
)
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.targets.target import Make, Target

__all__ = ["Paired", "paired_target"]

METHODS_AT = {
    Level.QUEUE: (*QUEUE_VERBS, "num_free", "free_order", "free_neighbours"),
    Level.INDEX: (*INDEX_VERBS, *INDEX_OBSERVERS),
    Level.POOL: (
        *POOL_REQUIRED, *POOL_OPTIONAL_VERBS, *CHAIN_VERBS, *POOL_OBSERVERS,
        "lookup", "touch", "acquire",
    ),
    Level.MANAGER: (*sorted(set(MANAGER_METHODS.values())), *MANAGER_OBSERVERS, "block_table"),
    Level.ENGINE: (*sorted(set(ENGINE_METHODS.values())), ENGINE_STATES, *ENGINE_OBSERVERS),
}  # fmt: skip

_REFUSALS = (MemoryError, ValueError)

_UNANSWERED = frozenset(
    {"step", "finish", "preempt", "abort", "accept", "loaded", "insert", "clear"}
)
"""Methods whose answers mean nothing; no pool and no queue has one of this name."""

_COPYING = frozenset({"append", "schedule", "draft", "fork", "truncate", "swap_out", "swap_in"})
"""Methods of a manager that answer block copies; no answer means none."""


class Paired:
    """Instances of two targets; its methods are those that both have, without `left_out`."""

    def __init__(
        self,
        level: Level,
        names: tuple[str, str],
        instances: tuple[Any, Any],
        left_out: tuple[str, ...] = (),
    ) -> None:
        self.instances = instances
        self._names = names
        first, second = instances
        if level is Level.INDEX:
            kinds = [capabilities_of(instance).key_kinds for instance in instances]
            self.key_kinds = tuple(kind for kind in kinds[0] if kind in kinds[1])
        for name in METHODS_AT[level]:
            if name in left_out:
                continue
            one, other = getattr(first, name, None), getattr(second, name, None)
            if callable(one) and callable(other):
                shown = _meant(level, name)
                setattr(self, name, self._both(name, one, other, shown))

    def _both(
        self,
        name: str,
        first: Callable[..., Any],
        second: Callable[..., Any],
        shown: Callable[[Any], Any],
    ) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            copies = [list(a) if isinstance(a, list) else a for a in arguments]
            beside = {k: list(v) if isinstance(v, list) else v for k, v in named.items()}
            one, other = _outcome(first, arguments, named), _outcome(second, copies, beside)
            if (one[0], shown(one[1])) != (other[0], shown(other[1])):
                raise ViolationError(self._difference(name, arguments, one, other))
            if one[2] is not None:
                raise one[2]
            return one[1]

        call.__name__ = name
        return call

    def _difference(
        self, name: str, arguments: tuple[Any, ...], one: Outcome, other: Outcome
    ) -> Violation:
        shown = ", ".join(_shown(argument) for argument in arguments)
        return Violation(
            "DIFF",
            Severity.ORDER,
            f"{name}({shown}): {self._names[0]} {_in_words(one)}, "
            f"{self._names[1]} {_in_words(other)}",
        )


Outcome = tuple[str, Any, BaseException | None]
"""How a call ended, with what answer, raising what."""


def paired_target(first: Target, second: Target) -> Target:
    """Both targets as one, driven under the profile of the first.

    Raises TargetError for targets of two levels, or without a length of hashes in common.
    """
    if first.level != second.level:
        raise TargetError(
            f"{first.name} is {first.level.with_article} and {second.name} "
            f"{second.level.with_article}; give two targets of one level"
        )
    names = (first.name, second.name)
    # Events are a matter of the profile; where it differs they say nothing.
    left_out = ("take_events",) if first.profile.events != second.profile.events else ()

    def pair(one: Make, other: Make) -> Make:
        return lambda n, caching: Paired(
            first.level, names, (one(n, caching), other(n, caching)), left_out
        )

    layouts = tuple(
        type(one)(one.name, one.profile, pair(one.make, other.make), one.block_size)
        for one in first.layouts
        for other in second.layouts
        if one.name == other.name and one.block_size == other.block_size
        if one.make is not None and other.make is not None
    )
    if first.layouts and not layouts:
        raise TargetError(f"{first.name} and {second.name} have no layout in common")
    chained = None
    if first.make_chained is not None and second.make_chained is not None:
        chained = pair(first.make_chained, second.make_chained)
    return Target(
        name=f"{first.name} | {second.name}",
        level=first.level,
        shape=first.shape,
        profile=_common_profile(first, second),
        version=first.version,
        source=first.source,
        make=pair(first.make, second.make),
        make_chained=chained,
        block_size=first.block_size,
        hash_block_size=first.hash_block_size,
        layouts=layouts,
        pair=names,
    )


def _common_profile(first: Target, second: Target) -> Profile:
    """The profile of the first, with hashes that both take. Raises TargetError without any."""
    one, other = first.profile.fixed_hash_bytes, second.profile.fixed_hash_bytes
    if one is None and other is not None:
        return replace(first.profile, hash_bytes=other)
    if other not in (None, one):
        raise TargetError(
            f"{first.name} takes hashes of {one} bytes and {second.name} of {other}: no hash can "
            "be given to both; set hash_bytes of one of them to that of the other"
        )
    return first.profile


def _outcome(method: Callable[..., Any], arguments: Any, named: dict[str, Any]) -> Outcome:
    """How a call ended; refusals of either type are alike."""
    try:
        answer = method(*arguments, **named)
    except ViolationError:
        raise
    except _REFUSALS as error:
        return "refused", None, error
    except (Exception, SystemExit) as error:
        return "raised", type(error).__name__, error
    return "answered", answer, None


def _comparable(answer: Any) -> Any:
    """Lists and tuples are alike."""
    if isinstance(answer, float):
        return round(answer, 9)  # the usage, a quotient that may be computed in two ways
    return list(answer) if isinstance(answer, tuple) else answer


def _meant(level: Level, name: str) -> Callable[[Any], Any]:
    """What an answer of a method means."""
    if name in _UNANSWERED:
        return lambda _: None
    return _copies if level.has_sequences and name in _COPYING else _comparable


def _copies(answer: Any) -> Any:
    """Pairs of blocks may be tuples or lists; "later" stays what it is."""
    if isinstance(answer, str):
        return answer
    pairs = [] if answer is None else answer
    return [tuple(pair) if isinstance(pair, list) else pair for pair in pairs]


def _in_words(outcome: Outcome) -> str:
    kind, answer, _ = outcome
    return "refused" if kind == "refused" else f"{kind} {_shown(answer)}"


def _shown(value: Any) -> str:
    return value.hex()[:8] if isinstance(value, bytes) else shown(value, 80)
