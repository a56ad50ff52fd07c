"""A pool's, queue's or index's trace as a table: after each command, the states as they must be.

Computed on the reference alone, so that a trace can be drawn anywhere, without its target. The
states are those of a correct allocator; the violation's sentence says what the target did instead,
and its command is marked. A trace holds commands and no answers. If the profile leaves the target a
choice (an unspecified eviction order), the drawing assumes that it chose the blocks that later
commands use. Block hashes have short names: a, b, c ... in the order in which a trace first names
them.

Colours and borders are added where the table is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from poolproof.contract import prefix_words
from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    AppendN,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    Lookup,
    LookupChain,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
    Reset,
    Touch,
    Usage,
)
from poolproof.contract.content import ContentKey, Key, TokenChain
from poolproof.contract.index_commands import (
    Clear,
    Contains,
    Get,
    IndexCommand,
    IndexKey,
    Insert,
    Pop,
    index_key_text,
)
from poolproof.contract.prefix_words import Prefix, listed
from poolproof.contract.trace import Trace
from poolproof.invariants.wording import key_name
from poolproof.reference.dict_index import DictIndex
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue
from poolproof.reference.legality import misuse_of, queue_misuse_of, undefined_in
from poolproof.report.wording import first_of, num_blocks_of, shortened

__all__ = [
    "Drawing",
    "ExpectedPool",
    "KeyLetters",
    "LostTrackError",
    "Row",
    "draw_index",
    "draw_pool",
    "draw_queue",
    "left_out_row",
    "rows_left_out",
]


_MOST_IN_A_LIST = 16


class KeyLetters:
    """Gives each key, or prefix, a letter; `legend` says what each letter stands for."""

    def __init__(self) -> None:
        self._letters: dict[Key | Prefix | IndexKey, str] = {}

    def letter(self, key: Key | Prefix | IndexKey) -> str:
        """The key's name: a to z, then a1 to z1 and so on."""
        if key not in self._letters:
            turn, place = divmod(len(self._letters), 26)
            self._letters[key] = chr(ord("a") + place) + (str(turn) if turn else "")
        return self._letters[key]

    def names(self, keys: Iterable[Key | Prefix]) -> str:
        """The letters of several keys, with spaces between."""
        return " ".join(map(self.letter, keys))

    def command(self, command: Command) -> str:
        """The command as a call, its hashes by their letters."""
        arguments = ", ".join(self._shown(getattr(command, f.name)) for f in fields(command))
        return f"{command.verb}({arguments})"

    def name_keys_of(self, command: Command, block_size: int) -> None:
        """Give letters to the keys that the command names, also where it names them by tokens."""
        match command:
            case CacheChain(chain=chain, block_ids=ids, num_cached=cached, group=group):
                for position in range(cached, len(ids)):
                    if (position + 1) * block_size <= len(chain.tokens):
                        self.letter(chain.prefix((position + 1) * block_size, group))
            case CachePartial(chain=chain, num_tokens=num_tokens, group=group):
                self._name_prefix(chain, num_tokens, group)
            case LookupChain(chain=chain, num_tokens=num_tokens, groups=groups):
                for group in groups:
                    self._name_prefix(chain, num_tokens, group)
            case _:
                self.command(command)

    def legend(self) -> list[tuple[str, str]]:
        """Each letter and what it stands for, in order."""
        named = list(self._letters.items())
        return [(letter, _meaning(key, _alike(key, self._letters))) for key, letter in named]

    def opaque(self) -> list[tuple[bytes, str]]:
        """The keys that are plain hashes, each with its letter."""
        return [(key, letter) for key, letter in self._letters.items() if isinstance(key, bytes)]

    def prefixes(self) -> list[tuple[Prefix, str]]:
        """The prefixes among them, each with its letter."""
        return [(key, letter) for key, letter in self._letters.items() if isinstance(key, Prefix)]

    def _name_prefix(self, chain: TokenChain, num_tokens: int, group: int) -> None:
        if 0 < num_tokens <= len(chain.tokens):
            self.letter(chain.prefix(num_tokens, group))

    def _shown(self, value: Any) -> str:
        if isinstance(value, bytes | ContentKey):
            return self.letter(value)
        if isinstance(value, TokenChain):
            return f"<{_chain_words(value)}>"
        if isinstance(value, tuple):
            shown = list(map(self._shown, value))
            if len(shown) > _MOST_IN_A_LIST and len(set(shown)) == 1:
                return f"[{shown[0]}] * {len(shown)}"
            return listed(shown, _MOST_IN_A_LIST)
        return str(value)


def _chain_words(chain: TokenChain) -> str:
    words = [" ".join(prefix_words.shortened(chain.tokens, "tokens"))]
    words += [f"lora {chain.lora[0]}"] if chain.lora else []
    words += [f"salt {chain.salt}"] if chain.salt else []
    words += [f"image {image.identifier} at {image.offset}" for image in chain.images]
    return ", ".join(words)


def _alike(key: Key | Prefix | IndexKey, others: Iterable[Key | Prefix | IndexKey]) -> bytes | None:
    """Another hash with the same four bytes at its beginning, or else at its end."""
    if not isinstance(key, bytes):
        return None
    hashes = [other for other in others if isinstance(other, bytes) and other != key]
    alike = [other for other in hashes if other[:4] == key[:4]]
    alike += [other for other in hashes if other[-4:] == key[-4:]]
    return alike[0] if alike else None


def _meaning(key: Key | Prefix | IndexKey, beside: bytes | None = None) -> str:
    if isinstance(key, bytes):
        return key_name(key, beside)
    if isinstance(key, tuple | int):
        return f"key {index_key_text(key)}"
    if isinstance(key, Prefix):
        return f"tokens {key.words()}"
    words = ["tokens " + " ".join(map(str, key.tokens))]
    words += [f"lora {key.lora[0]} at {key.lora[1]}"] if key.lora else []
    words += [f"salt {key.salt}"] if key.salt else []
    words += [f"image {identifier} at {offset}" for identifier, offset in key.images]
    words += [f"group {key.group}"] if key.group else []
    return ", ".join(words)


class LostTrackError(Exception):
    """A command that makes no sense in the state of the reference: the target's state differs."""


class ExpectedPool:
    """The reference of a trace; `apply` returns, in words, what a right pool does."""

    def __init__(self, trace: Trace, letters: KeyLetters) -> None:
        self.pool = DictPool(trace.num_blocks, trace.profile, enable_caching=trace.enable_caching)
        size = trace.options.get("block_size", 1)
        self.pool.block_size = size if isinstance(size, int) and size > 0 else 1
        self._letters = letters

    def apply(self, command: Command, later: Sequence[Command] = ()) -> str:
        """Carry out the command; `later` are those that follow it. Raises LostTrackError."""
        pool = self.pool
        pool.command_number += 1
        misuse = misuse_of(pool, command)
        if misuse is not None:
            return f"misuse: {misuse}; {_promise(pool.profile.misuse)}"
        undefined = undefined_in(pool, command)
        if undefined is not None:
            raise LostTrackError(undefined)
        match command:
            case Allocate(count=count):
                return self._allocate(count, later)
            case Touch(block_ids=ids):
                revived = [b for b in dict.fromkeys(ids) if b in pool.free]
                pool.touch(ids)
                return f"revives {_ids(revived)}" if revived else ""
            case Free(block_ids=ids):
                freed = pool.release(ids)
                return f"{_ids(freed)} free" if freed else "still held"
            case Evict(block_ids=ids):
                dropped = [key for block in ids for key in pool.keys[block]]
                pool.evict(ids)
                return f"{self._letters.names(dropped)} gone" if dropped else "nothing to evict"
            case Reset():
                done = pool.reset()
                return "True" if done else "False, blocks are held"
            case Usage():
                return f"{pool.usage():.3g}"
            case _:
                return self._cache_or_lookup(command)

    def _cache_or_lookup(self, command: Command) -> str:
        pool = self.pool
        match command:
            case Cache(block_ids=ids, hashes=hashes):
                pool.cache(ids, hashes)
                return "" if pool.enable_caching else "caching is off"
            case Lookup(block_hash=key):
                return self._hit(key)
            case Acquire(hashes=hashes):
                return self._acquire(hashes)
            case CacheChain(chain=chain, block_ids=ids, num_cached=cached, group=group):
                for position in range(cached, len(ids)):
                    num_tokens = (position + 1) * pool.block_size
                    pool.cache_full(ids[position], chain.prefix(num_tokens, group), num_tokens)
                return "" if pool.enable_caching else "caching is off"
            case CachePartial(chain=chain, block_id=block, num_tokens=num_tokens, group=group):
                pool.cache_partial(block, chain.prefix(num_tokens, group), num_tokens)
                return "" if pool.enable_caching else "caching is off"
            case LookupChain(chain=chain, num_tokens=num_tokens, groups=groups):
                keys = [chain.prefix(num_tokens, group) for group in groups]
                return "; ".join(map(self._hit, keys))
            case _:
                raise LostTrackError(f"{command.verb} is not a command of a pool")

    def _allocate(self, count: int, later: Sequence[Command]) -> str:
        pool = self.pool
        if count > len(pool.free):
            return f"refused: {len(pool.free)} free"
        chosen = None
        if pool.profile.eviction == "unspecified":
            chosen = _used_later(list(pool.free), count, later)
        head = list(pool.free)[:count] if chosen is None else chosen
        dropped = [key for block in head for key in pool.keys[block]]
        taken = pool.allocate(count, chosen)
        got = f"gives {_ids(taken)}" if taken else "gives none"
        return f"{got}, evicts {self._letters.names(dropped)}" if dropped else got

    def _acquire(self, hashes: Sequence[Key]) -> str:
        taken: list[int] = []
        for key in hashes:
            carriers = self.pool.lookup(key)
            if not carriers:
                break
            taken.append(carriers[0])
        self.pool.touch(taken)
        return f"gives {_ids(taken)}" if taken else "gives none"

    def _hit(self, key: Key) -> str:
        letter, carriers = self._letters.letter(key), self.pool.lookup(key)
        return f"{letter} is in {' or '.join(map(str, carriers))}" if carriers else f"no {letter}"


def _used_later(free: list[int], count: int, later: Sequence[Command]) -> list[int]:
    """The `count` free blocks that later commands name first, then those at the head."""
    named: list[int] = []
    for command in later:
        if isinstance(command, Free | Cache | CacheChain | Touch):
            named += [block for block in command.block_ids if block in free]
        if isinstance(command, CachePartial) and command.block_id in free:
            named.append(command.block_id)
    return list(dict.fromkeys((*named, *free)))[:count]


def _ids(blocks: Sequence[int]) -> str:
    return shortened(blocks)


def _promise(misuse: str) -> str:
    return {"raises": "must raise ValueError", "ignores": "must be ignored"}.get(
        misuse, "the profile promises nothing"
    )


HEADINGS = ("#", "command", "free queue", "held", "index", "note")
"""Held: block x owners. Index: hash -> blocks. The free queue stands head first."""

_QUEUE_HEADINGS = (*HEADINGS[:3], "outside", *HEADINGS[4:])

_INDEX_HEADINGS = (*HEADINGS[:2], "index", "keys", "", HEADINGS[-1])
_MOST_NAMED = 6


_FIRST_ROWS, _LAST_ROWS = 24, 40
"""Of a longer trace the rows between these are left out; its file has every command."""


@dataclass(frozen=True, slots=True)
class Row:
    """One command and the state after it; `violating` marks the command that broke something.

    An `expected` row belongs to the one above it and shows what should have been there.
    """

    number: int
    command: str
    free_queue: str
    held: str
    index: str
    note: str
    violating: bool = False
    expected: bool = False

    def cells(self) -> tuple[str, ...]:
        """The cells in the order of `HEADINGS`; a mark is next to the violating number."""
        number = f"> {self.number}" if self.violating else str(self.number)
        number = "" if self.expected else number
        return (number, self.command, self.free_queue, self.held, self.index, self.note)


@dataclass(frozen=True, slots=True)
class Drawing:
    """The rows, the first of them before any command, and what each letter stands for."""

    rows: tuple[Row, ...]
    legend: tuple[tuple[str, str], ...]
    lost_track: str | None = None
    headings: tuple[str, ...] = HEADINGS
    caption: str = "the states are those of a right allocator; held is block x owners"


def draw_queue(trace: Trace) -> Drawing:
    """The drawing of a queue's trace."""
    return _drawn(trace, KeyLetters(), lambda _: _queue_states(trace), _QUEUE_HEADINGS)


def draw_index(trace: Trace) -> Drawing:
    """The drawing of an index's trace."""
    return _drawn(trace, KeyLetters(), partial(_index_states, trace), _INDEX_HEADINGS)


def draw_pool(trace: Trace) -> Drawing:
    """The drawing of a pool's trace."""
    return _drawn(trace, KeyLetters(), partial(_pool_states, trace), HEADINGS)


def _drawn(
    trace: Trace,
    letters: KeyLetters,
    states_of: Callable[[KeyLetters], Iterable[State]],
    headings: tuple[str, ...],
) -> Drawing:
    failing = -2 if trace.violation is None else trace.violation.command_index
    rows, lost = [], None
    left_out = rows_left_out(trace)
    for number, (text, cells, problem) in enumerate(states_of(letters)):
        lost = lost or problem
        if number not in left_out:
            rows.append(Row(number, text, *cells(), violating=number == failing + 1))
        elif number == left_out[0]:
            rows.append(left_out_row(left_out))
    return Drawing(tuple(rows), tuple(letters.legend()), lost, headings)


def rows_left_out(trace: Trace) -> range:
    """The commands of a long trace, from 1, that have no row; none of a short one.

    What broke something has its row, and so has the command before it.
    """
    end = len(trace.commands) + 1 - _LAST_ROWS
    if trace.violation is not None and trace.violation.command_index + 1 >= _FIRST_ROWS:
        end = min(end, trace.violation.command_index)
    left_out = range(_FIRST_ROWS, end)
    return left_out if len(left_out) > 1 else range(0)


def left_out_row(left_out: range) -> Row:
    """The row that stands for those that are left out."""
    return Row(left_out[0], f".. {len(left_out):,} commands ..", "", "", "", "")


State = tuple[str, Callable[[], tuple[str, str, str, str]], str | None]
"""A command, its cells, to be asked for before the next state, and why states are not known."""


def _pool_states(trace: Trace, letters: KeyLetters) -> Iterable[State]:
    expected = ExpectedPool(trace, letters)
    yield "", lambda: (*_pool_cells(expected.pool, letters), _setting(trace)), None
    lost: str | None = None
    for place, command in enumerate(trace.commands):
        letters.name_keys_of(command, expected.pool.block_size)
        text = letters.command(command)
        if lost is None:
            try:
                note = expected.apply(command, trace.commands[place + 1 :])
            except LostTrackError as error:
                lost = f"from command {place + 1} on the states are not known: {error}"
        if lost is None:
            yield text, partial(_pool_row, expected.pool, letters, note), None
        else:
            yield text, lambda: ("?", "?", "?", ""), lost


def _pool_row(pool: DictPool, letters: KeyLetters, note: str) -> tuple[str, str, str, str]:
    return (*_pool_cells(pool, letters), note)


def _pool_cells(pool: DictPool, letters: KeyLetters) -> tuple[str, str, str]:
    held = [
        f"{block}x{len(holders)}" if len(holders) > 1 else str(block)
        for block, holders in pool.holders.items()
        if holders
    ]
    index = [
        f"{letters.letter(key)}->{','.join(map(str, blocks))}"
        for key, blocks in pool.carriers.items()
    ]
    return shortened(list(pool.free)), shortened(held), shortened(sorted(index))


def _setting(trace: Trace) -> str:
    parts = [num_blocks_of(trace)]
    parts += [f"{trace.profile.null_block} is null"] if trace.profile.null_block is not None else []
    parts += [] if trace.enable_caching else ["caching off"]
    return ", ".join(parts)


def _queue_states(trace: Trace) -> Iterable[State]:
    queue = DictQueue(trace.num_blocks)
    yield "", lambda: (*_queue_cells(queue), num_blocks_of(trace)), None
    lost: str | None = None
    for place, command in enumerate(trace.commands):
        misuse = queue_misuse_of(queue, command)
        if lost is None and misuse is not None:
            lost = f"from command {place + 1} on the states are not known: {misuse}"
        if lost is None:
            note = _apply_to_queue(queue, command)
            yield str(command), partial(_queue_row, queue, note), None
        else:
            yield str(command), lambda: ("?", "?", "", ""), lost


def _queue_row(queue: DictQueue, note: str) -> tuple[str, str, str, str]:
    return (*_queue_cells(queue), note)


def _queue_cells(queue: DictQueue) -> tuple[str, str, str]:
    outside = [str(block) for block in range(queue.num_blocks) if block not in queue.order]
    return shortened(list(queue.order)), shortened(outside), ""


def _apply_to_queue(queue: DictQueue, command: Command) -> str:
    match command:
        case PopLeft():
            return f"gives {queue.popleft()}"
        case PopLeftN(count=count):
            return f"gives {shortened(queue.popleft_n(count)) if count else 'none'}"
        case Remove(block_id=block_id):
            queue.remove(block_id)
        case Append(block_id=block_id):
            queue.append(block_id)
        case AppendN(block_ids=ids):
            queue.append_n(ids)
        case PrependN(block_ids=ids):
            queue.prepend_n(ids)
    return ""


def _index_states(trace: Trace, letters: KeyLetters) -> Iterable[State]:
    index = DictIndex(trace.profile.duplicates)
    yield "", lambda: ("-", "0", "", num_blocks_of(trace)), None
    lost: str | None = None
    for place, command in enumerate(trace.commands):
        if lost is None and not isinstance(command, IndexCommand):
            lost = (
                f"from command {place + 1} on the states are not known: {command.verb} is none of "
            )
            lost += "an index's commands"
        note = _apply_to_index(index, command) if lost is None else ""
        key: IndexKey | None = getattr(command, "key", None)
        block: int | None = getattr(command, "block_id", None)
        arguments = [letters.letter(key)] if key is not None else []
        arguments += [str(block)] if block is not None else []
        text = f"{command.verb}({', '.join(arguments)})"
        if lost is not None:
            yield text, lambda: ("?", "?", "", ""), lost
            continue
        yield text, partial(_index_row, index, letters, note), None


def _index_row(index: DictIndex, letters: KeyLetters, note: str) -> tuple[str, str, str, str]:
    filed = [
        f"{letters.letter(key)}->{first_of(list(blocks), _MOST_NAMED)}"
        for key, blocks in index.carriers.items()
    ]
    return shortened(sorted(filed)), str(len(filed)), "", note


def _apply_to_index(index: DictIndex, command: Command) -> str:
    match command:
        case Insert(key=key, block_id=block_id):
            index.insert(key, block_id)
        case Pop(key=key, block_id=block_id):
            return f"gives {index.pop(key, block_id)}"
        case Get(key=key):
            carriers = list(map(str, index.carriers.get(key, ())))
            return f"gives {' or '.join(carriers[:_MOST_NAMED]) or None}"
        case Contains(key=key, block_id=block_id):
            return f"gives {index.contains(key, block_id)}"
        case Clear():
            index.clear()
    return ""
