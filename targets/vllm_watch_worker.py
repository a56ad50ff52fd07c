"""Taps vLLM's model runner, where it runs in the scheduler's process, for the watch of states.

Three calls tell what the tables do not: `_update_states` which step begins, `preprocess_mamba`
which state is copied where before it, `_build_attention_metadata` which rows the layers take for
speculative ones. Only what the host has is read: whoever asked the device would let it wait. The
calls are tapped in vLLM's class and module, once for all watches of a process, and given back when
the last of them has gone.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable
from typing import Any

from poolproof.targets.vllm_watch_states import WorkerRow
from poolproof.watch.watcher import Watcher

__all__ = ["StateListener", "listen", "stop_listening"]

_RUNNER = "vllm.v1.worker.gpu_model_runner"
_COPIES = "vllm.v1.worker.mamba_utils"
_STEP = "poolproof_watched_step"


class StateListener:
    """What one watch hears: `heard` is called with a step's output and its rows, by request.

    All of it runs behind the switch of `watcher`.
    """

    def __init__(
        self, watcher: Watcher, heard: Callable[[Any, dict[str, WorkerRow]], None]
    ) -> None:
        self.watcher = watcher
        self.heard = heard


class _Step:
    """What is known of a runner's step so far."""

    __slots__ = ("columns", "output")

    def __init__(self, output: Any) -> None:
        self.output = output
        self.columns: dict[str, tuple[int, int | None, int, int]] = {}


_LISTENERS: weakref.WeakSet[StateListener] = weakref.WeakSet()
_TAPPED: list[tuple[Any, str, Any, Any]] = []


def listen(listener: StateListener) -> bool:
    """Hear of every step of the runners of this process; False where there is none."""
    runner = getattr(sys.modules.get(_RUNNER), "GPUModelRunner", None)
    copies = sys.modules.get(_COPIES)
    names = ("_update_states", "_build_attention_metadata")
    if runner is None or not all(hasattr(runner, name) for name in names):
        return False
    if not _TAPPED:
        _put(runner, names[0], _around_update)
        _put(runner, names[1], _around_metadata)
        if hasattr(copies, "preprocess_mamba"):
            _put(copies, "preprocess_mamba", _around_preprocess)
    _LISTENERS.add(listener)
    return True


def stop_listening(listener: StateListener) -> None:
    """The last one gives the calls back, unless somebody has put theirs over them."""
    _LISTENERS.discard(listener)
    if _LISTENERS:
        return
    while _TAPPED:
        owner, name, tapped, original = _TAPPED.pop()
        if owner.__dict__.get(name) is tapped:
            setattr(owner, name, original)


def _put(owner: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def tapped(*arguments: Any, **named: Any) -> Any:
        if not _listening():
            return original(*arguments, **named)
        return around(original, *arguments, **named)

    setattr(owner, name, tapped)
    _TAPPED.append((owner, name, tapped, original))


def _listening() -> list[StateListener]:
    """Those whose watch is on: one that has ended may still be somewhere."""
    return [listener for listener in list(_LISTENERS) if listener.watcher.is_on]


def _guarded(call: Callable[..., Any], *arguments: Any) -> Any:
    """Behind the switch of one of the watches, which is switched off by what goes wrong."""
    for listener in _listening():
        return listener.watcher.guarded(call, *arguments)
    return None


# The taps: vLLM's own call, with what it was given, whatever becomes of ours.


def _around_update(
    original: Callable[..., Any], runner: Any, output: Any, *args: Any, **named: Any
) -> Any:
    answer = original(runner, output, *args, **named)
    _guarded(_begin, runner, output)
    return answer


def _around_preprocess(original: Callable[..., Any], *args: Any, **named: Any) -> Any:
    before = _guarded(_columns_before, args, named)
    answer = original(*args, **named)
    _guarded(_columns_after, before, args, named)
    return answer


def _around_metadata(original: Callable[..., Any], runner: Any, *args: Any, **named: Any) -> Any:
    answer = original(runner, *args, **named)
    _guarded(_end, runner, answer)
    return answer


# What each of them tells.

_BEGUN: dict[int, _Step] = {}
"""The step of each input batch, from when it begins until its metadata is built."""


def _begin(runner: Any, output: Any) -> None:
    _BEGUN.clear()
    if output.total_num_scheduled_tokens:
        _BEGUN[id(runner.input_batch)] = _Step(output)


def _of_preprocess(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Its arguments `mamba_state_idx`, `input_batch` and the scheduler's output."""
    names = ("scheduler_output", "kv_cache_config", "cache_config", "mamba_state_idx")
    said = {**dict(zip((*names, "input_batch"), args)), **named}
    return said["mamba_state_idx"], said["input_batch"], said["scheduler_output"]


def _columns_before(
    args: tuple[Any, ...], named: dict[str, Any]
) -> list[tuple[str, int | None, int]]:
    columns, batch, output = _of_preprocess(args, named)
    gone = {*output.finished_req_ids, *(output.preempted_req_ids or ())}
    gone |= set(output.scheduled_cached_reqs.resumed_req_ids)
    return [
        (name, None if name in gone else columns.get(name), int(batch.num_accepted_tokens_cpu[at]))
        for at, name in enumerate(batch.req_ids)
    ]


def _columns_after(
    before: list[tuple[str, int | None, int]] | None, args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    columns, batch, output = _of_preprocess(args, named)
    step = _BEGUN.get(id(batch))
    if before is None or step is None or step.output is not output:
        return
    for at, (name, source, accepted) in enumerate(before):
        left = int(batch.num_accepted_tokens_cpu[at])
        step.columns[name] = columns[name], source, accepted - 1, left


def _end(runner: Any, answer: Any) -> None:
    step = _BEGUN.pop(id(runner.input_batch), None)
    if step is None:
        return  # A run without requests, as for graphs.
    ids = list(runner.input_batch.req_ids)
    masks = _speculative_rows(answer[0], len(ids))
    is_align = runner.cache_config.mamba_cache_mode == "align"
    if masks is None or (is_align and len(step.columns) != len(ids)):
        return
    rows = {name: WorkerRow(one, *step.columns.get(name, ())) for name, one in zip(ids, masks)}
    for listener in _listening():
        listener.watcher.guarded(listener.heard, step.output, rows)


def _speculative_rows(metadata: Any, count: int) -> list[bool] | None:
    """Of each request whether recurrent layers take it for a speculative row; None if unknown."""
    found: list[list[bool]] = []
    for one in {id(one): one for one in metadata.values()}.values():
        rows = _rows_of(one, count)
        if rows is not None:
            found.append(rows)
    return found[0] if found and all(rows == found[0] for rows in found) else None


def _rows_of(metadata: Any, count: int) -> list[bool] | None:
    kind = type(metadata).__name__
    if kind == "GDNAttentionMetadata" and hasattr(metadata, "spec_sequence_masks_cpu"):
        mask = metadata.spec_sequence_masks_cpu
        return [False] * count if mask is None else mask.tolist()[:count]
    if kind == "Mamba2AttentionMetadata":
        num = metadata.num_decodes if metadata.num_accepted_tokens is not None else 0
        return [place < num for place in range(count)]
    return None
