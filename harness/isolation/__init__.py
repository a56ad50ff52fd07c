"""Runs a target in child processes, so that its crash, hang or hunger for memory is a finding.

One child, the importer, imports the target once; workers fork from it, each with a time limit for
a call and a memory limit. This package knows nothing of pools; `harness/lost_run.py` turns a lost
worker into a trace. It is no security boundary: a target can do whatever its user can.
"""

from poolproof.harness.isolation.beacon import Beacon
from poolproof.harness.isolation.executor import Executor, InProcess, InWorker
from poolproof.harness.isolation.isolation import Crew, Isolation, Server
from poolproof.harness.isolation.limits import Limits
from poolproof.harness.isolation.outcome import (
    Died,
    Failed,
    Finished,
    Forked,
    Hung,
    ImporterError,
    Lost,
    Outcome,
    OutOfMemory,
    TooManyProcesses,
    Unwatched,
    raise_if_ours,
)
from poolproof.harness.isolation.wire import Job

__all__ = [
    "Beacon",
    "Crew",
    "Died",
    "Executor",
    "Failed",
    "Finished",
    "Forked",
    "Hung",
    "ImporterError",
    "InProcess",
    "InWorker",
    "Isolation",
    "Job",
    "Limits",
    "Lost",
    "OutOfMemory",
    "Outcome",
    "Server",
    "TooManyProcesses",
    "Unwatched",
    "raise_if_ours",
]
