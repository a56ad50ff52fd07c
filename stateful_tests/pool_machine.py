"""The state machine of a pool: one rule for each verb, arguments from the harness's grammar.

Hypothesis chooses the rules (and leaves some out for a whole example, which reaches states that
an even mixture does not), `PoolWorkload` the arguments. Token chains are in `chain_machine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.stateful import initialize, precondition, rule

from poolproof.contract.commands import Command, Free
from poolproof.contract.level import Level
from poolproof.contract.trace import Trace
from poolproof.harness.choices import Choices
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.pool_workload import PoolWorkload, alphabet
from poolproof.harness.random_driver import PoolCampaign
from poolproof.reference.legality import misuse_of
from poolproof.stateful_tests.hypothesis_choices import HypothesisChoices, hypothesis_choices
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.session_machine import SessionMachine

__all__ = ["PoolMachine", "offered"]


def offered(verb: str) -> Callable[[Any], Any]:
    """Precondition: the target has the verb, and the workload of this machine uses it."""
    return precondition(lambda machine: verb in machine.workload.verbs)


_held = precondition(lambda machine: bool(machine.workload.references))
_held_or_cached = precondition(
    lambda machine: bool(machine.workload.references or machine.session.reference.carriers)
)
_misuse_defined = precondition(lambda machine: machine.campaign.profile.misuse != "undefined")


class PoolMachine(SessionMachine[PoolSession]):
    """Drives a pool of 2 to 9 usable blocks; failures go to the log as traces.

    `campaign` says what is driven, as for the plain driver. When an example ends, everything is
    given back and the pool is checked for leaks.
    """

    workload: PoolWorkload

    def __init__(self, campaign: PoolCampaign, log: MachineLog) -> None:
        super().__init__(log)
        self.campaign = campaign

    @initialize(choices=hypothesis_choices())
    def build(self, choices: HypothesisChoices) -> None:
        """Choose sizes, then build the target and a workload for it."""
        self.start(self.setup(choices), self.campaign.make, PoolSession)
        self.workload = self.make_workload(choices)

    def setup(self, choices: Choices) -> Trace:
        """The head of this example's trace: 2 to 9 usable blocks, caching mostly on."""
        campaign = self.campaign
        null = campaign.profile.null_block
        return Trace(
            target=campaign.name,
            level=Level.POOL,
            profile=campaign.profile,
            num_blocks=2 + choices.below(8) + (0 if null is None else null + 1),
            # The last answer and not the first: what shrinks gets caching on.
            enable_caching=choices.below(8) != 7,
            commands=(),
            options={"block_size": self.block_size, **campaign.options},
        )

    @property
    def block_size(self) -> int:
        """Tokens a block; opaque hashes have no tokens."""
        return 1

    def make_workload(self, choices: Choices) -> PoolWorkload:
        """The grammar that chooses arguments; 2 to 4 hashes."""
        campaign = self.campaign
        length = campaign.profile.usual_hash_bytes
        hashes = alphabet(2 + choices.below(3), campaign.seed, length)
        return PoolWorkload(choices, self.session.reference, self.session.can, hashes)

    def execute_legal(self, choose: Callable[[], Command | None]) -> None:
        """Apply what a method of the workload chose; nothing where it found nothing."""
        command = choose()
        if command is not None:
            self.execute(command)
            self.workload.references.extend(self.session.last.taken)
            self.workload.remap(self.session.last.remapped)

    @rule()
    def allocate(self) -> None:
        self.execute_legal(self.workload.allocate)

    @offered("touch")
    @_held_or_cached
    @rule()
    def touch(self) -> None:
        self.execute_legal(self.workload.touch)

    @_held
    @rule()
    def free(self) -> None:
        self.execute_legal(self.workload.free)

    @offered("cache")
    @_held
    @rule()
    def cache(self) -> None:
        self.execute_legal(self.workload.cache)

    @offered("lookup")
    @rule()
    def lookup(self) -> None:
        self.execute_legal(self.workload.lookup)

    @offered("acquire")
    @rule()
    def acquire(self) -> None:
        self.execute_legal(self.workload.acquire)

    @offered("evict")
    @_held_or_cached
    @rule()
    def evict(self) -> None:
        self.execute_legal(self.workload.evict)

    @offered("reset")
    @rule()
    def reset(self) -> None:
        self.execute_legal(self.workload.reset)

    @_misuse_defined
    @rule()
    def misuse(self) -> None:
        command = self.workload.misuse()
        if command is not None and misuse_of(self.session.reference, command) is not None:
            self.execute(command)

    def finish(self) -> None:
        """Give every outstanding reference back, in one call if it may be one, and find leaks."""
        holders = self.session.reference.holders
        once = self.session.profile.repeats_in_free == "forbidden"
        while outstanding := tuple(
            block for block, held_by in holders.items() for _ in (held_by[:1] if once else held_by)
        ):
            self.execute(Free(outstanding))
        self.fail_if(self.session.end())
