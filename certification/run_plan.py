"""Which kinds of runs a target is driven with, and which of its layouts are left out.

Decided from what was seen of the target and from what the user asked for; nothing is run here.
"""

from __future__ import annotations

from poolproof.certification.description import Description
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import CHAINS, INDEX, POOL, QUEUE, RunKind
from poolproof.contract.target import TargetError
from poolproof.targets.profile_text import profile_words

__all__ = ["kinds_of", "layout_notes", "layouts_not_run"]


def kinds_of(about: Description, options: CertifyOptions) -> list[RunKind]:
    """The kinds of runs, in the order in which they are driven.

    Raises TargetError for a layout that the target does not have, or that cannot be run.
    """
    _check_layouts(about, options.layouts)
    if about.level == "manager":
        asked = options.layouts or tuple(layout.name for layout in about.layouts)
        return [
            layout.kind for layout in about.layouts if layout.name in asked and not layout.why_not
        ]
    kinds = [QUEUE] * (about.has_queue or about.level == "queue")
    kinds += [INDEX] * (about.has_index or about.level == "index")
    return kinds + [POOL] * (about.level == "pool") + [CHAINS] * about.takes_chains


def layouts_not_run(about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
    """The layouts that are left out, each with the reason."""
    left_out = []
    for layout in about.layouts:
        if layout.why_not:
            left_out.append((f"layout {layout.name}", layout.why_not))
        elif options.layouts and layout.name not in options.layouts:
            left_out.append((f"layout {layout.name}", "not asked for (--layout)"))
    return left_out


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
    if asked and about.level != "manager":
        raise TargetError(f"{about.name} is a {about.level} target; leave out --layout")
    reasons = {layout.name: layout.why_not for layout in about.layouts}
    for name in asked:
        if name not in reasons:
            raise TargetError(f"{about.name} has no layout {name!r}; it has {', '.join(reasons)}")
        if reasons[name]:
            raise TargetError(f"layout {name} of {about.name} is not run: {reasons[name]}")
