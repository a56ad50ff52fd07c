"""The `Target` of a program in any language: `cmd:./program arguments`.

The program introduces itself once, when the target is loaded; what it says there is checked here.
Managers are seen through `command_manager.py`, engines through `command_engine.py`, pools and
queues through what follows here.

An instance in another process appears as a native one, `CommandPool`. Its verbs send the command
and return the answer; its observers return what was shown with the last answer, so that looking
costs nothing. In pools too large to be shown completely, each observer is a question. Answers come
from a live program, which is asked command by command, or from a tape that it has played as a
whole: written at once, answered at once, and judged afterwards.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.commands import Cache, Command, Lookup
from poolproof.contract.content import Key
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.engine_target import ENGINE_OBSERVERS, ENGINE_REQUIRED
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.outside import shown
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.tapes import PlayedTape, TapeDivergedError, TapeLostError
from poolproof.contract.target import (
    POOL_OBSERVERS,
    POOL_OPTIONAL_VERBS,
    POOL_REQUIRED,
    QUEUE_REQUIRED,
    QUEUE_VERBS,
    Capabilities,
    TargetError,
)
from poolproof.contract.violation import ViolationError
from poolproof.targets.command_engine import ENGINE_VERBS, ENGINES_SINCE, engine_layout
from poolproof.targets.command_manager import (
    MANAGER_REQUIRED,
    MANAGER_SHOWN,
    MANAGER_VERBS,
    MANAGERS_SINCE,
    manager_layout,
)
from poolproof.targets.command_messages import (
    Hello,
    ProtocolError,
    command_text,
    named_hashes,
    short,
    texts_of,
)
from poolproof.targets.command_process import (
    Asks,
    CommandSession,
    LiveAnswers,
    ProcessEndedError,
    broken,
    words_of,
)
from poolproof.targets.manager_target import manager_target
from poolproof.targets.native_target import usual_block_size
from poolproof.targets.target import Target, TargetLayout

__all__ = ["PREFIX", "CommandPool", "CommandTapes", "check_hello", "command_target"]


_PARTS = ("free_order", "ref_counts", "block_hashes", "neighbours")
_PART_OF = {
    "free_order": "free_order",
    "ref_count": "ref_counts",
    "block_hash": "block_hashes",
    "free_neighbours": "neighbours",
}

_REF_COUNT = '{"do":"ref_count","block_id":%d}'
_BLOCK_HASH = '{"do":"block_hash","block_id":%d}'
_NEIGHBOURS = '{"do":"free_neighbours","block_id":%d}'
_LOOKUP = '{"do":"lookup","block_hash":"%s"}'
_MOST_AHEAD = 256
"""Readings in one exchange: its cost is shared by then, and its lines are short."""


class CommandPool:
    """One instance of the target; it has the verbs and observers that the program announced."""

    poolproof_one_at_a_time = True
    """A program plays one run after another: a second instance would end the first."""

    def __init__(
        self, hello: Hello, num_blocks: int, answers: Asks, state: Mapping[str, Any] | None
    ) -> None:
        self.profile = dict(hello.profile)
        self._num_blocks = num_blocks
        self._ask = answers.ask
        self._ask_all = answers.ask_all
        self._ahead: dict[str, list[Mapping[str, Any]]] = {}
        # Called once something is broken: what the instance has done to its program is not the
        # business of the next one.
        self.poolproof_abandon = answers.abandon
        self._is_shown = state is not None
        if state is None:
            self.poolproof_read_ahead = self._read_ahead
        self._lists = {_PART_OF[name] for name in hello.observers if name in _PART_OF}
        self._sees_events = "take_events" in hello.observers
        self._shown: dict[str, Any] = {}
        self._hashes: list[bytes | None] = []
        self._neighbours: list[tuple[int | None, int | None] | None] = []
        self._carriers: dict[bytes, Any] = {}
        self._named: list[bytes] = []
        self._events: list[Any] = []
        if hello.is_queue:
            # A queue has no optional view of its order.
            self._lists.add("free_order")
        for name, method in self._methods().items():
            if name in hello.verbs or name in hello.observers:
                setattr(self, name, method)
        self.num_free = self._num_free
        if hello.is_queue:
            self.free_order = self._free_order
        if state is not None:
            missing = (self._lists | {"num_free"}) - state.keys()
            if missing:
                raise broken(f"the state before the first command lacks {_listed(missing)}")
            self._see(state)

    def _methods(self) -> dict[str, Callable[..., Any]]:
        """What an announced name can mean."""
        do = self._do
        return {
            "allocate": lambda n: _allocated(do(f'{{"do":"allocate","count":{n}}}')),
            "touch": lambda ids: do(f'{{"do":"touch","block_ids":{[*ids]}}}'),
            "free": lambda ids: do(f'{{"do":"free","block_ids":{[*ids]}}}'),
            "cache": self._cache,
            "lookup": self._lookup,
            "acquire": self._acquire,
            "evict": lambda ids: do(f'{{"do":"evict","block_ids":{[*ids]}}}'),
            "reset": lambda: do('{"do":"reset"}'),
            "popleft": lambda: do('{"do":"popleft"}'),
            "popleft_n": lambda n: do(f'{{"do":"popleft_n","count":{n}}}'),
            "remove": lambda block: do(f'{{"do":"remove","block_id":{block}}}'),
            "append": lambda block: do(f'{{"do":"append","block_id":{block}}}'),
            "append_n": lambda ids: do(f'{{"do":"append_n","block_ids":{[*ids]}}}'),
            "prepend_n": lambda ids: do(f'{{"do":"prepend_n","block_ids":{[*ids]}}}'),
            "free_order": self._free_order,
            "free_neighbours": self._free_neighbours,
            "ref_count": self._ref_count,
            "block_hash": self._block_hash,
            "take_events": self._take_events,
        }

    def _do(self, command: str) -> Any:
        """The result of a command. Raises ValueError if it was refused, or ViolationError."""
        self._ahead.clear()
        return self._result(self._ask(command))

    def _read(self, query: str) -> Any:
        """The result of a query, which may have been asked ahead. Raises as `_do`."""
        ahead = self._ahead.get(query)
        return self._result(ahead.pop() if ahead else self._ask(query))

    def _result(self, answer: Mapping[str, Any]) -> Any:
        if len(answer) > 1 or "result" not in answer:
            self._see(answer)
            if "refused" in answer:
                raise ValueError(short(answer["refused"]))
            if "error" in answer:
                raise broken(f"the program says that it failed: {short(answer['error'])}")
            if "skipped" in answer:
                raise broken(
                    f"the program skips this command ({short(answer['skipped'])}), although "
                    "its answer to start has the verb; leave it out there"
                )
        return answer.get("result")

    def _read_ahead(
        self, blocks: Sequence[int], linked: Sequence[int], keys: Sequence[bytes]
    ) -> None:
        """Ask at once for what a check is about to read; each answer serves one reading.

        A pool of thousands of blocks shows nothing by itself, and an exchange for each reading
        costs as much as hundreds of readings in one.
        """
        self._ahead.clear()
        queries = [
            *(_REF_COUNT % block for block in blocks if "ref_counts" in self._lists),
            *(_BLOCK_HASH % block for block in blocks if "block_hashes" in self._lists),
            *(_NEIGHBOURS % block for block in linked if "neighbours" in self._lists),
            *(_LOOKUP % key.hex() for key in keys),
        ]
        for first in range(0, len(queries), _MOST_AHEAD):
            asked = queries[first : first + _MOST_AHEAD]
            for query, answer in zip(asked, self._ask_all(asked), strict=True):
                self._ahead.setdefault(query, []).append(answer)

    def _see(self, answer: Mapping[str, Any]) -> None:
        """Store what an answer shows; what it leaves out has not changed."""
        self._shown.update(answer)
        for part in _PARTS:
            if part in answer:
                self._see_list(part, answer[part])
        if "lookups" in answer:
            carriers = answer["lookups"]
            if not isinstance(carriers, list) or len(carriers) != len(self._named):
                raise broken(
                    f'"lookups" is {shown(carriers)}; it has an entry for each of the '
                    f"{len(self._named)} hashes named in this run"
                )
            self._carriers = dict(zip(self._named, carriers, strict=True))
        if self._sees_events and "events" in answer:
            self._events += [_event(event) for event in answer["events"]]

    def _see_list(self, part: str, shown: Any) -> None:
        if not isinstance(shown, list):
            raise broken(f'"{part}" is no list but {shown(shown)}')
        if part == "free_order":
            return
        if len(shown) != self._num_blocks:
            raise broken(f'"{part}" has {len(shown)} entries for {self._num_blocks} blocks')
        if part == "block_hashes":
            self._hashes = [_hash_in(value) for value in shown]
        elif part == "neighbours":
            self._neighbours = [tuple(pair) if type(pair) is list else pair for pair in shown]

    def _name(self, keys: Sequence[bytes]) -> None:
        """From the first mention of a hash, the program shows which blocks carry it."""
        for key in keys:
            if key not in self._carriers:
                self._carriers[key] = None
                self._named.append(key)

    def _cache(self, block_ids: Sequence[int], hashes: Sequence[bytes]) -> Any:
        self._name(hashes)
        return self._do(f'{{"do":"cache","block_ids":{[*block_ids]},"hashes":{texts_of(hashes)}}}')

    def _acquire(self, hashes: Sequence[bytes]) -> Any:
        self._name(hashes)
        return self._do(f'{{"do":"acquire","hashes":{texts_of(hashes)}}}')

    def _lookup(self, block_hash: bytes) -> Any:
        """A driver gives it as a command, a check looks it up; the answers are the same."""
        if self._is_shown and block_hash in self._carriers:
            return self._carriers[block_hash]
        self._name([block_hash])
        return self._read(_LOOKUP % block_hash.hex())

    def _num_free(self) -> Any:
        return self._shown["num_free"] if self._is_shown else self._read('{"do":"num_free"}')

    def _free_order(self) -> Any:
        return self._shown["free_order"] if self._is_shown else self._read('{"do":"free_order"}')

    def _ref_count(self, block_id: int) -> Any:
        if self._is_shown:
            return self._shown["ref_counts"][block_id]
        return self._read(_REF_COUNT % block_id)

    def _block_hash(self, block_id: int) -> Any:
        if self._is_shown:
            return self._hashes[block_id]
        return _hash_in(self._read(_BLOCK_HASH % block_id))

    def _free_neighbours(self, block_id: int) -> Any:
        if self._is_shown:
            return self._neighbours[block_id]
        pair = self._read(_NEIGHBOURS % block_id)
        return tuple(pair) if type(pair) is list else pair

    def _take_events(self) -> list[Any]:
        events, self._events = self._events, []
        return events


class PlayedAnswers:
    """The answers of a tape, given again to just its commands."""

    def __init__(
        self,
        commands: Sequence[str],
        answers: Sequence[Mapping[str, Any]],
        abandon: Callable[[], None],
    ) -> None:
        self._commands = iter(commands)
        self._answers = iter(answers)
        self.abandon = abandon

    def ask(self, command: str) -> Mapping[str, Any]:
        """The next answer. Raises TapeDivergedError for a command that is not the next one."""
        if command != next(self._commands, None):
            raise TapeDivergedError
        answer = next(self._answers, None)
        if answer is None:
            raise TapeDivergedError
        return answer

    def ask_all(self, commands: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The next answers. Raises TapeDivergedError for commands that are not the next ones."""
        return [self.ask(command) for command in commands]


def _allocated(result: Any) -> Any:
    """Blocks, or blocks and the hashes that they lost, which the contract has as a tuple."""
    if type(result) is list and len(result) == 2 and type(result[0]) is list:
        return tuple(result)
    return result


_KNOWN: dict[str, bytes] = {}
_MOST_KNOWN = 10_000


def _hash_in(value: Any) -> bytes | None:
    """A hash from its hexadecimal text; the same few come back all the time."""
    if value is None:
        return None
    try:
        known = _KNOWN.get(value)
        if known is None:
            if len(_KNOWN) >= _MOST_KNOWN:
                _KNOWN.clear()
            known = _KNOWN[value] = bytes.fromhex(value)
    except (TypeError, ValueError) as error:
        raise broken(f"a hash is hexadecimal text or null, not {shown(value)}") from error
    return known


def _event(event: Any) -> dict[str, Any]:
    if not isinstance(event, dict) or not isinstance(event.get("hashes", []), list):
        raise broken(
            f'an event is {{"type": ..., "hashes": [...], "group": 0}}, not {shown(event)}'
        )
    return {**event, "hashes": [_hash_in(value) for value in event.get("hashes", [])]}


def _listed(names: set[str]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(names))


class CommandTapes:
    """Plays tapes on the program of a session."""

    def __init__(self, hello: Hello, session: CommandSession) -> None:
        self.can = Capabilities(Level(hello.level), hello.verbs, hello.observers)
        self._hello = hello
        self._session = session

    @property
    def num_lost(self) -> int:
        """How often a conversation broke off, whatever was said in it."""
        return self._session.num_lost

    def play(
        self, num_blocks: int, enable_caching: bool, commands: Sequence[Command]
    ) -> PlayedTape:
        """Give the commands to a fresh instance.

        A lookup of a hash that was named before is left out: its carriers are shown after every
        command. Raises TapeLostError, and TargetError for a run that the program skips.
        """
        texts = _asked(commands)
        try:
            state, answers = self._session.begin(num_blocks, enable_caching, texts)
        except ViolationError as error:
            raise TapeLostError(error.violation.sentence) from error
        return _Played(self._hello, num_blocks, texts, state, answers, self.renew)

    def renew(self) -> None:
        """The next tape is played by a program that has not seen the last one."""
        self._session.close()


@dataclass(frozen=True, slots=True)
class _Played:
    """One tape with its answers."""

    hello: Hello
    num_blocks: int
    texts: Sequence[str]
    state: Mapping[str, Any]
    answers: Sequence[Mapping[str, Any]]
    renew: Callable[[], None]

    def instance(self) -> CommandPool:
        """A pool that gives these answers again."""
        played = PlayedAnswers(self.texts, self.answers, self.renew)
        return CommandPool(self.hello, self.num_blocks, played, self.state)


def _asked(commands: Sequence[Command]) -> list[str]:
    """The texts of the commands that are given; see `CommandTapes.play`."""
    named: set[Key] = set()
    texts = []
    for command in commands:
        # By exact type: this is read a thousand times a second for 200 commands each.
        kind = type(command)
        if kind is Lookup:
            (key,) = named_hashes(command)
            if key in named:
                continue
            named.add(key)
        elif kind is Cache:
            named.update(named_hashes(command))
        texts.append(command_text(command))
    return texts


PREFIX = "cmd:"
HELLO_TIMEOUT_S = 20.0
"""For starting and saying hello; an interpreter on a busy machine takes seconds."""

_POOL_VERBS = (*POOL_REQUIRED[:-1], "touch", "lookup", "acquire", *POOL_OPTIONAL_VERBS)
_QUEUE_OBSERVERS = ("free_neighbours",)


def command_target(name: str, base: str, overrides: Mapping[str, Any]) -> Target:
    """The target that `base` names, as `name` in traces.

    Raises TargetError for a program that cannot be started, does not speak this version of the
    protocol, or lacks a verb.
    """
    words = words_of(base.removeprefix(PREFIX))
    session = CommandSession(words)
    try:
        hello = session.hello(timeout_s=HELLO_TIMEOUT_S)
        check_hello(hello)
    except (ProcessEndedError, ProtocolError) as error:
        raise TargetError(
            f"{session.name}: {error}; `poolproof protocol smoke {PREFIX}...` shows each line"
        ) from error
    finally:
        session.close()
    level, declared, block_size = Level(hello.level), hello.profile, 1
    if level.profile_class is not Profile:
        block_size, declared, overrides = usual_block_size(session.name, declared, overrides)
    rows = level.profile_class
    try:
        rows.from_mapping(declared)
        profile = rows.from_mapping({**declared, **overrides})
    except ProfileError as error:
        raise TargetError(f"{session.name}: {short(str(error), 600)}") from error
    layout: TargetLayout | None = None
    if isinstance(profile, ManagerProfile):
        layout = manager_layout(session, hello, profile, block_size)
    elif isinstance(profile, EngineProfile):
        layout = engine_layout(session, hello, profile, block_size)
    if layout is not None:
        return manager_target(
            name,
            "command",
            [layout],
            level=level,
            version=_version(hello),
            source=_source(words[0]),
            notes=_notes(hello),
        )

    def make(num_blocks: int, enable_caching: bool) -> CommandPool:
        state, _ = session.begin(num_blocks, enable_caching)
        return CommandPool(hello, num_blocks, LiveAnswers(session), state or None)

    return Target(
        name=name,
        level=Level(hello.level),
        shape="command",
        profile=profile,
        version=_version(hello),
        source=_source(words[0]),
        make=make,
        notes=_notes(hello),
        tapes=CommandTapes(hello, session),
    )


def check_hello(hello: Hello) -> None:
    """Raises ProtocolError for an introduction of something that cannot be driven."""
    spoken = _SPOKEN.get(hello.level)
    if spoken is None:
        raise ProtocolError(
            f'its "level" is {hello.level!r}; it is one of {", ".join(map(str, _SPOKEN))}'
        )
    if hello.protocol < spoken.since:
        raise ProtocolError(
            f"it is {Level(hello.level).with_article} that speaks version {hello.protocol} of the "
            f"protocol; {hello.level}s have been in it since version {spoken.since}"
        )
    _check_names("verbs", hello.verbs, spoken.verbs)
    _check_names("observers", hello.observers, spoken.observers)
    required = set(spoken.verbs) & spoken.required
    if "acquire" in spoken.verbs and "acquire" not in hello.verbs:
        required |= {"lookup", "touch"}
    missing = sorted(required - hello.verbs)
    if missing:
        needy = Level(hello.level).with_article
        raise ProtocolError(f'its "verbs" lack {", ".join(missing)}, which {needy} needs')


@dataclass(frozen=True, slots=True)
class _Spoken:
    """What a program of a level may announce, and what it must."""

    verbs: tuple[str, ...]
    observers: tuple[str, ...]
    required: frozenset[str]
    since: int = 1
    least_shown: str = "nothing but the number of free blocks"


_SPOKEN: Mapping[str, _Spoken] = {
    Level.QUEUE: _Spoken(QUEUE_VERBS, _QUEUE_OBSERVERS, frozenset(QUEUE_REQUIRED)),
    Level.POOL: _Spoken(_POOL_VERBS, POOL_OBSERVERS, frozenset(POOL_REQUIRED)),
    Level.MANAGER: _Spoken(
        MANAGER_VERBS, MANAGER_SHOWN, frozenset(MANAGER_REQUIRED), MANAGERS_SINCE
    ),
    Level.ENGINE: _Spoken(
        ENGINE_VERBS, ENGINE_OBSERVERS, frozenset(ENGINE_REQUIRED), ENGINES_SINCE, "nothing"
    ),
}


def _check_names(key: str, names: frozenset[str], known: tuple[str, ...]) -> None:
    unknown = sorted(names - set(known))
    if unknown:
        raise ProtocolError(
            f'its "{key}" name {short(", ".join(unknown))}; known are {", ".join(sorted(known))}'
        )


def _version(hello: Hello) -> str:
    return f"{hello.name} {hello.version}" if hello.version else hello.name


def _notes(hello: Hello) -> tuple[str, ...]:
    shown = ", ".join(sorted(hello.observers)) or _SPOKEN[hello.level].least_shown
    return (f"a program, asked over standard input and output; it shows {shown}",)


def _source(program: str) -> str:
    """The file of the program and the beginning of its digest."""
    found = shutil.which(program)
    if found is None:
        return program
    try:
        digest = hashlib.sha256(Path(found).read_bytes()).hexdigest()
    except OSError:
        return program
    return f"{program} (sha256 {digest[:12]})"
