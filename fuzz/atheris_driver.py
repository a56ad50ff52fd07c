"""Lets libFuzzer make a worker's tapes, through Atheris, for targets with native code.

libFuzzer sees branches and comparisons inside compiled code, where the states that a campaign
counts show nothing. It never returns from `Fuzz()` and owns the loop, so it runs in a thread of
the worker; its callback hands each order's report to the worker's own thread and waits there
for the next order. Everything else is as for other workers: the tape in progress is in the black
box, the watchman ends what hangs, a crash costs the process, and the run is repeated without
libFuzzer to learn which command it was. Its corpus is a folder next to the black boxes, which gets
the campaign's tapes as files; tapes that libFuzzer makes and that visit new states are reported
like any other.

A process can run only one libFuzzer, and each needs a process of its own.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from types import FunctionType

from poolproof.fuzz.black_box import open_black_box
from poolproof.fuzz.merge import name_of
from poolproof.fuzz.messages import CorpusTape, WorkerOrder, WorkerReport, check_version
from poolproof.fuzz.recorded_choices import MOST_ANSWERS
from poolproof.fuzz.subject import LoadedTarget
from poolproof.fuzz.target_files import files_of
from poolproof.fuzz.worker import CampaignWorker, Round
from poolproof.harness.isolation import Beacon

__all__ = ["STRATEGY", "is_installed", "work_with_atheris"]

STRATEGY = "libfuzzer"
"""What the tapes that libFuzzer makes are counted under."""

_CORPUS = "corpus"

_SIGNALS = ("segv", "bus", "abrt", "ill", "fpe", "int", "term", "xfsz", "usr1", "usr2")

_fuzzing: list[_Fuzzer] = []


def is_installed() -> bool:
    """Whether Atheris can be imported."""
    try:
        import atheris
    except ImportError:
        return False
    return hasattr(atheris, "Fuzz")


def work_with_atheris(target: LoadedTarget, order: WorkerOrder, beacon: Beacon) -> WorkerReport:
    """One order, carried out by this process's libFuzzer: a job for an isolation."""
    check_version(order, "the coordinator")
    beacon.bump()
    if not _fuzzing:
        _fuzzing.append(_Fuzzer(target, order))
    return _fuzzing[0].carry_out(order, beacon)


class _Fuzzer:
    """libFuzzer in its thread, and what it shares with the thread of the worker."""

    def __init__(self, target: LoadedTarget, order: WorkerOrder) -> None:
        black_box = Path(order.black_box)
        self._worker = CampaignWorker(target, order, open_black_box(black_box))
        self._corpus = black_box.with_name(_CORPUS)
        self._corpus.mkdir(exist_ok=True)
        self._files = {str(path) for path in files_of(target, order.settings.driven_level)}
        self._seed = 1 + order.settings.seed
        self._orders: SimpleQueue[tuple[WorkerOrder, Beacon]] = SimpleQueue()
        self._answers: SimpleQueue[WorkerReport | BaseException] = SimpleQueue()
        self._round: Round | None = None
        self._beacon: Beacon | None = None
        self._thread = threading.Thread(target=self._fuzz, name=STRATEGY, daemon=True)

    def carry_out(self, order: WorkerOrder, beacon: Beacon) -> WorkerReport:
        """Hand over an order and wait for its report."""
        # Read at once where libFuzzer begins, and within a second where it is at work.
        self._write(order.tapes)
        self._orders.put((order, beacon))
        if not self._thread.is_alive():
            self._thread.start()
        answer = self._answers.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _write(self, tapes: Iterable[CorpusTape]) -> None:
        for tape in tapes:
            path = self._corpus / name_of(tape.tape)
            if not path.exists():
                path.write_bytes(tape.tape)

    def _fuzz(self) -> None:
        """The thread: ends with the process."""
        try:
            import atheris

            for function in dict.fromkeys(_functions_in(self._files)):
                atheris.instrument_func(function)
            atheris.Setup(self._arguments(), self._one_input)
            # Atheris sets handlers as it begins, which Python refuses to a thread; the worker's own
            # thread waits, and the watchman ends this process without asking.
            signal.signal = _no_handler  # type: ignore[assignment]  # never called for its result
            atheris.Fuzz()
        except BaseException as error:
            # Raised again where it is heard.
            self._answers.put(error)

    def _arguments(self) -> list[str]:
        """The isolation handles limits and signals; libFuzzer's own would get in its way."""
        return [
            "poolproof",
            f"-seed={self._seed}",
            f"-max_len={2 * MOST_ANSWERS}",
            "-len_control=0",
            "-use_value_profile=1",
            "-reload=1",
            "-timeout=0",
            "-rss_limit_mb=0",
            "-detect_leaks=0",
            "-verbosity=0",
            *(f"-handle_{name}=0" for name in _SIGNALS),
            str(self._corpus),
        ]

    def _one_input(self, tape: bytes) -> None:
        """What libFuzzer calls with each input that it makes."""
        try:
            if self._round is None:
                order, self._beacon = self._orders.get()
                self._round = self._worker.begin(order)
            assert self._beacon is not None
            self._worker.drive(self._round, tape, STRATEGY, self._beacon)
            if self._round.is_over:
                done, self._round = self._round, None
                self._answers.put(self._worker.report(done))
        except BaseException as error:
            # libFuzzer would take it for a crash of the target, and end the process.
            self._round = None
            self._answers.put(error)


def _no_handler(_number: object, handler: object) -> object:
    return handler


def _functions_in(files: set[str]) -> Iterator[FunctionType]:
    """The functions and methods of the target that are written in Python."""
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if not isinstance(path, str) or str(Path(path).resolve()) not in files:
            continue
        values = list(vars(module).values())
        for cls in [value for value in values if isinstance(value, type)]:
            values += vars(cls).values() if cls.__module__ == module.__name__ else ()
        for value in values:
            function = getattr(value, "fget", getattr(value, "__func__", value))
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                yield function
