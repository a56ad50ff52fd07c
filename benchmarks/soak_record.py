"""What soaks have shown, in one JSON file that adds up: a run of the command is one entry.

Runs are known by their seed, so that records of several machines are put together without counting
anything twice. Also here: the memory of a worker over its life, and its slope.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from poolproof.contract.trace import write_atomically

__all__ = ["Memory", "Record", "RecordError", "Run", "slope"]

MOST_SAMPLES = 1_000
"""Beyond so many every second one is dropped: what counts is the slope over hours."""

Sample = tuple[int, int]
"""Steps that the worker had done, and the memory that it then occupied, in KiB."""


class RecordError(Exception):
    """A record that cannot be used; the message names the file and the cause."""


@dataclass
class Memory:
    """A worker's resident memory over its life: the most, and the curve between slices."""

    num_samples: int = 0
    longest_gap_s: float = 0.0
    seconds: float = 0.0
    most_kib: int = 0
    samples: list[Sample] = field(default_factory=list)
    _at_rest: int = 0
    _every: int = 1

    def add(self, seconds: float, sample: Sample, *, at_rest: bool) -> None:
        """Note a sample taken so long after the worker's start."""
        self.longest_gap_s = max(self.longest_gap_s, seconds - self.seconds)
        self.seconds = seconds
        self.num_samples += 1
        self.most_kib = max(self.most_kib, sample[1])
        if not at_rest:
            return
        if self._at_rest % self._every == 0:
            self.samples.append(sample)
        self._at_rest += 1
        if len(self.samples) > MOST_SAMPLES:
            self.samples = self.samples[::2]
            self._every *= 2

    def second_half(self) -> list[Sample]:
        """The samples of the second half of the steps."""
        return [sample for sample in self.samples if 2 * sample[0] >= self.samples[-1][0]]

    def to_json(self) -> dict[str, Any]:
        """The figures, and the curve that they come from."""
        late = self.second_half()
        return {
            "seconds": round(self.seconds, 1),
            "steps": self.samples[-1][0] if self.samples else 0,
            "samples_taken": self.num_samples,
            "longest_gap_s": round(self.longest_gap_s, 1),
            "most_kib": self.most_kib,
            "kib_at_half": late[0][1] if late else None,
            "kib_at_end": late[-1][1] if late else None,
            "slope_kib_per_million_steps": slope(late),
            "curve": self.samples,
        }


def slope(samples: list[Sample]) -> float | None:
    """The least-squares line through the samples, in KiB for a million steps."""
    if len({steps for steps, _ in samples}) < 2:
        return None
    mean_steps = sum(steps for steps, _ in samples) / len(samples)
    mean_kib = sum(kib for _, kib in samples) / len(samples)
    over = sum((steps - mean_steps) * (kib - mean_kib) for steps, kib in samples)
    return round(1e6 * over / sum((steps - mean_steps) ** 2 for steps, _ in samples), 3)


@dataclass
class Run:
    """One run of the command.

    `done` counts steps, runs and slices by level, driver and implementation. `alarms` are failing
    traces, which correct implementations must not have; `lost` says which workers died, and how.
    """

    seed: str
    began: str
    python: str
    machine: str
    processors: int | None
    seconds: float = 0.0
    done: dict[tuple[str, str, str], list[int]] = field(default_factory=dict)
    alarms: list[dict[str, Any]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    workers: list[Memory] = field(default_factory=list)

    @property
    def num_steps(self) -> int:
        """All its checked steps."""
        return sum(steps for steps, _, _ in self.done.values())

    def count(self, key: tuple[str, str, str], num_steps: int, num_runs: int) -> None:
        """Note a slice."""
        row = self.done.setdefault(key, [0, 0, 0])
        for place, number in enumerate((num_steps, num_runs, 1)):
            row[place] += number

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        values = asdict(self)
        values["seconds"] = round(self.seconds, 1)
        values["workers"] = [memory.to_json() for memory in self.workers if memory.samples]
        values["done"] = [
            {"level": level, "driver": driver, "implementation": name,
             "steps": steps, "runs": runs, "slices": slices}
            for (level, driver, name), (steps, runs, slices) in sorted(self.done.items())
        ]  # fmt: skip
        return values


class Record:
    """The file: the runs that it held before, and this one. Raises RecordError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.runs = _runs_of(path) if path.exists() else {}

    def add(self, other: Path) -> None:
        """Take in the runs of another record, or what came since of those that are here."""
        for seed, run in _runs_of(other).items():
            known = self.runs.get(seed)
            if known is None or known["seconds"] < run["seconds"]:
                self.runs[seed] = run

    def write(self, run: Run | None = None) -> None:
        """Put the run, as far as it has come, beside the others. Raises OSError."""
        if run is not None:
            self.runs[run.seed] = run.to_json()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        record = {
            "steps": self.total("steps"),
            "runs_driven": self.total("runs"),
            "alarms": sum(len(one["alarms"]) for one in self.runs.values()),
            "lost_workers": sum(len(one["lost"]) for one in self.runs.values()),
            "runs": list(self.runs.values()),
        }
        write_atomically(self.path, json.dumps(record, indent=1) + "\n")

    def total(self, what: str) -> int:
        """Steps, runs or slices over all runs of the command."""
        return sum(int(row[what]) for one in self.runs.values() for row in one["done"])


def _runs_of(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {run["seed"]: run for run in found["runs"]}
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(
            f"{path} is no record of a soak ({error!r}); move it away or name another with --json"
        ) from error
