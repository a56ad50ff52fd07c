"""Runs a state machine under Hypothesis and says what came of it, in place of raising and printing.

Used by `certify` and by the tests here. What the target breaks is in the result; only a mistake
of ours is raised.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import hypothesis
from hypothesis.configuration import set_hypothesis_home_dir
from hypothesis.errors import Flaky, HypothesisWarning
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from poolproof.contract.trace import Trace
from poolproof.contract.violation import ViolationError
from poolproof.harness.extent import Extent
from poolproof.stateful_tests.machine_log import MachineLog

__all__ = ["MachineResult", "run_machine"]


@dataclass(frozen=True, slots=True)
class MachineResult:
    """What a machine did over all of its examples; `trace` is there only when something broke.

    The trace is not minimised: `harness.minimise` does that in milliseconds where Hypothesis's
    shrinker takes seconds, and gets further. `nondeterministic` is set when the target answered
    the same commands differently: what was found is true all the same, but Hypothesis gives up
    there, so that the search may have ended early. `extent` is how far the examples went.
    """

    num_examples: int
    num_steps: int
    facts: frozenset[str]
    trace: Trace | None = None
    nondeterministic: bool = False
    extent: Extent = field(default_factory=Extent)


def run_machine(
    make_machine: Callable[[MachineLog], RuleBasedStateMachine],
    settings: hypothesis.settings,
    *,
    seed: int | None = None,
    log: MachineLog | None = None,
) -> MachineResult:
    """Run the machines that `make_machine` builds, one for each example.

    With a seed the examples are the same every time; without one, `settings` decide. A `log` of
    one's own hears what happens while it happens. Prints nothing and leaves no files. Raises
    TargetError for a target that cannot be run at all.
    """
    heard = MachineLog() if log is None else log
    # Every other backend of Hypothesis draws what may stand for many values.
    heard.measures_sizes = settings.backend == "hypothesis"

    def machine() -> RuleBasedStateMachine:
        return make_machine(heard)

    # Hypothesis wants the class of the machines, and takes any callable that gives one.
    factory = cast("type[RuleBasedStateMachine]", machine)
    if seed is not None:
        hypothesis.seed(seed)(cast("Callable[..., Any]", factory))
    nondeterministic = False
    with _out_of_the_way():
        try:
            run_state_machine_as_test(factory, settings=settings)
        except ViolationError:
            assert heard.failure is not None, "a machine raised without telling its log"
        except Flaky:
            nondeterministic = True
    facts = frozenset(heard.facts)
    return MachineResult(
        heard.num_examples,
        heard.num_steps,
        facts,
        heard.failure,
        nondeterministic,
        heard.extent,
    )


@contextmanager
def _out_of_the_way() -> Iterator[None]:
    """Keep Hypothesis's files out of the current folder, and its advice on strategies quiet.

    Even without a database it stores what it read in the modules of the project around it.
    """
    with tempfile.TemporaryDirectory(prefix="poolproof-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)
        set_hypothesis_home_dir(folder)
        try:
            yield
        finally:
            set_hypothesis_home_dir(None)
