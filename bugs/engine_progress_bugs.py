"""Bugs of engines in whom they admit, and for how much: limits, seats, and requests that hang."""

from __future__ import annotations

from poolproof.bugs.engine_specimen import CHUNKS, DRAFTS, EngineSection, has_drafts
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.violation import Severity
from poolproof.impl.engine import Engine, EngineStep, LiveRequest, StepPart

__all__ = ["ENGINE_PROGRESS_BUGS"]

ENGINE_PROGRESS_BUGS = EngineSection()
plant = ENGINE_PROGRESS_BUGS.plant

ANOTHER = Severity.WRONG_DATA_OF_ANOTHER


@plant(
    "S100", "admission keeps a block in reserve, and the front door does not",
    thread="sglang#25126", also=("sglang#28530", "sglang#29249", "vllm#35570"),
    invariants=("LIVE",), severity=Severity.STALL,
)  # fmt: skip
class NeverAdmitsTheLargest(Engine):
    """A request is taken and never comes in; all behind it wait."""

    def _may_enter(self, request: LiveRequest) -> bool:
        size = self._hasher.block_size
        needed = -(-request.max_tokens // size) + 1
        return needed <= self.num_free() and super()._may_enter(request)


@plant(
    "S105", "a preempted request keeps its blocks",
    thread="TensorRT-LLM#18115", also=("TensorRT-LLM#14723",),
    invariants=("CRASH", "LIVE", "LEAK", "PLAN"), severity=Severity.STALL,
)  # fmt: skip
class PausedKeepsBlocks(Engine):
    """It gives way, and nobody gains by it."""

    def _preempt(self, step: EngineStep, request: LiveRequest) -> None:
        step.preempted.append(request.number)
        request.num_preemptions += 1
        self._wait(request)


@plant(
    "S106", "a request in chunks is refused the seat that it has",
    thread="sglang#23006", invariants=("LIVE",), severity=Severity.STALL,
    profile=EngineProfile(null_block=0, max_batch_tokens=5, max_running=1),
    is_bug_under=lambda p: p.max_running == 1 and p.max_batch_tokens < 16,
)  # fmt: skip
class NoSeatForTheSecondChunk(Engine):
    """Where all seats are taken nobody's next chunk is computed."""

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        is_chunked = 0 < num_computed < request.num_tokens - 1
        if request.is_running and is_chunked and len(self._running) >= self.max_running:
            return 0, 0
        return super()._share(step, request, num_computed)


@plant(
    "S107", "progress in a prompt is written down when its blocks are cached, and only then",
    thread="sglang#36855", also=("sglang#33996", "sglang#37024", "sglang#26259"),
    invariants=("LIVE",), severity=Severity.STALL, profile=CHUNKS,
    is_bug_under=lambda p: p.max_batch_tokens < 16 and p.steps_in_flight == 1,
)  # fmt: skip
class ProgressInTheCache(Engine):
    """Without caching the first chunk is computed for ever."""

    def _settle(self, part: StepPart, sampled: list[int]) -> None:
        super()._settle(part, sampled)
        if not (part.samples or self.manager.enable_caching or part.request.has_ended):
            part.request.num_computed_tokens -= part.count


@plant(
    "S112", "those that run already do not count as running",
    thread="nano-vllm#265", also=("vllm-ascend#822", "FastDeploy#7141"), invariants=("PLAN",),
    severity=Severity.CRASH, profile=EngineProfile(null_block=0, max_running=2),
    is_bug_under=lambda p: p.max_running < 4,
)  # fmt: skip
class ResidentsDoNotCount(Engine):
    """A step has more requests than it may."""

    def _admit_waiting(self, step: EngineStep) -> None:
        self._num_before = len(self._running)
        super()._admit_waiting(step)

    def _has_seat(self) -> bool:
        return len(self._running) - self._num_before < self.max_running


@plant(
    "S113", "drafts are not taken off the budget of a step",
    thread="FastDeploy#7438", also=("FastDeploy#7439",), invariants=("PLAN",),
    severity=Severity.CRASH, profile=DRAFTS,
    is_bug_under=lambda p: has_drafts(p) and p.max_batch_tokens < 16,
)  # fmt: skip
class DraftsAreFree(Engine):
    """A step computes more positions than it may."""

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        super()._add(step, request, count, num_drafts)
        step.budget += num_drafts


@plant(
    "S118", "what is to be computed is counted before the cached prefix is",
    thread="nano-vllm#207", also=("nano-vllm#211", "xLLM#1898"), invariants=("PLAN", "CRASH"),
    severity=Severity.CRASH,
)  # fmt: skip
class CountsBeforeTheLookup(Engine):
    """Start and count reach beyond the prompt."""

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        return super()._share(step, request, num_computed if request.is_running else 0)


@plant(
    "S119", "a cancel finds those that run and those that are new, and not the preempted",
    thread="sglang-jax#984", also=("sglang-jax#1471", "sglang#20182", "sglang#8352"),
    invariants=("PLAN", "OUT", "LEAK"), severity=Severity.CRASH,
)  # fmt: skip
class PreemptedCannotBeCancelled(Engine):
    """It comes back and is served for nobody."""

    def cancel(self, request_id: int) -> None:
        request = self._requests[request_id]
        if request.is_running or not request.num_preemptions:
            super().cancel(request_id)


@plant(
    "S120", "a cancelled request that runs keeps its blocks",
    thread="vllm-omni#3774", also=("vllm#31857",), invariants=("LEAK", "LIVE"),
    severity=Severity.STALL,
)  # fmt: skip
class CancelLeaves(Engine):
    """Only those that end by themselves give blocks back."""

    def cancel(self, request_id: int) -> None:
        self.manager.pop_blocks_for_free(self._requests[request_id])
        super().cancel(request_id)


@plant(
    "S124", "a cancel while a prompt is computed clears all that are at theirs",
    thread="optimum-neuron#609", invariants=("LIVE", "OUT", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ONES_OWN,
    profile=CHUNKS, is_bug_under=lambda p: p.max_batch_tokens < 16,
)  # fmt: skip
class ClearsTheBatch(Engine):
    """The others are never served."""

    def cancel(self, request_id: int) -> None:
        cleared = [r for r in self._running if r.num_settled < r.num_tokens - 1]
        if self._requests[request_id] in cleared:
            for request in cleared:
                self._end(request)
        else:
            super().cancel(request_id)


@plant(
    "S126", "no room for the next token ends the engine",
    thread="imp#1635", also=("pegainfer#254", "pegainfer#290"), invariants=("CRASH",),
    severity=Severity.CRASH, silent=False,
)  # fmt: skip
class NobodyGivesWay(Engine):
    """Admission looks at prompts alone, so it comes to that."""

    def _make_room(self, step: EngineStep, request: LiveRequest, count: int) -> bool:  # noqa: ARG002 - it takes no other's
        if not self._take_slots(request, count):
            raise MemoryError("no block is free for the next token")
        return True


@plant(
    "S136", "that all seats are taken is only forgotten when a request ends by itself",
    thread="sglang#23138", also=("sglang#14872",), invariants=("LIVE",), severity=Severity.STALL,
    profile=EngineProfile(null_block=0, max_running=2), is_bug_under=lambda p: p.max_running < 4,
)  # fmt: skip
class FullForEver(Engine):
    """After a cancel nobody is admitted though nobody runs."""

    _is_full = False

    def _has_seat(self) -> bool:
        self._is_full |= not super()._has_seat()
        return not self._is_full

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        outputs = super().answer(tokens, drafts)
        self._is_full &= not any(ended for _, _, ended in outputs)
        return outputs
