"""What a certificate must say that it does not show, so that a pass is never read as more.

Depends on the depth, on what the target lets us see, and on the options; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from poolproof.certification.attention_stage import STAGE as ATTENTION
from poolproof.certification.attention_stage import why_no_attention
from poolproof.certification.certificate import StageResult
from poolproof.certification.depths import BUDGETS
from poolproof.certification.description import Description, LayoutDescription
from poolproof.certification.exploration import reason_not_explored
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_plan import layouts_not_run
from poolproof.contract.manager_target import MANAGER_METHODS
from poolproof.contract.target import Capabilities
from poolproof.harness.extent import Extent

__all__ = ["NEVER_TRIED", "manager_not_covered", "not_covered", "not_run"]


_INFERRED = {
    "free_order": "the target shows no free_order(): I1 and ORD are inferred from what allocate() "
    "hands out, I4 from lookup()",
    "free_neighbours": "the target shows no free_neighbours(): LINK is not checked",
    "ref_count": "the target shows no ref_count(): OWN is inferred from num_free()",
    "block_hash": "the target shows no block_hash(): IDX is checked through lookup() alone",
}


NEVER_TRIED = (
    "calls from several threads or processes",
    "a call that is interrupted",
    "time (clocks, entries that expire)",
    "instances that are copied, pickled or restarted",
    "more than two instances at once",
    "a machine out of memory",
)
"""What no stage does at any level, whatever the target is."""


def not_covered(
    about: Description, options: CertifyOptions, stages: Sequence[StageResult]
) -> tuple[str, ...]:
    """What a pass at this depth leaves open, in whole sentences.

    How far runs went is taken from the `stages` that ran, and from nothing else.
    """
    if about.can is None:
        return ("nothing was driven: the target could not be constructed",)
    never = f"what no stage tries: {', '.join(NEVER_TRIED)}"
    return (*_by_level(about, options), *beyond(stages), never)


def beyond(stages: Sequence[StageResult]) -> Iterator[str]:
    """For each level, the sizes that some stage reached: nothing was tried beyond them."""
    for level in dict.fromkeys(stage.level for stage in stages):
        tried = Extent()
        for stage in stages:
            if stage.level == level:
                tried.take_in(stage.extent)
        sizes = [_range(name, low, high) for name, (low, high) in tried]
        if sizes:
            yield f"at {level} level, whatever is beyond: {'; '.join(sizes)}"


def _range(name: str, low: int, high: int) -> str:
    return f"{name} {low:,}" if low == high else f"{name} {low:,} to {high:,}"


def _by_level(about: Description, options: CertifyOptions) -> Sequence[str]:
    assert about.can is not None
    if about.level == "manager":
        return manager_not_covered(about)
    if about.level == "queue":
        return ("a free queue alone: reference counts, hashes and the prefix index are a pool's",)
    if about.level == "index":
        return ("an index alone: reference counts, the free queue and eviction are a pool's",)
    open_points = [
        (
            "whether a block was full and written when it was cached (I3), and what a request "
            "reads (DATA): the caller's duty at pool level, checked at manager level"
        ),
    ]
    scopes = BUDGETS[options.depth].scopes
    if scopes and reason_not_explored(about, scopes) is None:
        most = max(bounds.num_blocks for bounds in scopes)
        open_points.append(
            f"pools of more than {most} blocks, and more hashes and references than the exhaustive "
            "stages name: sampled, not visited state by state"
        )
    open_points += [sentence for name, sentence in _INFERRED.items() if not about.can.sees(name)]
    if about.profile.events != "none" and not about.can.sees("take_events"):
        open_points.append("events: the profile has them, but there is no take_events() (EVT)")
    if about.profile.misuse == "undefined" and not options.hardening:
        open_points.append("misuse: the profile leaves it undefined (see --hardening)")
    return open_points


def not_run(about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
    """Stages that this certification left out, each with the reason."""
    left_out = [("kernel level", "kernels are certified by `poolproof kernels`")]
    if about.level != "manager":
        left_out = [("manager and kernel levels", "the target is none of a manager or kernel")]
    no_attention = why_no_attention(about, options)
    if about.level not in ("queue", "index") and no_attention is not None:
        left_out.append((ATTENTION, no_attention))
    left_out += layouts_not_run(about, options)
    if about.level == "pool" and not about.has_queue:
        left_out.append(("queue level", "the target has no free queue of its own to be driven"))
    if about.level == "pool" and not about.has_index:
        left_out.append(("index level", "the target has no index of its own to be driven"))
    if about.level == "pool" and not about.takes_chains:
        length = about.profile.fixed_hash_bytes
        hashed = "the target hashes no tokens" + (f" to {length} bytes" if length else "")
        left_out.append(("token chains", f"{hashed}; hashes were opaque"))
    reason = reason_not_explored(about, BUDGETS[options.depth].scopes)
    if about.level == "pool" and reason is not None:
        left_out.append(("every state", reason))
    if about.level == "pool" and about.profile.misuse == "undefined" and not options.hardening:
        left_out.append(("hardening", "not asked for (--hardening)"))
    if options.in_process:
        left_out.append(("isolation", "turned off (--in-process): no limits were enforced"))
    return left_out


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
