"""What a certificate of a manager must say that it does not show.

Depends on the verbs that the target has and on what it lets us see; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Iterator

from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.target import Capabilities
from poolproof.description import Description, LayoutDescription

__all__ = ["manager_not_covered"]

_UNSEEN = {
    "num_free": "the target shows no num_free(): leaks and wrong counts (LEAK, OWN) show only as "
    "refusals of what should fit",
    "free_order": "the target shows no free_order(): ORD and I1 are inferred from the blocks that "
    "tables name",
    "ref_count": "the target shows no ref_count(): OWN is inferred from tables",
    "is_cached": "the target shows no is_cached(): IDX and I4 are checked through hits alone",
}
_ALWAYS = (
    "whether the engine calls its manager as the contract says, and what kernels do with tables",
    "misuse: only legal calls were made",
)


def manager_not_covered(about: Description) -> tuple[str, ...]:
    """What a pass leaves open, in whole sentences."""
    assert about.can is not None
    return (
        *_ALWAYS,
        *(sentence for name, sentence in _UNSEEN.items() if not about.can.sees(name)),
        *_verbs(about.can),
        *_rows(about),
    )


def _verbs(can: Capabilities) -> Iterator[str]:
    # To resume is to admit again, where the target can preempt.
    lacking = [m for verb, m in MANAGER_METHODS.items() if verb not in (*can.verbs, "resume")]
    if lacking:
        yield f"verbs that the target lacks: {', '.join(lacking)}"


def _rows(about: Description) -> Iterator[str]:
    """Rows by which the profile promises less than could be checked."""
    for layout in about.layouts:
        for reason in _promises_less(layout):
            yield f"layout {layout.name}: {reason}"


def _promises_less(layout: LayoutDescription) -> Iterator[str]:
    profile = layout.profile
    if layout.why_not:
        return
    if profile.admission == "sound":
        yield "admission=sound, so that refusals of what would fit were not judged (ADM)"
    if profile.hits == "sound":
        yield "hits=sound, so that missed hits were not judged (I4)"
    for row in ("eviction", "release_order"):
        if getattr(profile, row) == "unspecified":
            yield f"{row}=unspecified, so that no order was judged (ORD)"
    if profile.publishes == "never":
        yield "publishes=never: there is no prefix cache"
