"""What a user names as a target, read once: the allocator, and the rows of its profile to replace.

`impl[eviction=lifo,duplicates=first,null_block=0]` is such a text; the rows of a profile are
written in the same words. Whether rows and values exist is said by `contract.profile`, whether
there is such an allocator by `load.py`. `vllm[patch=fix.diff]` is the same allocator with a diff
applied to its sources in memory (`source_patch.py`). A built-in starts from the first value of each
row and what it adds, and assumes none: it is built to the profile that is stated.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from poolproof.contract.errors import OptionError
from poolproof.contract.outside import class_name
from poolproof.contract.profile import Profile, ProfileError
from poolproof.contract.target import TargetError

__all__ = ["TargetSpec", "builtin_profile", "profile_words"]


def profile_words(profile: Profile, rows: tuple[str, ...] | None = None) -> str:
    """The rows of a profile in one line, all but those assumed, or just the ones named."""
    values = profile.to_json()
    names = [name for name in values if name not in profile.assumed] if rows is None else rows
    return ", ".join(f"{name} {value_words(values[name])}" for name in names)


def value_words(value: object) -> str:
    """A value as it is; the groups of a manager as a target string takes them."""
    if not isinstance(value, list):
        return str(value)
    return "+".join(_group_words(group) for group in value)


def _group_words(group: dict[str, object]) -> str:
    """KIND[:WINDOW[:BLOCK_SIZE]]."""
    numbers = [group["window"], group["block_size"]] if group["block_size"] else [group["window"]]
    shown = [str(number) for number in numbers] if any(numbers) else []
    return ":".join([str(group["kind"]), *shown])


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """`base` is the name without its brackets, `rows` are what stands in them.

    `patch` is the path of a diff, which stands in the brackets as well. `cls` is there where a
    class was given and no name: it is used as it is.
    """

    base: str
    rows: Mapping[str, Any] = field(default_factory=dict)
    cls: type | None = None
    patch: str | None = None

    @classmethod
    def of(cls, target: str | type | TargetSpec) -> TargetSpec:
        """What names a target. Raises TargetError, and OptionError for what is no such thing."""
        if isinstance(target, TargetSpec):
            return target
        if isinstance(target, str):
            return cls.parse(target)
        if isinstance(target, type):
            return cls(f"{_place_of(target)}:{target.__qualname__}", cls=target)
        raise OptionError(
            "target must be a text such as 'impl', 'pool.py:Pool' or 'cmd:./program', or a class, "
            f"not an instance of {class_name(target)}"
        )

    @classmethod
    def parse(cls, text: str) -> TargetSpec:
        """The parts of a target string. Raises TargetError."""
        text = text.strip()
        if not text.endswith("]") or "[" not in text:
            return cls(text)
        base, _, inside = text[:-1].rpartition("[")
        rows: dict[str, Any] = {}
        for item in filter(None, (part.strip() for part in inside.split(","))):
            key, equals, value = (part.strip() for part in item.partition("="))
            if not equals or not key or not value:
                raise TargetError(
                    f"{item!r} in {text!r} is not key=value; write "
                    f"{base}[eviction=lifo,null_block=0]"
                )
            if key in rows:
                raise TargetError(f"{key!r} stands twice in {text!r}; keep one of them")
            rows[key] = value if key == _PATCH else _value(value)
        return cls(base, rows, patch=rows.pop(_PATCH, None))

    def with_rows(self, rows: Mapping[str, Any]) -> TargetSpec:
        """The same allocator with further rows, which take the place of its own."""
        return replace(self, rows={**self.rows, **rows})

    def with_patch(self, patch: str) -> TargetSpec:
        """The same allocator with a diff. Raises TargetError where it has one, or for its name."""
        if self.patch is not None:
            raise TargetError(
                f"{self.text} has the patch {self.patch} already; put both diffs into one file"
            )
        if not patch.strip() or patch != patch.strip() or set("[],") & set(patch):
            raise TargetError(
                f"{patch!r} cannot stand in the name of a target, because of its commas, brackets "
                "or blanks; give the patch another name"
            )
        return replace(self, patch=patch)

    @property
    def text(self) -> str:
        """The target string, which `parse` reads again."""
        inside = [f"{key}={value_words(value)}" for key, value in self.rows.items()]
        inside += [f"{_PATCH}={self.patch}"] if self.patch is not None else []
        return f"{self.base}[{','.join(inside)}]" if inside else self.base


def _value(text: str) -> Any:
    if text == "None":
        return None
    try:
        return int(text)
    except ValueError:
        return text


def _place_of(cls: type) -> str:
    """The module of a class where it can be imported by its name, else its file."""
    name = cls.__module__
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        return name
    try:
        spec = importlib.util.find_spec(name) if name != "__main__" else None
    except (ImportError, ValueError):
        spec = None
    return name if spec is not None and spec.origin == file else file


_PATCH = "patch"
"""The one key in brackets that is no row."""

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
