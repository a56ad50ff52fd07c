"""Smaller variants of a failing manager trace: shorter prompts, fewer tokens, fewer symbols.

Single commands are made smaller one at a time, and prompts that have tokens in common are made
smaller together, since a prefix that is cut from one alone no longer matches. Whether a variant
still fails, and the same way, is found out by `minimise.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    ManagerCommand,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapOut,
    Truncate,
)
from poolproof.harness.relative import RelativeCommand

__all__ = [
    "changed",
    "fewer_tokens",
    "long_prompts_cut",
    "lower_symbols",
    "lowered_manager_command",
    "prompts_cut",
    "sequences_renamed",
    "smaller_chains",
    "smaller_everywhere",
    "weight_of",
    "with_tokens",
    "without_a_sequence",
]

Candidate = Sequence[RelativeCommand]

MANY = 24
"""Of more symbols not every one is tried by itself."""

LONG = 64
"""Of longer prompts much is cut off first; those of small runs are shorter."""


def weight_of(command: Command) -> tuple[int, int]:
    """How many tokens a manager command carries, and how large its values are."""
    tokens = _tokens(command)
    chain = getattr(command, "chain", None)
    extra = 0
    if chain is not None:
        extra = 4 * ((chain.lora is not None) + (chain.salt is not None) + len(chain.images))
    number = getattr(command, "num_tokens", 0)
    return len(tokens) + extra + (_plainer(command) is not None), sum(tokens) + number


def lowered_manager_command(command: ManagerCommand) -> Iterator[ManagerCommand]:
    """One command that does something plainer, or has smaller arguments, the smallest first."""
    plainer = _plainer(command)
    if plainer is not None:
        yield plainer
    chain: TokenChain | None = getattr(command, "chain", None)
    if chain is not None:
        for smaller in smaller_chains(chain):
            yield changed(command, chain=smaller)
    elif hasattr(command, "tokens"):
        tokens = command.tokens
        for count in _fewer(len(tokens)):
            yield changed(command, tokens=tokens[:count])
        for lower in _lower_tokens(tokens):
            yield changed(command, tokens=lower)
    number = getattr(command, "num_tokens", 0)
    for lower_number in (0, *_fewer(number)) if number else ():
        yield changed(command, num_tokens=lower_number)


def fewer_tokens(commands: Candidate) -> Iterator[Candidate]:
    """One command with fewer tokens, so that it may still fit where there is a block less."""
    for place, item in enumerate(commands):
        tokens = _tokens(item.command)
        for count in _fewer(len(tokens)):
            shorter = RelativeCommand(with_tokens(item.command, tokens[:count]))
            yield [*commands[:place], shorter, *commands[place + 1 :]]


def without_a_sequence(commands: Candidate) -> Iterator[Candidate]:
    """One sequence less: it may only have been there to move the blocks on by one."""
    numbers = [getattr(item.command, "seq_id", None) for item in commands]
    for number in dict.fromkeys(numbers):
        if number is not None:
            yield [item for item, other in zip(commands, numbers, strict=True) if other != number]


def smaller_everywhere(commands: Candidate, block_size: int) -> Iterator[Candidate]:
    """All commands with a life less, with fewer or smaller symbols, or a piece of prompts less.

    Of many symbols and of long prompts much goes at a time first: one by one would take an attempt
    for each of thousands of tokens.
    """
    yield from _child_as_its_parent(commands)
    yield from _admitted_where_it_comes_back(commands)
    yield from _in_one_chunk(commands)
    symbols = sorted({token for item in commands for token in _tokens(item.command)})
    longest = max((len(_tokens(item.command)) for item in commands), default=0)
    yield from long_prompts_cut(commands, longest, block_size)
    for lower in lower_symbols(symbols):
        yield _renamed(commands, lower)
    for length in sorted({block_size, 1}, reverse=True):
        for first in range(0, longest - length + 1, length):
            yield prompts_cut(commands, first, length)
    yield from _without_keys(commands)
    yield from _earlier_growth(commands)
    yield from _computed_not_loaded(commands)


def long_prompts_cut(commands: Candidate, longest: int, block_size: int) -> Iterator[Candidate]:
    """All prompts without a half, a quarter and so on, where they are long; the first pieces first.

    `longest` is the length of the longest.
    """
    for length in _halves(longest, block_size) if longest > LONG else ():
        for first in range(0, longest - length + 1, length):
            yield prompts_cut(commands, first, length)


def lower_symbols(symbols: list[int], least: int = 0) -> Iterator[Mapping[int, int]]:
    """What symbols, in order, may become, none below `least`: many together, then each alone."""
    if len(symbols) > MANY or symbols[-1:] > [MANY]:
        yield from _many_lower(symbols, least)
    if len(symbols) <= MANY:
        for place, symbol in enumerate(symbols, start=least):
            for lower in (*symbols[: place - least], place):
                if lower < symbol:
                    yield {symbol: lower}


def _many_lower(symbols: list[int], least: int) -> Iterator[Mapping[int, int]]:
    """Many symbols at once become their places in the order, or one; two keep their distance.

    What depends on the distance of two values (their lower bits, a polynomial) keeps failing where
    one of the two becomes 0 and the other what lies between them.
    """
    places = {symbol: place for place, symbol in enumerate(symbols, start=least)}
    yield places
    for length in _halves(len(symbols), 1):
        for first in range(0, len(symbols), length):
            window = symbols[first : first + length]
            for lower in (dict.fromkeys(window, least), {each: places[each] for each in window}):
                if any(value < symbol for symbol, value in lower.items()):
                    yield lower
    for smaller, larger in pairwise(symbols):
        if smaller > len(symbols) + least:
            yield {smaller: least, larger: larger - smaller + least}
    for symbol in symbols[:MANY]:
        if symbol > MANY:
            yield {symbol: 1 << symbol.bit_length() - 1}
            yield {symbol: symbol // 2}


def _fewer(number: int) -> list[int]:
    """Numbers below it, the smallest first; of a large one a few from either end."""
    if number <= LONG:
        return list(range(1, number))
    powers = [1 << bit for bit in range(number.bit_length())]
    return sorted({n for p in powers for n in (p, number - p) if 0 < n < number})


def _halves(number: int, unit: int) -> Iterator[int]:
    """A half of the number, a quarter and so on, in whole units, as far as it is more than one."""
    length = number // 2 // unit * unit
    while length > unit:
        yield length
        length = length // 2 // unit * unit


def sequences_renamed(commands: Sequence[Command]) -> list[Command]:
    """The commands with their sequences numbered in the order of appearance."""
    numbers: dict[int, int] = {}
    renamed = []
    for command in commands:
        changes = {
            name: numbers.setdefault(getattr(command, name), len(numbers))
            for name in ("seq_id", "child_id", "request_id")
            if hasattr(command, name)
        }
        renamed.append(changed(command, **changes) if changes else command)
    return renamed


def _plainer(command: Command) -> ManagerCommand | None:
    """What shows the same as often as not, and is more familiar."""
    match command:
        case Abort(seq_id=seq_id) | Preempt(seq_id=seq_id) | SwapOut(seq_id=seq_id):
            return Finish(seq_id)
        case Load(seq_id=seq_id, chain=chain):
            return Admit(seq_id, chain, 0)
        case Draft(seq_id=seq_id, tokens=tokens):
            return AppendTokens(seq_id, tokens)
        case Loaded() | Schedule():
            return Step()
        case _:
            return None


def _without_keys(commands: Candidate) -> Iterator[Candidate]:
    """No prompt has an adapter, a salt or an image any more."""
    plain: tuple[dict[str, Any], ...] = ({"lora": None}, {"salt": None}, {"images": ()})
    for changes in plain:
        yield [
            RelativeCommand(changed(item.command, chain=replace(item.command.chain, **changes)))
            if isinstance(item.command, Admit | Load | LookupPrefix)
            else item
            for item in commands
        ]


def _child_as_its_parent(commands: Candidate) -> Iterator[Candidate]:
    """No fork: what the child did its parent does, beside or in place of what it did itself."""
    for place, item in enumerate(commands):
        fork = item.command
        if not isinstance(fork, Fork):
            continue
        kept = [*commands[:place], *commands[place + 1 :]]
        parents = [other for other in kept[place:] if _is_of(other, fork.seq_id)]
        for gone in ((), parents):
            left = [other for other in kept if not any(other is one for one in gone)]
            yield [_under(other, fork.child_id, fork.seq_id) for other in left]


def _admitted_where_it_comes_back(commands: Candidate) -> Iterator[Candidate]:
    """A sequence that went and came back only comes, with the tokens that it had by then."""
    for place, item in enumerate(commands):
        resume = item.command
        if not isinstance(resume, Resume):
            continue
        chain = _chain_before(commands[:place], resume.seq_id)
        if chain is None:
            continue
        admit = RelativeCommand(Admit(resume.seq_id, chain, resume.num_tokens))
        before = [other for other in commands[:place] if not _begins_or_is_of(other, resume.seq_id)]
        yield [*before, admit, *commands[place + 1 :]]


def _in_one_chunk(commands: Candidate) -> Iterator[Candidate]:
    """A prompt is computed at once: without its later chunks, and without the steps before them."""
    for place, item in enumerate(commands):
        admit = item.command
        if not isinstance(admit, Admit | Resume) or not admit.num_tokens:
            continue
        chunks = [
            number
            for number, other in enumerate(commands)
            if isinstance(other.command, Schedule) and other.command.seq_id == admit.seq_id
        ]
        steps = {
            max((n for n in range(chunk) if isinstance(commands[n].command, Step)), default=chunk)
            for chunk in chunks
        }
        whole = [*commands]
        whole[place] = RelativeCommand(changed(admit, num_tokens=0))
        for gone in ({*chunks, *steps}, {*chunks}):
            if gone:
                yield [other for number, other in enumerate(whole) if number not in gone]


def _chain_before(commands: Candidate, seq_id: int) -> TokenChain | None:
    """The tokens that a sequence has after these commands, as far as they tell."""
    chains: dict[int, TokenChain] = {}
    drafts: dict[int, tuple[int, ...]] = {}
    for item in commands:
        match item.command:
            case Admit(seq_id=number, chain=chain) | Load(seq_id=number, chain=chain):
                chains[number] = chain
            case Fork(seq_id=number, child_id=child) if number in chains:
                chains[child] = chains[number]
            case Draft(seq_id=number, tokens=tokens):
                drafts[number] = tokens
            case AppendTokens(seq_id=number, tokens=tokens) if number in chains:
                chain = chains[number]
                chains[number] = replace(chain, tokens=(*chain.tokens, *tokens))
            case Accept(seq_id=number, num_tokens=count) if number in chains:
                chain = chains[number]
                accepted = drafts.pop(number, ())[:count]
                chains[number] = replace(chain, tokens=(*chain.tokens, *accepted))
            case Truncate(seq_id=number, num_tokens=count) if number in chains:
                chains[number] = _shortened(chains[number], chains[number].tokens[:count])
    return chains.get(seq_id)


def _is_of(item: RelativeCommand, seq_id: int) -> bool:
    return getattr(item.command, "seq_id", None) == seq_id


def _begins_or_is_of(item: RelativeCommand, seq_id: int) -> bool:
    return seq_id in (
        getattr(item.command, "child_id", None),
        None if isinstance(item.command, Fork) else getattr(item.command, "seq_id", None),
    )


def _under(item: RelativeCommand, seq_id: int, other: int) -> RelativeCommand:
    """The command of one sequence as a command of another."""
    return RelativeCommand(changed(item.command, seq_id=other)) if _is_of(item, seq_id) else item


def _earlier_growth(commands: Candidate) -> Iterator[Candidate]:
    """Tokens that a sequence grew by stand in its prompt from the beginning."""
    for place, item in enumerate(commands):
        grown = item.command
        if not isinstance(grown, AppendTokens):
            continue
        for earlier in range(place - 1, -1, -1):
            before = commands[earlier].command
            if isinstance(before, Admit | AppendTokens) and before.seq_id == grown.seq_id:
                joined = with_tokens(before, (*_tokens(before), *grown.tokens))
                without = list(commands)
                without[earlier] = RelativeCommand(joined)
                del without[place]
                yield without
                break


def _computed_not_loaded(commands: Candidate) -> Iterator[Candidate]:
    """A sequence is computed by steps where its tokens were written from elsewhere."""
    for item in commands:
        load = item.command
        if isinstance(load, Load):
            admit = RelativeCommand(Admit(load.seq_id, load.chain, load.num_tokens))
            changes = {item: admit, RelativeCommand(Loaded(load.seq_id)): RelativeCommand(Step())}
            yield [changes.get(other, other) for other in commands]


def smaller_chains(chain: TokenChain) -> Iterator[TokenChain]:
    """The chain without a key, shorter, or with smaller tokens."""
    tokens = chain.tokens
    if chain.lora is not None:
        yield replace(chain, lora=None)
    if chain.salt is not None:
        yield replace(chain, salt=None)
    if chain.images:
        yield replace(chain, images=())
    for count in sorted({1, len(tokens) // 2, *range(len(tokens) - 4, len(tokens))}):
        if 0 < count < len(tokens):
            yield _shortened(chain, tokens[:count])
    for lower in _lower_tokens(tokens):
        yield replace(chain, tokens=lower)


def _lower_tokens(tokens: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """All tokens 0, else one of them."""
    if any(tokens):
        yield (0,) * len(tokens)
        if len(tokens) > LONG:
            return  # those that all commands have are lowered together
        for place, token in enumerate(tokens):
            if token:
                yield (*tokens[:place], 0, *tokens[place + 1 :])


def _renamed(commands: Candidate, lower: Mapping[int, int]) -> Candidate:
    return _for_all(commands, lambda tokens: tuple(lower.get(token, token) for token in tokens))


def prompts_cut(commands: Candidate, first: int, length: int) -> Candidate:
    """All prompts without these of their tokens."""

    def cut(tokens: tuple[int, ...]) -> tuple[int, ...]:
        rest = (*tokens[:first], *tokens[first + length :])
        return rest or tokens

    return [
        RelativeCommand(with_tokens(item.command, cut(_tokens(item.command))))
        if hasattr(item.command, "chain")
        else item
        for item in commands
    ]


def _for_all(
    commands: Candidate, change: Callable[[tuple[int, ...]], tuple[int, ...]]
) -> Candidate:
    return [
        RelativeCommand(with_tokens(item.command, change(_tokens(item.command))))
        if _tokens(item.command)
        else item
        for item in commands
    ]


def _tokens(command: Command) -> tuple[int, ...]:
    chain: TokenChain | None = getattr(command, "chain", None)
    tokens: tuple[int, ...] = getattr(command, "tokens", ()) if chain is None else chain.tokens
    return tokens


def with_tokens(command: Command, tokens: tuple[int, ...]) -> Any:
    """The command with another prompt, or with other tokens where it only has these."""
    chain: TokenChain | None = getattr(command, "chain", None)
    if chain is None:
        return changed(command, tokens=tokens)
    return changed(command, chain=_shortened(chain, tokens))


def _shortened(chain: TokenChain, tokens: tuple[int, ...]) -> TokenChain:
    """The chain with other tokens; images that reach beyond them are left out."""
    images = tuple(i for i in chain.images if i.offset + i.length <= len(tokens))
    return replace(chain, tokens=tokens, images=images)


def changed(command: Any, **changes: Any) -> Any:
    """The command with other arguments."""
    return replace(command, **changes)
