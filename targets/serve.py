"""Serves a native Python target over standard input and output, as a `cmd:` target speaks.

The reference implementation of the protocol (docs/protocol.md), written to be read and copied into
other languages: a loop over lines, a method for each message, a list of what is shown. It is slow
and holds no state beyond the run. What the target prints goes to standard error. Pools and queues
are served here, managers by `serve_manager.py`.

Usage: python -m poolproof.targets.serve TARGET      as in `poolproof certify TARGET`
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, TextIO

from poolproof.contract.command_json import command_from_json
from poolproof.contract.level import Level
from poolproof.contract.target import (
    Capabilities,
    TargetError,
    capabilities_of,
)
from poolproof.targets.load import load_target
from poolproof.targets.serve_manager import ManagerServer
from poolproof.targets.target import Target

__all__ = ["TargetServer", "main"]

_PROTOCOL = 2
"""The newest version that is served; version 1 has the same messages, but no managers."""

_QUESTIONS = ("num_free", "free_order", "ref_count", "block_hash", "free_neighbours", "take_events")
_CHAINS = ("cache_chain", "lookup_chain", "cache_partial", "usage")


class TargetServer:
    """Answers messages about one target; each run has an instance of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._instance: Any = None
        self._can: Capabilities | None = None
        self._num_blocks = 0
        self._shows_state = False
        self._shown: dict[str, Any] = {}
        self._named: list[bytes] = []

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
        version = min(message["protocol"], _PROTOCOL)
        profile = self._target.profile
        can = capabilities_of(self._target.make(4 + (profile.null_block or 0), True))
        return {
            "protocol": version,
            "name": self._target.name,
            "version": self._target.version,
            "level": can.level,
            "verbs": sorted(can.verbs - {*_CHAINS}),
            "observers": sorted(can.observers),
            "profile": profile.to_json(),
        }

    def _run(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._num_blocks = message["num_blocks"]
        self._instance = self._target.make(self._num_blocks, message["enable_caching"])
        self._can = capabilities_of(self._instance)
        self._shows_state = message["show"] == "state"
        self._shown, self._named = {}, []
        state = {"state": self._changes()} if self._shows_state else {}
        return {**state, **self._continue(message)}

    def _continue(self, message: Mapping[str, Any]) -> dict[str, Any]:
        return {"answers": [self._do(command) for command in message["commands"]]}

    def _do(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one command: its result, and what changed."""
        if record["do"] in _QUESTIONS:
            arguments = [record["block_id"]] if "block_id" in record else []
            return {"result": _to_json(getattr(self._instance, record["do"])(*arguments))}
        command = command_from_json(dict(record))
        arguments = [getattr(command, field.name) for field in fields(command)]
        arguments = [list(value) if isinstance(value, tuple) else value for value in arguments]
        self._name(command)
        answer: dict[str, Any] = {}
        try:
            result = getattr(self._instance, command.verb)(*arguments)
            if result is not None:
                answer["result"] = _to_json(result)
        except (MemoryError, ValueError) as error:
            answer["refused"] = str(error)
        except Exception as error:  # the target's own bug, whatever it is
            return {"error": f"{type(error).__name__}: {error}"}
        return {**answer, **(self._changes() if self._shows_state else {})}

    def _name(self, command: Any) -> None:
        """Hashes are shown from the command on that names them first."""
        one = getattr(command, "block_hash", None)
        for key in [*getattr(command, "hashes", ()), *([one] if one is not None else [])]:
            if key not in self._named:
                self._named.append(key)

    def _changes(self) -> dict[str, Any]:
        """The parts of the state that are not as they were when they were shown last."""
        changes = {}
        for name, value in self._state():
            if name == "events":
                if value:
                    changes[name] = value
            elif name not in self._shown or self._shown[name] != value:
                changes[name] = self._shown[name] = value
        return changes

    def _state(self) -> Iterator[tuple[str, Any]]:
        instance, can = self._instance, self._can
        assert can is not None
        blocks = range(self._num_blocks)
        yield "num_free", instance.num_free()
        if can.level is Level.QUEUE or can.sees("free_order"):
            yield "free_order", list(instance.free_order())
        if can.sees("ref_count"):
            yield "ref_counts", [instance.ref_count(block) for block in blocks]
        if can.sees("block_hash"):
            yield "block_hashes", [_to_json(instance.block_hash(block)) for block in blocks]
        if can.sees("free_neighbours"):
            yield "neighbours", [_to_json(instance.free_neighbours(block)) for block in blocks]
        if "lookup" in can.verbs:
            yield "lookups", [instance.lookup(key) for key in self._named]
        if can.sees("take_events"):
            yield "events", _to_json(instance.take_events())


def serve(target: Target, lines: TextIO, answers: TextIO) -> None:
    """Answer line after line until the other side says stop or goes away."""
    is_manager = target.level is Level.MANAGER
    server = ManagerServer(target) if is_manager else TargetServer(target)
    for line in lines:
        message = json.loads(line)
        answers.write(json.dumps(server.answer(message), separators=(",", ":")) + "\n")
        answers.flush()
        if message.get("do") == "stop":
            return


def main(arguments: list[str] | None = None) -> int:
    """Serve the target that the command line names."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print((__doc__ or "").partition("Usage:")[2].strip(), file=sys.stderr)
        return 2
    # What the target prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        target = load_target(given[0])
    except TargetError as error:
        print(error, file=sys.stderr)
        return 2
    with answers:
        serve(target, sys.stdin, answers)
    return 0


def _to_json(value: Any) -> Any:
    """Bytes as hexadecimal text, tuples as lists."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_json(item) for key, item in value.items()}
    return value


if __name__ == "__main__":
    sys.exit(main())
