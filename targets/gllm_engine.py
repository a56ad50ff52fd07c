"""The target `gllm-engine`: gLLM's own `Scheduler`, unmodified, without a device.

Run are `scheduler.py`, `comm.py` for the messages, and what `gllm` runs (`gllm_manager.py`).
Stand-ins: the model runner, of which the scheduler reads its limits and through which it reaches
the manager, the queues, and ranks, of which there is one.

The adapter does what `Worker.run_pp0` does: `check_abort_seqs`, `schedule_once`, the forward pass,
`add_next_tokens`, `process_output`. A request, and a cancel, is read as by the round before; so a
cancel is heard before the next step, and what was in flight may still come. What a step computes is
what `InputData` makes of its sequences: positions from `computed_token_num` to `seq_len`, through
the sequence's `page_table`. The model samples for every sequence of a step, also behind a chunk.
Users are given what the package to the front end says.

How many pages a request may fill: `_decode_reserve_pages` never lets a prompt have the last page,
and the budget of a chunk is whole pages beyond that one, though a chunk may end in a page that its
request has. So requests are sent that leave two pages free; alone, each of them can be served.

A request that was preempted may be let in again by the same call; it is then told as computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.outside import shown
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call, require_fit
from poolproof.targets.engine_sources import BlankModule, import_from_source, stub_module
from poolproof.targets.engine_target import engine_target, two_requests
from poolproof.targets.gllm_manager import GLLM, memory_of
from poolproof.targets.gllm_manager import stubs as manager_stubs
from poolproof.targets.named_requests import NamedRequests
from poolproof.targets.source_engines import Modules, PublishedEngine, fetched_folder
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.token_names import NO_EXTRA_KEYS

__all__ = ["GLLM_ENGINE", "GllmEngine", "gllm_engine"]

_PAGE_SIZE = 4
_PACKAGE = GLLM.package
_MODULES = (*GLLM.modules, "comm", "scheduler")

GLLM_ENGINE = PublishedEngine(
    name="gllm-engine",
    what="the Scheduler of gLLM, with each of its methods,",
    address=GLLM.address,
    commit=GLLM.commit,
    files=(*(f"{_PACKAGE}/{name}.py" for name in _MODULES), "LICENSE"),
    level=Level.ENGINE,
)

_CALLS = (
    Call("__init__", ("pp_size", "model_runner", "schedule_method")),
    Call("add_new_requests", ("seqs",)),
    Call("add_abort_ids", ("abort_ids",)),
    Call("check_abort_seqs"),
    Call("schedule_once"),
    Call("add_next_tokens", ("next_tokens",)),
    Call("process_output"),
)


class _ModelRunner(SimpleNamespace, HandedOver):
    """The limits, and the way to the manager: text only, every embedding is there."""

    def free(self, sequence: Any) -> None:
        """The pages of a request that has ended, or gives way, are given back."""
        self.memory_manager.free(sequence)

    def register_decode_page_hash(self, sequence: Any, position: int) -> None:
        """A sampled token may have completed a page."""
        self.memory_manager.register_decode_boundary(sequence, position)

    def disagg_prefill_limit(self, _sequence: Any) -> None:
        """No part of a prompt waits for an encoder elsewhere."""

    def _mm_precompute_hash(self, _sequence: Any) -> None:
        """A prompt without images is looked up by its tokens."""


class GllmEngine:
    """`scheduler`, driven as gLLM's worker drives it; `new_sequence` makes its own sequences."""

    def __init__(self, scheduler: Any, new_sequence: Any, *, enable_caching: bool) -> None:
        self._scheduler = scheduler
        self._new_sequence = new_sequence
        self._names = NamedRequests(enable_caching=enable_caching)
        self._in_flight: list[Any] = []

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
        del priority  # all wait in one line
        named = self._names.submit(request_id, TokenChain.from_extra_keys(tokens, extra_keys))
        sequence = self._new_sequence(request_id, named, [STOP_TOKEN], max_new_tokens)
        self._scheduler.add_new_requests([sequence])

    def cancel(self, request_id: int) -> None:
        """Its user has gone; the scheduler frees it before the next step."""
        self._scheduler.add_abort_ids([request_id])

    def plan(self) -> EnginePlan:
        """The first half of a round: who was cancelled goes, and the next step is chosen."""
        self._scheduler.check_abort_seqs()
        before = [sequence.seq_id for sequence in self._scheduler.seqs_to_decode]
        self._in_flight = self._scheduled()
        waiting = {sequence.seq_id for sequence in self._scheduler.seqs_to_prefill}
        computed = {sequence.seq_id for sequence in self._in_flight}
        return EnginePlan(
            tuple(map(_part, self._in_flight)),
            preempted=tuple(n for n in before if n in waiting and n not in computed),
        )

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The second half: what was sampled reaches the scheduler, which tells the front end."""
        del drafts
        if not self._in_flight:
            return []
        sampled = [
            self._names.sampled(s.seq_id, (tokens.get(s.seq_id) or [1])[0]) for s in self._in_flight
        ]
        self._scheduler.add_next_tokens(sampled)
        package = self._scheduler.process_output()
        self._scheduler.consume_pending_follower_frees()
        given = zip(package.act_schedule_ids, package.next_tokens, strict=True)
        return [
            (number, self._names.given([token]), number in package.free_ids)
            for number, token in given
        ]

    def num_free(self) -> int:
        """Pages that nobody holds, cached ones included."""
        free: int = self._scheduler.get_num_free_pages()
        return free

    def unfinished(self) -> list[int]:
        """The requests that wait or run."""
        queues = (self._scheduler.seqs_to_prefill, self._scheduler.seqs_to_decode)
        return [sequence.seq_id for queue in queues for sequence in queue]

    def _scheduled(self) -> list[Any]:
        answer = self._scheduler.schedule_once()
        if isinstance(answer, list):
            return answer
        raise TargetError(
            f"`schedule_once` answered {shown(answer)}; the adapter for gLLM's scheduler knows a "
            "list of sequences"
        )


def _part(sequence: Any) -> PlannedPart:
    first, count = sequence.computed_token_num, sequence.to_compute_token_num
    return PlannedPart(sequence.seq_id, first, count, 0, (tuple(sequence.page_table),))


def gllm_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """The scheduler of the checkout behind a colon, or of the commit that was fetched.

    Raises TargetError where it is not there, or differs in what the adapter needs.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    root = Path(path).expanduser().resolve() if path else fetched_folder(GLLM_ENGINE)
    if not (root / _PACKAGE).is_dir():
        raise GLLM_ENGINE.no_checkout(root, f"folder {_PACKAGE}")
    modules = import_from_source(root, _PACKAGE, _MODULES, _stubs())
    scheduler = getattr(modules["scheduler"], "Scheduler", None)
    if scheduler is None:
        raise TargetError(f"{name} is not driven, because scheduler.py has no Scheduler")
    require_fit(scheduler, "gLLM's scheduler", _CALLS)
    return engine_target(
        name,
        overrides,
        [_layout(modules, setup) for setup in _SETUPS],
        scheduler,
        version=None if path else f"{GLLM_ENGINE.name} {GLLM.commit[:7]}",
        few_calls=partial(two_requests, num_tokens=2 * _PAGE_SIZE + 1),
        adapter=f"gLLM's scheduler, of commit {GLLM.commit[:7]}",
        notes=(
            NO_EXTRA_KEYS,
            "room: a request leaves two pages free; the scheduler never lets prompts have one",
            "overlap scheduling (its server's default), ranks, recurrent states: not driven",
            "resetting the cache, drafts, transfers: the engine has none",
        ),
    )


def _stubs() -> Mapping[str, ModuleType]:
    ranks = BlankModule("gllm.dist_utils")
    vars(ranks).update(
        get_pp_size=lambda: 1, get_world_size=lambda: 1,
        get_rank=lambda: 0, get_pp_rank=lambda: 0, get_tp_rank=lambda: 0,
    )  # fmt: skip
    helpers = BlankModule("gllm.utils")
    vars(helpers).update(get_dtype_bytes=lambda _dtype: 1)
    blank = {name: BlankModule(name) for name in ("zmq", "gllm.dist_schedule")}
    runner = stub_module("gllm.model_runner", ModelRunner=_ModelRunner)
    return {
        **manager_stubs(),
        **blank,
        "gllm.dist_utils": ranks,
        "gllm.utils": helpers,
        "gllm.model_runner": runner,
    }


@dataclass(frozen=True)
class _SetUp:
    """The method that shares a step among prompts and those that are decoded, and its limits."""

    name: str
    method: str
    maxp: int
    """The most positions of a step; with `token_throttling` those of prompts alone."""
    maxd: int
    """The most requests of a step."""

    @property
    def max_batch_tokens(self) -> int:
        """The size of the model runner's buffers."""
        return self.maxp + (self.maxd if self.method == "token_throttling" else 0)


_SETUPS = (
    _SetUp("chunked_prefill", "chunked_prefill", 16, 4),
    _SetUp("chunked_prefill+small-steps", "chunked_prefill", 6, 3),
    _SetUp("split_pd", "split_pd", 16, 4),
    _SetUp("token_throttling", "token_throttling", 12, 4),
)


def _layout(modules: Modules, setup: _SetUp) -> EngineLayout:
    profile = EngineProfile(
        cancelled_outputs="may-come",
        max_batch_tokens=setup.max_batch_tokens,
        max_running=setup.maxd,
        spare_tokens=2 * _PAGE_SIZE,
    )
    return EngineLayout(setup.name, profile, _maker(modules, setup), _PAGE_SIZE)


def _maker(modules: Modules, setup: _SetUp) -> Make:
    def make(num_blocks: int, enable_caching: bool) -> GllmEngine:
        # The ratios are the defaults of gLLM's server; minp and iterp need several ranks.
        runner = _ModelRunner(
            memory_manager=memory_of(modules, num_blocks, _PAGE_SIZE, enable_caching),
            page_size=_PAGE_SIZE, maxp=setup.maxp, maxd=setup.maxd, minp=1, iterp=8,
            init_new_token_ratio=0.7, min_new_token_ratio=0.1,
        )  # fmt: skip
        scheduler = modules["scheduler"].Scheduler(1, runner, setup.method)
        scheduler.set_log(False)
        sequence = modules["sequence"].Sequence
        return GllmEngine(scheduler, sequence, enable_caching=enable_caching)

    return make
