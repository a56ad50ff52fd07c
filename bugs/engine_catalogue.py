"""All specimens of the engine level, by id, and those that a certification plants first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from poolproof.bugs.engine_notice_bugs import ENGINE_NOTICE_BUGS
from poolproof.bugs.engine_progress_bugs import ENGINE_PROGRESS_BUGS
from poolproof.bugs.engine_specimen import EngineSpecimen
from poolproof.bugs.engine_state_bugs import ENGINE_STATE_BUGS
from poolproof.bugs.engine_state_transfer_bugs import ENGINE_STATE_TRANSFER_BUGS
from poolproof.bugs.engine_step_bugs import ENGINE_STEP_BUGS
from poolproof.bugs.engine_transfer_bugs import ENGINE_TRANSFER_BUGS
from poolproof.bugs.engine_worker_bugs import ENGINE_WORKER_BUGS
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.target import Capabilities

__all__ = ["ENGINE_SPECIMENS", "engine_canaries"]

ENGINE_SPECIMENS: dict[str, EngineSpecimen] = {
    **ENGINE_STEP_BUGS,
    **ENGINE_TRANSFER_BUGS,
    **ENGINE_NOTICE_BUGS,
    **ENGINE_PROGRESS_BUGS,
    **ENGINE_WORKER_BUGS,
    **ENGINE_STATE_BUGS,
    **ENGINE_STATE_TRANSFER_BUGS,
}


def engine_canaries(profile: EngineProfile, can: Capabilities) -> list[EngineSpecimen]:
    """Planted bugs of different kinds that a campaign against such an engine must catch, up to 6.

    Bugs that need a verb which the target does not have are left out.
    """
    usable = [
        found
        for found, can_show in ((ENGINE_SPECIMENS[name], _CANARIES[name]) for name in _CANARIES)
        if found.is_bug_under(profile) and can_show(profile, can)
    ]
    return usable[:6]


def _always(_profile: EngineProfile, _can: Capabilities) -> bool:
    return True


def _preempts(profile: EngineProfile, _can: Capabilities) -> bool:
    """Whether anybody has to give way: who runs alone has room for all that may come of it."""
    return profile.max_running > 1


def _cancels(_profile: EngineProfile, can: Capabilities) -> bool:
    return "cancel" in can.verbs


def _finds_prefixes(profile: EngineProfile, _can: Capabilities) -> bool:
    """Whether our own engine finds any: at ends of blocks of states, which long ones never have."""
    return all(group.block_size <= _LONG for group in profile.groups if group.is_state)


_LONG = 64
"""Tokens of a block that prompts of usual runs still fill."""

_CANARIES: Mapping[str, Callable[[EngineProfile, Capabilities], bool]] = {
    "S8": _preempts,  # DATA
    "S118": _finds_prefixes,  # PLAN
    "S12": _preempts,  # OUT
    "S120": _cancels,  # LEAK, or LIVE where nobody sees what is free
    "S25": _always,  # under asynchronous scheduling
    "S28": _always,  # with drafts
    "S129": _always,  # with prompts in chunks
}
"""What a target must do for each to show."""
