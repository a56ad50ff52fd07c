"""All specimens by id, and those that serve as canaries under a profile.

`SPECIMENS` are those of the queue and pool levels, `INDEX_SPECIMENS` those of the index level,
`MANAGER_SPECIMENS` those of the manager level; no id stands in two of them.
"""

from __future__ import annotations

from poolproof.bugs.index_bugs import INDEX_BUGS
from poolproof.bugs.lone_bugs import LONE_BUGS, LONE_MANAGER_BUGS
from poolproof.bugs.manager_admission_bugs import MANAGER_ADMISSION_BUGS
from poolproof.bugs.manager_index_bugs import MANAGER_INDEX_BUGS
from poolproof.bugs.manager_lifecycle_bugs import MANAGER_LIFECYCLE_BUGS
from poolproof.bugs.manager_reference_bugs import MANAGER_REFERENCE_BUGS
from poolproof.bugs.manager_sharing_bugs import MANAGER_SHARING_BUGS
from poolproof.bugs.manager_window_bugs import MANAGER_WINDOW_BUGS
from poolproof.bugs.nano_bugs import NANO_BUGS
from poolproof.bugs.prefix_index_bugs import PREFIX_INDEX_BUGS
from poolproof.bugs.queue_bugs import QUEUE_BUGS
from poolproof.bugs.reference_bugs import REFERENCE_BUGS
from poolproof.bugs.specimen import ManagerSpecimen, Specimen
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities

__all__ = [
    "INDEX_SPECIMENS",
    "MANAGER_SPECIMENS",
    "SPECIMENS",
    "canaries",
    "index_canaries",
    "manager_canaries",
    "manager_specimen",
    "queue_canaries",
    "specimen",
]

SPECIMENS: dict[str, Specimen] = {
    **REFERENCE_BUGS,
    **PREFIX_INDEX_BUGS,
    **QUEUE_BUGS,
    **LONE_BUGS,
}

INDEX_SPECIMENS: dict[str, Specimen] = {**INDEX_BUGS}

MANAGER_SPECIMENS: dict[str, ManagerSpecimen] = {
    **MANAGER_REFERENCE_BUGS,
    **MANAGER_ADMISSION_BUGS,
    **MANAGER_INDEX_BUGS,
    **MANAGER_SHARING_BUGS,
    **MANAGER_WINDOW_BUGS,
    **MANAGER_LIFECYCLE_BUGS,
    **NANO_BUGS,
    **LONE_MANAGER_BUGS,
}

_CANARIES = ("A1", "A12", "A6", "D1", "D6", "E1", "A25", "J1", "A32", "B14")
_QUEUE_CANARIES = ("Q1", "Q3", "Q4", "Q6")
_INDEX_CANARIES = ("K2", "K1", "K4", "K7", "K9")
_MANAGER_CANARIES = (
    "D1-manager", "C4", "B2", "A7", "F2", "D13", "B27", "B1", "A18", "B18", "G3", "B6", "D1-window",
    "G3-hybrid", "D1-hybrid", "A8-manager", "B7",
)  # fmt: skip


def specimen(specimen_id: str) -> Specimen:
    """The specimen of that id. Raises ValueError, with the known ids, for an unknown one."""
    if specimen_id not in SPECIMENS:
        raise ValueError(f"no specimen {specimen_id!r}; known are {', '.join(SPECIMENS)}")
    return SPECIMENS[specimen_id]


def manager_specimen(specimen_id: str) -> ManagerSpecimen:
    """The same for specimens of the manager level."""
    if specimen_id not in MANAGER_SPECIMENS:
        known = ", ".join(MANAGER_SPECIMENS)
        raise ValueError(f"no manager specimen {specimen_id!r}; known are {known}")
    return MANAGER_SPECIMENS[specimen_id]


def canaries(profile: Profile) -> list[Specimen]:
    """Planted bugs of different kinds that a campaign under this profile must catch, 6 to 8."""
    usable = [SPECIMENS[name] for name in _CANARIES if SPECIMENS[name].is_bug_under(profile)]
    return usable[:8]


def queue_canaries() -> list[Specimen]:
    """Planted bugs that a campaign at queue level must catch."""
    return [SPECIMENS[name] for name in _QUEUE_CANARIES]


def index_canaries(profile: Profile) -> list[Specimen]:
    """Planted bugs that a campaign at index level under this profile must catch."""
    usable = (INDEX_SPECIMENS[name] for name in _INDEX_CANARIES)
    return [found for found in usable if found.is_bug_under(profile)]


def manager_canaries(profile: ManagerProfile, can: Capabilities) -> list[ManagerSpecimen]:
    """Planted bugs of different kinds that a campaign against such a manager must catch, up to 6.

    Bugs that need a verb which the target does not have are left out.
    """
    usable = [
        found
        for found in (MANAGER_SPECIMENS[name] for name in _MANAGER_CANARIES)
        if found.is_bug_under(profile) and found.verbs <= can.verbs
    ]
    return usable[:6]
