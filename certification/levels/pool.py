"""Pools of blocks, driven by opaque hashes and, where they take them, by token chains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from poolproof.bugs.catalogue import canaries
from poolproof.certification.depths import BUDGETS, Bounds, Sequences
from poolproof.certification.description import Description
from poolproof.certification.levels.certified_level import (
    MOST_STATES_OF_SEQUENCES,
    BlockLevel,
    Lesson,
    MakeMachine,
    NumberedRuns,
    PlantedRuns,
    Veiled,
    Wanted,
    visible,
)
from poolproof.certification.options import CertifyOptions
from poolproof.certification.run_kinds import CHAINS, POOL, Chunk, RunKind
from poolproof.contract.level import Level
from poolproof.contract.profile import FEWEST_BYTES_OF_CONTENTS, Profile
from poolproof.contract.target import POOL_OBSERVERS
from poolproof.contract.trace import Trace
from poolproof.exploration.exhaustive_run import why_not
from poolproof.exploration.shortest import Announce, ShortestResult, shortest_failure
from poolproof.harness.facts import required_chain_facts, required_facts
from poolproof.harness.pool_production import required_production_facts
from poolproof.harness.random_driver import PoolCampaign
from poolproof.stateful_tests.chain_machine import ChainMachine
from poolproof.stateful_tests.pool_machine import PoolMachine
from poolproof.targets.target import Make, Target

__all__ = ["CertifiedPool", "reason_not_explored"]

_INFERRED = {
    "free_order": "the target shows no free_order(): I1 and ORD are inferred from what allocate() "
    "hands out, I4 from lookup()",
    "free_neighbours": "the target shows no free_neighbours(): LINK is not checked",
    "ref_count": "the target shows no ref_count(): OWN is inferred from num_free()",
    "block_hash": "the target shows no block_hash(): IDX is checked through lookup() alone",
}


class CertifiedPool(BlockLevel):
    """A pool of blocks with owners and hashes."""

    level = Level.POOL
    lessons = (
        Lesson("num_free()", "how many blocks can be allocated now", ("OWN", "ADM")),
        Lesson(
            "allocate(n)",
            "n blocks from the head of the free queue, one reference and no hash each; where fewer "
            "are free raise MemoryError and change nothing",
            ("I1", "I2", "ADM", "ATOM"),
        ),
        Lesson(
            "free(block_ids)",
            "one reference less for each entry; a block that nobody holds now joins the queue",
            ("I1", "OWN", "ORD", "LEAK"),
        ),
        Lesson("cache(block_ids, hashes)", "held, full blocks get their hashes", ("I3", "IDX")),
        Lesson(
            "lookup(block_hash)",
            "a block that carries the hash, or None; what allocate() hands out carries none any "
            "more",
            ("IDX", "I4"),
        ),
        Lesson(
            "touch(block_ids)",
            "one more reference for each entry; a free block leaves the queue, wherever it stands, "
            "and keeps its hash",
            ("I4", "OWN"),
        ),
        Lesson("evict(block_ids)", "the blocks lose their hashes, and nothing else", ("IDX",)),
        Lesson(
            "reset()", "every hash goes and True, or False while a block is held", ("ATOM", "IDX")
        ),
    )

    def kinds(self, about: Description) -> list[RunKind]:
        """Opaque hashes, and token chains where the pool hashes tokens."""
        return ([POOL] if about.level is self.level else []) + [CHAINS] * about.takes_chains

    def campaign(self, target: Target, chunk: Chunk) -> NumberedRuns:
        """Runs of the pool grammar, over opaque hashes or over token chains."""
        profile = chunk.profile or target.profile
        if not chunk.kind.has_chains:
            return PoolCampaign(
                target.name,
                target.make,
                profile,
                chunk.seed,
                production=chunk.kind.production_of_blocks,
            )
        assert target.make_chained is not None
        return PoolCampaign(
            target.name,
            target.make_chained,
            profile,
            chunk.seed,
            chain_block_size=target.block_size,
            hash_block_size=target.hash_block_size,
        )

    def machine(self, kind: RunKind) -> MakeMachine:
        """That of pools, or of token chains."""
        return ChainMachine if kind.has_chains else PoolMachine

    def required_facts(self, about: Description, kind: RunKind) -> list[str]:
        """Those of the pool grammar, of its production sizes or of token chains."""
        can = about.can_at(self.level)
        if kind.production is not None:
            return required_production_facts(about.profile, can)
        if kind.has_chains:
            return required_chain_facts(about.profile, about.can_chained or can)
        return required_facts(about.profile, can)

    def planted(self, about: Description, kinds: Sequence[RunKind]) -> Iterable[PlantedRuns]:
        """Pools that show no more than the target shows."""
        if POOL not in kinds:
            return
        hidden = frozenset(POOL_OBSERVERS) - about.can_at(self.level).observers
        for specimen in visible(canaries(about.profile), hidden):
            make = Veiled.maker(specimen.make_under(about.profile), hidden)
            yield PlantedRuns.of(specimen, PoolCampaign(specimen.id, make, about.profile))

    def shortest(self, trace: Trace, make: Make, wanted: Wanted) -> ShortestResult:
        """Over every operation of a pool, misuse included."""
        return shortest_failure(
            make,
            trace.profile,
            trace.num_blocks,
            enable_caching=trace.enable_caching,
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
        """Over every operation of a pool and so many hashes."""
        return shortest_failure(
            make,
            profile,
            num_blocks,
            hashes=bounds.num_hashes,
            max_commands=bounds.max_commands,
            max_states=MOST_STATES_OF_SEQUENCES,
            max_count=bounds.max_count,
            max_list=bounds.max_list,
            max_applied=bounds.most_steps,
            announce=announce,
        )

    def blocks_of_sequences(self, profile: Profile, usable: int) -> int:
        """One more where one of them is the null block, whichever that is."""
        null = profile.null_block
        return usable if null is None else max(usable, null) + 1

    def sequence_words(self, bounds: Sequences) -> str:
        """With the number of hashes."""
        hashes = "1 hash" if bounds.num_hashes == 1 else f"{bounds.num_hashes} hashes"
        return f"{super().sequence_words(bounds)}, {hashes}"

    def open_points(self, about: Description, options: CertifyOptions) -> Sequence[str]:
        """What concerns managers only, what was only sampled, what the target does not show."""
        can = about.can_at(self.level)
        points = [
            (
                "whether a block was full and written when it was cached (I3), and what a request "
                "reads (DATA): the caller's duty at pool level, checked at manager level"
            ),
        ]
        scopes = BUDGETS[options.depth].scopes
        if scopes and reason_not_explored(about, scopes) is None:
            most = max(bounds.num_blocks for bounds in scopes)
            points.append(
                f"pools of more than {most} blocks, and more hashes and references than the "
                "exhaustive stages name: sampled, not visited state by state"
            )
        points += [sentence for name, sentence in _INFERRED.items() if not can.sees(name)]
        if about.profile.events != "none" and not can.sees("take_events"):
            points.append("events: the profile has them, but there is no take_events() (EVT)")
        if about.profile.misuse == "undefined" and not options.hardening:
            points.append("misuse: the profile leaves it undefined (see --hardening)")
        return points

    def left_out(self, about: Description, options: CertifyOptions) -> list[tuple[str, str]]:
        """Parts that the pool does not have, and what was not asked for."""
        left_out = []
        if Level.QUEUE not in about.parts:
            left_out.append(("queue level", "the target has no free queue of its own to be driven"))
        if Level.INDEX not in about.parts:
            left_out.append(("index level", "the target has no index of its own to be driven"))
        if not about.takes_chains:
            length = about.profile.fixed_hash_bytes
            hashed = "the target hashes no tokens" + (f" to {length} bytes" if length else "")
            left_out.append(("token chains", f"{hashed}; hashes were opaque"))
        reason = reason_not_explored(about, BUDGETS[options.depth].scopes)
        if reason is not None:
            left_out.append(("every state", reason))
        if about.profile.misuse == "undefined" and not options.hardening:
            left_out.append(("hardening", "not asked for (--hardening)"))
        return left_out

    def why_no_attention(self, about: Description) -> str | None:
        """Without lookup and touch nobody is served, and short hashes collide by chance."""
        if not {"lookup", "touch"} <= about.can_at(self.level).verbs:
            return "the pool has acquire() in the place of lookup() and touch()"
        if about.profile.usual_hash_bytes < FEWEST_BYTES_OF_CONTENTS:
            return f"hashes of {about.profile.hash_bytes} bytes collide by chance"
        return None


def reason_not_explored(about: Description, scopes: Sequence[Bounds]) -> str | None:
    """Why no scope of a pool can be explored exhaustively; None where one can."""
    if about.can is None:
        return "the target could not be constructed"
    reasons = [why_not(about.profile, about.can, bounds.num_blocks) for bounds in scopes]
    return reasons[0] if reasons and all(reasons) else None
