"""Recordings: what a scheduler told its workers, step by step, to be judged later.

A recording is a gzip file of JSON lines, so that `zcat` reads it and any language can write one.
The first line is a header, then comes one line for each step, at the end how many there were. After
each step the stream is flushed: whatever happens to the engine, all steps before are there, and a
last one that is cut is dropped. Plain JSON lines are read as well. docs/live.md describes every
field.

Of tokens only digests are kept, one for each position, chained from the beginning of the sequence
with the adapter, the salt and the images, under a random key that is never written. Two positions
have one digest where everything before them is equal, and nothing else can be learned from it.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

from poolproof.contract.content import TokenChain
from poolproof.contract.errors import PoolproofError
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.contract.outside import shown
from poolproof.contract.profile import ProfileError
from poolproof.contract.step_record import ComputedTokens, StepRecord

__all__ = [
    "RECORDING_VERSION",
    "RecordingError",
    "RecordingHeader",
    "RecordingWriter",
    "StepRecording",
    "free_path",
    "named_request",
    "open_recording",
]

FORMAT = "poolproof-recording"
RECORDING_VERSION = 1
DIGEST_BYTES = 8
MOST_BLOCKS = 10_000_000
_REPLACED, _UNREAD = 1, 2
_GZIP = 31
"""zlib's number for streams in gzip's format."""
_CHUNK_BYTES = 1 << 16
_MOST_OF_A_LINE = 1 << 30
_NO_END = "the recording stops without its last line: the engine was ended, or still runs"


class RecordingError(PoolproofError, ValueError):
    """A recording that cannot be read or written; the message says where and why."""


@dataclass(frozen=True, slots=True)
class RecordingHeader:
    """What the engine is: its blocks, its cache groups with their block sizes, its name.

    `is_whole` says that the recording began before the first step and that nothing comes from
    elsewhere: whatever was not written in it was never computed. `left_out` says in words what of
    the engine is not recorded.
    """

    num_blocks: int
    groups: tuple[CacheGroup, ...]
    engine: str = ""
    is_whole: bool = True
    left_out: tuple[str, ...] = ()

    @property
    def block_sizes(self) -> list[int]:
        """Tokens of a block, by group."""
        return [group.block_size for group in self.groups]

    def to_json(self) -> dict[str, Any]:
        """The first line of the file."""
        return {
            "format": FORMAT,
            "version": RECORDING_VERSION,
            "num_blocks": self.num_blocks,
            "groups": [group.to_json() for group in self.groups],
            "engine": self.engine,
            "is_whole": self.is_whole,
            "left_out": list(self.left_out),
        }


def named_request(request_id: str) -> str:
    """What a request is called in a recording: who has its id can find it, and nobody else."""
    return blake2b(request_id.encode(errors="backslashreplace"), digest_size=6).hexdigest()


def free_path(path: Path) -> Path:
    """`path`, or where there is such a file, the first of `path`-2, `path`-3, ... that is free."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


class RecordingWriter:
    """Writes the steps of one engine's life into a new file, which must not exist yet.

    Memory is bounded by the live requests, 8 bytes for each of their tokens. With `most_bytes` the
    recording ends, and says so, once the file has that size. Request ids are written as
    `named_request` calls them, unless `plain_ids`. Raises RecordingError, here and when a step
    cannot be written; the file then holds all steps before.
    """

    def __init__(
        self,
        path: str | Path,
        num_blocks: int,
        groups: Sequence[CacheGroup],
        block_sizes: Sequence[int],
        *,
        engine: str = "",
        is_whole: bool = True,
        left_out: Sequence[str] = (),
        plain_ids: bool = False,
        most_bytes: int | None = None,
    ) -> None:
        self.path = Path(path)
        self.num_steps = self.num_bytes = 0
        self.is_full = False
        self._most_bytes = most_bytes
        self._named = str if plain_ids else named_request
        self._key = os.urandom(32)
        self._requests: dict[str, _Written] = {}
        self._num_requests = 0
        self._zip = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
        sized = tuple(
            CacheGroup(group.kind, size, group.window)
            for group, size in zip(groups, block_sizes, strict=True)
        )
        header = RecordingHeader(num_blocks, sized, engine, is_whole, tuple(left_out))
        self._file = _new_file(self.path)
        try:
            self._line(header.to_json())
        except BaseException:
            self._file.close()
            raise

    def record(self, step: StepRecord) -> None:
        """Write one step. Raises RecordingError where the file takes no more, and then ends."""
        if self._file.closed or self.is_full:
            return
        for request_id in step.ended:
            self._requests.pop(request_id, None)
        begun: dict[str, str] = {}
        parts = ",".join([self._part(part, begun) for part in step.computed])
        more: dict[str, Any] = {}
        if step.ended:
            more["ended"] = [self._named(request_id) for request_id in step.ended]
        for name in ("copies", "loads", "stores"):
            if pairs := getattr(step, name):
                more[name] = pairs
        if begun:
            more["begun"] = begun
        # Put together by hand: it runs on the thread of a live engine's scheduler.
        rest = f",{_json(more)[1:-1]}" if more else ""
        self._write(f'{{"step":{step.number},"computed":[{parts}]{rest}}}\n')
        self.num_steps += 1
        if self._most_bytes is not None and self.num_bytes >= self._most_bytes:
            self.is_full = True
            self.close(why=f"the file has {self.num_bytes:,} bytes, as many as it may")

    def close(self, why: str = "") -> None:
        """Write the last line; without it a reader says that the engine was ended."""
        if self._file.closed:
            return
        end: dict[str, Any] = {"end": self.num_steps, **({"why": why} if why else {})}
        try:
            self._line(end, zlib.Z_FINISH)
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _line(self, value: dict[str, Any], flush: int = zlib.Z_SYNC_FLUSH) -> None:
        self._write(f"{_json(value)}\n", flush)

    def _write(self, text: str, flush: int = zlib.Z_SYNC_FLUSH) -> None:
        data = self._zip.compress(text.encode()) + self._zip.flush(flush)
        try:
            # Without a buffer of ours: the steps survive the process, though not a power cut.
            self._file.write(data)
        except OSError as error:
            self._file.close()
            raise RecordingError(
                f"cannot write {self.path}: {error.strerror or error}; it ends after step "
                f"{self.num_steps:,}"
            ) from error
        self.num_bytes += len(data)

    def _part(self, part: ComputedTokens, begun: dict[str, str]) -> str:
        known = self._requests.get(part.request_id)
        end = part.first + part.count
        if known is None or part.replaced:
            known = self._begin(part, begun)
        told = known.follow(part.chain, min(part.first, len(known.digests)), end, self._key)
        flags = _REPLACED * part.replaced | _UNREAD * (not part.is_read)
        tables = _json(part.blocks) if any(part.blocks) else "0"
        rest = f",{tables},{flags}" if flags else f",{tables}" if tables != "0" else ""
        return f'[{known.number},{part.first},{part.count},"{told.hex()}"{rest}]'

    def _begin(self, part: ComputedTokens, begun: dict[str, str]) -> _Written:
        """A request that is told anew has a new number."""
        number = self._num_requests
        self._num_requests += 1
        begun[str(number)] = self._named(part.request_id)
        root = repr((part.chain.lora, part.chain.salt)).encode(errors="backslashreplace")
        digest = blake2b(root, key=self._key, digest_size=DIGEST_BYTES).digest()
        known = self._requests[part.request_id] = _Written(number, digest)
        return known


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


class _Written:
    """A request of which a writer has told: its number, and the digests of its positions."""

    __slots__ = ("digests", "number", "root")

    def __init__(self, number: int, root: bytes) -> None:
        self.number = number
        self.root = root
        self.digests = array("Q")

    def follow(self, chain: TokenChain, first: int, end: int, key: bytes) -> bytes:
        """What comes from position `first` on is what the chain says; its digests."""
        digests = self.digests
        if first + 1 == end and first == len(digests) and not chain.images:  # by far most often
            last = digests[-1].to_bytes(DIGEST_BYTES, "big") if digests else self.root
            item = b"%d" % chain.tokens[first]
            last = blake2b(last + item, key=key, digest_size=DIGEST_BYTES).digest()
            digests.append(int.from_bytes(last, "big"))
            return last
        del digests[first:]
        last = digests[-1].to_bytes(DIGEST_BYTES, "big") if digests else self.root
        told = bytearray()
        for item in _items(chain, first, end):
            last = blake2b(last + item, key=key, digest_size=DIGEST_BYTES).digest()
            digests.append(int.from_bytes(last, "big"))
            told += last
        return bytes(told)


def _items(chain: TokenChain, first: int, end: int) -> Iterator[bytes]:
    """What the positions from `first` on have beyond those before: a token, and what it shows."""
    tokens = chain.tokens[first:end]
    if not chain.images:
        for token in tokens:
            yield b"%d" % token
        return
    for position, token in enumerate(tokens, start=first):
        under = [
            (image.identifier, position - image.offset)
            for image in chain.images
            if image.offset <= position < image.offset + image.length
        ]
        # What comes before an image is what it is without one.
        shown_here = repr(under).encode(errors="backslashreplace") if under else b""
        yield b"%d" % token + shown_here


def _new_file(path: Path) -> IO[bytes]:
    try:
        return path.open("xb", buffering=0)
    except FileExistsError as error:
        raise RecordingError(
            f"cannot write {path}: there is such a file, and recordings are never written over; "
            "move it away, or name another"
        ) from error
    except OSError as error:
        raise RecordingError(
            f"cannot write {path}: {error.strerror or error}; name a file in a folder that this "
            "user may write"
        ) from error


class StepRecording:
    """A recording whose `header` was read; its steps come in order, each time it is iterated.

    Once they were read, `is_cut` says that a last line was cut and dropped, `end` why there is no
    further step: "" if the engine said goodbye. Memory is bounded by the live requests.
    """

    def __init__(self, path: Path, header: RecordingHeader) -> None:
        self.path = path
        self.header = header
        self.num_steps = 0
        self.is_cut = False
        self.end = ""
        self._requests: dict[int, _Read] = {}
        self._numbers: dict[str, int] = {}

    def __iter__(self) -> Iterator[StepRecord]:
        self._requests, self._numbers = {}, {}
        self.num_steps = 0
        self.is_cut = False
        self.end = _NO_END
        lines = _Lines(self.path)
        try:
            next(lines)  # the header
            for number, line in lines:
                if "end" in line:
                    self.end = str(line.get("why", ""))
                    return
                yield self._readable_step(number, line)
            self.is_cut = lines.is_cut
        finally:
            lines.close()

    def _readable_step(self, number: int, line: dict[str, Any]) -> StepRecord:
        try:
            step = self._step(line)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise RecordingError(
                f"{self.path} line {number} is not a step of a recording ({shown(error.args)} in "
                f"{shown(line)}); the file is damaged, or was not written as docs/live.md says"
            ) from error
        self.num_steps += 1
        return step

    def _step(self, line: dict[str, Any]) -> StepRecord:
        ended = tuple(map(str, line.get("ended", ())))
        for request_id in ended:
            self._requests.pop(self._numbers.pop(request_id, -1), None)
        for text, request_id in line.get("begun", {}).items():
            self._requests.pop(self._numbers.get(request_id, -1), None)
            self._requests[int(text)] = _Read(str(request_id))
            self._numbers[str(request_id)] = int(text)
        return StepRecord(
            int(line["step"]),
            tuple(self._part(part) for part in line["computed"]),
            _pairs(line.get("copies", ())),
            ended,
            _pairs(line.get("loads", ())),
            _pairs(line.get("stores", ())),
        )

    def _part(self, part: list[Any]) -> ComputedTokens:
        number, first, count, told = part[:4]
        tables = part[4] if len(part) > 4 and part[4] else ()
        flags = int(part[5]) if len(part) > 5 else 0
        known = self._requests[int(number)]
        end = int(first) + int(count)
        known.follow(told, end)
        return ComputedTokens(
            known.request_id,
            TokenChain(known.upto(end)),
            int(first),
            int(count),
            tuple(tuple(map(int, table)) for table in tables),
            bool(flags & _REPLACED),
            not flags & _UNREAD,
        )


class _Read:
    """A request of which a reader was told."""

    __slots__ = ("digests", "request_id")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.digests: list[int] = []

    def follow(self, told: Any, end: int) -> None:
        """The last positions before `end` are these: digests in hexadecimal, or plain tokens."""
        number = len(told) // (2 * DIGEST_BYTES) if isinstance(told, str) else len(told)
        begin = end - number
        if not 0 <= begin <= len(self.digests):
            raise ValueError(
                f"{number} digests end at position {end}, and {len(self.digests)} are known"
            )
        # A list of its own for what is told anew: steps that were read before keep theirs.
        self.digests = self.digests[:begin] if begin < len(self.digests) else self.digests
        if isinstance(told, str):
            self.digests.extend(struct.unpack(f">{number}Q", bytes.fromhex(told)))
            return
        last = self.digests[-1] if self.digests else 0
        for token in told:
            item = b"%d %d" % (last, int(token))
            last = int.from_bytes(blake2b(item, digest_size=DIGEST_BYTES).digest(), "big")
            self.digests.append(last)

    def upto(self, end: int) -> Any:
        """The digests of the positions before `end`, which stand for tokens."""
        return _Beginning(self.digests, end)


class _Beginning(Sequence[int]):
    """The first entries of a list that only grows: like a tuple, and nothing is copied."""

    __slots__ = ("_length", "_values")

    def __init__(self, values: list[int], length: int) -> None:
        self._values = values
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            first, end, step = key.indices(self._length)
            return tuple(self._values[first:end:step])
        if not -self._length <= key < self._length:
            raise IndexError(key)
        return self._values[key if key >= 0 else self._length + key]

    def __iter__(self) -> Iterator[int]:
        return iter(self._values[: self._length])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


def _pairs(values: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    return tuple((int(first), int(second)) for first, second in values)


class _Lines:
    """The lines of a file as JSON objects, with their numbers from 1. Raises RecordingError."""

    def __init__(self, path: Path) -> None:
        self.is_cut = False
        self._path = path
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise RecordingError(f"cannot read {path}: {error.strerror or error}") from error
        self._number = 0
        self._left = self._whole()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, dict[str, Any]]:
        return next(self._left)

    def close(self) -> None:
        """No further line is read."""
        self._left.close()
        self._file.close()

    def _whole(self) -> Generator[tuple[int, dict[str, Any]], None, None]:
        rest = b""
        for data in self._chunks():
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                self._number += 1
                if line.strip():
                    yield self._number, self._parsed(line)
            if len(rest) > _MOST_OF_A_LINE:
                raise RecordingError(f"{self._path} line {self._number + 1} has no end")
        self.is_cut = bool(rest.strip())

    def _chunks(self) -> Iterator[bytes]:
        try:
            data = self._file.read(_CHUNK_BYTES)
            unzip = zlib.decompressobj(_GZIP) if data.startswith(b"\x1f\x8b") else None
            while data:
                yield unzip.decompress(data) if unzip else data
                data = self._file.read(_CHUNK_BYTES)
        except OSError as error:
            raise RecordingError(f"cannot read {self._path}: {error.strerror or error}") from error
        except zlib.error as error:
            raise RecordingError(
                f"{self._path} is damaged behind line {self._number:,} ({error}); what stands "
                "there cannot be judged"
            ) from error

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise RecordingError(
                f"{self._path} line {self._number} is not JSON; the file is damaged, or none of "
                "Poolproof's recordings"
            ) from error
        if not isinstance(value, dict):
            raise RecordingError(f"{self._path} line {self._number} is not a JSON object")
        return value


def open_recording(path: str | Path) -> StepRecording:
    """A recording whose header was read. Raises RecordingError for a file that is none."""
    path = Path(path)
    lines = _Lines(path)
    try:
        return StepRecording(path, _header(path, next(lines, None)))
    finally:
        lines.close()


def _header(path: Path, first: tuple[int, dict[str, Any]] | None) -> RecordingHeader:
    if first is None:
        raise RecordingError(
            f"{path} is not a recording: it is empty, or ends before its first line does"
        )
    _, line = first
    if line.get("format") != FORMAT:
        raise RecordingError(f'{path} is not a recording: line 1 lacks "format": "{FORMAT}"')
    version = line.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise RecordingError(f"{path} line 1: version {shown(version)} is not a version number")
    if version > RECORDING_VERSION:
        raise RecordingError(
            f"{path} has recording version {version}, this Poolproof reads up to "
            f"{RECORDING_VERSION}; upgrade Poolproof to read it"
        )
    num_blocks = line.get("num_blocks")
    if isinstance(num_blocks, bool) or not isinstance(num_blocks, int) or num_blocks < 1:
        raise RecordingError(
            f"{path} line 1: num_blocks must be 1 or more, not {shown(num_blocks)}"
        )
    if num_blocks > MOST_BLOCKS:
        raise RecordingError(f"{path} line 1: num_blocks must be at most {MOST_BLOCKS:,}")
    try:
        groups: tuple[CacheGroup, ...] = ManagerProfile.check_value("groups", line.get("groups"))
    except ProfileError as error:
        raise RecordingError(f"{path} line 1: {error}") from error
    if not all(group.block_size for group in groups):
        raise RecordingError(f"{path} line 1: each of the groups needs a block_size of 1 or more")
    left_out = line.get("left_out") or ()
    return RecordingHeader(
        num_blocks,
        groups,
        str(line.get("engine", "")),
        line.get("is_whole", True) is not False,
        tuple(map(str, left_out if isinstance(left_out, list) else ())),
    )
