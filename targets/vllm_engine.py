"""Drives vLLM V1's own schedulers, unmodified, as engines whose worker is simulated.

What the workers are told (`SchedulerOutput`) is what counts. A worker has a block table for each
request: a new or resumed one comes with the whole of it, a known one with the blocks that are added
at its end, and tables are dropped where the scheduler says so. The adapter keeps these tables
exactly so, and the plan of a step has them. Nothing of the scheduler is changed or repaired.

Not covered: what `vllm_engine_setups.py` says is not driven.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.targets.adapter_uses import require_uses
from poolproof.targets.engine_sources import engine_folder
from poolproof.targets.engine_target import engine_target
from poolproof.targets.installed_vllm import engine_module, import_of_vllm, part_of, version_of_vllm
from poolproof.targets.lmcache_parts import LMCACHE
from poolproof.targets.source_patch import patch_key
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.vllm_connector_workers import Reported
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import (
    BLOCK_SIZE,
    CONNECTOR_SETUPS,
    LMCACHE_CONNECTOR,
    LMCACHE_NOTES,
    LMCACHE_SETUPS,
    SETUPS,
    EngineSetup,
)

__all__ = [
    "OWN_MODULES",
    "VllmConnectorEngine",
    "VllmEngine",
    "installed_vllm_connectors",
    "installed_vllm_engine",
    "installed_vllm_lmcache",
    "vllm_engine_layout",
    "vllm_engine_layouts",
]

Tables = tuple[tuple[int, ...], ...]

OWN_MODULES = ("vllm.v1.core.sched.scheduler", "vllm.v1.core.sched.async_scheduler")


class VllmEngine:
    """A scheduler, and the block tables as its workers know them."""

    def __init__(
        self,
        parts: SchedulerParts,
        num_blocks: int,
        *,
        enable_caching: bool,
        scheduler: Any = None,
    ) -> None:
        self._parts = parts
        self._takes_drafts = parts.setup.draft_tokens > 0 and not parts.setup.is_async
        self.scheduler = scheduler or parts.make_scheduler(
            num_blocks, enable_caching=enable_caching
        )
        self._tables: dict[str, Tables] = {}
        self._in_flight: deque[Any] = deque()
        self._images: dict[str, list[str]] = {}
        self._reset: set[str] = set()

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
        chain = TokenChain.from_extra_keys(tokens, extra_keys)
        request = self._parts.make_request(
            request_id, chain, max_new_tokens=max_new_tokens, priority=priority
        )
        self._images[str(request_id)] = [image.identifier for image in chain.images]
        self._add(request)

    def _add(self, request: Any) -> None:
        self.scheduler.add_request(request)

    def cancel(self, request_id: int) -> None:
        """Its user has gone."""
        self.scheduler.finish_requests(str(request_id), self._parts.aborted)

    def reset(self) -> bool:
        """Forget the prefix cache; False where somebody uses it."""
        if not self._parts.setup.reset_preempts:
            return bool(self.scheduler.reset_prefix_cache())
        self._reset |= {request.request_id for request in self.scheduler.running}
        return bool(self.scheduler.reset_prefix_cache(reset_running_requests=True))

    def plan(self) -> EnginePlan:
        """The next step, as its worker carries it out."""
        output = self.scheduler.schedule()
        self._in_flight.append(output)
        return self._plan_of(output)

    def _plan_of(self, output: Any) -> EnginePlan:
        preempted = output.preempted_req_ids or set()
        for request_id in (*output.finished_req_ids, *preempted):
            self._tables.pop(request_id, None)
        # Those whose blocks a reset took are told again here, and may be computed in this step.
        preempted, self._reset = preempted - self._reset, set()
        parts = [self._new(output, new) for new in output.scheduled_new_reqs]
        parts += self._known(output, output.scheduled_cached_reqs)
        copies = output.kv_cache_block_copies or ()
        return EnginePlan(
            tuple(parts),
            tuple((copy.src_block_id, copy.dst_block_id) for copy in copies),
            tuple(map(int, preempted)),
            forgets=tuple(output.free_encoder_mm_hashes),
            encodes=tuple(
                self._images[request_id][number]
                for request_id, numbers in output.scheduled_encoder_inputs.items()
                for number in numbers
            ),
        )

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """What the worker has sampled in the oldest step; what users are given."""
        return [
            (int(one.request_id), one.new_token_ids, one.finish_reason is not None)
            for one in self.outputs(tokens, drafts)
        ]

    def outputs(self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]) -> list[Any]:
        """The same as vLLM says it, one `EngineCoreOutput` for each request that has something."""
        planned = self._in_flight.popleft()
        ids = list(planned.num_scheduled_tokens)
        sampled = [list(tokens.get(int(request_id), ())) for request_id in ids]
        output = self._parts.runner_output(
            req_ids=ids,
            req_id_to_index={request_id: place for place, request_id in enumerate(ids)},
            sampled_token_ids=sampled,
        )
        self._complete(planned, output)
        given = self.scheduler.update_from_output(planned, output)
        if self._takes_drafts and ids:
            self.scheduler.update_draft_token_ids(self._next_drafts(ids, drafts))
        return [one for outputs in given.values() for one in outputs.outputs]

    def _next_drafts(self, ids: list[str], drafts: dict[int, list[int]]) -> Any:
        """What the requests of a step may try next."""
        return self._parts.draft_token_ids(
            ids, [list(drafts.get(int(request_id), ())) for request_id in ids]
        )

    def _complete(self, planned: Any, output: Any) -> None:
        """Add what else a worker says of a step."""

    def num_free(self) -> int:
        """Blocks that nobody holds."""
        count: int = self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        return count

    def unfinished(self) -> list[int]:
        """The requests that the scheduler still has."""
        return [int(request_id) for request_id in self.scheduler.requests]

    def _new(self, output: Any, new: Any) -> PlannedPart:
        tables = tuple(map(tuple, new.block_ids))
        return self._part(output, new.req_id, new.num_computed_tokens, tables)

    def _known(self, output: Any, told: Any) -> list[PlannedPart]:
        parts = []
        for request_id, first, added in zip(
            told.req_ids, told.num_computed_tokens, told.new_block_ids, strict=True
        ):
            tables = self._tables.get(request_id)
            if request_id in told.resumed_req_ids or tables is None:
                tables = tuple(map(tuple, added or ()))
            elif added is not None:
                tables = tuple(
                    (*table, *more) if more else table for table, more in zip(tables, added)
                )
            parts.append(self._part(output, request_id, first, tables))
        return parts

    def _part(self, output: Any, request_id: str, first: int, tables: Tables) -> PlannedPart:
        self._tables[request_id] = tables
        drafts = output.scheduled_spec_decode_tokens.get(request_id, ())
        count = output.num_scheduled_tokens[request_id]
        return PlannedPart(int(request_id), first, count, len(drafts), tables)


class VllmGrammarEngine(VllmEngine):
    """A scheduler half of whose requests have grammars, and what an engine does for these."""

    def _add(self, request: Any) -> None:
        self.scheduler.structured_output_manager.grammar_init(request)
        super()._add(request)

    def plan(self) -> EnginePlan:
        """The next step. Its masks are made at once, where no token of a step before is missing."""
        self.scheduler.structured_output_manager.backend.step()
        plan = super().plan()
        planned = self._in_flight[-1]
        if not planned.pending_structured_output_tokens:
            self.scheduler.get_grammar_bitmask(planned)
        return plan

    def _complete(self, planned: Any, output: Any) -> None:
        del output
        if planned.pending_structured_output_tokens:
            self.scheduler.get_grammar_bitmask(planned)


class VllmSleepingEngine(VllmEngine):
    """A scheduler that is put to sleep where another is reset, as vLLM's `EngineCore` does it.

    It pauses, and sleeps once nothing is in flight that it waits for: then its caches are emptied,
    that of the encoder as well, whose outputs the worker drops. It is woken at once. Until it
    sleeps the answer is False; who waits for running requests sleeps when they have ended, and who
    keeps them is woken without having slept, unless it is asked again.
    """

    def __init__(self, parts: SchedulerParts, num_blocks: int, *, enable_caching: bool) -> None:
        super().__init__(parts, num_blocks, enable_caching=enable_caching)
        self._keeps = parts.setup.sleeps == "keep"
        self._awake = parts.pauses.UNPAUSED
        self._encoded: set[str] = set()
        self._dropped: tuple[str, ...] = ()

    def reset(self) -> bool:
        """Go to sleep, and awake, if nothing that is in flight or runs is waited for."""
        pauses = self._parts.pauses
        self.scheduler.set_pause_state(pauses.PAUSED_ALL if self._keeps else pauses.PAUSED_NEW)
        if self._in_flight:
            return False
        if not self.scheduler.has_unfinished_requests():
            self._tell_of_ended()
        if self.scheduler.has_requests():
            return False
        self._sleep()
        return True

    def plan(self) -> EnginePlan:
        """The next step; one without work while a pause waits for those in flight."""
        if self.scheduler.pause_state != self._awake:
            if any(self._in_flight):
                if not self.scheduler.has_requests():
                    self._in_flight.append(None)
                    return EnginePlan()
            elif self._keeps:
                self.scheduler.set_pause_state(self._awake)
            elif not self.scheduler.has_unfinished_requests():
                self._sleep()
        return super().plan()

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """As of any engine. No worker ran for a step without work."""
        if self._in_flight[0] is None:
            self._in_flight.popleft()
            return []
        return super().answer(tokens, drafts)

    def _tell_of_ended(self) -> None:
        """A step without work, in which the worker hears of requests that have ended."""
        output = self.scheduler.schedule()
        self._dropped = self._plan_of(output).forgets
        nothing = self._parts.runner_output(req_ids=[], req_id_to_index={}, sampled_token_ids=[])
        self.scheduler.update_from_output(output, nothing)

    def _sleep(self) -> None:
        self._reset |= {request.request_id for request in self.scheduler.running}
        if not self.scheduler.reset_prefix_cache(reset_running_requests=True, reset_connector=True):
            raise RuntimeError("the caches were not emptied")
        self.scheduler.reset_encoder_cache()
        self._dropped += tuple(self._encoded)
        self.scheduler.set_pause_state(self._awake)

    def _plan_of(self, output: Any) -> EnginePlan:
        plan = super()._plan_of(output)
        forgets, self._dropped = (*self._dropped, *plan.forgets), ()
        self._encoded = (self._encoded - {*forgets}) | {*plan.encodes}
        return replace(plan, forgets=forgets)


class VllmConnectorEngine(VllmEngine):
    """A scheduler with a connector, whose worker side is simulated (`vllm_connector_workers.py`).

    Each rank has one, and vLLM's own aggregator makes one report of theirs for the scheduler.
    Without caching vLLM's connectors of its own do nothing; those set-ups are run all the same.
    """

    def __init__(
        self,
        parts: SchedulerParts,
        num_blocks: int,
        *,
        enable_caching: bool,
        scheduler: Any = None,
    ) -> None:
        super().__init__(parts, num_blocks, enable_caching=enable_caching, scheduler=scheduler)
        self._workers = parts.make_workers(self.scheduler)
        is_alone = len(self._workers) == 1
        self._aggregator = None if is_alone else parts.make_aggregator(self.scheduler)
        self._numbers = count()
        self._num_planned = self._num_answered = 0

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        """A transfer is over; the next steps' reports have it."""
        any(worker.arrived(transfer_id, is_done=is_done) for worker in self._workers)

    def reset(self) -> bool:
        """Forget the prefix cache and what the connector keeps, if nobody uses it.

        False as well where the connector keeps something all the same, which it may load again.
        """
        connector = self._parts.setup.connector
        done: bool = self.scheduler.reset_prefix_cache(reset_connector=True)
        return done and connector is not None and not connector.outlives_resets

    def _plan_of(self, output: Any) -> EnginePlan:
        plan = super()._plan_of(output)
        metadata, number = output.kv_connector_metadata, partial(next, self._numbers)
        transfers: list[Transfer] = []
        flushes: list[int] = []
        for rank, worker in enumerate(self._workers):
            moves = worker.begin(self._num_planned, metadata, number)
            flushes += moves.flushes
            if self._aggregator is None:
                transfers += moves.transfers
            else:
                transfers += [replace(transfer, rank=rank) for transfer in moves.transfers]
        self._num_planned += 1
        return replace(plan, transfers=tuple(transfers), flushes=tuple(flushes))

    def _complete(self, planned: Any, output: Any) -> None:
        metadata = planned.kv_connector_metadata
        said = [worker.report(self._num_answered, metadata) for worker in self._workers]
        self._num_answered += 1
        if self._aggregator is None:
            output.kv_connector_output = self._in_words_of_vllm(said[0])
            return
        of_ranks = [copy(output) for _ in said]
        for one, reported in zip(of_ranks, said, strict=True):
            one.kv_connector_output = self._in_words_of_vllm(reported)
        whole = self._aggregator.aggregate(of_ranks)
        output.kv_connector_output = whole.kv_connector_output

    def _in_words_of_vllm(self, said: Reported) -> Any:
        return self._parts.connector_output(
            finished_sending=said.finished_sending or None,
            finished_recving=said.finished_recving or None,
            invalid_block_ids=said.invalid_block_ids,
            kv_connector_worker_meta=said.worker_meta,
            # Releases that know no such failures have no such field.
            **({"failed_recving": said.failed_recving} if said.failed_recving else {}),
        )


def vllm_engine_layouts(setups: Sequence[EngineSetup] = SETUPS) -> list[EngineLayout]:
    """The set-ups of the installed vLLM. Raises TargetError where it is none that is known."""
    return [vllm_engine_layout(setup, SchedulerParts(setup)) for setup in setups]


def vllm_engine_layout(setup: EngineSetup, parts: SchedulerParts) -> EngineLayout:
    """A set-up whose schedulers are built by `parts`."""
    engine: type[VllmEngine] = VllmEngine if setup.connector is None else VllmConnectorEngine
    if setup.has_grammars:
        engine = VllmGrammarEngine
    if setup.sleeps:
        engine = VllmSleepingEngine

    def make_of(block_size: int) -> Make:
        of_size = parts.with_blocks_of(block_size)

        def make(num_blocks: int, enable_caching: bool, /) -> VllmEngine:
            return engine(of_size, num_blocks, enable_caching=enable_caching)

        return make

    # The memory of a connector is given in bytes, which are so many blocks of one size.
    others = make_of if setup.connector is None else None
    make = make_of(BLOCK_SIZE)
    return EngineLayout(setup.name, setup.profile(), make, BLOCK_SIZE, make_of=others)


def installed_vllm_engine(name: str, declared: Mapping[str, Any]) -> Target:
    """The real schedulers. Raises TargetError where vLLM cannot be imported, or for rows."""
    return _installed(name, declared, SETUPS)


def installed_vllm_connectors(name: str, declared: Mapping[str, Any]) -> Target:
    """The same, each with a connector beside it."""
    return _installed(name, declared, CONNECTOR_SETUPS)


def installed_vllm_lmcache(name: str, declared: Mapping[str, Any]) -> Target:
    """The same with LMCache's connector. Raises TargetError where its sources are not there."""
    engine_folder(LMCACHE)
    import_of_vllm("vllm.v1.core.sched.scheduler", "Scheduler")
    # Engines are made later, when no patch is active any more.
    patch = patch_key()
    adapter = engine_module(LMCACHE_CONNECTOR)
    modules = part_of(adapter, "connector_modules")(patch)
    uses = part_of(adapter, "CONNECTOR_USES")
    release = LMCACHE.replace("-", " ")
    require_uses(name, uses, {use.module: modules(use.module) for use in uses}, release)
    setups = [
        replace(
            each, connector=replace(each.connector, extra={**each.connector.extra, "patch": patch})
        )
        for each in LMCACHE_SETUPS
        if each.connector is not None
    ]
    return _installed(name, declared, setups, LMCACHE_NOTES)


def _installed(
    name: str,
    declared: Mapping[str, Any],
    setups: Sequence[EngineSetup],
    notes: Sequence[str] = (),
) -> Target:
    scheduler = import_of_vllm("vllm.v1.core.sched.scheduler", "Scheduler")
    return engine_target(
        name,
        declared,
        vllm_engine_layouts(setups),
        scheduler,
        version=version_of_vllm(),
        own_modules=OWN_MODULES,
        notes=notes,
    )
