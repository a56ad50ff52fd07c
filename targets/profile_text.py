"""The rows of a profile as text, in one line and as a target string takes them."""

from __future__ import annotations

from poolproof.contract.profile import Profile

__all__ = ["profile_words", "value_words"]


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
