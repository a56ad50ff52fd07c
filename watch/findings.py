"""What a watch finds: one violation in a live engine, as plain numbers and names."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LiveFinding"]


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """One violation, as docs/live.md describes a line of `findings.jsonl`.

    `reader` and `writer` are the numbers of requests (`Digests.name`), `wanted` and `found`
    digests of prefixes; `request_id` is the reader's own id, which is not written unless that is
    asked for. `taint` is the finding of which this one is a consequence.
    """

    number: int
    invariant: str
    step: int
    sentence: str
    reader: int | None = None
    request_id: str | None = None
    writer: int | None = None
    written_in: int | None = None
    group: int | None = None
    block: int | None = None
    slot: int | None = None
    position: int | None = None
    blocks: tuple[int, ...] = ()
    wanted: int | None = None
    found: int | None = None
    because_of: int | None = None


def request_name(number: int) -> str:
    """A request's name in sentences and files."""
    return f"r-{number & 0xFFFFFFFFFFFF:012x}"
