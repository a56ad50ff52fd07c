"""Bugs of engines within and between steps: what is planned, published, in flight, drafted.

A plan that is not taken back as a whole when a request leaves it; the late output of a step, which
meets a request that was preempted or has ended meanwhile; counts that take drafts for tokens.
"""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_engine import AdmissionOrderEngine, EarlyKeysEngine
from poolproof.bugs.engine_specimen import (
    ASYNC,
    ASYNC_3,
    CHUNKS,
    DRAFTS,
    PRIORITY,
    WINDOWS,
    EngineSection,
    has_drafts,
    is_asynchronous,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.violation import Severity
from poolproof.impl.engine import Engine, EngineStep, LiveRequest, StepPart
from poolproof.impl.kv_cache_manager import KVCacheBlocks

__all__ = ["ENGINE_STEP_BUGS", "CancelledIsServed", "SlidesTooFar"]

ENGINE_STEP_BUGS = EngineSection()
plant = ENGINE_STEP_BUGS.plant

ANOTHER, OWN = Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN


def _has_priorities(profile: EngineProfile) -> bool:
    return profile.policy == "priority"


def _is_synchronous(profile: EngineProfile) -> bool:
    return profile.steps_in_flight == 1


# A request leaves the step that was being planned.


@plant(
    "S1", "keys of a step stay when its request is preempted while the step is planned",
    thread="vllm#43569", also=("vllm#57580", "vllm-rbln#525"), invariants=("DATA",),
    severity=ANOTHER, profile=PRIORITY,
    is_bug_under=lambda p: _has_priorities(p) and p.max_batch_tokens < 16,
)  # fmt: skip
class KeysOfUnwrittenBlocks(EarlyKeysEngine):
    """Whoever has the prefix next reads what the block held before."""

    def _take_back(self, request: LiveRequest, num_computed: int) -> None:
        """Nothing is taken back."""


@plant(
    "S4", "a preempted request stays in the step that was planned before",
    thread="vllm#23347", also=("vllm#23713", "vllm#21528"), invariants=("PLAN", "CRASH"),
    severity=Severity.CRASH, profile=PRIORITY, is_bug_under=_has_priorities,
)  # fmt: skip
class VictimStaysPlanned(AdmissionOrderEngine):
    """Its tokens are computed through blocks that others have."""

    def _take_out(self, step: EngineStep, part: StepPart) -> None:  # noqa: ARG002 - it stays as it is
        part.request.num_parts -= 1


@plant(
    "S9", "a request that gave way itself is planned all the same",
    thread="tt-inference-server#2042", also=("nanovllm-voxcpm#42",), invariants=("PLAN", "CRASH"),
    severity=Severity.CRASH,
)  # fmt: skip
class SelfPreemptedIsPlanned(Engine):
    """It has no blocks any more."""

    def _make_room(self, step: EngineStep, request: LiveRequest, count: int) -> bool:
        super()._make_room(step, request, count)
        return True


# The table that the worker has.


class _TellingTables(Engine):
    """The worker is told what was added to a table since it was told last."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._known: dict[int, list[list[int]]] = {}

    def _told(self, part: StepPart) -> dict[str, Any]:
        told = super()._told(part)
        known = self._known.setdefault(part.request.number, [[] for _ in told["blocks"]])
        for table, blocks in zip(known, told["blocks"], strict=True):
            table.extend(self._added(table, blocks))
        return {**told, "blocks": [list(table) for table in known]}

    def _added(self, table: list[int], blocks: list[int]) -> list[int]:
        return blocks[len(table) :]


@plant(
    "S8", "the worker keeps the table that a request had before it was preempted",
    thread="vllm-rbln#676", also=("vllm-rbln#662", "TensorRT-LLM#13592"),
    invariants=("DATA", "PLAN"), severity=ANOTHER,
)  # fmt: skip
class TableOfBefore(_TellingTables):
    """The first entries are blocks that were given away."""


# A step in flight, and a request that was preempted or ended meanwhile.


@plant(
    "S10", "what was in flight at a preemption is taken off the counts of the next run",
    thread="vllm#48245", also=("vllm#47900", "vllm#38624"),
    invariants=("PLAN", "OUT", "DATA", "LIVE", "CRASH", "LEAK"), severity=Severity.CRASH,
    profile=ASYNC, is_bug_under=is_asynchronous,
)  # fmt: skip
class LateOutputCounts(Engine):
    """Counts fall below nothing."""

    def _settle(self, part: StepPart, sampled: list[int]) -> None:
        part.run = part.request.num_preemptions
        super()._settle(part, sampled)


@plant(
    "S12", "after a preemption one answer is dropped, whether or not one is in flight",
    thread="vllm#42043", also=("vllm#42117",), invariants=("OUT",), severity=OWN,
)  # fmt: skip
class DropsTheNextToken(Engine):
    """The first token of the next run is lost."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._to_drop: set[int] = set()

    def _preempt(self, step: EngineStep, request: LiveRequest) -> None:
        super()._preempt(step, request)
        self._to_drop.add(request.number)

    def _given(self, request: LiveRequest, sampled: list[int]) -> list[int]:
        if sampled and request.number in self._to_drop:
            self._to_drop.remove(request.number)
            return []
        return super()._given(request, sampled)


@plant(
    "S14", "the late output of a preempted request publishes the blocks that it had",
    thread="FastDeploy#5502", also=("FastDeploy#5510",), invariants=("DATA", "CRASH"),
    severity=ANOTHER, profile=ASYNC, is_bug_under=is_asynchronous,
)  # fmt: skip
class LateOutputPublishes(Engine):
    """They are others' by then."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._old: dict[int, list[int]] = {}

    def _preempt(self, step: EngineStep, request: LiveRequest) -> None:
        self._old[request.number] = self.manager.get_block_ids(request.request_id)[0]
        super()._preempt(step, request)

    def _keep(self, request: LiveRequest) -> None:
        super()._keep(request)
        old, pool = self._old.pop(request.number, []), self.manager.block_pool
        if not request.is_running and self.manager.enable_caching:
            held = [pair for pair in zip(old, request.block_hashes) if pool.ref_count(pair[0])]
            for block, key in held:
                pool.evict([block])
                pool.cache([block], [key])


@plant(
    "S16", "a preempted request resumes before the token that was in flight is added",
    thread="TensorRT-LLM#10943", invariants=("OUT", "PLAN", "DATA", "LIVE"),
    severity=OWN, profile=ASYNC_3, is_bug_under=lambda p: p.steps_in_flight > 2,
)  # fmt: skip
class ResumesTooEarly(Engine):
    """Its length is one off from then on."""

    def _may_enter(self, request: LiveRequest) -> bool:  # noqa: ARG002 - whatever it waits for
        return True


@plant(
    "S19", "a preemption drops the tokens of a request and not how many were sent",
    thread="sglang#39645", invariants=("OUT", "LIVE"), severity=OWN,
)  # fmt: skip
class SplicesTwoStreams(Engine):
    """The user gets the head of one stream and the tail of another."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._prompts: dict[int, int] = {}
        self._unsent: dict[int, int] = {}

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        self._prompts.setdefault(request.number, request.num_tokens)
        super()._add(step, request, count, num_drafts)

    def _preempt(self, step: EngineStep, request: LiveRequest) -> None:
        super()._preempt(step, request)
        num_prompt = self._prompts[request.number]
        self._unsent[request.number] = request.num_tokens - num_prompt
        request.truncate(num_prompt)

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        sent = []
        for number, given, ended in super().answer(tokens, drafts):
            skipped = min(self._unsent.get(number, 0), len(given))
            self._unsent[number] = self._unsent.get(number, 0) - skipped
            if given[skipped:] or ended:
                sent.append((number, given[skipped:], ended))
        return sent


@plant(
    "S21", "a request that comes back computes its prompt, and not what it was given since",
    thread="FastDeploy#3071", also=("FastDeploy#3080", "vllm-ascend#822", "vllm-gaudi#524"),
    invariants=("DATA", "PLAN"), severity=ANOTHER,
    is_bug_under=_is_synchronous,
)  # fmt: skip
class ComputesThePromptAlone(Engine):
    """The last token reads positions that nobody has computed anew."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._prompts: dict[int, int] = {}

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        num_prompt = self._prompts.setdefault(request.number, request.num_tokens)
        last = request.num_tokens - 1
        if num_prompt <= request.num_computed_tokens < last:
            count -= last - request.num_computed_tokens
            request.num_computed_tokens = last
        if count > 0:
            super()._add(step, request, count, num_drafts)


@plant(
    "S25", "two steps in flight both end a request",
    thread="LLMServingSim#62", also=("FastDeploy#3292", "mini-sglang#111"),
    invariants=("OUT", "CRASH"), severity=OWN, silent=False, profile=ASYNC,
    is_bug_under=is_asynchronous,
)  # fmt: skip
class EndsTwice(Engine):
    """The second end looks for what the first has removed."""

    def _is_awaited(self, request: LiveRequest) -> bool:  # noqa: ARG002 - not even asked
        return True


@plant(
    "S26", "the token of a step that was launched before the cancel is given to the user",
    thread="sglang#34149", also=("sglang#34112", "sglang#6184"), invariants=("OUT",), severity=OWN,
    is_bug_under=lambda p: p.cancelled_outputs == "none",
)  # fmt: skip
class CancelledIsServed(Engine):
    """Nobody waits for it any more, or somebody else does."""

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        cancelled = [p.request.number for p in self._steps[0].parts if p.request.has_ended]
        late = [(number, tokens[number], True) for number in cancelled if number in tokens]
        return super().answer(tokens, drafts) + late


# Drafts.


@plant(
    "S152", "what was accepted behind the stop token is given as well",
    thread="koboldcpp#1276", also=("llama.cpp#28049",), invariants=("OUT",), severity=OWN,
    profile=DRAFTS, is_bug_under=has_drafts,
)  # fmt: skip
class GivesBehindTheStop(Engine):
    """The request ends, and its user has read on."""

    def _given(self, request: LiveRequest, sampled: list[int]) -> list[int]:
        return sampled[: request.max_tokens - request.num_tokens]


@plant(
    "S153", "of a step's tokens only the last one is asked whether it stops the request",
    thread="transformers#47912", invariants=("OUT",), severity=OWN,
    profile=DRAFTS, is_bug_under=has_drafts,
)  # fmt: skip
class LooksAtTheLastToken(GivesBehindTheStop):
    """A request goes on behind a stop token that was drafted."""

    def _is_over(self, request: LiveRequest, given: list[int]) -> bool:
        return super()._is_over(request, given[-1:])


@plant(
    "S28", "where all drafts are rejected, none is taken off the computed tokens",
    thread="vllm#42722", invariants=("DATA", "PLAN", "LIVE", "CRASH"),
    severity=ANOTHER, profile=DRAFTS, is_bug_under=has_drafts,
)  # fmt: skip
class NoRollback(Engine):
    """Positions count as computed that hold the KV of drafts."""

    def _settle(self, part: StepPart, sampled: list[int]) -> None:
        computed = part.request.num_computed_tokens
        super()._settle(part, sampled)
        if len(sampled) == 1 and part.run == part.request.num_preemptions:
            part.request.num_computed_tokens = computed


@plant(
    "S29", "drafts are padded to their number where a request has no room for so many",
    thread="vllm#53962", also=("vllm#53812",), invariants=("PLAN", "LIVE", "CRASH"),
    severity=Severity.CRASH,
    profile=EngineProfile(null_block=0, draft_tokens=3, max_request_tokens=11),
    is_bug_under=lambda p: has_drafts(p) and p.max_request_tokens > 0,
)  # fmt: skip
class PadsBeyondTheLimit(Engine):
    """Positions are computed that no table reaches."""

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        count, num_drafts = super()._share(step, request, num_computed)
        if num_drafts:
            more = self.draft_tokens - num_drafts
            return count + more, num_drafts + more
        return count, num_drafts


@plant(
    "S31", "slots are taken for the drafts of one step while two are in flight",
    thread="TensorRT-LLM#16280", invariants=("PLAN", "DATA"), severity=ANOTHER, profile=WINDOWS,
    is_bug_under=lambda p: is_asynchronous(p) and has_drafts(p),
)  # fmt: skip
class SlotsForOneStep(Engine):
    """The second step writes behind the table."""

    def _take_slots(
        self,
        request: LiveRequest,
        count: int,
        num_cached: int = 0,
        hits: KVCacheBlocks | None = None,
        num_on_host: int = 0,
    ) -> bool:
        count = max(1, count - request.num_in_flight_tokens)
        return super()._take_slots(request, count, num_cached, hits, num_on_host)


@plant(
    "S32", "the end of a request gives back the blocks of its tokens, and not those of drafts",
    thread="sglang-jax#1147", also=("sglang#12224", "sglang#13826"), invariants=("LEAK", "LIVE"),
    severity=Severity.STALL, profile=DRAFTS, is_bug_under=has_drafts,
)  # fmt: skip
class ForgetsBlocksOfDrafts(Engine):
    """Blocks get fewer until nobody is served."""

    def _give_back(self, request: LiveRequest) -> None:
        blocks = self.manager.pop_blocks_for_free(request)
        size = self._hasher.block_size
        kept = -(-request.num_tokens // size)
        self.manager.block_pool.free(blocks[:kept][::-1])


@plant(
    "S36", "blocks leave the window by a count that takes drafts in flight for tokens",
    thread="vllm#47728", also=("vllm#47282", "vllm#47653", "vllm-ascend#13501"),
    invariants=("DATA", "PLAN"), severity=ANOTHER, profile=WINDOWS,
    is_bug_under=lambda p: (
        is_asynchronous(p) and has_drafts(p) and any(g.is_sliding for g in p.groups)
    ),
)  # fmt: skip
class SlidesTooFar(Engine):
    """Drafts are rejected, the window moves back, and its blocks are gone."""

    def _take_slots(
        self,
        request: LiveRequest,
        count: int,
        num_cached: int = 0,
        hits: KVCacheBlocks | None = None,
        num_on_host: int = 0,
    ) -> bool:
        in_flight, request.num_in_flight_tokens = request.num_in_flight_tokens, 0
        is_taken = super()._take_slots(request, count, num_cached, hits, num_on_host)
        request.num_in_flight_tokens = in_flight
        return is_taken


@plant(
    "S27", "the block of the last sampled token is published, and its KV comes with the next step",
    thread="vllm#54288", invariants=("DATA",), severity=ANOTHER,
)  # fmt: skip
class PublishesTheSampledToken(Engine):
    """Whoever finds the block reads a slot that was never written."""

    def _keep(self, request: LiveRequest) -> None:
        if request.is_running:
            (table, *_) = self.manager.get_block_ids(request.request_id)
            num_slots = len(table) * self._hasher.block_size
            written = max(request.num_settled, min(request.num_tokens, num_slots))
            self.manager.cache_blocks(request, written)
        super()._keep(request)


@plant(
    "S129", "a prompt that is computed in chunks counts as computed with the first of them",
    thread="ik_llama.cpp#1787", invariants=("PLAN", "DATA", "LIVE"), severity=ANOTHER,
    profile=CHUNKS, is_bug_under=lambda p: p.max_batch_tokens < 16,
)  # fmt: skip
class FirstChunkIsAll(Engine):
    """The rest of the prompt is never computed."""

    def _settle(self, part: StepPart, sampled: list[int]) -> None:
        super()._settle(part, sampled)
        if not part.samples and part.run == part.request.num_preemptions:
            request = part.request
            (table, *_) = self.manager.get_block_ids(request.request_id)
            slots = len(table) * self._hasher.block_size
            request.num_computed_tokens = max(
                request.num_computed_tokens, min(request.num_tokens - 1, slots)
            )
