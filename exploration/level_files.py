"""A folder that keeps an exploration, so that a long one can be continued after any interruption.

`level-NNNN.states` holds the states that are NNNN transitions away, joined; `exploration.json` the
counts of the levels that are complete. A level's file is written whole before the counts name it,
so what the counts name is there, whenever the power fails. Reading runs no code from the folder.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from poolproof.contract.trace import write_atomically
from poolproof.exploration.breadth_first import Exploration, SearchLevel, Space
from poolproof.exploration.scope import ExplorationError

__all__ = ["LevelFiles", "ResumeError"]

FORMAT, VERSION = "poolproof-exploration", 1
_STATES_AT_ONCE = 1 << 16


class ResumeError(ExplorationError):
    """A folder that cannot be continued; the message says which and why."""


class LevelFiles:
    """The files of one exploration in `folder`, which is made if it is not there."""

    def __init__(self, folder: Path, space: Space) -> None:
        self._folder = folder
        self._space = space
        self._counts = folder / "exploration.json"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResumeError(f"cannot make folder {folder}: {error.strerror}") from error

    def earlier(self) -> Exploration | None:
        """The exploration that the folder holds, or None. Raises ResumeError."""
        if not self._counts.exists():
            return None
        try:
            kept = json.loads(self._counts.read_text(encoding="utf-8"))
            if kept["format"] != FORMAT or kept["version"] != VERSION:
                raise ResumeError(f"{self._counts} is of another format than this Poolproof's")
            if kept["of"] != self._of():
                raise ResumeError(
                    f"{self._folder} holds an exploration of {kept['of']}, not of {self._of()}; "
                    "give the same bounds, or another folder"
                )
            levels = [_level(level) for level in kept["levels"]]
            found = Exploration(
                self._space.scope, self._space.has_symmetry, levels, seconds=float(kept["seconds"])
            )
            sizes = [*(level.num_found for level in levels), int(kept["frontier"])]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ResumeError(f"{self._counts} cannot be read: {error!r}; remove it") from error
        if sizes[-1] == 0:
            found.stopped = "complete"
            return found
        for number, size in enumerate(sizes):
            path = self._path(number)
            if not path.is_file() or path.stat().st_size != size * self._space.width:
                raise ResumeError(f"{path} does not hold its {size:,} states; remove the folder")
        return found

    def levels(self, found: Exploration) -> list[Iterator[bytes]]:
        """The states of each level, the one to be expanded last."""
        return [self._states(number) for number in range(len(found.levels) + 1)]

    def keep(self, found: Exploration, frontier: Iterable[bytes]) -> None:
        """Write what a complete level led to, then the counts."""
        path = self._path(len(found.levels))
        partial = path.with_suffix(".partial")
        size = 0
        try:
            with partial.open("wb") as file:
                for state in frontier:
                    file.write(state)
                    size += 1
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            if len(found.levels) == 1:
                self._path(0).write_bytes(self._space.initial())
            write_atomically(self._counts, json.dumps(self._as_json(found, size), indent=1) + "\n")
        except OSError as error:
            raise ResumeError(f"cannot write into {self._folder}: {error.strerror}") from error

    def _as_json(self, found: Exploration, frontier: int) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "of": self._of(),
            "levels": [_as_json(level) for level in found.levels],
            "seconds": round(found.seconds, 3),
            "frontier": frontier,
        }

    def _of(self) -> str:
        scope = self._space.scope
        what = "orbits" if self._space.has_symmetry else "states"
        return f"{what} of {scope}; {scope.rules}; {', '.join(scope.verbs)}"

    def _path(self, number: int) -> Path:
        return self._folder / f"level-{number:04}.states"

    def _states(self, number: int) -> Iterator[bytes]:
        width = self._space.width
        with self._path(number).open("rb") as file:
            while joined := file.read(width * _STATES_AT_ONCE):
                for place in range(0, len(joined), width):
                    yield joined[place : place + width]


def _as_json(level: SearchLevel) -> dict[str, Any]:
    return {
        "num_found": level.num_found,
        "num_states": level.num_states,
        "num_transitions": level.num_transitions,
        "fired": dict(level.fired),
        "new": dict(level.new),
    }


def _level(kept: Any) -> SearchLevel:
    return SearchLevel(
        int(kept["num_found"]),
        int(kept["num_states"]),
        int(kept["num_transitions"]),
        Counter({str(verb): int(number) for verb, number in kept["fired"].items()}),
        Counter({str(verb): int(number) for verb, number in kept["new"].items()}),
    )
