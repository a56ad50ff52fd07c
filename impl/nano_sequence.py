"""What the nano-vLLM-shaped block manager knows of a request.

A sequence has tokens, a table of blocks, and two counters that the scheduler moves. Sampling,
status and text belong to the engine; its own sequence class serves the manager as well, when it
has these attributes.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(eq=False)
class Sequence:
    """One request.

    Args:
        token_ids: the prompt, at least one token; the list is copied.

    The manager fills `block_table`, one block id for each `block_size` tokens or part of them.
    `num_cached_tokens` counts the tokens whose KV is in the blocks: the manager sets it on
    admission to what was hit, and the scheduler adds each step's tokens once they are computed.
    `num_scheduled_tokens` is how many tokens after these the running step computes. Raises
    ValueError for an empty prompt.
    """

    token_ids: list[int]
    block_table: list[int] = field(default_factory=list, init=False)
    num_cached_tokens: int = field(default=0, init=False)
    num_scheduled_tokens: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.token_ids)
        if not self.token_ids:
            raise ValueError("a sequence needs at least one token")

    def __len__(self) -> int:
        return len(self.token_ids)

    def append_token(self, token_id: int) -> None:
        """Add a sampled token. It has no KV yet, and perhaps no slot: ask `can_append` next."""
        self.token_ids.append(token_id)
