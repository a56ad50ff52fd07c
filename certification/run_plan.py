"""Which kinds of runs a target is driven with, and which of its layouts are left out.

Decided from what was seen of the target and from what the user asked for; nothing is run here.
"""

from __future__ import annotations

from poolproof.certification.description import Description
from poolproof.certification.levels import LEVELS
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import RunKind
from poolproof.contract.target import TargetError
from poolproof.targets.target_spec import profile_words

__all__ = ["kinds_of", "layout_notes"]


def kinds_of(about: Description, options: CertifyOptions) -> list[RunKind]:
    """The kinds of runs, in the order in which they are driven.

    Raises TargetError for a layout that the target does not have, or that cannot be run.
    """
    _check_layouts(about, options.layouts)
    kinds = [kind for level in LEVELS.values() for kind in level.kinds(about)]
    return [kind for kind in kinds if not options.layouts or kind.layout in options.layouts]


def layout_notes(about: Description) -> list[str]:
    """In what the profiles of layouts differ from the one printed; blocks that they do not take."""
    first = about.profile.to_json()
    notes = []
    for layout in about.layouts:
        rows = layout.profile.to_json()
        differ = tuple(name for name in rows if rows[name] != first[name])
        if differ and not layout.why_not:
            notes.append(f"layout {layout.name}: {profile_words(layout.profile, differ)}")
        if layout.refused_block_sizes:
            sizes = ", ".join(map(str, layout.refused_block_sizes))
            notes.append(f"layout {layout.name}: not built with {sizes} tokens a block, it raised")
    return notes


def _check_layouts(about: Description, asked: tuple[str, ...]) -> None:
    if asked and not about.level.has_sequences:
        raise TargetError(f"{about.name} is {about.level.with_article} target; leave out --layout")
    reasons = {layout.name: layout.why_not for layout in about.layouts}
    for name in asked:
        if name not in reasons:
            raise TargetError(f"{about.name} has no layout {name!r}; it has {', '.join(reasons)}")
        if reasons[name]:
            raise TargetError(f"layout {name} of {about.name} is not run: {reasons[name]}")
