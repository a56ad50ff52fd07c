"""Makes a case smaller that costs the process in which it runs.

A child tries one smaller form after another and says which; the one at which it dies fails as
well, and the next child goes on from there. So a step costs one child, however many forms it
tried. A case that hangs costs a time limit for each step and is left as it is where that is long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from poolproof.contract.violation import Severity
from poolproof.kernels.child import Work, try_smaller_cases
from poolproof.kernels.collected import Example
from poolproof.kernels.job import Job
from poolproof.kernels.report import KernelFinding

if TYPE_CHECKING:
    from poolproof.kernels.isolation import Child

__all__ = ["smaller_crash"]

MOST_CHILDREN = 24
LONGEST_HANG_S = 5.0


def smaller_crash(
    job: Job, finding: KernelFinding, start: Callable[[Work, Job], Child]
) -> KernelFinding:
    """The same finding with the smallest case that still costs its process in the same way."""
    if finding.severity is Severity.STALL and job.case_timeout_s > LONGEST_HANG_S:
        return finding
    for _ in range(MOST_CHILDREN):
        task = replace(job, checks=(finding.check,), case=finding.case)
        found = _first_that_fails(start(try_smaller_cases, task), job, finding)
        if found is None:
            break
        finding = replace(finding, case=found.case, words=found.words)
    return finding


def _first_that_fails(child: Child, job: Job, finding: KernelFinding) -> Example | None:
    """The smaller case at which the child is lost as the finding says, or None."""
    try:
        while True:
            patience_s = max(0.0, child.deadline_s - time.monotonic())
            if not child.connection.poll(patience_s):
                return child.example if finding.severity is Severity.STALL else None
            message = child.connection.recv()
            child.heard(message, job.case_timeout_s)
            if message[0] in ("end", "error", "bug"):
                return None
    except EOFError:
        return child.example if child.how_it_ended() == finding.sentence else None
    finally:
        child.stop()
