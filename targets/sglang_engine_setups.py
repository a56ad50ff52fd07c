"""The named set-ups in which SGLang's scheduler is driven, and what each promises."""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import FULL, CacheGroup

__all__ = ["CHUNK_SIZE", "SGLANG_SETUPS", "TRACK_INTERVAL", "SglangSetup"]

CHUNK_SIZE = 4
"""Tokens of a chunk of the recurrent kernels: states on the way stand at its ends."""

TRACK_INTERVAL = 8
"""How many tokens apart decoding keeps states (`mamba_track_interval`)."""

_WHOLE = 1 << 12
"""Tokens of a block of states: more than any request has, so that one is counted for each."""


@dataclass(frozen=True)
class SglangSetup:
    """One set-up of a server.

    strategy: how states are kept for the prefix cache (`mamba_radix_cache_strategy`), "" for a
        model without recurrent layers.
    max_states_per_path: the most states that a branch of the tree keeps; -1: any number.
    """

    name: str
    strategy: str
    page_size: int
    max_batch_tokens: int = 16
    max_running: int = 3
    overlaps: bool = False
    mixes: bool = False
    max_states_per_path: int = -1

    @property
    def has_states(self) -> bool:
        return bool(self.strategy)

    @property
    def tracks(self) -> bool:
        """Whether states are written into an extra buffer while they are computed."""
        return self.strategy.startswith("extra_buffer")

    @property
    def is_lazy(self) -> bool:
        """Whether the second slot of that buffer is only taken where a state is due."""
        return self.strategy == "extra_buffer_lazy"

    @property
    def cache_chunk_size(self) -> int:
        """`mamba_cache_chunk_size` of a server with these pages."""
        return max(CHUNK_SIZE, self.page_size)

    @property
    def num_slots(self) -> int:
        """States for the requests that may run, as few as a server starts with."""
        tracking = (2 if self.overlaps and not self.is_lazy else 1) if self.tracks else 0
        return (3 + tracking) * self.max_running if self.has_states else 0

    def profile(self) -> EngineProfile:
        """What is promised of the steps.

        A request is let in if it fits with a page to spare, and less than all must be taken. The
        pools of attention and of states are apart: all states but one are counted for a request,
        so that what is left are pages.
        """
        states = (CacheGroup("state", _WHOLE),) if self.has_states else ()
        return EngineProfile(
            cancelled_outputs="one-more",
            answers="when-full" if self.overlaps else "any-time",
            max_batch_tokens=self.max_batch_tokens,
            max_running=self.max_running,
            steps_in_flight=2 if self.overlaps else 1,
            spare_tokens=2 * self.page_size,
            null_block=0,
            groups=(*FULL, *states),
            state_moves="told" if states else "by-table",
            states="every-token" if states else "every-block",
            state_blocks=self.num_slots - 1 if states else 0,
        )


SGLANG_SETUPS = (
    SglangSetup("no-buffer", "no_buffer", 1),
    SglangSetup("no-buffer+mixed", "no_buffer", 1, mixes=True),
    SglangSetup("extra-buffer", "extra_buffer", 4),
    SglangSetup("extra-buffer+overlap", "extra_buffer", 4, overlaps=True),
    SglangSetup(
        "extra-buffer+overlap+chunks+mixed", "extra_buffer", 4, 8, overlaps=True, mixes=True
    ),
    SglangSetup("extra-buffer+overlap+page-1", "extra_buffer", 1, overlaps=True),
    SglangSetup("extra-buffer+overlap+page-8", "extra_buffer", 8, overlaps=True),
    SglangSetup(
        "extra-buffer+overlap+few-states", "extra_buffer", 4, overlaps=True, max_states_per_path=1
    ),
    SglangSetup("lazy+overlap", "extra_buffer_lazy", 4, overlaps=True),
    SglangSetup("lazy+overlap+chunks+mixed", "extra_buffer_lazy", 4, 8, overlaps=True, mixes=True),
    SglangSetup("full", "", 4),
    SglangSetup("full+overlap+chunks+mixed", "", 4, 8, overlaps=True, mixes=True),
)
"""Each way to keep states, alone and with what servers add; then attention alone."""
