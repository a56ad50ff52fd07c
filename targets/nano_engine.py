"""The target `nano-engine`: nano-vLLM's own `Scheduler` over its block manager, unmodified.

Without a path it is nano-vLLM at the commit that `poolproof engines nano-engine` fetches;
`nano-engine:PATH` takes a checkout of it or of what descends from it. Run are the package's
`config.py`, `sampling_params.py`, `engine/sequence.py`, `engine/block_manager.py` and
`engine/scheduler.py`; what they import beside NumPy and xxhash (Transformers' `AutoConfig`) is
blank. The configuration is the engine's own class with the defaults of its fields and the limits of
the set-up; its `__post_init__`, which looks for a model's folder, is not run.

The adapter does what `LLMEngine.step` does: `schedule`, the model runner, `postprocess`. It does
not step an engine that has nothing to do, as `LLMEngine.generate` does not. What a step computes is
what `prepare_prefill` and `prepare_decode` of the model runner make of the sequences: a prefill the
scheduled positions behind the cached ones, a decode the last position, whose slot is in the last
block of the table. Users are given what was appended to their sequence.

It tells the generations apart by what their sequences have:

- with `num_scheduled_tokens`, or `scheduled_prefill_tokens`, prompts are computed in chunks;
- without (up to df99418), a prompt is computed whole, and no request may be longer than a step:
  their configuration demands it of `max_model_len`;
- with `num_scheduled_tokens` and without `hash_blocks` (8d63a98 to 44a51af), the first token that a
  request samples after a preemption is thrown away and sampled again; these are not driven.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.outside import class_name, said_by, shown
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.targets.adapter_fit import Call, require_fit
from poolproof.targets.engine_sources import BlankModule, import_from_source
from poolproof.targets.engine_target import engine_target
from poolproof.targets.named_requests import NamedRequests
from poolproof.targets.nano_manager import package_in, sequence_maker
from poolproof.targets.source_engines import PublishedEngine, fetched_folder
from poolproof.targets.target import EngineLayout, Make, Target
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.token_names import NO_EXTRA_KEYS

__all__ = ["NANO_ENGINE", "NanoEngine", "nano_engine"]

_BLOCK_SIZE = 4

NANO_ENGINE = PublishedEngine(
    name="nano-engine",
    what="the Scheduler of nano-vLLM, in several set-ups,",
    address="https://github.com/GeeeekExplorer/nano-vllm",
    commit="bb823b3e06983d71485a8e1f23715ebd87d98ef8",
    files=(
        "nanovllm/config.py",
        "nanovllm/sampling_params.py",
        "nanovllm/engine/block_manager.py",
        "nanovllm/engine/scheduler.py",
        "nanovllm/engine/sequence.py",
        "LICENSE",
    ),
    level=Level.ENGINE,
    needs=("numpy", "xxhash"),
)

_SCHEDULER = "engine/scheduler.py"
_MODULES = ("config", "sampling_params", "engine.sequence", "engine.block_manager")
_METHODS = ("add", "is_finished", "postprocess", "schedule")
_CALLS = (Call("__init__", ("config",)), Call("add", ("seq",)), Call("schedule"))
_COUNTS = ("num_scheduled_tokens", "scheduled_prefill_tokens")
"""What the generations call the positions of a prompt that a step computes."""
_CHUNKED = "enable_chunked_prefill"
"""What is switched on where there is a switch for it."""


@dataclass(frozen=True)
class NanoParts:
    """What the adapter uses of one package: its classes, and how it makes its configuration."""

    Scheduler: Any
    BlockManager: Any
    SamplingParams: Any
    new_config: Callable[[], Any]
    new_sequence: Callable[..., Any]
    counts: str | None
    """The attribute that has the positions of a chunk; None where prompts are computed whole."""


class NanoEngine:
    """`scheduler`, driven as nano-vLLM's `LLMEngine` drives it."""

    def __init__(self, parts: NanoParts, scheduler: Any, *, enable_caching: bool) -> None:
        self._parts = parts
        self._scheduler = scheduler
        self._takes_phase = len(inspect.signature(scheduler.postprocess).parameters) > 2
        self._names = NamedRequests(enable_caching=enable_caching)
        self._sequences: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._in_flight: tuple[list[Any], bool] = ([], False)

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
        limits = self._parts.SamplingParams(max_tokens=max_new_tokens)
        sequence = self._parts.new_sequence(named, sampling_params=limits)
        self._sequences[request_id] = sequence
        self._numbers[id(sequence)] = request_id
        self._scheduler.add(sequence)

    def plan(self) -> EnginePlan:
        """The next step, as the model runner carries it out."""
        if self._scheduler.is_finished():
            self._in_flight = ([], False)
            return EnginePlan()
        before = list(self._scheduler.running)
        sequences, is_prefill = self._scheduled()
        self._in_flight = sequences, is_prefill
        running = set(map(id, self._scheduler.running))
        return EnginePlan(
            tuple(self._part(sequence, is_prefill=is_prefill) for sequence in sequences),
            preempted=tuple(self._numbers[id(s)] for s in before if id(s) not in running),
        )

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """What was sampled reaches the scheduler; what it appended goes to users.

        The model runner samples for every sequence of a step, also behind a chunk.
        """
        del drafts
        sequences, is_prefill = self._in_flight
        if not sequences:
            return []
        numbers = [self._numbers[id(sequence)] for sequence in sequences]
        before = [len(sequence.token_ids) for sequence in sequences]
        sampled = [
            self._names.sampled(number, tokens[number][0] if tokens.get(number) else 1)
            for number in numbers
        ]
        phase = (is_prefill,) if self._takes_phase else ()
        self._scheduler.postprocess(sequences, sampled, *phase)
        return [
            self._output(number, sequence, first)
            for number, sequence, first in zip(numbers, sequences, before, strict=True)
        ]

    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._scheduler.block_manager.free_block_ids)

    def unfinished(self) -> list[int]:
        """The requests that wait or run."""
        return [self._numbers[id(s)] for s in (*self._scheduler.waiting, *self._scheduler.running)]

    def _scheduled(self) -> tuple[list[Any], bool]:
        answer = self._scheduler.schedule()
        match answer:
            case (list(sequences), bool(is_prefill)):
                return sequences, is_prefill
        raise TargetError(
            f"`schedule` answered {shown(answer)}; the adapter for nano-vLLM's scheduler knows a "
            "list of sequences and whether they are prefilled"
        )

    def _part(self, sequence: Any, *, is_prefill: bool) -> PlannedPart:
        table = tuple(sequence.block_table)
        first, count = computed_positions(sequence, is_prefill=is_prefill)
        if not is_prefill:
            _check_slot(first, table)
        return PlannedPart(self._numbers[id(sequence)], first, count, 0, (table,))

    def _output(self, number: int, sequence: Any, first: int) -> tuple[int, list[int], bool]:
        given = self._names.given(sequence.token_ids[first:])
        if sequence.is_finished:
            del self._sequences[number], self._numbers[id(sequence)]
        return number, given, bool(sequence.is_finished)


def computed_positions(sequence: Any, *, is_prefill: bool) -> tuple[int, int]:
    """The first position that the model runner computes of a planned sequence, and how many."""
    length = len(sequence.token_ids)
    if not is_prefill:
        return length - 1, 1
    counts = next((count for count in _COUNTS if hasattr(sequence, count)), None)
    if counts is None:
        first: int = sequence.num_cached_tokens
        return first, length - first
    # A prompt that is cached whole has its last token computed once more.
    return min(sequence.num_cached_tokens, length - 1), getattr(sequence, counts)


def _check_slot(position: int, table: tuple[int, ...]) -> None:
    """A decode writes into the last block of the table, and reads by position."""
    entry = position // _BLOCK_SIZE
    if entry < len(table) and table[entry] != table[-1]:
        raise ViolationError(
            Violation(
                "PLAN",
                Severity.WRONG_DATA_OF_ONES_OWN,
                f"a request of {position + 1} tokens has {len(table)} blocks: the model runner "
                f"writes position {position} into block {table[-1]}, the last one, and reads "
                f"it from block {table[entry]}",
            )
        )


def nano_engine(name: str, overrides: Mapping[str, Any]) -> Target:
    """The scheduler of the checkout behind a colon, or of the commit that was fetched.

    Raises TargetError where it is not there, or differs in what the adapter needs.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    root = Path(path).expanduser().resolve() if path else fetched_folder(NANO_ENGINE)
    parts = _parts(root)
    layouts = [_layout(parts, setup) for setup in _SETUPS if parts.counts or not setup.in_chunks]
    return engine_target(
        name,
        overrides,
        layouts,
        parts.Scheduler,
        version=None if path else f"{NANO_ENGINE.name} {NANO_ENGINE.commit[:7]}",
        few_calls=_a_few_calls,
        adapter="nano-vLLM's scheduler (or write one: `poolproof new --engine FILE`)",
        notes=(
            NO_EXTRA_KEYS,
            "caching off: there is no switch, so each request has tokens of its own",
            "cancelling, resetting the cache, drafts, transfers: the engine has none",
        ),
    )


def _parts(root: Path) -> NanoParts:
    package = package_in(root, _SCHEDULER)
    modules = import_from_source(
        package.parent, package.name, (*_MODULES, "engine.scheduler"), _stubs()
    )
    try:
        scheduler = modules["engine.scheduler"].Scheduler
        manager = modules["engine.block_manager"].BlockManager
        limits = modules["sampling_params"].SamplingParams
        config = modules["config"].Config
    except AttributeError as error:
        raise TargetError(f"{package} is not in nano-vLLM's shape: {error}") from error
    missing = [method for method in _METHODS if not callable(getattr(scheduler, method, None))]
    if missing:
        raise TargetError(
            f"{scheduler.__name__} of {package} lacks {', '.join(f'{m}()' for m in missing)}, "
            "which the scheduler of nano-vLLM has"
        )
    require_fit(scheduler, "nano-vLLM's scheduler", _CALLS)
    require_fit(limits, "nano-vLLM's parameters", [Call("__init__", named=("max_tokens",))])
    new_sequence = sequence_maker(manager, _BLOCK_SIZE)
    counts = next((count for count in _COUNTS if hasattr(new_sequence([1]), count)), None)
    if counts == _COUNTS[0] and not _publishes(manager):
        raise TargetError(
            f"the scheduler of {package} is of the generation that throws away the first token "
            "which a request samples after a preemption, and samples it again; the contract of "
            "engines has no row for it"
        )
    return NanoParts(
        Scheduler=scheduler,
        BlockManager=manager,
        SamplingParams=limits,
        new_config=lambda: _defaults(config),
        new_sequence=new_sequence,
        counts=counts,
    )


def _publishes(manager: type) -> bool:
    """Whether blocks are published after the step that computed them."""
    return any(hasattr(manager, name) for name in ("hash_blocks", "hash_block"))


def _stubs() -> Mapping[str, ModuleType]:
    return {name: BlankModule(name) for name in ("torch", "transformers")}


class _Settings(SimpleNamespace, HandedOver):
    """The configuration of an engine whose own class is no dataclass."""


def _defaults(config: Any) -> Any:
    """The configuration as its class has it, before a model's folder is looked at."""
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        return _Settings()
    made: Any = object.__new__(config)
    for field in dataclasses.fields(config):
        if field.default is not dataclasses.MISSING:
            setattr(made, field.name, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            setattr(made, field.name, field.default_factory())
    return made


@dataclass(frozen=True)
class _SetUp:
    name: str
    max_batch_tokens: int
    max_running: int
    in_chunks: bool = False
    """Whether it is one only where prompts are computed in chunks."""


_SETUPS = (
    _SetUp("fcfs", 20, 4),
    _SetUp("chunks", 6, 3, in_chunks=True),
    _SetUp("large-steps", 32, 2),
)


def _layout(parts: NanoParts, setup: _SetUp) -> EngineLayout:
    profile = EngineProfile(
        max_batch_tokens=setup.max_batch_tokens,
        max_running=setup.max_running,
        max_request_tokens=0 if parts.counts else setup.max_batch_tokens,
    )
    return EngineLayout(setup.name, profile, _maker(parts, setup), _BLOCK_SIZE)


def _maker(parts: NanoParts, setup: _SetUp) -> Make:
    def make(num_blocks: int, enable_caching: bool) -> NanoEngine:
        config = parts.new_config()
        config.max_num_batched_tokens = setup.max_batch_tokens
        config.max_num_seqs = setup.max_running
        config.max_model_len = num_blocks * _BLOCK_SIZE
        config.eos = STOP_TOKEN
        config.kvcache_block_size = _BLOCK_SIZE
        config.num_kvcache_blocks = num_blocks
        if hasattr(config, _CHUNKED):
            setattr(config, _CHUNKED, True)
        return NanoEngine(parts, parts.Scheduler(config), enable_caching=enable_caching)

    return make


def _a_few_calls(make: Make) -> None:
    """A prompt that is computed and found again, a decode, a preemption, and the end."""
    try:
        engine = make(4, True)
    except Exception as error:
        # The configuration is ours: one that an engine does not take says nothing of it.
        raise TargetError(
            "its constructor does not take the configuration that the adapter makes: "
            f"{class_name(error)} {said_by(error)}"
        ) from error
    for number in range(2):
        engine.submit(number, [1] * _BLOCK_SIZE * 2, max_new_tokens=4)
    for _ in range(12):
        plan = engine.plan()
        engine.answer({part.request_id: [1] for part in plan.parts}, {})
        engine.num_free()
        engine.unfinished()
