"""What a coordinator and its workers tell each other: plain values that can be pickled.

Small on purpose, since over a cluster they are all that travels: states as packed numbers
(`state_numbers.py`), tapes as bytes. Both directions carry a version, and who meets another one
says so instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from poolproof.contract.errors import PoolproofError
from poolproof.contract.trace import Trace
from poolproof.fuzz.settings import CampaignSettings

__all__ = [
    "MESSAGE_VERSION",
    "CorpusTape",
    "FailingRun",
    "MessageError",
    "StrategyCount",
    "WorkerOrder",
    "WorkerReport",
    "check_version",
]

MESSAGE_VERSION = 1


class MessageError(PoolproofError):
    """A message of another version; the text says which and what to do."""


@dataclass(frozen=True, slots=True)
class CorpusTape:
    """A tape worth keeping: it visits states that nothing before it had visited.

    `states` are all that it visits (packed), `num_steps` the commands that it makes, `origin` the
    strategy that made it.
    """

    tape: bytes
    states: bytes
    num_steps: int
    origin: str


@dataclass(frozen=True, slots=True)
class FailingRun:
    """A failing run as it came, neither minimised nor named yet.

    `step` is how many steps of the round the worker had done when it showed.
    """

    trace: Trace
    tape: bytes
    step: int


@dataclass(frozen=True, slots=True)
class StrategyCount:
    """What one strategy did in a round, or in all."""

    num_runs: int = 0
    num_steps: int = 0
    num_new_states: int = 0

    def __add__(self, other: StrategyCount) -> StrategyCount:
        return StrategyCount(
            self.num_runs + other.num_runs,
            self.num_steps + other.num_steps,
            self.num_new_states + other.num_new_states,
        )


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """One round for one worker: go on for so long, and know this first.

    `stream` names the worker's random stream and its memory: a worker that has met the stream
    before goes on, another one begins, as it does where the order `begins`. `states` and `tapes`
    are the news since the last order. `max_steps` is exact to a run, `max_seconds` too.
    `black_box` is the file that holds the tape in progress, on the worker's own machine; without
    one a lost tape stays lost.
    """

    settings: CampaignSettings
    stream: str
    max_steps: int
    max_seconds: float
    states: bytes = b""
    tapes: tuple[CorpusTape, ...] = ()
    black_box: str = ""
    begins: bool = False
    version: int = MESSAGE_VERSION


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """What a worker did in one round.

    `states` are those that were new to the worker (packed); `depths` has a byte for each: after
    how many commands of its run it was met, as the number of binary digits (0 for none, 1 for
    one, 2 for two and three, and so on).
    `num_failing_runs_of` counts by kind of failure; `failures` has only some runs of each kind.
    `num_stable` and `num_unstable` count tapes that were run again and did, or did not, visit the
    same states.
    """

    stream: str
    num_steps: int
    num_runs: int
    seconds: float
    states: bytes
    depths: bytes
    tapes: tuple[CorpusTape, ...] = ()
    failures: tuple[FailingRun, ...] = ()
    num_failing_runs_of: Mapping[str, int] = field(default_factory=dict)
    facts: frozenset[str] = frozenset()
    facts_required: frozenset[str] = frozenset()
    strategies: Mapping[str, StrategyCount] = field(default_factory=dict)
    num_stable: int = 0
    num_unstable: int = 0
    version: int = MESSAGE_VERSION


def check_version(message: WorkerOrder | WorkerReport, who: str) -> None:
    """Raises MessageError for a message of another version."""
    if message.version != MESSAGE_VERSION:
        raise MessageError(
            f"{who} speaks campaign messages of version {message.version}, this Poolproof version "
            f"{MESSAGE_VERSION}; install the same Poolproof on every machine"
        )
