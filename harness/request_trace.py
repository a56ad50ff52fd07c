"""Request traces: files in the format of the Mooncake traces, and the block hashes they stand for.

A line is one request as a JSON object: `timestamp` (ms), `input_length` and `output_length`
(tokens), `hash_ids`: one id for each 512 tokens of the prompt, the last one possibly for fewer.
Equal ids mean equal tokens behind an equal prefix; the tokens themselves are not in the file, and
other fields are ignored. What a pool is asked to do with the requests is in `request_workload.py`.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import xxhash

from poolproof.contract.outside import shown
from poolproof.contract.profile import USUAL_HASH_BYTES
from poolproof.contract.trace import TraceError

__all__ = [
    "TOKENS_PER_ID",
    "RequestTraceError",
    "TraceRequest",
    "block_hashes",
    "read_requests",
    "request_line",
    "require_block_size",
]

TOKENS_PER_ID = 512
"""How many tokens one id of a trace stands for."""

_FIELDS = ("timestamp", "input_length", "output_length", "hash_ids")
_ROOT = b"poolproof request trace"


class RequestTraceError(TraceError):
    """A file that is not a request trace; the message says where and why."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request: `timestamp_ms` since the trace began, lengths in tokens, ids of the prompt."""

    timestamp_ms: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def require_block_size(block_size: int) -> None:
    """Raises ValueError unless the ids of a trace can be cut into blocks of so many tokens."""
    if block_size < 1 or TOKENS_PER_ID % block_size:
        raise ValueError(
            f"block size {block_size} does not divide {TOKENS_PER_ID}, the tokens that one id of "
            "a request trace stands for; use a power of two from 1 to 512"
        )


def block_hashes(
    request: TraceRequest, block_size: int, hash_bytes: int = USUAL_HASH_BYTES
) -> list[bytes]:
    """The hashes of the prompt's full blocks, `hash_bytes` each, every one chained to its parent.

    An id becomes 512 / block_size hashes. A partial last block has none: it is never cached.
    """
    per_id = TOKENS_PER_ID // block_size
    digest: Callable[[bytes], bytes] = xxhash.xxh3_128_digest
    if hash_bytes != USUAL_HASH_BYTES:
        digest = partial(_digest_of_length, hash_bytes)
    parent, found = _ROOT, []
    for position in range(request.input_length // block_size):
        parent = digest(parent + request.hash_ids[position // per_id].to_bytes(8, "little"))
        found.append(parent)
    return found


def _digest_of_length(length: int, content: bytes) -> bytes:
    return hashlib.shake_128(content).digest(length)


def read_requests(path: Path, limit: int | None = None) -> list[TraceRequest]:
    """The requests in a file, the first `limit` of them.

    Raises RequestTraceError, whose message names the file, the line and the cause.
    """
    try:
        with path.open(encoding="utf-8") as stream:
            requests = list(islice(_parse(path, stream), limit))
    except OSError as error:
        raise RequestTraceError(
            f"cannot read request trace {path}: {error.strerror or error}"
        ) from error
    except UnicodeDecodeError as error:
        raise RequestTraceError(f"{path} is not a request trace: it is not UTF-8 text") from error
    if not requests:
        raise RequestTraceError(
            f"{path} has no requests; a request trace has one JSON object a line"
        )
    return requests


def request_line(request: TraceRequest) -> str:
    """The request as a line of a trace file, without the line's end."""
    values = (
        request.timestamp_ms,
        request.input_length,
        request.output_length,
        list(request.hash_ids),
    )
    return json.dumps(dict(zip(_FIELDS, values, strict=True)))


def _parse(path: Path, lines: Iterable[str]) -> Iterator[TraceRequest]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _request(json.loads(line))
        except json.JSONDecodeError as error:
            raise RequestTraceError(
                f"{path} line {number} is not JSON ({error.msg} at column {error.colno}); "
                "a request trace has one JSON object a line"
            ) from error
        except (ValueError, RecursionError) as error:
            raise RequestTraceError(f"{path} line {number}: {error}") from error


def _request(record: Any) -> TraceRequest:
    if not isinstance(record, dict):
        raise ValueError(f"a request is a JSON object with {', '.join(_FIELDS)}")
    missing = [name for name in _FIELDS if name not in record]
    if missing:
        raise ValueError(f"the request lacks {', '.join(missing)}")
    ids = record["hash_ids"]
    if not isinstance(ids, list) or not all(_is_count(value) and value < 1 << 64 for value in ids):
        raise ValueError("hash_ids must be a list of integers from 0 to 2**64 - 1")
    length = _count(record, "input_length", least=1)
    expected = -(-length // TOKENS_PER_ID)
    if len(ids) != expected:
        raise ValueError(
            f"input_length {length} needs {expected} hash_ids of {TOKENS_PER_ID} tokens, "
            f"but there are {len(ids)}"
        )
    return TraceRequest(_time(record), length, _count(record, "output_length", least=0), tuple(ids))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _count(record: dict[str, Any], name: str, least: int) -> int:
    value = record[name]
    if not _is_count(value) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, not {shown(value)}")
    return int(value)


def _time(record: dict[str, Any]) -> float:
    value = record["timestamp"]
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0:
        raise ValueError(f"timestamp must be a number of at least 0, not {shown(value)}")
    return float(value) if isinstance(value, float) else int(value)
