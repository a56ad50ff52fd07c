"""A program behind a `cmd:` target: its process, and the conversation with it.

`CommandProcess` is started, given one line at a time, and ended. It knows nothing of what the lines
mean. A line is written and one is read; if the program does not answer (it does not exist, ends, is
killed, writes without end, takes longer than `timeout_s`, uses too much memory), one sentence says
why. Inside a worker there is no time limit here, because the worker's watchman has one. The address
space of a worker is bounded, but that of a program is not (a sanitizer reserves terabytes): its
memory use is measured instead, and may be as much as the worker may reserve.

`CommandSession` has the handshake, runs on fresh instances, and the end. The process is started
when it is first needed, in whatever process needs it (a worker forks, and two workers cannot share
one pipe), and anew after it was lost. What goes wrong while the program is driven is a finding
about it: ViolationError.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import select
import shlex
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity, Violation, ViolationError
from poolproof.targets.command_messages import (
    PROTOCOL_VERSION,
    SPOKEN_VERSIONS,
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

__all__ = [
    "Asks",
    "CommandProcess",
    "CommandSession",
    "LiveAnswers",
    "ProcessEndedError",
    "broken",
    "words_of",
]


LONGEST_LINE_BYTES = 1 << 26
"""A tape of 10,000 commands on 64 blocks is answered in a tenth of this."""

_READ_BYTES = 1 << 16
_MOST_STDERR_BYTES = 1 << 20
_TAIL_CHARACTERS = 300
_PATIENCE_S = 2.0
_LEAVING_S = 0.5
_LOOK_EVERY_S = 0.05
_LOOK_EVERY_EXCHANGES = 256


def broken(what: str) -> ViolationError:
    """The finding that a program does not say what it has to."""
    return ViolationError(Violation("CRASH", Severity.CRASH, what))


class ProcessEndedError(Exception):
    """The program did not answer; the message says what it did instead."""


def words_of(text: str) -> list[str]:
    """The program and its arguments, quoted as in a shell. Raises TargetError."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise TargetError(f"cmd:{text} cannot be split into words: {error}") from error
    if not words:
        raise TargetError("cmd: names no program; write 'cmd:./program arguments'")
    return words


class CommandProcess:
    """A running program. Raises TargetError when it cannot be started."""

    def __init__(self, words: list[str]) -> None:
        self._words = words
        self._errors = _appended_file()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        self._most_bytes = None if soft == resource.RLIM_INFINITY else soft
        try:
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
            )
        except OSError as error:
            self._errors.close()
            raise TargetError(_why_not_started(words[0], error)) from error
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin.fileno()
        self._stdout = process.stdout.fileno()
        # A program that writes before it has read must not block both sides.
        os.set_blocking(self._stdin, False)
        self._received = b""
        self._exchanges = 0
        self.close = weakref.finalize(self, _end, process, self._errors)

    @property
    def pid(self) -> int:
        """The process id of the program."""
        return self._process.pid

    def exchange(self, line: str, timeout_s: float | None = None) -> bytes:
        """Write a line and read the next one. Raises ProcessEndedError.

        A line too many is the answer to the next message, whose number gives it away.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._write(line.encode() + b"\n", deadline)
        while b"\n" not in self._received:
            self._read(deadline)
        found, _, self._received = self._received.partition(b"\n")
        self._exchanges += 1
        self._cut_errors()
        if self._exchanges % _LOOK_EVERY_EXCHANGES == 0:
            self._check_memory()
        return found

    def wait(self, timeout_s: float) -> int | None:
        """The exit status once the program has ended; None if it does not in time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def _write(self, line: bytes, deadline: float | None) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[self._write_some(rest) :]
            # What it has to say in the meantime is taken, or it could not go on reading.
            if rest and self._wait([self._stdout], [self._stdin], deadline):
                self._read(deadline)

    def _write_some(self, line: memoryview) -> int:
        """Write what the pipe takes; how many bytes that was."""
        try:
            return os.write(self._stdin, line)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._ended() from error

    def _read(self, deadline: float | None) -> None:
        part = self._part(deadline)
        if len(part) < _READ_BYTES and not self._received:
            self._received = part  # nearly always the whole answer
            return
        parts, size = [self._received, part], len(self._received) + len(part)
        while b"\n" not in part:
            if size > LONGEST_LINE_BYTES:
                raise ProcessEndedError(
                    f"it wrote {size:,} bytes without the end of a line; an answer is one line of "
                    f"at most {LONGEST_LINE_BYTES:,} bytes"
                )
            part = self._part(deadline)
            parts.append(part)
            size += len(part)
        self._received = b"".join(parts)

    def _part(self, deadline: float | None) -> bytes:
        """What it has written so far; waits for the first byte."""
        if deadline is not None or self._most_bytes is not None:
            self._wait([self._stdout], [], deadline)
        part = os.read(self._stdout, _READ_BYTES)
        if not part:
            raise self._ended()
        return part

    def _wait(self, readers: list[int], writers: list[int], deadline: float | None) -> list[int]:
        """Wait until something can be done; return the readers that have data."""
        while True:
            left_s = _LOOK_EVERY_S if deadline is None else deadline - time.monotonic()
            left_s = min(max(0.0, left_s), _LOOK_EVERY_S)
            readable, writable, _ = select.select(readers, writers, [], left_s)
            if readable or writable:
                return readable
            self._check_memory()
            self._cut_errors()
            if deadline is not None and time.monotonic() >= deadline:
                self.close()
                raise ProcessEndedError("it did not answer within the time limit")

    def _cut_errors(self) -> None:
        """Empty the file of what it complains of once that is long: it would fill the disk."""
        if os.fstat(self._errors.fileno()).st_size > _MOST_STDERR_BYTES:
            self._errors.truncate(0)

    def _check_memory(self) -> None:
        """Check the memory that the program uses, if it can be read."""
        if self._most_bytes is None:
            return
        with contextlib.suppress(OSError, ValueError, IndexError):
            pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
            if int(pages) * resource.getpagesize() > self._most_bytes:
                self.close()
                raise ProcessEndedError(f"it used more than {self._most_bytes >> 20:,} MiB")

    def _ended(self) -> ProcessEndedError:
        """The error of a program that closed its pipes."""
        status = self.wait(_PATIENCE_S)
        if status is None:
            how = "it closed its standard input or output without ending"
        elif status < 0:
            how = f"it was killed by {_signal_name(-status)}"
        else:
            how = f"it ended with exit status {status}"
        said = self._last_words()
        return ProcessEndedError(f"{how}; its last words: {said}" if said else how)

    def _last_words(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            size = os.fstat(self._errors.fileno()).st_size
            tail = os.pread(self._errors.fileno(), _READ_BYTES, max(0, size - _READ_BYTES))
            text = tail.decode("utf-8", errors="backslashreplace")
            return " ".join(text.split())[-_TAIL_CHARACTERS:]
        return ""


def _appended_file() -> BinaryIO:
    """A nameless file that can be emptied while another process appends to it."""
    stream = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the process
    flags = fcntl.fcntl(stream, fcntl.F_GETFL)
    fcntl.fcntl(stream, fcntl.F_SETFL, flags | os.O_APPEND)
    return stream


def _end(process: subprocess.Popen[bytes], errors: BinaryIO) -> None:
    """The program is not needed any more: let it leave, and kill it if it does not."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
    try:
        process.wait(_LEAVING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    errors.close()


def _why_not_started(program: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        hint = "" if "/" in program else f"; a program in this folder is cmd:./{program}"
        return f"there is no program {program} (looked from {Path.cwd()}){hint}"
    if isinstance(error, PermissionError):
        what = "is a folder" if Path(program).is_dir() else "is not executable"
        return f"{program} {what}; build it, or make it executable with chmod +x"
    return f"{program} cannot be started: {error.strerror or error}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


STATE, NOTHING = "state", "nothing"
"""What a program shows after each command."""

_MOST_BLOCKS_SHOWN = 64
"""Up to this many blocks the harness looks at everything after each command."""

_GOODBYE_S = 2.0

Heard = Callable[[str, str], object]
"""Hears each line: "sent" or "received", and the line."""


class Asks(Protocol):
    """Where the answers to commands come from."""

    def ask(self, command: str, /) -> Mapping[str, Any]: ...
    def ask_all(self, commands: Sequence[str], /) -> Sequence[Mapping[str, Any]]: ...
    def abandon(self) -> None: ...


class LiveAnswers:
    """A program that is asked command by command."""

    def __init__(self, session: CommandSession) -> None:
        self._session = session
        self._run = session.run_number

    def ask(self, command: str) -> Mapping[str, Any]:
        """The program's answer. Raises ViolationError."""
        return self.ask_all([command])[0]

    def ask_all(self, commands: Sequence[str]) -> Sequence[Mapping[str, Any]]:
        """The program's answers, in one exchange. Raises ViolationError."""
        if self._session.run_number != self._run:
            raise RuntimeError("this instance has gone: its program was given another run")
        return self._session.go_on(commands)

    def abandon(self) -> None:
        """The next instance gets a program of its own."""
        self._session.close()


class CommandSession:
    """Talks to a program. `heard` gets each line; with `timeout_s` a late answer is an error."""

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
        self._version = PROTOCOL_VERSION
        self.run_number = 0
        self.num_lost = 0

    def hello(self, timeout_s: float | None = None) -> Hello:
        """Start the program anew and let it introduce itself.

        Raises TargetError for one that cannot be started, ProcessEndedError and ProtocolError for
        one that does not introduce itself.
        """
        message = self._start(timeout_s)
        while "error" in message and self._version > min(SPOKEN_VERSIONS):
            # One that was written for an older version may not take any other.
            self._version -= 1
            message = self._start(timeout_s)
        return hello_in(message)

    def _start(self, timeout_s: float | None) -> dict[str, Any]:
        self.close()
        self._process = CommandProcess(self._words)
        self._owner, self._seq = os.getpid(), 0
        version = self._version
        return self._ask(lambda seq: start_text(seq, version), timeout_s=timeout_s)

    def begin(
        self,
        num_blocks: int,
        enable_caching: bool,
        commands: Sequence[str] = (),
        *,
        block_size: int | None = None,
        shows_state: bool = True,
    ) -> tuple[Mapping[str, Any], list[dict[str, Any]]]:
        """Give commands to a fresh instance; return the state before the first, and the answers.

        Pools and queues have no `block_size`. Without `shows_state`, and in large pools, nothing is
        shown. Raises ViolationError; TargetError for a run that the program skips.
        """
        show = STATE if shows_state and num_blocks <= _MOST_BLOCKS_SHOWN else NOTHING
        self.run_number += 1

        def text(seq: int) -> str:
            return run_text(seq, num_blocks, enable_caching, show, commands, block_size=block_size)

        try:
            message, answers = self._run(text, len(commands))
        except SkippedError as error:
            size = "" if block_size is None else f" of {block_size} tokens"
            caching = "" if enable_caching else ", caching off"
            raise TargetError(
                f"{self.name}, asked for {num_blocks} blocks{size}{caching}: {error}"
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
        """Say goodbye; return what was wrong with how the program left, or None."""
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
            return (
                f"it answered stop, and {timeout_s:g} s later it had not ended; it is to end then, "
                "with status 0"
            )
        return None if status == 0 else f"it answered stop, and ended with status {status}"

    def close(self) -> None:
        """End the program in whatever state it is."""
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
        return broken(f"{self.name}: {what}")
