"""The profile of a built-in target: the first value of each row, what it adds, what the user asks.

No row of a built-in is assumed: it is built to the profile that is stated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.target import TargetError

__all__ = ["builtin_profile"]


ProfileT = TypeVar("ProfileT", bound=Profile)


def builtin_profile(
    name: str,
    own: Mapping[str, Any],
    overrides: Mapping[str, Any],
    kind: type[ProfileT],
) -> ProfileT:
    """The profile of the built-in `name`. Raises TargetError for an unknown row or value."""
    try:
        return kind.from_mapping({**kind().to_json(), **own, **overrides})
    except ProfileError as error:
        raise TargetError(f"{name}: {error}") from error
