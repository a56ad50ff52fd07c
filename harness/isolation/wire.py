"""What travels between the caller and a worker: a job with its argument, and the outcome.

A job travels by name, so it is a function of a module (or a `functools.partial` of one); arguments
and results are pickled. To read a result the caller imports nothing, least of all the target.
"""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from poolproof.contract.errors import known_class
from poolproof.contract.outside import class_name, cut, said_by
from poolproof.harness.isolation.beacon import Beacon
from poolproof.harness.isolation.outcome import Failed, Finished, Outcome, OutOfMemory, stack_of

__all__ = ["Job", "answer", "failure", "read_answer", "request"]

C = TypeVar("C")
A = TypeVar("A")
R = TypeVar("R")
_MOST_OF_A_MESSAGE = 10_000
_MOST_OF_A_TRACEBACK = 100_000
Job = Callable[[C, A, Beacon], R]
"""(what `prepare` returned, one argument, a beacon) -> a result that can be pickled."""


def request(job: Job[Any, A, Any], argument: A) -> bytes:
    """A call as bytes. Raises TypeError for a job that is not a function of a module."""
    try:
        pickle.dumps(job)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"{job!r} cannot be sent to another process; a job must be a function of a module"
        ) from error
    return pickle.dumps((job, argument))


def answer(received: bytes, context: Any, beacon: Beacon, memory_mib: int) -> bytes:
    """Carry out a call; return the outcome as bytes. SystemExit and its like are not caught."""
    outcome: Outcome[Any]
    try:
        job, argument = pickle.loads(received)  # noqa: S301 - from our own parent
        return pickle.dumps(Finished(job(context, argument, beacon)))
    except MemoryError as error:
        outcome = OutOfMemory(
            mib=memory_mib,
            progress=beacon.progress,
            mark=beacon.last_mark,
            output_tail=stack_of(error),
        )
    except Exception as error:
        outcome = failure(error)
    return pickle.dumps(outcome)


def failure(error: BaseException) -> Failed:
    """An exception as a value that any process can read."""
    try:
        trace = cut("".join(traceback.format_exception(error, limit=50)), _MOST_OF_A_TRACEBACK)
    except BaseException as another:  # it calls the exception's own methods
        trace = f"(the traceback cannot be shown: {class_name(another)})"
    said = said_by(error, _MOST_OF_A_MESSAGE)
    return Failed(class_name(error), said, trace, known_class(error))


def read_answer(received: bytes) -> Outcome[Any]:
    """Read the outcome from what a worker sent."""
    try:
        outcome: Outcome[Any] = _OnlyKnownClasses(io.BytesIO(received)).load()
    except Exception as error:
        return failure(error)
    return outcome


class _OnlyKnownClasses(pickle.Unpickler):
    """Refuses a result that holds an object of a module which this process has not imported."""

    def find_class(self, module: str, name: str) -> Any:
        top = module.partition(".")[0]
        known = module in sys.modules or top == "poolproof" or top in sys.stdlib_module_names
        if not known:
            raise pickle.UnpicklingError(
                f"the result holds a {module}.{name}; a job must return plain values"
            )
        return super().find_class(module, name)
