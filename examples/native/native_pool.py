"""A pool in native code as a target in Python, through ctypes: `streak_pool.c` beside this file.

The library is built by the command that `docs/campaigns.md` shows; STREAK_POOL says where it lies.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_MOST_HASH_BYTES = 64
_NONE = -1


class _Hash(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint), ("bytes", ctypes.c_ubyte * _MOST_HASH_BYTES))


def _library() -> ctypes.CDLL:
    beside = Path(__file__).with_name("libstreak_pool.so")
    library = ctypes.CDLL(os.environ.get("STREAK_POOL", str(beside)))
    library.streak_pool_new.restype = ctypes.c_void_p
    library.streak_pool_core.restype = ctypes.c_void_p
    library.lru_pool_block_hash.restype = ctypes.POINTER(_Hash)
    for verb in ("allocate", "touch", "free", "cache", "evict"):
        owner = "streak_pool" if verb == "allocate" else "lru_pool"
        getattr(library, f"{owner}_{verb}").restype = ctypes.c_char_p
    return library


_native = _library()


class Pool:
    """The contract's verbs, each handed to the library."""

    profile = {"misuse": "raises"}

    def __init__(self, num_blocks: int, *, enable_caching: bool = True) -> None:
        self._num_blocks = num_blocks
        self._streak = ctypes.c_void_p(_native.streak_pool_new(num_blocks, int(enable_caching)))
        self._pool = ctypes.c_void_p(_native.streak_pool_core(self._streak))

    def __del__(self) -> None:
        _native.streak_pool_delete(self._streak)

    def allocate(self, n: int) -> list[int]:
        taken = (ctypes.c_int * max(n, 1))()
        _raise_if(_native.streak_pool_allocate(self._streak, n, taken))
        return list(taken[:n])

    def touch(self, block_ids: list[int]) -> None:
        _raise_if(_native.lru_pool_touch(self._pool, _ids(block_ids), len(block_ids)))

    def free(self, block_ids: list[int]) -> None:
        _raise_if(_native.lru_pool_free(self._pool, _ids(block_ids), len(block_ids)))

    def cache(self, block_ids: list[int], hashes: list[bytes]) -> None:
        given = (_Hash * max(len(hashes), 1))(*map(_hash, hashes))
        _raise_if(
            _native.lru_pool_cache(self._pool, _ids(block_ids), len(block_ids), given, len(hashes))
        )

    def lookup(self, block_hash: bytes) -> int | None:
        found = _native.lru_pool_lookup(self._pool, ctypes.byref(_hash(block_hash)))
        return None if found == _NONE else int(found)

    def evict(self, block_ids: list[int]) -> None:
        _raise_if(_native.lru_pool_evict(self._pool, _ids(block_ids), len(block_ids)))

    def reset(self) -> bool:
        return bool(_native.lru_pool_reset(self._pool))

    def num_free(self) -> int:
        return int(_native.lru_pool_num_free(self._pool))

    def free_order(self) -> list[int]:
        order = (ctypes.c_int * (self._num_blocks + 1))()
        return list(order[: _native.lru_pool_free_order(self._pool, order)])

    def ref_count(self, block_id: int) -> int:
        return int(_native.lru_pool_ref_count(self._pool, block_id))

    def block_hash(self, block_id: int) -> bytes | None:
        found = _native.lru_pool_block_hash(self._pool, block_id)
        return bytes(found.contents.bytes[: found.contents.length]) or None if found else None


def _ids(block_ids: list[int]) -> ctypes.Array[ctypes.c_int]:
    return (ctypes.c_int * max(len(block_ids), 1))(*block_ids)


def _hash(block_hash: bytes) -> _Hash:
    return _Hash(len(block_hash), (ctypes.c_ubyte * _MOST_HASH_BYTES)(*block_hash))


def _raise_if(refusal: bytes | None) -> None:
    if refusal is not None:
        raise ValueError(refusal.decode())
