"""Two detectors: the plain driver of the harness, and Hypothesis's state machines.

Both are bounded as `certify --depth quick` bounds the machine and as its ruler bounds the driver,
so that a bug which they miss costs seconds.
"""

from __future__ import annotations

import time
from typing import Any

from poolproof.certification.jobs import Machine, campaign_of, make_for, run_machine_with
from poolproof.certification.ruler import MOST_RUNS
from poolproof.certification.run_kinds import Chunk, RunKind, manager_kind
from poolproof.contract.commands import Command
from poolproof.contract.depth import Depth
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.isolation import Beacon
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.subject import LAYOUT, MatrixSubject
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.manager_machine import ManagerMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

__all__ = [
    "HYPOTHESIS",
    "PLAIN",
    "CountingLog",
    "campaign_for",
    "kind_of",
    "minimised_length",
]

_MOST_ATTEMPTS = 1500
"""Attempts at a smaller trace: enough for most to come to an end."""


def kind_of(subject: MatrixSubject) -> RunKind:
    """The kind of its runs (`run_kinds.py`)."""
    return manager_kind(LAYOUT) if subject.level.has_sequences else RunKind(subject.level)


def campaign_for(subject: MatrixSubject, seed: int) -> Any:
    """The runs of the plain driver, with weak hashes where the bug needs them."""
    if subject.weak_hashes:
        assert isinstance(subject.profile, ManagerProfile)
        return ManagerCampaign(
            subject.id, subject.make, subject.profile, subject.block_size, seed, subject.options
        )
    return campaign_of(subject.target(), Chunk(kind_of(subject), seed, 0, 0))


def minimised_length(subject: MatrixSubject, trace: Trace, beacon: Beacon) -> int:
    """How many commands are left of a failing trace."""
    make = make_for(subject.target(), trace)
    smallest = minimise(
        trace,
        lambda setup, candidate: run_candidate(setup, candidate, make, beacon.bump),
        max_attempts=_MOST_ATTEMPTS,
    )
    # A trace that fails no more when it is replayed stays as it is.
    return len((smallest if smallest.violation is not None else trace).commands)


def _drive(subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    campaign = campaign_for(subject, seed)
    steps = 0
    for number in range(MOST_RUNS):
        run = campaign.run(number, beacon.bump)
        steps += run.num_steps
        trace = run.trace or run.collision
        if trace is not None:
            seconds = time.process_time() - began
            note = "" if run.trace else "reported as a collision of hashes"
            length = minimised_length(subject, trace, beacon)
            return SearchOutcome(True, steps, seconds, trace.violation.invariant, length, note)
    return SearchOutcome(False, steps, time.process_time() - began)


class CountingLog(MachineLog):
    """A machine log that shows the watchman each command, and knows when the first thing broke."""

    def __init__(self, beacon: Beacon) -> None:
        super().__init__()
        self._beacon = beacon
        self.steps_until_failure: int | None = None

    def begin(self, setup: Trace) -> None:
        super().begin(setup)
        self._beacon.bump()

    def announce(self, command: Command) -> None:
        super().announce(command)
        self._beacon.bump()

    def fail(self, trace: Trace) -> None:
        super().fail(trace)
        if self.steps_until_failure is None:
            self.steps_until_failure = self.num_steps


def _run_machine(subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    log = CountingLog(beacon)
    if subject.weak_hashes:
        campaign = campaign_for(subject, seed)
        result = run_machine(
            lambda heard: ManagerMachine(campaign, heard),
            machine_settings(Depth.QUICK),
            seed=seed,
            log=log,
        )
    else:
        machine = Machine(kind_of(subject), Depth.QUICK, seed)
        result = run_machine_with(subject.target(), machine, log)
    seconds = time.process_time() - began
    trace = result.trace
    if trace is None:
        return SearchOutcome(False, result.num_steps, seconds)
    assert trace.violation is not None
    length = minimised_length(subject, trace, beacon)
    steps = log.steps_until_failure or result.num_steps
    return SearchOutcome(True, steps, seconds, trace.violation.invariant, length)


PLAIN = Detector(
    "plain",
    f"the plain driver, up to {MOST_RUNS} runs, everything compared after each step",
    _drive,
)
HYPOTHESIS = Detector(
    "hypothesis",
    "Hypothesis's state machine as at `certify --depth quick`, everything compared",
    _run_machine,
    drives_machines=True,
)
