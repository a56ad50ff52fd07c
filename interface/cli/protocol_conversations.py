"""The conversations of `poolproof protocol`: `smoke`, and `validate` against the schemas.

`smoke` is handshake, a tape, command by command, goodbye. It shows whether a program speaks the
protocol at all. Along the way its allocator is judged by the same checks as everywhere, but so few
commands say little about it.

`validate` checks the lines of both sides, so that our own mistakes show as well. The schemas are
files of `poolproof.contract`; the library that reads them is an extra.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import click

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    Cache,
    Command,
    Free,
    Lookup,
    PopLeft,
    Remove,
    Touch,
)
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import AnswerStep, Arrive, Cancel, PlanStep, Submit
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_commands import (
    Abort,
    Admit,
    AppendTokens,
    Finish,
    Preempt,
    Step,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.outside import printable
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.target import TargetError
from poolproof.contract.violation import ViolationError
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.isolation.process_tree import nobody_left_behind
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.queue_session import QueueSession
from poolproof.harness.random_driver import PoolCampaign, RunResult
from poolproof.harness.tape_driver import taped
from poolproof.targets.command_engine import engine_layout
from poolproof.targets.command_manager import manager_layout
from poolproof.targets.command_messages import Hello, ProtocolError, command_text
from poolproof.targets.command_process import (
    CommandSession,
    LiveAnswers,
    ProcessEndedError,
    words_of,
)
from poolproof.targets.command_target import PREFIX, CommandPool, CommandTapes, check_hello
from poolproof.targets.native_target import usual_block_size
from poolproof.targets.target import EngineLayout, ManagerLayout
from poolproof.targets.target_spec import TargetSpec

__all__ = ["SchemaChecker", "schema_text", "smoke", "validate"]


_BLOCKS = 3
_WIDTH = 400


def program_in(target: str) -> tuple[list[str], Mapping[str, Any]]:
    """The program that a target string names, with its arguments, and the rows in brackets.

    Raises TargetError.
    """
    spec = TargetSpec.parse(target)
    base, rows = spec.base, spec.rows
    if not base.startswith(PREFIX):
        raise TargetError(
            f"{target!r} is no program; write '{PREFIX}./program arguments'. A Python class is "
            f"served by '{PREFIX}python -m poolproof.targets.serve file.py:Class'"
        )
    return words_of(base.removeprefix(PREFIX)), rows


def smoke(target: str, timeout_s: float) -> int:
    """Hold the conversation, print it, and give the exit status. Raises TargetError."""
    words, rows = program_in(target)
    session = CommandSession(words, timeout_s=timeout_s, heard=_show)
    with nobody_left_behind(), contextlib.closing(session):
        wrong = _converse(session, rows, timeout_s)
    if wrong is not None:
        click.echo(f"wrong     {printable(wrong)}")
        return 1
    click.echo(f"fine      now run: poolproof certify '{printable(target)}'")
    return 0


def _show(direction: str, line: str) -> None:
    shown = line if len(line) <= _WIDTH else f"{line[:_WIDTH]} ... ({len(line):,} characters)"
    click.echo(f"{direction:9} {printable(shown)}")


def _converse(session: CommandSession, rows: Mapping[str, Any], timeout_s: float) -> str | None:
    """What is wrong, or None. Raises TargetError."""
    try:
        hello = session.hello(timeout_s)
        check_hello(hello)
        wrong = _CONVERSATIONS[hello.level].drive(session, hello, rows)
    except (ProcessEndedError, ProtocolError, ProfileError) as error:
        return str(error)
    except ViolationError as error:
        return error.violation.sentence
    return wrong or session.stop()


def _drive_pool(session: CommandSession, hello: Hello, rows: Mapping[str, Any]) -> str | None:
    """The daily round of a block, once command by command, then as a tape."""
    profile = _profile(hello, rows)
    num_blocks = _BLOCKS + (profile.null_block or 0)
    state, _ = session.begin(num_blocks, True)
    pool = PoolSession(
        CommandPool(hello, num_blocks, LiveAnswers(session), state), profile, num_blocks
    )
    found = pool.first_look()
    given: list[Command] = []
    for number in range(_ROUND):
        command = _next_of_round(number, pool)
        if found is None and command is not None:
            given.append(command)
            found = pool.step_any(command)
    if found is not None:
        return f"{given[-1] if given else 'the fresh pool'}: {found.sentence}"
    session.begin(num_blocks, True, [command_text(command) for command in given])
    return None


_ROUND = 6


def _next_of_round(number: int, pool: PoolSession) -> Command | None:
    keys = tuple(bytes([value]) * pool.profile.usual_hash_bytes for value in (1, 2))
    held = tuple(block for block, holders in pool.reference.holders.items() if holders)
    free = pool.reference.free
    steps: tuple[Command | None, ...] = (
        Allocate(2),
        Cache(held, keys) if len(held) == len(keys) else None,
        Free(held[::-1]),
        Lookup(keys[0]) if "lookup" in pool.can.verbs else None,
        Touch((next(reversed(free)),)) if "touch" in pool.can.verbs else Acquire(keys),
        Allocate(len(free) + 1),
    )
    command = steps[number]
    return command if command is not None and pool.is_defined(command) else None


def _drive_queue(session: CommandSession, hello: Hello, _rows: Mapping[str, Any]) -> str | None:
    state, _ = session.begin(_BLOCKS, True)
    queue = QueueSession(CommandPool(hello, _BLOCKS, LiveAnswers(session), state), _BLOCKS)
    found = queue.first_look()
    given: tuple[Command, ...] = (PopLeft(), Remove(2), Append(0), Append(2))
    for command in given:
        if found is None:
            found = queue.step(command)
    if found is not None:
        return found.sentence
    session.begin(_BLOCKS, True, [command_text(command) for command in given])
    return None


def _manager_layout(
    session: CommandSession, hello: Hello, rows: Mapping[str, Any]
) -> ManagerLayout:
    """How a program that is a manager is built. Raises ProfileError, TargetError."""
    block_size, declared, rows = usual_block_size(session.name, hello.profile, rows)
    profile = ManagerProfile.from_mapping({**declared, **rows})
    return manager_layout(session, hello, profile, block_size)


_MANAGER_BLOCKS = 8
"""Enough for two short sequences in two cache groups."""


def _drive_manager(session: CommandSession, hello: Hello, rows: Mapping[str, Any]) -> str | None:
    """The life of a sequence, command by command, and a second one that begins like it."""
    layout = _manager_layout(session, hello, rows)
    assert layout.make is not None
    profile, size = layout.profile, layout.block_size
    assert isinstance(profile, ManagerProfile)
    num_blocks = _MANAGER_BLOCKS + (profile.null_block or 0)
    manager = ManagerSession(layout.make(num_blocks, True), profile, num_blocks, size)
    found = manager.first_look()
    prompt = TokenChain(tuple(range(1, size + 2)))
    given: tuple[Command, ...] = (
        Admit(0, prompt, 0),
        Step(),
        AppendTokens(0, (7,)),
        Step(),
        Admit(1, prompt, 0),
        Step(),
        Preempt(1),
        Finish(0),
        Admit(2, TokenChain(tuple(range(num_blocks * size + 1))), 0),
        Abort(1),
    )
    if found is not None:
        return f"the fresh manager: {found.sentence}"
    for command in given:
        found = manager.step(command) if manager.is_defined(command) else None
        if found is not None:
            return f"{command}: {found.sentence}"
    return None


def _engine_layout(session: CommandSession, hello: Hello, rows: Mapping[str, Any]) -> EngineLayout:
    """How a program that is an engine is built. Raises ProfileError, TargetError."""
    block_size, declared, rows = usual_block_size(session.name, hello.profile, rows)
    profile = EngineProfile.from_mapping({**declared, **rows})
    return engine_layout(session, hello, profile, block_size)


def _drive_engine(session: CommandSession, hello: Hello, rows: Mapping[str, Any]) -> str | None:
    """A request from its prompt to its end, then two that begin like it; one user goes."""
    layout = _engine_layout(session, hello, rows)
    assert layout.make is not None
    profile, size = layout.profile, layout.block_size
    num_blocks = 8 * len(profile.groups) * profile.instances + (profile.null_block or 0)
    engine = EngineSession(layout.make(num_blocks, True), profile, num_blocks, size)
    found = engine.first_look()
    if found is not None:
        return f"the fresh engine: {found.sentence}"
    most = profile.most_request_tokens(num_blocks, size)
    prompt = TokenChain((*range(1, size + 2),)[: max(1, most - 2)])
    for command in _lives_of_requests(engine, prompt):
        found = engine.step(command) if engine.is_defined(command) else None
        if found is not None:
            return f"{command}: {found.sentence}"
    return None


def _lives_of_requests(engine: EngineSession, prompt: TokenChain) -> Iterator[Command]:
    yield Submit(0, prompt, 2, 0)
    yield from _until_rest(engine)
    yield from (Submit(1, prompt, 2, 1), Submit(2, prompt, 1, 0), PlanStep(), Cancel(1))
    yield from _until_rest(engine)


def _until_rest(engine: EngineSession) -> Iterator[Command]:
    """Steps, and the ends of transfers, until all requests have ended; then one step more."""
    model = engine.model
    while not model.is_idle:  # LIVE ends it if nothing else does
        if model.transfers:
            yield Arrive(0, 0)
        yield AnswerStep(1, 0, 0) if model.in_flight else PlanStep()
    yield from (PlanStep(), AnswerStep(1, 0, 0))


_ANSWERS = {"start": "hello", "run": "ran", "continue": "continued", "stop": "stopped"}
_RESULTS = {"plan": "plan", "answer": "outputs"}
"""Commands whose results have a form of their own."""

_MOST_SHOWN = 5


def schema_text() -> str:
    """The published schema, as text."""
    return (files("poolproof.contract") / "schemas" / "protocol.schema.json").read_text("utf-8")


class SchemaChecker:
    """Checks the lines of a conversation; `faults` says what was wrong in which line.

    Raises TargetError if the library is missing.
    """

    def __init__(self) -> None:
        try:
            from jsonschema import Draft202012Validator
        except ImportError as error:
            raise TargetError(
                "validating needs jsonschema: pip install 'poolproof[protocol]'"
            ) from error
        schema = json.loads(schema_text())
        self._validators = {
            name: Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})
            for name in (*_ANSWERS, *_ANSWERS.values(), *_RESULTS.values())
        }
        self.num_lines = 0
        self.faults: list[str] = []
        self._asked: Mapping[str, Any] = {"do": "start"}

    def hear(self, direction: str, line: str) -> None:
        """Check one line."""
        self.num_lines += 1
        try:
            message = json.loads(line)
        except ValueError as error:
            self.faults.append(f"line {self.num_lines} is not JSON: {error}")
            return
        if direction == "sent":
            self._asked = message
            self._check(message["do"], message)
            return
        num_faults = len(self.faults)
        self._check(_ANSWERS[self._asked["do"]], message)
        if len(self.faults) == num_faults:
            self._check_results(message)

    def _check_results(self, message: Mapping[str, Any]) -> None:
        asked = self._asked.get("commands", ())
        for command, answer in zip(asked, message.get("answers", ()), strict=False):
            if command["do"] in _RESULTS and "error" not in answer:
                self._check(_RESULTS[command["do"]], answer.get("result"))

    def _check(self, name: str, message: Any) -> None:
        for error in self._validators[name].iter_errors(message):
            fault = error
            # Of alternatives, the one that fits best says what is wrong.
            while fault.context:
                fault = max(fault.context, key=lambda inner: len(inner.absolute_path))
            place = fault.json_path
            self.faults.append(f"line {self.num_lines}, {name}, at {place}: {fault.message[:300]}")


def validate(target: str, num_tapes: int, timeout_s: float) -> int:
    """Drive the program, check each line, print what was wrong, give the exit status."""
    words, rows = program_in(target)
    checker = SchemaChecker()
    session = CommandSession(words, timeout_s=timeout_s, heard=checker.hear)
    try:
        wrong = _converse_checked(session, rows, num_tapes, timeout_s)
    finally:
        session.close()
    for fault in checker.faults[:_MOST_SHOWN]:
        click.echo(f"wrong     {printable(fault)}")
    if len(checker.faults) > _MOST_SHOWN:
        click.echo(f"          and {len(checker.faults) - _MOST_SHOWN} more")
    if wrong is not None:
        click.echo(f"wrong     {printable(wrong)}")
    if wrong is not None or checker.faults:
        return 1
    click.echo(f"fine      {checker.num_lines:,} lines are as the schemas say")
    return 0


def _converse_checked(
    session: CommandSession, rows: Mapping[str, Any], num_tapes: int, timeout_s: float
) -> str | None:
    """Runs of the plain driver, alternately on tapes and command by command; what is wrong."""
    try:
        hello = session.hello(timeout_s)
        check_hello(hello)
        campaign, on_tapes = _CONVERSATIONS[hello.level].campaigns(session, hello, rows)
    except (ProcessEndedError, ProtocolError, ProfileError) as error:
        return str(error)
    for number in range(num_tapes):
        try:
            result: RunResult = (on_tapes if number % 2 == 0 else campaign).run(number)
        except ViolationError as error:
            return error.violation.sentence
        if result.trace is not None and result.trace.violation is not None:
            # Whether the allocator is right is not asked here, unless it cannot be talked to.
            violation = result.trace.violation
            if violation.invariant == "CRASH":
                return violation.sentence
    return session.stop()


def _profile(hello: Hello, rows: Mapping[str, Any]) -> Profile:
    return Profile.from_mapping({**hello.profile, **rows})


def _engine_campaigns(
    session: CommandSession, hello: Hello, rows: Mapping[str, Any]
) -> tuple[Any, Any]:
    set_up = _engine_layout(session, hello, rows)
    assert set_up.make is not None
    campaign = EngineCampaign(hello.name, set_up.make, set_up.profile, set_up.block_size)
    return campaign, campaign


def _manager_campaigns(
    session: CommandSession, hello: Hello, rows: Mapping[str, Any]
) -> tuple[Any, Any]:
    layout = _manager_layout(session, hello, rows)
    assert layout.make is not None
    assert isinstance(layout.profile, ManagerProfile)
    campaign = ManagerCampaign(hello.name, layout.make, layout.profile, layout.block_size)
    return campaign, campaign


def _queue_campaigns(
    session: CommandSession, hello: Hello, _rows: Mapping[str, Any]
) -> tuple[Any, Any]:
    return _on_tapes(session, hello, QueueCampaign(hello.name, _maker(session, hello)))


def _pool_campaigns(
    session: CommandSession, hello: Hello, rows: Mapping[str, Any]
) -> tuple[Any, Any]:
    campaign = PoolCampaign(hello.name, _maker(session, hello), _profile(hello, rows))
    return _on_tapes(session, hello, campaign)


def _on_tapes(session: CommandSession, hello: Hello, campaign: Any) -> tuple[Any, Any]:
    return campaign, taped(campaign, CommandTapes(hello, session))


def _maker(session: CommandSession, hello: Hello) -> Callable[[int, bool], CommandPool]:
    def make(num_blocks: int, enable_caching: bool) -> CommandPool:
        state, _ = session.begin(num_blocks, enable_caching)
        return CommandPool(hello, num_blocks, LiveAnswers(session), state or None)

    return make


_Rows = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Conversation:
    """What is said to a program of a level, given the rows of its profile that were asked for.

    `drive` goes through its day once, and says what is wrong. `campaigns` are runs command by
    command, and on tapes if the level has those. Both raise ProfileError.
    """

    drive: Callable[[CommandSession, Hello, _Rows], str | None]
    campaigns: Callable[[CommandSession, Hello, _Rows], tuple[Any, Any]]


_CONVERSATIONS: Mapping[str, _Conversation] = {
    Level.QUEUE: _Conversation(_drive_queue, _queue_campaigns),
    Level.POOL: _Conversation(_drive_pool, _pool_campaigns),
    Level.MANAGER: _Conversation(_drive_manager, _manager_campaigns),
    Level.ENGINE: _Conversation(_drive_engine, _engine_campaigns),
}
