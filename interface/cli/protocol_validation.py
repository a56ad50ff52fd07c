"""The conversation of `poolproof protocol validate`: checks each line against the schemas.

The lines of both sides are checked, so that our own mistakes show as well. The schemas are files of
`poolproof.contract`; the library that reads them is an extra.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import click

from poolproof.cli.protocol_smoke import program_in
from poolproof.contract.outside import printable
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.target import TargetError
from poolproof.contract.violation import ViolationError
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.tape_driver import taped
from poolproof.targets.command_messages import Hello, ProtocolError
from poolproof.targets.command_process import CommandSession, ProcessEndedError
from poolproof.targets.command_target import CommandPool, CommandTapes, LiveAnswers, check_hello

__all__ = ["SchemaChecker", "schema_text", "validate"]

_ANSWERS = {"start": "hello", "run": "ran", "continue": "continued", "stop": "stopped"}
_MOST_SHOWN = 5


def schema_text() -> str:
    """The published schema, as text."""
    return (files("poolproof.contract") / "schemas" / "protocol.schema.json").read_text("utf-8")


class SchemaChecker:
    """Checks the lines of a conversation; `faults` says what was wrong in which line.

    Raises TargetError if the library is missing.
    """

    def __init__(self) -> None:
        try:
            from jsonschema import Draft202012Validator
        except ImportError as error:
            raise TargetError(
                "validating needs jsonschema: pip install 'poolproof[protocol]'"
            ) from error
        schema = json.loads(schema_text())
        self._validators = {
            name: Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
            for name in (*_ANSWERS, *_ANSWERS.values())
        }
        self.num_lines = 0
        self.faults: list[str] = []
        self._asked = "start"

    def hear(self, direction: str, line: str) -> None:
        """Check one line."""
        self.num_lines += 1
        try:
            message = json.loads(line)
        except ValueError as error:
            self.faults.append(f"line {self.num_lines} is not JSON: {error}")
            return
        if direction == "sent":
            self._asked = message["do"]
            self._check(self._asked, message)
        else:
            self._check(_ANSWERS[self._asked], message)

    def _check(self, name: str, message: Any) -> None:
        for error in self._validators[name].iter_errors(message):
            fault = error
            # Of alternatives, the one that fits best says what is wrong.
            while fault.context:
                fault = max(fault.context, key=lambda inner: len(inner.absolute_path))
            place = fault.json_path
            self.faults.append(f"line {self.num_lines}, {name}, at {place}: {fault.message[:300]}")


def validate(target: str, num_tapes: int, timeout_s: float) -> int:
    """Drive the program, check each line, print what was wrong, give the exit status."""
    words, rows = program_in(target)
    checker = SchemaChecker()
    session = CommandSession(words, timeout_s=timeout_s, heard=checker.hear)
    try:
        wrong = _converse(session, rows, num_tapes, timeout_s)
    finally:
        session.close()
    for fault in checker.faults[:_MOST_SHOWN]:
        click.echo(f"wrong     {printable(fault)}")
    if len(checker.faults) > _MOST_SHOWN:
        click.echo(f"          and {len(checker.faults) - _MOST_SHOWN} more")
    if wrong is not None:
        click.echo(f"wrong     {printable(wrong)}")
    if wrong is not None or checker.faults:
        return 1
    click.echo(f"fine      {checker.num_lines:,} lines are as the schemas say")
    return 0


def _converse(
    session: CommandSession, rows: Mapping[str, Any], num_tapes: int, timeout_s: float
) -> str | None:
    """Runs of the plain driver, alternately on tapes and command by command; what is wrong."""
    try:
        hello = session.hello(timeout_s)
        check_hello(hello)
        profile = Profile.from_mapping({**hello.profile, **rows})
    except (ProcessEndedError, ProtocolError, ProfileError) as error:
        return str(error)
    campaign = _campaign(session, hello, profile)
    on_tapes = taped(campaign, CommandTapes(hello, session))
    for number in range(num_tapes):
        try:
            result = (on_tapes if number % 2 == 0 else campaign).run(number)
        except ViolationError as error:
            return error.violation.sentence
        if result.trace is not None and result.trace.violation is not None:
            # Whether the allocator is right is not asked here, unless it cannot be talked to.
            violation = result.trace.violation
            if violation.invariant == "CRASH":
                return violation.sentence
    return session.stop()


def _campaign(session: CommandSession, hello: Hello, profile: Profile) -> Any:
    def make(num_blocks: int, enable_caching: bool) -> CommandPool:
        state, _ = session.begin(num_blocks, enable_caching)
        return CommandPool(hello, num_blocks, LiveAnswers(session), state or None)

    if hello.is_queue:
        return QueueCampaign(hello.name, make)
    return PoolCampaign(hello.name, make, profile)
