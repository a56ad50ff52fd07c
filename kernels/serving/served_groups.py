"""Which cache groups of a manager can be served through a paged kernel.

A paged kernel reads full attention and sliding windows; what it reads of them is in `forward.py`.
"""

from __future__ import annotations

from poolproof.contract.manager_profile import ManagerProfile

__all__ = ["why_not_served", "windows_of"]


def why_not_served(profile: ManagerProfile) -> str | None:
    """Why managers of this profile cannot be driven here; None where they can."""
    kinds = {group.kind for group in profile.groups} - {"full", "sliding"}
    if kinds:
        return f"{' and '.join(sorted(kinds))} groups are nothing that a paged kernel reads"
    return None


def windows_of(profile: ManagerProfile) -> tuple[int | None, ...]:
    """The sliding window of each group, None for full attention."""
    return tuple(group.window if group.kind == "sliding" else None for group in profile.groups)
