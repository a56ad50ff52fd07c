"""Bugs of the nano-vLLM shape: its published algorithm, and what later versions broke."""

from __future__ import annotations

from poolproof.bugs.clean_manager import CleanSequence
from poolproof.bugs.clean_nano import CleanNanoManager
from poolproof.bugs.specimen import ManagerSection
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.violation import Severity

__all__ = ["NANO", "NANO_BUGS", "PUBLISHED_NANO"]

NANO_BUGS = ManagerSection()
plant = NANO_BUGS.plant

NANO = ManagerProfile(duplicates="last")
PUBLISHED_NANO = ManagerProfile(
    duplicates="last", publishes="scheduled", same_step_hit="allowed", full_hit="allowed"
)
"""As it was first published: keys are entered when blocks are taken, all KV of a step is written
before it is read, and a prompt may be cached to its end."""


@plant(
    "D1-nano", "the map still names a block that was recycled",
    thread="nano-vllm#163", also=("nano-vllm#153", "MinivLLM#87"), invariants=("DATA", "IDX"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=PUBLISHED_NANO,
)  # fmt: skip
class RecycledBlockStaysInMap(CleanNanoManager):
    """The comparison of its tokens hides it, until equal tokens stand behind another prefix."""

    def _forget_entry(self, block: int) -> None:
        pass


@plant(
    "C13", "a hit that nobody holds goes through the reset and loses its hash",
    thread="nano-vllm@f64d821", also=("nano-vllm@9fa256a (fixed)",),
    invariants=("DATA", "IDX", "I4"),
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    profile=ManagerProfile(duplicates="last", hits="sound"),
    is_bug_under=lambda p: p.publishes == "computed",
)  # fmt: skip
class RevivalResets(CleanNanoManager):
    """The next block continues the chain from no parent and is found as a first block."""

    def _revive(self, block: int) -> None:
        super()._revive(block)
        self.blocks[block].forget()


@plant(
    "D3-nano", "a hit that nobody holds loses its hash, and the prefix is found no more",
    thread="ATOM#902", also=("nano-vllm@9fa256a",), invariants=("I4", "DATA", "ADM"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=NANO,
    is_bug_under=lambda p: p.publishes == "computed" and p.hits == "exact",
)  # fmt: skip
class RevivalLosesHit(RevivalResets):
    """The same slip as C13, where every hit that is lost counts."""


@plant(
    "B4", "hits that wait in the free queue cost nothing",
    thread="ATOM#902", also=("ATOM#234", "vllm#11565 (B2)"), invariants=("CRASH",),
    severity=Severity.CRASH, silent=False, profile=NANO,
)  # fmt: skip
class FreeHitsNotCharged(CleanNanoManager):
    """No free blocks in the middle of an admission."""

    def _can_allocate(self, sequence: CleanSequence, hits: list[int]) -> bool:
        return self._num_blocks(len(sequence.tokens)) - len(hits) <= len(self.free)


@plant(
    "B5-nano", "an admission compares the free blocks with all that it needs",
    thread="nano-vllm@f64d821", invariants=("ADM",), severity=Severity.FALSE_REFUSAL, profile=NANO,
    is_bug_under=lambda p: p.admission == "exact" and p.hits == "exact",
)  # fmt: skip
class IgnoresSharing(CleanNanoManager):
    """A prompt that is shared whole is refused."""

    def _can_allocate(self, sequence: CleanSequence, hits: list[int]) -> bool:
        del hits
        return self._num_blocks(len(sequence.tokens)) <= len(self.free)


@plant(
    "B28", "a block is asked for when the last one is full, not when a token stands beyond it",
    thread="nano-vllm#30", also=("nano-vllm#91", "nano-vllm#150"), invariants=("ADM", "CRASH"),
    severity=Severity.WRONG_DATA_OF_ANOTHER, profile=NANO,
)  # fmt: skip
class OffByOne(CleanNanoManager):
    """What readers took for a bug is right (the token is there already); this is the mistake."""

    def _may_append(self, sequence: CleanSequence) -> None:
        if len(sequence.tokens) % self.block_size == 0:
            sequence.table.append(self._allocate())


@plant(
    "B28-check", "only the check asks one token too late",
    thread="nano-vllm#30", invariants=("CRASH",), severity=Severity.CRASH, silent=False,
    profile=NANO,
)  # fmt: skip
class CheckOffByOne(CleanNanoManager):
    """The check says that no block is needed, and one is taken."""

    def _can_append(self, sequence: CleanSequence, count: int) -> bool:
        return super()._can_append(sequence, count - 1)


@plant(
    "E1-nano", "a sequence's blocks are freed head first",
    thread="nano-vllm@59aa3ff", invariants=("ORD",), severity=Severity.ORDER, profile=NANO,
)  # fmt: skip
class HeadFirst(CleanNanoManager):
    """One recycled block costs the whole prefix."""

    def _deallocate(self, sequence: CleanSequence) -> None:
        sequence.table.reverse()
        super()._deallocate(sequence)
