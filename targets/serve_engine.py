"""Serves a native Python engine over standard input and output: version 3 of the protocol.

`serve.py` reads the lines and serves pools, `message_server.py` has the messages. As there, this is
written to be read and copied: each command is a method of the engine, with these arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import (
    ENGINE_METHODS,
    ENGINE_OBSERVERS,
    ENGINE_STATES,
    engine_capabilities_of,
)
from poolproof.contract.target import Capabilities
from poolproof.targets.command_engine import ENGINES_SINCE
from poolproof.targets.message_server import MessageServer, error_words, plain_json
from poolproof.targets.target import Target

__all__ = ["EngineServer"]


class EngineServer(MessageServer):
    """Answers messages about an engine."""

    def __init__(self, target: Target) -> None:
        super().__init__(target)
        # Of several set-ups, the first that is run.
        self._layout = next(layout for layout in target.layouts if layout.make is not None)

    def start(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """What is served; engines came with version 3."""
        if message["protocol"] < ENGINES_SINCE:
            return {"error": f"engines need version {ENGINES_SINCE}", "protocol": ENGINES_SINCE}
        profile, make = self._layout.profile, self._layout.make
        assert make is not None
        engine = make(8 + (profile.null_block or 0), True)
        can = engine_capabilities_of(engine)
        verbs = {ENGINE_METHODS[verb] for verb in can.verbs}
        is_told = isinstance(profile, EngineProfile) and profile.state_moves == "told"
        if is_told and callable(getattr(engine, ENGINE_STATES, None)):
            verbs.add(ENGINE_STATES)
        return {
            "protocol": ENGINES_SINCE,
            "name": self.target.name,
            "version": self.target.version,
            "level": can.level,
            "verbs": sorted(verbs),
            "observers": sorted(can.observers & {*ENGINE_OBSERVERS}),
            "profile": {**profile.to_json(), "block_size": self._layout.block_size},
        }

    def begin(self, message: Mapping[str, Any]) -> tuple[Any, Capabilities]:
        """An engine without requests."""
        make = self._layout.make_with(message["block_size"])
        instance = make(message["num_blocks"], message["enable_caching"])
        return instance, engine_capabilities_of(instance)

    def do(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one command: what its method returned."""
        try:
            result = self._result(**record)
        except Exception as error:  # the target's own bug, whatever it is
            return {"error": error_words(error)}
        return {} if result is None else {"result": plain_json(result)}

    def _result(self, *, do: str, **arguments: Any) -> Any:
        """Call the method of that name."""
        method = getattr(self.instance, do)
        if do == "submit":
            keys = arguments.pop("extra_keys")
            arguments["extra_keys"] = keys and tuple(
                (kind, tuple(value) if isinstance(value, list) else value, first, end)
                for kind, value, first, end in keys
            )
            return method(arguments.pop("request_id"), arguments.pop("tokens"), **arguments)
        if do == "answer":
            return method(dict(arguments["tokens"]), dict(arguments["drafts"]))
        if do == ENGINE_STATES:
            return [*method(dict(arguments["accepted"])).items()]
        return method(*arguments.values())

    def changes(self) -> dict[str, Any]:
        """Nothing is shown of an engine: it is asked."""
        return {}
