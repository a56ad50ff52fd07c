"""Bugs of engines in what workers have beside blocks: encoder outputs, adapters, weights.

An output of the encoder is dropped while somebody needs it, or kept when nobody does; more adapters
are planned than workers hold; a reset leaves something of the old weights.
"""

from __future__ import annotations

from poolproof.bugs.engine_specimen import (
    ADAPTERS,
    IMAGES,
    RESETS,
    EngineSection,
    has_adapter_limit,
    has_encoder_cache,
    is_asynchronous,
    resets_preempt,
)
from poolproof.contract.violation import Severity
from poolproof.impl.encoder_cache import EncoderCache
from poolproof.impl.engine import Engine, EngineStep, LiveRequest

__all__ = ["ENGINE_WORKER_BUGS"]

ENGINE_WORKER_BUGS = EngineSection()
plant = ENGINE_WORKER_BUGS.plant


@plant(
    "S108", "images are let go when the whole prompt is computed, which needs their room",
    thread="vllm-ascend#17195", invariants=("LIVE",), severity=Severity.STALL,
    profile=IMAGES, is_bug_under=has_encoder_cache,
)  # fmt: skip
class KeepsImagesToTheEnd(Engine):
    """A prompt with more images than the cache holds never gets past them."""

    def _let_image_go(self, request: LiveRequest, image: str) -> None:
        if request.num_settled >= len(request.token_ids) - 1:
            super()._let_image_go(request, image)


class _CountingCache(EncoderCache):
    """Its room is a number, not a sum; a release gives back without asking what was released."""

    def release(self, image: str, user: int) -> None:
        super().release(image, user)
        if image in self._sizes:
            self.capacity += self._sizes[image]


@plant(
    "S116", "an image that is let go twice gives its room back twice",
    thread="vllm#55733", also=("vllm#55734",), invariants=("PLAN",), severity=Severity.CRASH,
    profile=IMAGES, is_bug_under=has_encoder_cache,
)  # fmt: skip
class RoomGrows(Engine):
    """The cache is taken to be larger each time."""

    encoder_cache_class = _CountingCache


@plant(
    "S122", "a request that is cancelled keeps its images",
    thread="vllm#31857", also=("vllm#12545",), invariants=("LIVE",), severity=Severity.STALL,
    profile=IMAGES, is_bug_under=has_encoder_cache,
)  # fmt: skip
class CancelKeepsImages(Engine):
    """The cache fills up with what nobody will ever let go."""

    def _let_images_go(self, request: LiveRequest) -> None:
        if not request.has_ended:
            super()._let_images_go(request)


@plant(
    "S121", "an image is let go when its positions are planned",
    thread="vllm#38551", also=("vllm#45347", "vllm#52482"), invariants=("PLAN",),
    severity=Severity.CRASH, profile=IMAGES, is_bug_under=has_encoder_cache,
)  # fmt: skip
class LetsGoTooEarly(Engine):
    """Another request of the same step takes its room, and the step itself finds it gone."""

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        super()._add(step, request, count, num_drafts)
        self._let_images_go(request)


@plant(
    "S147", "a hit that ends inside an image leaves the rest of it without the encoder",
    thread="vllm#12065", invariants=("PLAN",), severity=Severity.CRASH,
    profile=IMAGES, is_bug_under=has_encoder_cache,
)  # fmt: skip
class EncodesFromTheFirstPosition(Engine):
    """An image is encoded where its first position is computed, and here that is cached."""

    def _until_image(self, request: LiveRequest, first: int, count: int) -> int:
        images = request.images
        if not request.is_running:
            request.images = tuple(i for i in images if i.first_token >= first)
        until = super()._until_image(request, first, count)
        request.images = images
        return until


@plant(
    "S148", "adapters of prompts that are still computed in chunks are not counted",
    thread="sglang#25865", also=("sglang#23141", "sglang#25567"), invariants=("PLAN",),
    severity=Severity.CRASH, profile=ADAPTERS, is_bug_under=has_adapter_limit,
)  # fmt: skip
class UncountedAdapters(Engine):
    """Only those that get tokens already hold their adapter."""

    def _adapters_in_use(self) -> set[object]:
        return {
            request.lora
            for request in self._running
            if request.lora is not None and request.num_settled >= len(request.token_ids) - 1
        }


@plant(
    "S149", "a preempted request comes back without asking whether its adapter has room",
    thread="sglang#23141", invariants=("PLAN",), severity=Severity.CRASH,
    profile=ADAPTERS, is_bug_under=has_adapter_limit,
)  # fmt: skip
class ReturnsWithItsAdapter(Engine):
    """It had one when it left."""

    def _has_adapter(self, request: LiveRequest) -> bool:
        return request.num_preemptions > 0 or super()._has_adapter(request)


@plant(
    "S150", "a reset forgets what is cached, and those that run go on with old KV",
    thread="vllm#17103", also=("vllm#28827",), invariants=("DATA",),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=RESETS, is_bug_under=resets_preempt,
)  # fmt: skip
class RunnersKeepOldKv(Engine):
    """Their blocks are held, so the cache is emptied around them."""

    def reset(self) -> bool:
        pool = self.manager.block_pool
        pool.evict(range(1, pool.num_blocks))
        return True


@plant(
    "S11", "what was in flight at a reset is taken off the counts of the next run",
    thread="vllm#46066", also=("vllm#49860",), invariants=("CRASH", "PLAN", "OUT", "LIVE", "DATA"),
    severity=Severity.CRASH, silent=False, profile=RESETS,
    is_bug_under=lambda p: resets_preempt(p) and is_asynchronous(p),
)  # fmt: skip
class SettlesAcrossResets(Engine):
    """A reset is no preemption to it: the answers that come afterwards are of this run."""

    def reset(self) -> bool:
        runs = {request: request.num_preemptions for request in self._running}
        is_done = super().reset()
        for request, num_preemptions in runs.items():
            request.num_preemptions = num_preemptions
        return is_done
