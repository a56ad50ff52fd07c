"""What a state machine tells about itself while Hypothesis runs it, over all examples.

Hypothesis builds a new machine for every example and throws it away; the log is what remains. A
subclass may pass on what it hears, for instance to a parent process that must know the commands
of a target which crashed or hangs.
"""

from __future__ import annotations

from collections.abc import Iterable

from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.harness.extent import Extent

__all__ = ["MachineLog"]


class MachineLog:
    """Counts and facts of all examples so far, and the shortest failure among them.

    `measures_sizes` is False where sizes are formulas, not numbers: to compare two of them forks a
    symbolic run, and fails once the run is over.
    """

    def __init__(self) -> None:
        self.num_examples = 0
        self.num_steps = 0
        self.facts: set[str] = set()
        self.failure: Trace | None = None
        self.extent = Extent()
        self.measures_sizes = True
        self._setup: Trace | None = None
        self._commands: list[Command] = []

    def begin(self, setup: Trace) -> None:
        """An example begins with this set-up; its target is not built yet."""
        self.num_examples += 1
        self._setup, self._commands = setup, []

    def announce(self, command: Command) -> None:
        """A command is about to be applied."""
        self.num_steps += 1
        self._commands.append(command)

    def fail(self, trace: Trace) -> None:
        """An example failed with the violation in `trace`."""
        if self.failure is None or len(trace.commands) < len(self.failure.commands):
            self.failure = trace

    def end(self, facts: Iterable[str]) -> None:
        """An example is over, and has seen these facts."""
        self.facts.update(facts)
        if self._setup is not None and self.measures_sizes:
            self.extent.take_in(Extent.of_run(self._setup, self._commands))
