"""A conversation with one program: the handshake, runs on fresh instances, and its end.

The process is started when it is first needed, in whatever process needs it (a worker forks, and
two workers cannot share one pipe), and anew after it was lost. What goes wrong while the program
is driven is a finding about it: ViolationError.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.targets.command_messages import (
    Hello,
    ProtocolError,
    SkippedError,
    answers_in,
    continue_text,
    hello_in,
    read_line,
    run_text,
    start_text,
    stop_text,
)
from poolproof.targets.command_process import CommandProcess, ProcessEndedError

__all__ = ["STATE", "CommandSession", "Heard"]

STATE, NOTHING = "state", "nothing"
"""What a program shows after each command."""

_MOST_BLOCKS_SHOWN = 64
"""Up to this many blocks the harness looks at everything after each command."""

_GOODBYE_S = 2.0

Heard = Callable[[str, str], object]
"""Hears each line: "sent" or "received", and the line."""


class CommandSession:
    """Talks to a program. `heard` listens; with `timeout_s` a late answer is an error."""

    def __init__(
        self,
        words: Sequence[str],
        *,
        timeout_s: float | None = None,
        heard: Heard | None = None,
    ) -> None:
        self._words = list(words)
        self._timeout_s = timeout_s
        self._heard = heard
        self._process: CommandProcess | None = None
        self._owner = 0
        self._seq = 0
        self.run_number = 0
        self.num_lost = 0

    def hello(self, timeout_s: float | None = None) -> Hello:
        """Start the program anew and let it introduce itself.

        Raises TargetError for one that cannot be started, ProcessEndedError and ProtocolError for
        one that does not introduce itself.
        """
        self.close()
        self._process = CommandProcess(self._words)
        self._owner, self._seq = os.getpid(), 0
        return hello_in(self._ask(start_text, timeout_s=timeout_s))

    def begin(
        self, num_blocks: int, enable_caching: bool, commands: Sequence[str] = ()
    ) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
        """Commands on a fresh instance: the state before the first, and the answers.

        Raises ViolationError; TargetError for a run that the program skips.
        """
        show = STATE if num_blocks <= _MOST_BLOCKS_SHOWN else NOTHING
        self.run_number += 1

        def text(seq: int) -> str:
            return run_text(seq, num_blocks, enable_caching, show, commands)

        try:
            message, answers = self._run(text, len(commands))
        except SkippedError as error:
            caching = "" if enable_caching else ", caching off"
            raise TargetError(
                f"{self.name}, asked for {num_blocks} blocks{caching}: {error}"
            ) from error
        state = message.get("state", {})
        if not isinstance(state, dict):
            raise self._broken('"state" in its answer is no object')
        return state, answers

    def go_on(self, commands: Sequence[str]) -> list[dict[str, Any]]:
        """The answers to further commands of the run. Raises ViolationError."""
        try:
            return self._run(lambda seq: continue_text(seq, commands), len(commands))[1]
        except SkippedError as error:
            raise self._broken(f"in the middle of a run {error}") from error

    def stop(self, timeout_s: float = _GOODBYE_S) -> str | None:
        """Say goodbye; what was wrong with the way in which the program left, or None."""
        if self._process is None:
            return None
        try:
            self._ask(stop_text, timeout_s=timeout_s)
            status = self._process.wait(timeout_s)
        except (ProcessEndedError, ProtocolError) as error:
            return str(error)
        finally:
            self.close()
        if status is None:
            return f"it answered stop, and {timeout_s:g} s later it had not ended"
        return None if status == 0 else f"it answered stop, and ended with status {status}"

    def close(self) -> None:
        """End the program, however it is."""
        if self._process is not None and self._owner == os.getpid():
            self._process.close()
        self._process = None

    @property
    def name(self) -> str:
        """The program with its arguments, as an error names it."""
        return " ".join(self._words)

    def _run(
        self, text: Callable[[int], str], count: int
    ) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        try:
            if self._process is None or self._owner != os.getpid():
                self._process = None
                self.hello()
            message = self._ask(text, timeout_s=self._timeout_s)
            return message, answers_in(message, count)
        except (ProcessEndedError, ProtocolError) as error:
            raise self._broken(str(error)) from error

    def _ask(self, text: Callable[[int], str], *, timeout_s: float | None) -> dict[str, Any]:
        assert self._process is not None
        self._seq += 1
        line = text(self._seq)
        if self._heard is not None:
            self._heard("sent", line)
        received = self._process.exchange(line, timeout_s)
        if self._heard is not None:
            self._heard("received", received.decode("utf-8", errors="backslashreplace"))
        return read_line(received, self._seq)

    def _broken(self, what: str) -> ViolationError:
        """The finding that the program cannot be talked to; the next run starts another."""
        self.close()
        self.num_lost += 1
        return ViolationError(Violation("CRASH", Severity.CRASH, f"{self.name}: {what}"))
