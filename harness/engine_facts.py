"""`Sometimes` facts of the engine level: what must have happened for a pass to mean anything."""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.engine_commands import STOP_TOKEN, Submit
from poolproof.contract.engine_plan import EnginePlan, Transfer
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.target import Capabilities
from poolproof.reference.engine_model import EngineModel, Executed, PlannedStep

__all__ = ["HIT", "EngineFacts", "required_engine_facts"]

HIT = "a prefix was found in the cache"
_PREEMPTED = "a request was preempted"
_RESUMED = "a preempted request came back"
_CHUNK = "a prompt was computed in chunks"
_TOGETHER = "one step computed tokens of several requests"
_CANCELLED = "a request was cancelled that had begun"
_IN_FLIGHT = "a request was cancelled whose step was in flight"
_STOPPED = "a request ended before its limit"
_LIMIT = "a request ended at its limit"
_TWO = "two steps were in flight"
_ACCEPTED = "a draft was accepted"
_REJECTED = "a draft was rejected"
_STOP_DRAFT = "a draft ended its request, with tokens behind it"
_URGENT = "a request came that goes before a running one"
_ADAPTERS = "one step computed tokens with as many adapters as may be"
_ENCODED = "an image was encoded"
_FORGOTTEN = "the encoder's output for an image was dropped"
_ENCODED_BEFORE = "a request had an image that was encoded before"
_RESET = "a reset took the blocks of requests that ran"
_REPEATED = "an end was told again"
_ENDED = "everything was freed at the end"


class EngineFacts(set[str]):
    """The facts that one session has seen."""

    def on_submit(self, model: EngineModel, command: Submit) -> None:
        """Before the request is there."""
        if any(r.began and r.priority > command.priority for r in model.live.values()):
            self.add(_URGENT)

    def on_cancel(self, model: EngineModel, request_id: int) -> None:
        """Before the request ends."""
        if model.requests[request_id].began:
            self.add(_CANCELLED)
        if any(p.request_id == request_id for s in model.in_flight for p in s.plan.parts):
            self.add(_IN_FLIGHT)

    def on_plan(self, model: EngineModel, plan: EnginePlan) -> None:
        """Before the model follows a plan that makes sense."""
        if plan.preempted:
            self.add(_PREEMPTED)
        if len(plan.parts) > 1:
            self.add(_TOGETHER)
        if model.in_flight:
            self.add(_TWO)
        self._on_images(model, plan)
        adapters = {model.requests[part.request_id].chain.lora for part in plan.parts} - {None}
        if 0 < model.profile.max_adapters == len(adapters):
            self.add(_ADAPTERS)
        for part in plan.parts:
            request = model.requests[part.request_id]
            if not request.began and part.first:
                self.add(HIT)
            if request.num_preempted:
                self.add(_RESUMED)
            if part.first + part.count < request.num_prompt_tokens:
                self.add(_CHUNK)

    def _on_images(self, model: EngineModel, plan: EnginePlan) -> None:
        if plan.encodes:
            self.add(_ENCODED)
        if plan.forgets:
            self.add(_FORGOTTEN)
        for part in plan.parts:
            request = model.requests[part.request_id]
            if not request.began and any(
                image.identifier in model.encoded and image.offset >= part.first
                for image in request.chain.images
            ):
                self.add(_ENCODED_BEFORE)

    def on_reset(self, model: EngineModel) -> None:
        """Before the model follows a reset that empties the cache."""
        if model.profile.reset == "preempts" and any(r.began for r in model.live.values()):
            self.add(_RESET)

    def on_transfer(self, transfer: Transfer, *, is_lost: bool, num_moved: int = 0) -> None:
        """A transfer has ended; one that is lost had moved so many blocks before."""
        self.add("a transfer was lost" if is_lost else "a transfer arrived")
        if num_moved:
            self.add("a transfer was lost on its way")
        if transfer.blocks and not is_lost:
            self.add("a load arrived" if transfer.is_load else "a store arrived")

    def on_repeat(self) -> None:
        """The engine was told again of a transfer."""
        self.add(_REPEATED)

    def on_answer(
        self, model: EngineModel, step: PlannedStep, executed: Sequence[Executed]
    ) -> None:
        """Before users are given what is due."""
        del step
        for e in executed:
            if e.num_accepted:
                self.add(_ACCEPTED)
            if e.sampled and e.num_accepted < e.part.num_drafts:
                self.add(_REJECTED)
            if e.ends and e.due[-1] == STOP_TOKEN and len(e.due) < len(e.sampled):
                self.add(_STOP_DRAFT)
            if e.ends:
                left = model.requests[e.part.request_id].num_left
                self.add(_LIMIT if len(e.due) == left else _STOPPED)


_CHUNK_BLOCKS = 4
"""Most prompts are longer than so many blocks; a step that holds more computes many at once."""


def required_engine_facts(profile: EngineProfile, can: Capabilities, block_size: int) -> list[str]:
    """What the runs of an engine have to show, as far as its set-up can show it."""
    required = [_TOGETHER, _STOPPED, _LIMIT]
    if profile.prefix_hits != "never":
        required.append(HIT)
    if profile.preemptions != "never":
        required += [_PREEMPTED, _RESUMED]
    if profile.max_batch_tokens <= _CHUNK_BLOCKS * block_size:
        required.append(_CHUNK)
    if "cancel" in can.verbs:
        required += [_CANCELLED, _IN_FLIGHT]
    if profile.steps_in_flight > 1:
        required.append(_TWO)
    if profile.draft_tokens:
        required += [_ACCEPTED, _REJECTED, _STOP_DRAFT]
    if profile.policy == "priority":
        required.append(_URGENT)
    if profile.max_adapters:
        required.append(_ADAPTERS)
    if profile.image_tokens and profile.encoder_cache_tokens:
        required += [_ENCODED, _FORGOTTEN, _ENCODED_BEFORE]
    if profile.reset == "preempts" and "reset" in can.verbs:
        required.append(_RESET)
    if profile.notices == "may-repeat" and "arrive" in can.verbs:
        required.append(_REPEATED)
    if can.sees("num_free"):
        required.append(_ENDED)
    return required
