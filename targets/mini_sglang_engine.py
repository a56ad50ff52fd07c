"""The target `mini-sglang-engine`: mini-sglang's own `Scheduler`, unmodified, without a device.

Run are `scheduler/` without its queues to other processes, `kvcache/`, `core.py` and the messages.
Stand-ins: `torch`, on lists (`torch_stand_in.py`), and `minisgl.engine`, whose `Engine` has the
page table and answers the forward pass; it does with the requests what the engine's own
`forward_batch` does (`complete_one`), and pads no batch. The scheduler's constructor builds this
engine and its own managers.

Each round of the scheduler's loops is told in two halves. `plan` hands the messages to
`_process_one_msg`, asks `_schedule_next_batch`, reads the batch, and calls `_forward`. `answer`
puts the sampled tokens where the device leaves them and calls `_process_last_data`. Under
`overlap`, the default, a batch is scheduled before the results of the one before are looked at;
under `normal` they take turns. So a cancel is heard before the next step, and what was in flight
may still come.

Where a plan is read: positions from `cached_len` to `device_len`, through the row of the page
table as it is when the batch is prepared. What stands in the pool of token ids is not compared.
A request that was finished is told so in the message; a second message of the same request is one
that nobody reads, as the detokenizer has forgotten it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from poolproof.contract.adapter_fault import HandedFields, HandedOver
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.target import TargetError
from poolproof.targets.adapter_fit import Call, require_fit
from poolproof.targets.engine_sources import BlankModule, import_from_source, stub_module
from poolproof.targets.engine_target import engine_target, two_requests
from poolproof.targets.mini_sglang_manager import MINI_SGLANG, pages_of
from poolproof.targets.mini_sglang_manager import stubs as manager_stubs
from poolproof.targets.named_requests import NamedRequests
from poolproof.targets.source_engines import Modules, PublishedEngine, fetched_folder
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.token_names import NO_EXTRA_KEYS

__all__ = ["MINI_SGLANG_ENGINE", "MiniSglangEngine", "mini_sglang_engine"]

_PAGE_SIZE = 4
_PACKAGE = "python/minisgl"
_MODULES = (
    "core",
    "message.backend",
    "message.frontend",
    "message.tokenizer",
    "message",
    "kvcache.base",
    "kvcache",
    "kvcache.naive_cache",
    "kvcache.radix_cache",
    "scheduler.utils",
    "scheduler.table",
    "scheduler.cache",
    "scheduler.decode",
    "scheduler.prefill",
    "scheduler.scheduler",
)

_FOLDERS = ("kvcache", "message")

MINI_SGLANG_ENGINE = PublishedEngine(
    name="mini-sglang-engine",
    what="the Scheduler of mini-sglang, with and without overlap,",
    address=MINI_SGLANG.address,
    commit=MINI_SGLANG.commit,
    files=tuple(
        dict.fromkeys(
            (
                *MINI_SGLANG.files,
                f"{_PACKAGE}/message/__init__.py",
                *(
                    f"{_PACKAGE}/{name.replace('.', '/')}.py"
                    for name in _MODULES
                    if name not in _FOLDERS
                ),
            )
        )
    ),
    level=Level.ENGINE,
)

_CALLS = (
    Call("__init__", ("config",)),
    Call("_process_one_msg", ("msg",)),
    Call("_schedule_next_batch"),
    Call("_forward", ("forward_input",)),
    Call("_process_last_data", ("last_data",)),
)


class _ForwardOutput(NamedTuple):
    """What the device leaves: the tokens there, here, and whether they have come."""

    next_tokens_gpu: Any
    next_tokens_cpu: Any
    copy_done_event: Any


class _Device(HandedOver):
    """The engine below the scheduler: its tables, and a forward pass that samples nothing yet."""

    def __init__(self, config: Any) -> None:
        torch = config.torch
        num_tokens = config.num_pages * config.page_size
        self.device, self.tp_cpu_group = "cpu", None
        self.stream = torch.cuda.Stream()
        self.num_pages, self.max_seq_len = config.num_pages, num_tokens
        self.page_table = torch.zeros((config.max_running_req + 1, num_tokens))
        self.graph_runner = HandedFields(pad_batch=_pad_nothing)
        self.attn_backend = HandedFields(prepare_metadata=lambda _batch: None)
        self.sampler = HandedFields(prepare=lambda _batch: None)
        self._zeros = torch.zeros

    def forward_batch(self, batch: Any, _sample_args: Any) -> _ForwardOutput:
        """Every request has its tokens computed, and room for one more."""
        for request in batch.reqs:
            request.complete_one()
        tokens = self._zeros(batch.size)
        return _ForwardOutput(tokens, tokens, HandedFields(synchronize=lambda: None))


class _Queues:
    """Stands in for the queues to other processes: `send_result` is set on the instance."""

    def __init__(self, _config: Any, _group: Any) -> None: ...


def _pad_nothing(batch: Any) -> None:
    batch.padded_reqs = batch.reqs


class MiniSglangEngine:
    """A scheduler of `modules`, and the rounds of its loop that are in flight."""

    def __init__(self, modules: Modules, config: Any, *, enable_caching: bool) -> None:
        core, messages = modules["core"], modules["message.backend"]
        # One context for a process, as in the engine: the page size is all that is read of it.
        vars(core)["_GLOBAL_CTX"] = core.Context(page_size=_PAGE_SIZE)
        self._SamplingParams = core.SamplingParams
        self._UserMsg, self._AbortMsg = messages.UserMsg, messages.AbortBackendMsg
        self._tensor = config.torch.tensor
        self._scheduler = modules["scheduler.scheduler"].Scheduler(config)
        self._scheduler.send_result = self._send
        self._names = NamedRequests(enable_caching=enable_caching)
        self._messages: list[Any] = []
        self._in_flight: deque[Any] = deque()
        self._sent: list[tuple[int, list[int], bool]] = []
        self._ended: set[int] = set()

    def submit(
        self,
        request_id: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request comes; it is looked at before the next step."""
        del priority  # all wait in one line
        named = self._names.submit(request_id, TokenChain.from_extra_keys(tokens, extra_keys))
        limits = self._SamplingParams(max_tokens=max_new_tokens)
        self._messages.append(self._UserMsg(request_id, self._tensor(named), limits))

    def cancel(self, request_id: int) -> None:
        """Its user has gone; the scheduler is told before the next step."""
        self._messages.append(self._AbortMsg(request_id))

    def plan(self) -> EnginePlan:
        """The first half of a round: messages, the next batch, and its launch."""
        waiting, self._messages = self._messages, []
        for message in waiting:
            self._scheduler._process_one_msg(message)  # noqa: SLF001 -- a part of its loop
        planned = self._scheduler._schedule_next_batch()  # noqa: SLF001 -- the same
        if planned is None:
            self._in_flight.append(None)
            return EnginePlan()
        plan = EnginePlan(tuple(map(self._part, planned.batch.reqs)))
        output = self._scheduler._forward(planned)  # noqa: SLF001 -- the same
        self._in_flight.append((planned, output))
        return plan

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The second half: the results of the oldest batch are looked at."""
        del drafts
        round_ = self._in_flight.popleft()
        if round_ is not None:
            planned, output = round_
            for place, request in enumerate(planned.batch.reqs):
                sampled = tokens.get(request.uid) or [1]
                output.next_tokens_cpu[place] = self._names.sampled(request.uid, sampled[0])
        self._scheduler._process_last_data(round_)  # noqa: SLF001 -- a part of its loop
        sent, self._sent = self._sent, []
        return sent

    def num_free(self) -> int:
        """Pages that are free, or cached and held by nobody."""
        num_slots: int = self._scheduler.cache_manager.available_size
        return num_slots // _PAGE_SIZE

    def unfinished(self) -> list[int]:
        """The requests that wait or are decoded."""
        waiting = [request.uid for request in self._scheduler.prefill_manager.pending_list]
        running = [request.uid for request in self._scheduler.decode_manager.running_reqs]
        return waiting + running

    def _part(self, request: Any) -> PlannedPart:
        first, end = request.cached_len, request.device_len
        row = self._scheduler.table_manager.page_table[request.table_idx]
        table = tuple(pages_of(row[:end].tolist(), _PAGE_SIZE))
        return PlannedPart(request.uid, first, end - first, 0, (table,))

    def _send(self, replies: list[Any]) -> None:
        for reply in replies:
            if reply.uid in self._ended:
                continue
            if reply.finished:
                self._ended.add(reply.uid)
            self._sent.append((reply.uid, self._names.given([reply.next_token]), reply.finished))


def mini_sglang_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """The scheduler of the checkout behind a colon, or of the commit that was fetched.

    Raises TargetError where it is not there, or differs in what the adapter needs.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    root = Path(path).expanduser().resolve() if path else fetched_folder(MINI_SGLANG_ENGINE)
    if not (root / _PACKAGE).is_dir():
        raise MINI_SGLANG_ENGINE.no_checkout(root, f"folder {_PACKAGE}")
    place = root / _PACKAGE
    modules = import_from_source(place.parent, place.name, _MODULES, _stubs())
    scheduler = getattr(modules["scheduler.scheduler"], "Scheduler", None)
    if scheduler is None:
        raise TargetError(f"{name} is not driven, because scheduler.py has no Scheduler")
    require_fit(scheduler, "mini-sglang's scheduler", _CALLS)
    layouts = [_layout(modules, setup) for setup in _SETUPS]
    return engine_target(
        name,
        overrides,
        layouts,
        scheduler,
        version=None if path else f"{MINI_SGLANG_ENGINE.name} {MINI_SGLANG.commit[:7]}",
        few_calls=partial(two_requests, num_tokens=2 * _PAGE_SIZE + 1),
        adapter=f"mini-sglang's scheduler, of commit {MINI_SGLANG.commit[:7]}",
        notes=(
            NO_EXTRA_KEYS,
            "preemption: the scheduler lets a request in only if all of its tokens fit",
            "batches are not padded to sizes of captured graphs; several ranks are not driven",
            "the pool of token ids on the device is not compared",
        ),
    )


def _stubs() -> Mapping[str, ModuleType]:
    stubs = dict(manager_stubs())
    utils = stubs["minisgl.utils"]
    blank = BlankModule("logger")
    vars(utils).update(
        init_logger=lambda *_arguments, **_options: blank,
        load_tokenizer=lambda _path: HandedFields(eos_token_id=STOP_TOKEN),
    )
    return {
        **stubs,
        "minisgl.engine": stub_module("minisgl.engine", Engine=_Device),
        "minisgl.env": BlankModule("minisgl.env"),
        "minisgl.message.utils": BlankModule("minisgl.message.utils"),
        "minisgl.scheduler.config": BlankModule("minisgl.scheduler.config"),
        "minisgl.scheduler.io": stub_module("minisgl.scheduler.io", SchedulerIOMixin=_Queues),
    }


@dataclass(frozen=True)
class _SetUp:
    name: str
    max_batch_tokens: int
    max_running: int
    overlaps: bool


_SETUPS = (
    _SetUp("normal", 16, 4, overlaps=False),
    _SetUp("normal+chunks", 6, 3, overlaps=False),
    _SetUp("overlap", 16, 4, overlaps=True),
    _SetUp("overlap+chunks", 6, 3, overlaps=True),
)


class _Config(SimpleNamespace, HandedOver):
    """What the scheduler reads of its configuration, and the module that stands for PyTorch."""


def _layout(modules: Modules, setup: _SetUp) -> EngineLayout:
    profile = EngineProfile(
        cancelled_outputs="may-come",
        preemptions="never",
        max_batch_tokens=setup.max_batch_tokens,
        max_running=setup.max_running,
        steps_in_flight=2 if setup.overlaps else 1,
    )
    return EngineLayout(setup.name, profile, _maker(modules, setup), _PAGE_SIZE)


def _maker(modules: Modules, setup: _SetUp) -> Make:
    torch = vars(modules["core"])["torch"]

    def make(num_blocks: int, enable_caching: bool) -> MiniSglangEngine:
        config = _Config(
            torch=torch,
            num_pages=num_blocks,
            page_size=_PAGE_SIZE,
            max_running_req=setup.max_running,
            max_extend_tokens=setup.max_batch_tokens,
            cache_type="radix" if enable_caching else "naive",
            model_path="",
        )
        return MiniSglangEngine(modules, config, enable_caching=enable_caching)

    return make
