"""Words that all forms of a report share: severities, statuses, sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.text import Text

from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.outside import printable
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.harness.weak_hashes import WEAK_HASHES

__all__ = [
    "in_a_template",
    "num_blocks_of",
    "set_up_of",
    "severity_words",
    "shell_line",
    "shortened",
]


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
}


def severity_words(severity: Severity) -> str:
    """A severity in words."""
    return _SEVERITY_WORDS[severity]


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


def _caching(trace: Trace) -> str:
    return f"caching {'on' if trace.enable_caching else 'off'}"


SET_UP_AT: Mapping[Level, Callable[[Trace], str]] = {
    Level.QUEUE: lambda trace: f"queue of {num_blocks_of(trace)}",
    Level.INDEX: lambda trace: f"index over {num_blocks_of(trace)}",
    Level.POOL: _pool_set_up,
    Level.MANAGER: _manager_set_up,
}


def in_a_template(value: object) -> object:
    """What a template writes of a value: texts printable, for jinja2's `finalize`."""
    # Not of a subclass: Markup is text of ours.
    return printable(value) if type(value) is str else value


def shortened(items: Sequence[str]) -> str:
    """Everything while it is short; of more, both ends and how many there are."""
    if not items:
        return "-"
    if len(items) <= _MOST_IDS:
        return " ".join(items)
    return f"{' '.join(items[:6])} .. {' '.join(items[-3:])} ({len(items):,})"


def shell_line(label: str, command: str, label_width: int, indent: int = 0) -> Text:
    """A label, and from column `indent + label_width + 2` on the command, never wrapped."""
    line = Text(" " * indent, no_wrap=True, overflow="ignore")
    line.append(label.ljust(label_width), style="dim")
    return line.append(f"  {printable(command)}")
