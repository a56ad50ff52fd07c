"""Smaller variants of a failing trace of an engine: fewer steps and requests, shorter prompts.

Prompts that have tokens in common are made shorter together, since a prefix that is cut from one
alone no longer matches. Whether a variant still fails, and the same way, is found out by
`minimise.py`.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from poolproof.contract.commands import Command
from poolproof.contract.engine_commands import (
    STOP_TOKEN,
    AnswerStep,
    Arrive,
    EngineCommand,
    PlanStep,
    Repeat,
    RunStep,
    Submit,
)
from poolproof.harness.relative import RelativeCommand
from poolproof.harness.smaller_manager_traces import (
    MANY,
    changed,
    long_prompts_cut,
    lower_symbols,
    prompts_cut,
    smaller_chains,
)
from poolproof.harness.smaller_pool_traces import Candidate

__all__ = [
    "engine_weight",
    "large_tokens_lowered",
    "lowered_engine_command",
    "several_steps_traded",
    "shorter_requests",
    "steps_run_at_once",
    "steps_traded",
    "stopped_early",
    "tokens_lowered",
]

_FIRST_TOKEN = STOP_TOKEN + 1


def engine_weight(command: Command) -> tuple[int, int]:
    """How many tokens and keys a command carries, and how large its numbers are."""
    match command:
        case Submit(chain=chain, max_new_tokens=most, priority=priority):
            keys = (chain.lora is not None) + (chain.salt is not None) + len(chain.images)
            return len(chain.tokens) + 4 * keys, sum(chain.tokens) + most + priority
        case AnswerStep(token, accepted, drafts) | RunStep(token, accepted, drafts):
            return 0, abs(token - _FIRST_TOKEN) + accepted + drafts
        case Arrive(place, is_lost, num_moved):
            return 0, place + is_lost + num_moved
        case Repeat(before_last):
            return 0, before_last
        case _:
            return 0, 0


def lowered_engine_command(command: EngineCommand) -> Iterator[EngineCommand]:
    """One command with smaller arguments, the smallest first."""
    match command:
        case Submit(chain=chain, max_new_tokens=most, priority=priority):
            for smaller in smaller_chains(chain):
                if STOP_TOKEN not in smaller.tokens:
                    yield changed(command, chain=smaller)
            if set(chain.tokens) != {_FIRST_TOKEN}:
                plain = (_FIRST_TOKEN,) * len(chain.tokens)
                yield changed(command, chain=changed(chain, tokens=plain))
            for fewer in _below(most, 1):
                yield changed(command, max_new_tokens=fewer)
            for lower in _below(priority, 0):
                yield changed(command, priority=lower)
        case AnswerStep(token=token) | RunStep(token=token):
            for name in ("num_accepted", "num_drafts"):
                for lower in _below(getattr(command, name), 0):
                    yield changed(command, **{name: lower})
            if token != _FIRST_TOKEN:
                yield changed(command, token=_FIRST_TOKEN)
        case Arrive(place=place, is_lost=is_lost):
            if is_lost:
                yield changed(command, is_lost=0, num_moved=0)
            for fewer in _below(command.num_moved, 0):
                yield changed(command, num_moved=fewer)
            for lower in _below(place, 0):
                yield changed(command, place=lower)
        case Repeat(before_last=before_last):
            for lower in _below(before_last, 0):
                yield changed(command, before_last=lower)


def steps_run_at_once(commands: Candidate) -> Iterator[Candidate]:
    """A plan and the next answer behind it are one step, at the place of either."""
    for place, item in enumerate(commands):
        if not isinstance(item.command, PlanStep):
            continue
        for later in range(place + 1, len(commands)):
            answer = commands[later].command
            if isinstance(answer, AnswerStep):
                run = RelativeCommand(RunStep(answer.token, answer.num_accepted, answer.num_drafts))
                between = commands[place + 1 : later]
                before, after = commands[:place], commands[later + 1 :]
                yield [*before, run, *between, *after]
                if between:
                    yield [*before, *between, run, *after]
                break


def steps_traded(commands: Candidate, block_size: int) -> Iterator[Candidate]:
    """A step less, and a prompt that is longer instead: what the step had sampled stands in it."""
    steps = [place for place, item in enumerate(commands) if isinstance(item.command, RunStep)]
    for place, item in enumerate(commands):
        command = item.command
        if not isinstance(command, Submit):
            continue
        for more in range(1, block_size + 1):
            tokens = command.chain.tokens + (_FIRST_TOKEN,) * more
            fewer = max(1, command.max_new_tokens - more)
            longer = changed(
                command, chain=changed(command.chain, tokens=tokens), max_new_tokens=fewer
            )
            traded = [*commands[:place], RelativeCommand(longer), *commands[place + 1 :]]
            for step in steps:
                yield [*traded[:step], *traded[step + 1 :]]


def several_steps_traded(commands: Candidate, block_size: int) -> Iterator[Candidate]:
    """Several steps less at once, and requests that need so many less.

    All requests, or one of them: what the steps sampled stands in the prompt, or as many plain
    tokens do, or so many fewer tokens are wanted. One step less at a time is not enough where two
    requests have to run out of blocks together, or end at their limits.
    """
    steps = [place for place, item in enumerate(commands) if isinstance(item.command, RunStep)]
    submits = [place for place, item in enumerate(commands) if isinstance(item.command, Submit)]
    for number in _numbers_traded(len(steps), block_size):
        for who in [submits, *([[place] for place in submits] if len(submits) > 1 else [])]:
            for traded in _requests_traded(commands, who, number):
                for first in _starts(commands, steps, number):
                    dropped = set(steps[first : first + number])
                    yield [item for place, item in enumerate(traded) if place not in dropped]


def stopped_early(commands: Candidate) -> Iterator[Candidate]:
    """A step stops its requests, and steps behind it, which served them to their limits, go."""
    steps = [place for place, item in enumerate(commands) if isinstance(item.command, RunStep)]
    for number, place in enumerate(steps[:_MOST_STARTS]):
        command = commands[place].command
        assert isinstance(command, RunStep)
        stopped = RelativeCommand(changed(command, token=STOP_TOKEN))
        for last in range(len(steps), number + 1, -1):
            dropped = set(steps[number + 1 : last])
            yield [
                stopped if at == place else item
                for at, item in enumerate(commands)
                if at not in dropped
            ]


def _numbers_traded(num_steps: int, block_size: int) -> list[int]:
    """How many steps are dropped at once, the most first."""
    numbers = {*range(1, block_size + 1), num_steps // 2, 2 * block_size}
    return sorted((n for n in numbers if 0 < n < num_steps), reverse=True)


def _requests_traded(
    commands: Candidate, who: Sequence[int], number: int
) -> Iterator[list[RelativeCommand]]:
    """The requests at these places need `number` steps less, in each of three ways."""
    seen = set()
    for way in ("sampled", "plain", "fewer"):
        traded = list(commands)
        for place in who:
            command = commands[place].command
            assert isinstance(command, Submit)
            more: tuple[int, ...] = ()
            if way == "sampled":
                more = _sampled_after(commands, place, number)
            elif way == "plain":
                more = (_FIRST_TOKEN,) * number
            chain = changed(command.chain, tokens=command.chain.tokens + more)
            fewer = max(1, command.max_new_tokens - number)
            traded[place] = RelativeCommand(changed(command, chain=chain, max_new_tokens=fewer))
        told = tuple(item.command for item in traded)
        if told not in seen:
            seen.add(told)
            yield traded


def _sampled_after(commands: Candidate, place: int, number: int) -> tuple[int, ...]:
    """The first tokens that steps sample behind a place, those that stop requests left out."""
    tokens = (
        item.command.token
        for item in commands[place:]
        if isinstance(item.command, (RunStep, AnswerStep)) and item.command.token != STOP_TOKEN
    )
    return tuple(islice(tokens, number))


_MOST_STARTS = 12


def _starts(commands: Candidate, steps: Sequence[int], number: int) -> list[int]:
    """Which of the steps the dropped ones begin with: any; of many those behind a request."""
    every = range(len(steps) - number + 1)
    if len(every) <= _MOST_STARTS:
        return list(every)
    behind = {0, len(steps) - number}
    for place, item in enumerate(commands):
        if isinstance(item.command, Submit):
            behind.add(bisect(steps, place))
    return sorted(start for start in behind if start in every)


def shorter_requests(commands: Candidate, block_size: int) -> Iterator[Candidate]:
    """All prompts without a block or a token; prompts and limits that trade tokens."""
    longest = max(
        (len(item.command.chain.tokens) for item in commands if isinstance(item.command, Submit)),
        default=0,
    )
    yield from long_prompts_cut(commands, longest, block_size)
    for length in sorted({block_size, 1}, reverse=True):
        for first in range(0, longest - length + 1, length):
            yield prompts_cut(commands, first, length)
    for place, item in enumerate(commands):
        command = item.command
        # What a request samples may as well stand in its prompt: then it takes fewer steps.
        if isinstance(command, Submit) and command.max_new_tokens > 1:
            for more in {1, block_size, command.max_new_tokens - 1}:
                if 0 < more < command.max_new_tokens:
                    tokens = command.chain.tokens + (_FIRST_TOKEN,) * more
                    longer = changed(
                        command,
                        chain=changed(command.chain, tokens=tokens),
                        max_new_tokens=command.max_new_tokens - more,
                    )
                    yield [*commands[:place], RelativeCommand(longer), *commands[place + 1 :]]


def large_tokens_lowered(commands: Candidate) -> Iterator[Candidate]:
    """Tokens beyond all small ones become their places in the order, all of them at once."""
    symbols = _symbols(commands)
    if symbols[-1:] > [MANY]:
        places = {symbol: place for place, symbol in enumerate(symbols, start=_FIRST_TOKEN)}
        yield [_renamed(item, places) for item in commands]


def tokens_lowered(commands: Candidate) -> Iterator[Candidate]:
    """Tokens become smaller, wherever they stand: in prompts, and as what steps sample."""
    for lower in lower_symbols(_symbols(commands), _FIRST_TOKEN):
        yield [_renamed(item, lower) for item in commands]


def _symbols(commands: Candidate) -> list[int]:
    """The tokens of all prompts and steps but the one that stops a request, in their order."""
    symbols = {token for item in commands for token in _tokens(item.command)}
    return sorted(symbols - {STOP_TOKEN})


def _tokens(command: Command) -> tuple[int, ...]:
    if isinstance(command, Submit):
        return command.chain.tokens
    return (command.token,) if isinstance(command, AnswerStep | RunStep) else ()


def _renamed(item: RelativeCommand, lower: Mapping[int, int]) -> RelativeCommand:
    command = item.command
    tokens = tuple(lower.get(token, token) for token in _tokens(command))
    if isinstance(command, Submit):
        return RelativeCommand(changed(command, chain=changed(command.chain, tokens=tokens)))
    return RelativeCommand(changed(command, token=tokens[0])) if tokens else item


def _below(number: int, least: int) -> Iterator[int]:
    """Smaller numbers, the smallest first; of a large one a few."""
    yield from (n for n in sorted({least, number // 2, number - 1}) if least <= n < number)
