"""Bugs of engines with host memory: transfers that nobody waits for, pins, or is told of.

Blocks that are freed while a transfer uses them, ends of transfers that meet a request in an
unusual state, failures that pass for success, and a tier that counts otherwise than the engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from poolproof.bugs.clean_engine import OffloadingEngine
from poolproof.bugs.engine_specimen import ASYNC, EngineSection, is_asynchronous
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.violation import Severity
from poolproof.impl.engine import Engine, EngineStep, LiveRequest
from poolproof.impl.offloading import Kept, Move, Offloader

__all__ = ["ENGINE_TRANSFER_BUGS"]

ENGINE_TRANSFER_BUGS = EngineSection()

ANOTHER, OWN = Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN
FEW = EngineProfile(null_block=0, policy="priority", max_running=2)
"""Requests that are loaded count as running, so few running ones show who does not count them."""


def plant(*names: str, places: int = 16, **more: Any) -> Any:
    """A specimen that needs host memory."""
    return ENGINE_TRANSFER_BUGS.plant(*names, host_places=places, **more)


def _table(engine: Engine, request: LiveRequest) -> list[int]:
    """The blocks of a request, in the only group."""
    (table,) = engine.manager.get_block_ids(request.request_id)
    return table


# Blocks and places that a transfer still uses.


@plant(
    "S35", "a load begins while a step in flight still writes into its blocks",
    thread="vllm#45357", also=("vllm-ascend#14055", "tpu-inference#3449", "vllm#47282"),
    invariants=("DATA",), severity=ANOTHER, profile=ASYNC, is_bug_under=is_asynchronous,
)  # fmt: skip
class LoadsTooEarly(OffloadingEngine):
    """Their former owner has ended, and the worker does not know yet."""

    class Tier(Offloader):
        """Everything begins at once."""

        def _may_begin(self, move: Move, oldest_step: int) -> bool:  # noqa: ARG002 - at once
            return True

    offloader_class = Tier


@plant(
    "S37", "a cancel frees the blocks that a load is still writing",
    thread="vllm#32255", also=("sglang#24527", "sglang#35049", "sglang#32564"),
    invariants=("DATA",),
    severity=ANOTHER,
)  # fmt: skip
class FreesWhatIsLoaded(Engine):
    """The next owner's data is overwritten."""

    def _end(self, request: LiveRequest) -> None:
        super()._end(request)
        self._give_back(request)


@plant(
    "S38", "the blocks of a store are free once their request is gone",
    thread="vllm#29870", also=("vllm#52470", "LMCache#4955", "vllm#48596", "tokenspeed#293"),
    invariants=("DATA",),
    severity=ANOTHER,
)  # fmt: skip
class StoresWhatIsFree(OffloadingEngine):
    """The host keeps what their next owner wrote, under the old key."""

    class Tier(Offloader):
        """Pins no block."""

        def _pin(self, blocks: list[int]) -> None:
            """It is a matter of microseconds."""

        def _unpin(self, blocks: list[int]) -> None:
            """There is nothing to unpin."""

    offloader_class = Tier


@plant(
    "S41", "a store begins with the step that computes its blocks",
    thread="vllm#45704", also=("vllm#46278", "vllm-omni#7877"), invariants=("DATA",),
    severity=ANOTHER,
)  # fmt: skip
class StoresTooEarly(Engine):
    """It may be over before the step has written them."""

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        super()._add(step, request, count, num_drafts)
        if self.offloader is not None:
            self._store(request, min(request.num_computed_tokens, request.num_tokens))


@plant(
    "S88", "tokens that are planned count as computed where blocks are stored",
    thread="LMCache#1898", also=("vllm#43884",), invariants=("DATA",), severity=ANOTHER,
    profile=EngineProfile(null_block=0, steps_in_flight=2, max_batch_tokens=6),
    is_bug_under=lambda p: is_asynchronous(p) and p.max_batch_tokens < 16,
)  # fmt: skip
class StoresWhatIsPlanned(Engine):
    """The second chunk of a prompt is stored once the first is computed."""

    def _keep(self, request: LiveRequest) -> None:
        super()._keep(request)
        if request.is_running and self.offloader is not None:
            self._store(request, min(request.num_computed_tokens, request.num_tokens))


@plant(
    "S34", "the block of the last sampled token is stored before its KV is written",
    thread="vllm#54288", invariants=("DATA", "CRASH"), severity=ANOTHER,
)  # fmt: skip
class StoresTheSampledToken(Engine):
    """Its last slot holds what the block held before."""

    def _store(self, request: LiveRequest, num_tokens: int) -> None:
        num_slots = len(_table(self, request)) * self._hasher.block_size
        super()._store(request, max(num_tokens, min(request.num_tokens, num_slots)))


@plant(
    "S43", "a place is given away while it is loaded from",
    thread="sglang#31427", also=("sglang#26728", "vllm#42289", "LMCache#4133"),
    invariants=("DATA", "CRASH"), severity=ANOTHER, places=2,
)  # fmt: skip
class GivesPlacesAway(OffloadingEngine):
    """The load brings what another request stored there."""

    class Tier(Offloader):
        """The oldest place goes, used or not."""

        def _use(self, entry: Kept) -> None:
            if not entry.is_ready:
                super()._use(entry)

        def _release(self, entry: Kept) -> None:
            if not entry.is_ready:
                super()._release(entry)

    offloader_class = Tier


@plant(
    "S44", "what is being stored counts as stored",
    thread="sglang#28468", also=("sglang#27108",), invariants=("DATA",),
    severity=ANOTHER,
)  # fmt: skip
class StoredAtOnce(OffloadingEngine):
    """A load may come before the store, or the store never."""

    class Tier(Offloader):
        """Whatever has a place is found."""

        def _is_found(self, key: bytes) -> bool:
            return key in self._index

    offloader_class = Tier


@plant(
    "S45", "a store that failed counts as done",
    thread="sglang#28468", also=("sglang#27108", "vllm-ascend#17044"), invariants=("DATA",),
    severity=ANOTHER,
)  # fmt: skip
class FailedStoreCounts(OffloadingEngine):
    """The place holds what it held before."""

    class Tier(Offloader):
        """Every transfer succeeds."""

        def arrived(self, transfer_id: int, is_done: bool) -> None:
            is_load = self._under_way[transfer_id].is_load
            super().arrived(transfer_id, is_done or not is_load)

    offloader_class = Tier


@plant(
    "S84", "a request goes on behind a load that failed",
    thread="sglang#30233", also=("sglang#34208", "vllm#36014", "vllm-ascend#17044"),
    invariants=("DATA",),
    severity=ANOTHER,
)  # fmt: skip
class GoesOnWithoutTheLoad(Engine):
    """It reads what its blocks held before, and publishes it."""

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:  # noqa: ARG002 - all the same
        super()._loaded(request, is_done=True)


@plant(
    "S89", "what the tier knows of a request's blocks grows, also when it comes back",
    thread="LMCache#1969", also=("LMCache#1361", "LMCache#2007", "vllm#46595"),
    invariants=("DATA", "CRASH", "LEAK"), severity=ANOTHER,
)  # fmt: skip
class TrackerGrows(Engine):
    """Blocks of others are stored under the request's keys."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._tracked: dict[int, list[int]] = {}

    def _store(self, request: LiveRequest, num_tokens: int) -> None:
        tracked = self._tracked.setdefault(request.number, [])
        tracked += _table(self, request)[len(tracked) :]
        offloader, pool = self.offloader, self.manager.block_pool
        assert offloader is not None
        first, end = request.num_offered, num_tokens // offloader.block_size
        if first < end and all(pool.ref_count(block) for block in tracked[first:end]):
            offloader.store(tracked[first:end], request.block_hashes[first:end])
            request.num_offered = end


# What the host has, counted otherwise than by the engine.


@plant(
    "S87", "the end of a request stores every block that has a hash",
    thread="vllm#49118", also=("vllm#49146", "vllm#49285"), invariants=("CRASH", "DATA"),
    severity=ANOTHER, silent=False,
)  # fmt: skip
class StoresAllHashes(Engine):
    """There are hashes of tokens that were never computed, and no blocks for them."""

    def _end(self, request: LiveRequest) -> None:
        if request.is_running and not request.is_loading and self.offloader is not None:
            self._store(request, request.num_tokens)
        super()._end(request)


@plant(
    "S91", "a prompt that the host has as a whole leaves nothing to compute",
    thread="LMCache#3322", invariants=("LIVE", "PLAN", "CRASH"), severity=Severity.STALL,
)  # fmt: skip
class NothingLeft(Engine):
    """No token is computed, so none is sampled."""

    def _num_on_host(self, request: LiveRequest, num_cached: int) -> int:
        if self.offloader is None:
            return 0
        size = self.offloader.block_size
        return self.offloader.num_found(request.block_hashes[num_cached // size :]) * size


@plant(
    "S92", "what the host has counts from the start, and what is cached is added to it",
    thread="LMCache#2090", also=("LMCache#2091",), invariants=("CRASH", "DATA", "PLAN", "LIVE"),
    severity=Severity.STALL,
)  # fmt: skip
class CountsFromTheStart(Engine):
    """More is loaded than there is."""

    def _num_on_host(self, request: LiveRequest, num_cached: int) -> int:  # noqa: ARG002 - told nothing of it
        return super()._num_on_host(request, 0)

    def _on_host(
        self, request: LiveRequest, entries: Iterable[tuple[int, int]]
    ) -> tuple[list[int], list[bytes]]:
        """The blocks that the table has, and the keys that are known, of which there are fewer."""
        table, keys = _table(self, request), request.block_hashes
        wanted = [entry for _, entry in entries]
        blocks = [table[entry] for entry in wanted if entry < len(table)]
        return blocks, [keys[entry] for entry in wanted if entry < len(keys)]


@plant(
    "S131", "a reset does not reach the host",
    thread="vllm#42694", also=("vllm#42695", "lmdeploy#4917", "vllm#27170"), invariants=("DATA",),
    severity=ANOTHER,
)  # fmt: skip
class ResetsTheDeviceAlone(Engine):
    """KV of the old weights comes back from there."""

    def reset(self) -> bool:
        return self.manager.reset_prefix_cache()


@plant(
    "S52", "a reset forgets the transfers that are under way",
    thread="vllm#39726", also=("vllm#41956",), invariants=("CRASH", "DATA"),
    severity=ANOTHER, silent=False,
)  # fmt: skip
class ResetForgetsTransfers(OffloadingEngine):
    """They end, and nobody knows them."""

    class Tier(Offloader):
        """Empties its tables."""

        def clear(self) -> None:
            self._under_way.clear()
            super().clear()

    offloader_class = Tier

    def reset(self) -> bool:
        if self.offloader is not None:
            self.offloader.clear()
        return super().reset()


# Transfers that end.


@plant(
    "S60", "a store that ends looks for its request, which has ended before",
    thread="vllm#46304", also=("vllm#47499", "vllm#45628", "LMCache#4938", "sglang#28341"),
    invariants=("CRASH",), severity=Severity.CRASH, silent=False,
)  # fmt: skip
class UnknownRequest(OffloadingEngine):
    """The engine dies of a request that was served."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._storing: list[int] = []

    def _store(self, request: LiveRequest, num_tokens: int) -> None:
        super()._store(request, num_tokens)
        self._storing.append(request.number)

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        if transfer_id not in self._loading and self._storing:
            self._requests[self._storing[-1]].drafts = []
        super().arrived(transfer_id, is_done)


@plant(
    "S62", "the end of a load is ignored where its request was cancelled",
    thread="vllm-ascend#16662", also=("vllm-ascend#16663", "vllm-ascend#16461"),
    invariants=("LEAK", "LIVE"), severity=Severity.STALL,
)  # fmt: skip
class IgnoresCancelledLoads(Engine):
    """Nobody gives its blocks back."""

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        if not request.has_ended:
            super()._loaded(request, is_done)


@plant(
    "S63", "a cancel waits for a load that has ended already",
    thread="vllm#32255", invariants=("LEAK", "LIVE"), severity=Severity.STALL,
)  # fmt: skip
class WaitsForLoadsOfThePast(Engine):
    """It looks at whether the request was ever loaded for."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._was_loading: set[int] = set()

    def _load(self, step: EngineStep, request: LiveRequest, num_tokens: int) -> None:
        super()._load(step, request, num_tokens)
        self._was_loading.add(request.number)

    def cancel(self, request_id: int) -> None:
        request = self._requests[request_id]
        request.is_loading |= request_id in self._was_loading and request.is_running
        super().cancel(request_id)


@plant(
    "S65", "nobody is told of a load that failed",
    thread="vllm#35943", also=("vllm#50754", "vllm#55181", "LMCache#5047", "sglang#9397"),
    invariants=("LIVE", "LEAK"), severity=Severity.STALL,
)  # fmt: skip
class FailedLoadsAreSilent(Engine):
    """The request waits for ever."""

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        if is_done:
            super()._loaded(request, is_done)


@plant(
    "S66", "a request whose prefix is cached waits for a load of nothing",
    thread="vllm#56640", also=("vllm#54714",), invariants=("LIVE",), severity=Severity.STALL,
)  # fmt: skip
class LoadOfNothing(Engine):
    """No transfer begins, so none ends."""

    def _enter(self, request: LiveRequest) -> None:
        super()._enter(request)
        has_hits = any(self.manager.get_computed_blocks(request)[0].blocks)
        if has_hits and self.offloader is not None and not self._num_on_host(request, 0):
            request.is_loading = True


@plant(
    "S67", "a store that failed does not let go of its blocks",
    thread="vllm#43742", invariants=("LEAK", "LIVE"), severity=Severity.STALL,
)  # fmt: skip
class FailedStorePins(OffloadingEngine):
    """Blocks get fewer with every failure."""

    class Tier(Offloader):
        """Counts down on success alone."""

        def arrived(self, transfer_id: int, is_done: bool) -> None:
            move = self._under_way[transfer_id]
            if not is_done and not move.is_load:
                self._pin(move.blocks)
            super().arrived(transfer_id, is_done)

    offloader_class = Tier


@plant(
    "S68", "what transfers held is given back by the next step that computes something",
    thread="vllm#43433", also=("TensorRT-LLM#12313",), invariants=("LEAK", "LIVE"),
    severity=Severity.STALL,
)  # fmt: skip
class PolledInBusySteps(OffloadingEngine):
    """In an idle engine it stays held."""

    class Tier(Offloader):
        """Remembers what to give back."""

        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.to_free: list[int] = []

        def _unpin(self, blocks: list[int]) -> None:
            self.to_free += blocks

        def poll(self) -> None:
            super()._unpin(self.to_free)
            self.to_free = []

    offloader_class = Tier

    def plan(self) -> dict[str, Any]:
        if self._running and isinstance(self.offloader, self.Tier):
            self.offloader.poll()
        return super().plan()


@plant(
    "S72", "the host is asked again after a load has ended",
    thread="vllm#18232", invariants=("LIVE",), severity=Severity.STALL,
)  # fmt: skip
class LoadsAgain(Engine):
    """It answers the same, so the request is loaded for, for ever."""

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        if is_done and not request.has_ended:
            request.is_loading = False
            self._give_back(request)
            self._wait(request)
        else:
            super()._loaded(request, is_done)


@plant(
    "S74", "a request that is being loaded for cannot be cancelled",
    thread="TensorRT-LLM#12314", also=("TensorRT-LLM#11715", "sglang-jax#984"),
    invariants=("PLAN", "OUT", "LEAK"), severity=Severity.CRASH,
)  # fmt: skip
class CannotCancelLoads(Engine):
    """It is served for nobody."""

    def cancel(self, request_id: int) -> None:
        if not self._requests[request_id].is_loading:
            super().cancel(request_id)


@plant(
    "S77", "that a load fails was not thought of",
    thread="vllm#52838", also=("vllm#39732",), invariants=("CRASH",), severity=Severity.CRASH,
    silent=False,
)  # fmt: skip
class LoadsNeverFail(Engine):
    """An assertion ends the engine."""

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        assert is_done, "a load has failed"
        super()._loaded(request, is_done)


@plant(
    "S79", "a request waits for a store of its prefix, also for one that has failed",
    thread="vllm#49829", also=("vllm#49022", "Mooncake#849"), invariants=("LIVE",),
    severity=Severity.STALL,
)  # fmt: skip
class WaitsForFailedStores(OffloadingEngine):
    """The entry stays as if it were to come."""

    class Tier(Offloader):
        """Forgets no entry whose store has failed."""

        def arrived(self, transfer_id: int, is_done: bool) -> None:
            kept = self._under_way[transfer_id].kept
            failed = [entry for entry in kept if not is_done and not entry.is_ready]
            for entry in failed:
                self._use(entry)
            super().arrived(transfer_id, is_done)
            for entry in failed:
                self._index.setdefault(entry.key, entry)

        def is_coming(self, keys: list[bytes]) -> bool:
            known = self._index
            return any(key in known and not known[key].is_ready for key in keys)

    offloader_class = Tier

    def _may_enter(self, request: LiveRequest) -> bool:
        tier = self.offloader
        if isinstance(tier, self.Tier) and tier.is_coming(request.block_hashes):
            return False
        return super()._may_enter(request)


@plant(
    "S111", "requests that are being loaded for do not count as running",
    thread="vllm#42568", invariants=("PLAN",), severity=Severity.CRASH, profile=FEW,
    is_bug_under=lambda p: p.max_running < 4,
)  # fmt: skip
class LoadingDoesNotCount(Engine):
    """Once they have come, a step has more requests than it may."""

    def _has_seat(self) -> bool:
        return sum(not request.is_loading for request in self._running) < self.max_running


@plant(
    "S95", "loaded requests keep their blocks in a queue whose head waits for them",
    thread="vllm#45388", also=("vllm#45387", "vllm#45406", "vllm#57841", "vllm#49439"),
    invariants=("LIVE", "LEAK"), severity=Severity.STALL,
    profile=EngineProfile(null_block=0, policy="priority"),
    is_bug_under=lambda p: p.policy == "priority",
)  # fmt: skip
class HeadWaitsForThoseBehind(Engine):
    """The head does not fit, and ends the scan before their turn.

    Who is cancelled meanwhile keeps its blocks for a load that has ended.
    """

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        super()._loaded(request, is_done)
        if is_done and not request.has_ended:
            request.is_loading = True

    def _admit_waiting(self, step: EngineStep) -> None:
        super()._admit_waiting(step)
        if not self._waiting:
            for request in self._running:
                request.is_loading = request in self._loading.values()


# Promises about transfers, each taken for more than it says.

NEVER_FAIL = EngineProfile(null_block=0, transfers="never-fail", transfer_order="fifo")
MAY_END = EngineProfile(null_block=0, failed_loads="may-end-requests")


@plant(
    "S160", "the end of a store is taken for that of an older load",
    thread="vllm#46304", also=("vllm#56194",), invariants=("DATA", "CRASH"), severity=ANOTHER,
    profile=NEVER_FAIL,
)  # fmt: skip
class EndsTheOldest(OffloadingEngine):
    """Transfers end in order, but loads and stores each in their own."""

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        assert self.offloader is not None
        super().arrived(min(self.offloader.under_way(), default=transfer_id), is_done)


@plant(
    "S161", "a store that begins with a step is not waited for by it",
    thread="vllm#42959", also=("vllm#42761",), invariants=("DATA",), severity=ANOTHER,
    profile=NEVER_FAIL,
)  # fmt: skip
class FlushesOneStepLate(StoresWhatIsFree):
    """Its blocks have new owners in that very step."""

    def plan(self) -> dict[str, Any]:
        assert self.offloader is not None or not self.manager.enable_caching
        before = self.offloader.under_way() if self.offloader is not None else []
        return {**super().plan(), "flushes": before}


@plant(
    "S162", "a request whose load has failed is dropped, and nobody is told",
    thread="sglang#38352", also=("vllm#45138",), invariants=("LIVE",), severity=Severity.STALL,
    profile=MAY_END,
)  # fmt: skip
class DropsSilently(OffloadingEngine):
    """Its user waits for ever."""

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        super()._loaded(request, is_done)
        if not is_done and not request.has_ended:
            self._end(request)


@plant(
    "S163", "a store that follows its step takes tokens that a later step computes",
    thread="vllm#45704", also=("LMCache#1898",), invariants=("DATA", "CRASH"), severity=ANOTHER,
    profile=EngineProfile(null_block=0, max_batch_tokens=6, transfers="never-fail"),
    is_bug_under=lambda p: p.max_batch_tokens < 16,
)  # fmt: skip
class StoresTheWholePrompt(Engine):
    """The first chunk of a prompt is computed, and all of its blocks are stored."""

    def plan(self) -> dict[str, Any]:
        plan = super().plan()
        moves = [{**m, "follows": m["kind"] == "store"} for m in plan["transfers"]]
        return {**plan, "transfers": moves}

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        super()._add(step, request, count, num_drafts)
        if self.offloader is not None:
            size = self._hasher.block_size
            slots = len(_table(self, request)) * size
            self._store(request, min(request.num_computed_tokens + size, request.num_tokens, slots))
