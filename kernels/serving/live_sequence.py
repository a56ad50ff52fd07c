"""A sequence that a manager serves, as far as its caller has to know it.

The contract says what a caller may ask for (docs/managers.md); the rules here are those of a
caller that asks for nothing else. They need the tables that the manager shows, and no model of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from poolproof.contract.content import TokenChain

__all__ = ["LiveSequence", "extended"]


@dataclass(slots=True)
class LiveSequence:
    """`computed` tokens have their keys in the caches, `scheduled` ones get them in the next step.

    `place` is "device", "host" or "nowhere" (preempted). Sequences that were forked from one
    another are one `family`, and are swapped together. `worker_tables` are what the manager
    reported, where it reports changes alone.
    """

    seq_id: int
    chain: TokenChain
    family: int
    computed: int = 0
    scheduled: int = 0
    drafts: tuple[int, ...] = ()
    drafts_computed: bool = False
    place: str = "device"
    worker_tables: list[list[int]] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens without drafts."""
        return len(self.chain.tokens)

    @property
    def is_running(self) -> bool:
        """Whether it holds blocks of the device."""
        return self.place == "device"

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it waits for a step or for the end of its drafts."""
        return self.is_running and not self.scheduled and not self.drafts

    @property
    def is_complete(self) -> bool:
        """Whether it is settled and computed to its last token."""
        return self.is_settled and self.computed == self.num_tokens

    @property
    def can_grow(self) -> bool:
        """Whether further tokens may be appended."""
        whole = self.computed + self.scheduled == self.num_tokens
        return self.is_running and whole and not self.drafts

    @property
    def num_unscheduled(self) -> int:
        """Tokens of the prompt that no step has been asked to compute."""
        return self.num_tokens - self.computed - self.scheduled

    def extend(self, tokens: Sequence[int]) -> None:
        """Further tokens stand behind those that there are."""
        self.chain = extended(self.chain, tokens)

    def cut(self, num_tokens: int) -> None:
        """Only the first tokens are left."""
        old = self.chain
        self.chain = TokenChain(old.tokens[:num_tokens], old.lora, old.salt, old.images)
        self.computed = min(self.computed, num_tokens)

    def lose_blocks(self) -> None:
        """Preempted: nothing of it is computed any more."""
        self.place, self.computed, self.scheduled = "nowhere", 0, 0
        self.drafts, self.drafts_computed, self.worker_tables = (), False, []


def extended(chain: TokenChain, tokens: Sequence[int]) -> TokenChain:
    """The chain with further tokens behind it."""
    return TokenChain((*chain.tokens, *tokens), chain.lora, chain.salt, chain.images)
