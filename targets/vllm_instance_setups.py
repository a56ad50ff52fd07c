"""How a prefill and a decode instance of vLLM are started, whatever connector is between them.

Both are started alike but for their roles. Nothing of vLLM is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.targets.vllm_engine_setups import BLOCK_SIZE, ConnectorSetup, EngineSetup

__all__ = ["CHUNKS", "FULL_AND_SLIDING", "PairSetup"]

_INSTANCES = 2

FULL_AND_SLIDING = (CacheGroup(), CacheGroup("sliding", 0, 6))
CHUNKS = {"long_prefill_token_threshold": 3}


@dataclass(frozen=True)
class PairSetup:
    """How both instances are started. What moves blocks may fail where `moves_fail`."""

    shape: EngineSetup
    moves_fail: bool = False

    @property
    def name(self) -> str:
        """As it is chosen."""
        return self.shape.name

    def connector(self, role: str) -> ConnectorSetup:
        """The connector of the instance of that role."""
        raise NotImplementedError

    def instance(self, role: str) -> EngineSetup:
        """How the instance of that role is started."""
        return replace(self.shape, connector=self.connector(role))

    def profile(self) -> EngineProfile:
        """What is promised of the steps of both together."""
        one = self.shape.profile()
        return replace(
            one,
            instances=_INSTANCES,
            max_batch_tokens=_INSTANCES * one.max_batch_tokens,
            max_running=_INSTANCES * one.max_running,
            transfers="may-fail" if self.moves_fail else "never-fail",
            # A request is let in only if a step of drafts fits behind what is loaded: of a prompt
            # that fills all blocks but these the decode instance never gets anything.
            spare_tokens=BLOCK_SIZE if one.draft_tokens else 0,
        )
