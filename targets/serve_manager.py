"""Serves a native Python manager over standard input and output: version 2 of the protocol.

`serve.py` reads the lines and serves pools. As there, this is written to be read and copied: a
method for each message, and a list of what is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from poolproof.contract.manager_target import MANAGER_METHODS, manager_capabilities_of
from poolproof.contract.target import Capabilities
from poolproof.targets.command_manager import MANAGER_SHOWN, MANAGERS_SINCE
from poolproof.targets.target import Target

__all__ = ["ManagerServer"]

_ENDING = ("finish", "abort", "preempt")
_OVER_BLOCKS = {"ref_count": "ref_counts", "is_cached": "cached", "free_neighbours": "neighbours"}


class ManagerServer:
    """Answers messages about one manager; each run has an instance of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._instance: Any = None
        self._can: Capabilities | None = None
        self._num_blocks = 0
        self._shows_state = False
        self._shown: dict[str, Any] = {}
        self._sequences: list[int] = []

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one message, as a JSON object."""
        answers: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "start": self._start,
            "run": self._run,
            "continue": self._continue,
            "stop": lambda _: {},
        }
        try:
            found = answers[message["do"]](message)
        except Exception as error:  # whatever it is, the other side has to hear of it
            found = {"error": f"{type(error).__name__}: {error}"}
        return {"seq": message.get("seq"), **found}

    def _start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        if message["protocol"] < MANAGERS_SINCE:
            return {"error": "managers need version 2", "protocol": MANAGERS_SINCE}
        profile = self._target.profile
        can = manager_capabilities_of(self._target.make(8 + (profile.null_block or 0), True))
        verbs = {MANAGER_METHODS[verb] for verb in can.verbs}
        return {
            "protocol": MANAGERS_SINCE,
            "name": self._target.name,
            "version": self._target.version,
            "level": can.level,
            "verbs": sorted(verbs),
            "observers": sorted(can.observers & {*MANAGER_SHOWN}),
            "profile": {**profile.to_json(), "block_size": self._target.block_size},
        }

    def _run(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._num_blocks = message["num_blocks"]
        layout = self._target.layouts[0]
        make = layout.make_with(message["block_size"])
        self._instance = make(self._num_blocks, message["enable_caching"])
        self._can = manager_capabilities_of(self._instance)
        self._shows_state = message["show"] == "state"
        self._shown, self._sequences = {}, []
        state = {"state": self._changes()} if self._shows_state else {}
        return {**state, **self._continue(message)}

    def _continue(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {"answers": [self._do(command) for command in message["commands"]]}

    def _do(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one command: its result, and what changed."""
        answer: dict[str, Any] = {}
        if record["do"] == "show":
            return self._changes()
        try:
            result = self._result(**record)
            if result is not None:
                answer["result"] = result
            return {**answer, **(self._changes() if self._shows_state else {})}
        except Exception as error:  # the target's own bug, whatever it is
            return {"error": f"{type(error).__name__}: {error}"}

    def _result(self, *, do: str, **arguments: Any) -> Any:
        """Call the method of that name; which sequences hold blocks is noted."""
        assert self._can is not None
        named: dict[str, Any] = {}
        if do in {"admit", "load", "lookup_prefix"}:
            keys = arguments.pop("extra_keys")
            named["extra_keys"] = keys and tuple((k, _hashable(v), a, b) for k, v, a, b in keys)
            if "num_tokens" in arguments:
                num_tokens = arguments.pop("num_tokens")
                if do == "load" or "schedule" in self._can.verbs:
                    named["num_tokens"] = num_tokens
        if do == "block_table":
            return self._tables(arguments["seq_id"])
        if "sampled" in arguments:
            sampled = arguments.pop("sampled")
            named["sampled"] = [tuple(pair) for pair in sampled] if do == "step" else sampled
        if do == "step":
            arguments["batch"] = [tuple(entry) for entry in arguments["batch"]]
        result = getattr(self._instance, do)(*arguments.values(), **named)
        self._note(do, arguments, result)
        return _plain(result)

    def _note(self, verb: str, arguments: Mapping[str, Any], result: Any) -> None:
        known, seq_id = self._sequences, arguments.get("seq_id")
        if verb in _ENDING and seq_id in known:
            known.remove(seq_id)
        elif not isinstance(result, str):
            if verb in {"admit", "load"}:
                known.append(arguments["seq_id"])
            elif verb == "fork":
                known.append(arguments["child_id"])

    def _changes(self) -> dict[str, Any]:
        """The parts of the state that are not as they were when they were shown last."""
        changes: dict[str, Any] = {}
        for name, value in self._state():
            if self._shown.get(name) != value:
                changes[name] = self._shown[name] = value
        tables = {}
        for seq_id in self._sequences:
            shown = self._tables(seq_id)
            if self._shown.get(f"table {seq_id}") != shown:
                tables[str(seq_id)] = self._shown[f"table {seq_id}"] = shown
        return {**changes, "tables": tables} if tables else changes

    def _tables(self, seq_id: int) -> list[Any]:
        """The table of a sequence in each cache group."""
        groups = range(len(self._target.layouts[0].profile.groups))
        return [_plain(self._instance.block_table(seq_id, group)) for group in groups]

    def _state(self) -> Iterator[tuple[str, Any]]:
        instance, can = self._instance, self._can
        assert can is not None
        for name in ("num_free", "free_order", "num_free_host"):
            if can.sees(name):
                yield name, _plain(getattr(instance, name)())
        for name, part in _OVER_BLOCKS.items():
            if can.sees(name):
                look = getattr(instance, name)
                yield part, [_plain(look(block)) for block in range(self._num_blocks)]


def _hashable(value: Any) -> Any:
    """An adapter is a pair of name and path, which JSON has as a list."""
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    """Tuples as lists."""
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
