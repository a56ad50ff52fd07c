"""The errors that a caller of Poolproof can fix; every other exception is a bug of ours.

`TargetError`, `TraceError`, `ProfileError` and the errors of files are defined next to what they
concern, and all of them derive from `PoolproofError`.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = ["OptionError", "PoolproofError", "known_class"]

E = TypeVar("E", bound="PoolproofError")


class PoolproofError(Exception):
    """Something that the caller can mend; the message says what is wrong, where, and what to do."""


class OptionError(PoolproofError, ValueError):
    """An argument with a value that is not allowed; the message names both, and what is allowed."""


def known_class(error: BaseException) -> type[PoolproofError] | None:
    """The nearest class of an exception that is one of these errors and ours; None if none is."""
    for kind in type(error).__mro__:
        is_ours = kind.__module__.partition(".")[0] == "poolproof"
        if is_ours and PoolproofError in kind.__mro__:
            return kind
    return None
