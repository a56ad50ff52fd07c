"""Correct relatives of our engine: other designs of servers, and the base of bugs that need them.

Each is right, and no less so than the engine itself: `oddities` of the level are made of them.
"""

from __future__ import annotations

from typing import Any

from poolproof.impl.engine import Engine, EngineStep, LiveRequest, StepPart
from poolproof.impl.kv_cache_manager import KVCacheBlocks
from poolproof.impl.offloading import Kept, Offloader

__all__ = [
    "AdmissionOrderEngine",
    "EarlyKeysEngine",
    "OffloadingEngine",
    "RestoresWhatFailed",
]


class AdmissionOrderEngine(Engine):
    """Running requests are served in the order in which they came in, as in vLLM.

    The one that gives way is the last in rank all the same, so it may be one that the step has
    already planned: then it is taken out of the step. Where there are others, a step computes at
    most `most_of_a_prompt` tokens of one prompt, so that somebody may come in behind it.
    """

    most_of_a_prompt = 6

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        count, num_drafts = super()._share(step, request, num_computed)
        cut = count - self.most_of_a_prompt
        if cut <= 0 or len(self._running) + len(self._waiting) < 2:
            return count, num_drafts
        return self.most_of_a_prompt, max(0, num_drafts - cut)

    def _enter(self, request: LiveRequest) -> None:
        request.is_running = True
        self._running.append(request)

    def _victim(self) -> LiveRequest:
        return max((r for r in self._running if not r.is_loading), key=lambda r: r.rank)

    def _preempt(self, step: EngineStep, request: LiveRequest) -> None:
        for part in [part for part in step.parts if part.request is request]:
            self._take_out(step, part)
        super()._preempt(step, request)

    def _take_out(self, step: EngineStep, part: StepPart) -> None:
        step.parts.remove(part)
        step.budget += part.count
        part.request.num_parts -= 1


class EarlyKeysEngine(AdmissionOrderEngine):
    """Keys are published when a step is planned, and taken back where it is not carried out.

    A request of the same step may start from them: all of a step is written before any is read.
    Nobody has found what is taken back, since a step that preempts takes nobody in.
    """

    def _take_slots(
        self,
        request: LiveRequest,
        count: int,
        num_cached: int = 0,
        hits: KVCacheBlocks | None = None,
        num_on_host: int = 0,
    ) -> bool:
        new = self.manager.allocate_slots(
            request,
            count,
            num_cached,
            hits,
            num_external_computed_tokens=num_on_host,
            delay_cache_blocks=num_on_host > 0,
        )
        return new is not None

    def _take_out(self, step: EngineStep, part: StepPart) -> None:
        super()._take_out(step, part)
        self._take_back(part.request, part.first)

    def _take_back(self, request: LiveRequest, num_computed: int) -> None:
        self.manager.uncache_blocks(request, num_computed)


class OffloadingEngine(Engine):
    """An engine whose host memory is of class `offloader_class`."""

    offloader_class: type[Offloader] = Offloader

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        if self.offloader is not None:
            self.offloader = self.offloader_class(
                self.manager.block_pool, block_size, arguments["host_places"]
            )


class RestoresWhatFailed(OffloadingEngine):
    """A store that has failed gives its places back to the keys that were there before.

    It is right where a transfer that is lost moves nothing.
    """

    class Tier(Offloader):
        """Remembers which entry gave its place up for which."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self._before: dict[int, Kept] = {}

        def _forget(self, entry: Kept) -> None:
            if entry.is_ready:
                self._before[entry.place] = entry
            super()._forget(entry)

        def arrived(self, transfer_id: int, is_done: bool) -> None:
            move = self._under_way[transfer_id]
            super().arrived(transfer_id, is_done)
            for entry in () if move.is_load else move.kept:
                before = self._before.pop(entry.place, None)
                if before and not is_done and before.key not in self._index:
                    self._free_places.remove(entry.place)
                    self._index[before.key] = before

        def clear(self) -> None:
            super().clear()
            self._before.clear()

    offloader_class = Tier
