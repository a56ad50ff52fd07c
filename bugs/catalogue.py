"""All specimens by id, and those that serve as canaries under a profile."""

from __future__ import annotations

from poolproof.bugs.event_bugs import EVENT_BUGS
from poolproof.bugs.eviction_bugs import EVICTION_BUGS
from poolproof.bugs.free_queue_bugs import FREE_QUEUE_BUGS
from poolproof.bugs.prefix_index_bugs import PREFIX_INDEX_BUGS
from poolproof.bugs.queue_bugs import QUEUE_BUGS
from poolproof.bugs.reference_count_bugs import REFERENCE_COUNT_BUGS
from poolproof.bugs.specimen import Specimen
from poolproof.contract.profile import Profile

__all__ = ["SPECIMENS", "canaries", "queue_canaries", "specimen"]

SPECIMENS: dict[str, Specimen] = {
    **REFERENCE_COUNT_BUGS,
    **FREE_QUEUE_BUGS,
    **PREFIX_INDEX_BUGS,
    **EVICTION_BUGS,
    **EVENT_BUGS,
    **QUEUE_BUGS,
}

_CANARIES = ("A1", "A12", "A6", "D1", "D6", "E1", "A25", "J1", "A32", "B14")
_QUEUE_CANARIES = ("Q1", "Q3", "Q4", "Q6")


def specimen(specimen_id: str) -> Specimen:
    """The specimen of that id. Raises ValueError, with the known ids, for an unknown one."""
    if specimen_id not in SPECIMENS:
        raise ValueError(f"no specimen {specimen_id!r}; known are {', '.join(SPECIMENS)}")
    return SPECIMENS[specimen_id]


def canaries(profile: Profile) -> list[Specimen]:
    """Planted bugs of different kinds that a campaign under this profile must catch, 6 to 8."""
    usable = [SPECIMENS[name] for name in _CANARIES if SPECIMENS[name].is_bug_under(profile)]
    return usable[:8]


def queue_canaries() -> list[Specimen]:
    """Planted bugs that a campaign at queue level must catch."""
    return [SPECIMENS[name] for name in _QUEUE_CANARIES]
