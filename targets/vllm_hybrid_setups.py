"""The named set-ups in which vLLM is driven with recurrent layers, and its worker below it.

Prefix caching aligns states to blocks (`mamba_cache_mode` is "align"); runs without caching have
one block of states for each request ("none"), as a server has.

Not driven: the mode "all" and checkpoints inside a prompt's chunk, which kernels write, KDA's and
Mamba1's layers, pipelines. Connectors: `vllm_hybrid_connector_setups.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.targets.vllm_engine_setups import EngineSetup

__all__ = ["HYBRID_SETUPS", "HybridSetup"]

_STATE = CacheGroup("state")


@dataclass(frozen=True)
class HybridSetup(EngineSetup):
    """One set-up: whose rules its recurrent layers follow, "gdn" or "mamba2".

    With `drops_block` drafts come from a model that has no recurrent layers of its own and needs
    the last block of a hit computed anew, as EAGLE and MTP do. With `host_lags` the device has
    computed a step before the host prepares the next one. Set-ups of the second runner begin with
    "v2". It proposes as many drafts as there may be, unless the scheduler `cuts_drafts`, as it does
    from the first on that a request's grammar does not have.
    """

    groups: tuple[CacheGroup, ...] = (CacheGroup(), _STATE)
    layers: str = "gdn"
    drops_block: bool = False
    host_lags: bool = False
    is_second_runner: bool = False
    cuts_drafts: bool = False

    def profile(self) -> EngineProfile:
        """What is promised of the steps.

        A request has a block of states for each draft, one that it goes on in, and one that it
        came from.
        """
        return replace(
            super().profile(),
            state_moves="told",
            states="every-token",
            answers="when-full" if self.is_async else "any-time",
            state_blocks=self.draft_tokens + 1,
        )

    def engine_arguments(self) -> dict[str, Any]:
        """The same, with states aligned to blocks."""
        arguments: Mapping[str, Any] = super().engine_arguments()
        return {**arguments, "mamba_cache_mode": "align"}


_CHUNKS = {"long_prefill_token_threshold": 5}

HYBRID_SETUPS = (
    HybridSetup("gdn"),
    HybridSetup("gdn+drafts", draft_tokens=2),
    HybridSetup("gdn+draft+drop+chunks", arguments=_CHUNKS, draft_tokens=1, drops_block=True),
    HybridSetup("gdn+async", is_async=True),
    HybridSetup(
        "gdn+async+drafts+drop+reset",
        draft_tokens=2,
        drops_block=True,
        is_async=True,
        reset_preempts=True,
    ),
    HybridSetup("gdn+async+drafts+lag", draft_tokens=2, is_async=True, host_lags=True),
    HybridSetup(
        "gdn+drafts+priority",
        arguments=_CHUNKS,
        policy="priority",
        draft_tokens=2,
        drops_block=True,
        max_batch_tokens=8,
    ),
    HybridSetup("mamba2", layers="mamba2"),
    HybridSetup("mamba2+drafts", layers="mamba2", draft_tokens=2),
    HybridSetup("v2-gdn", is_second_runner=True),
    HybridSetup("v2-gdn+drafts", is_second_runner=True, draft_tokens=2),
    HybridSetup(
        "v2-gdn+draft+drop+chunks",
        is_second_runner=True,
        arguments=_CHUNKS,
        draft_tokens=1,
        drops_block=True,
    ),
    HybridSetup("v2-gdn+async", is_second_runner=True, is_async=True),
    HybridSetup(
        "v2-gdn+async+drafts+drop+reset",
        is_second_runner=True,
        draft_tokens=2,
        drops_block=True,
        is_async=True,
        reset_preempts=True,
    ),
    HybridSetup("v2-gdn+async+drafts", is_second_runner=True, draft_tokens=2, is_async=True),
    HybridSetup(
        "v2-gdn+drafts+priority",
        is_second_runner=True,
        arguments=_CHUNKS,
        policy="priority",
        draft_tokens=2,
        drops_block=True,
        max_batch_tokens=8,
    ),
    HybridSetup("v2-mamba2", is_second_runner=True, layers="mamba2"),
    HybridSetup("v2-mamba2+drafts", is_second_runner=True, layers="mamba2", draft_tokens=2),
    HybridSetup(
        "v2-mamba2+drafts+cut",
        is_second_runner=True,
        layers="mamba2",
        draft_tokens=2,
        cuts_drafts=True,
    ),
    HybridSetup(
        "v2-mamba2+async+drafts",
        is_second_runner=True,
        layers="mamba2",
        draft_tokens=2,
        is_async=True,
    ),
)
"""For each runner a pair of each kind of layers, without drafts and with them; then what servers
add."""
