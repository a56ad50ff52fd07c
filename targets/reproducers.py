"""The reproducers of the targets that have one of their own; all others are classes by name."""

from __future__ import annotations

from collections.abc import Mapping

from poolproof.targets.impl_engine import IMPL_ENGINE_REPRODUCER
from poolproof.targets.played_recording import RECORDING_PREFIX
from poolproof.targets.reproducer import Reproducer, native_reproducer
from poolproof.targets.target_spec import TargetSpec
from poolproof.targets.vllm_engine_reproducer import VLLM_ENGINE_REPRODUCER

__all__ = ["reproducer_of"]

REPRODUCERS: Mapping[str, Reproducer] = {
    "impl-engine": IMPL_ENGINE_REPRODUCER,
    "vllm-engine": VLLM_ENGINE_REPRODUCER,
}
"""By the names under which `load.py` builds these targets."""


def reproducer_of(target: str) -> Reproducer | None:
    """What the target that a text names adds to a written test; nothing of it is imported.

    None for a target that no file of Python can import, such as a program or a recording.
    """
    base = TargetSpec.parse(target).base
    if base.startswith(RECORDING_PREFIX):
        return None
    known = REPRODUCERS.get(base)
    if known is not None:
        return known
    place, _, name = base.rpartition(":")
    return native_reproducer(place, name)
