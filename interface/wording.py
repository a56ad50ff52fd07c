"""Words that all forms of a report share: severities, statuses, sizes."""

from __future__ import annotations

from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity

__all__ = ["printable", "profile_words", "set_up_of", "severity_words"]

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
    """What a person reads for a severity."""
    return _SEVERITY_WORDS[severity]


def set_up_of(trace: Trace) -> str:
    """What the target of a trace was built with."""
    blocks = f"{trace.num_blocks} block" + ("s" if trace.num_blocks != 1 else "")
    if trace.level == "queue":
        return f"queue of {blocks}"
    return f"pool of {blocks}, caching {'on' if trace.enable_caching else 'off'}"


def profile_words(profile: Profile, rows: tuple[str, ...] | None = None) -> str:
    """The rows of a profile in one line, all but those assumed, or just the ones named."""
    values = profile.to_json()
    names = [name for name in values if name not in profile.assumed] if rows is None else rows
    return ", ".join(f"{name} {values[name]}" for name in names)


def printable(text: str) -> str:
    """Text from outside, made safe for a terminal: control characters are shown, not obeyed."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
