"""The grammar of the engine level: users come and go, steps are planned, computed and answered.

What the model says is legal is drawn, from any source of choices. Users send prompts that share
prefixes, whose ends fall on the borders of blocks and beside them; they are patient or cancel in
whatever state their request is. The worker samples few different tokens, so that requests meet
again after they parted, and accepts any number of drafts. Transfers end in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import Image, TokenChain
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    AnswerStep,
    Arrive,
    Cancel,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.reference.engine_model import EngineModel

__all__ = ["EngineWorkload"]

_SYMBOLS = 2
_MOST_NEW_TOKENS = 12
_KEPT_REQUESTS = 6
_TO_BEGIN = 12
_MOST_IDLE_PLANS = 100
"""Without anybody there: an engine whose tier is small may store what it has cached for ever."""
_PRIORITIES = 3
_SALTS = (None, "salt")
_ADAPTERS = tuple((f"adapter-{number}", "path") for number in range(3))
_IMAGES = ("a", "b", "c")


@dataclass(frozen=True, slots=True)
class _Bias:
    """How a stretch of a run goes: weights of what happens, and the most requests at once."""

    submit: int
    cancel: int
    step: int
    most_live: int
    most_new_tokens: int
    stops: int
    """One sampled token in so many stops its requests; 0: none."""
    drafts: bool
    reset: int = 0
    arrive: int = 4
    """Of each transfer in flight."""
    mixed: bool = False
    """Whether short requests come while a long prompt is computed, and together fill the pool."""


_BIASES = (
    _Bias(6, 0, 12, 4, _MOST_NEW_TOKENS, 0, drafts=True, arrive=12),
    _Bias(3, 1, 12, 3, 4, 8, drafts=True),
    _Bias(8, 1, 6, 6, 8, 12, drafts=False, arrive=1),
    _Bias(4, 3, 8, 4, 6, 6, drafts=True, reset=1),
    _Bias(1, 0, 16, 2, _MOST_NEW_TOKENS, 0, drafts=True, arrive=12),
    _Bias(12, 0, 9, 3, 4, 0, drafts=True, mixed=True),
    _Bias(12, 1, 9, 4, 4, 0, drafts=False, mixed=True),
)


class EngineWorkload:
    """Draws the next legal command for an engine, given its model."""

    def __init__(self, choices: Choices, model: EngineModel, can: Capabilities) -> None:
        self._choices = choices
        self._model = model
        self.verbs = can.verbs
        self._next_id = 0
        self._idle_plans = self._since_arrival = 0
        self.bias()

    def bias(self) -> None:
        """Turn to another stretch of a server's day."""
        self._bias = _BIASES[self._choices.below(len(_BIASES))]

    def next(self) -> Command:
        """A legal command."""
        self._idle_plans = self._since_arrival = 0
        weights, bias = self._weights(), self._bias
        if len(self._model.live) >= bias.most_live:
            weights["submit"] = 0
        number = self._choices.below(sum(weights.values()))
        for name, weight in weights.items():
            if number < weight:
                return self._make(name)
            number -= weight
        raise AssertionError  # a request can come, or there is one to plan for

    def draw(self, name: str) -> Command | None:
        """A command of that name; None where none is legal now, or the target lacks it."""
        return self._make(name) if name in self._weights() else None

    def drain(self) -> Command | None:
        """What brings the engine to rest: users are patient, every step and transfer ends."""
        model = self._model
        if model.transfers and (not model.in_flight or self._choices.below(4) == 0):
            self._since_arrival = 0  # What waited for it begins with the next step.
            return Arrive(0, 0)
        if model.live and len(model.in_flight) < model.profile.steps_in_flight:
            return PlanStep()
        if model.in_flight:
            return self._answer()
        self._since_arrival += 1
        self._idle_plans += 1
        is_due = self._since_arrival == 1 and self._idle_plans <= _MOST_IDLE_PLANS
        return PlanStep() if is_due else None

    def _weights(self) -> dict[str, int]:
        """What is legal now, with its weight; 0 is what this stretch of the run leaves out."""
        model, bias, verbs = self._model, self._bias, self.verbs
        weights = {"submit": bias.submit if model.live else _TO_BEGIN}
        room = model.profile.steps_in_flight - len(model.in_flight)
        waits = bool(model.live) and model.profile.answers == "when-full"
        if room > 0:
            # With one step in flight there is seldom anything between its plan and its answer.
            weights["plan"] = bias.step if waits else bias.step // 3
        if room == 1 or (room > 1 and not waits):
            weights["run"] = bias.step
        if model.in_flight and not (room > 0 and waits):
            weights["answer"] = bias.step
        if model.live and "cancel" in verbs:
            weights["cancel"] = bias.cancel
        if model.transfers:
            weights["arrive"] = bias.arrive * len(model.places_to_arrive())
        if model.ended and model.profile.notices == "may-repeat":
            weights["repeat"] = 1 + bias.arrive // 4
        if "reset" in verbs:
            preempts = model.profile.reset == "preempts"
            weights["reset"] = bias.reset + (model.is_idle or preempts)
        return weights

    def _make(self, name: str) -> Command:
        model, below = self._model, self._choices.below
        match name:
            case "submit":
                return self._submit()
            case "cancel":
                return Cancel(list(model.live)[below(len(model.live))])
            case "answer":
                return self._answer()
            case "run":
                answer = self._answer()
                return RunStep(answer.token, answer.num_accepted, answer.num_drafts)
            case "arrive":
                places = model.places_to_arrive()
                return self._arrive(places[below(len(places))])
            case "repeat":
                return Repeat(below(len(model.ended)))
            case "reset":
                return Reset()
            case _:
                return PlanStep()

    def _arrive(self, place: int) -> Arrive:
        below, profile = self._choices.below, self._model.profile
        if profile.transfers == "never-fail" or below(6):
            return Arrive(place, 0)
        num_blocks = len(list(self._model.transfers.values())[place].blocks)
        if profile.lost_transfers == "move-nothing" or not num_blocks or below(2):
            return Arrive(place, 1)
        return Arrive(place, 1, 1 + below(num_blocks))

    def _answer(self) -> AnswerStep:
        below, bias, most = self._choices.below, self._bias, self._model.profile.draft_tokens
        stops = bool(bias.stops) and below(bias.stops) == 0
        token = STOP_TOKEN if stops else 1 + below(_SYMBOLS)
        if not (most and bias.drafts):
            return AnswerStep(token, 0, 0)
        return AnswerStep(token, below(most + 1), below(most + 1))

    def _submit(self) -> Submit:
        below, most = self._choices.below, self._model.most_tokens
        new_tokens = 1 + below(min(self._bias.most_new_tokens, max(1, most // 2)))
        longest, priority = max(1, most - new_tokens), 0
        if self._model.profile.policy == "priority":
            priority = below(_PRIORITIES)
            if priority == 0 and below(2):
                # Who waits at a screen sends little; batches, which may wait, are long.
                longest = min(longest, 2 * max(self._model.block_sizes))
        chain = self._prompt(longest)
        self._next_id += 1
        return Submit(self._next_id - 1, chain, min(new_tokens, most - len(chain.tokens)), priority)

    def _prompt(self, most: int) -> TokenChain:
        """A prompt of at most so many tokens: the beginning of an earlier request, and some more.

        Users send what they were answered with their next turn, so the beginning may reach into
        what was sampled.
        """
        below = self._choices.below
        size = self._model.block_sizes[below(len(self._model.block_sizes))]
        chain = TokenChain((), self._adapter(), _SALTS[below(8) == 0])
        if self._next_id and below(4):
            number = self._next_id - 1 - below(min(self._next_id, _KEPT_REQUESTS))
            known = self._model.requests.get(number)
            if known is not None:
                tokens = tuple(token for token in known.tokens if token != STOP_TOKEN)
                ends = (len(tokens), known.num_prompt_tokens, below(len(tokens) + 1))
                kept = ends[below(len(ends))]
                chain = known.chain
                images = tuple(i for i in chain.images if i.offset + i.length <= kept)
                chain = TokenChain(tokens[:kept], chain.lora, chain.salt, images)
        length = self._length(len(chain.tokens), most, size)
        tokens = chain.tokens[:length]
        images = tuple(i for i in chain.images if i.offset + i.length <= length)
        begin = len(tokens)
        tokens += tuple(1 + below(_SYMBOLS) for _ in range(length - len(tokens)))
        chain = TokenChain(tokens, chain.lora, chain.salt, images)
        return self._with_images(chain, begin) if self._model.most_image_tokens else chain

    def _adapter(self) -> tuple[str, str] | None:
        """Seldom one and always the same, unless a step has room for so many only."""
        below = self._choices.below
        if not self._model.profile.max_adapters:
            return _ADAPTERS[0] if below(8) == 0 else None
        return _ADAPTERS[below(len(_ADAPTERS))] if below(4) else None

    def _with_images(self, chain: TokenChain, begin: int) -> TokenChain:
        """Some images from position `begin` on; what stands for an image is one token, repeated."""
        below, tokens, images = self._choices.below, list(chain.tokens), list(chain.images)
        while below(3):
            number = below(len(_IMAGES))
            length = max(1, self._model.most_image_tokens - number)
            offset = begin + below(3)
            if offset + length > len(tokens):
                break
            tokens[offset : offset + length] = [1] * length
            images.append(Image(_IMAGES[number], offset, length))
            begin = offset + length
        return TokenChain(tuple(tokens), chain.lora, chain.salt, tuple(images))

    def _length(self, least: int, most: int, size: int) -> int:
        """Whole blocks, a token less or more, what fills the pool exactly, or anything."""
        below = self._choices.below
        kind = below(6)
        if self._bias.mixed and kind < 4:
            waiting = self._model.live.values()
            if all(request.began for request in waiting) and not below(2 * len(waiting) + 1):
                length = most - below(2 * size)
            else:
                length = (1 + below(2)) * size - below(2)
        elif kind == 0:
            length = least + below(max(1, most - least + 1))
        elif kind < 4:
            blocks = 1 + below(max(1, most // size))
            length = blocks * size + kind - 2
        else:
            # Who is refused or preempted is decided where the last block goes.
            length = (self._blocks_left(size) - below(2)) * size - below(2)
        return max(1, min(most, length))

    def _blocks_left(self, size: int) -> int:
        """Blocks that a group would have left, were all live requests in it and nothing shared."""
        model = self._model
        usable = model.num_blocks - (model.profile.null_block is not None)
        usable //= model.profile.instances
        taken = sum(-(-len(request.tokens) // size) for request in model.live.values())
        return usable // len(model.block_sizes) - taken
