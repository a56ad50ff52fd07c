"""The folder that a watch writes, by a thread of its own: docs/live.md says what stands in it.

The scheduler's thread only puts things into a queue. A disk that is full or a folder that may not
be written is told once, and everything else goes on. Files are replaced by a rename like those of
`contract.trace.write_atomically`, which is not used here: it asks for the umask by setting it, and
a server's other threads create files at the same time.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

__all__ = ["WatchFolder", "stamp"]

_MOST_INCIDENTS = 20
_EVERY_S = 1.0
_JOIN_S = 5.0


def stamp(compact: bool = False) -> str:
    """The time as the machine's clock says it."""
    now = datetime.now(timezone.utc)
    return now.strftime("%Y%m%dT%H%M%SZ" if compact else "%Y-%m-%dT%H:%M:%S.%fZ")


class WatchFolder:
    """One folder, and the thread that writes it until it is closed.

    `status` gives the status row; `tell` takes what cannot be written, once; `line` is called every
    `line_every_s` seconds. `failed` takes an exception that is our own.
    """

    def __init__(
        self,
        path: Path,
        status: Callable[[], dict[str, Any]],
        *,
        tell: Callable[[str], None],
        line: Callable[[], None],
        line_every_s: float,
        failed: Callable[[Exception], None],
    ) -> None:
        self.path = path
        self.num_written = 0
        self._status, self._tell, self._line, self._failed = status, tell, line, failed
        self._line_every_s = line_every_s
        self._items: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None]
        self._items = queue.SimpleQueue()
        self._has_told = self._is_closed = False
        self._last_step = -1
        self._thread = threading.Thread(target=self._run, name="poolproof-watch", daemon=True)
        self._attempt(self._make)
        self._attempt(self._write_status)
        self._thread.start()

    def add_finding(self, line: dict[str, Any]) -> None:
        """One line more in `findings.jsonl`."""
        self._items.put((self._write_finding, (line,)))

    def add_incident(self, number: int, incident: dict[str, Any], steps: list[Any]) -> None:
        """A folder for a finding, for the first ones."""
        if number <= _MOST_INCIDENTS:
            self._items.put((self._write_incident, (number, incident, steps)))

    def close(self, *, waits: bool = True) -> None:
        """Write what is left and the last row; where it `waits`, until that is done, or seconds."""
        if not self._is_closed:
            self._is_closed = True
            self._items.put(None)
        if waits and threading.current_thread() is not self._thread:
            self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            last_row_s = last_line_s = time.monotonic()
            while True:
                try:
                    item = self._items.get(timeout=_EVERY_S)
                except queue.Empty:
                    pass
                else:
                    if item is None:
                        self._attempt(self._write_status)
                        return
                    self._attempt(item[0], *item[1])
                now_s = time.monotonic()
                # A clock that goes back makes the row come early, never late.
                if not 0 <= now_s - last_row_s < _EVERY_S:
                    last_row_s = now_s
                    self._attempt(self._write_status_if_new)
                if not 0 <= now_s - last_line_s < self._line_every_s:
                    last_line_s = now_s
                    self._line()
        except Exception as error:  # noqa: BLE001 -- whatever it is, the server must not see it
            self._failed(error)
            with contextlib.suppress(Exception):
                self._write_status()

    def _attempt(self, write: Callable[..., None], *arguments: Any) -> None:
        try:
            write(*arguments)
        except OSError as error:
            if not self._has_told:
                self._has_told = True
                self._tell(
                    f"cannot write {error.filename or self.path}: {error.strerror or error}; the "
                    "watch goes on, and what it finds is logged"
                )

    def _make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def _write_status_if_new(self) -> None:
        row = self._status()
        if row["last_step"] != self._last_step or row["state"] != "watching":
            self._write_row(row)

    def _write_status(self) -> None:
        self._write_row(self._status())

    def _write_row(self, row: dict[str, Any]) -> None:
        _replace(self.path / "status.json", json.dumps(row, indent=1) + "\n")
        self._last_step = row["last_step"]

    def _write_finding(self, line: dict[str, Any]) -> None:
        with (self.path / "findings.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        self.num_written += 1
        self._write_status()

    def _write_incident(self, number: int, incident: dict[str, Any], steps: list[Any]) -> None:
        folder = self.path / "incidents"
        folder.mkdir(exist_ok=True)
        new, final = folder / f".{number:04d}", folder / f"{number:04d}"
        new.mkdir()
        (new / "incident.json").write_text(json.dumps(incident, indent=1) + "\n", "utf-8")
        lines = "".join(json.dumps(step) + "\n" for step in steps)
        (new / "steps.jsonl").write_text(lines, "utf-8")
        new.replace(final)


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
