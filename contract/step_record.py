"""Plain records of what an engine's forward passes did, for an oracle that watches a live engine.

A `StepRecord` is one forward pass as the workers are told of it: whose tokens are computed, through
which block tables, what was found cached before, what is copied. Nothing here knows an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.contract.content import TokenChain

__all__ = ["ComputedTokens", "StepRecord"]


@dataclass(frozen=True, slots=True)
class ComputedTokens:
    """What one forward pass computes of one request.

    The positions `first` to `first` + `count` - 1 are computed, all before are taken as they stand
    in memory: computed earlier, or found in the prefix cache. `chain` has the tokens up to there,
    drafts included, with their extra keys. `blocks[g]` is the request's table in cache group g, as
    the worker is told of it: the whole of it (`replaced`), or only what is added at its end.
    """

    request_id: str
    chain: TokenChain
    first: int
    count: int
    blocks: tuple[tuple[int, ...], ...]
    replaced: bool


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One forward pass; `copies` are (source, destination) blocks, all performed before it.

    `ended` are requests of which the workers hear no more (or a new table first).
    """

    number: int
    computed: tuple[ComputedTokens, ...]
    copies: tuple[tuple[int, int], ...] = ()
    ended: tuple[str, ...] = ()
