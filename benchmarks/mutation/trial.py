"""One mutant, tried: a forked child puts its code in place and runs tests until one fails.

The child inherits modules and collected tests, so that a mutant costs milliseconds. Only the code
and the defaults of one function change: what a module did with it when it was imported stays done.
A child that takes too much memory or processor time, as endless loops do, counts as caught.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

import pytest
from mutants import Mutant

__all__ = ["Trial", "code_of", "forked", "function_in", "tried"]

MOST_BYTES = 3 << 30
# Processor time of one test: a mutant may be slower than the code, within reason.
MOST_TIMES_SLOWER = 10
LEAST_LIMIT_S = 1


@dataclass(frozen=True)
class Trial:
    """What became of a mutant."""

    verdict: str  # killed, timeout, survived, unreached
    killer: str | None = None  # the test that failed


def function_in(namespace: Mapping[str, Any], name: str) -> FunctionType:
    """The plain function behind a name such as Class.method."""
    owner, _, method = name.rpartition(".")
    found = vars(namespace[owner])[method] if owner else namespace[method]
    for attribute in ("fget", "__func__"):
        found = getattr(found, attribute, None) or found
    assert isinstance(found, FunctionType), (name, found)
    return found


def code_of(function: CodeType) -> list[CodeType]:
    """A function's own code and that of everything defined inside it."""
    inner = [
        part
        for const in function.co_consts
        if isinstance(const, CodeType)
        for part in code_of(const)
    ]
    return [function, *inner]


def put_in_place(module: Any, name: str, mutated: FunctionType) -> None:
    """Give a function of a module the code of another, for everybody who has it already."""
    function = function_in(vars(module), name)
    if mutated.__code__.co_freevars != function.__code__.co_freevars:
        # The last use of super() has gone, and with it the cell: a function of its own is needed.
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
        closure = tuple(cells[free] for free in mutated.__code__.co_freevars)
        owner, _, method = name.rpartition(".")
        new = FunctionType(mutated.__code__, vars(module), method, function.__defaults__, closure)
        new.__kwdefaults__ = function.__kwdefaults__
        setattr(vars(module)[owner], method, new)
        return
    function.__code__ = mutated.__code__
    if mutated.__defaults__ != function.__defaults__:
        function.__defaults__ = mutated.__defaults__
    if mutated.__kwdefaults__ != function.__kwdefaults__:
        function.__kwdefaults__ = mutated.__kwdefaults__


def tried(
    mutant: Mutant, module: Any, tests: Sequence[pytest.Item], cost_s: Mapping[str, float]
) -> Trial:
    """Try a mutant against tests, in their order."""
    if not tests:
        return Trial("unreached")

    def run(tell: int) -> None:
        try:
            namespace = {"__name__": module.__name__, "__file__": module.__file__}
            exec(compile(mutant.source, module.__file__, "exec"), namespace)  # noqa: S102 - a mutant is run, that is the point
            put_in_place(module, mutant.function, function_in(namespace, mutant.function))
        except Exception:  # noqa: BLE001 - whatever it is, it shows before any test
            os.write(tell, b"import\n")
            return
        failed = first_failure(tests, cost_s)
        if failed:
            os.write(tell, f"{failed}\n".encode())

    status, told = forked(run)
    if told:
        return Trial("killed", told.strip())
    if status == 0:
        return Trial("survived")
    return Trial("timeout" if os.WIFSIGNALED(status) else "killed")


def forked(run: Any) -> tuple[int, str]:
    """Call a function in a child: its exit status and what it wrote into the pipe it is given."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        _silence()
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        status = 1
        with contextlib.suppress(BaseException):
            run(writer)
            status = 0
        os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    return os.waitpid(child, 0)[1], text


def _silence() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)


class _Failures:
    """A plugin that keeps what failed."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)


def first_failure(tests: Sequence[pytest.Item], cost_s: Mapping[str, float]) -> str | None:
    """Run tests until one fails; its name."""
    failures = _Failures()
    config = tests[0].config
    config.pluginmanager.register(failures)
    for test, following in zip(tests, [*tests[1:], None]):
        # Processor time, so that a busy machine changes no verdict; nobody catches the signal.
        limit_s = max(LEAST_LIMIT_S, MOST_TIMES_SLOWER * cost_s.get(test.nodeid, 0))
        signal.setitimer(signal.ITIMER_PROF, limit_s)
        config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if failures.failed:
            break
    signal.setitimer(signal.ITIMER_PROF, 0)
    config.pluginmanager.unregister(failures)
    return failures.failed[0] if failures.failed else None
