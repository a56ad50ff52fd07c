"""Bugs of engines with several workers, and of what is made of notices of their transfers.

Ranks that move nothing, that nobody waits for or whose failure is overheard, ends that are told
again, and failures behind which something had been moved all the same.
"""

from __future__ import annotations

from typing import Any

from poolproof.bugs.clean_engine import RestoresWhatFailed
from poolproof.bugs.engine_specimen import EngineSection
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.violation import Severity
from poolproof.impl.engine import Engine
from poolproof.impl.offloading import RankNotices

__all__ = ["ENGINE_NOTICE_BUGS"]

ENGINE_NOTICE_BUGS = EngineSection()

ANOTHER = Severity.WRONG_DATA_OF_ANOTHER
RANKS = EngineProfile(null_block=0, ranks=2)
REPEATS = EngineProfile(null_block=0, notices="may-repeat")
REPEATED_RANKS = EngineProfile(null_block=0, ranks=2, notices="may-repeat")


def has_ranks(profile: EngineProfile) -> bool:
    """The bug needs more than one worker."""
    return profile.ranks > 1


def may_fail_on_a_rank(profile: EngineProfile) -> bool:
    """The bug needs a transfer that is lost on one of several workers."""
    return has_ranks(profile) and profile.transfers == "may-fail"


def may_repeat(profile: EngineProfile) -> bool:
    """The bug needs ends that are told again."""
    return profile.notices == "may-repeat"


def has_repeated_ranks(profile: EngineProfile) -> bool:
    """The bug needs both."""
    return has_ranks(profile) and may_repeat(profile)


def may_move_some(profile: EngineProfile) -> bool:
    """The bug needs transfers that are lost on their way."""
    return profile.transfers == "may-fail" and profile.lost_transfers == "move-some"


def plant(*names: str, places: int = 16, **more: Any) -> Any:
    """A specimen that needs host memory."""
    return ENGINE_NOTICE_BUGS.plant(*names, host_places=places, **more)


@plant(
    "S188", "only the first rank loads its part of the blocks",
    thread="unified-cache-management#716", invariants=("DATA",), severity=ANOTHER, profile=RANKS,
    is_bug_under=has_ranks,
)  # fmt: skip
class LoadsOnTheFirstRank(Engine):
    """The others are told that they have it, as if it were handed on to them."""

    def _begin_transfers(self) -> list[dict[str, Any]]:
        transfers = super()._begin_transfers()
        return [
            {**one, "blocks": [], "places": []} if one["kind"] == "load" and one["rank"] else one
            for one in transfers
        ]


@plant(
    "S189", "a transfer is over once the first of the ranks says so",
    thread="vllm#53781", invariants=("DATA",), severity=ANOTHER, profile=RANKS,
    is_bug_under=has_ranks,
)  # fmt: skip
class FirstRankIsEnough(Engine):
    """The request is computed while another rank still waits for its part."""

    class Notices(RankNotices):
        """Who comes later is overheard."""

        def heard(self, transfer_id: int, is_done: bool) -> tuple[int, bool] | None:
            number = transfer_id // self.num_ranks
            return (number, is_done) if self._missing.pop(number, None) else None

    rank_notices_class = Notices


@plant(
    "S190", "a load that failed on one rank is done if another one has it",
    thread="vllm-omni#5636", invariants=("DATA",), severity=ANOTHER, profile=RANKS,
    is_bug_under=may_fail_on_a_rank,
)  # fmt: skip
class AnyRankDecides(Engine):
    """Each rank goes on with what it has."""

    class Notices(RankNotices):
        """The last one speaks for all."""

        def heard(self, transfer_id: int, is_done: bool) -> tuple[int, bool] | None:
            over = super().heard(transfer_id, is_done)
            return over and (over[0], is_done)

    rank_notices_class = Notices


@plant(
    "S191", "a rank that has nothing to move never says that it has moved it",
    thread="vllm#53903", invariants=("LEAK", "LIVE"), severity=Severity.STALL, profile=RANKS,
    is_bug_under=has_ranks,
)  # fmt: skip
class WaitsForSilentRanks(Engine):
    """Everybody keeps the same copy, so one rank stores it, and all are waited for."""

    def _begin_transfers(self) -> list[dict[str, Any]]:
        transfers = super()._begin_transfers()
        return [one for one in transfers if one["kind"] == "load" or not one["rank"]]


@plant(
    "S192", "an end that is told again counts as that of another rank",
    thread="vllm-ascend#14407", invariants=("DATA",), severity=ANOTHER, profile=REPEATED_RANKS,
    is_bug_under=has_repeated_ranks,
)  # fmt: skip
class CountsNotices(Engine):
    """As many notices as ranks are taken for one of each."""

    class Notices(RankNotices):
        """Any of the missing ones is crossed out."""

        def heard(self, transfer_id: int, is_done: bool) -> tuple[int, bool] | None:
            number = transfer_id // self.num_ranks
            rank = min(self._missing.get(number, {0}))
            return super().heard(number * self.num_ranks + rank, is_done)

    rank_notices_class = Notices


@plant(
    "S193", "an end that is told again ends the engine",
    thread="vllm#54518", also=("vllm#53079",), invariants=("CRASH",), severity=Severity.CRASH,
    silent=False, profile=REPEATS, is_bug_under=may_repeat,
)  # fmt: skip
class EndsOnce(Engine):
    """What is not in flight cannot have ended."""

    class Notices(RankNotices):
        """It must be known."""

        def heard(self, transfer_id: int, is_done: bool) -> tuple[int, bool] | None:
            number, rank = divmod(transfer_id, self.num_ranks)
            assert rank in self._missing.get(number, ()), f"transfer {transfer_id} is not in flight"
            return super().heard(transfer_id, is_done)

    rank_notices_class = Notices


@plant(
    "S194", "a store that failed is thought to have left its places as they were",
    thread="LMCache#4991", invariants=("DATA",), severity=ANOTHER, is_bug_under=may_move_some,
    places=3,
)  # fmt: skip
class TrustsFailedStores(RestoresWhatFailed):
    """Its first blocks may have been written before it failed."""
