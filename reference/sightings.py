"""How often contents were seen, where an index takes a key only after so many sightings.

Such an index keeps out what comes once (a doorkeeper, as in TinyLFU). What it counts differs: that
a request asks for a prefix, or that a block of it was computed; and it may forget what it counted
when the key is taken, or the cache is reset. Where contents decide, two counts say what is certain:
the `fewest` sightings that every such index has counted, and the `most` that any can have. Where
the rows decide (`index` is "exact"), each time counts that a block would get its key, for ever.

Keys and blocks are not covered here: `sequence_model.py` gives them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable

from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.content_names import Content

__all__ = ["Sightings"]


class Sightings:
    """The contents of one manager; those of different groups are different."""

    def __init__(self, profile: ManagerProfile) -> None:
        self.num_prior = profile.prior_sightings
        self._by_content = profile.by_content
        self._fewest: Counter[Content] = Counter()
        self._most: Counter[Content] = Counter()
        self._carried: Counter[Content] = Counter()

    def ask(self, keys: Iterable[Content]) -> None:
        """A request or a lookup has asked for these."""
        if self._by_content:
            self._most.update(keys)

    def takes(
        self,
        key: Content,
        *,
        num_sure: int,
        num_unsure: int,
        was_asked_for: bool,
        is_counted: bool,
    ) -> bool | None:
        """Whether a block that is full now gets its key, None where that is open.

        As many blocks have the key for sure, and as many more may have it. What `was_asked_for`
        before it was computed has been counted among the `most`; the sighting `is_counted` if no
        index can have left it out.
        """
        if not self._by_content:
            self._most[key] += 1
            return self._most[key] > self.num_prior
        if not num_sure and num_unsure < self._carried[key]:
            # What was evicted may have been taken, and who forgot its sightings counts anew.
            self._fewest[key] = 0
        self._most[key] += not was_asked_for
        self._fewest[key] += is_counted
        is_taken = True if self._fewest[key] > self.num_prior else None
        if is_taken is None and self.is_early(key):
            is_taken = False
        self._carried[key] = num_sure + num_unsure + (is_taken is not False)
        return is_taken

    def num_seen(self, key: Content) -> int:
        """The most sightings of a content that an index can have counted."""
        return self._most[key]

    def is_early(self, key: Content) -> bool:
        """Whether no index can have counted enough of them."""
        return self._most[key] <= self.num_prior

    def reset(self) -> None:
        """The cache was emptied, and perhaps what was counted with it."""
        if self._by_content:
            self._fewest.clear()
            self._carried.clear()

    def state(self) -> Hashable:
        """The same for two that count alike from now on."""
        return (
            frozenset(self._fewest.items()),
            frozenset(self._most.items()),
            frozenset(self._carried.items()),
        )
