"""The state machine of a pool that hashes tokens itself: chains, groups, partial entries, usage.

Extends the pool's machine by the verbs of token chains; contents replace opaque hashes.
"""

from __future__ import annotations

from hypothesis.stateful import precondition, rule

from poolproof.harness.chain_workload import ChainWorkload
from poolproof.harness.choices import Choices
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.pool_machine import PoolMachine, offered

__all__ = ["ChainMachine"]

_held = precondition(lambda machine: bool(machine.workload.references))


class ChainMachine(PoolMachine):
    """Drives a pool over token chains; the campaign states `chain_block_size`."""

    workload: ChainWorkload

    def __init__(self, campaign: PoolCampaign, log: MachineLog) -> None:
        assert campaign.chain_block_size, f"{campaign.name} takes no token chains"
        super().__init__(campaign, log)

    @property
    def block_size(self) -> int:
        """Tokens a block."""
        return self.campaign.chain_block_size

    def make_workload(self, choices: Choices) -> ChainWorkload:
        """The grammar of token chains."""
        return ChainWorkload(
            choices,
            self.session.reference,
            self.session.can,
            block_size=self.campaign.chain_block_size,
            hash_block_size=self.campaign.hash_block_size,
        )

    @_held
    @rule()
    def cache_chain(self) -> None:
        self.execute_legal(self.workload.cache_chain)

    @offered("cache_partial")
    @_held
    @rule()
    def cache_partial(self) -> None:
        self.execute_legal(self.workload.cache_partial)

    @rule()
    def lookup_chain(self) -> None:
        self.execute_legal(self.workload.lookup_chain)

    @rule()
    def usage(self) -> None:
        self.execute_legal(self.workload.usage)
