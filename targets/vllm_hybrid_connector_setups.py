"""The named set-ups in which vLLM moves recurrent states through its connectors.

Each is a hybrid model of `vllm_hybrid_setups.py` with a connector of `vllm_engine_setups.py` beside
it. Nothing of vLLM is imported here.

Under asynchronous scheduling drafts come from a model, because vLLM starts with no drafter on the
host there; such a model has the last block of a hit computed anew (`drops_block`).

Not driven: connectors without `SupportsHMA`, which vLLM refuses for recurrent layers; failed loads
that a step waits for, which it refuses for several cache groups; NIXL with states; several ranks.
"""

from __future__ import annotations

from dataclasses import replace

from poolproof.targets.vllm_engine_setups import CONNECTOR_SETUPS, ConnectorSetup
from poolproof.targets.vllm_hybrid_setups import HybridSetup

__all__ = ["HYBRID_CONNECTOR_SETUPS"]

_CONNECTORS = {setup.name: setup.connector for setup in CONNECTOR_SETUPS}
_DRAFTS = 2
_CHUNKS = {"long_prefill_token_threshold": 5}


def _connector(name: str) -> ConnectorSetup:
    connector = _CONNECTORS[name]
    assert connector is not None
    return connector


def _whole(name: str) -> ConnectorSetup:
    """Our own where a step waits for its loads, none of which fails.

    A failed one could be named by its block only, which vLLM refuses for several cache groups
    (`_handle_invalid_blocks` of its scheduler).
    """
    connector = _connector(name)
    return replace(connector, extra={**connector.extra, "fails": False})


HYBRID_CONNECTOR_SETUPS = (
    HybridSetup("simple-cpu", connector=_connector("simple-cpu")),
    HybridSetup("simple-cpu+lazy", connector=_connector("simple-cpu+lazy")),
    HybridSetup("simple-cpu+async", is_async=True, connector=_connector("simple-cpu")),
    HybridSetup("simple-cpu+drafts", draft_tokens=_DRAFTS, connector=_connector("simple-cpu")),
    HybridSetup(
        "simple-cpu+drafts+drop+chunks",
        arguments=_CHUNKS,
        draft_tokens=_DRAFTS,
        drops_block=True,
        connector=_connector("simple-cpu"),
    ),
    HybridSetup(
        "simple-cpu+async+drafts+drop",
        draft_tokens=_DRAFTS,
        drops_block=True,
        is_async=True,
        connector=_connector("simple-cpu"),
    ),
    HybridSetup("simple-cpu+mamba2", layers="mamba2", connector=_connector("simple-cpu")),
    HybridSetup("offloading", connector=_connector("offloading")),
    HybridSetup("offloading+async", is_async=True, connector=_connector("offloading")),
    HybridSetup("offloading+drafts", draft_tokens=_DRAFTS, connector=_connector("offloading")),
    HybridSetup(
        "offloading+async+drafts+drop",
        draft_tokens=_DRAFTS,
        drops_block=True,
        is_async=True,
        connector=_connector("offloading"),
    ),
    HybridSetup("offloading+chunks-of-2", connector=_connector("offloading+chunks-of-2")),
    HybridSetup("tiering", connector=_connector("tiering")),
    HybridSetup(
        "tiering+arc+async+drafts+drop",
        draft_tokens=_DRAFTS,
        drops_block=True,
        is_async=True,
        connector=_connector("tiering+arc+async"),
    ),
    HybridSetup("faults+sync", connector=_whole("faults+sync")),
    HybridSetup("faults+sync+drafts", draft_tokens=_DRAFTS, connector=_whole("faults+sync")),
    HybridSetup("faults+late", connector=_connector("faults+late")),
    HybridSetup("faults+late+fail", connector=_connector("faults+late+fail")),
    HybridSetup(
        "faults+late+async+drafts+drop",
        draft_tokens=_DRAFTS,
        drops_block=True,
        is_async=True,
        connector=_connector("faults+late+async"),
    ),
)
"""With each connector: states alone, then with what makes them move more often."""
