"""Words that all forms of a report share: severities, statuses, sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.harness.weak_hashes import WEAK_HASHES

__all__ = [
    "first_of",
    "harm_of_trace",
    "harm_words",
    "num_blocks_of",
    "set_up_of",
    "severity_words",
    "shortened",
]


T = TypeVar("T")

_MOST_IDS = 16

_SEVERITY_WORDS = {
    Severity.WRONG_DATA_OF_ANOTHER: "wrong data of another request, silent",
    Severity.WRONG_DATA_OF_ONES_OWN: "wrong data of one's own, silent",
    Severity.STALL: "stall",
    Severity.CRASH: "crash",
    Severity.LEAK: "leak of blocks",
    Severity.FALSE_REFUSAL: "false refusal",
    Severity.LOST_HIT: "lost cache hit",
    Severity.ORDER: "eviction order",
    Severity.EVENTS: "event stream",
    Severity.OTHER_BITS: "other bits, right within rounding",
    Severity.BOOKKEEPING: "bookkeeping that no read shows",
}


def severity_words(severity: Severity) -> str:
    """A severity in words."""
    return _SEVERITY_WORDS[severity]


def harm_words(severity: Severity, invariant: str, level: str) -> str:
    """The severity of a violation in words: wrong data is feared, unless the violation is a read.

    Pools read nothing, so that even their DATA (two contents with one hash) is feared; of a manager
    a finding's consequence says what was shown.
    """
    words = severity_words(severity)
    is_read = invariant == "DATA" and Level(level).has_reads
    return words if is_read else words.replace(", silent", ", feared")


def harm_of_trace(trace: Trace) -> str:
    """What a trace was shown to do, in words, or where nobody looked, what is feared."""
    violation = trace.violation
    if violation is None:
        return ""
    if trace.harm is not None and trace.harm.was_tried:
        return severity_words(trace.harm.severity)
    return harm_words(violation.severity, violation.invariant, trace.level)


def num_blocks_of(trace: Trace) -> str:
    """The number of blocks, with the noun."""
    return "1 block" if trace.num_blocks == 1 else f"{trace.num_blocks} blocks"


def set_up_of(trace: Trace) -> str:
    """What the target of a trace was built with."""
    return SET_UP_AT[trace.level](trace)


def _pool_set_up(trace: Trace) -> str:
    return f"pool of {num_blocks_of(trace)}, {_caching(trace)}"


def _manager_set_up(trace: Trace) -> str:
    assert isinstance(trace.profile, ManagerProfile)
    blocks, size = num_blocks_of(trace), trace.options.get("block_size", 1)
    layout = trace.options.get("layout", trace.profile.layout_name)
    bits = trace.options.get(WEAK_HASHES)
    hashes = f", hashes cut to {bits} bits" if bits else ""
    return f"manager of {blocks} of {size} tokens, layout {layout}{hashes}, {_caching(trace)}"


def _engine_set_up(trace: Trace) -> str:
    assert isinstance(trace.profile, EngineProfile)
    blocks, size = num_blocks_of(trace), trace.options.get("block_size", 1)
    layout = trace.options.get("layout", trace.profile.layout_name)
    return f"engine with {blocks} of {size} tokens, set-up {layout}, {_caching(trace)}"


def _caching(trace: Trace) -> str:
    return f"caching {'on' if trace.enable_caching else 'off'}"


SET_UP_AT: Mapping[Level, Callable[[Trace], str]] = {
    Level.QUEUE: lambda trace: f"queue of {num_blocks_of(trace)}",
    Level.INDEX: lambda trace: f"index over {num_blocks_of(trace)}",
    Level.POOL: _pool_set_up,
    Level.MANAGER: _manager_set_up,
    Level.ENGINE: _engine_set_up,
}


def first_of(items: Sequence[object], most: int) -> str:
    """At most so many of them, and how many there are of more."""
    shown = ",".join(map(str, items[:most]))
    return shown if len(items) <= most else f"{shown},.. ({len(items):,})"


def shortened(items: Sequence[T], words: Callable[[T], str] = str) -> str:
    """Everything while it is short; of more, both ends and how many there are.

    `words` is only asked for what is shown.
    """
    if not items:
        return "-"
    if len(items) <= _MOST_IDS:
        return " ".join(map(words, items))
    first, last = (" ".join(map(words, end)) for end in (items[:6], items[-3:]))
    return f"{first} .. {last} ({len(items):,})"
