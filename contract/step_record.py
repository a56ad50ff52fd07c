"""Plain records of what an engine's forward passes did, for an oracle that watches a live engine.

A `StepRecord` is one forward pass as the workers are told of it: whose tokens are computed, through
which block tables, what was found cached before, what is copied. Nothing here knows an engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.contract.content import TokenChain
from poolproof.contract.state_use import StateUse

__all__ = ["ComputedTokens", "StepRecord"]


@dataclass(frozen=True, slots=True)
class ComputedTokens:
    """What one forward pass computes of one request.

    The positions `first` to `first` + `count` - 1 are computed, all before are taken as they stand
    in memory: computed earlier, or found in the prefix cache. `chain` has the tokens up to there,
    drafts included, with their extra keys. `blocks[g]` is the request's table in cache group g, as
    the worker is told of it: the whole of it (`replaced`), or only what is added at its end. Where
    a request has ended meanwhile nobody sees what it reads (`is_read`), and what it writes is
    written all the same. `states` says what the worker does with recurrent states, for each cache
    group that holds any.
    """

    request_id: str
    chain: TokenChain
    first: int
    count: int
    blocks: tuple[tuple[int, ...], ...]
    replaced: bool
    is_read: bool = True
    states: tuple[StateUse, ...] = ()


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One forward pass; `copies` are (source, destination) blocks, all performed before it.

    `loads` and `stores` are (block, place) pairs: after the copies each block gets what stands at
    its place outside the device; once everything is computed each place gets what its block holds.
    `ended` are requests of which the workers hear no more (or a new table first). The blocks in
    `zeroes` are zero before all of it.
    """

    number: int
    computed: tuple[ComputedTokens, ...]
    copies: tuple[tuple[int, int], ...] = ()
    ended: tuple[str, ...] = ()
    loads: tuple[tuple[int, int], ...] = ()
    stores: tuple[tuple[int, int], ...] = ()
    zeroes: tuple[int, ...] = ()
