"""Correct oddities of the engine level: schedulers that look wrong and are right.

Nobody may accuse them. Each breaks a rule that a checker might be tempted to have.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from poolproof.bugs.clean_engine import (
    AdmissionOrderEngine,
    EarlyKeysEngine,
    OffloadingEngine,
    RestoresWhatFailed,
)
from poolproof.bugs.engine_specimen import (
    ADAPTERS,
    ASYNC,
    CHUNKS,
    DRAFTS,
    FULL,
    IMAGES,
    PRIORITY,
    RESETS,
    EngineOddity,
)
from poolproof.bugs.engine_state_oddities import ENGINE_STATE_ODDITIES
from poolproof.bugs.engine_step_bugs import CancelledIsServed, SlidesTooFar
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.manager_profile import CacheGroup
from poolproof.impl.encoder_cache import EncoderCache
from poolproof.impl.engine import Engine, EngineStep, LiveRequest
from poolproof.impl.kv_cache_manager import KVCacheBlocks
from poolproof.impl.offloading import Move, Offloader

__all__ = ["ENGINE_ODDITIES", "ComputesTheCancelledOnceMore", "KeepsHeadroom", "TwoServers"]

ASYNC_DRAFTS = EngineProfile(null_block=0, steps_in_flight=2, draft_tokens=3)


class NewestRequestFirst(Engine):
    """Who came last goes first."""

    def submit(self, request_id: int, *arguments: Any, **named: Any) -> None:
        super().submit(request_id, *arguments, **named)
        request = self._requests[request_id]
        self._waiting.remove(request)
        request.rank = (0, -request_id)
        self._waiting.append(request)
        self._waiting.sort(key=lambda r: r.rank)


class SkipsAhead(Engine):
    """Who fits is taken in before those that came earlier and do not fit."""

    def _admit_waiting(self, step: EngineStep) -> None:
        for request in list(self._waiting):
            if step.budget and self._has_seat():
                self._admit(step, request)


class AdmitsEveryThirdStep(Engine):
    """Steps that compute nothing come between."""

    def _admit_waiting(self, step: EngineStep) -> None:
        if step.number % 3 == 0:
            super()._admit_waiting(step)

    def poolproof_state(self) -> Any:
        return super().poolproof_state(), self._num_planned % 3


class PromptsFirst(Engine):
    """While anybody's prompt is computed nobody else gets a token."""

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        count, num_drafts = super()._share(step, request, num_computed)
        is_prompt = request.num_tokens - num_computed > 1
        busy = any(r.num_tokens - r.num_computed_tokens > 1 for r in self._running)
        return (count, num_drafts) if is_prompt or not busy else (0, 0)


class WholeRequestsOnly(Engine):
    """Beside others, a request comes in only where all that it may become would fit."""

    def _may_enter(self, request: LiveRequest) -> bool:
        size = self._hasher.block_size
        fits = -(-request.max_tokens // size) <= self.num_free()
        return (fits or not self._running) and super()._may_enter(request)


class LastBlockAgain(Engine):
    """The last block of a hit is computed again, for a head that needs its hidden states."""

    def _admit(self, step: EngineStep, request: LiveRequest) -> bool:
        found = self.manager.get_computed_blocks
        size = self._hasher.block_size

        def shorter(asked: Any) -> tuple[KVCacheBlocks, int]:
            blocks, num_tokens = found(asked)
            if not num_tokens:
                return blocks, num_tokens
            return KVCacheBlocks(tuple(ids[:-1] for ids in blocks.blocks)), num_tokens - size

        self.manager.get_computed_blocks = shorter  # type: ignore[method-assign,assignment]  # for one call
        try:
            return super()._admit(step, request)
        finally:
            del self.manager.get_computed_blocks  # the class has it


class WholeBlockChunks(Engine):
    """Chunks of prompts end at the borders of blocks, though the budget has room."""

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        count, num_drafts = super()._share(step, request, num_computed)
        size = self._hasher.block_size
        if num_computed + count < request.num_tokens and count > size:
            count -= (num_computed + count) % size
        return count, num_drafts


class EverybodyGivesWay(Engine):
    """Where one has to give way, all that come after it do."""

    def _make_room(self, step: EngineStep, request: LiveRequest, count: int) -> bool:
        if self._take_slots(request, count):
            return True
        for other in [r for r in self._running if r.rank > request.rank and not r.is_loading]:
            self._preempt(step, other)
        return super()._make_room(step, request, count)


class KeepsSlotsAhead(Engine):
    """A request has slots for more than it computes."""

    def _take_slots(
        self,
        request: LiveRequest,
        count: int,
        num_cached: int = 0,
        hits: KVCacheBlocks | None = None,
        num_on_host: int = 0,
    ) -> bool:
        ahead = count + 2 if count else 0
        return super()._take_slots(
            request, ahead, num_cached, hits, num_on_host
        ) or super()._take_slots(request, count, num_cached, hits, num_on_host)


class AlwaysAllDrafts(Engine):
    """As many drafts are tried as may be, whatever was given: the rest is refused."""

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        if request.is_running and request.num_tokens - num_computed == 1:
            request.drafts = [1] * self.draft_tokens
        return super()._share(step, request, num_computed)


class NeverResets(Engine):
    """A reset is refused at all times."""

    def reset(self) -> bool:
        return False


class StoresAtTheEnd(Engine):
    """Blocks go to the host when their request has ended, and not before."""

    def _keep(self, request: LiveRequest) -> None:
        if request.is_running:
            self.manager.cache_blocks(request, request.num_settled)

    def _end(self, request: LiveRequest) -> None:
        if request.is_running and not request.is_loading and self.offloader is not None:
            self._store(request, min(request.num_settled, request.num_tokens))
        super()._end(request)


class OneBlockFromTheHost(Engine):
    """Of what the host has, only the first block is loaded; the rest is computed."""

    def _num_on_host(self, request: LiveRequest, num_cached: int) -> int:
        size = self._hasher.block_size
        return min(size, super()._num_on_host(request, num_cached))


class TransfersWhenIdle(OffloadingEngine):
    """A load begins when no other step is in flight, long after its request came in."""

    class Tier(Offloader):
        """One transfer at a time."""

        def _may_begin(self, move: Move, oldest_step: int) -> bool:
            is_first = move is self._waiting[0]
            return is_first and not self._under_way and super()._may_begin(move, oldest_step)

    offloader_class = Tier


class DropsStaleTokens(Engine):
    """A token that was in flight when its request was preempted is dropped, and sampled again."""

    def _is_awaited(self, request: LiveRequest) -> bool:
        return super()._is_awaited(request) and request.is_running


class WholeImagesOnly(Engine):
    """A chunk ends before an image that it cannot compute to its end, if it has anything else."""

    def _until_image(self, request: LiveRequest, first: int, count: int) -> int:
        for image in request.images:
            begin, end = image.first_token, image.first_token + image.num_tokens
            if first < begin < first + count < end:
                count = begin - first
        return super()._until_image(request, first, count)


class EncodesAhead(Engine):
    """The next image is encoded a step before its first position is computed, if there is room."""

    def _until_image(self, request: LiveRequest, first: int, count: int) -> int:
        until = super()._until_image(request, first, count)
        if until == count and self.encoder_cache is not None:
            for image in request.images:
                if image.first_token >= first + count:
                    if self.encoder_cache.fits(image.identifier, image.num_tokens):
                        self.encoder_cache.need(image.identifier, image.num_tokens, request.number)
                    break
        return until


class _NothingKept(EncoderCache):
    """What nobody needs goes at once."""

    def told(self) -> tuple[list[str], list[str]]:
        for image in [image for image, users in self._users.items() if not users]:
            self._drop(image)
        return super().told()


class ForgetsAtOnce(Engine):
    """No image is encoded once for two requests that come one after the other."""

    encoder_cache_class = _NothingKept


class OneKindOfAdapter(Engine):
    """Requests without an adapter wait for those with one, and the other way round."""

    def _has_adapter(self, request: LiveRequest) -> bool:
        return not self._running or self._running[0].lora == request.lora


class DropsAtReset(Engine):
    """What was in flight at a reset is sampled again; what was at a preemption is delivered."""

    def reset(self) -> bool:
        stale = {request.number for request in self._running if request.num_parts}
        is_done = super().reset()
        if is_done:
            self._stale = getattr(self, "_stale", set()) | stale
        return is_done

    def _is_awaited(self, request: LiveRequest) -> bool:
        stale: set[int] = getattr(self, "_stale", set())
        if request.number in stale:
            if not request.num_parts:
                stale.discard(request.number)
            return False
        return super()._is_awaited(request)


class SlidesWithTheStepsInFlight(DropsStaleTokens, SlidesTooFar):
    """Blocks leave the window by what is planned: without drafts no step in flight goes back."""


class KeepsNoPrefixes(Engine):
    """Every request is computed from its beginning."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **{**arguments, "enable_caching": False})


class EverybodyHasRoom(Engine):
    """A request comes in only where all that everybody inside may become fits as well."""

    def _may_enter(self, request: LiveRequest) -> bool:
        size = self._hasher.block_size
        wanted = sum(-(-r.max_tokens // size) for r in (*self._running, request))
        return wanted <= self.max_request_tokens // size and super()._may_enter(request)


class TwoServers(Engine):
    """Each request is served by one of two engines, each of which has a half of the blocks."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        max_batch_tokens: int,
        max_running: int,
        **arguments: Any,
    ) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._half = (num_blocks - 1) // 2
        arguments |= {"max_batch_tokens": max_batch_tokens // 2, "max_running": max_running // 2}
        self._servers = [Engine(self._half + 1, block_size, **arguments) for _ in range(2)]

    def submit(self, request_id: int, *arguments: Any, **named: Any) -> None:
        self._servers[request_id % 2].submit(request_id, *arguments, **named)

    def cancel(self, request_id: int) -> None:
        self._servers[request_id % 2].cancel(request_id)

    def plan(self) -> dict[str, Any]:
        one, other = (server.plan() for server in self._servers)
        for part in other["compute"]:
            part["blocks"] = [self._shifted(table) for table in part["blocks"]]
        return {name: [*one[name], *other[name]] for name in ("compute", "preempted")}

    def _shifted(self, table: list[int]) -> list[int]:
        return [block and block + self._half for block in table]

    def answer(self, *answers: Any) -> list[tuple[int, list[int], bool]]:
        return [output for server in self._servers for output in server.answer(*answers)]

    def reset(self) -> bool:
        done = [server.reset() for server in self._servers]
        return all(done)

    def num_free(self) -> int:
        return sum(server.num_free() for server in self._servers)

    def unfinished(self) -> list[int]:
        return [number for server in self._servers for number in server.unfinished()]


class KeepsHeadroom(Engine):
    """A request comes in only where a tenth of all blocks stays free beside its tokens."""

    def _may_enter(self, request: LiveRequest) -> bool:
        usable = self.manager.block_pool.num_blocks - 1
        wanted = -(-len(request.token_ids) // self._hasher.block_size)
        has_room = self.num_free() - wanted >= -(-usable // 10)
        return has_room and super()._may_enter(request)


_NO_HITS = tuple(replace(profile, prefix_hits="never") for profile in (FULL, CHUNKS, ASYNC))
_NO_PREEMPTIONS = tuple(replace(profile, preemptions="never") for profile in (FULL, CHUNKS))


class TrustsTransfers(OffloadingEngine):
    """Whatever has ended has been moved."""

    def arrived(self, transfer_id: int, is_done: bool) -> None:  # noqa: ARG002 - none fails
        super().arrived(transfer_id, True)


class EndsInOrder(OffloadingEngine):
    """Of each kind the oldest transfer has ended, whichever was named."""

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        assert self.offloader is not None
        is_load = transfer_id in self._loading
        kind = [n for n in self.offloader.under_way() if (n in self._loading) == is_load]
        super().arrived(kind[0], is_done)


class StoresWithTheStep(Engine):
    """Blocks are stored by the step that fills them; the store follows it."""

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        moves = [{**m, "follows": m["kind"] == "store"} for m in plan["transfers"]]
        return {**plan, "transfers": moves}

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        super()._add(step, request, count, num_drafts)
        if self.offloader is not None:
            self._store(request, min(request.num_computed_tokens, request.num_tokens))


class FlushesInsteadOfPinning(OffloadingEngine):
    """Blocks are free while they are stored, and every step waits for all stores."""

    class Tier(Offloader):
        """Pins no block."""

        def _pin(self, blocks: list[int]) -> None:
            """The next step waits."""

        def _unpin(self, blocks: list[int]) -> None:
            """There is nothing to unpin."""

    offloader_class = Tier

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        return {**plan, "flushes": self.offloader.under_way() if self.offloader else []}


class MovesAllRanksAtOnce(Engine):
    """One transfer moves the parts of all ranks."""

    def _begin_transfers(self) -> list[dict[str, Any]]:
        if self.offloader is None:
            return []
        return self.offloader.begin(self._steps[0].number)

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        assert self.offloader is not None
        if transfer_id in self.offloader.under_way():
            self.rank_notices.of_ranks([{"id": transfer_id}])
            for rank in range(self.rank_notices.num_ranks):
                super().arrived(transfer_id * self.rank_notices.num_ranks + rank, is_done)


class RemembersEnds(Engine):
    """What it has heard of once it hears no more."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._heard: set[int] = set()

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        if transfer_id not in self._heard:
            self._heard.add(transfer_id)
            super().arrived(transfer_id, is_done)


class RanksInTurn(Engine):
    """A rank begins with a transfer when the one before it has ended."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._later: list[dict[str, Any]] = []
        self._in_flight: set[int] = set()

    def _begin_transfers(self) -> list[dict[str, Any]]:
        self._later += super()._begin_transfers()
        begun: list[dict[str, Any]] = []
        for one in list(self._later):
            move = one["id"] // self.rank_notices.num_ranks
            if move not in self._in_flight:
                self._in_flight.add(move)
                self._later.remove(one)
                begun.append(one)
        return begun

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        self._in_flight.discard(transfer_id // self.rank_notices.num_ranks)
        super().arrived(transfer_id, is_done)


class EndsWhereALoadFails(OffloadingEngine):
    """A request whose load has failed ends at once, and its user is told."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._failed: list[int] = []

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        super()._loaded(request, is_done)
        if not is_done and not request.has_ended:
            self._end(request)
            self._failed.append(request.number)

    def cancel(self, request_id: int) -> None:
        if request_id in self._failed:
            self._failed.remove(request_id)
        super().cancel(request_id)

    def answer(self, *answers: Any) -> list[tuple[int, list[int], bool]]:
        failed, self._failed = self._failed, []
        return [*super().answer(*answers), *((number, [], True) for number in failed)]


class ComputesTheCancelledOnceMore(Engine):
    """Who is cancelled while it runs ends when a step that was planned since has sampled for it.

    SGLang's scheduler does so: the results of a step are where it lets go of requests.
    """

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._cancelled: dict[int, int] = {}

    def cancel(self, request_id: int) -> None:
        request = self._requests.get(request_id)
        if request is None or not request.is_running:
            super().cancel(request_id)
        else:
            self._cancelled.setdefault(request_id, self._num_planned)

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        number = self._steps[0].number
        outputs = super().answer(tokens, drafts)
        for request_id in [n for n, first in self._cancelled.items() if first <= number]:
            if tokens.get(request_id):
                del self._cancelled[request_id]
                super().cancel(request_id)
        return outputs


_NEVER_FAIL = EngineProfile(null_block=0, transfers="never-fail", transfer_order="fifo")
_MAY_END = EngineProfile(null_block=0, failed_loads="may-end-requests")
_DROPS = EngineProfile(null_block=0, steps_in_flight=2, stale_outputs="may-drop")
_DROPS_TWO = EngineProfile(
    null_block=0,
    steps_in_flight=3,
    stale_outputs="may-drop",
    groups=(CacheGroup(), CacheGroup("sliding", window=5)),
)
_LATE = (
    EngineProfile(null_block=0, cancelled_outputs="may-come"),
    EngineProfile(null_block=0, cancelled_outputs="may-come", max_batch_tokens=6),
)
_ONCE_MORE = tuple(
    replace(profile, cancelled_outputs="one-more") for profile in (FULL, CHUNKS, ASYNC, PRIORITY)
)
_TENTH_FREE = tuple(replace(profile, headroom_percent=10) for profile in (FULL, CHUNKS, ASYNC))
_IN_HALVES = tuple(replace(profile, instances=2) for profile in (FULL, ASYNC))
_PLAIN = (FULL, CHUNKS, ASYNC)
_RANKS = tuple(replace(profile, ranks=2) for profile in (FULL, ASYNC))
_TOLD_AGAIN = tuple(
    replace(profile, ranks=ranks, notices="may-repeat")
    for profile, ranks in ((FULL, 1), (ASYNC, 3))
)
_ALL_OR_NOTHING = tuple(
    replace(profile, lost_transfers="move-nothing") for profile in (FULL, ASYNC)
)

ENGINE_ODDITIES = (
    EngineOddity(
        "order of admission", "a victim leaves the step", AdmissionOrderEngine, (PRIORITY,)
    ),
    EngineOddity(
        "early keys", "a step writes before it reads", EarlyKeysEngine, (*_PLAIN, PRIORITY)
    ),
    EngineOddity("newest first", "nobody promised an order", NewestRequestFirst, _PLAIN),
    EngineOddity("skips ahead", "all are served in the end", SkipsAhead, (*_PLAIN, DRAFTS)),
    EngineOddity("every third step", "empty steps are no stall", AdmitsEveryThirdStep, _PLAIN),
    EngineOddity("prompts first", "prompts come to an end", PromptsFirst, (FULL, CHUNKS)),
    EngineOddity("whole requests", "room is kept for those inside", WholeRequestsOnly, _PLAIN),
    EngineOddity("last block again", "a hit may be shorter", LastBlockAgain, _PLAIN),
    EngineOddity("whole blocks", "a chunk may be shorter", WholeBlockChunks, _PLAIN),
    EngineOddity(
        "everybody gives way", "they compute anew", EverybodyGivesWay, (*_PLAIN, PRIORITY)
    ),
    EngineOddity("slots ahead", "blocks beyond need harm nobody", KeepsSlotsAhead, _PLAIN),
    EngineOddity(
        "all drafts", "who gave none has them refused", AlwaysAllDrafts, (DRAFTS, ASYNC_DRAFTS)
    ),
    EngineOddity("never resets", "a reset may be refused", NeverResets, _PLAIN),
    EngineOddity("stores at the end", "a cache may keep less", StoresAtTheEnd, (FULL, ASYNC), 8),
    EngineOddity("one block", "a hit may be shorter", OneBlockFromTheHost, (FULL, ASYNC), 8),
    EngineOddity("one transfer", "transfers may wait", TransfersWhenIdle, (FULL, ASYNC), 8),
    EngineOddity("whole images", "a chunk may be shorter", WholeImagesOnly, (IMAGES,)),
    EngineOddity("encodes ahead", "an output may come early", EncodesAhead, (IMAGES,)),
    EngineOddity("forgets at once", "a cache may keep less", ForgetsAtOnce, (IMAGES,)),
    EngineOddity("one adapter", "a step may have fewer", OneKindOfAdapter, (ADAPTERS,)),
    EngineOddity("drops at reset", "its profile says so", DropsAtReset, (RESETS,)),
    EngineOddity("drops stale tokens", "its profile says so", DropsStaleTokens, (_DROPS,)),
    EngineOddity(
        "slides ahead", "steps keep their order", SlidesWithTheStepsInFlight, (_DROPS_TWO,)
    ),
    EngineOddity("no prefixes", "its profile says so", KeepsNoPrefixes, _NO_HITS),
    EngineOddity("two servers", "its profile says so", TwoServers, _IN_HALVES),
    EngineOddity("keeps headroom", "its profile says so", KeepsHeadroom, _TENTH_FREE),
    EngineOddity("nobody gives way", "its profile says so", EverybodyHasRoom, _NO_PREEMPTIONS),
    EngineOddity("serves the cancelled", "its profile says so", CancelledIsServed, _LATE),
    EngineOddity(
        "computes the cancelled once more",
        "its profile says so",
        ComputesTheCancelledOnceMore,
        _ONCE_MORE,
    ),
    EngineOddity("trusts transfers", "its profile says so", TrustsTransfers, (_NEVER_FAIL,), 8),
    EngineOddity("ends in order", "its profile says so", EndsInOrder, (_NEVER_FAIL,), 8),
    EngineOddity(
        "stores with the step", "its plan says so", StoresWithTheStep, (FULL, CHUNKS, ASYNC), 8
    ),
    EngineOddity(
        "flushes instead of pinning", "the step waits", FlushesInsteadOfPinning, (FULL, ASYNC), 8
    ),
    EngineOddity(
        "ends where a load fails", "its profile says so", EndsWhereALoadFails, (_MAY_END,), 8
    ),
    EngineOddity("all ranks at once", "a plan names none", MovesAllRanksAtOnce, _RANKS, 8),
    EngineOddity("ranks in turn", "each rank ends by itself", RanksInTurn, _RANKS, 8),
    EngineOddity("told again", "it has heard", RemembersEnds, _TOLD_AGAIN, 8),
    EngineOddity(
        "restores what failed", "its profile says so", RestoresWhatFailed, _ALL_OR_NOTHING, 3
    ),
    *ENGINE_STATE_ODDITIES,
)
