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
from poolproof.contract.misuse import Misuse, MisuseKind
from poolproof.contract.profile import Profile
from poolproof.reference.dict_pool import DictPool
from poolproof.reference.dict_queue import DictQueue

__all__ = ["hash_of_other_length", "misuse_of", "queue_misuse_of", "undefined_in"]


def hash_of_other_length(profile: Profile, command: Command) -> str | None:
    """Which hash in the command has not the length that the profile gives to all; None if none.

    It is never given, in a command of misuse neither: what takes one width has no answer to it.
    """
    length = profile.fixed_hash_bytes
    if length is None:
        return None
    keys = (
        *getattr(command, "hashes", ()),
        getattr(command, "block_hash", None),
        getattr(command, "key", None),
    )
    for key in keys:
        found = key[0] if isinstance(key, tuple) else key
        if isinstance(found, bytes) and len(found) != length:
            return f"a hash has {len(found)} bytes, and the profile says hash_bytes={length}"
    return None


def misuse_of(pool: DictPool, command: Command) -> Misuse | None:
    """Why the command is misuse in this state; None if it is not."""
    match command:
        case Allocate(count=count):
            return _negative(count) if count < 0 else None
        case Touch(block_ids=ids):
            return _bad_id(pool, ids)
        case Free(block_ids=ids) if _forbidden_repeat(pool, ids) is None:
            return _bad_id(pool, ids) or _too_many_frees(pool, ids)
        case Cache() | CacheChain() | CachePartial() | Evict() if pool.enable_caching:
            return _misuse_of_cache(pool, command)
        case _:
            return None


def undefined_in(pool: DictPool, command: Command) -> str | None:
    """Why no profile defines what the command does in this state; None if one does."""
    if other := hash_of_other_length(pool.profile, command):
        return other
    # Without caching these calls do nothing, and promise nothing about what they are given.
    if not pool.enable_caching and (misuse := _misuse_of_cache(pool, command)):
        return misuse.words
    if _caches_null(pool, command):
        return f"block {pool.null_block} is the null block, which is never cached"
    match command:
        case Free(block_ids=ids):
            return _forbidden_repeat(pool, ids)
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


def queue_misuse_of(queue: DictQueue, command: Command) -> Misuse | None:
    """Why the command breaks the queue's preconditions; None if it does not."""
    match command:
        case PopLeft():
            empty = Misuse(MisuseKind.TOO_FEW_QUEUED, "the queue is empty")
            return None if queue.order else empty
        case PopLeftN(count=count) if count < 0:
            return Misuse(MisuseKind.NEGATIVE_COUNT, f"{count} blocks are not queued")
        case PopLeftN(count=count):
            too_few = Misuse(MisuseKind.TOO_FEW_QUEUED, f"{count} blocks are not queued")
            return None if count <= len(queue.order) else too_few
        case Remove(block_id=block_id):
            absent = Misuse(MisuseKind.BLOCK_NOT_QUEUED, f"block {block_id} is not queued")
            return None if block_id in queue.order else absent
        case Append(block_id=block_id):
            return _not_joinable(queue, [block_id])
        case AppendN(block_ids=ids) | PrependN(block_ids=ids):
            return _not_joinable(queue, ids)
        case _:
            words = f"{command.verb} is not a command of a queue"
            return Misuse(MisuseKind.NO_COMMAND_OF_A_QUEUE, words)


def _negative(count: int) -> Misuse:
    return Misuse(MisuseKind.NEGATIVE_COUNT, f"the count {count} is negative")


def _misuse_of_cache(pool: DictPool, command: Command) -> Misuse | None:
    match command:
        case Cache(block_ids=ids, hashes=hashes) if len(ids) != len(hashes):
            words = f"{len(ids)} blocks come with {len(hashes)} hashes"
            return Misuse(MisuseKind.UNEQUAL_LISTS, words)
        case Cache(block_ids=ids) | CacheChain(block_ids=ids):
            return _bad_id(pool, ids) or _repeated(pool, ids) or _not_held(pool, ids)
        case CachePartial(block_id=block_id):
            return _bad_id(pool, [block_id]) or _not_held(pool, [block_id])
        case Evict(block_ids=ids):
            return _bad_id(pool, ids)
    return None


def _touchable(pool: DictPool, block_id: int) -> bool:
    return bool(pool.holders[block_id]) or bool(pool.keys[block_id])


def _not_joinable(queue: DictQueue, ids: Sequence[int]) -> Misuse | None:
    for block_id in ids:
        if not 0 <= block_id < queue.num_blocks:
            return _no_such_block(block_id, f"block {block_id} does not exist")
        if block_id in queue.order:
            words = f"block {block_id} is queued already"
            return Misuse(MisuseKind.BLOCK_QUEUED_ALREADY, words)
    if len(set(ids)) != len(ids):
        return Misuse(MisuseKind.REPEATED_BLOCK, f"a block stands twice in {list(ids)}")
    return None


def _no_such_block(block_id: int, words: str) -> Misuse:
    # Python reads a list from its end for one and raises for the other.
    negative = block_id < 0
    kind = MisuseKind.NEGATIVE_BLOCK if negative else MisuseKind.BLOCK_BEYOND_THE_POOL
    return Misuse(kind, words)


def _bad_id(pool: DictPool, ids: Iterable[int]) -> Misuse | None:
    for block_id in ids:
        if not 0 <= block_id < pool.num_blocks:
            words = f"block {block_id} does not exist (there are {pool.num_blocks})"
            return _no_such_block(block_id, words)
        if block_id == pool.null_block and pool.profile.null_in_lists == "misuse":
            return Misuse(MisuseKind.NULL_BLOCK, f"block {block_id} is the null block")
    return None


def _forbidden_repeat(pool: DictPool, ids: Iterable[int]) -> str | None:
    """Which block stands twice in a `free`, where the profile wants each of them once."""
    if pool.profile.repeats_in_free == "allowed":
        return None
    for block_id, times in Counter(ids).items():
        if times > 1 and block_id != pool.null_block:
            says = "and the profile says repeats_in_free=forbidden"
            return f"block {block_id} stands {times} times in one call, {says}"
    return None


def _caches_null(pool: DictPool, command: Command) -> bool:
    """Whether the null block is given a hash, where it may stand in other lists alone."""
    if pool.null_block is None or pool.profile.null_in_lists != "uncached":
        return False
    match command:
        case Cache(block_ids=ids):
            return pool.null_block in ids
        case CacheChain(block_ids=ids, num_cached=num_cached):
            return pool.null_block in ids[max(num_cached, 0) :]
        case CachePartial(block_id=block_id):
            return block_id == pool.null_block
        case _:
            return False


def _too_many_frees(pool: DictPool, ids: Iterable[int]) -> Misuse | None:
    for block_id, times in Counter(ids).items():
        held = len(pool.holders[block_id])
        if block_id != pool.null_block and times > held:
            kind = MisuseKind.FREED_TOO_OFTEN if held else MisuseKind.BLOCK_NOT_HELD
            words = f"block {block_id} is freed more often ({times}) than it is held ({held})"
            return Misuse(kind, words)
    return None


def _repeated(pool: DictPool, ids: Iterable[int]) -> Misuse | None:
    for block_id, times in Counter(ids).items():
        if times > 1 and block_id != pool.null_block:
            words = f"block {block_id} stands {times} times in one call"
            return Misuse(MisuseKind.REPEATED_BLOCK, words)
    return None


def _not_held(pool: DictPool, ids: Iterable[int]) -> Misuse | None:
    for block_id in ids:
        if block_id != pool.null_block and not pool.holders[block_id]:
            words = f"block {block_id} is cached although nobody holds it"
            return Misuse(MisuseKind.BLOCK_NOT_HELD, words)
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
