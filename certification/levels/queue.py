"""The free queue on its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from poolproof.bugs.catalogue import queue_canaries
from poolproof.certification.depths import Sequences
from poolproof.certification.description import Description, part_of
from poolproof.certification.levels.certified_level import (
    MOST_STATES_OF_SEQUENCES,
    BlockLevel,
    Lesson,
    MakeMachine,
    NumberedRuns,
    PlantedRuns,
    Wanted,
)
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import QUEUE, Chunk, RunKind
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.exploration.shortest import Announce, ShortestResult, shortest_queue_failure
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.queue_workload import required_queue_facts
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.stateful_tests.queue_machine import QueueMachine
from poolproof.targets.target import Make, Target

__all__ = ["CertifiedQueue"]


class CertifiedQueue(BlockLevel):
    """A free queue, of a pool or alone."""

    level = Level.QUEUE
    lessons = (
        Lesson("num_free()", "how many blocks stand in the queue", ("OWN",)),
        Lesson("free_order()", "the ids in the queue, head first", ("I1", "ORD")),
        Lesson("popleft()", "take the block at the head out and name it", ("I1", "ORD")),
        Lesson("append(block_id)", "the block joins at the tail", ("I1", "ORD")),
        Lesson(
            "remove(block_id)",
            "the block leaves the queue from wherever it stands, for a cached one that is revived",
            ("I4", "LINK"),
        ),
    )

    def kinds(self, about: Description) -> list[RunKind]:
        """Runs of the queue, where there is one."""
        return [QUEUE] if self.level in about.parts else []

    def campaign(self, target: Target, chunk: Chunk) -> NumberedRuns:
        """Runs of the queue grammar."""
        queue = part_of(target, self.level)
        return QueueCampaign(
            queue.name, queue.make, chunk.seed, production=chunk.kind.production_of_blocks
        )

    def machine(self, kind: RunKind) -> MakeMachine:
        """The queue's."""
        del kind
        return _machine

    def required_facts(self, about: Description, kind: RunKind) -> list[str]:
        """Those of the queue grammar."""
        del kind
        return required_queue_facts(about.can_at(self.level))

    def planted(self, about: Description, kinds: Sequence[RunKind]) -> Iterable[PlantedRuns]:
        """Queues that show what every queue shows."""
        del about
        if QUEUE in kinds:
            for specimen in queue_canaries():
                yield PlantedRuns.of(specimen, QueueCampaign(specimen.id, specimen.make))

    def shortest(self, trace: Trace, make: Make, wanted: Wanted) -> ShortestResult:
        """Over every operation of a queue."""
        return shortest_queue_failure(
            make,
            trace.num_blocks,
            max_commands=wanted.max_commands,
            max_states=wanted.max_states,
            max_applied=wanted.max_applied,
            is_wanted=wanted.is_wanted,
        )

    def try_sequences(
        self,
        make: Make,
        profile: Profile,
        num_blocks: int,
        bounds: Sequences,
        announce: Announce,
    ) -> ShortestResult:
        """Over every operation of a queue."""
        del profile
        return shortest_queue_failure(
            make,
            num_blocks,
            max_commands=bounds.max_commands,
            max_states=MOST_STATES_OF_SEQUENCES,
            max_count=bounds.max_count,
            max_list=bounds.max_list,
            max_applied=bounds.most_steps,
            announce=announce,
        )

    def open_points(self, about: Description, options: CertifyOptions) -> Sequence[str]:
        """What does not concern a queue."""
        del about, options
        return ("a free queue alone: reference counts, hashes and the prefix index are a pool's",)

    def why_no_attention(self, about: Description) -> str | None:
        """It has no tables."""
        del about
        return "a free queue alone serves nobody"


def _machine(campaign: QueueCampaign, log: MachineLog) -> QueueMachine:
    return QueueMachine(PoolCampaign(campaign.name, campaign.make, Profile(), campaign.seed), log)
