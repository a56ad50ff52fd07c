"""`Sometimes` facts of the manager level: what must have happened for a pass to mean anything."""

from __future__ import annotations

from collections.abc import Sequence

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.target import Capabilities
from poolproof.reference.recurrent_states import has_state
from poolproof.reference.sequence_model import SequenceModel, SequenceState, Tables

__all__ = ["ManagerFacts", "required_manager_facts"]


SAME_STEP_HIT = "a prefix was found in the step that computes it"
COMPUTED_BESIDE = "a cached prefix was computed again, since a sequence held it"
INSIDE_A_BLOCK = "a hit ended inside a block"
END_AMONG_DRAFTS = "drafts that were right reached the end of a block of states"


class ManagerFacts(set[str]):
    """The facts that one session has seen."""

    def after_admission(
        self,
        model: SequenceModel,
        sequence: SequenceState,
        cached: int,
        tables: Tables,
        num_shared: Sequence[int],
    ) -> None:
        """Before the model follows: which hits are used, which wait in the free queue.

        In each group `num_shared` entries are hits.
        """
        self.add("a sequence was admitted")
        pool = model.pool
        if cached:
            self.add("a prefix was found in the cache")
            hits = [
                table[entry]
                for group, table in enumerate(tables)
                for entry in model.hit_entries(group, cached)
                if entry < num_shared[group]
            ]
            free = [block for block in hits if block in pool.free]
            if free:
                self.add("a free cached block was revived")
            if len(free) < len(hits):
                self.add("a block was shared with a running sequence")
            if any(cached % size for size in model.block_sizes):
                self.add(INSIDE_A_BLOCK)
            if SAME_STEP_HIT not in self and self._is_same_step(model, hits):
                self.add(SAME_STEP_HIT)
        if model.is_exclusive and model.indexed_prefix(sequence) > model.cached_prefix(sequence):
            self.add(COMPUTED_BESIDE)
        size = model.block_sizes[0]
        if "an admission evicted a cached block" not in self:
            for group, table in enumerate(tables):
                end = num_shared[group]
                if any(pool.keys[block] for block in table[end:] if block != pool.null_block):
                    self.add("an admission evicted a cached block")
        remainder = sequence.num_tokens % size
        if remainder == 0:
            self.add("a sequence filled its blocks exactly")
        if remainder == 1 % size and sequence.num_tokens > 1:
            self.add("a sequence had one token beyond its blocks")

    @staticmethod
    def _is_same_step(model: SequenceModel, hits: list[int]) -> bool:
        scheduled = (s for s in model.sequences.values() if s.num_scheduled)
        found = set(hits)
        return any(
            not found.isdisjoint(table[s.num_computed // size :])
            for s in scheduled
            for table, size in zip(s.tables, model.block_sizes, strict=True)
        )


_BY_VERB = {
    "schedule": ("a prompt was computed in chunks",),
    "draft": ("drafts were rejected",),
    "fork": ("a sequence was forked", "a block was copied on write"),
    "truncate": ("a tail was cut off",),
    "preempt": ("a sequence was preempted", "a preempted sequence was resumed"),
    "swap_out": ("a sequence was swapped out", "a sequence was swapped in"),
    "lookup_prefix": ("a prefix was looked up and not used",),
    "load": ("a transfer was ordered", "a sequence was ended while its KV was being loaded"),
    "reset": ("the cache was reset", "a reset was refused"),
}


def required_manager_facts(profile: ManagerProfile, can: Capabilities) -> list[str]:
    """The facts that a campaign must reach under this profile."""
    facts = [
        "a sequence was admitted",
        "a sequence grew",
        "a sequence ended",
        "an admission was refused",
        "a growth was refused",
        "a sequence filled its blocks exactly",
        "a sequence had one token beyond its blocks",
        "everything was freed at the end",
    ]
    if profile.publishes != "never":
        is_exclusive = profile.held_blocks == "exclusive"
        if profile.has_hits:
            facts.append("a prefix was found in the cache")
        if is_exclusive:
            facts.append(COMPUTED_BESIDE)
        elif profile.has_hits:
            facts.append("a block was shared with a running sequence")
        if profile.retention != "while-held":
            facts += ["a free cached block was revived", "an admission evicted a cached block"]
        finds_early = profile.same_step_hit == "allowed" and profile.publishes != "finish"
        if finds_early and not is_exclusive and not has_state(profile.groups):
            facts.append(SAME_STEP_HIT)
        if profile.hash_tokens:
            facts.append(INSIDE_A_BLOCK)
    if profile.finish_again == "ignored":
        facts.append("a sequence was ended a second time or before it was admitted")
    if profile.window_blocks == "freed" and any(g.is_sliding for g in profile.groups):
        facts.append("a block slid out of the window")
    for verb, further in _BY_VERB.items():
        if verb in can.verbs:
            facts += further
    if "draft" in can.verbs and profile.state_blocks and has_state(profile.groups):
        facts.append(END_AMONG_DRAFTS)
    return facts
