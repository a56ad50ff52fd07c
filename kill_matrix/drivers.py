"""Detectors that drive random runs: driver, state machines, campaign, each invariant alone.

The plain driver of the harness and Hypothesis's state machines are bounded as `certify --depth
quick` bounds the machine and as its ruler bounds the driver, so that a bug which they miss costs
seconds. The campaign is one of `poolproof fuzz`, one worker, guided by states that are new.

Each invariant alone runs with the comparison with the model off. That shows what one predicate
sees, and so which of them a bug needs; `harness/single_invariant.py` says what such a run does
when something else breaks first.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from functools import partial
from typing import Any

from poolproof.certification.jobs import Machine, campaign_of, make_for, run_machine_with
from poolproof.certification.ruler import MOST_RUNS
from poolproof.certification.run_kinds import Chunk, RunKind, layout_kind
from poolproof.contract.commands import Command
from poolproof.contract.depth import Depth
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.fuzz.messages import WorkerOrder
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.worker import work
from poolproof.harness.isolation import Beacon
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import minimise, run_candidate
from poolproof.harness.single_invariant import STATED_AT
from poolproof.invariants.catalogue import STATEMENTS
from poolproof.kill_matrix.detector import Detector, SearchOutcome
from poolproof.kill_matrix.subject import LAYOUT, MatrixSubject
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.manager_machine import ManagerMachine
from poolproof.stateful_tests.run_machine import run_machine
from poolproof.stateful_tests.settings import machine_settings

__all__ = [
    "CAMPAIGN",
    "HYPOTHESIS",
    "INVARIANTS",
    "PLAIN",
    "CountingLog",
    "kind_of",
    "minimised_length",
]


_MOST_ATTEMPTS = 1500
"""Attempts at a smaller trace: enough for most to come to an end."""


def kind_of(subject: MatrixSubject) -> RunKind:
    """The kind of its runs (`run_kinds.py`)."""
    level = subject.level
    return layout_kind(level, LAYOUT) if level.has_layouts else RunKind(level)


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


MOST_STEPS = 40_000
"""About what the plain driver's runs come to."""

_STEPS_A_ROUND = 1_000
_USABLE_BLOCKS = {Level.QUEUE: 5, Level.POOL: 6, Level.MANAGER: 8, Level.ENGINE: 8}


def _fuzz(subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    target = subject.target()
    order = WorkerOrder(
        CampaignSettings(
            subject.id,
            subject.level,
            max(_USABLE_BLOCKS[subject.level], subject.profile.null_block or 0),
            seed=seed,
            layout=LAYOUT if subject.level.has_layouts else "",
        ),
        stream=f"kill matrix {subject.id} {seed}",
        max_steps=_STEPS_A_ROUND,
        max_seconds=math.inf,
    )
    steps = 0
    while steps < MOST_STEPS:
        report = work(target, order, beacon)
        if report.failures:
            first = report.failures[0]
            assert first.trace.violation is not None
            seconds = time.process_time() - began
            length = minimised_length(subject, first.trace, beacon)
            invariant = first.trace.violation.invariant
            return SearchOutcome(True, steps + first.step, seconds, invariant, length)
        steps += report.num_steps
    return SearchOutcome(False, steps, time.process_time() - began)


CAMPAIGN = Detector(
    "campaign",
    f"a campaign of one worker, guided by new states, up to {MOST_STEPS:,} steps",
    _fuzz,
)


_RUNS_ALONE = 30
"""Runs of the plain driver; those who see a bug at all need a few, the others cost all of them."""


def _drive_alone(name: str, subject: MatrixSubject, seed: int, beacon: Beacon) -> SearchOutcome:
    began = time.process_time()
    campaign = replace(campaign_for(subject, seed), only=name)
    steps = 0
    for number in range(_RUNS_ALONE):
        run = campaign.run(number, beacon.bump)
        steps += run.num_steps
        if run.trace is not None or run.collision is not None:
            return SearchOutcome(True, steps, time.process_time() - began, name)
    return SearchOutcome(False, steps, time.process_time() - began)


def _why_not(name: str, subject: MatrixSubject) -> str | None:
    rules = subject.profile
    if name not in STATED_AT[subject.level]:
        return f"the {subject.level} level does not state {name}"
    if name == "EVT" and rules.events == "none":
        return "its profile has no events"
    if name == "MISUSE" and rules.misuse == "undefined":
        return "its profile promises nothing about misuse"
    if name == "ORD" and rules.eviction == "unspecified":
        return "its profile promises no order"
    if name == "I3" and subject.level is Level.POOL and rules.null_block is None:
        return "without a null block that is the caller's duty at pool level"
    if name == "LINK" and not _shows_links(subject):
        return "it shows no links"
    return None


def _shows_links(subject: MatrixSubject) -> bool:
    """Whether an instance can be asked for the neighbours of a block."""
    instance = subject.make(8 + (subject.profile.null_block or 0), True)
    return callable(getattr(instance, "free_neighbours", None))


INVARIANTS = tuple(
    Detector(
        name,
        sentence,
        partial(_drive_alone, name),
        partial(_why_not, name),
        sees_losses=name == "CRASH",
    )
    for name, sentence in STATEMENTS.items()
)
