"""An engine in another process: what a program of the protocol's version 3 looks like from here.

Its verbs and questions are the methods of docs/engines.md, under their names, asked one by one: a
worker can compute nothing before it has the plan. A step takes two questions, `plan` and `answer`.
Nothing is shown with an answer; `num_free` and `unfinished` are asked where an engine rests, which
it seldom does. What a plan or outputs mean is read by the session, as that of a native engine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import ENGINE_METHODS, ENGINE_OBSERVERS, ENGINE_STATES
from poolproof.targets.command_messages import Hello, short
from poolproof.targets.command_process import Asks, CommandSession, LiveAnswers, broken
from poolproof.targets.target import EngineLayout, Make

__all__ = ["ENGINES_SINCE", "ENGINE_VERBS", "CommandEngine", "engine_layout", "engine_text"]

ENGINES_SINCE = 3
"""The version of the protocol that has engines."""

ENGINE_VERBS = (*dict.fromkeys(ENGINE_METHODS.values()), ENGINE_STATES)

_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "submit": ("request_id", "tokens"),
    "plan": (),
    "answer": ("tokens", "drafts"),
    "cancel": ("request_id",),
    "arrived": ("transfer_id", "ok"),
    "reset": (),
    ENGINE_STATES: ("accepted",),
    **dict.fromkeys(ENGINE_OBSERVERS, ()),
}
"""The names of the arguments that a method is given by their places."""


def engine_text(method: str, *given: Any, **named: Any) -> str:
    """A command or a question as JSON; what is given by request is a list of pairs."""
    arguments = {
        name: [*value.items()] if isinstance(value, dict) else value
        for name, value in zip(_ARGUMENTS[method], given, strict=True)
    }
    return json.dumps({"do": method, **arguments, **named}, separators=(",", ":"))


class CommandEngine:
    """One instance of the target; it has the methods and observers that the program announced."""

    poolproof_one_at_a_time = True
    """A program plays one run after another: a second instance would end the first."""

    def __init__(self, hello: Hello, answers: Asks) -> None:
        self._ask = answers.ask
        self.poolproof_abandon = answers.abandon
        for method in hello.verbs | hello.observers:
            setattr(self, method, self._method(method))

    def _method(self, method: str) -> Callable[..., Any]:
        def ask(*given: Any, **named: Any) -> Any:
            return self._do(engine_text(method, *given, **named))

        ask.__name__ = method  # as findings name it
        return ask

    def _do(self, command: str) -> Any:
        """The result of a command or question. Raises ViolationError."""
        answer = self._ask(command)
        if "error" in answer:
            raise broken(f"the program says that it failed: {short(answer['error'])}")
        if "skipped" in answer:
            raise broken(
                f"the program skips this command ({short(answer['skipped'])}), although its answer "
                "to start has the verb; leave it out there"
            )
        if "refused" in answer:
            raise broken(
                f"the program refuses this command ({short(answer['refused'])}); an engine has no "
                "refusals: what it cannot do now it leaves waiting"
            )
        return answer.get("result")


def engine_layout(
    session: CommandSession, hello: Hello, profile: EngineProfile, block_size: int
) -> EngineLayout:
    """The one set-up of a program that is an engine, with blocks of that size."""

    def make_of(block_size: int) -> Make:
        def make(num_blocks: int, enable_caching: bool) -> CommandEngine:
            session.begin(num_blocks, enable_caching, block_size=block_size, shows_state=False)
            return CommandEngine(hello, LiveAnswers(session))

        return make

    return EngineLayout(
        profile.layout_name, profile, make_of(block_size), block_size, make_of=make_of
    )
