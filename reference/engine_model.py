"""What an engine must do, told from outside: requests, steps, and what each step computes.

The model never schedules. It follows what the engine plans and says of each plan what the worker
does with it: which positions of which request are computed, of which tokens; who samples; what the
user must be given. Blocks are not its business: whether a slot holds the right KV is decided by
`step_oracle.py`, which gets each step as a record.

A step is carried out when it is answered, in the order in which steps were planned: a worker runs
them one after the other, and only then are the tokens known that a later step continues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN, AnswerStep, Submit
from poolproof.contract.engine_plan import EnginePlan, PlannedPart, Transfer
from poolproof.contract.engine_profile import EngineProfile

__all__ = ["NUM_REPEATED", "EngineModel", "EngineRequest", "Executed", "PlannedStep"]

NUM_REPEATED = 3
"""So many of the last notices may be repeated; what is older was heard of, whatever the network."""

_DRAFTS = (1, 2, 3, 1, 2, 3, STOP_TOKEN)
"""What is tried, in turn. One that is right may end the request, with others behind it."""
_SPOILT = -1
"""Stands in tokens for what nobody knows; no other prefix has it where this one does."""


@dataclass(slots=True)
class EngineRequest:
    """A request: `tokens` are those of its prompt and those that its user was given since.

    `drafts` are what the next step may try. `began` says whether any step has computed something of
    it, `num_preempted` how often it lost its blocks. In run `worker_run`, the one between two
    preemptions that was computed last, the worker has sampled the tokens `ungiven` beyond `tokens`:
    it knows of no limit, no stop token and no preemption, and goes on from what it has itself.
    """

    request_id: int
    chain: TokenChain
    max_new_tokens: int
    priority: int
    tokens: list[int]
    drafts: tuple[int, ...] = ()
    has_ended: bool = False
    began: bool = False
    num_preempted: int = 0
    worker_run: int = 0
    ungiven: list[int] = field(default_factory=list)
    was_cancelled: bool = False

    @property
    def num_prompt_tokens(self) -> int:
        """How many of the tokens its user sent."""
        return len(self.chain.tokens)

    @property
    def num_left(self) -> int:
        """How many tokens its user can still be given."""
        return self.num_prompt_tokens + self.max_new_tokens - len(self.tokens)


@dataclass(slots=True)
class PlannedStep:
    """A step that was planned and not answered yet.

    `assumed[r]` is how many tokens request r was counted with when the step was planned, drafts in
    flight included. `samples[r]`, if the step samples for it, is how many it has after it, were
    every draft right that is still in flight. `runs[r]` is how often it had been preempted;
    `preempted` are requests that lost their blocks since: for them the step is stale, and for those
    in `may_drop` its outputs need not reach their users. `is_void`: the cache was reset since, so
    what the step writes counts as nothing.
    """

    plan: EnginePlan
    runs: dict[int, int] = field(default_factory=dict)
    assumed: dict[int, int] = field(default_factory=dict)
    samples: dict[int, int] = field(default_factory=dict)
    preempted: set[int] = field(default_factory=set)
    may_drop: set[int] = field(default_factory=set)
    is_void: bool = False


@dataclass(frozen=True, slots=True)
class Executed:
    """What a step computed of one request: positions `first`, ... of `tokens`, through its tables.

    `sampled` are the tokens that the worker hands to the engine, `due` those of them that the user
    must be given, and whether the request `ends` with them: nothing is due behind a token that was
    dropped. `is_stale` says that the request was preempted meanwhile. Of a request that had ended
    before, nobody sees anything (`is_read`).
    """

    part: PlannedPart
    first: int
    tokens: tuple[int, ...]
    sampled: tuple[int, ...]
    due: tuple[int, ...]
    ends: bool
    num_accepted: int
    is_read: bool
    is_stale: bool
    is_spoilt: bool = False

    def spoilt(self, first_failed: int) -> Executed:
        """The same, computed over KV that is wrong from a position on: so is what it writes."""
        tokens = (*self.tokens[:first_failed], _SPOILT, *self.tokens[first_failed + 1 :])
        return replace(self, tokens=tokens, due=(), ends=False, is_read=False, is_spoilt=True)


class EngineModel:
    """The requests of an engine of `num_blocks` blocks, and its steps and transfers in flight.

    `encoded` are the images whose outputs of the encoder the worker has, once all steps in flight
    are carried out; `image_sizes` are the positions of every image that was submitted. `ended` are
    the last transfers that have ended, and whether they were done.
    """

    def __init__(self, num_blocks: int, block_size: int, profile: EngineProfile) -> None:
        self.num_blocks = num_blocks
        self.block_sizes = [group.block_size or block_size for group in profile.groups]
        self.profile = profile
        self.most_tokens = profile.most_request_tokens(num_blocks, block_size)
        self.requests: dict[int, EngineRequest] = {}
        self.live: dict[int, EngineRequest] = {}
        self.in_flight: deque[PlannedStep] = deque()
        self.transfers: dict[int, Transfer] = {}
        self.ended: deque[tuple[Transfer, bool]] = deque(maxlen=NUM_REPEATED)
        self.image_sizes: dict[str, int] = {}
        self.encoded: set[str] = set()
        self._unknown = _SPOILT - 1

    @property
    def most_image_tokens(self) -> int:
        """The most positions of an image that can be encoded; 0: there are no images."""
        profile = self.profile
        limits = (profile.encoder_cache_tokens, profile.max_encoder_tokens)
        return min(profile.image_tokens, *(limit or profile.image_tokens for limit in limits))

    @property
    def is_idle(self) -> bool:
        """Whether every request has ended and nothing is in flight."""
        return not (self.live or self.in_flight or self.transfers)

    def submit(self, command: Submit) -> None:
        """A request comes."""
        request = EngineRequest(
            command.request_id,
            command.chain,
            command.max_new_tokens,
            command.priority,
            list(command.chain.tokens),
        )
        self.requests[command.request_id] = self.live[command.request_id] = request
        self.image_sizes.update((i.identifier, i.length) for i in command.chain.images)

    def end(self, request: EngineRequest) -> None:
        """A request has ended: nobody waits for it any more."""
        request.has_ended = True
        request.drafts = ()
        self.live.pop(request.request_id, None)

    def cancel(self, request: EngineRequest) -> None:
        """The user of a request has gone."""
        request.was_cancelled = True
        self.end(request)

    def late(self, executed: Executed) -> tuple[int, ...]:
        """What a step has sampled for a request that was cancelled while it was in flight."""
        request = self.requests[executed.part.request_id]
        return self._due(request, executed.sampled) if request.was_cancelled else ()

    def num_tokens_assumed(self, request: EngineRequest) -> int:
        """How many tokens a request has once all steps in flight are answered, drafts accepted."""
        for step in reversed(self.in_flight):
            if request.request_id in step.samples and request.request_id not in step.preempted:
                return step.samples[request.request_id]
        return len(request.tokens)

    def encoded_after(self, plan: EnginePlan) -> set[str]:
        """The images whose outputs the worker has after that step too."""
        return (self.encoded - set(plan.forgets)) | set(plan.encodes)

    def planned(self, plan: EnginePlan) -> PlannedStep:
        """The engine has planned a step, of which everything was found to make sense."""
        may_drop = self.profile.stale_outputs == "may-drop"
        for request_id in plan.preempted:
            self._preempt(self.requests[request_id], may_drop=may_drop)
        step = PlannedStep(plan)
        for part in plan.parts:
            request = self.requests[part.request_id]
            request.began = True
            assumed = self.num_tokens_assumed(request)
            step.assumed[part.request_id] = assumed
            step.runs[part.request_id] = request.num_preempted
            is_last = part.first + part.count == assumed + part.num_drafts
            if is_last and not part.discards:
                step.samples[part.request_id] = assumed + part.num_drafts + 1
        self.encoded = self.encoded_after(plan)
        self.in_flight.append(step)
        self.begin(t for t in plan.transfers if not t.follows)
        return step

    def reset(self) -> None:
        """The cache was emptied. Under `reset` = preempts nobody has a block any more."""
        for step in self.in_flight:
            step.is_void = True
        if self.profile.reset == "preempts":
            for request in self.live.values():
                if request.began:
                    self._preempt(request, may_drop=True)

    def _preempt(self, request: EngineRequest, *, may_drop: bool) -> None:
        request.num_preempted += 1
        for step in self.in_flight:
            step.preempted.add(request.request_id)
            if may_drop:
                step.may_drop.add(request.request_id)

    def computed(self, step: PlannedStep) -> None:
        """The worker has computed a step: what follows it begins."""
        flushed = step.plan.flushes
        self.begin(t for t in step.plan.transfers if t.follows and t.transfer_id not in flushed)

    def begin(self, transfers: Iterable[Transfer]) -> None:
        """These transfers are in flight from now on, unless the step waits for them."""
        self.transfers.update((t.transfer_id, t) for t in transfers if not t.waits)

    def transfer_ids(self) -> set[int]:
        """Those of the transfers in flight, and of those that follow a step in flight."""
        following = (t for step in self.in_flight for t in step.plan.transfers if t.follows)
        return {*self.transfers, *(t.transfer_id for t in following)}

    def end_transfer(self, place: int, *, is_done: bool) -> Transfer:
        """The transfer in flight with that place has ended; returns it."""
        transfer = self.transfers.pop(list(self.transfers)[place])
        self.ended.append((transfer, is_done))
        return transfer

    def places_to_arrive(self) -> list[int]:
        """Which of the transfers in flight may end next, by their place.

        What is first in and first out is so on each rank for itself.
        """
        transfers = list(self.transfers.values())
        if self.profile.transfer_order == "any":
            return list(range(len(transfers)))
        return [
            place
            for place, one in enumerate(transfers)
            if not any(
                before.is_load == one.is_load
                and (None in (before.rank, one.rank) or before.rank == one.rank)
                for before in transfers[:place]
            )
        ]

    def execute(self, answer: AnswerStep) -> tuple[PlannedStep, list[Executed]]:
        """The worker has carried out the oldest step: what it computed and sampled, by request.

        Nobody has been given anything yet.
        """
        step = self.in_flight.popleft()
        executed = [self._execute(step, part, answer) for part in step.plan.parts]
        for e in executed:
            if e.sampled and not e.is_stale:
                self._reject(e.part.request_id, e.part.num_drafts - e.num_accepted)
        return step, executed

    def deliver(self, executed: Executed, tokens: tuple[int, ...], num_drafts: int) -> None:
        """A user was given these tokens; the request gets drafts for its next step, or ends."""
        request = self.requests[executed.part.request_id]
        request.tokens.extend(tokens)
        if executed.ends and tokens == executed.due:
            self.end(request)
        if executed.is_stale or request.has_ended:
            request.ungiven.extend(executed.sampled[len(tokens) :])
        if executed.sampled and not request.has_ended:
            request.drafts = self.drafts_after(request, (), num_drafts)

    def _execute(self, step: PlannedStep, part: PlannedPart, answer: AnswerStep) -> Executed:
        request = self.requests[part.request_id]
        was_live = not request.has_ended
        if step.runs[part.request_id] != request.worker_run:
            request.worker_run = step.runs[part.request_id]
            request.ungiven.clear()
        known = [*request.tokens, *request.ungiven]
        # Drafts of the steps before that the engine counted and that were not accepted.
        first = part.first - max(0, step.assumed[part.request_id] - len(known))
        drafts = request.drafts[: part.num_drafts]
        tokens = [*known, *drafts][: first + part.count]
        while len(tokens) < first + part.count:  # a draft that nobody gave, or a dead request's
            tokens.append(self._unknown)
            self._unknown -= 1
        is_stale = part.request_id in step.preempted
        if part.discards or part.request_id not in step.samples:
            return Executed(part, first, tuple(tokens), (), (), False, 0, was_live, is_stale)
        accepted = min(answer.num_accepted, len(drafts))
        sampled = (*drafts[:accepted], answer.token)
        due = self._due(request, sampled) if was_live and not request.ungiven else ()
        ends = bool(due) and (due[-1] == STOP_TOKEN or len(due) == request.num_left)
        return Executed(
            part, first, tuple(tokens), sampled, due, ends, accepted, was_live, is_stale
        )

    def _reject(self, request_id: int, num_rejected: int) -> None:
        """So many drafts that were counted are none: later steps sample as much earlier."""
        for step in self.in_flight:
            if request_id in step.samples and request_id not in step.preempted:
                step.samples[request_id] -= num_rejected

    @staticmethod
    def _due(request: EngineRequest, sampled: tuple[int, ...]) -> tuple[int, ...]:
        """What of the sampled tokens the user gets: up to the stop token and the limit."""
        due = sampled[: request.num_left]
        return due[: due.index(STOP_TOKEN) + 1] if STOP_TOKEN in due else due

    @staticmethod
    def drafts_after(
        request: EngineRequest, tokens: tuple[int, ...], num_drafts: int
    ) -> tuple[int, ...]:
        """What a request is given to try once its user has these tokens as well."""
        last = tokens[-1] if tokens else request.tokens[-1]
        begin = last + len(request.tokens) + len(tokens)
        return tuple(_DRAFTS[(begin + ahead) % len(_DRAFTS)] for ahead in range(num_drafts))
