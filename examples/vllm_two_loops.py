"""vLLM's own BlockPool with one method overridden, as connectors and forks do; it is wrong.

`free_blocks` first drops all references and only then looks who has none left. A block that
stands twice in the list is put into the free queue twice. That was met in a real override
(ai-dynamo/dynamo#13398); vLLM's own method looks while it drops.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from vllm.v1.core.block_pool import BlockPool


class TwoLoops(BlockPool):  # type: ignore[misc]  # vLLM is optional and untyped where we check
    """Everything else is the engine's."""

    def free_blocks(self, ordered_blocks: Iterable[Any]) -> None:
        """Return blocks in eviction order."""
        blocks = list(ordered_blocks)
        for block in blocks:
            block.ref_cnt -= 1
        unheld = [block for block in blocks if block.ref_cnt == 0 and not block.is_null]
        self.free_block_queue.prepend_n([block for block in unheld if block.block_hash is None])
        self.free_block_queue.append_n([block for block in unheld if block.block_hash is not None])
