"""The set-ups of a prefill instance and a decode instance of vLLM with its Mooncake connector.

Nothing of vLLM is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.targets.vllm_engine_setups import ConnectorSetup, EngineSetup
from poolproof.targets.vllm_instance_setups import CHUNKS, FULL_AND_SLIDING, PairSetup

__all__ = ["MOONCAKE_NOTES", "MOONCAKE_SETUPS", "MooncakeSetup"]

_SENDERS = 2
"""Threads that write: vLLM has twice as many coroutines for requests that come."""


@dataclass(frozen=True)
class MooncakeSetup(PairSetup):
    """A pair. Where the first token `stops`, one request in three ends at the first one with it."""

    stops: bool = False

    def connector(self, role: str) -> ConnectorSetup:
        """VLLM's connector with few threads."""
        return ConnectorSetup(
            "MooncakeConnector",
            "mooncake",
            {"num_workers": _SENDERS, "bootstrap_server_address": "bootstrap:1"},
            {"kv_role": role, "kv_load_failure_policy": "recompute"},
        )


MOONCAKE_SETUPS = (
    MooncakeSetup(EngineSetup("pair")),
    MooncakeSetup(EngineSetup("chunks", arguments=CHUNKS, max_batch_tokens=8)),
    MooncakeSetup(EngineSetup("async", is_async=True)),
    MooncakeSetup(EngineSetup("priority", policy="priority")),
    MooncakeSetup(EngineSetup("async+drafts", draft_tokens=2, drafter="ngram_gpu", is_async=True)),
    MooncakeSetup(EngineSetup("sliding", FULL_AND_SLIDING)),
    MooncakeSetup(EngineSetup("failures"), moves_fail=True),
    MooncakeSetup(EngineSetup("failures+async", is_async=True), moves_fail=True),
    MooncakeSetup(EngineSetup("failures+sliding", FULL_AND_SLIDING), moves_fail=True),
    MooncakeSetup(EngineSetup("stops"), stops=True),
)

MOONCAKE_NOTES = (
    "two schedulers with MooncakeConnector, the workers of both and their coroutines: vLLM's own",
    "Mooncake itself, sockets, event loops and the clock, the proxy: simulated",
    "several ranks, stages, recurrent states, packed layouts, MooncakeStoreConnector: not driven",
)
"""What the adapter stands in for, and what it leaves out."""
