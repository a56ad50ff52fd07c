"""Hours of checked steps on correct implementations: no false alarm, and memory that stays flat.

Each worker is a process that lives as long as the run. In slices of some seconds it draws a subject
(`soak_subjects.py`) and drives it with seeds of its own. Its memory is sampled on the way, and at
rest, when the slice and what it made are gone. After each slice the record is written, so a kill
loses one slice a worker; the next run adds to it.

Exit status 1 for a false alarm or a lost worker; traces of alarms are written beside the record.

Usage: python benchmarks/soak.py [--seconds S] [--workers N] [--seed TEXT] [--record]
       python benchmarks/soak.py --add FILE [--record]    take in another machine's record
"""

from __future__ import annotations

import argparse
import datetime as dt
import fcntl
import gc
import multiprocessing
import os
import platform
import random
import secrets
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from record import add_destination
from soak_record import Memory, Record, RecordError, Run, Sample
from soak_subjects import Slice, drawn_subject, drive, subjects

from poolproof.contract.trace import Trace, write_trace

SLICE_S = 10.0
SAMPLE_EVERY_S = 5.0
STATM = Path("/proc/self/statm")

Samples = list[tuple[float, Sample, bool]]
"""After so many seconds so much memory was occupied, at rest or not."""


def resident_kib() -> int:
    """The memory that this process occupies."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


class Worker:
    """What a worker process does: slices until the time is over, each told to the parent."""

    def __init__(self, name: str, seconds: float, slice_s: float) -> None:
        self._name = name
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self._slice_s = slice_s
        self._num_steps = 0
        self._samples: Samples = []
        self._sampled_at = 0.0

    def slices(self) -> Iterator[tuple[Slice, Samples]]:
        """Drive slice after slice."""
        every = subjects()
        self._sample(at_rest=True)
        for number in range(1 << 40):
            if time.monotonic() >= self._ends:
                return
            source = random.Random(f"{self._name}/{number}")
            subject = drawn_subject(every, source)
            until = min(time.monotonic() + self._slice_s, self._ends)
            found = drive(subject, source, until, self._tick)
            gc.collect()
            self._sample(at_rest=True)
            yield found, self._samples
            self._samples = []

    def _tick(self, num_steps: int) -> None:
        self._num_steps += num_steps
        if time.monotonic() - self._sampled_at > SAMPLE_EVERY_S:
            self._sample(at_rest=False)

    def _sample(self, *, at_rest: bool) -> None:
        self._sampled_at = time.monotonic()
        sample = (self._num_steps, resident_kib())
        self._samples.append((self._sampled_at - self._began, sample, at_rest))


def work(to_parent: Connection, name: str, seconds: float, slice_s: float) -> None:
    """The body of a worker process. What it raises ends it, and its exit code tells the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    parent = os.getppid()
    for found, samples in Worker(name, seconds, slice_s).slices():
        if os.getppid() != parent:
            return  # The parent was killed; the pipe may stand open in the other workers.
        key = (found.subject.level, found.subject.driver, found.subject.implementation)
        counts = (found.num_steps, found.num_runs)
        to_parent.send((key, found.name, found.seed, counts, found.traces, samples))


class Soak:
    """One run of the command, seen from the parent."""

    def __init__(self, record: Record, run: Run, slice_s: float = SLICE_S) -> None:
        self._record = record
        self._run = run
        self._slice_s = slice_s
        self._began = time.monotonic()
        self._last_steps: dict[tuple[str, str, str], int] = {}

    def go(self, num_workers: int, seconds: float) -> None:
        """Start the workers and take in what they bring, until all have ended."""
        context = multiprocessing.get_context("fork")
        working: dict[Connection, tuple[int, BaseProcess]] = {}
        for number in range(num_workers):
            mine, theirs = context.Pipe(duplex=False)
            name = f"{self._run.seed}/{number}"
            child = context.Process(target=work, args=(theirs, name, seconds, self._slice_s))
            child.start()
            theirs.close()
            working[mine] = (number, child)
            self._run.workers.append(Memory())
        try:
            while working:
                for ready in wait(list(working)):
                    assert isinstance(ready, Connection)
                    if not self._hear(ready, *working[ready]):
                        ready.close()
                        working.pop(ready)[1].join()
        finally:
            for connection, (_, child) in working.items():
                connection.close()
                child.terminate()
                child.join()

    def _hear(self, connection: Connection, number: int, child: BaseProcess) -> bool:
        """Take in a slice; whether the worker goes on."""
        try:
            key, name, seed, (num_steps, num_runs), traces, samples = connection.recv()
        except EOFError:
            child.join()
            if child.exitcode:
                lost = f"worker {number} ended with exit code {child.exitcode}"
                self._run.lost.append(lost)
                print(lost, file=sys.stderr)
                self._write()
            return False
        self._run.count(key, num_steps, num_runs)
        memory = self._run.workers[number]
        for seconds, sample, at_rest in samples:
            memory.add(seconds, sample, at_rest=at_rest)
        for place, trace in enumerate(traces):
            self._alarm(trace, f"{name}, {key[1]}, seed {seed}", f"{seed}-{place}")
        self._write()
        steps, kib = samples[-1][1]
        print(
            f"{self._run.seconds:8,.0f} s {self._run.num_steps:14,} steps; worker {number}: "
            f"{steps:,} steps, {kib:,} KiB; {', '.join(key)}",
            flush=True,
        )
        return True

    def _alarm(self, trace: Trace, subject: str, file_name: str) -> None:
        path = self._record.path.with_suffix(f".alarm-{file_name}.jsonl")
        write_trace(trace, path)
        violation = str(trace.violation)
        self._run.alarms.append({"subject": subject, "violation": violation, "trace": path.name})
        print(f"FALSE ALARM: {subject}: {violation} (trace in {path})", file=sys.stderr)

    def _write(self) -> None:
        self._run.seconds = time.monotonic() - self._began
        self._record.write(self._run)


@contextmanager
def alone(record: Path) -> Iterator[None]:
    """One soak writes into a folder at a time. Raises RecordError where another does."""
    record.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(record.parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise RecordError(
            f"another soak writes into {record.parent}; name another folder with --json"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)


def main() -> int:
    """Soak, or put two records together."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--slice", type=float, default=SLICE_S, help="seconds of one slice")
    parser.add_argument("--seed", default="", help="default: a new one")
    add_destination(parser, "soak")
    parser.add_argument("--add", type=Path, metavar="FILE", help="take in this record and end")
    options = parser.parse_args()
    if options.workers < 1 or options.seconds <= 0:
        parser.error("--workers must be 1 or more, --seconds more than 0")
    if not STATM.exists():
        parser.error(f"{STATM} is not here, so memory cannot be sampled; a soak needs Linux")
    # A stop is an end like another: workers are ended, and what they had told is on disk.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with alone(options.json):
            record = Record(options.json)
            if options.add is not None:
                record.add(options.add)
                record.write()
                return 0
            run = new_run(options.seed or secrets.token_hex(6))
            if run.seed in record.runs:
                parser.error(f"--seed {run.seed} is in {options.json} already")
            Soak(record, run, options.slice).go(options.workers, options.seconds)
    except (RecordError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(f"{run.num_steps:,} steps in this run, {record.total('steps'):,} in the record, "
          f"{len(run.alarms)} false alarms")  # fmt: skip
    return 1 if run.alarms or run.lost else 0


def new_run(seed: str) -> Run:
    """A run that begins now, here."""
    began = dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds")
    return Run(seed, began, platform.python_version(), platform.machine(), os.cpu_count())


if __name__ == "__main__":
    sys.exit(main())
