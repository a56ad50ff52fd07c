"""The grammar of the engine level: users come and go, steps are planned, computed and answered.

What the model says is legal is drawn, from any source of choices. Users send prompts that share
prefixes, whose ends fall on the borders of blocks and beside them; they are patient or cancel in
whatever state their request is. The worker samples few different tokens, so that requests meet
again after they parted, and accepts any number of drafts. Transfers end in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    Answer,
    Arrive,
    Cancel,
    PlanStep,
    Submit,
)
from poolproof.contract.target import Capabilities
from poolproof.harness.choices import Choices
from poolproof.reference.engine_model import EngineModel

__all__ = ["EngineWorkload"]

_SYMBOLS = 2
_MOST_NEW_TOKENS = 12
_KEPT_PROMPTS = 6
_PRIORITIES = 3
_SALTS = (None, "salt")
_ADAPTERS = (None, ("adapter", "path"))


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


_BIASES = (
    _Bias(6, 0, 12, 4, _MOST_NEW_TOKENS, 0, drafts=True, arrive=12),
    _Bias(3, 1, 12, 3, 4, 8, drafts=True),
    _Bias(8, 1, 6, 6, 8, 12, drafts=False, arrive=1),
    _Bias(4, 3, 8, 4, 6, 6, drafts=True, reset=1),
    _Bias(1, 0, 16, 2, _MOST_NEW_TOKENS, 0, drafts=True, arrive=12),
)


class EngineWorkload:
    """Draws the next legal command for an engine, given its model."""

    def __init__(self, choices: Choices, model: EngineModel, can: Capabilities) -> None:
        self._choices = choices
        self._model = model
        self._verbs = can.verbs
        self._next_id = 0
        self._prompts: list[TokenChain] = []
        self._idle_plans = 0
        self.bias()

    def bias(self) -> None:
        """Turn to another stretch of a server's day."""
        self._bias = _BIASES[self._choices.below(len(_BIASES))]

    def next(self) -> Command:
        """A legal command."""
        model, bias = self._model, self._bias
        self._idle_plans = 0
        weighted: list[tuple[int, str]] = []
        if len(model.live) < bias.most_live:
            weighted.append((bias.submit if model.live else 12, "submit"))
        if model.live and "cancel" in self._verbs:
            weighted.append((bias.cancel, "cancel"))
        if len(model.in_flight) < model.profile.steps_in_flight:
            weighted.append((bias.step, "plan"))
        if model.in_flight:
            weighted.append((bias.step, "answer"))
        if model.transfers:
            weighted.append((bias.arrive * len(model.transfers), "arrive"))
        if "reset" in self._verbs:
            weighted.append((bias.reset + model.is_idle, "reset"))
        return self._make(self._pick(weighted))

    def drain(self) -> Command | None:
        """What brings the engine to rest: users are patient, every step and transfer ends."""
        model = self._model
        if model.transfers and (not model.in_flight or self._choices.below(4) == 0):
            self._idle_plans = 0  # What waited for it begins with the next step.
            return Arrive(0, 0)
        may_plan = len(model.in_flight) < model.profile.steps_in_flight
        if may_plan and (model.live or (model.is_idle and self._idle_plans < 1)):
            self._idle_plans += model.is_idle
            return PlanStep()
        return self._answer() if model.in_flight else None

    def _pick(self, weighted: list[tuple[int, str]]) -> str:
        number = self._choices.below(sum(weight for weight, _ in weighted) or 1)
        for weight, name in weighted:
            if number < weight:
                return name
            number -= weight
        return weighted[0][1]

    def _make(self, name: str) -> Command:
        model, below = self._model, self._choices.below
        match name:
            case "submit":
                return self._submit()
            case "cancel":
                return Cancel(list(model.live)[below(len(model.live))])
            case "answer":
                return self._answer()
            case "arrive":
                return Arrive(below(len(model.transfers)), int(below(6) == 0))
            case "reset":
                return Reset()
            case _:
                return PlanStep()

    def _answer(self) -> Answer:
        below, bias, most = self._choices.below, self._bias, self._model.profile.draft_tokens
        stops = bool(bias.stops) and below(bias.stops) == 0
        token = STOP_TOKEN if stops else 1 + below(_SYMBOLS)
        if not (most and bias.drafts):
            return Answer(token, 0, 0)
        return Answer(token, below(most + 1), below(most + 1))

    def _submit(self) -> Submit:
        below, most = self._choices.below, self._model.most_tokens
        new_tokens = 1 + below(min(self._bias.most_new_tokens, max(1, most // 2)))
        chain = self._prompt(max(1, most - new_tokens))
        priority = below(_PRIORITIES) if self._model.profile.policy == "priority" else 0
        self._next_id += 1
        return Submit(self._next_id - 1, chain, min(new_tokens, most - len(chain.tokens)), priority)

    def _prompt(self, most: int) -> TokenChain:
        """A prompt of at most so many tokens: the beginning of an earlier one, and some more."""
        below = self._choices.below
        size = self._model.block_sizes[below(len(self._model.block_sizes))]
        chain = TokenChain((), _ADAPTERS[below(8) == 0], _SALTS[below(8) == 0])
        if self._prompts and below(4):
            known = self._prompts[below(len(self._prompts))]
            kept = len(known.tokens) if below(2) else below(len(known.tokens) + 1)
            chain = TokenChain(known.tokens[:kept], known.lora, known.salt)
        length = self._length(len(chain.tokens), most, size)
        tokens = chain.tokens[:length]
        tokens += tuple(1 + below(_SYMBOLS) for _ in range(length - len(tokens)))
        chain = TokenChain(tokens, chain.lora, chain.salt)
        self._prompts = [*self._prompts[-_KEPT_PROMPTS + 1 :], chain]
        return chain

    def _length(self, least: int, most: int, size: int) -> int:
        """Whole blocks, a token less or more, or anything; at least one token."""
        below = self._choices.below
        kind = below(4)
        if kind == 0:
            length = least + below(max(1, most - least + 1))
        else:
            blocks = 1 + below(max(1, most // size))
            length = blocks * size + kind - 2
        return max(1, min(most, length))
