"""Drives a prefill and a decode instance of vLLM with its NIXL connector, as one engine.

A request goes to the prefill instance with one token to sample, and from there, with what its
output says of its blocks, to the decode instance, which reads them and computes the last token of
the prompt once more. That is what vLLM's example proxy does: the token that the first instance has
sampled is thrown away. Both have a half of the blocks, and block 0 is the null block of both; the
blocks of the decode instance come behind the others.

A step of the pair is one of each, or of one alone, since neither waits for the other. What takes
time is a transfer, so that the run decides when it ends:

- a request on its way from one instance to the other: moves nothing;
- a read: a store from the blocks of the first instance to places, and when that is over a load
  from there. Each takes what it finds when it ends;
- a lease of which nobody sends heartbeats any more: when it ends the time of its blocks is up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.targets.engine_target import engine_target
from poolproof.targets.installed_vllm import (
    engine_module,
    import_of_vllm,
    part_of,
    version_of_vllm,
)
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.vllm_engine import OWN_MODULES, VllmEngine
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import BLOCK_SIZE
from poolproof.targets.vllm_nixl_setups import NIXL_NOTES, NIXL_SETUPS, NIXL_WORKER, NixlSetup

__all__ = ["NixlPair", "installed_vllm_nixl", "vllm_nixl_layouts"]

_TURNS = ((True, True), (False, True), (True, True), (True, False), (True, True))
"""Which instances plan a step, in turn, as long as both have requests."""

_STOPS_EVERY = 3
"""One request in so many ends at the prefill instance with a stop token, and not at its limit."""

_TO_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""What vLLM's example proxy sends to the prefill instance."""


class _Instance(VllmEngine):
    """A scheduler and vLLM's own worker for its connector. Block `n` is told as `n` + `behind`."""

    def __init__(
        self, parts: SchedulerParts, num_blocks: int, behind: int, *, enable_caching: bool
    ) -> None:
        super().__init__(parts, num_blocks, enable_caching=enable_caching)
        worker = engine_module(NIXL_WORKER)
        self.agent = part_of(worker, "NixlAgent")()
        self.worker = part_of(worker, "NixlWorker")(self.scheduler, self.agent)
        self._behind = behind
        self._num_planned = self._num_answered = 0

    def add(
        self,
        request_id: int,
        chain: TokenChain,
        max_new_tokens: int,
        priority: int,
        params: Mapping[str, Any],
    ) -> None:
        """A request comes, with parameters for the connector, which changes them."""
        request = self._parts.make_request(
            request_id, chain, max_new_tokens=max_new_tokens, priority=priority
        )
        request.kv_transfer_params = dict(params)
        self._images[str(request_id)] = []
        self.scheduler.add_request(request)

    @property
    def is_idle(self) -> bool:
        """Whether it has no request to compute."""
        return not self.scheduler.get_num_unfinished_requests()

    def forget(self) -> bool:
        """Empty the prefix cache; False where somebody holds a block."""
        return bool(self.scheduler.reset_prefix_cache(reset_connector=True))

    def is_whole(self, part: PlannedPart) -> bool:
        """Whether a request is computed to its end with that part; not if it has gone."""
        request = self.scheduler.requests.get(str(part.request_id))
        return request is not None and bool(part.first + part.count >= request.num_tokens)

    def told(self, block: int) -> int:
        """What a block is called in plans."""
        return block + self._behind if block else 0

    def _plan_of(self, output: Any) -> EnginePlan:
        plan = super()._plan_of(output)
        self.agent.step = self._num_planned
        self.agent.heartbeats.clear()
        self._num_planned += 1
        self.worker.start_load_kv(output.kv_connector_metadata)
        return replace(plan, parts=tuple(map(self._told_part, plan.parts)))

    def _told_part(self, part: PlannedPart) -> PlannedPart:
        return replace(part, blocks=tuple(tuple(map(self.told, table)) for table in part.blocks))

    def _complete(self, planned: Any, output: Any) -> None:
        del planned
        self.agent.asked = self._num_answered
        self._num_answered += 1
        said = self.worker.get_transfer_results()
        output.kv_connector_output = self._parts.connector_output(
            finished_sending=said.finished_sending,
            finished_recving=said.finished_recving,
            failed_recving=said.failed_recving,
            invalid_block_ids=self.worker.get_block_ids_with_load_errors(),
        )


@dataclass(slots=True)
class _Asked:
    """What a user has asked for, and whether the user has gone."""

    chain: TokenChain
    max_new_tokens: int
    priority: int
    at: str = "prefill"


@dataclass(frozen=True, slots=True)
class _Step:
    """Which instances have planned it, and what each computes."""

    prefill: tuple[PlannedPart, ...] | None
    decode: tuple[PlannedPart, ...] | None


class NixlPair:
    """Two instances, what stands between them, and the transfers that the run ends."""

    def __init__(
        self,
        setup: NixlSetup,
        parts: tuple[SchedulerParts, SchedulerParts],
        num_blocks: int,
        *,
        enable_caching: bool,
    ) -> None:
        usable = num_blocks - 1
        mine, others = usable // 2, usable - usable // 2
        self.prefill = _Instance(parts[0], mine + 1, 0, enable_caching=enable_caching)
        self.decode = _Instance(parts[1], others + 1, mine, enable_caching=enable_caching)
        self.prefill.agent.peer = self.decode.agent
        self.decode.agent.peer = self.prefill.agent
        self.decode.worker.meet(self.prefill.worker)
        self._proxy_is_late = setup.proxy_is_late
        self._asked: dict[int, _Asked] = {}
        self._in_flight: deque[_Step] = deque()
        self._num_plans = 0
        self._transfer_ids, self._places = count(), count()
        self._ends: dict[int, Callable[[bool], None]] = {}
        self._loads: list[tuple[Any, tuple[int, ...]]] = []
        self._handed_over: list[tuple[int, Mapping[str, Any]]] = []
        self._leases: set[str] = set()
        self._not_planned_yet: set[str] = set()

    def submit(
        self,
        request_id: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request comes to the prefill instance."""
        chain = TokenChain.from_extra_keys(tokens, extra_keys)
        self._asked[request_id] = _Asked(chain, max_new_tokens, priority)
        self.prefill.add(request_id, chain, 1, priority, _TO_DECODE)

    def cancel(self, request_id: int) -> None:
        """Its user has gone: who has it aborts it, and a proxy passes it on no more."""
        asked = self._asked.pop(request_id)
        if asked.at == "prefill":
            self.prefill.cancel(request_id)
        elif asked.at == "decode":
            self.decode.cancel(request_id)

    def reset(self) -> bool:
        """Forget both prefix caches; False where somebody holds a block of either."""
        are_empty = [instance.forget() for instance in (self.prefill, self.decode)]
        return all(are_empty)

    def plan(self) -> EnginePlan:
        """A step of each instance whose turn it is, and what has begun since."""
        turns = _TURNS[self._num_plans % len(_TURNS)]
        self._num_plans += 1
        plans = (
            self.prefill.plan() if turns[0] or self.decode.is_idle else None,
            self.decode.plan() if turns[1] or self.prefill.is_idle else None,
        )
        if plans[1] is not None:
            self._not_planned_yet.clear()
        self._in_flight.append(_Step(*(None if plan is None else plan.parts for plan in plans)))
        transfers = [*self._begin_loads(), *self._begin_reads(), *self._begin_handing_over()]
        transfers += self._begin_leases()
        first, second = (EnginePlan() if plan is None else plan for plan in plans)
        return EnginePlan(
            (*(replace(part, discards=True) for part in first.parts), *second.parts),
            (),
            (*first.preempted, *second.preempted),
            tuple(transfers),
        )

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The oldest step was computed; users are given what the decode instance has."""
        step = self._in_flight.popleft()
        if step.prefill is not None:
            sampled = dict(filter(None, map(self._sampled_for_nobody, step.prefill)))
            for output in self.prefill.outputs(sampled, {}):
                if output.finish_reason is not None:
                    self._hand_over(int(output.request_id), output.kv_transfer_params)
        if step.decode is None:
            return []
        numbers = {part.request_id for part in step.decode}
        mine = {number: given for number, given in tokens.items() if number in numbers}
        given = self.decode.answer(mine, drafts)
        for request_id, _, has_ended in given:
            if has_ended:
                self._asked.pop(request_id, None)
        return given

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        """A transfer is over, or a read has failed."""
        self._ends.pop(transfer_id)(is_done)

    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return self.prefill.num_free() + self.decode.num_free()

    def unfinished(self) -> list[int]:
        """The requests that one of the schedulers still has, or that are between them."""
        between = {number for number, asked in self._asked.items() if asked.at == "proxy"}
        return sorted({*self.prefill.unfinished(), *self.decode.unfinished(), *between})

    def _sampled_for_nobody(self, part: PlannedPart) -> tuple[int, list[int]] | None:
        if not self.prefill.is_whole(part):
            return None
        stops = part.request_id % _STOPS_EVERY == 0
        return part.request_id, [STOP_TOKEN if stops else 1]

    def _hand_over(self, request_id: int, params: Mapping[str, Any] | None) -> None:
        self._asked[request_id].at = "proxy"
        self._handed_over.append((request_id, params or {}))

    def _transfer(
        self,
        end: Callable[[bool], None],
        blocks: tuple[int, ...] = (),
        places: tuple[int, ...] = (),
        *,
        is_load: bool = False,
    ) -> Transfer:
        transfer_id = next(self._transfer_ids)
        self._ends[transfer_id] = end
        return Transfer(transfer_id, is_load, False, blocks, places)

    def _begin_handing_over(self) -> list[Transfer]:
        """Requests on their way to the decode instance. None is lost: a proxy answers its user."""

        def begin(request_id: int, params: Mapping[str, Any]) -> Transfer:
            return self._transfer(lambda _: self._pass_on(request_id, params))

        handed_over, self._handed_over = self._handed_over, []
        return [begin(*one) for one in handed_over]

    def _pass_on(self, request_id: int, params: Mapping[str, Any]) -> None:
        asked = self._asked.get(request_id)
        if asked is None:
            return
        asked.at = "decode"
        self._not_planned_yet.add(str(request_id))
        self.decode.add(request_id, asked.chain, asked.max_new_tokens, asked.priority, params)

    def _begin_reads(self) -> list[Transfer]:
        begun, self.decode.agent.begun = self.decode.agent.begun, []
        return [self._begin_read(read) for read in begun]

    def _begin_read(self, read: Any) -> Transfer:
        """What is read has left its blocks first; then it comes into those of the reader."""
        places = tuple(next(self._places) for _ in read.remote)

        def left(is_done: bool) -> None:
            if is_done:
                self._loads.append((read, places))
            else:
                self.decode.agent.end(read, is_done=False)

        return self._transfer(left, tuple(map(self.prefill.told, read.remote)), places)

    def _begin_loads(self) -> list[Transfer]:
        def begin(read: Any, places: tuple[int, ...]) -> Transfer:
            def came(is_done: bool) -> None:
                self.decode.agent.end(read, is_done=is_done)

            blocks = tuple(map(self.decode.told, read.own))
            return self._transfer(came, blocks, places, is_load=True)

        loads, self._loads = self._loads, []
        return [begin(*one) for one in loads]

    def _begin_leases(self) -> list[Transfer]:
        """Those that run out: as long as heartbeats come in time a lease does not end."""

        def begin(request_id: str) -> Transfer:
            def end(_: bool) -> None:
                self._leases.discard(request_id)
                self.prefill.worker.end_lease(request_id)

            self._leases.add(request_id)
            return self._transfer(end)

        leases = self.prefill.worker.leases()
        return [begin(one) for one in leases if one not in self._leases and self._runs_out(one)]

    def _runs_out(self, request_id: str) -> bool:
        asked = self._asked.get(int(request_id))
        if asked is not None and asked.at == "proxy":
            return self._proxy_is_late
        decode = self.decode.agent.heartbeats | self._not_planned_yet
        told = f"{request_id}:".encode()
        is_read = any(message.startswith(told) for message in self.prefill.agent.messages)
        return request_id not in decode and not is_read


def vllm_nixl_layouts() -> list[EngineLayout]:
    """The set-ups. Raises TargetError where vLLM is not installed, or has other parts."""
    return [_layout(setup) for setup in NIXL_SETUPS]


def _layout(setup: NixlSetup) -> EngineLayout:
    roles = ("kv_producer", "kv_consumer")
    usual = tuple(SchedulerParts(setup.instance(role)) for role in roles)

    def make_of(block_size: int) -> Make:
        first, second = (parts.with_blocks_of(block_size) for parts in usual)

        def make(num_blocks: int, enable_caching: bool, /) -> NixlPair:
            return NixlPair(setup, (first, second), num_blocks, enable_caching=enable_caching)

        return make

    return EngineLayout(
        setup.name, setup.profile(), make_of(BLOCK_SIZE), BLOCK_SIZE, make_of=make_of
    )


def installed_vllm_nixl(name: str, declared: Mapping[str, Any]) -> Target:
    """Both instances. Raises TargetError where vLLM cannot be imported, or for rows."""
    scheduler = import_of_vllm("vllm.v1.core.sched.scheduler", "Scheduler")
    return engine_target(
        name,
        declared,
        vllm_nixl_layouts(),
        scheduler,
        version=version_of_vllm(),
        own_modules=OWN_MODULES,
        notes=NIXL_NOTES,
    )
