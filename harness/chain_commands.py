"""Applies the commands on token chains: caching, lookup over groups, partial entries, usage.

These exist for targets that hash real tokens themselves (vLLM V1's shape); the reference
compares contents, the target its own hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from poolproof.contract.commands import CacheChain, CachePartial, Command, LookupChain, Usage
from poolproof.contract.content import Key
from poolproof.contract.profile import Profile
from poolproof.harness.lookup_commands import LookupCommands
from poolproof.invariants.index_answers import answers_all_groups, hits_in_all_groups
from poolproof.invariants.ownership import usage_is_share_held
from poolproof.reference.dict_pool import DictPool

__all__ = ["ChainCommands"]


class ChainCommands(LookupCommands):
    """`LookupCommands` with the commands on token chains."""

    def __init__(self, target: Any, profile: Profile, reference: DictPool) -> None:
        super().__init__(target, profile, reference)
        self.apply |= {
            CacheChain: self._cache_chain,
            CachePartial: self._cache_partial,
            LookupChain: self._lookup_chain,
            Usage: self._usage,
        }

    def named_in(self, command: Command) -> tuple[Sequence[int], Sequence[Key]]:
        match command:
            case CacheChain(chain=chain, block_ids=ids):
                # Misuse may name more blocks than the chain fills.
                filled = len(chain.tokens) // self.reference.block_size
                return ids, self._keys_of(replace(command, block_ids=ids[:filled]))
            case CachePartial(chain=chain, block_id=block_id, num_tokens=num_tokens):
                within = 0 < num_tokens <= len(chain.tokens)
                keys = (chain.prefix(num_tokens, command.group),) if within else ()
                return (block_id,), keys
            case _:
                return super().named_in(command)

    def _keys_of(self, command: CacheChain) -> list[Key]:
        """A key for each block that is not cached already."""
        size = self.reference.block_size
        return [
            command.chain.prefix((position + 1) * size, command.group)
            for position in range(max(command.num_cached, 0), len(command.block_ids))
        ]

    def _cache_chain(self, command: CacheChain) -> None:
        chain, ids, pool = command.chain, command.block_ids, self.reference
        size = pool.block_size
        keys = self._keys_of(command)
        self.know(keys)
        self.facts.before_cache_chain(command, pool)
        dropped = [key for block in ids for key in pool.keys[block]]
        self.call(command, chain, list(ids), command.num_cached, command.group)
        for position, key in enumerate(keys, start=command.num_cached):
            pool.cache_full(ids[position], key, (position + 1) * size)
        self.touched, self.touched_keys = ids, (*keys, *dropped)

    def _cache_partial(self, command: CachePartial) -> None:
        key = command.chain.prefix(command.num_tokens, command.group)
        self.know((key,))
        block = command.block_id
        old = list(self.reference.keys[block])
        self.call(command, command.chain, block, command.num_tokens, command.group)
        self.reference.cache_partial(block, key, command.num_tokens)
        self.touched, self.touched_keys = (block,), (key, *old)
        self.facts.after_cache_partial(old, self.reference.keys[block])

    def _lookup_chain(self, command: LookupChain) -> None:
        keys = [command.chain.prefix(command.num_tokens, group) for group in command.groups]
        self.know(keys)
        answer = self.call(command, command.chain, command.num_tokens, list(command.groups))
        self.touched, self.touched_keys = (), keys
        hit = all(self.reference.lookup(key) for key in keys)
        if answer is None and not hit:
            self.facts.add("a lookup over groups missed")
        elif isinstance(answer, list) and len(answer) == len(keys):
            for key, block in zip(keys, answer, strict=True):
                self.judge_lookup(command, key, block)
            self.report(hits_in_all_groups(command, answer))
            if len(keys) > 1:
                self.facts.add("a lookup over several groups hit")
        else:
            found = self.diagnose()  # also follows a `may-drop` target
            if found is None and answer is None and not all(map(self.reference.lookup, keys)):
                return
            self.report(found or answers_all_groups(command, answer, len(keys), hit=hit))

    def _usage(self, command: Usage) -> None:
        answer = self.call(command)
        self.report(usage_is_share_held(answer, self.reference.usage()))
        self.touched, self.touched_keys = (), ()
