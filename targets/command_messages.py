"""The messages of the protocol that `cmd:` targets speak: written as text, read with care.

One JSON object per line; docs/protocol.md describes them, contract/schemas/ has the schemas.
Requests are written by hand instead of by a JSON library, because a tape of 200 commands is written
a thousand times a second. Reading checks what later code relies on; the judges of the target check
whether an answer is right.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    AppendN,
    Cache,
    Command,
    Evict,
    Free,
    Lookup,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
    Reset,
    Touch,
)
from poolproof.contract.level import Level
from poolproof.contract.outside import shown

__all__ = [
    "PROTOCOL_VERSION",
    "SPOKEN_VERSIONS",
    "Hello",
    "ProtocolError",
    "SkippedError",
    "answers_in",
    "command_text",
    "continue_text",
    "hello_in",
    "named_hashes",
    "read_line",
    "run_text",
    "short",
    "start_text",
    "stop_text",
    "texts_of",
]

PROTOCOL_VERSION = 3
"""The newest version, which engines need."""

SPOKEN_VERSIONS = (1, 2, PROTOCOL_VERSION)

_SHOWN = 120
"""Characters of a bad line that an error quotes."""


class ProtocolError(Exception):
    """A program that does not speak the protocol; the message quotes what it said."""


class SkippedError(Exception):
    """A run that the program declines: nothing is known about it, neither good nor bad."""


@dataclass(frozen=True, slots=True)
class Hello:
    """How a program introduced itself."""

    name: str
    version: str | None
    level: str
    verbs: frozenset[str]
    observers: frozenset[str]
    profile: Mapping[str, Any] = field(default_factory=dict)
    protocol: int = PROTOCOL_VERSION

    @property
    def is_queue(self) -> bool:
        """Whether it is a free queue, which must show its order."""
        return self.level == Level.QUEUE


def texts_of(keys: Iterable[bytes]) -> str:
    """Hashes as a JSON list of hexadecimal texts."""
    return "[" + ",".join([f'"{key.hex()}"' for key in keys]) + "]"


_TEXTS: dict[type[Command], Callable[[Any], str]] = {
    Allocate: lambda c: f'{{"do":"allocate","count":{c.count}}}',
    Touch: lambda c: f'{{"do":"touch","block_ids":{[*c.block_ids]}}}',
    Free: lambda c: f'{{"do":"free","block_ids":{[*c.block_ids]}}}',
    Cache: lambda c: f'{{"do":"cache","block_ids":{[*c.block_ids]},"hashes":{texts_of(c.hashes)}}}',
    Lookup: lambda c: f'{{"do":"lookup","block_hash":"{c.block_hash.hex()}"}}',
    Acquire: lambda c: f'{{"do":"acquire","hashes":{texts_of(c.hashes)}}}',
    Evict: lambda c: f'{{"do":"evict","block_ids":{[*c.block_ids]}}}',
    Reset: lambda _: '{"do":"reset"}',
    PopLeft: lambda _: '{"do":"popleft"}',
    PopLeftN: lambda c: f'{{"do":"popleft_n","count":{c.count}}}',
    Remove: lambda c: f'{{"do":"remove","block_id":{c.block_id}}}',
    Append: lambda c: f'{{"do":"append","block_id":{c.block_id}}}',
    AppendN: lambda c: f'{{"do":"append_n","block_ids":{[*c.block_ids]}}}',
    PrependN: lambda c: f'{{"do":"prepend_n","block_ids":{[*c.block_ids]}}}',
}


def command_text(command: Command) -> str:
    """A command as JSON, in the form of trace files."""
    return _TEXTS[type(command)](command)


def named_hashes(command: Command) -> Sequence[bytes]:
    """The hashes that a command names; from then on the program shows who carries them."""
    if isinstance(command, Cache | Acquire):
        return [key for key in command.hashes if isinstance(key, bytes)]
    if isinstance(command, Lookup) and isinstance(command.block_hash, bytes):
        return [command.block_hash]
    return ()


def start_text(seq: int, version: int = PROTOCOL_VERSION) -> str:
    """The first message."""
    return f'{{"seq":{seq},"do":"start","protocol":{version}}}'


def run_text(
    seq: int,
    num_blocks: int,
    enable_caching: bool,
    show: str,
    commands: Sequence[str],
    *,
    block_size: int | None = None,
) -> str:
    """A run of these commands on a fresh instance; pools and queues have no block size."""
    caching = "true" if enable_caching else "false"
    size = "" if block_size is None else f'"block_size":{block_size},'
    return (
        f'{{"seq":{seq},"do":"run","num_blocks":{num_blocks},{size}"enable_caching":{caching},'
        f'"show":"{show}","commands":[{",".join(commands)}]}}'
    )


def continue_text(seq: int, commands: Sequence[str]) -> str:
    """Further commands for the run in progress."""
    return f'{{"seq":{seq},"do":"continue","commands":[{",".join(commands)}]}}'


def stop_text(seq: int) -> str:
    """The last message."""
    return f'{{"seq":{seq},"do":"stop"}}'


def read_line(line: bytes, seq: int) -> dict[str, Any]:
    """The answer to message `seq`. Raises ProtocolError."""
    try:
        message = json.loads(line)
    except ValueError as error:
        raise ProtocolError(
            f"what it answered to message {seq} is not JSON ({len(line):,} bytes, beginning with "
            f"{_quoted(line)}); write one JSON object a line to standard output, and everything "
            "else to standard error"
        ) from error
    except RecursionError as error:
        raise ProtocolError(f"its answer to message {seq} is nested too deeply") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"its answer to message {seq} is no JSON object but {_quoted(line)}")
    answered = message.get("seq")
    if answered != seq or type(answered) is not int:
        raise ProtocolError(_wrong_number(answered, seq, line))
    return message


def _wrong_number(answered: object, seq: int, line: bytes) -> str:
    if type(answered) is not int:
        return f'its answer to message {seq} lacks "seq":{seq} ({_quoted(line)})'
    if answered < seq:
        return f"it answered message {answered} again, or too late, instead of message {seq}"
    return f"it answered message {answered}, which it has not been sent, instead of message {seq}"


def hello_in(message: Mapping[str, Any]) -> Hello:
    """The introduction in the answer to `start`. Raises ProtocolError."""
    if "error" in message:
        raise ProtocolError(f"it answered start with the error {short(message['error'])}")
    version = message.get("protocol")
    if version not in SPOKEN_VERSIONS or type(version) is not int:
        raise ProtocolError(
            f"it speaks version {short(version)} of the protocol, this Poolproof speaks versions "
            f"{', '.join(map(str, SPOKEN_VERSIONS))}; docs/protocol.md has them"
        )
    for key in ("name", "level"):
        if not isinstance(message.get(key), str):
            raise ProtocolError(f'its answer to start lacks the text "{key}"')
    for key in ("verbs", "observers"):
        names = message.get(key)
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ProtocolError(f'its answer to start lacks "{key}", a list of names')
    profile = message.get("profile", {})
    if not isinstance(profile, dict):
        raise ProtocolError(f'"profile" in its answer to start is no object but {short(profile)}')
    version_of_program = message.get("version")
    return Hello(
        name=short(message["name"]),
        version=None if version_of_program is None else short(version_of_program),
        level=short(message["level"]),
        verbs=frozenset(message["verbs"]),
        observers=frozenset(message["observers"]),
        profile=profile,
        protocol=version,
    )


def answers_in(message: Mapping[str, Any], count: int) -> list[dict[str, Any]]:
    """The answers to `count` commands; fewer if the last of them is an error.

    Raises SkippedError for a run that the program declines, ProtocolError for anything else.
    """
    if "skipped" in message:
        where = message.get("issue_url")
        told = f" (told at {short(where)})" if where else ""
        raise SkippedError(f"it skips this run: {short(message['skipped'])}{told}")
    if "error" in message:
        raise ProtocolError(f"it ended the run with the error {short(message['error'])}")
    answers = message.get("answers")
    if not isinstance(answers, list) or not all(isinstance(answer, dict) for answer in answers):
        raise ProtocolError('its answer lacks "answers", a list with one object for each command')
    if len(answers) != count and not (0 < len(answers) < count and "error" in answers[-1]):
        raise ProtocolError(f"it gave {len(answers)} answers to {count} commands")
    return answers


def _quoted(line: bytes) -> str:
    text = line[:_SHOWN].decode("utf-8", errors="backslashreplace").rstrip("\n")
    return repr(text + (" ..." if len(line) > _SHOWN else ""))


def short(value: object, most: int = 2 * _SHOWN) -> str:
    """Whatever a program said, shortened to fit into a one-line message."""
    # Cut before it is split: it may be a megabyte, and every answer may be one.
    text = value[: 4 * most] if isinstance(value, str) else shown(value, 4 * most)
    text = " ".join(text.split())
    return text if len(text) <= most else text[:most] + " ..."
