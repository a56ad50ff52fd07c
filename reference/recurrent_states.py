"""What recurrent states require of an admission and of a step, besides the other cache groups.

A state represents a whole prefix and is read when a forward pass begins, so no sequence can start
from a state that the same step has yet to write. If a step leaves only one state, at its end
(`states` is "step-end" in the profile), it may not pass the end of the block in which it began, or
that block would keep a state in its middle under the key of its end.
"""

from __future__ import annotations

from poolproof.contract.manager_profile import CacheGroup
from poolproof.reference.sequence_model import SequenceModel, SequenceState

__all__ = ["furthest_end", "has_state", "waits_for_state"]


def has_state(groups: tuple[CacheGroup, ...]) -> bool:
    """Whether one of the groups holds states."""
    return any(group.kind == "state" for group in groups)


def waits_for_state(model: SequenceModel, sequence: SequenceState, cached: int) -> bool:
    """Whether a hit of `cached` tokens may be put off until the next step.

    It would start from a state that this step writes, or from which somebody goes on in it: vLLM
    counts the state at a prompt's last block end as cached anew whenever the prompt is scheduled.
    """
    if not cached or model.profile.states != "step-end" or not has_state(model.groups):
        return False
    busy = [other for other in model.sequences.values() if other.num_scheduled]
    return any(
        block in other.tables[group]
        for group, kind in enumerate(model.groups)
        if kind.kind == "state"
        for entry in model.hit_entries(group, cached)
        for block in model.pool.lookup(model.key(sequence, group, entry))
        for other in busy
    )


def furthest_end(model: SequenceModel, sequence: SequenceState) -> int | None:
    """The last position + 1 to which one step may compute the sequence; None: any."""
    if model.profile.states != "step-end" or not has_state(model.groups):
        return None
    end = sequence.num_computed + sequence.num_scheduled
    size = max(s for s, kind in zip(model.block_sizes, model.groups) if kind.kind == "state")
    if sequence.num_scheduled or end % size:
        return -(-end // size) * size
    return None
