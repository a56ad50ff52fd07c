"""What serving a pool and serving a manager have in common: the messages, and what is shown.

`serve.py` reads the lines. Its servers differ in how a run begins, in what a command does and in
what there is to show.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from poolproof.contract.target import Capabilities
from poolproof.targets.target import Target

__all__ = ["MessageServer", "Shown", "error_words", "plain_json"]


class MessageServer(ABC):
    """Answers messages about one target; each run has an instance of its own."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.instance: Any = None
        self.can: Capabilities | None = None
        self.num_blocks = 0
        self.shows_state = False
        self.shown = Shown()

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one message, as a JSON object."""
        answers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "start": self.start,
            "run": self._run,
            "continue": self._continue,
            "stop": lambda _: {},
        }
        try:
            found = answers[message["do"]](message)
        except Exception as error:  # whatever it is, the other side has to hear of it
            found = {"error": error_words(error)}
        return {"seq": message.get("seq"), **found}

    @abstractmethod
    def start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What is served: the version, the level, the verbs, what can be seen, the profile."""

    @abstractmethod
    def begin(self, message: Mapping[str, Any]) -> tuple[Any, Capabilities]:
        """A new instance for a run, and what it can do."""

    @abstractmethod
    def do(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one command: its result, and what changed."""

    @abstractmethod
    def changes(self) -> dict[str, Any]:
        """The parts of the state that are not as they were when they were shown last."""

    def changes_if_asked(self) -> dict[str, Any]:
        """The same in a run that asked for the state after each command."""
        return self.changes() if self.shows_state else {}

    def _run(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self.num_blocks = message["num_blocks"]
        self.shows_state = message["show"] == "state"
        self.shown = Shown()
        self.instance, self.can = self.begin(message)
        state = {"state": self.changes()} if self.shows_state else {}
        return {**state, **self._continue(message)}

    def _continue(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {"answers": [self.do(command) for command in message["commands"]]}


class Shown:
    """What was shown of a run, by name: a part is shown again once it is another."""

    def __init__(self) -> None:
        self._last: dict[str, Any] = {}

    def new_of(self, parts: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        """The parts that were never shown, or not as they are; they count as shown then."""
        found = {
            name: value
            for name, value in parts
            if name not in self._last or self._last[name] != value
        }
        self._last.update(found)
        return found


def error_words(error: Exception) -> str:
    """An exception, as it is told to the other side."""
    return f"{type(error).__name__}: {error}"


def plain_json(value: Any) -> Any:
    """Bytes as hexadecimal text, tuples as lists."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [plain_json(item) for item in value]
    if isinstance(value, dict):
        return {key: plain_json(item) for key, item in value.items()}
    return value
