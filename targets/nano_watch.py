"""nano-vLLM's own loop as the watch follows it: its `Scheduler`, and the block tables of a step.

The model runner reads the whole block table of each sequence in each step, so that is what counts.
A step is followed when `schedule` has planned it. Descendants whose sequences and block manager
have the same attributes are watched as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.target import TargetError
from poolproof.targets.loop_watch import LoopFacts, LoopRequest, LoopStep
from poolproof.targets.nano_engine import computed_positions

__all__ = ["NanoLoop"]


class NanoLoop:
    """A scheduler of nano-vLLM. Raises TargetError where it lacks what the loop is told by."""

    def __init__(self, scheduler: Any) -> None:
        manager: Any = getattr(scheduler, "block_manager", None)
        parts = {
            "schedule": getattr(scheduler, "schedule", None),
            "postprocess": getattr(scheduler, "postprocess", None),
            "is_finished": getattr(scheduler, "is_finished", None),
            "block_manager.blocks": getattr(manager, "blocks", None),
            "block_manager.block_size": getattr(manager, "block_size", None),
            "block_manager.free_block_ids": getattr(manager, "free_block_ids", None),
        }
        missing = [name for name, part in parts.items() if part is None]
        if missing:
            raise TargetError(
                f"{type(scheduler).__name__} lacks {', '.join(missing)}, which nano-vLLM's "
                "scheduler has; tell its steps by poolproof.StepRecord (docs/live.md)"
            )
        self._scheduler, self._manager = scheduler, manager
        self._alive: dict[str, Any] = {}
        kind = type(scheduler)
        size = int(manager.block_size)
        self.facts = LoopFacts(
            engine=f"nano-vLLM ({kind.__module__.partition('.')[0]})",
            scheduler=f"{kind.__module__}.{kind.__qualname__}",
            num_blocks=len(manager.blocks),
            groups=(CacheGroup("full", size),),
            block_sizes=(size,),
            left_out=("several ranks' own memories",),
            is_running=len(manager.free_block_ids) != len(manager.blocks)
            or bool(getattr(manager, "hash_to_block_id", None)),
        )

    def taps(self) -> Iterable[tuple[Any, str]]:
        """`schedule` plans, `postprocess` ends a step."""
        return (self._scheduler, "schedule"), (self._scheduler, "postprocess")

    def planned(self, answer: Any) -> LoopStep | None:
        """By the sequences that `schedule` answered, and whether they are prefilled."""
        sequences, is_prefill = answer
        ended = [name for name, sequence in self._alive.items() if sequence.is_finished]
        for name in ended:
            del self._alive[name]
        requests = []
        for sequence in sequences:
            name = str(getattr(sequence, "seq_id", id(sequence)))
            self._alive[name] = sequence
            first, count = computed_positions(sequence, is_prefill=is_prefill)
            requests.append(
                LoopRequest(name, sequence.token_ids, first, count, (sequence.block_table,))
            )
        return LoopStep(requests, ended=ended)

    def called(self, name: str, arguments: tuple[Any, ...]) -> None:
        """What was sampled changes no block that the next plan does not show."""

    def blocks(self) -> tuple[int, int]:
        """A block that nobody holds keeps its contents and may be given to anybody."""
        free = len(self._manager.free_block_ids)
        return len(self._manager.blocks) - free, free

    def is_at_rest(self) -> bool:
        """Whether nobody runs or waits."""
        return bool(self._scheduler.is_finished())
