"""Trace files: a failure, or any run, as JSON lines that every driver writes and reads.

The first line is a header, then one command per line, then the violation if there was one. Loading
a trace never runs code from it: it holds plain values and is checked field by field. Files are
written to a neighbour and renamed, so that a file is whole or absent.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from poolproof.contract.command_json import command_from_json, command_to_json
from poolproof.contract.commands import Command
from poolproof.contract.errors import PoolproofError
from poolproof.contract.level import Level
from poolproof.contract.misuse import MisuseFailure
from poolproof.contract.outside import shown
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.shown_state import ShownState, shown_from_json, shown_to_json
from poolproof.contract.trace_harm import TraceHarm
from poolproof.contract.violation import Severity, Violation

__all__ = ["TRACE_VERSION", "Trace", "TraceError", "read_trace", "write_atomically", "write_trace"]

FORMAT = "poolproof-trace"
TRACE_VERSION = 1
MOST_BLOCKS = 10_000_000
"""More than any server has; a reference of this size takes some seconds to build."""


class TraceError(PoolproofError, ValueError):
    """A file that is not a trace that we can read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A run: what was built, which commands it was given, what broke.

    `options` holds what the target was built with beyond the fixed fields (block size of token
    chains, seed of the driver). `shown` is what a manager showed before any command and after each,
    as far as that is known. `harm` is what a certification or a campaign saw the run lead to; None
    where nobody has judged it.
    """

    target: str
    level: Level
    profile: Profile
    num_blocks: int
    enable_caching: bool
    commands: tuple[Command, ...]
    violation: Violation | None = None
    fingerprint: str | None = None
    target_version: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    shown: tuple[ShownState, ...] = ()
    harm: TraceHarm | None = None

    def __post_init__(self) -> None:
        """The name of a level stands for it. Raises ValueError for what is none."""
        object.__setattr__(self, "level", Level(self.level))

    def with_commands(self, commands: Iterable[Command]) -> Trace:
        """The same set-up with other commands and no violation yet."""
        return replace(
            self, commands=tuple(commands), violation=None, fingerprint=None, shown=(), harm=None
        )

    def judged_by(self, rows: Mapping[str, Any]) -> Trace:
        """The same run, to be judged by a profile with these rows. Raises ProfileError."""
        if "block_size" in rows:
            raise ProfileError(
                f"a trace keeps its blocks of {shown(self.options.get('block_size', 1))} tokens; "
                "leave out block_size"
            )
        profile = self.profile.with_rows(rows)
        if profile.null_block is not None and profile.null_block >= self.num_blocks:
            raise ProfileError(
                f"the trace has blocks 0 to {self.num_blocks - 1}, of which none is null_block "
                f"{profile.null_block}; name one of these"
            )
        return replace(self, profile=profile, fingerprint=None, harm=None)

    def header(self) -> dict[str, Any]:
        """The first line of the file."""
        header = {
            "format": FORMAT,
            "version": TRACE_VERSION,
            "target": self.target,
            "target_version": self.target_version,
            "level": self.level,
            "profile": self.profile.to_json(),
            "assumed": list(self.profile.assumed),
            "num_blocks": self.num_blocks,
            "enable_caching": self.enable_caching,
            "options": dict(self.options),
        }
        # Versions that do not know it pass over it.
        return header if self.harm is None else {**header, "harm": self.harm.to_json()}

    def lines(self) -> list[str]:
        """The file's lines, without line ends."""
        records = [self.header(), *map(command_to_json, self.commands)]
        if self.violation is not None:
            broken = _violation_to_json(self.violation, self.fingerprint)
            shown = shown_to_json(self.shown)
            # Beside the violation and not before it: versions that do not know it pass over it.
            records.append({"violation": {**broken, "shown": shown} if shown else broken})
        return [json.dumps(record, separators=(", ", ": ")) for record in records]

    @classmethod
    def from_lines(cls, lines: Iterable[str], name: str = "the trace") -> Trace:
        """The trace that `lines` wrote; `name` is what messages call it. Raises TraceError."""
        records = [
            (number, _record(name, number, line))
            for number, line in enumerate(lines, start=1)
            if line.strip()
        ]
        if not records:
            raise TraceError(f"{name} is not a trace: it is empty")
        return _body(name, _header(name, records[0][1]), records[1:])


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace file, whole or not at all. Raises OSError."""
    write_atomically(path, "\n".join(trace.lines()) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by a file with this text, or leave what was there. Raises OSError.

    Halves of characters, which paths may hold and UTF-8 does not, are written as their numbers.
    """
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes files private; a report is for others to read, as umask allows.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except BaseException:
        temporary.unlink()
        raise


def read_trace(path: Path) -> Trace:
    """The trace in a file. Raises TraceError, whose message names the line and the cause."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"cannot read trace {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not a trace: byte {error.start} is not UTF-8 text") from error
    return Trace.from_lines(text.splitlines(), str(path))


def _record(name: str, number: int, line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(
            f"{name} line {number} is not JSON ({error.msg} at column {error.colno}); "
            "the file is damaged or cut short"
        ) from error
    except (ValueError, RecursionError) as error:  # a number or a nesting beyond Python's limits
        raise TraceError(f"{name} line {number} cannot be read as JSON: {error}") from error
    if not isinstance(record, dict):
        raise TraceError(f"{name} line {number} is not a JSON object")
    return record


def _header(name: str, record: dict[str, Any]) -> Trace:
    if record.get("format") != FORMAT:
        raise TraceError(f'{name} is not a trace: line 1 lacks "format": "{FORMAT}"')
    version = record.get("version")
    if not isinstance(version, int) or version < 1:
        raise TraceError(f"{name} line 1: version {shown(version)} is not a version number")
    if version > TRACE_VERSION:
        raise TraceError(
            f"{name} has trace version {version}, this Poolproof reads up to {TRACE_VERSION}; "
            "upgrade Poolproof to read it"
        )
    try:
        level = _level(name, record["level"])
        profile: Profile = level.profile_class.from_mapping(_every_row(level, record["profile"]))
        assumed = record.get("assumed", [])
        num_blocks = record["num_blocks"]
        target, options = record["target"], record.get("options", {})
        caching = record["enable_caching"]
    except KeyError as error:
        raise TraceError(f"{name} line 1: the header lacks {error}") from error
    except ProfileError as error:
        raise TraceError(f"{name} line 1: {error}") from error
    if isinstance(num_blocks, bool) or not isinstance(num_blocks, int) or num_blocks < 1:
        raise TraceError(f"{name} line 1: num_blocks must be 1 or more, not {shown(num_blocks)}")
    if num_blocks > MOST_BLOCKS:
        raise TraceError(
            f"{name} line 1: num_blocks must be at most {MOST_BLOCKS:,}, not {num_blocks:,}"
        )
    if not isinstance(target, str) or not isinstance(options, dict):
        raise TraceError(f"{name} line 1: target must be text and options an object")
    if not isinstance(caching, bool):
        raise TraceError(f"{name} line 1: enable_caching must be true or false")
    if not isinstance(assumed, list) or not all(isinstance(row, str) for row in assumed):
        raise TraceError(f"{name} line 1: assumed must be a list of profile keys")
    if profile.null_block is not None and profile.null_block >= num_blocks:
        raise TraceError(
            f"{name} line 1: null_block {profile.null_block} is none of {num_blocks} blocks"
        )
    block_size = options.get("block_size", 1)
    if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
        raise TraceError(f"{name} line 1: block_size must be 1 or more, not {shown(block_size)}")
    return Trace(
        target, level, replace(profile, assumed=tuple(assumed)), num_blocks, caching, (),
        target_version=record.get("target_version"), options=options,
        harm=_harm(name, record.get("harm")),
    )  # fmt: skip


def _harm(name: str, value: object) -> TraceHarm | None:
    """The harm; older traces and those that nobody has judged have none."""
    if value is None:
        return None
    try:
        return TraceHarm.from_json(value)
    except ValueError as error:
        raise TraceError(f"{name} line 1: harm is damaged: {error}") from error


def _every_row(level: Level, rows: Any) -> Any:
    """The rows of a header; one from before managers were judged by content was exact."""
    return {**_ROWS_BEFORE.get(level, {}), **rows} if isinstance(rows, dict) else rows


_ROWS_BEFORE = {Level.MANAGER: {"index": "exact"}}
"""What a row meant before headers had it."""


def _level(name: str, given: Any) -> Level:
    try:
        return Level(given)
    except ValueError as error:
        raise TraceError(
            f"{name} line 1: level {shown(given)} is not one that this version replays"
        ) from error


def _body(name: str, trace: Trace, records: list[tuple[int, dict[str, Any]]]) -> Trace:
    commands: list[Command] = []
    violation: Violation | None = None
    fingerprint: str | None = None
    shown: tuple[ShownState, ...] = ()
    for number, record in records:
        if violation is not None:
            raise TraceError(f"{name} line {number}: nothing may follow the violation")
        if "violation" in record:
            violation, fingerprint = _violation_from_json(name, number, record["violation"])
            shown = _shown_from_json(name, number, record["violation"])
            continue
        try:
            commands.append(command_from_json(record))
        except ValueError as error:
            raise TraceError(f"{name} line {number}: {error}") from error
    return replace(
        trace,
        commands=tuple(commands),
        violation=violation,
        fingerprint=fingerprint,
        shown=shown[: len(commands) + 1],
    )


def _violation_to_json(violation: Violation, fingerprint: str | None) -> dict[str, Any]:
    return {
        "invariant": violation.invariant,
        "severity": violation.severity.value,
        "sentence": violation.sentence,
        "blocks": list(violation.blocks),
        "command_index": violation.command_index,
        "frames": list(violation.frames),
        "misuse": None if violation.misuse is None else str(violation.misuse),
        "fingerprint": fingerprint,
    }


def _violation_from_json(name: str, number: int, value: Any) -> tuple[Violation, str | None]:
    try:
        violation = Violation(
            invariant=str(value["invariant"]),
            severity=Severity(value["severity"]),
            sentence=str(value["sentence"]),
            blocks=tuple(int(block) for block in value["blocks"]),
            command_index=int(value["command_index"]),
            frames=tuple(str(frame) for frame in value["frames"]),
            # Older traces do not say.
            misuse=None if value.get("misuse") is None else MisuseFailure.parse(value["misuse"]),
        )
        fingerprint = value.get("fingerprint")
    except (TypeError, LookupError, ValueError, AttributeError, OverflowError) as error:
        raise TraceError(f"{name} line {number}: the violation is damaged ({error})") from error
    return violation, None if fingerprint is None else str(fingerprint)


def _shown_from_json(name: str, number: int, value: dict[str, Any]) -> tuple[ShownState, ...]:
    try:
        return shown_from_json(value.get("shown", []))
    except (TypeError, LookupError, ValueError) as error:
        raise TraceError(
            f"{name} line {number}: what the target showed is damaged ({error})"
        ) from error
