"""The differential state machine: Hypothesis chooses the operations of the small engine.

`Machine.target` and `Machine.make_pool` are set on a subclass; see `machine_for`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import DataObject

from poolproof.kernels.serving.session import ServingSession
from poolproof.kernels.target import KernelTarget

__all__ = ["ServingMachine", "machine_for"]

_busy = precondition(lambda machine: bool(machine.session.engine.requests))


class ServingMachine(RuleBasedStateMachine):
    """One rule for each operation; a wrong output raises WrongOutputError."""

    target: ClassVar[KernelTarget]
    make_pool: ClassVar[Callable[[int], Any]]

    @initialize(data=st.data())
    def build(self, data: DataObject) -> None:
        """A pool, a model and an empty engine."""

        def choose(count: int) -> int:
            return data.draw(st.integers(0, count - 1))

        cls = type(self)
        self.session = ServingSession(cls.target, cls.make_pool, choose)

    @rule()
    def admit(self) -> None:
        self.session.admit()

    @_busy
    @rule()
    def step(self) -> None:
        self.session.step()

    @_busy
    @rule()
    def fork(self) -> None:
        self.session.fork()

    @_busy
    @rule()
    def swap_out(self) -> None:
        self.session.swap_out()

    @_busy
    @rule()
    def swap_in(self) -> None:
        self.session.swap_in()

    @_busy
    @rule()
    def finish(self) -> None:
        self.session.finish()

    @rule()
    def resume(self) -> None:
        self.session.resume()


def machine_for(target: KernelTarget, make_pool: Callable[[int], Any]) -> type[ServingMachine]:
    """The machine over one kernel and one kind of pool."""
    members = {"target": target, "make_pool": staticmethod(make_pool)}
    return type("ServingMachineOfTarget", (ServingMachine,), members)
