"""Two instances of vLLM that serve a request one after the other: what all such pairs share.

A request goes to the prefill instance with one token to sample, and to the decode instance, which
is given the KV of the prompt and computes its last token once more. The token that the first one
has sampled is thrown away, as vLLM's example proxies do. Both have a half of the blocks, and block
0 is the null block of both; the blocks of the decode instance come behind the others.

A step of the pair is one of each, or of one alone, since neither waits for the other. What takes
time is a transfer, so that the run decides when it ends: a message moves nothing, and what moves
blocks is a store from one instance to places and a load from there into the other.

A worker is asked what has ended after its step and before it begins the next: so it says nothing
of what a later step has begun, though it is given that step before the scheduler has the answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.targets.engine_target import engine_target
from poolproof.targets.installed_vllm import import_of_vllm, version_of_vllm
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.vllm_engine import OWN_MODULES, VllmEngine
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_engine_setups import BLOCK_SIZE
from poolproof.targets.vllm_instance_setups import PairSetup

__all__ = ["Instance", "InstancePair", "Sizes", "installed_pair", "pair_layouts"]

_TURNS = ((True, True), (False, True), (True, True), (True, False), (True, True))
"""Which instances plan a step, in turn, as long as both have requests."""

_STOPS_EVERY = 3
"""One request in so many ends at the prefill instance with a stop token, and not at its limit."""

Moves = Iterable[Transfer]


class Instance(VllmEngine):
    """A scheduler and vLLM's own worker for its connector. Block `n` is told as `n` + `behind`."""

    def __init__(
        self,
        parts: SchedulerParts,
        num_blocks: int,
        behind: int,
        make_worker: Callable[[Any], Any],
        *,
        enable_caching: bool,
    ) -> None:
        super().__init__(parts, num_blocks, enable_caching=enable_caching)
        self.worker = make_worker(self.scheduler)
        self._behind = behind
        self._num_unasked = 0
        self._said: deque[Any] = deque()

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

    def runs(self, request_id: int) -> bool:
        """Whether a request is being computed here."""
        return any(one.request_id == str(request_id) for one in self.scheduler.running)

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
        while self._num_unasked:
            self._ask()
        self._num_unasked += 1
        self.worker.start_load_kv(output.kv_connector_metadata)
        return replace(plan, parts=tuple(map(self._told_part, plan.parts)))

    def _told_part(self, part: PlannedPart) -> PlannedPart:
        return replace(part, blocks=tuple(tuple(map(self.told, table)) for table in part.blocks))

    def _complete(self, planned: Any, output: Any) -> None:
        del planned
        if not self._said:
            self._ask()
        output.kv_connector_output = self._said.popleft()

    def _ask(self) -> None:
        """What has ended until now, after the oldest step that the worker was not asked of yet."""
        self._num_unasked -= 1
        said = self.worker.get_transfer_results()
        self._said.append(
            self._parts.connector_output(
                finished_sending=said.finished_sending,
                finished_recving=said.finished_recving,
                failed_recving=said.failed_recving,
                invalid_block_ids=self.worker.get_block_ids_with_load_errors(),
            )
        )


@dataclass(slots=True)
class _Asked:
    """What a user has asked for, and where it is now: "prefill", "decode", "proxy" (between)."""

    chain: TokenChain
    max_new_tokens: int
    priority: int
    at: set[str] = field(default_factory=lambda: {"prefill"})


@dataclass(frozen=True, slots=True)
class _Step:
    """Which instances have planned it, and what each computes."""

    prefill: tuple[PlannedPart, ...] | None
    decode: tuple[PlannedPart, ...] | None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many blocks a pair has, and whether it has prefix caches."""

    num_blocks: int
    enable_caching: bool

    @property
    def of_prefill(self) -> int:
        """Blocks of the prefill instance, the null block aside; so many precede the others."""
        return (self.num_blocks - 1) // 2

    @property
    def of_decode(self) -> int:
        """Blocks of the decode instance, the null block aside."""
        return self.num_blocks - 1 - self.of_prefill


class InstancePair:
    """Two instances, what stands between them, and the transfers that the run ends.

    Subclasses say how a request is passed on (`_when_asked`, `_when_prefilled`), and what their
    connector has begun (`_begun`).
    """

    def __init__(
        self,
        parts: tuple[SchedulerParts, SchedulerParts],
        sizes: Sizes,
        make_worker: Callable[[Any], Any],
        *,
        stops: bool = True,
    ) -> None:
        mine, others, caching = sizes.of_prefill, sizes.of_decode, sizes.enable_caching
        self.prefill = Instance(parts[0], mine + 1, 0, make_worker, enable_caching=caching)
        self.decode = Instance(parts[1], others + 1, mine, make_worker, enable_caching=caching)
        self._stops = stops
        self._asked: dict[int, _Asked] = {}
        self._in_flight: deque[_Step] = deque()
        self._num_plans = 0
        self._transfer_ids, self._places = count(), count()
        self._ends: dict[int, Callable[[bool], None]] = {}
        self._handed_over: list[tuple[int, Mapping[str, Any]]] = []

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
        params = self._when_asked(request_id)
        self.prefill.add(request_id, chain, 1, priority, params)

    def _when_asked(self, request_id: int) -> Mapping[str, Any]:
        """What the proxy sends to the prefill instance with a request."""
        raise NotImplementedError

    def _when_prefilled(self, request_id: int, params: Mapping[str, Any]) -> None:
        """A request has ended at the prefill instance, which says so much of it."""
        raise NotImplementedError

    def _begun(self) -> Moves:
        """What has begun since the last plan, the passing on of requests aside."""
        raise NotImplementedError

    def cancel(self, request_id: int) -> None:
        """Its user has gone: who has it aborts it, and a proxy passes it on no more."""
        asked = self._asked.pop(request_id)
        if "prefill" in asked.at:
            self.prefill.cancel(request_id)
        if "decode" in asked.at:
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
            self._plan_of_decode() if turns[1] or self.prefill.is_idle else None,
        )
        self._in_flight.append(_Step(*(None if plan is None else plan.parts for plan in plans)))
        transfers = [*self._begun(), *self._begin_handing_over()]
        first, second = (EnginePlan() if plan is None else plan for plan in plans)
        are_computing = any(step.prefill or step.decode for step in self._in_flight)
        if not (are_computing or transfers or self._ends):
            transfers += self._when_nothing_moves(are_both_asked=None not in plans)
        return EnginePlan(
            (*(replace(part, discards=True) for part in first.parts), *second.parts),
            (),
            (*filter(self._has_not_begun, first.preempted), *second.preempted),
            tuple(transfers),
        )

    def _has_not_begun(self, request_id: int) -> bool:
        """Whether a request is lost that loses its blocks at the prefill instance."""
        asked = self._asked.get(request_id)
        return asked is None or "decode" not in asked.at or not self.decode.runs(request_id)

    def _plan_of_decode(self) -> EnginePlan:
        return self.decode.plan()

    def _when_nothing_moves(self, *, are_both_asked: bool) -> Moves:
        """A step computes nothing, and nothing is on its way."""
        del are_both_asked
        return ()

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The oldest step was computed; users are given what the decode instance has."""
        step = self._in_flight.popleft()
        if step.prefill is not None:
            sampled = dict(filter(None, map(self._sampled_for_nobody, step.prefill)))
            for output in self.prefill.outputs(sampled, {}):
                if output.finish_reason is not None:
                    number = int(output.request_id)
                    self._asked[number].at.discard("prefill")
                    self._when_prefilled(number, output.kv_transfer_params or {})
        if step.decode is None:
            return []
        numbers = {part.request_id for part in step.decode}
        mine = {number: given for number, given in tokens.items() if number in numbers}
        given = self.decode.answer(mine, drafts)
        for request_id, _, has_ended in given:
            if has_ended:
                self._when_answered(request_id)
        return given

    def _when_answered(self, request_id: int) -> None:
        """A user has all; a proxy that still waits for the prefill instance aborts it there."""
        asked = self._asked.pop(request_id, None)
        if asked is not None and "prefill" in asked.at:
            self.prefill.cancel(request_id)

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        """A transfer is over, or has failed."""
        self._ends.pop(transfer_id)(is_done)

    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return self.prefill.num_free() + self.decode.num_free()

    def unfinished(self) -> list[int]:
        """The requests that one of the schedulers still has, or that are between them."""
        between = {number for number, asked in self._asked.items() if "proxy" in asked.at}
        return sorted({*self.prefill.unfinished(), *self.decode.unfinished(), *between})

    def _sampled_for_nobody(self, part: PlannedPart) -> tuple[int, list[int]] | None:
        if not self.prefill.is_whole(part):
            return None
        stops = self._stops and part.request_id % _STOPS_EVERY == 0
        return part.request_id, [STOP_TOKEN if stops else 1]

    def _hand_over(self, request_id: int, params: Mapping[str, Any]) -> None:
        """The proxy passes a request on to the decode instance, which takes time."""
        self._asked[request_id].at.add("proxy")
        self._handed_over.append((request_id, params))

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

    def _new_places(self, number: int) -> tuple[int, ...]:
        return tuple(next(self._places) for _ in range(number))

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
        asked.at.remove("proxy")
        asked.at.add("decode")
        self._when_passed_on(request_id)
        self.decode.add(request_id, asked.chain, asked.max_new_tokens, asked.priority, params)

    def _when_passed_on(self, request_id: int) -> None:
        """A request reaches the decode instance."""


PairMaker = Callable[[Any, tuple[SchedulerParts, SchedulerParts], Sizes], InstancePair]


def pair_layouts(setups: Iterable[PairSetup], make_pair: PairMaker) -> list[EngineLayout]:
    """The set-ups. Raises TargetError where vLLM is not installed, or has other parts."""
    return [_layout(setup, make_pair) for setup in setups]


def _layout(setup: PairSetup, make_pair: PairMaker) -> EngineLayout:
    roles = ("kv_producer", "kv_consumer")
    usual = tuple(SchedulerParts(setup.instance(role)) for role in roles)

    def make_of(block_size: int) -> Make:
        first, second = (parts.with_blocks_of(block_size) for parts in usual)

        def make(num_blocks: int, enable_caching: bool, /) -> InstancePair:
            return make_pair(setup, (first, second), Sizes(num_blocks, enable_caching))

        return make

    return EngineLayout(
        setup.name, setup.profile(), make_of(BLOCK_SIZE), BLOCK_SIZE, make_of=make_of
    )


def installed_pair(
    name: str,
    declared: Mapping[str, Any],
    layouts: list[EngineLayout],
    notes: tuple[str, ...],
) -> Target:
    """Both instances. Raises TargetError where vLLM cannot be imported, or for rows."""
    scheduler = import_of_vllm("vllm.v1.core.sched.scheduler", "Scheduler")
    return engine_target(
        name,
        declared,
        layouts,
        scheduler,
        version=version_of_vllm(),
        own_modules=OWN_MODULES,
        notes=notes,
    )
