"""Serves a native Python target over standard input and output, as a `cmd:` target speaks.

The reference implementation of the protocol (docs/protocol.md), written to be read and copied into
other languages: a loop over lines, and a list of what is shown; what each message asks for stands
in `message_server.py`. It is slow and holds no state beyond the run. What the target prints goes to
standard error. Pools and queues are served here, managers by `serve_manager.py`, engines by
`serve_engine.py`.

Usage: python -m poolproof.targets.serve TARGET      as in `poolproof certify TARGET`
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
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
from poolproof.targets.message_server import MessageServer, error_words, plain_json
from poolproof.targets.serve_engine import EngineServer
from poolproof.targets.serve_manager import ManagerServer
from poolproof.targets.target import Target

__all__ = ["TargetServer", "main"]

_PROTOCOL = 3
"""The newest version that is served; of a pool all versions have the same messages."""

_QUESTIONS = ("num_free", "free_order", "ref_count", "block_hash", "free_neighbours", "take_events")
_CHAINS = ("cache_chain", "lookup_chain", "cache_partial", "usage")


class TargetServer(MessageServer):
    """Answers messages about a pool or a queue."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._named: list[bytes] = []

    def start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What is served, in the older of two versions."""
        profile = self.target.profile
        can = capabilities_of(self.target.make(4 + (profile.null_block or 0), True))
        return {
            "protocol": min(message["protocol"], _PROTOCOL),
            "name": self.target.name,
            "version": self.target.version,
            "level": can.level,
            "verbs": sorted(can.verbs - {*_CHAINS}),
            "observers": sorted(can.observers),
            "profile": profile.to_json(),
        }

    def begin(self, message: Mapping[str, Any]) -> tuple[Any, Capabilities]:
        """A pool that names no hash yet."""
        self._named = []
        instance = self.target.make(message["num_blocks"], message["enable_caching"])
        return instance, capabilities_of(instance)

    def do(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one command: its result, and what changed."""
        if record["do"] in _QUESTIONS:
            arguments = [record["block_id"]] if "block_id" in record else []
            return {"result": plain_json(getattr(self.instance, record["do"])(*arguments))}
        command = command_from_json(dict(record))
        arguments = [getattr(command, field.name) for field in fields(command)]
        arguments = [list(value) if isinstance(value, tuple) else value for value in arguments]
        self._name(command)
        answer: dict[str, Any] = {}
        try:
            result = getattr(self.instance, command.verb)(*arguments)
            if result is not None:
                answer["result"] = plain_json(result)
        except (MemoryError, ValueError) as error:
            answer["refused"] = str(error)
        except Exception as error:  # the target's own bug, whatever it is
            return {"error": error_words(error)}
        return {**answer, **self.changes_if_asked()}

    def _name(self, command: Any) -> None:
        """Hashes are shown from the command on that names them first."""
        one = getattr(command, "block_hash", None)
        for key in [*getattr(command, "hashes", ()), *([one] if one is not None else [])]:
            if key not in self._named:
                self._named.append(key)

    def changes(self) -> dict[str, Any]:
        """The parts of the state that are new; events once, when there are some."""
        found = self.shown.new_of(self._state())
        assert self.can is not None
        events = self.instance.take_events() if self.can.sees("take_events") else ()
        return {**found, "events": plain_json(events)} if events else found

    def _state(self) -> Iterator[tuple[str, Any]]:
        instance, can = self.instance, self.can
        assert can is not None
        blocks = range(self.num_blocks)
        yield "num_free", instance.num_free()
        if can.level is Level.QUEUE or can.sees("free_order"):
            yield "free_order", list(instance.free_order())
        if can.sees("ref_count"):
            yield "ref_counts", [instance.ref_count(block) for block in blocks]
        if can.sees("block_hash"):
            yield "block_hashes", [plain_json(instance.block_hash(block)) for block in blocks]
        if can.sees("free_neighbours"):
            yield "neighbours", [plain_json(instance.free_neighbours(block)) for block in blocks]
        if "lookup" in can.verbs:
            yield "lookups", [instance.lookup(key) for key in self._named]


def serve(target: Target, lines: TextIO, answers: TextIO) -> None:
    """Answer line after line until the other side says stop or goes away."""
    servers: dict[Level, type[MessageServer]] = {
        Level.MANAGER: ManagerServer,
        Level.ENGINE: EngineServer,
    }
    server = servers.get(target.level, TargetServer)(target)
    for line in lines:
        message = json.loads(line)
        answers.write(_line_of(server.answer(message)) + "\n")
        answers.flush()
        if message.get("do") == "stop":
            return


def _line_of(answer: Mapping[str, Any]) -> str:
    """An answer as text; where the target answered what JSON does not have, that is the error."""
    try:
        return json.dumps(answer, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        told = {"seq": answer["seq"], "error": f"an answer is not JSON: {error_words(error)}"}
        return json.dumps(told, separators=(",", ":"))


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


if __name__ == "__main__":
    sys.exit(main())
