"""What `poolproof watch --dir` reads: what the watch inside an engine writes, as docs/live.md says.

Nothing is kept open and nothing is written, so a reader may come, go and be killed at any time.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from poolproof.contract.errors import PoolproofError
from poolproof.contract.outside import cut, printable, shown

__all__ = ["WatchFolderError", "WatchedCore", "show_folder"]

FORMAT = "poolproof-watch"
VERSION = 1
_TICK_S = 1.0
_MOST_OF_A_LINE = 1 << 20


class WatchFolderError(PoolproofError):
    """A folder in which no watch writes, or one of a newer version."""


def show_folder(folder: Path, *, follow: bool, silent_s: float) -> int:
    """Print what stands there, with `follow` also what comes; the exit status."""
    engines: dict[Path, WatchedCore] = {}
    try:
        while True:
            for place in _places(folder):
                engine = engines.setdefault(place, WatchedCore(place))
                for line in engine.news(silent_s):
                    click.echo(printable(line))
            if not engines and not follow:
                raise WatchFolderError(
                    f"no watch writes in {folder}: there is no status.json in it or in a folder "
                    "below; give the folder that POOLPROOF_WATCH_DIR names"
                )
            if not follow:
                break
            time.sleep(_TICK_S)
    except KeyboardInterrupt:
        pass
    statuses = [engine.status for engine in engines.values()]
    return 1 if 1 in statuses else max(statuses, default=2)


def _places(folder: Path) -> list[Path]:
    """The folders of engine cores, the oldest first. Raises WatchFolderError."""
    try:
        if (folder / "status.json").exists():
            return [folder]
        return sorted(path.parent for path in folder.glob("*/status.json"))
    except OSError as error:
        raise WatchFolderError(f"cannot read {folder}: {error.strerror or error}") from error


@dataclass(slots=True)
class WatchedCore:
    """The folder of one engine core: what was read of it last."""

    place: Path
    value: Mapping[str, Any] = field(default_factory=dict)
    num_lines: int = 0
    trouble: str = ""
    _said: str = ""
    _offset: int = 0

    @property
    def status(self) -> int:
        """1 where findings were written; 2 where nobody watches, though nobody said goodbye."""
        if self.num_lines or any(self._violations().values()):
            return 1
        return 2 if self.trouble else 0

    def news(self, silent_s: float) -> Iterator[str]:
        """What has changed since the last time, in lines."""
        self.value = self._read_status()
        yield from self._findings()
        self.trouble = self._trouble(silent_s)
        # A row is told when its state changes, and not each second that it goes on.
        said = f"{self.value.get('state')} {self.trouble.partition(' ')[0]}"
        if said != self._said:
            yield self._row()
            self._said = said

    def _read_status(self) -> dict[str, Any]:
        path = self.place / "status.json"
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise WatchFolderError(f"cannot read {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise WatchFolderError(
                f"{path} is not the status of a watch: it is not JSON ({cut(str(error), 200)})"
            ) from error
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise WatchFolderError(
                f'{path} is not the status of a watch: it lacks "format": "{FORMAT}"'
            )
        version = value.get("version")
        if not isinstance(version, int) or version > VERSION:
            raise WatchFolderError(
                f"{path} has version {shown(version)}, this Poolproof reads up to {VERSION}; "
                "upgrade Poolproof to read it"
            )
        return value

    def _findings(self) -> Iterator[str]:
        """The lines that were added; one that is not whole yet is left for the next time."""
        path = self.place / "findings.jsonl"
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                while line := file.readline(_MOST_OF_A_LINE):
                    if not line.endswith(b"\n"):
                        return
                    self._offset += len(line)
                    self.num_lines += 1
                    yield f"{self.place.name}: {_sentence(line)}"
        except FileNotFoundError:
            return
        except OSError as error:
            raise WatchFolderError(f"cannot read {path}: {error.strerror or error}") from error

    def _trouble(self, silent_s: float) -> str:
        """Why nobody watches this engine just now; "" where somebody does, or it has ended."""
        state = self.value.get("state")
        if state == "off":
            return f"the watch is off, the engine goes on: {self.value.get('reason')}"
        if state != "watching":
            return ""
        if not _is_running(self.value.get("pid")):
            return "dead: its process is gone and did not say goodbye"
        age_s = _age_s(self.value.get("written"))
        if age_s is not None and age_s >= silent_s:
            return f"silent for {age_s:.0f} s: no step was scheduled, or the engine hangs"
        return ""

    def _row(self) -> str:
        line = self.value.get("line")  # it begins with the state
        known = line if isinstance(line, str) and line else _counts(self.value)
        dropped = _mapping(self.value, "findings").get("dropped")
        more = f"; {dropped} findings beyond the cap" if dropped else ""
        return f"{self.place.name}: {self.trouble}{'; ' if self.trouble else ''}{known}{more}"

    def _violations(self) -> dict[str, Any]:
        return _mapping(self.value, "violations")


def _counts(value: Mapping[str, Any]) -> str:
    counts = _mapping(value, "counts")
    found = ", ".join(f"{name} {n}" for name, n in _mapping(value, "violations").items() if n)
    return f"{value.get('state')}: {counts.get('steps', 0)} steps, {found or 'no violation'}"


def _mapping(value: Mapping[str, Any], name: str) -> dict[str, Any]:
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def _sentence(line: bytes) -> str:
    try:
        value = json.loads(line)
        return f"{value['invariant']}: {value['sentence']}"
    except (ValueError, KeyError, TypeError):
        return f"a finding that cannot be read: {shown(line)}"


def _is_running(pid: object) -> bool:
    """Whether there is such a process; yes where that cannot be asked."""
    if isinstance(pid, bool) or not isinstance(pid, int) or pid < 1:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _age_s(written: object) -> float | None:
    try:
        then = datetime.fromisoformat(str(written).replace("Z", "+00:00"))
    except ValueError:
        return None
    if then.tzinfo is None:
        then = then.replace(tzinfo=timezone.utc)
    return (datetime.now(timezone.utc) - then).total_seconds()
