"""The minimiser's candidates that cost their worker, and which others would as well.

A lost worker leaves only a number. Running the candidate on the reference, which answers as the
target should have, shows which commands it had reached. A hang costs its whole time limit, and a
minimiser reaches the same commands in several ways, so candidates known to cost a worker are not
tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from poolproof.certification.right_target import right_target
from poolproof.contract.commands import Command
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Violation
from poolproof.harness.isolation import Lost
from poolproof.harness.lost_run import as_violation
from poolproof.harness.minimise import Attempt, run_candidate
from poolproof.harness.relative import RelativeCommand

__all__ = ["LostCandidates"]

Candidate = Sequence[RelativeCommand | Command]


@dataclass(frozen=True, slots=True)
class _Known:
    """A candidate that was lost: its set-up, all of its commands, how many of them it came to."""

    setup: Trace
    commands: tuple[Command, ...]
    num_reached: int
    violation: Violation


class _OtherwiseError(Exception):
    """The commands are not those of any candidate that was lost."""


class LostCandidates:
    """The candidates of one minimisation that were lost."""

    def __init__(self) -> None:
        self._known: list[_Known] = []

    def lost(self, setup: Trace, candidate: Candidate, num_reached: int, lost: Lost) -> Attempt:
        """Note a candidate that was lost at its command number `num_reached`, from 1."""
        whole = run_candidate(setup, candidate, right_target(setup))
        reached = setup.with_commands(whole.commands[:num_reached])
        violation = as_violation(reached, lost)
        self._known.append(_Known(setup.with_commands(()), whole.commands, num_reached, violation))
        return Attempt(whole.relative[:num_reached], reached.commands, violation)

    def foretold(self, setup: Trace, candidate: Candidate) -> Attempt | None:
        """The outcome of a candidate that gives the same commands as one that was lost."""
        bare, place = setup.with_commands(()), 0
        alike = [known for known in self._known if known.setup == bare]

        def announce(command: Command) -> None:
            nonlocal alike, place
            alike = [known for known in alike if known.commands[place : place + 1] == (command,)]
            place += 1
            if not alike:
                raise _OtherwiseError

        if not alike:
            return None
        try:
            whole = run_candidate(setup, candidate, right_target(setup), announce)
        except _OtherwiseError:
            return None
        for known in alike:
            if len(known.commands) == len(whole.commands):
                reached = slice(known.num_reached)
                return Attempt(whole.relative[reached], whole.commands[reached], known.violation)
        return None
