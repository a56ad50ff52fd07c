"""Commands of all levels as JSON objects, and back: one line of a trace file each.

What is read is checked field by field; nothing is ever run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    AppendN,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    Lookup,
    LookupChain,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
    Reset,
    Touch,
    Usage,
)
from poolproof.contract.content import TokenChain, key_from_json, key_to_json
from poolproof.contract.engine_commands import (
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.index_commands import (
    Clear,
    Contains,
    Get,
    Insert,
    Pop,
    index_key_from_json,
    index_key_to_json,
)
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.outside import shown

__all__ = ["command_from_json", "command_to_json"]

_COMMANDS: dict[str, type[Command]] = {
    cls.verb: cls
    for cls in (
        Abort, Accept, Acquire, Admit, Allocate, AnswerStep, Append, AppendN, AppendTokens, Arrive,
        Cache, CacheChain, CachePartial, Cancel, Clear, Contains, Draft, Evict, Finish, Fork,
        Free, Get, Insert, Load, Loaded, Lookup, LookupChain, LookupPrefix, PlanStep, Pop,
        PopLeft, PopLeftN, Preempt, PrependN, Remove, Repeat, Reset, Resume, RunStep, Schedule,
        Step, Submit, SwapIn, SwapOut, Touch, Truncate, Usage,
    )
}  # fmt: skip

_TO_JSON: dict[str, Callable[[Any], Any]] = {
    "block_ids": list,
    "groups": list,
    "tokens": list,
    "hashes": lambda keys: [key_to_json(key) for key in keys],
    "block_hash": key_to_json,
    "key": index_key_to_json,
    "chain": TokenChain.to_json,
}


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{shown(value)} is not an integer")
    return value


def _integers(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{shown(values)} is not a list of integers")
    return tuple(_integer(value) for value in values)


_FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "block_ids": _integers,
    "groups": _integers,
    "tokens": _integers,
    "hashes": lambda values: tuple(key_from_json(value) for value in values),
    "block_hash": key_from_json,
    "key": index_key_from_json,
    "chain": TokenChain.from_json,
}


def _argument(name: str, value: Any) -> Any:
    convert = _FROM_JSON.get(name)
    return convert(value) if convert else _integer(value)


def command_to_json(command: Command) -> dict[str, Any]:
    """The command as a JSON object: its verb under "do", then its arguments.

    What has the value that is assumed is left out, so that traces of before it can be read.
    """
    record: dict[str, Any] = {"do": command.verb}
    for field in fields(command):
        value = getattr(command, field.name)
        if value == field.default:
            continue
        convert = _TO_JSON.get(field.name)
        record[field.name] = convert(value) if convert else value
    return record


def command_from_json(record: Any) -> Command:
    """The command that `command_to_json` wrote.

    Raises ValueError, with the reason, for an unknown verb or arguments that do not fit it.
    """
    if not isinstance(record, dict) or "do" not in record:
        raise ValueError(f"not a command: {shown(record)}")
    cls = _COMMANDS.get(str(record["do"]))
    if cls is None:
        known = ", ".join(sorted(_COMMANDS))
        raise ValueError(f"unknown verb {shown(record['do'])}; known are {known}")
    names = [field.name for field in fields(cls)]
    required = {field.name for field in fields(cls) if field.default is MISSING}
    given = set(record) - {"do"}
    if not required <= given <= set(names):
        raise ValueError(f"{cls.verb} takes exactly {names}, not {sorted(given)}")
    try:
        return cls(**{name: _argument(name, record[name]) for name in names if name in given})
    except (TypeError, LookupError, ValueError, OverflowError) as error:
        raise ValueError(f"bad argument of {cls.verb}: {error}") from error
