"""Hypothesis over the grammars: strategies for cases, and machines over the small engines.

A failing case shrinks towards one sequence of one key, float32, no options. One machine is over a
pool, one over a manager; what they drive is set on a subclass, see `machine_for` and
`manager_machine_for`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from hypothesis.strategies import DataObject

from poolproof.kernels.case import Case
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.grammar import draw_case
from poolproof.kernels.serving.manager_engine import ServedManager, windows_of
from poolproof.kernels.serving.manager_traffic import ManagerTraffic
from poolproof.kernels.serving.model import TinyModel
from poolproof.kernels.serving.pool_engine import ServingSession
from poolproof.kernels.target import KernelTarget

__all__ = ["ManagerServingMachine", "ServingMachine", "cases", "machine_for", "manager_machine_for"]


@st.composite
def cases(draw: st.DrawFn, allowed: Declaration | None = None) -> Case:
    """Cases that a target of this declaration supports; by default everything."""
    return draw_case(lambda count: draw(st.integers(0, count - 1)), allowed or Declaration())


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


class ManagerServingMachine(RuleBasedStateMachine):
    """Each step is one legal command; a wrong output raises WrongOutputError."""

    target: ClassVar[KernelTarget]
    served: ClassVar[ServedManager]
    block_size: ClassVar[int] = 4

    @initialize(data=st.data())
    def build(self, data: DataObject) -> None:
        """A manager, a model and an empty engine."""

        def choose(count: int) -> int:
            return data.draw(st.integers(0, count - 1))

        cls = type(self)
        profile = cls.served.profile
        num_blocks = 5 + choose(6) + (profile.null_block is not None)
        model = TinyModel.random(2, 1, 16, choose(100), windows_of(profile))
        engine = cls.served.engine(cls.target, num_blocks, cls.block_size, model)
        self.session = ManagerTraffic(engine, choose, lambda command: note(str(command)))

    @rule()
    def command(self) -> None:
        """The session chooses the command, which is noted."""
        self.session.next()

    @rule()
    def look(self) -> None:
        """Compute one more token of every sequence."""
        self.session.look()


def manager_machine_for(target: KernelTarget, served: ServedManager) -> type[ManagerServingMachine]:
    """The machine over one kernel and one kind of manager."""
    members = {"target": target, "served": served}
    return type("ServingMachineOfManager", (ManagerServingMachine,), members)
