"""The specification of an index as a target: `DictIndex` behind the native contract."""

from __future__ import annotations

from poolproof.contract.index_commands import KEY_KINDS, IndexKey
from poolproof.contract.profile import Profile
from poolproof.reference.dict_index import DictIndex

__all__ = ["NativeDictIndex"]


class NativeDictIndex:
    """A native index target without any block at first; it takes keys of every kind."""

    key_kinds = tuple(KEY_KINDS)

    def __init__(self, *, profile: Profile | None = None) -> None:
        profile = profile or Profile()
        self._model = DictIndex(profile.duplicates)
        self.profile = profile.to_json()

    def insert(self, key: IndexKey, block_id: int, /) -> None:
        self._model.insert(key, block_id)

    def pop(self, key: IndexKey, block_id: int, /) -> int | None:
        return self._model.pop(key, block_id)

    def get(self, key: IndexKey, /) -> int | None:
        return self._model.get(key)

    def contains(self, key: IndexKey, block_id: int, /) -> bool:
        return self._model.contains(key, block_id)

    def clear(self) -> None:
        self._model.clear()

    def num_keys(self) -> int:
        """How many keys some block carries."""
        return len(self._model.carriers)

    def carriers(self, key: IndexKey, /) -> list[int]:
        """The blocks that carry the key."""
        return list(self._model.carriers.get(key, ()))
