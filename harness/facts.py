"""`Sometimes` facts: what must have happened at least once for a pass to mean anything.

A run that never emptied the queue or never revived a block has shown nothing about those cases;
it is inconclusive, not a pass (the idea is Antithesis's `sometimes`). The list of facts that a
run must reach depends on the profile and on what the target can do.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from poolproof.contract.commands import CacheChain
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.contract.target import Capabilities
from poolproof.reference.dict_pool import DictPool

__all__ = ["PoolFacts", "required_chain_facts", "required_facts"]


class PoolFacts(set[str]):
    """The facts that one session has seen, and how many references one block had at most."""

    most_references = 0

    def after_revival(self, free: OrderedDict[int, None], block: int) -> None:
        self.add("a free cached block was touched")
        if block != next(iter(free)) and block != next(reversed(free)):
            self.add("a block left the middle of the queue")

    def after_sharing(self, references: int) -> None:
        """A block has more references than any had before."""
        self.most_references = references
        self.add("a block had two owners or more")
        if references > 255:
            self.add("a block had more than 255 owners")

    def after_free_of_several(
        self, ids: Sequence[int], freed: Sequence[int], pool: DictPool
    ) -> None:
        if len(set(ids)) < len(ids):
            self.add("a block stood twice in one free")
        if len(freed) > 1 and len({bool(pool.keys[block]) for block in freed}) == 2:
            self.add("hashed and unhashed blocks were freed in one call")
        if any(pool.holders[block] for block in ids):
            self.add("a shared block was freed by one owner")

    def before_cache(self, ids: Sequence[int], hashes: Sequence[Key], pool: DictPool) -> None:
        for block, key in zip(ids, hashes, strict=True):
            if block == pool.null_block:
                self.add("the null block stood in a list")
                continue
            if pool.keys[block]:
                same = key in pool.keys[block]
                self.add("a block was cached again under its own hash" if same
                         else "a block's hash was replaced")  # fmt: skip
            if pool.carriers.get(key, [block]) != [block]:
                self.add("two blocks came under one hash")

    def before_evict(self, ids: Sequence[int], pool: DictPool) -> None:
        for block in ids:
            if pool.keys.get(block):
                free = block in pool.free
                self.add("a free block was evicted" if free else "a held block was evicted")

    def before_cache_chain(self, command: CacheChain, pool: DictPool) -> None:
        self.add("a chain of tokens was cached")
        for block in command.block_ids:
            if block == pool.null_block:
                self.add("the null block stood in a list")
        if any(pool.keys[block] for block in command.block_ids[command.num_cached :]):
            self.add("a partial entry was promoted to a full one")
        if command.num_cached:
            self.add("a chain was cached behind cached blocks")

    def after_cache_partial(self, old: Sequence[Key], new: Sequence[Key]) -> None:
        if len(new) > 1:
            self.add("a block carried two keys")
        if old and old[0] not in new:
            self.add("a longer partial key replaced a shorter one")
        self.add("a partial entry was made")


def required_facts(profile: Profile, can: Capabilities) -> list[str]:
    """The facts that a campaign with opaque hashes must reach under this profile."""
    keeps = profile.retention != "while-held"
    facts = [
        "several blocks were allocated at once",
        "zero blocks were allocated",
        "the queue was emptied",
        "an allocation was refused",
        "a shared block was freed by one owner",
        "a lookup hit",
        "a lookup missed",
        "two blocks came under one hash",
        "everything was freed at the end",
    ]
    if keeps:
        facts += [
            "an allocation evicted a cached block",
            "a free cached block was touched",
            "a block left the middle of the queue",
            "hashed and unhashed blocks were freed in one call",
        ]
    if "touch" in can.verbs:
        facts += [
            "a block had two owners or more",
            "a block stood twice in one touch",
        ]
        if profile.repeats_in_free == "allowed":
            facts.append("a block stood twice in one free")
    if profile.recache == "replace":
        facts += ["a block was cached again under its own hash", "a block's hash was replaced"]
    if "evict" in can.verbs:
        facts += ["a free block was evicted"] if keeps else []
        facts.append("a held block was evicted")
    if "reset" in can.verbs:
        facts += ["a reset was done", "a reset was refused"]
    if profile.null_block is not None and profile.null_in_lists != "misuse":
        facts.append("the null block stood in a list")
    if profile.misuse != "undefined":
        facts.append("misuse was tried")
    return facts


def required_chain_facts(profile: Profile, can: Capabilities) -> list[str]:
    """The facts that a campaign with token chains must reach under this profile."""
    facts = [
        "a chain of tokens was cached",
        "a chain was cached behind cached blocks",
        "a lookup over several groups hit",
        "a lookup over groups missed",
    ]
    if profile.retention != "while-held":
        facts += ["an allocation evicted a cached block", "a free cached block was touched"]
    if "cache_partial" in can.verbs and profile.keys == "partial" and profile.duplicates == "kept":
        facts += [
            "a partial entry was made",
            "a partial entry was promoted to a full one",
            "a block carried two keys",
            "a longer partial key replaced a shorter one",
        ]
    return facts
