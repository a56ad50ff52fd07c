"""Taps vLLM V1's scheduler, whichever class the server uses, for the watch (`poolproof.watch`).

What is told to the workers (`SchedulerOutput`) is noted when a step is scheduled and followed when
its output comes back, because with asynchronous scheduling the tokens of a step are known only
then. Beside `schedule` and `update_from_output` a few calls of the block pool and of a connector
are tapped: what is freed, what is published, what is brought from elsewhere. Each tap calls the
engine's own method with the same arguments and returns what it returned; everything else is done
behind the watch's switch, which takes the taps out on the first exception of ours. Only the mode
`quarantine` changes anything in the scheduler.

Recurrent states are followed by tables and by what the worker tells of its copies where it runs in
this process (`vllm_watch_states.py`, `vllm_watch_worker.py`).

Not watched, and named in the start line: encoder and cross attention, groups whose attention or
recurrence is not known here, what connectors bring, several ranks' own memories.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from poolproof.contract.content import Image
from poolproof.contract.manager_profile import CacheGroup
from poolproof.contract.target import TargetError
from poolproof.targets.installed_vllm import version_of_vllm
from poolproof.targets.vllm_watch_states import RowStep, WorkerRow, add_recurrent_groups
from poolproof.targets.vllm_watch_worker import StateListener, listen, stop_listening
from poolproof.watch.digests import Digests
from poolproof.watch.findings import LiveFinding, request_name
from poolproof.watch.live_memory import ComputedPart, KnownRequest, LiveMemory
from poolproof.watch.metrics import register_metrics
from poolproof.watch.settings import WatchSettings
from poolproof.watch.taps import Taps
from poolproof.watch.watcher import SERVER_VARIABLE, Watcher, say

__all__ = ["VllmWatch", "attach", "tap_schedulers", "watched_groups"]

_ATTRIBUTE = "poolproof_watch"
_HITS_ALONE = "recurrent states behind drafts (the worker is out of reach): only hits are judged"


def tap_schedulers(values: Mapping[str, str]) -> None:
    """Whatever class a server takes as scheduler from now on is watched.

    Raises SettingsError for a variable that means nothing, and ImportError or AttributeError where
    vLLM is another than is known here.
    """
    settings = WatchSettings.from_environment(values)
    if settings is None:
        return
    os.environ.setdefault(SERVER_VARIABLE, str(os.getpid()))
    problem = register_metrics(settings.folder, os.environ[SERVER_VARIABLE])
    if problem:
        say(logging.WARNING, problem)
    config = importlib.import_module("vllm.config").SchedulerConfig
    original = config.get_scheduler_cls

    @functools.wraps(original)
    def get_scheduler_cls(self: Any) -> Any:
        scheduler_class = original(self)
        try:
            _tap_class(scheduler_class, settings)
        except Exception as error:
            say(logging.ERROR, f"{scheduler_class!r} cannot be watched", error)
        return scheduler_class

    config.get_scheduler_cls = get_scheduler_cls


def _tap_class(scheduler_class: Any, settings: WatchSettings) -> None:
    """Its instances, not those of its subclasses, are watched when they stand."""
    if _ATTRIBUTE in scheduler_class.__dict__:
        return
    construct = scheduler_class.__init__

    @functools.wraps(construct)
    def make(self: Any, *arguments: Any, **named: Any) -> None:
        construct(self, *arguments, **named)
        if type(self) is scheduler_class:
            attach(self, settings)

    scheduler_class.__init__ = make
    setattr(scheduler_class, _ATTRIBUTE, None)


def attach(scheduler: Any, settings: WatchSettings | None = None) -> VllmWatch | None:
    """Watch a scheduler from now on; None, and a line that says why, where that cannot be done.

    It may have run before: what was computed before is unknown, and never wrong.
    """
    try:
        watch = VllmWatch(scheduler, settings or WatchSettings("log"))
        setattr(scheduler, _ATTRIBUTE, watch)
    except Exception as error:
        known = isinstance(error, TargetError)
        say(
            logging.ERROR,
            f"the watch cannot start, the engine goes on unwatched: {error}",
            None if known else error,
        )
        return None
    return watch


@dataclass(slots=True)
class _Pending:
    """A step that was scheduled and has not come back."""

    output: Any
    requests: dict[str, Any]
    epoch: int
    freed: list[int]
    loads: list[tuple[tuple[list[int], ...], int, int]]
    ended: list[str] = field(default_factory=list)
    rows: dict[str, WorkerRow] = field(default_factory=dict)


@dataclass(slots=True)
class _Published:
    """One call that entered blocks of a request into the index, and how far it was computed."""

    request: Any
    status: Any
    computed: int
    args: tuple[Any, ...]
    named: dict[str, Any]

    def blocks(self) -> tuple[int, ...]:
        """Those that end beyond what was computed; none of a request that waited for a load."""
        if self.status.name != "RUNNING":
            return ()
        names = ("request", "blocks", "num_cached_blocks", "num_full_blocks", "block_size")
        said = {**dict(zip(names, self.args)), **self.named}
        first = max(said["num_cached_blocks"], self.computed // said["block_size"])
        blocks = said["blocks"][first : said["num_full_blocks"]]
        return tuple(block.block_id for block in blocks if not block.is_null)


class VllmWatch:
    """One scheduler under watch. Raises TargetError where nothing of it can be watched."""

    def __init__(self, scheduler: Any, settings: WatchSettings) -> None:
        self._scheduler = scheduler
        self._manager = manager = _part(scheduler, "kv_cache_manager")
        self._pool = pool = _part(manager, "block_pool")
        config = _part(manager, "kv_cache_config")
        groups, rows, left_out = watched_groups(scheduler, config)
        self._connector = getattr(scheduler, "connector", None)
        self._states = add_recurrent_groups(
            config, groups, rows, left_out, why_not=self._why_no_states()
        )
        if not any(groups):
            raise TargetError(f"no cache group can be watched: {'; '.join(left_out)}")
        if self._connector is not None:
            left_out.append(
                f"what {type(self._connector).__name__} brings and takes, and leaks with it"
            )
        self._digests = Digests(settings.key)
        self._is_quarantine = settings.mode == "quarantine"
        is_running = bool(scheduler.requests) or _was_used(pool)
        self._memory = LiveMemory(
            config.num_blocks,
            groups,
            [row["block_size"] for row in rows],
            self._digests,
            null_block=getattr(getattr(pool, "null_block", None), "block_id", None),
            is_running=is_running,
        )
        self._pending: deque[_Pending] = deque()
        self._epoch = 0
        self._freed: list[Any] = []
        self._published: list[_Published] = []
        self._local: dict[str, int] = {}
        self._loads: list[tuple[tuple[list[int], ...], int, int]] = []
        self._loading: dict[str, tuple[int, int]] = {}
        self._behind: dict[str, int] = {}
        # Drafts under asynchronous scheduling: a step begins where the last one would end if all
        # of its drafts were accepted, and the worker knows better.
        self._is_ahead = bool(getattr(scheduler, "num_spec_tokens", 0)) and hasattr(
            scheduler, "_spec_token_placeholders"
        )
        self._sizes = [row["block_size"] for row in rows]
        self._early: list[LiveFinding] = []
        self._aborted: list[Any] = []
        self._was_quiet = True
        self._left_out = left_out
        self._taps = Taps(lambda: self.watcher.is_on)
        self._listener: StateListener | None = None
        self.watcher = Watcher(
            settings,
            self._memory,
            self._digests,
            {
                "engine": version_of_vllm(),
                "scheduler": f"{type(scheduler).__module__}.{type(scheduler).__qualname__}",
                "attached": "running" if is_running else "start",
                "blocks": config.num_blocks,
                "groups": rows,
                "left_out": left_out,
                "tokens_of": self._tokens_of,
            },
            pool=self._blocks,
            describe=self._describe,
            untap=self._untap,
        )
        if is_running:
            self._adopt()
        self._listener = StateListener(self.watcher, self._hear)
        self._tap_all()

    def _why_no_states(self) -> str:
        """Why no recurrent state can be watched here: others than the told rows bring states."""
        if self._connector is not None:
            return "beside a connector"
        if getattr(self._scheduler, "mamba_partial_cache_hit", False):
            return "hits inside a block"
        return ""

    # The taps: the engine's own call, with what it was given, whatever becomes of ours.

    def _tap_all(self) -> None:
        put = self._taps.put
        put(self._scheduler, "schedule", self._around_schedule)
        put(self._scheduler, "update_from_output", self._around_update)
        put(self._scheduler, "reset_prefix_cache", self._around_reset)
        put(self._scheduler, "shutdown", self._around_shutdown)
        put(self._pool, "free_blocks", self._around_free)
        if hasattr(self._pool, "cache_full_blocks"):  # ours publishes by itself (impl/vllm_drop_in)
            put(self._pool, "cache_full_blocks", self._around_publish)
        if self._connector is not None:
            put(self._connector, "get_num_new_matched_tokens", self._around_match)
            put(self._connector, "update_state_after_alloc", self._around_alloc)
        if self._states is not None and self._listener is not None:
            self.watcher.guarded(listen, self._listener)

    def _untap(self) -> None:
        self._taps.remove()
        if self._listener is not None:
            stop_listening(self._listener)

    def _around_schedule(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self.watcher.guarded(self._before_schedule)
        output = original(*args, **named)
        self.watcher.guarded(self._after_schedule, output)
        return output

    def _around_update(
        self,
        original: Callable[..., Any],
        output: Any,
        runner_output: Any,
        *args: Any,
        **named: Any,
    ) -> Any:
        self.watcher.guarded(self._before_update, output, runner_output)
        answer = original(output, runner_output, *args, **named)
        self.watcher.guarded(self._after_update, answer)
        return answer

    def _around_reset(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        answer = original(*args, **named)
        self.watcher.guarded(self._after_reset, answer)
        return answer

    def _around_shutdown(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        self.watcher.end()
        return original(*args, **named)

    def _around_free(
        self, original: Callable[..., Any], ordered_blocks: Iterable[Any], *args: Any, **named: Any
    ) -> Any:
        # It may be an iterator, which the engine must be the one to read; a list does for both.
        blocks = list(ordered_blocks)
        answer = original(blocks, *args, **named)
        self.watcher.guarded(self._after_free, blocks)
        return answer

    def _around_publish(self, original: Callable[..., Any], *args: Any, **named: Any) -> Any:
        answer = original(*args, **named)
        self.watcher.guarded(self._after_publish, args, named)
        return answer

    def _around_match(
        self, original: Callable[..., Any], request: Any, num_local: Any, *args: Any, **named: Any
    ) -> Any:
        self.watcher.guarded(self._local.__setitem__, request.request_id, num_local)
        return original(request, num_local, *args, **named)

    def _around_alloc(
        self, original: Callable[..., Any], request: Any, blocks: Any, number: Any, *args: Any,
        **named: Any,
    ) -> Any:  # fmt: skip
        self.watcher.guarded(self._before_load, request, blocks, number)
        return original(request, blocks, number, *args, **named)

    # A step is scheduled.

    def _before_schedule(self) -> None:
        self._published.clear()

    def _after_schedule(self, output: Any) -> None:
        told = output.scheduled_cached_reqs
        new = [one.req_id for one in output.scheduled_new_reqs]
        requests = self._scheduler.requests
        self._pending.append(
            _Pending(
                output,
                {
                    request_id: requests[request_id]
                    for request_id in chain(new, told.resumed_req_ids)
                },
                self._epoch,
                [block.block_id for block in self._freed if block.ref_cnt == 0],
                self._loads,
            )
        )
        self._freed, self._loads = [], []
        if self._published and output.preempted_req_ids:
            self._look_at_published(output)

    def _look_at_published(self, output: Any) -> None:
        """Blocks that this pass published and whose writer it dropped: nobody computes them."""
        for published in self._published:
            request_id = published.request.request_id
            if (
                request_id in output.num_scheduled_tokens
                or request_id not in output.preempted_req_ids
            ):
                continue
            blocks = published.blocks()
            if not blocks:
                continue
            name = self._digests.name(request_id)
            self._early.append(
                self._memory.finding(
                    "I3",
                    f"a pass of the scheduler published blocks {', '.join(map(str, blocks[:20]))} "
                    f"of request {request_name(name)} and dropped it: nobody computes them",
                    writer=name,
                    request_id=request_id,
                    block=blocks[0],
                    blocks=blocks[:20],
                )
            )
            if self._is_quarantine:
                self._pool.evict_blocks(set(blocks))

    def _after_publish(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        request = named["request"] if "request" in named else args[0]
        self._published.append(
            _Published(request, request.status, request.num_computed_tokens, args, named)
        )

    def _after_free(self, blocks: list[Any]) -> None:
        self._freed += blocks
        wrong = [block.block_id for block in blocks if block.ref_cnt < 0 and not block.is_null]
        if wrong:
            self._early.append(
                self._memory.finding(
                    "OWN",
                    f"{len(wrong)} blocks were freed more often than taken: "
                    f"{', '.join(map(str, wrong[:20]))}",
                    block=wrong[0],
                    blocks=tuple(wrong[:20]),
                )
            )

    def _before_load(self, request: Any, blocks: Any, number: Any) -> None:
        first = self._local.pop(request.request_id, 0)
        if number > 0:
            self._loads.append((blocks.get_block_ids(), first, first + number))
            self._loading[request.request_id] = (first, first + number)

    def _after_reset(self, answer: Any) -> None:
        """What was computed before is stale, by whatever key it is found."""
        if answer:
            self._epoch += 1

    # A step comes back.

    def _before_update(self, output: Any, runner_output: Any) -> None:
        ended: list[str] = []
        freed: list[int] = []
        loads: list[tuple[tuple[list[int], ...], int, int]] = []
        if not any(step.output is output for step in self._pending):
            return  # A step from before the watch: what it computes is unknown, as all before it.
        while self._pending:
            step = self._pending.popleft()
            ended += step.output.finished_req_ids
            ended += step.output.preempted_req_ids or ()
            freed += step.freed
            loads += step.loads
            if step.output is output:
                step.ended, step.freed, step.loads = ended, freed, loads
                self._follow(step, runner_output)
                return

    def _follow(self, step: _Pending, runner_output: Any) -> None:
        output, memory, requests = step.output, self._memory, step.requests
        counts, drafts = output.num_scheduled_tokens, output.scheduled_spec_decode_tokens
        copies = getattr(output, "kv_cache_block_copies", None) or ()
        if self._states is not None:
            memory.zero(getattr(output, "new_block_ids_to_zero", None) or ())
        memory.begin(
            step.ended, [(copy.src_block_id, copy.dst_block_id) for copy in copies], step.freed
        )
        for request_id in step.ended:
            self._behind.pop(request_id, None)
            if self._states is not None:
                self._states.forget(request_id)
        for tables, first, end in step.loads:
            for group, table in enumerate(tables):
                memory.load(group, table, first, end)
        for new in output.scheduled_new_reqs:
            self._admit(
                requests[new.req_id], step, new.num_computed_tokens, new.block_ids, runner_output
            )
        told = output.scheduled_cached_reqs
        resumed = told.resumed_req_ids
        memory.counts.resumes += len(resumed)
        ids, firsts, added = told.req_ids, told.num_computed_tokens, told.new_block_ids
        others: Iterable[int] = range(len(ids))
        if not self._is_ahead and not resumed:
            others = memory.decode(ids, firsts, added, counts, drafts)
        for place in others:
            request_id, first, blocks = ids[place], firsts[place], added[place] or ()
            if request_id in resumed:
                self._admit(requests[request_id], step, first, blocks, runner_output)
                continue
            known = memory.requests.get(request_id)
            if known is not None:  # otherwise it ran before the watch, and nothing is known of it
                self._go_on(known, first, step, blocks, runner_output)
        found = memory.end()
        self.watcher.ring.append((memory.counts.steps, step))
        self._tell(found)

    def _admit(self, request: Any, step: _Pending, first: int, blocks: Any, runner: Any) -> None:
        """A whole table comes: a new request, or one that was preempted."""
        request_id = request.request_id
        loaded = self._loading.pop(request_id, None)
        if loaded is not None:
            for group, table in enumerate(blocks):
                self._memory.load(group, table, loaded[0], min(loaded[1], first))
        self._behind.pop(request_id, None)
        number = step.output.num_scheduled_tokens[request_id]
        drafts = step.output.scheduled_spec_decode_tokens.get(request_id) or ()
        known = self._memory.compute(
            ComputedPart(
                request_id=request_id,
                root=self._root(request, step.epoch),
                tokens=_tokens(request),
                images=tuple(map(_image, request.mm_features or ())),
                first=first,
                count=number,
                drafts=self._known_drafts(request_id, first + number, drafts, runner),
                blocks=blocks,
                replaced=True,
            )
        )
        self._follow_states(known, step, runner, is_new=True)

    def _go_on(
        self, known: KnownRequest, first: int, step: _Pending, blocks: Any, runner: Any
    ) -> None:
        """A known request, with what is added to its table."""
        request_id = known.request_id
        if self._is_ahead:
            # Scheduled before it was known how many drafts are rejected: the worker goes back.
            first = min(first, self._behind.get(request_id, first))
        number = step.output.num_scheduled_tokens[request_id]
        drafts = step.output.scheduled_spec_decode_tokens.get(request_id) or ()
        self._memory.compute(
            ComputedPart(
                request_id=request_id,
                root=known.root,
                tokens=known.tokens,
                images=known.images,
                first=first,
                count=number,
                drafts=self._known_drafts(request_id, first + number, drafts, runner),
                blocks=blocks,
                replaced=False,
            )
        )
        self._follow_states(known, step, runner, is_new=False)

    def _follow_states(
        self, known: KnownRequest, step: _Pending, runner: Any, *, is_new: bool
    ) -> None:
        """What becomes of its recurrent states, as far as that can be known."""
        if self._states is None or known.is_broken:
            return
        request_id = known.request_id
        drafts = step.output.scheduled_spec_decode_tokens.get(request_id) or ()
        row = RowStep(
            count=step.output.num_scheduled_tokens[request_id],
            num_drafts=len(drafts),
            num_sampled=len(_sampled(runner, request_id)),
            is_new=is_new,
            worker=step.rows.get(request_id),
        )
        if row.worker is None and self._states.has_drafts and _HITS_ALONE not in self._left_out:
            self._left_out.append(_HITS_ALONE)
            say(logging.WARNING, f"left out from now on: {_HITS_ALONE}")
        uses, unknown, is_read = self._states.uses(known, row)
        # Of a request that has ended meanwhile, or was thrown out by a reset, nobody sees what
        # comes of this step.
        request = self._scheduler.requests.get(request_id)
        is_read = is_read and request is not None and request.status.name == "RUNNING"
        self._memory.follow_states(known, uses, unknown=unknown, is_read=is_read)

    def _hear(self, output: Any, rows: dict[str, WorkerRow]) -> None:
        """The worker tells of a step that was scheduled and has not come back."""
        for step in self._pending:
            if step.output is output:
                step.rows = rows

    def _known_drafts(
        self, request_id: str, end: int, drafts: Sequence[int], runner: Any
    ) -> list[int | None]:
        """What stands at the positions of drafts: those accepted, by what was sampled.

        Of the rest nothing is known: under asynchronous scheduling only the worker has them.
        """
        sampled = _sampled(runner, request_id) if drafts else []
        accepted = sampled[:-1][: len(drafts)]
        if self._is_ahead:
            rejected = len(drafts) - len(accepted) if sampled else 0
            self._behind[request_id] = end - rejected
        return [*accepted, *[None] * (len(drafts) - len(accepted))]

    def _root(self, request: Any, epoch: int) -> int:
        lora = request.lora_request
        return self._digests.root(
            None if lora is None else (lora.lora_name, lora.lora_path), request.cache_salt, epoch
        )

    def _tell(self, found: list[LiveFinding]) -> None:
        if self._early or found:
            early, self._early = self._early, []
            actions = [self._act_early(finding) for finding in early]
            actions += [self._act(finding) for finding in found]
            self.watcher.report([*early, *found], actions)
        self.watcher.step_is_over()

    def _act_early(self, finding: LiveFinding) -> str:
        if self.watcher.settings.mode == "raise":
            return "raised"
        return "taken back" if self._is_quarantine and finding.invariant == "I3" else "logged"

    def _act(self, finding: LiveFinding) -> str:
        """In quarantine: whoever reads wrong KV is ended, and nobody finds what it wrote."""
        mode = self.watcher.settings.mode
        if mode != "quarantine" or finding.invariant != "DATA":
            return "raised" if mode == "raise" else "logged"
        request_id = finding.request_id
        request = self._scheduler.requests.get(request_id)
        known = self._memory.requests.get(request_id or "")
        fenced = {finding.block} if finding.block is not None else set()
        if known is not None:
            for table, size in zip(known.tables, self._sizes):
                fenced.update(table[known.first // size :])
        num_blocks = len(self._pool.blocks)
        self._pool.evict_blocks({b for b in fenced if isinstance(b, int) and 0 < b < num_blocks})
        if request is None or request.is_finished():
            return "logged"
        status = importlib.import_module("vllm.v1.request").RequestStatus.FINISHED_ERROR
        self._scheduler.finish_requests(request_id, status)
        self._aborted.append(request)
        return "aborted"

    def _after_update(self, answer: Any) -> None:
        if self._aborted:
            self._answer_aborted(answer)
        if self._early:
            self._tell_early()
        if self._connector is None:
            self._look_at_rest()

    def _tell_early(self) -> None:
        early, self._early = self._early, []
        self.watcher.report(early, [self._act_early(finding) for finding in early])

    def _answer_aborted(self, answer: Any) -> None:
        """Their users are told: an output that says that the request ended by an error."""
        engine = importlib.import_module("vllm.v1.engine")
        aborted, self._aborted = self._aborted, []
        for request in aborted:
            output = engine.EngineCoreOutput(
                request_id=request.request_id,
                new_token_ids=[],
                finish_reason=request.get_finished_reason(),
            )
            outputs = answer.get(request.client_index)
            if outputs is None:
                answer[request.client_index] = engine.EngineCoreOutputs(outputs=[output])
            else:
                outputs.outputs.append(output)

    def _look_at_rest(self) -> None:
        """Nobody runs or waits, nothing is in flight, nothing is to be freed: all must be free."""
        scheduler = self._scheduler
        if scheduler.requests or self._pending or getattr(scheduler, "deferred_frees", None):
            self._was_quiet = False
            return
        if self._was_quiet:
            return
        self._was_quiet = True
        self._memory.counts.quiescent += 1
        lost = self._pool.num_gpu_blocks - 1 - self._pool.get_num_free_blocks()
        before, self.watcher.lost = self.watcher.lost, lost
        if lost > before:
            ids = [b.block_id for b in self._pool.blocks if b.ref_cnt > 0 and not b.is_null]
            finding = self._memory.finding(
                "LEAK",
                f"nobody runs, waits or is in flight, and {lost} of {self._pool.num_gpu_blocks} "
                f"blocks are not free: {', '.join(map(str, ids[:20]))}",
                block=ids[0] if ids else None,
                blocks=tuple(ids[:20]),
            )
            self.watcher.report([finding], [self._act_early(finding)])

    # What is told.

    def _blocks(self) -> tuple[int, int]:
        free = self._pool.get_num_free_blocks()
        return self._pool.num_gpu_blocks - 1 - free, free

    def _tokens_of(self, finding: LiveFinding) -> dict[str, Any]:
        known = self._memory.requests.get(finding.request_id or "")
        tokens = None if known is None else known.tokens
        end = None if finding.position is None else finding.position + 1
        return {
            "reader": finding.request_id,
            "writer": None,
            "wanted": None if tokens is None or end is None else list(tokens[:end]),
        }

    def _describe(self, item: Any) -> dict[str, Any]:
        """A line of `steps.jsonl`."""
        number, step = item
        output = step.output
        told = output.scheduled_cached_reqs
        rows = [
            (new.req_id, new.num_computed_tokens, new.block_ids, True)
            for new in output.scheduled_new_reqs
        ]
        rows += [
            (request_id, first, blocks, request_id in told.resumed_req_ids)
            for request_id, first, blocks in zip(
                told.req_ids, told.num_computed_tokens, told.new_block_ids
            )
        ]
        computed = []
        for request_id, first, blocks, replaced in rows:
            number_of = output.num_scheduled_tokens[request_id]
            drafts = output.scheduled_spec_decode_tokens.get(request_id) or ()
            computed.append(
                {
                    "request": self._name(request_id),
                    "first": first,
                    "count": number_of,
                    "drafts": len(drafts),
                    "blocks": [list(group) for group in blocks or ()],
                    "replaced": replaced,
                    "digest": self._memory.digest_at(request_id, first + number_of),
                }
            )
        copies = getattr(output, "kv_cache_block_copies", None) or ()
        return {
            "step": number,
            "computed": computed,
            "copies": [[copy.src_block_id, copy.dst_block_id] for copy in copies],
            "ended": [self._name(request_id) for request_id in step.ended],
        }

    def _name(self, request_id: str) -> str:
        return request_name(self._digests.name(request_id))

    def _adopt(self) -> None:
        """Requests that run already: their tables are as the manager has them."""
        for request_id, request in self._scheduler.requests.items():
            try:
                blocks = self._manager.get_block_ids(request_id)
            except (KeyError, AttributeError):
                continue
            if not any(blocks):
                continue
            images = tuple(map(_image, request.mm_features or ()))
            self._memory.adopt(
                ComputedPart(
                    request_id, self._root(request, 0), _tokens(request), images,
                    request.num_computed_tokens, 0, (), blocks, True,
                )
            )  # fmt: skip


def watched_groups(
    scheduler: Any, config: Any
) -> tuple[list[CacheGroup | None], list[dict[str, Any]], list[str]]:
    """The cache groups, those that are not watched as None; a row for each; what is left out.

    A group is known by its exact class: a subclass has rules of its own.
    """
    groups: list[CacheGroup | None] = []
    rows, left_out = [], []
    parallel = [
        name
        for name in ("dcp_world_size", "pcp_world_size")
        if getattr(scheduler, name, 1) not in (1, None)
    ]
    for number, group in enumerate(config.kv_cache_groups):
        spec = group.kv_cache_spec
        name, size = type(spec).__name__, int(getattr(spec, "block_size", 1))
        inner = spec
        if name == "UniformTypeKVCacheSpecs":
            kinds = list(spec.kv_cache_specs.values())
            inner = kinds[0] if len({type(kind) for kind in kinds}) == 1 else spec
        found = None if parallel else _group_of(inner)
        if found is None:
            left_out.append(
                f"group {number} ({type(inner).__name__})"
                + (f" under context parallelism ({', '.join(parallel)})" if parallel else "")
            )
        groups.append(found)
        rows.append(
            {
                "kind": found.kind if found else None,
                "spec": type(inner).__name__,
                "block_size": size,
                "window": found.window if found else 0,
            }
        )
    return groups, rows, left_out


def _group_of(spec: Any) -> CacheGroup | None:
    name, size = type(spec).__name__, int(getattr(spec, "block_size", 1))
    if getattr(spec, "non_causal", False):
        return None
    if name in {"FullAttentionSpec", "MLAAttentionSpec"}:
        return CacheGroup("full", size)
    if name in {"SlidingWindowSpec", "SlidingWindowMLASpec"}:
        return CacheGroup("sliding", size, spec.sliding_window)
    if name == "ChunkedLocalAttentionSpec":
        return CacheGroup("chunked", size, spec.attention_chunk_size)
    return None


def _tokens(request: Any) -> Any:
    """The list that grows with the request; the public view of it is slower to read."""
    tokens = getattr(request, "_all_token_ids", None)
    return request.all_token_ids if tokens is None else tokens


def _image(feature: Any) -> Image:
    place = feature.mm_position
    return Image(feature.identifier, place.offset, place.length)


def _sampled(runner_output: Any, request_id: str) -> list[int]:
    """What the step sampled for a request; nothing where it did not come that far."""
    index = runner_output.req_id_to_index.get(request_id)
    sampled = runner_output.sampled_token_ids
    return list(sampled[index]) if index is not None and len(sampled) else []


def _part(owner: Any, name: str) -> Any:
    found = getattr(owner, name, None)
    if found is None:
        raise TargetError(f"{type(owner).__name__} has no {name}: it is no scheduler that is known")
    return found


def _was_used(pool: Any) -> bool:
    """Whether a block was published or is held: something was computed before."""
    if pool.get_num_free_blocks() != pool.num_gpu_blocks - 1:
        return True
    return any(block.block_hash is not None for block in pool.blocks)
