"""A small engine: which request computes what in which step, over `KVCacheManager`.

It is everything of a server but the forward pass and the network. Users `submit` requests and
`cancel` them. `plan` says what the next step computes, and through which blocks; `answer` takes
what a worker has sampled in the oldest step that is not answered yet, and says what users get.
Several steps may be in flight: then a step is planned before the tokens of those before it are
known, and each of their drafts counts as accepted until the answer says otherwise.

Six rules keep it right.

* Requests stand in one order (`LiveRequest.rank`). The first ones are served first, and the last
  running one gives way: so no request loses its blocks in a step that computes something of it, and
  the first one always gets on.
* A key is published when the step that computed its block is answered. Until then a step may be
  withdrawn, and nobody may find what nobody has written (vllm#43569).
* What a step in flight yields belongs to the run of a request in which it was planned
  (`LiveRequest.num_preemptions`): a preempted request is given its tokens, but counts anew, and
  waits until all of them have come (vllm#48245).
* A worker carries out steps in order, so blocks are free for the next step as soon as their owner
  is gone. Transfers keep no order: `poolproof.impl.offloading` pins what they touch.
* What workers need beside blocks is planned with the positions that need it: a step never has more
  adapters than they hold, nor a position of an image that they have not encoded
  (`poolproof.impl.encoder_cache`).
* Where a recurrent state stands is known once it is known which drafts were right, so a step that
  tries any says it only when it is carried out (`states`, `poolproof.impl.running_states`).

Not covered: several samples of one prompt, grammars, and pipelines of several workers.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from operator import attrgetter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

from poolproof.impl.block_hash import BlockHasher, LoRA, Salt
from poolproof.impl.encoder_cache import EncoderCache
from poolproof.impl.engine_state import state_of
from poolproof.impl.kv_cache_group import (
    ChunkedLocal,
    FullAttention,
    RecurrentState,
    SlidingWindow,
    blocks_for,
)
from poolproof.impl.kv_cache_manager import KVCacheBlocks, KVCacheManager
from poolproof.impl.kv_cache_request import ImageSpan, Request
from poolproof.impl.kv_cache_tables import NULL_BLOCK
from poolproof.impl.offloading import Offloader, RankNotices, host_key
from poolproof.impl.running_states import RunningStates, StateGroup
from poolproof.impl.sizing import require_int

STOP_TOKEN = 0
"""A request ends with it."""

POLICIES = ("fcfs", "priority")


class LiveRequest(Request):
    """A request in an engine.

    `number` is its name outside; it ends at `max_tokens` tokens. `rank` says who goes first: the
    smaller. `num_expected` counts tokens that the steps in flight will sample at most, `num_parts`
    the steps in flight that compute something of it. `drafts` are to be tried next. `num_offered`
    blocks were offered to the host. `states` are the recurrent states of its present run.
    """

    def __init__(
        self, number: int, tokens: list[int], rank: tuple[int, int], max_tokens: int, **keys: Any
    ) -> None:
        super().__init__(str(number), tokens, **keys)
        self.number = number
        self.rank = rank
        self.max_tokens = max_tokens
        self.drafts: list[int] = []
        self.num_expected = 0
        self.num_parts = 0
        self.num_offered = 0
        self.states = RunningStates()
        self.is_running = False
        self.is_loading = False
        self.has_ended = False

    @property
    def num_assumed(self) -> int:
        """How many tokens it has once the steps in flight are answered, all drafts accepted."""
        return len(self.token_ids) + self.num_expected

    @property
    def num_settled(self) -> int:
        """How many of its tokens have been computed by steps that are answered."""
        return self.num_computed_tokens - self.num_in_flight_tokens

    def start_over(self) -> None:
        """It has no blocks any more: nothing is computed, and no step in flight counts."""
        self.num_computed_tokens = self.num_in_flight_tokens = self.num_expected = 0
        self.num_offered = 0
        self.drafts = []


@dataclass(slots=True)
class StepPart:
    """Positions `first` to `first` + `count` - 1 of a request; the last `num_drafts` are drafts.

    `samples` says whether a token comes of it, `run` which run of the request it belongs to, and
    `states` are the recurrent states of that run. `tables` are the request's as the step has them.
    """

    request: LiveRequest
    first: int
    count: int
    num_drafts: int
    samples: bool
    run: int
    states: RunningStates
    tables: Sequence[Sequence[int]] = ()


@dataclass(slots=True)
class EngineStep:
    """A step that is being planned, or in flight."""

    number: int
    budget: int
    parts: list[StepPart] = field(default_factory=list)
    preempted: list[int] = field(default_factory=list)


class Engine:
    """An engine over `num_blocks` blocks of `block_size` tokens; block 0 is the null block.

    Args:
        policy: "fcfs", or "priority": the smallest priority first, then first come first served.
        max_batch_tokens: the most positions that one step computes; prompts are cut to it.
        max_running: the most requests that hold blocks.
        draft_tokens: the most drafts that a request is given for a step.
        groups: the kinds of attention, and of recurrence.
        num_ranks: workers that share every step, each with its part of every block. Each moves its
            part on its own, and may be told of twice.
        host_places: blocks of host memory that full blocks are kept in, and recurrent states at the
            ends of blocks; only for groups of full attention and states in blocks of one size, and
            with caching.
        max_adapters: the most different adapters of the requests that hold blocks; 0: any number.
        encoder_cache_tokens: positions of images whose encoder outputs workers keep; 0: nothing is
            said of images.
        max_encoder_tokens: positions of images that a step encodes; 0: any number.
        reset_preempts: whether `reset` takes the blocks of those that run.
        tells_states: whether `states` is asked where recurrent states stand; else the state after a
            position stands in the block of that position, and there are no drafts.
        states_in_between: whether a step can leave recurrent states at the ends of blocks that it
            passes; else it ends there.

    Raises ValueError for arguments out of bounds. Requests are named by numbers, each used once.
    """

    encoder_cache_class = EncoderCache
    running_states_class = RunningStates
    rank_notices_class = RankNotices

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        policy: str = "fcfs",
        max_batch_tokens: int = 64,
        max_running: int = 8,
        draft_tokens: int = 0,
        groups: Sequence[FullAttention] = (FullAttention(),),
        num_ranks: int = 1,
        host_places: int = 0,
        max_adapters: int = 0,
        encoder_cache_tokens: int = 0,
        max_encoder_tokens: int = 0,
        reset_preempts: bool = False,
        tells_states: bool = False,
        states_in_between: bool = True,
    ) -> None:
        if policy not in POLICIES:
            raise ValueError(f"policy must be one of {', '.join(POLICIES)}, not {policy!r}")
        self.policy = policy
        self.max_batch_tokens = require_int("max_batch_tokens", max_batch_tokens, at_least=1)
        self.max_running = require_int("max_running", max_running, at_least=1)
        self.draft_tokens = require_int("draft_tokens", draft_tokens, at_least=0)
        self.max_adapters = require_int("max_adapters", max_adapters, at_least=0)
        self.reset_preempts = reset_preempts
        self.encoder_cache: EncoderCache | None = None
        if require_int("encoder_cache_tokens", encoder_cache_tokens, at_least=0):
            self.encoder_cache = self.encoder_cache_class(encoder_cache_tokens, max_encoder_tokens)
        sizes = [group.block_size or block_size for group in groups]
        self.states_in_between = states_in_between
        self._state_groups = [
            StateGroup(index, size, group.num_speculative_blocks)
            for index, (group, size) in enumerate(zip(groups, sizes, strict=True))
            if isinstance(group, RecurrentState)
        ]
        self._require_places(is_told=tells_states)
        num_scratch = sum(group.num_scratch for group in self._state_groups)
        self.manager = KVCacheManager(
            num_blocks,
            block_size,
            max_model_len=max(1, num_blocks * max(sizes)),
            groups=groups,
            enable_caching=enable_caching,
        )
        self.max_request_tokens = _most_tokens(num_blocks - 1 - num_scratch, sizes)
        self.rank_notices = self.rank_notices_class(num_ranks)
        self.offloader: Offloader | None = None
        self._attention: list[int] = []
        if require_int("host_places", host_places, at_least=0) and enable_caching:
            self._attention = [n for n, kind in enumerate(groups) if type(kind) is FullAttention]
            num_known = len(self._attention) + len(self._state_groups)
            if not self._attention or num_known < len(groups) or len(set(sizes)) > 1:
                raise ValueError(
                    "host_places are for groups of full attention, and of recurrent states beside "
                    "it, in blocks of one size"
                )
            self.offloader = Offloader(self.manager.block_pool, sizes[0], host_places)
        # Any seed: no other process shares these hashes.
        self._hasher = BlockHasher(seed=b"engine", block_size=gcd(*sizes))
        self._requests: dict[int, LiveRequest] = {}
        self._waiting: list[LiveRequest] = []
        self._running: list[LiveRequest] = []
        self._loading: dict[int, LiveRequest] = {}
        self._steps: deque[EngineStep] = deque()
        self._num_submitted = self._num_planned = 0

    def _require_places(self, *, is_told: bool) -> None:
        """Raises ValueError where states behind drafts have no place."""
        for group in self._state_groups if self.draft_tokens else ():
            if not is_told or group.num_scratch <= self.draft_tokens:
                raise ValueError(
                    f"with {self.draft_tokens} drafts a group of recurrent states needs "
                    f"tells_states and {self.draft_tokens + 1} speculative blocks, not "
                    f"{group.num_scratch}"
                )

    @classmethod
    def under(
        cls,
        rows: Mapping[str, Any],
        num_blocks: int,
        block_size: int,
        *,
        enable_caching: bool = True,
        host_places: int = 0,
    ) -> Self:
        """An engine that keeps to a profile, given as plain values."""
        is_told, draft_tokens = rows["state_moves"] == "told", rows["draft_tokens"]
        num_scratch = draft_tokens + 1 if is_told and draft_tokens else 0
        return cls(
            num_blocks,
            block_size,
            enable_caching=enable_caching,
            policy=rows["policy"],
            max_batch_tokens=rows["max_batch_tokens"],
            max_running=rows["max_running"],
            draft_tokens=draft_tokens,
            groups=[_group(**group, num_scratch=num_scratch) for group in rows["groups"]],
            num_ranks=rows["ranks"],
            host_places=host_places,
            max_adapters=rows["max_adapters"],
            encoder_cache_tokens=rows["encoder_cache_tokens"],
            max_encoder_tokens=rows["max_encoder_tokens"],
            reset_preempts=rows["reset"] == "preempts",
            tells_states=is_told,
            states_in_between=rows["states"] == "every-block",
        )

    # What users do.

    def submit(
        self,
        request_id: int,
        tokens: Iterable[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Iterable[tuple[str, Any, int, int | None]] | None = None,
    ) -> None:
        """A request comes. Raises ValueError for one that can never be served."""
        prompt = list(tokens)
        if request_id in self._requests:
            raise ValueError(f"submit: request {request_id} is here already")
        if not prompt or max_new_tokens < 1:
            raise ValueError("submit: a request has a token at least and wants one at least")
        most = len(prompt) + max_new_tokens
        if most > self.max_request_tokens:
            raise ValueError(
                f"submit: request {request_id} may come to have {most} tokens; the blocks hold "
                f"{self.max_request_tokens}"
            )
        rank = (priority if self.policy == "priority" else 0, self._num_submitted)
        self._num_submitted += 1
        request = LiveRequest(
            request_id, prompt, rank, most, hasher=self._hasher, **_keys(extra_keys or ())
        )
        self._requests[request_id] = request
        insort(self._waiting, request, key=_RANK)

    def cancel(self, request_id: int) -> None:
        """The user has gone. One that has ended, or was never there, is fine."""
        request = self._requests.get(request_id)
        if request is not None:
            self._end(request)

    # A step.

    def plan(self) -> dict[str, Any]:
        """What the next step computes, as a mapping; nothing is computed where nothing fits."""
        step = EngineStep(self._num_planned, self.max_batch_tokens)
        self._num_planned += 1
        self._go_on(step)
        if not step.preempted:  # What they gave back is for those who go on.
            self._admit_waiting(step)
        self._steps.append(step)
        forgets, encodes = self.encoder_cache.told() if self.encoder_cache else ([], [])
        return {
            "compute": [self._told(part) for part in step.parts],
            "preempted": step.preempted,
            "transfers": self._begin_transfers(),
            "forgets": forgets,
            "encodes": encodes,
        }

    def states(self, accepted: Mapping[int, int]) -> dict[int, list[dict[str, Any]]]:
        """Where the oldest step in flight finds recurrent states, and where it leaves them.

        It is being carried out; `accepted` are the tokens that it samples, by request.
        """
        return {
            part.request.number: self._states_of(part, accepted.get(part.request.number, 0))
            for part in self._steps[0].parts
        }

    def _states_of(self, part: StepPart, num_accepted: int) -> list[dict[str, Any]]:
        return part.states.step(
            part.count,
            part.num_drafts,
            num_accepted,
            part.tables,
            self._state_groups,
            every_block=self.states_in_between,
        )

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]]
    ) -> list[tuple[int, list[int], bool]]:
        """The oldest step in flight is computed: what was sampled, and what to try next.

        Returns what each user is given, and whether the request has ended with it.
        """
        outputs = []
        for part in self._steps.popleft().parts:
            request = part.request
            request.num_parts -= 1
            if not self._is_awaited(request):
                continue
            sampled = tokens.get(request.number, [])
            self._settle(part, sampled)
            given = self._given(request, sampled)
            request.append(given)
            request.drafts = list(drafts.get(request.number, ()))
            self._keep(request)
            is_over = self._is_over(request, given)
            if is_over:
                self._end(request)
            if given:
                outputs.append((request.number, given, is_over))
        return outputs

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        """A transfer of a rank has ended; where not `is_done`, with whatever it had moved.

        Nothing happens before it has on every rank, nor where it has been told before.
        """
        assert self.offloader is not None, "nothing was transferred"
        over = self.rank_notices.heard(transfer_id, is_done)
        if over is None:
            return
        number, is_done = over
        self.offloader.arrived(number, is_done)
        request = self._loading.pop(number, None)
        if request is not None:
            self._loaded(request, is_done)

    def _begin_transfers(self) -> list[dict[str, Any]]:
        """What begins with the step that was planned now."""
        if self.offloader is None:
            return []
        return self.rank_notices.of_ranks(self.offloader.begin(self._steps[0].number))

    def reset(self) -> bool:
        """Forget what is cached, here and on the host.

        False, and nothing is forgotten, while a request or a transfer uses blocks. Requests that
        run do not count where a reset preempts them: they are computed anew.
        """
        if self.reset_preempts:
            if self._loading or (self.offloader is not None and self.offloader.is_busy):
                return False
            for request in reversed(list(self._running)):
                self._start_anew(request)
        if not self.manager.reset_prefix_cache():
            return False
        if self.offloader is not None:
            self.offloader.clear()
        return True

    # Observers.

    def num_free(self) -> int:
        """How many blocks nobody holds."""
        return self.manager.block_pool.num_free()

    def unfinished(self) -> list[int]:
        """The requests that are here."""
        return list(self._requests)

    def poolproof_state(self) -> Any:
        """All that decides on what it does from now on, for who visits states one by one."""
        return state_of(self)

    # How a step is planned.

    def _go_on(self, step: EngineStep) -> None:
        """The running requests, the first ones first; the last ones give way to them."""
        for request in list(self._running):
            if request.is_loading or not request.is_running:
                continue
            count, num_drafts = self._share(step, request, request.num_computed_tokens)
            if count and self._make_room(step, request, count):
                self._add(step, request, count, num_drafts)

    def _share(self, step: EngineStep, request: LiveRequest, num_computed: int) -> tuple[int, int]:
        """How many positions of a request a step computes, and how many of them are drafts.

        None where it ends with what is in flight. Drafts come last, and leave room for the token
        that is sampled after them. While a step is in flight that will bring drafts, room is made
        for as many as there may be.
        """
        assumed = request.num_assumed
        num_drafts = self.draft_tokens if request.num_expected else len(request.drafts)
        num_drafts = max(0, min(num_drafts, request.max_tokens - assumed - 1))
        left = assumed - num_computed if assumed < request.max_tokens else 0
        count = min(left + num_drafts if left else 0, step.budget)
        if self._state_groups and not self.states_in_between:
            count = self._until_state(num_computed, left, count)
        count = self._until_image(request, num_computed, count)
        return count, max(0, count - left)

    def _until_state(self, first: int, left: int, count: int) -> int:
        """The same, but for what comes behind the first end of a block of states among `left`.

        A state that a hit needs is left by a step that ends there. Each draft leaves one.
        """
        until = min(group.block_size - first % group.block_size for group in self._state_groups)
        return count if left <= until else min(count, until)

    def _until_image(self, request: LiveRequest, first: int, count: int) -> int:
        """How many of the positions come before an image that cannot be encoded in this step.

        One image after the other: what the first ones take is not there for the last.
        """
        if self.encoder_cache is None:
            return count
        for image in _images_in(request, first, count):
            if not self.encoder_cache.fits(image.identifier, image.num_tokens):
                return max(0, image.first_token - first)
            self.encoder_cache.need(image.identifier, image.num_tokens, request.number)
        return count

    def _make_room(self, step: EngineStep, request: LiveRequest, count: int) -> bool:
        """Take slots for the next positions, from others if need be; False: it gave way itself."""
        while not self._take_slots(request, count):
            victim = self._victim()
            self._preempt(step, victim)
            if victim is request:
                return False
        return True

    def _take_slots(
        self,
        request: LiveRequest,
        count: int,
        num_cached: int = 0,
        hits: KVCacheBlocks | None = None,
        num_on_host: int = 0,
    ) -> bool:
        """Whether there are slots for what follows; keys come when the step is answered."""
        new = self.manager.allocate_slots(
            request,
            count,
            num_cached,
            hits,
            num_external_computed_tokens=num_on_host,
            delay_cache_blocks=True,
        )
        return new is not None

    def _victim(self) -> LiveRequest:
        """Who gives way: the last one whose blocks nothing is being loaded into."""
        return next(request for request in reversed(self._running) if not request.is_loading)

    def _preempt(self, step: EngineStep, request: LiveRequest) -> None:
        """A request gives its blocks back; it is computed anew when its turn comes."""
        step.preempted.append(request.number)
        self._start_anew(request)

    def _start_anew(self, request: LiveRequest) -> None:
        """What is in flight for a request belongs to an earlier run; the next begins with none."""
        request.num_preemptions += 1
        self._give_back(request)
        self._wait(request)

    def _wait(self, request: LiveRequest) -> None:
        """Back from the running ones to those that wait."""
        self._running.remove(request)
        request.is_running = False
        request.start_over()
        insort(self._waiting, request, key=_RANK)

    def _give_back(self, request: LiveRequest) -> None:
        self.manager.free(request)
        self._let_images_go(request)

    def _let_image_go(self, request: LiveRequest, image: str) -> None:
        """All positions of an image are computed."""
        assert self.encoder_cache is not None
        self.encoder_cache.release(image, request.number)

    def _let_images_go(self, request: LiveRequest) -> None:
        if self.encoder_cache is not None:
            self.encoder_cache.release_all(request.number)

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        """The step computes the next positions of a request, which has slots for them."""
        first = request.num_computed_tokens
        samples = first + count == request.num_assumed + num_drafts
        step.parts.append(
            StepPart(
                request, first, count, num_drafts, samples, request.num_preemptions, request.states
            )
        )
        step.budget -= count
        request.num_parts += 1
        request.num_computed_tokens += count
        request.num_in_flight_tokens += count
        if samples:
            request.num_expected += num_drafts + 1

    # How requests come in.

    def _admit_waiting(self, step: EngineStep) -> None:
        """Those that wait, in their order; the first that does not fit ends it."""
        while self._waiting and step.budget and self._has_seat():
            if not self._admit(step, self._waiting[0]):
                break

    def _has_seat(self) -> bool:
        """Whether one more request may hold blocks; those that are being loaded count."""
        return len(self._running) < self.max_running

    def _admit(self, step: EngineStep, request: LiveRequest) -> bool:
        """Take a request in, behind what is cached of it; False where it has to wait."""
        if not self._may_enter(request):
            return False
        hits, num_cached = self.manager.get_computed_blocks(request)
        num_on_host = self._num_on_host(request, num_cached)
        count, num_drafts = 0, 0
        if not num_on_host:
            count, num_drafts = self._share(step, request, num_cached)
            if not count:
                return False
        if not self._take_slots(request, count, num_cached, hits, num_on_host):
            self._let_images_go(request)
            return False
        self._waiting.remove(request)
        self._enter(request)
        request.num_computed_tokens = num_cached
        self._start_states(request, num_cached)
        if num_on_host:
            self._load(step, request, num_on_host)
        else:
            self._add(step, request, count, num_drafts)
        return True

    def _start_states(self, request: LiveRequest, num_found: int) -> None:
        """Its first tokens were found, or will have been loaded, with the states at their end."""
        if self._state_groups:
            tables = self.manager.get_block_ids(request.request_id)
            request.states = self.running_states_class.after_hit(
                num_found, tables, self._state_groups
            )

    def _may_enter(self, request: LiveRequest) -> bool:
        """Not while a token may still come for it, from before it was preempted."""
        return not request.num_parts and self._has_adapter(request)

    def _has_adapter(self, request: LiveRequest) -> bool:
        """Whether its adapter is in use, or may be used as well."""
        adapters = self._adapters_in_use()
        return (
            not self.max_adapters
            or request.lora is None
            or request.lora in adapters
            or len(adapters) < self.max_adapters
        )

    def _adapters_in_use(self) -> set[object]:
        return {request.lora for request in self._running if request.lora is not None}

    def _enter(self, request: LiveRequest) -> None:
        request.is_running = True
        insort(self._running, request, key=_RANK)

    def _num_on_host(self, request: LiveRequest, num_cached: int) -> int:
        """How many tokens the host has behind those that are cached; one is left to compute.

        All of attention, and the states at the end.
        """
        if self.offloader is None:
            return 0
        size = self.offloader.block_size
        first = num_cached // size
        hashes = request.block_hashes[first : (request.num_tokens - 1) // size]
        num_blocks = min(
            self.offloader.num_found([host_key(group, each) for each in hashes])
            for group in self._attention
        )
        while num_blocks and not self._has_states(hashes[num_blocks - 1]):
            num_blocks -= 1
        return num_blocks * size

    def _has_states(self, block_hash: bytes) -> bool:
        """Whether the host has the states of all groups at the end of a block."""
        assert self.offloader is not None
        keys = [host_key(group.index, block_hash) for group in self._state_groups]
        return self.offloader.num_found(keys) == len(keys)

    def _load(self, step: EngineStep, request: LiveRequest, num_tokens: int) -> None:
        """Bring blocks from the host, behind those that were cached."""
        assert self.offloader is not None
        size = self.offloader.block_size
        first = request.num_computed_tokens // size
        end = first + num_tokens // size
        wanted = [(group, entry) for group in self._attention for entry in range(first, end)]
        wanted += [(group.index, end - 1) for group in self._state_groups]
        self._bring(request, wanted, step.number)
        request.is_loading = True
        request.num_computed_tokens = end * size
        self._start_states(request, end * size)

    def _bring(self, request: LiveRequest, entries: Sequence[tuple[int, int]], after: int) -> None:
        """One transfer for all entries of the tables; step number `after` does not wait for it."""
        assert self.offloader is not None
        blocks, keys = self._on_host(request, entries)
        self._loading[self.offloader.load(blocks, keys, after)] = request

    def _loaded(self, request: LiveRequest, is_done: bool) -> None:
        """What was being loaded for a request has come, or never will."""
        request.is_loading = False
        if request.has_ended:
            self._give_back(request)
        elif is_done:
            self.manager.cache_blocks(request, request.num_computed_tokens)
        else:
            self._give_back(request)
            self._wait(request)

    # What an answer changes.

    def _is_awaited(self, request: LiveRequest) -> bool:
        """Whether somebody waits for what a step yields."""
        return not request.has_ended

    def _settle(self, part: StepPart, sampled: list[int]) -> None:
        """What was planned is computed, except for the drafts that were rejected."""
        request = part.request
        if part.run != request.num_preemptions:
            return
        request.num_in_flight_tokens -= part.count
        if part.samples:
            request.num_computed_tokens -= part.num_drafts + 1 - len(sampled)
            request.num_expected -= part.num_drafts + 1

    def _given(self, request: LiveRequest, sampled: list[int]) -> list[int]:
        """What of the sampled tokens the user gets: up to the stop token, up to the limit."""
        given = sampled[: request.max_tokens - request.num_tokens]
        return given[: given.index(STOP_TOKEN) + 1] if STOP_TOKEN in given else given

    def _is_over(self, request: LiveRequest, given: list[int]) -> bool:
        return STOP_TOKEN in given or request.num_tokens >= request.max_tokens

    def _keep(self, request: LiveRequest) -> None:
        """Publish and store the blocks that are full and computed by now."""
        if not request.is_running:
            return
        self.manager.cache_blocks(request, request.num_settled)
        if self.encoder_cache is not None:
            for image in request.images:
                if image.first_token + image.num_tokens <= request.num_settled:
                    self._let_image_go(request, image.identifier)
        if self.offloader is not None:
            self._store(request, min(request.num_settled, request.num_tokens))

    def _store(self, request: LiveRequest, num_tokens: int) -> None:
        """Keep the full blocks of the first tokens on the host, and the states at their ends."""
        assert self.offloader is not None
        first, end = request.num_offered, num_tokens // self.offloader.block_size
        if first < end:
            self.offloader.store(*self._on_host(request, self._offered(first, end)))
            request.num_offered = end

    def _offered(self, first: int, end: int) -> list[tuple[int, int]]:
        """What of these entries of the tables is to be kept, by group."""
        groups = [*self._attention, *(group.index for group in self._state_groups)]
        return [(group, entry) for entry in range(first, end) for group in groups]

    def _on_host(
        self, request: LiveRequest, entries: Iterable[tuple[int, int]]
    ) -> tuple[list[int], list[bytes]]:
        """The blocks of a request in these entries of its tables, by group, and their keys.

        An entry of a state that it never left, or has let go, has no block.
        """
        tables = self.manager.get_block_ids(request.request_id)
        held = [(group, entry) for group, entry in entries if tables[group][entry] != NULL_BLOCK]
        blocks = [tables[group][entry] for group, entry in held]
        return blocks, [host_key(group, request.block_hashes[entry]) for group, entry in held]

    def _end(self, request: LiveRequest) -> None:
        """A request is over, whatever state it is in."""
        request.has_ended = True
        del self._requests[request.number]
        if not request.is_running:
            self._waiting.remove(request)
            return
        self._running.remove(request)
        if not request.is_loading:  # Else its blocks are written until the load has ended.
            self._give_back(request)

    def _told(self, part: StepPart) -> dict[str, Any]:
        """A part of a step in words of the contract."""
        part.tables = self.manager.get_block_ids(part.request.request_id)
        return {
            "request": part.request.number,
            "first": part.first,
            "count": part.count,
            "drafts": part.num_drafts,
            "blocks": part.tables,
        }


_RANK = attrgetter("rank")


def _images_in(request: LiveRequest, first: int, count: int) -> list[ImageSpan]:
    """The images of which some of the positions `first`, ... are a part."""
    return [
        image
        for image in request.images
        if image.first_token < first + count and first < image.first_token + image.num_tokens
    ]


def _group(kind: str, block_size: int, window: int, num_scratch: int) -> FullAttention:
    size = block_size or None
    if kind == "state":
        return RecurrentState(block_size=size, num_speculative_blocks=num_scratch)
    if kind == "sliding":
        return SlidingWindow(block_size=size, window=window)
    if kind == "chunked":
        return ChunkedLocal(block_size=size, chunk_size=window)
    return FullAttention(block_size=size)


def _keys(extra_keys: Iterable[tuple[str, Any, int, int | None]]) -> dict[str, Any]:
    """What changes the KV besides the tokens, as a request takes it."""
    keys: dict[str, Any] = {"images": []}
    for kind, value, first, end in extra_keys:
        if kind == "lora":
            keys["lora"] = LoRA(*value)
        elif kind == "salt":
            keys["salt"] = Salt(value)
        elif kind == "image" and end is not None:
            keys["images"].append(ImageSpan(value, first, end - first))
        else:
            raise ValueError(f"submit: nobody knows the extra key {kind!r}")
    return keys


def _most_tokens(num_blocks: int, sizes: Sequence[int]) -> int:
    """The most tokens of a request, of which the last one is never computed."""
    most = 1
    while sum(blocks_for(most, size) for size in sizes) <= num_blocks:
        most += 1
    return most
