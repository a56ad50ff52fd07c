"""What the commands of a manager workload are made of: which sequence, which prompt, how much.

Which command comes next is decided in `manager_workload.py`; prompts that have to do with nothing
but one another are made in `manager_prompts.py`.
"""

from __future__ import annotations

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.harness.manager_prompts import ManagerPrompts
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["ManagerArguments"]


class ManagerArguments:
    """Draws arguments for the state `model`; what is legal with them is not its concern."""

    def __init__(
        self, choices: Choices, model: SequenceModel, can: Capabilities, num_symbols: int
    ) -> None:
        self.below = choices.below
        self.model = model
        self.can = can
        # What is looked up behind a window has to be longer than it; a ring has no cache.
        self.is_windowed = model.profile.publishes != "never" and any(
            group.kind == "sliding" for group in model.groups
        )
        self.prompts = ManagerPrompts(
            choices, model.block_size, num_symbols, are_long=self.is_windowed
        )
        self.waiting: Admit | None = None
        self.forked: tuple[int, ...] = ()
        self._sequences = model.sequences.values
        self._chunks = "schedule" in can.verbs

    def _placed(self, place: str) -> list[SequenceState]:
        return [s for s in self._sequences() if s.place == place]

    def _complete(self) -> list[SequenceState]:
        """Those that are computed to their last token."""
        return [
            s for s in self._sequences() if s.num_computed == s.num_tokens and not s.num_scheduled
        ]

    def _one(self, found: list[SequenceState]) -> SequenceState | None:
        return found[self.below(len(found))] if found else None

    def _rather_forked(self, found: list[SequenceState]) -> SequenceState | None:
        """Mostly one of the last fork, where it is among them."""
        if self.forked and len(found) > 1 and self.below(4):
            found = [s for s in found if s.seq_id in self.forked] or found
        return self._one(found)

    def _rather_all(self, most: int) -> int:
        """From 1 up to `most`, and half the time just that."""
        return most if self.below(2) else 1 + self.below(most)

    def _chunk(self, num_tokens: int) -> int:
        """How much of a prompt is scheduled at once: mostly all of it (0), or a part."""
        if not self._chunks or self.below(4) or num_tokens < 2:
            return 0
        return 1 + self.below(num_tokens)

    def _put_off(self) -> Admit | None:
        """Now and then the request that was put off last, as engines ask again (vllm#18957)."""
        waiting, model = self.waiting, self.model
        if waiting is None or waiting.seq_id in model.sequences:
            return None
        if waiting.seq_id in model.ended_ids or self.below(3):
            return None
        return Admit(waiting.seq_id, waiting.chain, self._chunk(len(waiting.chain.tokens)))

    def _filling(self) -> TokenChain:
        """A prompt that just fits into the free blocks, or just does not, where few are free."""
        pool, groups = self.model.pool, len(self.model.groups)
        return self.prompts.fitting(len(pool.free), pool.num_blocks - 1, groups)

    def _again(self) -> TokenChain:
        """Whole blocks of an earlier prompt and what just fits behind them, or just does not."""
        prompts, model, size = self.prompts, self.model, self.model.block_size
        earlier = prompts.a_late_one()
        kept = min(len(earlier.tokens) // size, 6) * size
        chain = prompts.cut(earlier, kept, 1)
        sequence = model.new_sequence(-1, chain)
        cached = model.cached_prefix(sequence)
        sequence.num_computed, sequence.num_scheduled = cached, kept + 1 - cached
        spare = len(model.pool.free) - model.most_blocks_needed(sequence, cached)
        num_blocks = spare // len(model.groups) + (self.below(4) == 0)
        # The last block holds one token, or is full.
        more = num_blocks * size + self.below(2) * (size - 1)
        return prompts.cut(chain, kept + 1, more) if more > 0 else chain

    def _to_load(self) -> TokenChain:
        """A prompt of which some is likely to be cached already."""
        prompts = self.prompts
        return prompts.remember(prompts.longer() if self.below(2) else prompts.next())
