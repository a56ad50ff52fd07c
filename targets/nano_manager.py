"""The targets in nano-vLLM's shape: `nano-vllm`, `nano-vllm:PATH`, `impl-nano`, and any class.

nano-vLLM is on no package index. `nano-vllm:PATH` takes a checkout (or any folder with a package
that has `engine/block_manager.py`), such as `poolproof engines` fetches (`nano_clones.py`); without
a path it is nano-vllm-npu 0.0.2, a port whose `block_manager.py` is nano-vLLM's of commit df99418
with another package name. Read unmodified:
`sampling_params.py`, `engine/sequence.py`, `engine/block_manager.py`; they need xxhash and NumPy.
Nothing is stubbed; the package's `__init__`, which loads PyTorch and the model, is not run.

One adapter drives every published generation of the shape and Poolproof's own, which it tells
apart by what the manager has and answers:

- `can_allocate` answers a bool, or the number of cached blocks and -1 for a refusal;
- with `hash_blocks`, or `hash_block`, blocks are published after the step that computed them, and
  prompts may be computed in chunks; without (nano-vLLM up to 8d63a98), when they are scheduled;
- with `get_token_layout` blocks are taken for a chunk at a time (`ChunkedNanoManager`);
- observers are read from `free_block_ids` and `blocks`, or are methods of the same names as ours.

It does what nano-vLLM's scheduler does around the manager: a sampled token is appended before its
slot is asked for, a preempted sequence keeps its tokens, and a refusal is asked about before it is
made. Nothing of the manager is replaced, but its hash where weak ones are asked for. Several tokens
appended at once are asked for one by one, all before the first is taken; where they take more than
one block, as many have to be free. `can_allocate` answers for admissions, and says nothing of a
prefix that does not fit; so `lookup_prefix` is not driven, nor are forks, truncation, drafts,
swapping and transfers, which the shape does not have.

What the profile says follows from the generation. With `hash_blocks`, an `_allocate_block` that
takes an id also serves revived blocks and forgets their hash (f64d821), so that hits and room are
declared as "sound" alone; what comes after is exact. Of two blocks with one hash the index keeps
the last, which is a legal row although it loses hits (nano-vllm#219). For `collisions` the engine
is "trusted": a hit is compared with the block's own tokens, and not with those before it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.contract.manager_profile import FULL, ManagerProfile
from poolproof.contract.outside import shown
from poolproof.contract.profile import ProfileError
from poolproof.contract.target import TargetError
from poolproof.impl.nano_block_manager import BlockManager, Sequence
from poolproof.targets.adapter_fit import Call, require_fit, tried
from poolproof.targets.engine_sources import engine_folder, import_from_source
from poolproof.targets.manager_target import MANAGER_SHAPES, ManagerShape, manager_target
from poolproof.targets.target import Make, ManagerLayout, Target, source_of
from poolproof.targets.target_spec import TargetSpec, builtin_profile
from poolproof.targets.token_names import TokenNames

__all__ = [
    "NANO_VLLM_PORT",
    "ChunkedNanoManager",
    "NanoManager",
    "StandInSequence",
    "impl_nano_manager",
    "nano_vllm",
    "nano_vllm_manager",
    "package_in",
    "sequence_maker",
]


NANO_VLLM_PORT = "nano-vllm-npu-0.0.2"
"""The port that stands in where no checkout is named; also the name of its folder."""

_BLOCK_MANAGER = "engine/block_manager.py"
_PARAMETERS = "sampling_params"
_MODULES = ("engine.sequence", "engine.block_manager")


@dataclass(frozen=True)
class NanoVllm:
    """What the adapter uses, by the engine's own names."""

    folder: Path
    BlockManager: Any
    Sequence: Any
    SamplingParams: Any
    """None where the package has none."""


def nano_vllm(checkout: Path | None = None) -> NanoVllm:
    """The classes of one checkout; several may be loaded side by side.

    Raises TargetError where there is no such package, more than one, or it cannot be imported.
    """
    root = engine_folder(NANO_VLLM_PORT) if checkout is None else checkout.resolve()
    package = package_in(root, _BLOCK_MANAGER)
    has_parameters = (package / f"{_PARAMETERS}.py").is_file()
    names = (_PARAMETERS, *_MODULES) if has_parameters else _MODULES
    modules = import_from_source(package.parent, package.name, names, {})
    return NanoVllm(
        folder=root,
        BlockManager=modules["engine.block_manager"].BlockManager,
        Sequence=modules["engine.sequence"].Sequence,
        SamplingParams=modules[_PARAMETERS].SamplingParams if has_parameters else None,
    )


def package_in(root: Path, module: str) -> Path:
    """The package's folder: `root` itself, or the one folder in it that has the module.

    Raises TargetError where there is none, or more than one.
    """
    if (root / module).is_file():
        return root
    found = sorted(path.parent.parent for path in root.glob(f"*/{module}"))
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name for path in found)
        raise TargetError(f"{root} holds several packages ({names}); name one of them")
    what = "is not a folder" if not root.is_dir() else f"holds no package with {module}"
    raise TargetError(
        f"{root} {what}; clone nano-vLLM and give its folder, as nano-vllm:path/to/nano-vllm, or "
        "run `poolproof engines`, which lists what it can fetch"
    )


class StandInSequence(HandedOver):
    """One request; `block_size` is set on a subclass."""

    block_size = 0

    def __init__(self, token_ids: list[int]) -> None:
        self.token_ids = list(token_ids)
        self.block_table: list[int] = []
        self.num_cached_tokens = 0
        self.num_scheduled_tokens = 0

    def __len__(self) -> int:
        return len(self.token_ids)

    def __getitem__(self, key: Any) -> Any:
        return self.token_ids[key]

    @property
    def num_tokens(self) -> int:
        """How many tokens there are, prompt and output."""
        return len(self.token_ids)

    @property
    def num_blocks(self) -> int:
        """How many blocks they take, the last one perhaps in part."""
        return -(-len(self.token_ids) // self.block_size)

    @property
    def last_block_num_tokens(self) -> int:
        """How many tokens are in the last block."""
        return len(self.token_ids) - (self.num_blocks - 1) * self.block_size

    @property
    def last_token(self) -> int:
        """The token at the end."""
        return self.token_ids[-1]

    def block(self, index: int) -> list[int]:
        """The tokens of one block."""
        return self.token_ids[index * self.block_size : (index + 1) * self.block_size]

    def append_token(self, token_id: int) -> None:
        """Add a sampled token."""
        self.token_ids.append(token_id)


def sequence_maker(manager_class: type, block_size: int) -> Callable[..., Any]:
    """From tokens to a sequence that managers of this class take, of blocks of `block_size`.

    nano-vLLM keeps the block size on the class, for all managers of a process; a subclass has its
    own, so that nothing of the engine is changed. What a constructor wants beside the tokens is
    looked up by its name, unless the caller gives it by name. Raises TargetError for an argument
    that has no known meaning.
    """
    found = _in_module_of(manager_class, "Sequence")
    base = found if isinstance(found, type) else StandInSequence
    # A class with slots, or with a property of that name, keeps it for each sequence.
    own = {} if "block_size" in _slots_of(base) else {"block_size": block_size}
    sequence_class: Any = type(base.__name__, (base,), own)
    numbers = count()
    known: dict[str, Callable[[], Any]] = {
        "sampling_params": lambda: _sampling_params(manager_class, base),
        "block_size": lambda: block_size,
        "seq_id": lambda: next(numbers),
        "request_id": lambda: next(numbers),
    }
    parameters = list(inspect.signature(base).parameters.values())
    # Of a class that takes something else first, the tokens are told by their name.
    tokens_name = "token_ids" if any(p.name == "token_ids" for p in parameters) else None
    others = [p for p in parameters if p.name != tokens_name][0 if tokens_name else 1 :]
    named = [p.name for p in others if p.name in known and _is_wanted(p)]
    unknown = [p.name for p in others if p.name not in known and _is_required(p)]
    if unknown:
        raise TargetError(
            f"{manager_class.__name__} is not driven, because {base.__name__}() beside it needs "
            f"{', '.join(map(repr, unknown))}, which the adapter for nano-vLLM's shape does not "
            "know; write a native target (`poolproof new --manager FILE`)"
        )

    def new_sequence(tokens: list[int], **given: Any) -> Any:
        told = {name: known[name]() for name in named if name not in given} | given
        if tokens_name is None:
            return sequence_class(tokens, **told)
        return sequence_class(**{tokens_name: tokens}, **told)

    return new_sequence if named else sequence_class


def _is_required(parameter: inspect.Parameter) -> bool:
    is_star = parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    return parameter.default is parameter.empty and not is_star


def _is_wanted(parameter: inspect.Parameter) -> bool:
    """Block sizes are told wherever they can be, since defaults are those of a model."""
    return _is_required(parameter) or parameter.name == "block_size"


def _slots_of(cls: type) -> set[str]:
    slots = (vars(base).get("__slots__", ()) for base in cls.__mro__)
    return {name for each in slots for name in ([each] if isinstance(each, str) else each)}


def _sampling_params(manager_class: type, sequence_class: type) -> Any:
    """The parameters at rest, of the class that the sequence's or the manager's module names."""
    for cls in (sequence_class, manager_class):
        found = _in_module_of(cls, "SamplingParams")
        if callable(found):
            return found()
    raise TargetError(
        f"{sequence_class.__name__}() wants sampling_params, and its module names no "
        "SamplingParams; import it there"
    )


def _in_module_of(cls: type, name: str) -> object:
    """What a name means in the module of the class, or of the nearest base that has it."""
    for base in cls.__mro__:
        module = sys.modules.get(base.__module__)
        if module is not None and hasattr(module, name):
            return getattr(module, name)
    return None


_PUBLISHERS = ("hash_blocks", "hash_block")
"""What clones call the method that publishes what was computed."""


def _publisher_of(manager: Any) -> Any:
    """The method of an instance or a class; None where blocks are published when scheduled."""
    methods = (getattr(manager, name, None) for name in _PUBLISHERS)
    return next((method for method in methods if callable(method)), None)


NANO_METHODS = ("can_allocate", "allocate", "deallocate", "can_append", "may_append")
"""The methods that tell the shape."""

_NUM_KEPT = 100
"""Sequences that have ended and may be ended again; engines forget them at once."""


class NanoManager:
    """`manager`, driven as nano-vLLM's scheduler drives it.

    `new_sequence` makes the manager's own kind of sequence from tokens.
    """

    def __init__(
        self,
        manager: Any,
        new_sequence: Callable[[list[int]], Any],
        block_size: int,
        *,
        enable_caching: bool = True,
    ) -> None:
        self._manager = manager
        self._new_sequence = new_sequence
        self._block_size = block_size
        self._enable_caching = enable_caching
        self._names = TokenNames(enable_caching=enable_caching)
        self._sequences: dict[int, Any] = {}
        self._settings: dict[int, tuple[object, ...]] = {}
        self._ended: dict[int, Any] = {}
        self._hash_blocks = _publisher_of(manager)
        self.schedule: Callable[[int, int], list[tuple[int, int]] | str]
        if self._hash_blocks is not None:
            self.schedule = self._schedule
        if callable(getattr(manager, "reset", None)):
            self.reset = manager.reset
        if callable(getattr(manager, "compute_hash", None)):
            self.use_hash = self._use_hash
        self._show(manager)

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,  # noqa: ARG002 - blocks are taken for the whole prompt
    ) -> int | str:
        """Ask, then allocate. Blocks are taken for all tokens, also where a chunk is scheduled."""
        sequence = self._sequences.get(seq_id)
        setting = self._settings.get(seq_id, ())
        if sequence is None or not self._enable_caching:
            setting = self._names.setting(extra_keys)
            sequence = self._new_sequence(self._names.named(tokens, setting, extra_keys))
        answer = self._manager.can_allocate(sequence)
        if isinstance(answer, bool):
            if not answer:
                return "later"
            self._manager.allocate(sequence)
        elif not isinstance(answer, int):
            raise TargetError(
                f"`can_allocate` answered {shown(answer)}; the adapter for nano-vLLM's shape knows "
                "a bool and a number of cached blocks"
            )
        elif answer < 0:
            return "later"
        else:
            self._manager.allocate(sequence, answer)
        self._sequences[seq_id], self._settings[seq_id] = sequence, setting
        cached: int = sequence.num_cached_tokens
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        named = self._names.named(tokens, self._settings[seq_id])
        if not self._has_slots(sequence, named):
            return "later"
        for token in named:
            sequence.append_token(token)
            self._manager.may_append(sequence)
        return []

    def step(self, batch: list[tuple[int, int]]) -> None:
        """What was computed is published, where the manager has a call for it."""
        if self._hash_blocks is None:
            return
        for seq_id, num_tokens in batch:
            sequence = self._sequences[seq_id]
            sequence.num_scheduled_tokens = num_tokens
            self._hash_blocks(sequence)
            sequence.num_cached_tokens += num_tokens
            sequence.num_scheduled_tokens = 0

    def preempt(self, seq_id: int) -> None:
        self._manager.deallocate(self._sequences[seq_id])

    def finish(self, seq_id: int) -> None:
        sequence = self._sequences.pop(seq_id, None)
        if sequence is None:
            sequence = self._ended.get(seq_id)
            if sequence is None:
                return  # nobody has a sequence of that name that could be given back
        self._manager.deallocate(sequence)
        self._settings.pop(seq_id, None)
        self._ended[seq_id] = sequence
        if len(self._ended) > _NUM_KEPT:
            del self._ended[next(iter(self._ended))]

    def abort(self, seq_id: int) -> None:
        self.finish(seq_id)

    def block_table(self, seq_id: int, group: int = 0) -> list[int]:  # noqa: ARG002 - one group
        table: list[int] = self._sequences[seq_id].block_table
        return table

    def _use_hash(self, digest: Callable[[bytes], bytes]) -> None:
        """The manager hashes with `digest` from now on; nothing else of it changes."""

        def compute_hash(content: Any, parent_hash: int | None = None) -> int:
            named = repr((parent_hash, content)).encode()
            return int.from_bytes(digest(named), "big")

        self._manager.compute_hash = compute_hash

    def _schedule(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]]:  # noqa: ARG002 - all is taken
        """Schedule the next chunk of a prompt, whose blocks were taken on admission."""
        return []

    def _has_slots(self, sequence: Any, tokens: list[int]) -> bool:
        """Whether `can_append` says yes to each of the tokens, asked as engines ask it."""
        longer = list(sequence.token_ids)
        for token in tokens:
            longer.append(token)
            asking = self._new_sequence(longer)
            asking.block_table = sequence.block_table
            if not self._manager.can_append(asking):
                return False
        num_new = -(-len(longer) // self._block_size) - len(sequence.block_table)
        num_free: Callable[[], int] | None = getattr(self, "num_free", None)
        return num_new < 2 or num_free is None or num_new <= num_free()

    def _show(self, manager: Any) -> None:
        """Offer as observers what the manager lets be seen."""
        free = getattr(manager, "free_block_ids", None)
        if isinstance(getattr(type(manager), "num_free_blocks", None), property):
            # What is cached and free is in a list of its own.
            self.num_free = lambda: manager.num_free_blocks
        elif free is not None:
            self.num_free = lambda: len(manager.free_block_ids)
            self.free_order = lambda: list(manager.free_block_ids)
        for name in ("num_free", "free_order", "free_neighbours", "ref_count", "is_cached"):
            if callable(getattr(manager, name, None)):
                setattr(self, name, getattr(manager, name))
        blocks = getattr(manager, "blocks", None)
        if blocks and hasattr(blocks[0], "ref_count"):
            self.ref_count = lambda block_id: manager.blocks[block_id].ref_count
        if blocks and hasattr(blocks[0], "hash") and hasattr(manager, "hash_to_block_id"):
            self.is_cached = self._is_found

    def _is_found(self, block_id: int) -> bool:
        """Whether the index leads to the block: of two with one hash, it knows one."""
        found: bool = (
            self._manager.hash_to_block_id.get(self._manager.blocks[block_id].hash) == block_id
        )
        return found


_LAYOUT = "get_token_layout"
"""The method that tells the generation which takes blocks for a chunk at a time."""


class ChunkedNanoManager(NanoManager):
    """`manager`, of the generation that takes blocks for a chunk at a time.

    `get_token_layout` tells how many tokens of a prompt are in blocks that others use, in blocks
    that are cached, and in neither; `can_allocate` is asked for a number of tokens, `can_append`
    for a sequence and a number. Nothing is asked for while the last chunk waits for its step.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.schedule = self._schedule_chunk

    def admit(
        self,
        seq_id: int,
        tokens: list[int],
        *,
        extra_keys: Any = None,
        num_tokens: int | None = None,
    ) -> int | str:
        setting = self._names.setting(extra_keys)
        sequence = self._new_sequence(self._names.named(tokens, setting, extra_keys))
        _, num_cached, left = self._manager.get_token_layout(sequence)
        chunk = min(num_tokens or left, left)
        if not self._manager.can_allocate(num_cached + chunk):
            return "later"
        sequence.num_new_tokens = chunk
        self._manager.allocate(sequence)
        self._sequences[seq_id], self._settings[seq_id] = sequence, setting
        cached: int = sequence.num_cached_tokens
        return cached

    def append(self, seq_id: int, tokens: list[int]) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        if not self._may_take(sequence, len(tokens)):
            return "later"
        for token in self._names.named(tokens, self._settings[seq_id]):
            sequence.append_token(token)
        return self._take(sequence, len(tokens))

    def step(self, batch: list[tuple[int, int]]) -> None:
        for seq_id, _ in batch:
            sequence = self._sequences[seq_id]
            sequence.num_cached_tokens += sequence.num_new_tokens
            sequence.num_new_tokens = 0

    def _schedule_chunk(self, seq_id: int, num_tokens: int) -> list[tuple[int, int]] | str:
        sequence = self._sequences[seq_id]
        if not self._may_take(sequence, num_tokens):
            return "later"
        return self._take(sequence, num_tokens)

    def _may_take(self, sequence: Any, num_tokens: int) -> bool:
        may: bool = not sequence.num_new_tokens and self._manager.can_append(sequence, num_tokens)
        return may

    def _take(self, sequence: Any, num_tokens: int) -> list[tuple[int, int]]:
        sequence.num_new_tokens = num_tokens
        self._manager.may_append(sequence)
        return []


_BLOCK_SIZE = 4

_SHAPE = {
    "reserves": "sequence",
    "never": "untold",
    "duplicates": "last",
    "collisions": "trusted",
    "misuse": "undefined",
}
_AT_SCHEDULING = {
    "publishes": "scheduled",
    "same_step_hit": "allowed",
    "full_hit": "allowed",
    "hits": "sound",
    "admission": "sound",
}
_IN_CHUNKS = {
    "reserves": "scheduled",
    "full_hit": "recompute-token",
    "admission": "exact-at-admission",
    "eviction": "unspecified",
}
_FORGETFUL = {"hits": "sound", "admission": "sound"}

_NOTES = (
    "adapters, salts and images: the shape has none, so tokens under them are other tokens to it",
    "caching off: there is no switch, so each admission has tokens of its own",
    "forks, truncation, drafts, swapping, transfers: the shape has none",
    "lookup without use: can_allocate() tells nothing of a prefix that does not fit now",
)


def nano_vllm_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """nano-vLLM from the checkout that `name` gives behind a colon, or its published port.

    Raises TargetError where it is not there, lacks a module, or has no such row of the profile.
    """
    path = TargetSpec.parse(name).base.partition(":")[2]
    engine = nano_vllm(Path(path).expanduser() if path else None)
    version = None if path else NANO_VLLM_PORT.replace("-0", " 0")
    profile = builtin_profile(
        name, _rows_of(engine.BlockManager), _of_one_group(name, overrides), ManagerProfile
    )
    return _target(name, engine.BlockManager, profile, version)


def impl_nano_manager(name: str, overrides: Mapping[str, Any]) -> Target:
    """Poolproof's own block manager in this shape. Raises TargetError for an unknown row."""
    own = {**_SHAPE, "duplicates": "kept", "collisions": "checked", "misuse": "raises"}
    profile = builtin_profile(name, own, _of_one_group(name, overrides), ManagerProfile)
    return _target(name, BlockManager, profile, None)


def _class_in_this_shape(
    name: str, cls: type, overrides: Mapping[str, Any], version: str | None
) -> Target:
    """Any class with the shape's methods. Raises TargetError."""
    declared = getattr(cls, "profile", {})
    try:
        ManagerProfile.from_mapping(declared)
        rows = {**_rows_of(cls), **declared, **_of_one_group(name, overrides)}
        profile = ManagerProfile.from_mapping(rows)
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error
    missing = [method for method in NANO_METHODS if not callable(getattr(cls, method, None))]
    if missing:
        raise TargetError(
            f"{cls.__name__} lacks {', '.join(f'{method}()' for method in missing)}, which a "
            "manager in nano-vLLM's shape has"
        )
    return _target(name, cls, profile, version)


# For `--api nano`, and for classes that have all these methods.
MANAGER_SHAPES["nano"] = ManagerShape(NANO_METHODS, _class_in_this_shape)


def _calls_of(cls: type) -> list[Call]:
    """The calls that do not depend on an answer."""
    if hasattr(cls, _LAYOUT):
        return [
            Call("__init__", ("num_blocks", "block_size")),
            Call(_LAYOUT, ("seq",)),
            Call("can_allocate", ("num_tokens",)),
            Call("allocate", ("seq",)),
            Call("deallocate", ("seq",)),
            Call("can_append", ("seq", "num_new_tokens")),
            Call("may_append", ("seq",)),
        ]
    calls = [
        Call("__init__", ("num_blocks", "block_size")),
        Call("can_allocate", ("seq",)),
        Call("deallocate", ("seq",)),
        Call("can_append", ("seq",)),
        Call("may_append", ("seq",)),
    ]
    calls += [Call(name, ("seq",)) for name in _PUBLISHERS if hasattr(cls, name)]
    return calls


def _a_few_calls(make: Make) -> None:
    """A prompt that is computed, found again, longer than a block, and given back."""
    manager = make(8, True)
    for seq_id in range(2):
        manager.admit(seq_id, list(range(2 * _BLOCK_SIZE + 1)))
        manager.step([(seq_id, _BLOCK_SIZE)])
        manager.append(seq_id, [7])
        manager.block_table(seq_id)
    manager.preempt(0)
    manager.finish(1)


def _target(name: str, cls: type, profile: ManagerProfile, version: str | None) -> Target:
    require_fit(cls, "nano-vLLM's shape", _calls_of(cls))
    new_sequence = Sequence if cls is BlockManager else sequence_maker(cls, _BLOCK_SIZE)

    def make(num_blocks: int, enable_caching: bool) -> NanoManager:
        manager = cls(num_blocks, _BLOCK_SIZE)
        driven = ChunkedNanoManager if hasattr(cls, _LAYOUT) else NanoManager
        return driven(manager, new_sequence, _BLOCK_SIZE, enable_caching=enable_caching)

    what = (
        None if cls is BlockManager else _beyond_the_shape(cls) or tried(lambda: _a_few_calls(make))
    )
    if what is not None:
        raise TargetError(
            f"{name} is not driven, because it does not fit the adapter for nano-vLLM's shape: "
            f"{what}; write a native target (`poolproof new --manager FILE`)"
        )
    notes = list(_NOTES)
    if _publisher_of(cls) is None and not hasattr(cls, _LAYOUT):
        notes.append("chunked prefill: this generation publishes a prompt whole, at admission")
    return manager_target(
        name,
        "nano",
        [ManagerLayout(profile.layout_name, profile, make, _BLOCK_SIZE)],
        version=version,
        source=source_of(cls),
        real_class=cls,
        notes=notes,
    )


_BEYOND = {
    "partial_block": "hits may end inside a block, which takes copies",
    "may_prefill": "prompts are published chunk by chunk",
}
"""What a part of a method's name tells of a clone that the adapter cannot drive."""


def _beyond_the_shape(cls: type) -> str:
    """What a clone does that the adapter does not know, with the method that shows it."""
    told = ((what, name) for part, what in _BEYOND.items() for name in dir(cls) if part in name)
    return next((f"{what}, as {name}() shows" for what, name in told), "")


def _may_cache(cls: type) -> bool:
    """Whether a method is named after a prefix cache; some clones have none."""
    names = [name for name in dir(cls) if not name.startswith("__")]
    return any(word in name for name in names for word in ("hash", "prefix", "radix"))


def _rows_of(cls: type) -> dict[str, Any]:
    """The rows of the generation that a class belongs to."""
    if hasattr(cls, _LAYOUT):
        return {**_SHAPE, **_AT_SCHEDULING, **_IN_CHUNKS}
    if _publisher_of(cls) is None:
        return {**_SHAPE, **(_AT_SCHEDULING if _may_cache(cls) else {"publishes": "never"})}
    takes_id = len(inspect.signature(getattr(cls, "_allocate_block", _no_argument)).parameters) > 1
    return {**_SHAPE, **_FORGETFUL} if takes_id else _SHAPE


def _no_argument(_: object) -> None:
    """Replaces a missing `_allocate_block`."""


def _of_one_group(name: str, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    if overrides.get("groups", "full") not in ("full", FULL):
        raise TargetError(f"{name}: managers in nano-vLLM's shape have one group, full attention")
    return overrides
