"""Whole tapes for a program: written at once, answered at once, judged afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from poolproof.contract.commands import Cache, Command, Lookup
from poolproof.contract.content import Key
from poolproof.contract.level import Level
from poolproof.contract.tapes import PlayedTape, TapeLostError
from poolproof.contract.target import Capabilities
from poolproof.contract.violation import ViolationError
from poolproof.targets.command_messages import Hello, command_text, named_hashes
from poolproof.targets.command_pool import CommandPool, PlayedAnswers
from poolproof.targets.command_session import CommandSession

__all__ = ["CommandTapes"]


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

        A lookup of a hash that was named before is left out: who carries it is shown after every
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
