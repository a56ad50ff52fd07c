"""The protocol that a target speaks at the engine level: requests in, steps and tokens out.

A native engine is any class with these methods; nothing has to be imported. It is built as
`Engine(num_blocks, block_size, *, enable_caching=True)`. docs/engines.md says what each method
means.
"""

from __future__ import annotations

from typing import Any, Protocol

from poolproof.contract.level import Level
from poolproof.contract.target import Capabilities, TargetError

__all__ = [
    "ENGINE_METHODS",
    "ENGINE_OBSERVERS",
    "ENGINE_REQUIRED",
    "ENGINE_STATES",
    "EngineTarget",
    "engine_capabilities_of",
]

ENGINE_METHODS = {
    "submit": "submit",
    "cancel": "cancel",
    "plan": "plan",
    "answer": "answer",
    "run": "plan",
    "arrive": "arrived",
    "repeat": "arrived",
    "reset": "reset",
}
"""The method of a target behind each verb."""

ENGINE_REQUIRED = ("submit", "plan", "answer")
ENGINE_OBSERVERS = ("num_free", "unfinished")
ENGINE_STATES = "states"
"""The method, which an engine need not have, that says what a step does with recurrent states."""


class EngineTarget(Protocol):
    """A native engine: everything of a server but the forward pass and the network.

    `plan` answers a mapping, `answer` takes the tokens that each request of the oldest step got,
    and the drafts for its next one, and answers what goes to users: `(request_id, tokens, ended)`.
    `unfinished` are the requests that the engine has not done with. `states(accepted)` is optional:
    what the oldest step does with recurrent states, by request, given how many tokens it has got
    for each. With `poolproof_state`, which is optional too, states of the engine are told apart
    where they are visited one by one (docs/exploration.md).
    """

    profile: dict[str, Any]

    def submit(
        self,
        request_id: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None: ...
    def plan(self) -> dict[str, Any]: ...
    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]], /
    ) -> list[tuple[int, list[int], bool]]: ...


def engine_capabilities_of(instance: object) -> Capabilities:
    """What an engine can do. Raises TargetError when a required method is missing."""

    def has(name: str) -> bool:
        return callable(getattr(instance, name, None))

    missing = [method for method in ENGINE_REQUIRED if not has(method)]
    if missing:
        raise TargetError(
            f"{type(instance).__name__} lacks {', '.join(f'{m}()' for m in missing)}, which an "
            "engine target needs; run `poolproof new --engine FILE` for a skeleton with every "
            "method"
        )
    return Capabilities(
        Level.ENGINE,
        frozenset(verb for verb, method in ENGINE_METHODS.items() if has(method)),
        frozenset(observer for observer in ENGINE_OBSERVERS if has(observer)),
    )
