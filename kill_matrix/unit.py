"""A detector: the hand-written examples of `unit_examples/`, each on a fresh instance."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from poolproof.harness.isolation import Beacon
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.subject import MatrixSubject
from poolproof.kill_matrix.unit_examples.example import Book
from poolproof.kill_matrix.unit_examples.manager import MANAGER_EXAMPLES
from poolproof.kill_matrix.unit_examples.pool import POOL_EXAMPLES
from poolproof.kill_matrix.unit_examples.queue import QUEUE_EXAMPLES

__all__ = ["UNIT", "examples_for"]

_BOOKS: dict[str, Book] = {
    "queue": QUEUE_EXAMPLES,
    "pool": POOL_EXAMPLES,
    "manager": MANAGER_EXAMPLES,
}
_USABLE_BLOCKS = {"queue": 6, "pool": 6, "manager": 24}


class _Counted:
    """An instance whose calls are counted and shown to the watchman."""

    def __init__(self, instance: Any, block_size: int, beacon: Beacon) -> None:
        self._instance = instance
        self._beacon = beacon
        self.block_size = block_size
        self.num_calls = 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._instance, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            self.num_calls += 1
            self._beacon.bump()
            return found(*arguments, **named)

        return call


def examples_for(subject: MatrixSubject) -> Book:
    """The examples of the subject's level; those that do not suit it are left out when they run."""
    return _BOOKS[subject.level]


def _build(subject: MatrixSubject, beacon: Beacon) -> _Counted:
    null = subject.profile.null_block
    usable = _USABLE_BLOCKS[subject.level]
    num_blocks = usable if null is None else max(usable, null) + 1
    return _Counted(subject.make(num_blocks, True), subject.block_size, beacon)


def _run_examples(subject: MatrixSubject, _seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    steps = 0
    for example in examples_for(subject):
        instance = _build(subject, beacon)
        if not example.is_for(instance, subject.profile):
            continue
        failure = _failure(partial(example.run, instance, subject.profile))
        steps += instance.num_calls
        if failure is not None:
            seconds = time.process_time() - began
            note = f"{example.name}: {failure}"
            return SearchOutcome(True, steps, seconds, length=instance.num_calls, note=note)
    return SearchOutcome(False, steps, time.process_time() - began)


def _failure(run: Callable[[], None]) -> str | None:
    """How an example failed, or None."""
    try:
        run()
    except AssertionError as error:
        return str(error) or "another answer was expected"
    except Exception as error:  # noqa: BLE001 - a planted bug may raise anything
        return f"it raised {type(error).__name__}"
    return None


UNIT = Detector(
    "unit",
    "hand-written examples, as an engine's own unit tests hold",
    _run_examples,
    is_seeded=False,
)
