"""Which commands are legal in a state, which are misuse, and which are never defined.

A legal command must do exactly what the reference does. Misuse must do what the profile
promises. What is never defined is never driven: its outcome says nothing about a target.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from poolproof.contract.commands import (
    Acquire,
    Allocate,
    Append,
    AppendN,
    Cache,
    CacheChain,
    CachePartial,
    Command,
    Evict,
    Free,
    LookupChain,
    PopLeft,
    PopLeftN,
    PrependN,
    Remove,
    Touch,
)
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue

__all__ = ["misuse_of", "queue_misuse_of", "undefined_in"]


def misuse_of(pool: DictPool, command: Command) -> str | None:
    """Why the command is misuse in this state, in words; None if it is not."""
    match command:
        case Allocate(count=count):
            return f"the count {count} is negative" if count < 0 else None
        case Touch(block_ids=ids):
            return _bad_id(pool, ids)
        case Free(block_ids=ids):
            return _bad_id(pool, ids) or _too_many_frees(pool, ids)
        case Cache() | CacheChain() | CachePartial() | Evict() if pool.enable_caching:
            return _misuse_of_cache(pool, command)
        case _:
            return None


def undefined_in(pool: DictPool, command: Command) -> str | None:
    """Why no profile defines what the command does in this state; None if one does."""
    # Without caching these calls do nothing, and promise nothing about what they are given.
    if not pool.enable_caching and (reason := _misuse_of_cache(pool, command)):
        return reason
    match command:
        case Touch(block_ids=ids) if _bad_id(pool, ids) is None:
            for block_id in ids:
                if block_id != pool.null_block and not _touchable(pool, block_id):
                    return f"block {block_id} is free and carries no hash"
        case Cache(block_ids=ids, hashes=hashes) if pool.profile.recache == "forbidden":
            for block_id, _ in zip(ids, hashes, strict=False):
                if pool.keys.get(block_id):
                    return f"block {block_id} has a hash and the profile forbids another"
        case CacheChain():
            return _bad_promotion(pool, command)
        case CachePartial():
            return _outside_the_block(pool, command)
        case LookupChain(chain=chain, num_tokens=num_tokens, groups=groups):
            if not groups or not 0 < num_tokens <= len(chain.tokens):
                return "the chain is shorter than the key, or no group is asked for"
        case Acquire(hashes=hashes) if len(set(hashes)) != len(hashes):
            return "a hash stands twice in one chain"
        case _:
            return None
    return None


def queue_misuse_of(queue: DictQueue, command: Command) -> str | None:
    """Why the command breaks the queue's preconditions; None if it does not."""
    match command:
        case PopLeft():
            return None if queue.order else "the queue is empty"
        case PopLeftN(count=count):
            return None if 0 <= count <= len(queue.order) else f"{count} blocks are not queued"
        case Remove(block_id=block_id):
            return None if block_id in queue.order else f"block {block_id} is not queued"
        case Append(block_id=block_id):
            return _not_joinable(queue, [block_id])
        case AppendN(block_ids=ids) | PrependN(block_ids=ids):
            return _not_joinable(queue, ids)
        case _:
            return f"{command.verb} is not a command of a queue"


def _misuse_of_cache(pool: DictPool, command: Command) -> str | None:
    match command:
        case Cache(block_ids=ids, hashes=hashes) if len(ids) != len(hashes):
            return f"{len(ids)} blocks come with {len(hashes)} hashes"
        case Cache(block_ids=ids) | CacheChain(block_ids=ids):
            return _bad_id(pool, ids) or _repeated(pool, ids) or _not_held(pool, ids)
        case CachePartial(block_id=block_id):
            return _bad_id(pool, [block_id]) or _not_held(pool, [block_id])
        case Evict(block_ids=ids):
            return _bad_id(pool, ids)
    return None


def _touchable(pool: DictPool, block_id: int) -> bool:
    return bool(pool.holders[block_id]) or bool(pool.keys[block_id])


def _not_joinable(queue: DictQueue, ids: Sequence[int]) -> str | None:
    for block_id in ids:
        if not 0 <= block_id < queue.num_blocks:
            return f"block {block_id} does not exist"
        if block_id in queue.order:
            return f"block {block_id} is queued already"
    if len(set(ids)) != len(ids):
        return f"a block stands twice in {list(ids)}"
    return None


def _bad_id(pool: DictPool, ids: Iterable[int]) -> str | None:
    for block_id in ids:
        if not 0 <= block_id < pool.num_blocks:
            return f"block {block_id} does not exist (there are {pool.num_blocks})"
        if block_id == pool.null_block and pool.profile.null_in_lists == "misuse":
            return f"block {block_id} is the null block"
    return None


def _too_many_frees(pool: DictPool, ids: Iterable[int]) -> str | None:
    for block_id, times in Counter(ids).items():
        held = len(pool.holders[block_id])
        if block_id != pool.null_block and times > held:
            return f"block {block_id} is freed more often ({times}) than it is held ({held})"
    return None


def _repeated(pool: DictPool, ids: Iterable[int]) -> str | None:
    for block_id, times in Counter(ids).items():
        if times > 1 and block_id != pool.null_block:
            return f"block {block_id} stands {times} times in one call"
    return None


def _not_held(pool: DictPool, ids: Iterable[int]) -> str | None:
    for block_id in ids:
        if block_id != pool.null_block and not pool.holders[block_id]:
            return f"block {block_id} is cached although nobody holds it"
    return None


def _bad_promotion(pool: DictPool, command: CacheChain) -> str | None:
    """A hashed block may get a full key only in place of a partial key inside the same block."""
    ids, num_tokens = command.block_ids, len(command.chain.tokens)
    if not 0 <= command.num_cached <= len(ids) or num_tokens < len(ids) * pool.block_size:
        return "the chain does not fill the blocks"
    for position in range(command.num_cached, len(ids)):
        block_id = ids[position]
        if not 0 <= block_id < pool.num_blocks or not pool.keys[block_id]:
            continue
        length = pool.key_length.get(block_id)
        start = position * pool.block_size
        if length is None or not start < length < start + pool.block_size:
            return f"block {block_id} has a hash that is no part of its full one"
    return None


def _outside_the_block(pool: DictPool, command: CachePartial) -> str | None:
    """A further key of a block must end inside the same block of a sequence."""
    if pool.profile.duplicates != "kept":
        return "the profile merges duplicates and does not say what that means for parts of blocks"
    if not 0 < command.num_tokens <= len(command.chain.tokens):
        return "the chain is shorter than the key"
    length = pool.key_length.get(command.block_id)
    if pool.keys.get(command.block_id) and length is None:
        return f"block {command.block_id} carries a hash of unknown length"
    size = pool.block_size
    if length is not None and (length - 1) // size != (command.num_tokens - 1) // size:
        return f"block {command.block_id} holds other positions of a sequence"
    return None
