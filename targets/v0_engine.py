"""The target `vllm-v0-engine`: the `Scheduler` of vLLM 0.2.7 (V0), unmodified.

Run are `core/scheduler.py`, `core/policy.py` and what `vllm-v0` runs (`v0_manager.py`). Stand-ins:
the configuration, of which the scheduler reads a few numbers, and the logger.

The adapter does what `LLMEngine.step` does: `schedule`, the workers, and for each sequence the new
token, the check for its end, and `free_seq`; then `free_finished_seq_groups`. A cancel is heard
before the next step, as in `AsyncLLMEngine`, so what was in flight may still come.

A request is a group of one sequence. The scheduler takes the blocks of such a group away by
recomputation. Groups that ask for several beams it swaps to host memory: in the set-ups with `swap`
each request asks for two beams, of which one was never taken up. Workers swap out before they
compute, while a plan's stores come after; so a step that swaps out is told as two, of which the
first moves the blocks and computes nothing. Who is cancelled between the two is left out of the
second.

A decode wants a free block for each sequence of a group, whether it needs one or not, so a block is
counted as spare. There is no prefix cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.outside import shown
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call, require_fit
from poolproof.targets.engine_sources import engine_folder, import_from_source, stub_module
from poolproof.targets.engine_target import engine_target, two_requests
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.v0_manager import MODULES, VLLM_V0, v0_stubs

__all__ = ["V0Engine", "vllm_v0_engine"]

_BLOCK_SIZE = 4
_HOST_BLOCKS = 8
"""Blocks in host memory for each on the device: who has none ends the engine, as it says."""

_CALLS = (
    Call("__init__", ("scheduler_config", "cache_config")),
    Call("add_seq_group", ("seq_group",)),
    Call("abort_seq_group", ("request_id",)),
    Call("schedule"),
    Call("free_seq", ("seq",)),
    Call("free_finished_seq_groups"),
)


@dataclass(frozen=True)
class _Parts:
    """What the adapter uses, by the engine's own names."""

    Scheduler: Any
    Sequence: Any
    SequenceGroup: Any
    SequenceStatus: Any
    SamplingParams: Any


class _Settings(SimpleNamespace, HandedOver):
    """Numbers of a configuration."""


class V0Engine:
    """A scheduler, and what `LLMEngine` does around it."""

    def __init__(self, parts: _Parts, setup: _SetUp, num_blocks: int) -> None:
        self._parts = parts
        self._setup = setup
        self._scheduler = parts.Scheduler(
            _Settings(
                max_model_len=setup.max_batch_tokens,
                max_num_batched_tokens=setup.max_batch_tokens,
                max_num_seqs=setup.max_running * setup.width,
                max_paddings=setup.max_batch_tokens,
            ),
            _Settings(
                block_size=_BLOCK_SIZE,
                num_gpu_blocks=num_blocks,
                num_cpu_blocks=num_blocks * _HOST_BLOCKS,
                sliding_window=None,
            ),
        )
        self._cancelled: list[int] = []
        self._scheduled: list[Any] = []
        self._delayed: EnginePlan | None = None
        self._num_transfers = 0

    def submit(
        self,
        request_id: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request comes."""
        del priority, extra_keys  # one line, and nothing is shared
        parts = self._parts
        sequence = parts.Sequence(request_id, "", list(tokens), _BLOCK_SIZE)
        limits = parts.SamplingParams(max_tokens=max_new_tokens, **self._setup.sampling())
        group = parts.SequenceGroup(str(request_id), [sequence], limits, float(request_id))
        self._scheduler.add_seq_group(group)

    def cancel(self, request_id: int) -> None:
        """Its user has gone: the scheduler is told before the next step."""
        self._cancelled.append(request_id)

    def plan(self) -> EnginePlan:
        """The next step; where blocks are swapped out, that first."""
        if self._delayed is not None:
            plan, self._delayed = self._delayed, None
            live = [p for p in plan.parts if p.request_id not in self._cancelled]
            if live:
                return replace(plan, parts=tuple(live))
            self._scheduled = []  # Nobody waits for this half: the engine goes on to its next step.
        for request_id in self._cancelled:
            self._scheduler.abort_seq_group(str(request_id))
        self._cancelled = []
        before = [group.request_id for group in self._scheduler.running]
        metadata, outputs = self._answered()
        self._scheduled = list(outputs.scheduled_seq_groups)
        running = {group.request_id for group in self._scheduler.running}
        plan = EnginePlan(
            tuple(map(self._part, metadata)),
            tuple((a, b) for a, many in outputs.blocks_to_copy.items() for b in many),
            tuple(int(name) for name in before if name not in running),
            self._transfers(outputs.blocks_to_swap_in, is_load=True),
        )
        if not outputs.blocks_to_swap_out:
            return plan
        self._delayed = replace(plan, preempted=())
        out = self._transfers(outputs.blocks_to_swap_out, is_load=False)
        return EnginePlan(preempted=plan.preempted, transfers=out)

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """Each sequence of the step gets its token, and ends where it has to."""
        del drafts
        if self._delayed is not None:
            return []
        outputs = []
        for group in self._scheduled:
            (sequence,) = group.get_seqs()
            token = (tokens.get(sequence.seq_id) or [1])[0]
            sequence.append_token_id(token, {token: 0.0})
            if token == STOP_TOKEN:
                sequence.status = self._parts.SequenceStatus.FINISHED_STOPPED
            elif sequence.get_output_len() == group.sampling_params.max_tokens:
                sequence.status = self._parts.SequenceStatus.FINISHED_LENGTH_CAPPED
            if sequence.is_finished():
                self._scheduler.free_seq(sequence)
            outputs.append((sequence.seq_id, [token], sequence.is_finished()))
        self._scheduler.free_finished_seq_groups()
        self._scheduled = []
        return [output for output in outputs if output[0] not in self._cancelled]

    def num_free(self) -> int:
        """Blocks on the device that nobody holds."""
        free: int = self._scheduler.block_manager.get_num_free_gpu_blocks()
        return free

    def unfinished(self) -> list[int]:
        """The requests that wait, run, or are swapped out."""
        scheduler = self._scheduler
        groups = (*scheduler.waiting, *scheduler.running, *scheduler.swapped)
        return [int(group.request_id) for group in groups]

    def _answered(self) -> tuple[list[Any], Any]:
        answer = self._scheduler.schedule()
        match answer:
            case (list(metadata), outputs):
                return metadata, outputs
        raise TargetError(
            f"`schedule` answered {shown(answer)}; the adapter for vLLM V0's scheduler knows a "
            "list of metadata and its outputs"
        )

    @staticmethod
    def _part(metadata: Any) -> PlannedPart:
        ((number, data),) = metadata.seq_data.items()
        length = data.get_len()
        first = 0 if metadata.is_prompt else length - 1
        table = tuple(metadata.block_tables[number])
        return PlannedPart(number, first, length - first, 0, (table,))

    def _transfers(self, moves: Mapping[int, int], *, is_load: bool) -> tuple[Transfer, ...]:
        if not moves:
            return ()
        self._num_transfers += 1
        sources, targets = tuple(moves), tuple(moves.values())
        blocks, places = (targets, sources) if is_load else (sources, targets)
        return (Transfer(self._num_transfers, is_load, True, blocks, places),)


@dataclass(frozen=True)
class _SetUp:
    """The limits, and how many sequences a request asks for."""

    name: str
    max_batch_tokens: int
    max_running: int
    width: int = 1

    def sampling(self) -> dict[str, Any]:
        """What a request asks for beside its limit."""
        if self.width == 1:
            return {}
        return {"use_beam_search": True, "best_of": self.width, "temperature": 0.0}


_SETUPS = (
    _SetUp("recompute", 32, 4),
    _SetUp("recompute+small-steps", 20, 2),
    _SetUp("swap", 32, 4, width=2),
    _SetUp("swap+small-steps", 20, 2, width=2),
)


def vllm_v0_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """The scheduler of 0.2.7. Raises TargetError, which says how to get its sources."""
    parts = _parts()
    require_fit(parts.Scheduler, "vLLM V0's scheduler", _CALLS)
    layouts = [_layout(parts, setup) for setup in _SETUPS]
    return engine_target(
        name,
        overrides,
        layouts,
        parts.Scheduler,
        version=VLLM_V0.replace("-", " "),
        few_calls=partial(two_requests, num_tokens=2 * _BLOCK_SIZE, num_blocks=5),
        adapter="vLLM V0's scheduler",
        notes=(
            "prefix cache: there is none, so caching on and off are the same",
            "forks: a request has one sequence; where it is swapped it asks for two beams",
            "sliding windows, and host memory that is full, which ends this engine: not driven",
        ),
    )


@cache
def _parts() -> _Parts:
    folder = engine_folder(VLLM_V0)
    if not (folder / "vllm" / "core" / "scheduler.py").is_file():
        raise TargetError(
            f"{folder} has no vllm/core/scheduler.py: it was made by an earlier Poolproof; run "
            "`make engine-sources` in a checkout of Poolproof again"
        )
    logger = stub_module("vllm.logger", init_logger=lambda _name: _Silent())
    config = stub_module("vllm.config", CacheConfig=object, SchedulerConfig=object)
    stubs = {**v0_stubs(), "vllm.logger": logger, "vllm.config": config}
    modules = import_from_source(folder, "vllm", (*MODULES, "core.policy", "core.scheduler"), stubs)
    try:
        return _Parts(
            Scheduler=modules["core.scheduler"].Scheduler,
            Sequence=modules["sequence"].Sequence,
            SequenceGroup=modules["sequence"].SequenceGroup,
            SequenceStatus=modules["sequence"].SequenceStatus,
            SamplingParams=modules["sampling_params"].SamplingParams,
        )
    except AttributeError as error:
        raise TargetError(f"{folder} is not vLLM 0.2.7: {error}") from error


class _Silent:
    """A logger that says nothing."""

    def warning(self, *_arguments: Any) -> None: ...


def _layout(parts: _Parts, setup: _SetUp) -> EngineLayout:
    profile = EngineProfile(
        cancelled_outputs="may-come",
        prefix_hits="never",
        max_batch_tokens=setup.max_batch_tokens,
        max_running=setup.max_running,
        max_request_tokens=setup.max_batch_tokens,
        spare_tokens=_BLOCK_SIZE,
    )
    return EngineLayout(setup.name, profile, _maker(parts, setup), _BLOCK_SIZE)


def _maker(parts: _Parts, setup: _SetUp) -> Make:
    def make(num_blocks: int, enable_caching: bool) -> V0Engine:
        del enable_caching  # there is no prefix cache
        return V0Engine(parts, setup, num_blocks)

    return make
