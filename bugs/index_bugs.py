"""Bugs of an index on its own, most of which the pool around it hides."""

from __future__ import annotations

from poolproof.bugs.clean_index import CleanIndex
from poolproof.bugs.specimen import Section
from poolproof.contract.index_commands import IndexKey
from poolproof.contract.profile import Profile
from poolproof.contract.violation import Severity

__all__ = ["INDEX_BUGS"]

INDEX_BUGS = Section()
plant = INDEX_BUGS.plant


def _keeps_all(profile: Profile) -> bool:
    return profile.duplicates == "kept"


@plant(
    "K1", "popping one of several blocks forgets the others",
    thread="", invariants=("IDX",), severity=Severity.LOST_HIT, is_bug_under=_keeps_all,
)  # fmt: skip
class OthersForgotten(CleanIndex):
    """The entry was taken out whole and what is left of it is not put back."""

    def put_back(self, key: IndexKey, entry: dict[int, None]) -> None:
        pass


@plant(
    "K2", "a pop takes the key's only block, whichever block it names",
    thread="nano-vllm#219", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class OnlyBlockTaken(CleanIndex):
    """Recycling one block of a prefix loses the copy that is still there."""

    def pop_single(self, _key: IndexKey, entry: int, _block_id: int) -> int | None:
        return entry


@plant(
    "K3", "of two blocks the popped one stays and the other goes",
    thread="", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=_keeps_all,
)  # fmt: skip
class WrongOneStays(CleanIndex):
    """Going back from a dict to a bare id picks the wrong id."""

    def pop_of_several(self, key: IndexKey, entry: dict[int, None], block_id: int) -> int | None:
        if len(entry) == 2 and block_id in entry:
            self.entries[key] = block_id
            return block_id
        return super().pop_of_several(key, entry, block_id)


@plant(
    "K4", "a pop of one of several blocks answers the one that came first",
    thread="", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=_keeps_all,
)  # fmt: skip
class FirstAnswered(CleanIndex):
    """The right block is taken out, and who asked goes on with another one."""

    def pop_of_several(self, key: IndexKey, entry: dict[int, None], block_id: int) -> int | None:
        first = next(iter(entry))
        return None if super().pop_of_several(key, entry, block_id) is None else first


@plant(
    "K5", "get answers what it answered before, although that block was popped",
    thread="nano-vllm#163", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class StaleAnswer(CleanIndex):
    """The last answer is kept, and only an insertion forgets it."""

    last: tuple[IndexKey, int] | None = None

    def insert(self, key: IndexKey, block_id: int) -> None:
        self.last = None
        super().insert(key, block_id)

    def get(self, key: IndexKey) -> int | None:
        if self.last is not None and self.last[0] == key:
            return self.last[1]
        found = super().get(key)
        self.last = None if found is None else (key, found)
        return found


@plant(
    "K6", "looking a key up makes an entry for it",
    thread="", invariants=("IDX",), severity=Severity.LEAK,
)  # fmt: skip
class EntryOnLookup(CleanIndex):
    """A dict with a default: every miss costs memory for ever."""

    def get(self, key: IndexKey) -> int | None:
        return super().get(key) if self.entries.setdefault(key, {}) else None

    def insert(self, key: IndexKey, block_id: int) -> None:
        if self.entries.get(key) == {}:
            del self.entries[key]
        super().insert(key, block_id)


@plant(
    "K7", "of a key only the first bytes or bits are compared",
    thread="", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class KeyCut(CleanIndex):
    """Keys are packed into 64 bits; two prefixes share one entry."""

    def insert(self, key: IndexKey, block_id: int) -> None:
        super().insert(_cut(key), block_id)

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        return super().pop(_cut(key), block_id)

    def get(self, key: IndexKey) -> int | None:
        return super().get(_cut(key))

    def contains(self, key: IndexKey, block_id: int) -> bool:
        return super().contains(_cut(key), block_id)


def _cut(key: IndexKey) -> IndexKey:
    if isinstance(key, tuple):
        return key[0]
    return key[:8] if isinstance(key, bytes) else key % 2**32


@plant(
    "K8", "one block for each key: the second takes the first one's place",
    thread="nano-vllm#219", invariants=("IDX",), severity=Severity.LOST_HIT,
    is_bug_under=_keeps_all,
)  # fmt: skip
class LastWins(CleanIndex):
    """Right where the profile says so, and a lost copy where it promises to keep all."""

    def insert(self, key: IndexKey, block_id: int) -> None:
        self.entries[key] = block_id


@plant(
    "K9", "a block that is filed twice has to be popped twice",
    thread="", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class FiledTwice(CleanIndex):
    """Carriers are a list; the second entry outlives the block."""

    def __init__(self, rules: Profile | None = None) -> None:
        super().__init__(rules)
        self.twice: set[tuple[IndexKey, int]] = set()

    def insert(self, key: IndexKey, block_id: int) -> None:
        if self.contains(key, block_id):
            self.twice.add((key, block_id))
        super().insert(key, block_id)

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        if (key, block_id) in self.twice:
            self.twice.discard((key, block_id))
            return block_id
        return super().pop(key, block_id)


@plant(
    "K10", "the last of several blocks leaves an empty entry behind",
    thread="", invariants=("IDX", "CRASH"), severity=Severity.CRASH, is_bug_under=_keeps_all,
    silent=False,
)  # fmt: skip
class EmptyEntryStays(CleanIndex):
    """The next lookup of the key asks an empty dict for its first block."""

    def put_back(self, key: IndexKey, entry: dict[int, None]) -> None:
        self.entries[key] = entry


@plant(
    "K11", "popping a block that a key with several blocks lacks raises",
    thread="", invariants=("CRASH",), severity=Severity.CRASH, is_bug_under=_keeps_all,
    silent=False,
)  # fmt: skip
class AbsentBlockRaises(CleanIndex):
    """`del` where a `pop` with a default was meant."""

    def pop_of_several(self, key: IndexKey, entry: dict[int, None], block_id: int) -> int | None:
        del entry[block_id]
        self.put_back(key, entry)
        return block_id


@plant(
    "K12", "a pop that names another block loses the key's only one",
    thread="", invariants=("IDX",), severity=Severity.LOST_HIT,
)  # fmt: skip
class NotPutBack(CleanIndex):
    """The entry was taken out to be looked at, did not fit, and is not put back."""

    def pop_single(self, _key: IndexKey, entry: int, block_id: int) -> int | None:
        return block_id if entry == block_id else None


@plant(
    "K13", "a key that is there contains every block",
    thread="", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class ContainsAll(CleanIndex):
    """Membership is asked of the key alone."""

    def contains(self, key: IndexKey, _block_id: int) -> bool:
        return key in self.entries


@plant(
    "K14", "a clear forgets keys with one block and keeps those with several",
    thread="kvcached#363", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
    is_bug_under=_keeps_all,
)  # fmt: skip
class SeveralSurviveClear(CleanIndex):
    """Two dicts, one of them cleared."""

    def clear(self) -> None:
        self.entries = {
            key: entry for key, entry in self.entries.items() if isinstance(entry, dict)
        }


@plant(
    "K15", "a key ends at its first zero byte",
    thread="", invariants=("IDX",), severity=Severity.WRONG_DATA_OF_ANOTHER,
)  # fmt: skip
class EndsAtZero(CleanIndex):
    """Hashes are passed on as text of C."""

    key_kinds = ("bytes",)

    def insert(self, key: IndexKey, block_id: int) -> None:
        super().insert(_as_text(key), block_id)

    def pop(self, key: IndexKey, block_id: int) -> int | None:
        return super().pop(_as_text(key), block_id)

    def get(self, key: IndexKey) -> int | None:
        return super().get(_as_text(key))

    def contains(self, key: IndexKey, block_id: int) -> bool:
        return super().contains(_as_text(key), block_id)


def _as_text(key: IndexKey) -> IndexKey:
    return key.partition(b"\0")[0] if isinstance(key, bytes) else key
