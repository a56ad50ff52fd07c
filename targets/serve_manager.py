"""Serves a native Python manager over standard input and output: version 2 of the protocol.

`serve.py` reads the lines and serves pools, `message_server.py` has the messages. As there, this is
written to be read and copied: what a command does, and a list of what is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import MANAGER_METHODS, manager_capabilities_of
from poolproof.contract.target import Capabilities
from poolproof.targets.command_manager import MANAGER_SHOWN, MANAGERS_SINCE
from poolproof.targets.message_server import MessageServer, Shown, error_words, plain_json
from poolproof.targets.target import Target

__all__ = ["ManagerServer"]

_ENDING = ("finish", "abort", "preempt")
_OVER_BLOCKS = {"ref_count": "ref_counts", "is_cached": "cached", "free_neighbours": "neighbours"}


class ManagerServer(MessageServer):
    """Answers messages about a manager."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        self._sequences: list[int] = []
        self._shown_tables = Shown()

    def start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What is served; managers came with version 2."""
        if message["protocol"] < MANAGERS_SINCE:
            return {"error": "managers need version 2", "protocol": MANAGERS_SINCE}
        profile = self.target.profile
        can = manager_capabilities_of(self.target.make(8 + (profile.null_block or 0), True))
        return {
            "protocol": MANAGERS_SINCE,
            "name": self.target.name,
            "version": self.target.version,
            "level": can.level,
            "verbs": sorted({MANAGER_METHODS[verb] for verb in can.verbs}),
            "observers": sorted(can.observers & {*MANAGER_SHOWN}),
            "profile": {**profile.to_json(), "block_size": self.target.block_size},
        }

    def begin(self, message: Mapping[str, Any]) -> tuple[Any, Capabilities]:
        """A manager without sequences."""
        self._sequences, self._shown_tables = [], Shown()
        make = self.target.layouts[0].make_with(message["block_size"])
        instance = make(message["num_blocks"], message["enable_caching"])
        return instance, manager_capabilities_of(instance)

    def do(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one command: its result, and what changed."""
        answer: dict[str, Any] = {}
        if record["do"] == "show":
            return self.changes()
        try:
            result = self._result(**record)
            if result is not None:
                answer["result"] = result
            return {**answer, **self.changes_if_asked()}
        except Exception as error:  # the target's own bug, whatever it is
            return {"error": error_words(error)}

    def _result(self, *, do: str, **arguments: Any) -> Any:
        """Call the method of that name; which sequences hold blocks is noted."""
        assert self.can is not None
        named: dict[str, Any] = {}
        if do in {"admit", "load", "lookup_prefix"}:
            keys = arguments.pop("extra_keys")
            named["extra_keys"] = keys and tuple((k, _hashable(v), a, b) for k, v, a, b in keys)
            if "num_tokens" in arguments:
                num_tokens = arguments.pop("num_tokens")
                if do == "load" or "schedule" in self.can.verbs:
                    named["num_tokens"] = num_tokens
        if do == "block_table":
            return self._tables(arguments["seq_id"])
        if "sampled" in arguments:
            sampled = arguments.pop("sampled")
            named["sampled"] = [tuple(pair) for pair in sampled] if do == "step" else sampled
        if do == "step":
            arguments["batch"] = [tuple(entry) for entry in arguments["batch"]]
        result = getattr(self.instance, do)(*arguments.values(), **named)
        self._note(do, arguments, result)
        return plain_json(result)

    def _note(self, verb: str, arguments: Mapping[str, Any], result: Any) -> None:
        known, seq_id = self._sequences, arguments.get("seq_id")
        if verb in _ENDING and seq_id in known:
            known.remove(seq_id)
        elif not isinstance(result, str):
            if verb in {"admit", "load"}:
                known.append(arguments["seq_id"])
            elif verb == "fork":
                known.append(arguments["child_id"])

    def changes(self) -> dict[str, Any]:
        """The parts of the state that are new, and the tables that are."""
        found = self.shown.new_of(self._state())
        tables = self._shown_tables.new_of(
            (str(seq_id), self._tables(seq_id)) for seq_id in self._sequences
        )
        return {**found, "tables": tables} if tables else found

    def _tables(self, seq_id: int) -> list[Any]:
        """The table of a sequence in each cache group."""
        profile = self.target.layouts[0].profile
        assert isinstance(profile, ManagerProfile)
        groups = range(len(profile.groups))
        return [plain_json(self.instance.block_table(seq_id, group)) for group in groups]

    def _state(self) -> Iterator[tuple[str, Any]]:
        instance, can = self.instance, self.can
        assert can is not None
        for name in ("num_free", "free_order", "num_free_host"):
            if can.sees(name):
                yield name, plain_json(getattr(instance, name)())
        for name, part in _OVER_BLOCKS.items():
            if can.sees(name):
                look = getattr(instance, name)
                yield part, [plain_json(look(block)) for block in range(self.num_blocks)]


def _hashable(value: Any) -> Any:
    """An adapter is a pair of name and path, which JSON has as a list."""
    return tuple(value) if isinstance(value, list) else value
