"""What a certificate does not cover, stated so that a pass is never read as more than it is.

Depends on the depth, on what the target lets us see, and on the options; nothing is run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from poolproof.certification.attention_stage import STAGE as ATTENTION
from poolproof.certification.attention_stage import why_no_attention
from poolproof.certification.certificate import StageResult
from poolproof.certification.description import Description
from poolproof.certification.levels import LEVELS
from poolproof.certification.options import CertifyOptions
from poolproof.harness.extent import Extent

__all__ = ["NEVER_TRIED", "not_covered", "not_run"]


NEVER_TRIED = (
    "calls from several threads or processes",
    "a call that is interrupted",
    "time (clocks, entries that expire)",
    "instances that are copied, pickled or restarted",
    "more than two instances at once",
    "a machine out of memory",
)
"""What no stage does at any depth, whatever the target is."""


def not_covered(
    about: Description, options: CertifyOptions, stages: Sequence[StageResult]
) -> tuple[str, ...]:
    """What a pass at this depth leaves open, in whole sentences.

    How far runs went is taken from the `stages` that ran, and from nothing else.
    """
    if about.can is None:
        return ("nothing was driven: the target could not be constructed",)
    never = f"what no stage tries: {', '.join(NEVER_TRIED)}"
    return (*LEVELS[about.level].open_points(about, options), *beyond(stages), never)


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


def not_run(about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
    """Stages that this certification left out, each with the reason."""
    left_out = [("kernel level", "kernels are certified by `poolproof kernels`")]
    if not about.level.has_sequences:
        left_out = [("manager and kernel levels", "the target is none of a manager or kernel")]
    no_attention = why_no_attention(about, options)
    if not about.level.is_part and no_attention is not None:
        left_out.append((ATTENTION, no_attention))
    left_out += LEVELS[about.level].left_out(about, options)
    if options.in_process:
        left_out.append(("isolation", "turned off (--in-process): no limits were enforced"))
    return left_out
