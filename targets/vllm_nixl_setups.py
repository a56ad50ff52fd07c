"""The set-ups of a prefill instance and a decode instance of vLLM with its NIXL connectors.

Nothing of vLLM is imported here.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.targets.vllm_engine_setups import ConnectorSetup, EngineSetup
from poolproof.targets.vllm_instance_setups import CHUNKS, FULL_AND_SLIDING, PairSetup

__all__ = ["NIXL_NOTES", "NIXL_SETUPS", "NixlSetup"]

_HEARTBEATS_IN_EACH_STEP = 5
"""Seconds of a lease: a sixth of them, rounded down, is how long vLLM's scheduler lies still
between two heartbeats."""


@dataclass(frozen=True)
class NixlSetup(PairSetup):
    """A pair that reads or, where it `pushes`, writes.

    With `proxy_is_late` what stands between the instances may keep a request longer than its lease
    lasts.
    """

    proxy_is_late: bool = False
    pushes: bool = False

    def connector(self, role: str) -> ConnectorSetup:
        """Either of vLLM's NIXL connectors."""
        return ConnectorSetup(
            "NixlPushConnector" if self.pushes else "NixlConnector",
            "nixl",
            {"kv_lease_duration": _HEARTBEATS_IN_EACH_STEP},
            {"kv_role": role, "kv_load_failure_policy": "recompute"},
        )


def _both_ways(name: str) -> tuple[NixlSetup, ...]:
    """The set-ups of `NixlConnector` or, with another name, of `NixlPushConnector`."""
    pushes = name == "push"

    def setup(shape: EngineSetup, *, fails: bool = False, is_late: bool = False) -> NixlSetup:
        return NixlSetup(shape, moves_fail=fails, proxy_is_late=is_late, pushes=pushes)

    return (
        setup(EngineSetup(name)),
        setup(EngineSetup(f"{name}+chunks", arguments=CHUNKS, max_batch_tokens=8)),
        setup(EngineSetup(f"{name}+async", is_async=True)),
        setup(EngineSetup(f"{name}+priority", policy="priority")),
        setup(
            EngineSetup(f"{name}+async+drafts", draft_tokens=2, drafter="ngram_gpu", is_async=True)
        ),
        setup(EngineSetup(f"{name}+sliding", FULL_AND_SLIDING)),
        setup(EngineSetup(f"{name}+failures"), fails=True),
        setup(EngineSetup(f"{name}+failures+async", is_async=True), fails=True),
        setup(EngineSetup(f"{name}+failures+sliding", FULL_AND_SLIDING), fails=True),
        setup(EngineSetup(f"{name}+late-proxy"), is_late=True),
    )


NIXL_SETUPS = (*_both_ways("pull"), *_both_ways("push"))

NIXL_NOTES = (
    "two schedulers with a NIXL connector, and the workers of both: vLLM's own",
    "NIXL itself, the proxy between the instances, the clock of leases: simulated",
    "bidirectional transfers, host buffers, several ranks, recurrent states: not driven",
)
"""What the adapter stands in for, and what it leaves out."""
