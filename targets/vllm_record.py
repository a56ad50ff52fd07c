"""Records what vLLM V1's scheduler tells its workers (POOLPROOF_RECORD), for `poolproof audit`.

It works beside the watch and without it: it keeps no memory of what stands where, and judges
nothing. A step is noted when it is scheduled and written when its output comes back, since with
asynchronous scheduling its tokens are known only then. The first exception of ours ends the
recording with one line in the log; the engine never sees it.

What a connector brings is written as loads from places that nobody has stored to, and the recording
then says that it is not whole. Not recorded: groups that the watch leaves out, and what other ranks
do.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import logging
import multiprocessing.util
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.recording import RecordingError, RecordingWriter, free_path
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.targets.installed_vllm import version_of_vllm
from poolproof.targets.vllm_watch import watched_groups
from poolproof.watch.watcher import say

__all__ = ["VllmRecorder", "record_scheduler", "record_schedulers"]

_ATTRIBUTE = "poolproof_recorder"
_MIB = 1 << 20
_MOST_NAMES = 1_000


def record_schedulers(values: Mapping[str, str]) -> None:
    """Every scheduler that this process makes from now on is recorded, each into a file of its own.

    `values` are the variables POOLPROOF_RECORD and, if there is one, POOLPROOF_RECORD_MIB. Raises
    RecordingError for a number that is none.
    """
    path, most_bytes = Path(values["POOLPROOF_RECORD"]), _most_bytes(values)
    config = importlib.import_module("vllm.config").SchedulerConfig
    original = config.get_scheduler_cls

    @functools.wraps(original)
    def get_scheduler_cls(self: Any) -> Any:
        scheduler_class = original(self)
        try:
            _tap_class(scheduler_class, path, most_bytes)
        except Exception as error:
            say(logging.ERROR, f"{scheduler_class!r} cannot be recorded: {error!r}")
        return scheduler_class

    config.get_scheduler_cls = get_scheduler_cls


def _most_bytes(values: Mapping[str, str]) -> int | None:
    text = values.get("POOLPROOF_RECORD_MIB", "")
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise RecordingError(f"POOLPROOF_RECORD_MIB={text!r} must be a number of MiB from 1 on")
    return int(text) * _MIB


def _tap_class(scheduler_class: Any, path: Path, most_bytes: int | None) -> None:
    """Its instances, not those of its subclasses, are recorded from their beginning."""
    if _ATTRIBUTE in scheduler_class.__dict__:
        return
    construct = scheduler_class.__init__

    @functools.wraps(construct)
    def recorded(self: Any, *arguments: Any, **named: Any) -> None:
        construct(self, *arguments, **named)
        if type(self) is scheduler_class:
            setattr(self, _ATTRIBUTE, record_scheduler(self, path, most_bytes))

    scheduler_class.__init__ = recorded
    setattr(scheduler_class, _ATTRIBUTE, None)


def record_scheduler(
    scheduler: Any, path: Path, most_bytes: int | None = None
) -> VllmRecorder | None:
    """Record a scheduler that has not scheduled anything; None, and a line, if that cannot be."""
    try:
        recorder = VllmRecorder(scheduler, path, most_bytes)
        recorder.tap()
    except Exception as error:
        say(logging.ERROR, f"nothing is recorded, the engine goes on: {error}")
        return None
    say(logging.INFO, f"recording the steps of the scheduler in {recorder.path}")
    return recorder


class _Tokens(Sequence[int]):
    """An engine's own list up to some length, and what follows: nothing is copied."""

    def __init__(self, known: Sequence[int], length: int, more: list[int]) -> None:
        self._known, self._length, self._more = known, length, more

    def __len__(self) -> int:
        return self._length + len(self._more)

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, slice):
            return self._known[key] if key < self._length else self._more[key - self._length]
        first, end, _ = key.indices(len(self))
        length = self._length
        return (
            *self._known[first : min(end, length)],
            *self._more[max(0, first - length) : max(0, end - length)],
        )


@dataclass(slots=True)
class _Noted:
    """A step that was scheduled and has not come back."""

    output: Any
    requests: dict[str, Any]
    epoch: int
    loads: list[tuple[int, int]]


class VllmRecorder:
    """One scheduler that is recorded. Raises RecordingError, and whatever a strange one raises."""

    def __init__(self, scheduler: Any, path: Path, most_bytes: int | None = None) -> None:
        self._scheduler = scheduler
        config = scheduler.kv_cache_manager.kv_cache_config
        groups, rows, left_out = watched_groups(scheduler, config)
        self._groups = [number for number, group in enumerate(groups) if group is not None]
        self._sizes = [rows[number]["block_size"] for number in self._groups]
        kept: list[CacheGroup] = [group for group in groups if group is not None]
        if not kept:
            raise RecordingError(f"no cache group can be recorded: {'; '.join(left_out)}")
        connector = getattr(scheduler, "connector", None)
        self._connector = connector
        self._writer = _writer(
            path, config.num_blocks, kept, self._sizes, engine=version_of_vllm() or "vllm",
            is_whole=connector is None, left_out=left_out, most_bytes=most_bytes,
        )  # fmt: skip
        self.path = self._writer.path
        self.is_on = True
        self._noted: deque[_Noted] = deque()
        self._number = self._epoch = 0
        self._loads: list[tuple[int, int]] = []
        self._local: dict[str, int] = {}
        self._live: dict[str, tuple[Any, int]] = {}
        self._behind: dict[str, int] = {}
        self._unknown, self._place = count(-2, -1), count()
        # A step that is planned before it is known which drafts were right begins behind all of
        # them; the worker goes back.
        self._is_ahead = bool(getattr(scheduler, "num_spec_tokens", 0)) and hasattr(
            scheduler, "_spec_token_placeholders"
        )

    def tap(self) -> None:
        """Listen to the scheduler's calls from now on."""
        scheduler = self._scheduler
        self._after(scheduler, "schedule", lambda output, *_a, **_n: self._scheduled(output))
        self._before(scheduler, "update_from_output", self._came_back)
        self._after(scheduler, "reset_prefix_cache", self._reset)
        self._before(scheduler, "shutdown", lambda *_a, **_n: self.close())
        if self._connector is not None:
            self._before(self._connector, "get_num_new_matched_tokens", self._matched)
            self._before(self._connector, "update_state_after_alloc", self._allocated)
        atexit.register(self.close)
        # A child of multiprocessing ends without atexit.
        multiprocessing.util.Finalize(None, self.close, exitpriority=100)

    def close(self) -> None:
        """The steps that have not come back, as far as they are known; then the last line.

        Where a step has cost the engine its life, it is one of these.
        """
        if self._noted:
            self._guarded(self._came_back, self._noted[-1].output, None)
        self._guarded(self._writer.close)
        self.is_on = False

    def _before(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def tapped(*arguments: Any, **named: Any) -> Any:
            self._guarded(call, *arguments, **named)
            return original(*arguments, **named)

        setattr(owner, name, tapped)

    def _after(self, owner: Any, name: str, call: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def tapped(*arguments: Any, **named: Any) -> Any:
            answer = original(*arguments, **named)
            self._guarded(call, answer, *arguments, **named)
            return answer

        setattr(owner, name, tapped)

    def _guarded(self, call: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """The engine never sees an exception of ours; the first one ends the recording."""
        if not self.is_on:
            return
        try:
            call(*arguments, **named)
        except Exception as error:
            self.is_on = False
            self._noted.clear()
            what = f"{type(error).__name__}: {error}"
            say(logging.ERROR, f"the recording has ended, the engine goes on: {what}")
            try:
                self._writer.close(what)
            except RecordingError:
                return

    def _scheduled(self, output: Any) -> None:
        told = output.scheduled_cached_reqs
        new = [request.req_id for request in output.scheduled_new_reqs]
        requests = {
            request_id: self._scheduler.requests[request_id]
            for request_id in (*new, *told.resumed_req_ids)
        }
        self._noted.append(_Noted(output, requests, self._epoch, self._loads))
        self._loads = []

    def _reset(self, answer: Any, *_arguments: Any, **_named: Any) -> None:
        """What was computed before is stale, by whatever key it is found."""
        self._epoch += bool(answer)

    def _matched(self, request: Any, num_local: int, *_arguments: Any, **_named: Any) -> None:
        if len(self._local) > _MOST_NAMES:
            self._local.clear()
        self._local[request.request_id] = num_local

    def _allocated(
        self, request: Any, blocks: Any, num_external: int, *_arguments: Any, **_named: Any
    ) -> None:
        """A connector will bring the KV of so many positions behind what was found here."""
        first = self._local.pop(request.request_id, 0)
        if num_external <= 0:
            return
        tables = blocks.get_block_ids()
        for number, size in zip(self._groups, self._sizes, strict=True):
            entries = tables[number][first // size : -(-(first + num_external) // size)]
            self._loads += [(block, next(self._place)) for block in entries]

    def _came_back(self, output: Any, runner_output: Any, *_arguments: Any, **_named: Any) -> None:
        """Steps come back in order; of empty ones nothing does."""
        if not any(noted.output is output for noted in self._noted):
            return
        ended: list[str] = []
        loads: list[tuple[int, int]] = []
        while self._noted:
            noted = self._noted.popleft()
            ended += [*noted.output.finished_req_ids, *(noted.output.preempted_req_ids or ())]
            loads += noted.loads
            is_it = noted.output is output
            if is_it or (runner_output is None and noted.output.num_scheduled_tokens):
                self._write(noted, ended, loads, runner_output)
                ended, loads = [], []
            if is_it:
                return

    def _write(
        self, noted: _Noted, ended: list[str], loads: list[tuple[int, int]], runner_output: Any
    ) -> None:
        self._number += 1
        for request_id in ended:
            self._live.pop(request_id, None)
            self._behind.pop(request_id, None)
        copies = getattr(noted.output, "kv_cache_block_copies", None) or ()
        self._writer.record(
            StepRecord(
                self._number,
                tuple(self._computed(noted, runner_output)),
                tuple((copy.src_block_id, copy.dst_block_id) for copy in copies),
                tuple(dict.fromkeys(ended)),
                tuple(loads),
            )
        )

    def _computed(self, noted: _Noted, runner_output: Any) -> Iterator[ComputedTokens]:
        output = noted.output
        for new in output.scheduled_new_reqs:
            self._live[new.req_id] = noted.requests[new.req_id], noted.epoch
            self._behind.pop(new.req_id, None)
            table = new.num_computed_tokens, new.block_ids, True
            yield self._part(noted, new.req_id, table, runner_output)
        told = output.scheduled_cached_reqs
        for request_id, first, blocks in zip(
            told.req_ids, told.num_computed_tokens, told.new_block_ids, strict=True
        ):
            resumed = request_id in told.resumed_req_ids
            if resumed:
                self._live[request_id] = noted.requests[request_id], noted.epoch
                self._behind.pop(request_id, None)
            yield self._part(noted, request_id, (first, blocks, resumed), runner_output)

    def _part(
        self, noted: _Noted, request_id: str, told: tuple[int, Any, bool], runner: Any
    ) -> ComputedTokens:
        """`told` is from where it is computed, the blocks, and whether they are the whole table."""
        first, blocks, replaced = told
        request, epoch = self._live[request_id]
        number = noted.output.num_scheduled_tokens[request_id]
        drafts = noted.output.scheduled_spec_decode_tokens.get(request_id) or ()
        accepted: list[int] = []
        sampled = _sampled(runner, request_id) if drafts else []
        if self._is_ahead:
            first = min(first, self._behind.get(request_id, first))
        if drafts:
            accepted = sampled[:-1][: len(drafts)]
        if self._is_ahead:
            rejected = len(drafts) - len(accepted) if sampled else 0
            self._behind[request_id] = first + number - rejected
        given = tuple(tuple(blocks[group]) for group in self._groups) if blocks else ()
        return ComputedTokens(
            request_id,
            self._chain(request, epoch, first + number, len(drafts), accepted),
            first,
            number,
            given,
            replaced,
        )

    def _chain(
        self, request: Any, epoch: int, end: int, num_drafts: int, accepted: list[int]
    ) -> TokenChain:
        """The tokens up to `end`; of rejected drafts, and of aborted requests, nobody knows any."""
        known = getattr(request, "_all_token_ids", None)
        known = request.all_token_ids if known is None else known
        length = min(end - num_drafts, len(known))
        more = [] if length < end - num_drafts else list(accepted)
        more = [token if token >= 0 else next(self._unknown) for token in more]
        more += [next(self._unknown) for _ in range(end - length - len(more))]
        lora = request.lora_request
        salt = request.cache_salt
        return TokenChain(
            _Tokens(known, length, more),  # type: ignore[arg-type]  # what is asked of it, it has
            None if lora is None else (lora.lora_name, lora.lora_path),
            f"{salt!r} after {epoch} resets" if epoch else salt,
            tuple(map(_image, request.mm_features or ())),
        )


def _writer(path: Path, *arguments: Any, **options: Any) -> RecordingWriter:
    """Into a new file; two processes that want the same one get one each."""
    for _ in range(_MOST_NAMES):
        free = free_path(path)
        try:
            return RecordingWriter(free, *arguments, **options)
        except RecordingError:
            if not free.exists():
                raise
    raise RecordingError(f"cannot write {path}: too many recordings have that name")


def _image(feature: Any) -> Image:
    place = feature.mm_position
    return Image(feature.identifier, place.offset, place.length)


def _sampled(runner_output: Any, request_id: str) -> list[int]:
    """What the step sampled for a request; nothing where it did not come that far, or back."""
    if runner_output is None:
        return []
    index = runner_output.req_id_to_index.get(request_id)
    sampled = runner_output.sampled_token_ids
    return list(sampled[index]) if index is not None and len(sampled) else []
