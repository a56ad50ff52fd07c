"""The commands that a breadth-first search tries in a state of an engine.

Its requests are few shapes: a prompt, how many tokens it wants, a priority. At most so many live at
once, and a request that comes gets the next number. A step samples one of few tokens for all; of
the drafts none or all are right, none or as many as may be are given next. Transfers arrive or are
lost in any order. What would only repeat another sequence is left out: an answer right behind the
plan that it answers, or in front of which it stands, is a run of both in one command.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from poolproof.contract.commands import Command, Reset
from poolproof.contract.content import TokenChain
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
from poolproof.contract.engine_profile import EngineProfile
from poolproof.exploration.recorded_engine import RecordedEngine

__all__ = ["EngineGrammar", "EngineScope", "scope_for", "scope_of_trace"]

_TOKENS = (1, 2, STOP_TOKEN)


@dataclass(frozen=True, slots=True)
class EngineScope:
    """The bounds of a search: blocks, and the requests that come, as commands of any number.

    `tokens` are those that a step may sample.
    """

    num_blocks: int
    block_size: int
    requests: tuple[Submit, ...]
    most_live: int = 2
    tokens: tuple[int, ...] = _TOKENS

    def words(self) -> str:
        """The bounds as a certificate states them."""
        longest = max(len(request.chain.tokens) for request in self.requests)
        return (
            f"{self.num_blocks} blocks of {self.block_size} tokens, {self.most_live} requests at "
            f"once, {len(self.requests)} kinds of requests of up to {longest} tokens, "
            f"{len(self.tokens)} sampled tokens"
        )


def scope_for(
    profile: EngineProfile, num_blocks: int, block_size: int, *, most_live: int = 2
) -> EngineScope:
    """The usual requests on so many blocks.

    Prompts that fill one block and two, so that the next token needs a further one, and one with a
    token more, which may be found cached but for its last, with a twin that differs in the first
    token; each wants one token, or nearly a block of them.
    """
    size = max(group.block_size or block_size for group in profile.groups)
    most = profile.most_request_tokens(num_blocks, block_size)
    prompts = ((1,) * size, (1,) * (size + 1), (1,) * (2 * size), (2,) + (1,) * size)
    priorities = (0, 1) if profile.policy == "priority" else (0,)
    shapes = {
        Submit(0, TokenChain(tokens), min(wanted, most - len(tokens)), priority): None
        for tokens in prompts
        if len(tokens) < most
        for wanted in (1, max(2, size - 1))
        for priority in priorities
    }
    return EngineScope(num_blocks, block_size, tuple(shapes), most_live)


def scope_of_trace(commands: Iterable[Command], num_blocks: int, block_size: int) -> EngineScope:
    """The requests of a trace and the tokens that its steps sample, all of them at once."""
    shapes: dict[Submit, None] = {}
    tokens: dict[int, None] = {}
    most_live = 0
    for command in commands:
        if isinstance(command, Submit):
            shapes[replace(command, request_id=0)] = None
            most_live += 1
        elif isinstance(command, (AnswerStep, RunStep)):
            tokens[command.token] = None
    return EngineScope(
        num_blocks, block_size, tuple(shapes), max(1, most_live), tuple(tokens) or (1,)
    )


class EngineGrammar:
    """Every verb that the target has."""

    def __init__(self, scope: EngineScope) -> None:
        self._scope = scope

    def commands(self, session: RecordedEngine) -> Iterator[Command]:
        """All of its commands that are legal in the session's state."""
        return filter(session.is_defined, self._candidates(session))

    def _candidates(self, session: RecordedEngine) -> Iterator[Command]:
        model = session.model
        if len(model.live) < self._scope.most_live:
            new = len(model.requests)
            yield from (replace(shape, request_id=new) for shape in self._scope.requests)
        for answer in self._answers(session):
            yield RunStep(answer.token, answer.num_accepted, answer.num_drafts)
        yield PlanStep()
        if not isinstance(session.last_command, PlanStep):
            yield from self._answers(session)
        yield from (Cancel(number) for number in model.live)
        for place, transfer in enumerate(model.transfers.values()):
            yield Arrive(place, 0)
            yield Arrive(place, 1)
            if transfer.blocks:  # All was moved, and the end is told as a failure all the same.
                yield Arrive(place, 1, len(transfer.blocks))
        yield from (Repeat(place) for place in range(len(model.ended)))
        yield Reset()

    def _answers(self, session: RecordedEngine) -> Iterator[AnswerStep]:
        """What the worker may say: of drafts that nobody was given, none is right."""
        model = session.model
        most = model.profile.draft_tokens
        has_drafts = any(request.drafts for request in model.live.values())
        tokens = self._scope.tokens
        if model.in_flight and not model.in_flight[0].samples:
            tokens = tokens[:1]
        for token in tokens:
            for accepted in sorted({0, most if has_drafts else 0}):
                for drafts in sorted({0, most}):
                    yield AnswerStep(token, accepted, drafts)
