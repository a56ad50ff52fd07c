"""The prefix index on its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from poolproof.bugs.catalogue import index_canaries
from poolproof.certification.depths import Sequences
from poolproof.certification.description import Description, part_of
from poolproof.certification.levels.certified_level import (
    MOST_STATES_OF_SEQUENCES,
    BlockLevel,
    Lesson,
    MakeMachine,
    NumberedRuns,
    PlantedRuns,
    Veiled,
    Wanted,
)
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import INDEX, Chunk, RunKind
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.target import INDEX_OBSERVERS, INDEX_VERBS, capabilities_of
from poolproof.contract.trace import Trace
from poolproof.exploration.index_check import plain_keys
from poolproof.exploration.shortest import Announce, ShortestResult, shortest_index_failure
from poolproof.harness.extent import Extent
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.index_workload import required_index_facts
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.smaller_index_traces import keys_of_index
from poolproof.stateful_tests.index_machine import IndexMachine
from poolproof.stateful_tests.machine_log import MachineLog
from poolproof.targets.target import Make, Target

__all__ = ["CertifiedIndex"]


class CertifiedIndex(BlockLevel):
    """An index from keys to blocks, of a pool or alone."""

    level = Level.INDEX
    lessons = (
        Lesson("insert(key, block_id)", "the block can be found under the key", ("IDX",)),
        Lesson(
            "get(key)",
            "a block that carries the key, or None; an entry is not made by it",
            ("IDX",),
        ),
        Lesson(
            "pop(key, block_id)",
            "this one block does not carry the key any more, the others still do: answers the "
            "block, or None where it did not carry the key",
            ("IDX",),
        ),
    )

    def kinds(self, about: Description) -> list[RunKind]:
        """Runs of the index, where there is one."""
        return [INDEX] if self.level in about.parts else []

    def campaign(self, target: Target, chunk: Chunk) -> NumberedRuns:
        """Runs of the index grammar."""
        index = part_of(target, self.level)
        return IndexCampaign(
            index.name,
            index.make,
            chunk.profile or index.profile,
            chunk.seed,
            production=chunk.kind.production_of_blocks,
        )

    def machine(self, kind: RunKind) -> MakeMachine:
        """The index's."""
        del kind
        return _machine

    def required_facts(self, about: Description, kind: RunKind) -> list[str]:
        """Those of the index grammar; more at production sizes."""
        return required_index_facts(
            about.profile_at(self.level),
            about.can_at(self.level),
            is_large=kind.production is not None,
        )

    def planted(self, about: Description, kinds: Sequence[RunKind]) -> Iterable[PlantedRuns]:
        """Indexes that have no more verbs and observers than the target."""
        if INDEX not in kinds:
            return
        can, profile = about.can_at(self.level), about.profile_at(self.level)
        hidden = frozenset((*INDEX_VERBS, *INDEX_OBSERVERS)) - can.verbs - can.observers
        for specimen in index_canaries(profile):
            make = Veiled.maker(specimen.make_under(profile), hidden)
            yield PlantedRuns.of(specimen, IndexCampaign(specimen.id, make, profile))

    def shortest(self, trace: Trace, make: Make, wanted: Wanted) -> ShortestResult:
        """Over the keys of the trace."""
        return shortest_index_failure(
            make,
            trace.profile,
            trace.num_blocks,
            keys_of_index(trace.commands),
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
        """Over a few plain keys of the kinds that the index takes."""
        kinds = capabilities_of(make(num_blocks, True)).key_kinds
        return shortest_index_failure(
            make,
            profile,
            num_blocks,
            plain_keys(kinds, bounds.num_hashes, profile.usual_hash_bytes),
            max_commands=bounds.max_commands,
            max_states=MOST_STATES_OF_SEQUENCES,
            announce=announce,
        )

    def sequence_words(self, bounds: Sequences) -> str:
        """An index has neither counts nor lists."""
        return f"{bounds.num_hashes} keys"

    def sequence_extent(self, bounds: Sequences) -> Extent:
        """An index has neither counts nor lists."""
        return Extent({"keys": (bounds.num_hashes, bounds.num_hashes)})

    def open_points(self, about: Description, options: CertifyOptions) -> Sequence[str]:
        """What does not concern an index."""
        del about, options
        return ("an index alone: reference counts, the free queue and eviction are a pool's",)

    def why_no_attention(self, about: Description) -> str | None:
        """It has no tables."""
        del about
        return "an index alone serves nobody"


def _machine(campaign: IndexCampaign, log: MachineLog) -> IndexMachine:
    return IndexMachine(
        PoolCampaign(campaign.name, campaign.make, campaign.profile, campaign.seed), log
    )
