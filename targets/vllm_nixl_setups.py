"""The set-ups of a prefill instance and a decode instance of vLLM with its NIXL connector.

Both instances are started alike but for their roles. Nothing of vLLM is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.targets.vllm_engine_setups import BLOCK_SIZE, ConnectorSetup, EngineSetup

__all__ = ["NIXL_NOTES", "NIXL_SETUPS", "NIXL_WORKER", "NixlSetup"]

NIXL_WORKER = "poolproof.targets.vllm_nixl_worker"

_HEARTBEATS_IN_EACH_STEP = 5
"""Seconds of a lease: a sixth of them, rounded down, is how long vLLM's scheduler lies still
between two heartbeats."""

_INSTANCES = 2


@dataclass(frozen=True)
class NixlSetup:
    """How both instances are started, and what may go wrong between them.

    A read may fail where `reads_fail`. With `proxy_is_late` what stands between the instances may
    keep a request longer than its lease lasts.
    """

    shape: EngineSetup
    reads_fail: bool = False
    proxy_is_late: bool = False

    @property
    def name(self) -> str:
        """As it is chosen."""
        return self.shape.name

    def instance(self, role: str) -> EngineSetup:
        """How the instance of that role is started."""
        connector = ConnectorSetup(
            "NixlConnector",
            "nixl",
            {"kv_lease_duration": _HEARTBEATS_IN_EACH_STEP},
            {"kv_role": role, "kv_load_failure_policy": "recompute"},
        )
        return replace(self.shape, connector=connector)

    def profile(self) -> EngineProfile:
        """What is promised of the steps of both together."""
        one = self.shape.profile()
        return replace(
            one,
            instances=_INSTANCES,
            max_batch_tokens=_INSTANCES * one.max_batch_tokens,
            max_running=_INSTANCES * one.max_running,
            transfers="may-fail" if self.reads_fail else "never-fail",
            # A read is let in only if a step of drafts fits behind it: of a prompt that fills all
            # blocks but these the decode instance never reads anything.
            spare_tokens=BLOCK_SIZE if one.draft_tokens else 0,
        )


_SLIDING = CacheGroup("sliding", 0, 6)
_CHUNKS = {"long_prefill_token_threshold": 3}

NIXL_SETUPS = (
    NixlSetup(EngineSetup("pull")),
    NixlSetup(EngineSetup("pull+chunks", arguments=_CHUNKS, max_batch_tokens=8)),
    NixlSetup(EngineSetup("pull+async", is_async=True)),
    NixlSetup(EngineSetup("pull+priority", policy="priority")),
    NixlSetup(EngineSetup("pull+async+drafts", draft_tokens=2, drafter="ngram_gpu", is_async=True)),
    NixlSetup(EngineSetup("pull+sliding", (CacheGroup(), _SLIDING))),
    NixlSetup(EngineSetup("pull+failures"), reads_fail=True),
    NixlSetup(EngineSetup("pull+failures+async", is_async=True), reads_fail=True),
    NixlSetup(EngineSetup("pull+failures+sliding", (CacheGroup(), _SLIDING)), reads_fail=True),
    NixlSetup(EngineSetup("pull+late-proxy"), proxy_is_late=True),
)

NIXL_NOTES = (
    "two schedulers with NixlConnector, and the pull workers of both: vLLM's own",
    "NIXL itself, the proxy between the instances, the clock of leases: simulated",
    "push, bidirectional transfers, host buffers, several ranks, recurrent states: not driven",
)
"""What the adapter stands in for, and what it leaves out."""
