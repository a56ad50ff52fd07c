"""The child's side of a certification: loads the target, runs the checks that it is given.

It says what it is about to do before each example, so that the parent knows what cost it its life.
"""

from __future__ import annotations

import importlib
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from poolproof.contract.target import TargetError
from poolproof.kernels.job import Job

if TYPE_CHECKING:
    from poolproof.kernels.target import KernelTarget

__all__ = ["certify_checks", "run_child", "try_smaller_cases"]

Tell = Callable[[tuple[Any, ...]], None]
Work = Callable[[Any, Job], None]

NUM_CANARIES = 8


class _Told:
    """Passes what a certification says about itself to a function."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def begin(self, stage: str, total: int) -> None:
        self._tell(("begin", stage, total))

    def advance(self, steps: int) -> None:
        self._tell(("advance", steps))

    def case(self, check: str, case: Any) -> None:
        self._tell(("case", check, case.to_json(), case.words()))


def run_child(connection: Any, work: Work, job: Job) -> None:
    """A child's main function: `work` over a connection, and what it raises as a message."""
    # An interruption at the terminal reaches the parent, which ends the child.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        work(connection, job)
    except (BrokenPipeError, EOFError):
        return  # the parent is gone
    except (TargetError, ValueError) as error:
        connection.send(("error", str(error)))
    except Exception as error:  # noqa: BLE001 -- passed on to the parent, which raises it
        connection.send(("bug", "".join(traceback.format_exception(error))))


def certify_checks(connection: Any, job: Job) -> None:
    """Run the checks that the parent names, one after another, until it names none."""
    from poolproof.kernels.case import Case
    from poolproof.kernels.certification import certify_check, check_case, head_of
    from poolproof.kernels.checks.catalogue import CHECKS
    from poolproof.kernels.interpreter import missing_packages

    target = _loaded(job)
    tell = connection.send
    listener = _Told(tell)
    tell(("head", head_of(target, job.level, job.seed).to_json(), list(CHECKS)))
    has_ruler = target.device == "cpu" and not missing_packages()
    while (name := _asked(connection)) is not None:
        if name == "canaries":
            if has_ruler:
                listener.begin("checking the ruler", NUM_CANARIES)
            tell(("canaries", *(_canaries(listener) if has_ruler else ([], []))))
            continue
        if job.case is None:
            result = certify_check(target, name, job.level, job.seed, listener)
        else:
            result = check_case(target, name, Case.from_json(job.case), listener)
        tell(("result", result.line.to_json(), result.finding and result.finding.to_json(),
              result.ratios))  # fmt: skip
    tell(("end",))


def try_smaller_cases(connection: Any, job: Job) -> None:
    """Run one check on every smaller form of one case; each is told before it is tried."""
    from poolproof.kernels.case import Case
    from poolproof.kernels.certification import run_case
    from poolproof.kernels.checks.catalogue import CHECKS
    from poolproof.kernels.checks.shrink import smaller_cases

    target = _loaded(job)
    listener = _Told(connection.send)
    (name,) = job.checks
    assert job.case is not None
    for case in smaller_cases(Case.from_json(job.case), target.declaration):
        listener.case(name, case)
        run_case(target, CHECKS[name], case)
    connection.send(("end",))


def _asked(connection: Any) -> str | None:
    connection.send(("next",))
    name: str | None = connection.recv()
    return name


def _loaded(job: Job) -> KernelTarget:
    """The target of a job, with torch and Triton set up as a certification needs them."""
    import torch

    from poolproof.kernels.interpreter import choose_interpreter

    device = choose_interpreter(job.device)
    from poolproof.kernels.interpreter_speed import prepare_interpreter
    from poolproof.kernels.load import load_kernel

    prepare_interpreter()
    # Kernels this small lose more by threads than they gain.
    torch.set_num_threads(1)
    target = load_kernel(job.target, device, job.overrides)
    if job.pool is not None:
        target = replace(target, make_pool=_named(job.pool))
    if job.managers is not None:
        target = replace(target, managers=_named(job.managers)())
    return target


def _named(text: str) -> Any:
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def _canaries(listener: _Told) -> tuple[list[str], list[str]]:
    from poolproof.kernels.specimens.catalogue import CANARIES, SPECIMENS, catch

    caught: list[str] = []
    missed: list[str] = []
    for name in CANARIES:
        specimen = SPECIMENS[name]
        found: Mapping[str, int] = catch(specimen)
        (caught if len(found) == len(specimen.checks) else missed).append(
            f"{name}: {specimen.title}"
        )
        listener.advance(1)
    return caught, missed
