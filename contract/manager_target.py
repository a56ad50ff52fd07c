"""The protocol that a target speaks at the manager level: sequences of tokens over blocks.

A native manager is any class with these methods; nothing has to be imported. It is built as
`Manager(num_blocks, block_size, *, enable_caching=True)`. docs/managers.md says what each verb
means under which profile.
"""

from __future__ import annotations

from typing import Any, Protocol

from poolproof.contract.level import Level
from poolproof.contract.target import Capabilities, TargetError

__all__ = ["MANAGER_METHODS", "MANAGER_OBSERVERS", "ManagerTarget", "manager_capabilities_of"]

Copies = list[tuple[int, int]]

MANAGER_METHODS = {
    "admit": "admit",
    "append_tokens": "append",
    "step": "step",
    "finish": "finish",
    "schedule": "schedule",
    "draft": "draft",
    "accept": "accept",
    "fork": "fork",
    "truncate": "truncate",
    "preempt": "preempt",
    "resume": "admit",
    "swap_out": "swap_out",
    "swap_in": "swap_in",
    "abort": "abort",
    "lookup_prefix": "lookup_prefix",
    "load": "load",
    "loaded": "loaded",
    "reset": "reset",
}
"""The method of a target behind each verb."""

_REQUIRED = ("admit", "append", "step", "finish", "block_table")
_TOGETHER = (("swap_out", "swap_in"), ("draft", "accept"), ("load", "loaded"))

MANAGER_OBSERVERS = (
    "num_free",
    "free_order",
    "free_neighbours",
    "ref_count",
    "is_cached",
    "num_free_host",
    "take_table_update",
    "take_events",
)


class ManagerTarget(Protocol):
    """A native manager.

    `admit` answers the number of cached tokens, "later" (it does not fit now) or "never" (it never
    will). Every other verb that may need blocks answers "later" where they are missing, and has
    then changed nothing; otherwise a list of `(source, destination)` block copies (None: no copy).
    Copies of one answer happen at once, so that all sources are read before anything is written.

    Where its profile says `sampled=with-step`, `step` is also given `sampled`, pairs of a sequence
    and the token that follows it, and `accept` that token.

    A manager with a method `use_hash(digest)` takes its hashes, from the first call on, from that
    function from bytes to bytes: collisions can then be made to happen.
    """

    profile: dict[str, Any]

    def admit(self, seq_id: int, tokens: list[int], *, extra_keys: Any = None) -> int | str: ...
    def append(self, seq_id: int, tokens: list[int], /) -> Copies | str | None: ...
    def step(self, batch: list[tuple[int, int]], /) -> None: ...
    def finish(self, seq_id: int, /) -> None: ...
    def block_table(self, seq_id: int, group: int = 0) -> list[int]: ...


def manager_capabilities_of(instance: object) -> Capabilities:
    """What a manager can do. Raises TargetError when a required method is missing."""

    def has(name: str) -> bool:
        return callable(getattr(instance, name, None))

    name = type(instance).__name__
    missing = [method for method in _REQUIRED if not has(method)]
    for pair in _TOGETHER:
        if any(map(has, pair)):
            missing += [method for method in pair if not has(method)]
    if missing:
        raise TargetError(
            f"{name} lacks {', '.join(f'{method}()' for method in missing)}, which a manager "
            "target needs; run `poolproof new --manager FILE` for a skeleton with every method"
        )
    verbs = {verb for verb, method in MANAGER_METHODS.items() if has(method)}
    if not has("preempt"):
        verbs.discard("resume")
    return Capabilities(
        Level.MANAGER, frozenset(verbs), frozenset(o for o in MANAGER_OBSERVERS if has(o))
    )
