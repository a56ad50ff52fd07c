"""One sequence of tokens: what it consists of, which blocks it holds, how far it is computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from poolproof.contract.content import TokenChain
from poolproof.reference.content_names import Content

__all__ = ["SequenceState", "Tables"]

Tables = list[list[int]]
"""The block table of a sequence in each cache group."""


@dataclass(slots=True)
class SequenceState:
    """One sequence that has not ended.

    `contents[g][p]` names what stands at position p in group g; drafts come after the tokens.
    `num_computed` positions have been computed or were cached, `num_scheduled` are computed by the
    next step. `place` is "device", "host" (swapped out) or "nowhere" (preempted). While `loading`,
    a transfer writes its blocks; `ended` then tells that they are only held for the transfer.
    """

    seq_id: int
    chain: TokenChain
    contents: list[list[Content]]
    tables: Tables
    num_tokens: int
    num_computed: int = 0
    num_scheduled: int = 0
    num_drafts: int = 0
    place: str = "device"
    loading: int = 0
    ended: bool = False
    num_keyed: list[int] = field(default_factory=list)
    drafts_computed: bool = False
    num_offered: int = 0
    """Positions that prompts have computed; only these are published where `publishes` says so."""
    is_sampling: bool = False
    """All that is scheduled is one token that was appended alone."""
    family: int = -1
    """Sequences that were forked from one another have one number; they swap together."""
    num_prompt: int = 0
    """Tokens that it came with."""
    num_reserved: int = 0
    """Slots that its admission took at least, those for what it will generate included."""
    told: int | None = None
    """The token that follows, where a step has told the manager already and it still has to come.
    """
    num_asked: int = 0
    """Tokens that its last admission asked for, as far as they stand; see `sightings.py`. The child
    of a fork asked for nothing."""
    num_loaded: int = 0
    """Positions up to which it did not compute everything itself."""
    junction: int = 0
    """Where the hit of its full groups ended, if another group had less; 0: nowhere."""

    def __post_init__(self) -> None:
        self.family = self.seq_id
        self.num_prompt = self.num_tokens

    @property
    def tokens(self) -> tuple[int, ...]:
        """The tokens of the sequence, drafts left out."""
        return self.chain.tokens
