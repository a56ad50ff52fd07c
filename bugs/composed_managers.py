"""Correct managers of random designs: rows of the profile and habits, mixed from a seed.

The oddities were written one by one, each for one idea. Real engines mix ideas, and a judgement
that is right for each alone may be wrong for two together. `composed(7)` is a manager class with
its own profile, which can be imported as `poolproof.bugs.composed_managers:Composed7`: the same
seed is the same design. None may be accused under its own profile. `contradiction` is a row with a
value that the design does not have: under it the same class has to be accused.

What designs consist of: a layout (full attention, a window, chunks, two groups, full attention with
host memory), rows that the clean managers follow, and habits, which no row forbids: how forks copy,
which carrier answers, in which entries new blocks stand, what types answers have, what is shown.
Half of the designs are judged by content (`index=content`) and keep their index in ways that no row
describes: late, early, again, merged or rewritten. Not mixed: recurrent states, rings, and the rows
for single engines (`keyed`, `states`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from poolproof.bugs.clean_groups import CleanHybridManager, CleanWindowManager
from poolproof.bugs.clean_manager import CleanManager, CleanSequence, CleanSwappingManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.manager_oddities import (
    ArrayManager,
    ContentCheckedManager,
    EagerForker,
    EarlyShower,
    LatePublisher,
    MergingManager,
    QuietMerger,
    RegainingManager,
    ReportingManager,
    RewritingManager,
)
from poolproof.contract.content import Key

__all__ = ["Design", "Row", "composed", "contradictions", "design_of"]

Row = tuple[str, Any]
"""A row and a value of it."""


# Habits of pools.


class _NewestCarrier(CleanPool):
    """Of several carriers of a hash the one cached last answers."""

    def lookup(self, block_hash: Key) -> int | None:
        carriers = self.index.get(block_hash)
        return carriers[-1] if carriers else None


class _LastFirst(CleanPool):
    """Of several blocks taken at once the last of the queue stands first."""

    def allocate(self, n: int) -> list[int]:
        return super().allocate(n)[::-1]


class _Scattering(CleanPool):
    """New blocks come from anywhere in the queue."""

    def __init__(self, num_blocks: int, **options: Any) -> None:
        super().__init__(num_blocks, **options)
        self._random = Random(num_blocks)

    def _take_from_queue(self, count: int) -> list[int]:
        if count > self.num_free():
            return super()._take_from_queue(count)  # which raises
        if self.num_free() < self.num_blocks // 4 + count:
            taken = self._random.sample(self.free_order(), count)
            for block_id in taken:
                self.queue.remove(block_id)
            return taken
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> int:
        """A free block, by drawing until it is one: quick while many are free."""
        block_id = self._random.randrange(self.num_blocks)
        while not self.queue.holds(block_id):
            block_id = self._random.randrange(self.num_blocks)
        self.queue.remove(block_id)
        return block_id


class _Forgetting(CleanPool):
    """Now and then an allocation makes a cached block that nobody holds forget its content."""

    _calls = 0

    def allocate(self, n: int) -> list[int]:
        taken = super().allocate(n)
        self._calls += 1
        if self._calls % 3 == 0:
            last = self.queue.last()
            if last is not None:
                self._drop_hash(last)
        return taken


# Habits of managers.


class _HalfOfAHit(CleanManager):
    """It uses the first half of what it finds."""

    def _hits(self, sequence: CleanSequence) -> list[int]:
        hits = super()._hits(sequence)
        return hits[: -(-len(hits) // 2)]


class _Cautious(CleanManager):
    """A growth has to leave a block free."""

    def _has_room(self, sequence: CleanSequence, further: int) -> bool:
        return self.pool.num_free() > 1 and super()._has_room(sequence, further)


class _AnyOrder(CleanManager):
    """A sequence gives its blocks back in the order of their ids."""

    def _give_back(self, sequence: CleanSequence) -> None:
        sequence.table.sort()
        super()._give_back(sequence)


# Habits of those that are judged by content.


class _TakesWhatItWouldWrite(CleanManager):
    """A free block that holds what would be written next is taken and written again."""

    def _take_hits(self, sequence: CleanSequence, hits: list[int]) -> None:
        super()._take_hits(sequence, hits)
        entry = len(sequence.table)
        is_full = (entry + 1) * self.block_size <= len(sequence.tokens)
        if is_full and entry < self._num_entries(sequence):
            block = self._find(sequence, entry)
            if block is not None and self.pool.ref_count(block) == 0:
                self._touch([block])
                sequence.table.append(block)


class _CachesAnew(CleanManager):
    """What lost its key and is held by somebody has it again after the next step."""

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        super()._publish_up_to(sequence, num_tokens)
        if not self.enable_caching or sequence.loading:
            return
        for entry in range(min(num_tokens // self.block_size, sequence.num_published)):
            block = sequence.table[entry]
            is_known = block == self.pool.null_block or self.pool.block_hash(block) is not None
            if not is_known and self._find(sequence, entry) is None:
                self.pool.cache([block], [self._key(sequence, entry)])


class _PublishesLate(CleanManager):
    """A block is found once a whole block behind it is computed."""

    def _publish_up_to(self, sequence: CleanSequence, num_tokens: int) -> None:
        super()._publish_up_to(sequence, max(num_tokens - self.block_size, 0))


class _SlidesAtOnce(CleanManager):
    """What no later token reads is given back at the end of the step."""

    def _computed(self, sequence: CleanSequence) -> None:
        super()._computed(sequence)
        self._slide(sequence)


_OF_POOLS: Mapping[str, type[CleanPool]] = {
    "newest carrier": _NewestCarrier,
    "last first": _LastFirst,
    "scattering": _Scattering,
    "forgetting": _Forgetting,
}
_OF_MANAGERS: Mapping[str, type[CleanManager]] = {
    "array answers": ArrayManager,
    "compares contents": ContentCheckedManager,
    "forks by copying": EagerForker,
    "merges duplicates": MergingManager,
    "reports changes": ReportingManager,
    "half of a hit": _HalfOfAHit,
    "cautious": _Cautious,
    "any order": _AnyOrder,
    "takes what it would write": _TakesWhatItWouldWrite,
    "caches anew": _CachesAnew,
    "publishes late": _PublishesLate,
    "slides at once": _SlidesAtOnce,
    "rewrites the last token": RewritingManager,
    "regains what nobody wrote to": RegainingManager,
    "publishes at the end": LatePublisher,
    "shows early": EarlyShower,
    "merges quietly": QuietMerger,
}
_SHOWS_LITTLE = "shows its tables alone"
_LAYOUTS: Mapping[str, tuple[type, str]] = {
    "full": (CleanManager, "full"),
    "swapping": (CleanSwappingManager, "full"),
    "sliding": (CleanWindowManager, "sliding:{window}"),
    "chunked": (CleanWindowManager, "chunked:{window}"),
    "full+sliding": (CleanHybridManager, "full+sliding:{window}"),
    "sliding+full": (CleanHybridManager, "sliding:{window}+full"),
    "full+chunked": (CleanHybridManager, "full+chunked:{window}"),
}


@dataclass(frozen=True, slots=True)
class Design:
    """What the manager of a seed is; what `rows` do not name has its first value.

    `contradiction` is a row and a value under which it must not hold.
    """

    seed: int
    layout: str
    rows: Mapping[str, Any]
    habits: tuple[str, ...]
    contradiction: Row = field(default=("", None))

    @property
    def name(self) -> str:
        """The name of its class."""
        return f"Composed{self.seed}"

    @property
    def target(self) -> str:
        """The target as it stands on a command line."""
        return f"{__name__}:{self.name}"

    @property
    def contradicted(self) -> str:
        """The same class under a profile that contradicts it."""
        row, value = self.contradiction
        return f"{self.target}[{row}={value}]"


def design_of(seed: int) -> Design:
    """The design of a seed; every seed has one."""
    random = Random(f"composed manager {seed}")
    layout = random.choice(list(_LAYOUTS))
    rows = _rows(random, layout)
    habits = _habits(random, layout, rows)
    rows |= _rows_of_index(Random(f"index of composed manager {seed}"), habits)
    design = Design(seed, layout, rows, habits)
    contradiction = random.choice(_contradictions(design))
    return Design(seed, layout, design.rows, design.habits, contradiction)


def composed(seed: int) -> type:
    """The manager class of a seed, with its profile."""
    design = design_of(seed)
    base, _ = _LAYOUTS[design.layout]
    of_pools = [_OF_POOLS[name] for name in design.habits if name in _OF_POOLS]
    of_managers = [_OF_MANAGERS[name] for name in design.habits if name in _OF_MANAGERS]
    members: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": f"{design.layout}: {', '.join(design.habits) or 'no habits'}",
        "profile": dict(design.rows),
        "pool_class": type("Pool", (*of_pools, CleanPool), {}) if of_pools else CleanPool,
    }
    if base is CleanHybridManager and of_managers:
        members["full_class"] = type("Full", (*of_managers, CleanManager), {})
        members["window_class"] = type("Window", (*of_managers, CleanWindowManager), {})
        of_managers = []
    if _SHOWS_LITTLE in design.habits:
        members |= dict.fromkeys(("num_free", "free_order", "ref_count", "is_cached"))
    return type(design.name, (*of_managers, base), members)


def __getattr__(name: str) -> type:
    """`Composed7` is the manager of seed 7. Raises AttributeError for other names."""
    found = re.fullmatch(r"Composed(0|[1-9]\d*)", name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return composed(int(found[1]))


def _rows(random: Random, layout: str) -> dict[str, Any]:
    """Rows that the clean managers follow, and that go together."""
    is_plain = layout in ("full", "swapping")
    window = random.choice((5, 8, 11))
    rows: dict[str, Any] = {
        "groups": _LAYOUTS[layout][1].format(window=window),
        "publishes": random.choice(("computed", "computed", "scheduled", "prompts", "finish")),
        "duplicates": random.choice(("kept", "kept", "first", "last")),
        "retention": random.choice(("exact", "exact", "may-drop", "while-held")),
        "eviction": random.choice(
            ("lru", "lru", "unhashed-first", "unhashed-lifo", "lifo", "unspecified")
        ),
        "release_order": random.choice(("tail-first", "tail-first", "head-first", "unspecified")),
        "frees": random.choice(("at-once", "at-once", "after-step")),
        "reserves": random.choice(("scheduled", "scheduled", "sequence")),
        "full_hit": random.choice(("recompute-token", "allowed")),
        "never": random.choice(("told", "untold")),
        "watermark_blocks": random.choice((0, 0, 1)),
        "lookahead_tokens": random.choice((0, 0, 2)),
        "null_block": random.choice((None, 0)) if is_plain else 0,
        "index": random.choice(("exact", "content")),
        "generation_tokens": random.choice((0, 0, 0, 5)),
        "uncached_order": random.choice(("same", "same", "tail-first", "head-first")),
    }
    if layout == "swapping":
        rows["host_blocks"] = 6
    if rows["release_order"] == "unspecified":
        rows["uncached_order"] = "same"
    if "+" in layout:
        rows["group_order"] = random.choice(("first-to-last", "last-to-first"))
    if rows["publishes"] == "scheduled":
        rows["same_step_hit"] = "allowed"
    if "+" in layout and rows["publishes"] == "scheduled":
        # Whether a carrier is evicted before or after the other group publishes is left open.
        rows["duplicates"] = "kept"
    if rows["publishes"] == "finish" and rows["retention"] == "while-held":
        rows["retention"] = "exact"  # the blocks of who ends are free: nothing would be found
    if layout not in ("full", "swapping"):
        # A hit of a whole prompt would read nothing of a window before the next token comes.
        rows["full_hit"] = "recompute-token"
    return rows


def _rows_of_index(random: Random, habits: Sequence[str]) -> dict[str, Any]:
    """Who finds a cached block, and how often a prefix has to come, where habits leave it open."""
    rows: dict[str, Any] = {}
    if {"merges duplicates", "merges quietly"}.isdisjoint(habits):
        # Who merges makes two sequences share, and looks for the carrier of what it has published.
        if random.random() < 0.3:
            rows["held_blocks"] = "exclusive"
        own_keys = {"caches anew", "regains what nobody wrote to"}
        if own_keys.isdisjoint(habits) and random.random() < 0.3:
            rows["prior_sightings"] = random.choice((1, 1, 2))
    return rows


def _habits(random: Random, layout: str, rows: dict[str, Any]) -> tuple[str, ...]:
    """Habits that the rows leave room for; those that need a row of their own set it."""
    is_plain, is_single = layout in ("full", "swapping"), "+" not in layout
    habits = []
    if rows["eviction"] == "unspecified":
        habits.append("scattering")
    if rows["retention"] == "may-drop":
        habits.append("forgetting")
    if rows["release_order"] == "unspecified":
        habits.append("any order")
    if rows["duplicates"] == "kept" and random.random() < 0.3:
        habits.append("newest carrier")
    if random.random() < 0.3:
        habits.append("last first")
    may_merge = layout == "full" and rows["publishes"] in ("computed", "prompts")
    if rows["index"] == "content":
        habits += _habits_of_content(random, layout, rows)
    elif may_merge and rows["duplicates"] == "first" and random.random() < 0.5:
        habits.append("merges duplicates")
        rows["tables"] = "merged"
    if is_plain and random.random() < 0.2:
        habits.append("half of a hit")
        rows["hits"] = "sound"
    if is_single and random.random() < 0.2:
        habits.append("cautious")
        rows["admission"] = "exact-at-admission"
    if is_plain and random.random() < 0.2:
        habits.append("forks by copying")
    if is_plain and "merges duplicates" not in habits and random.random() < 0.2:
        habits.append("compares contents")
    if layout == "full" and random.random() < 0.2:
        habits.append("reports changes")
    if is_single and random.random() < 0.15:
        habits.append("array answers")
    if random.random() < 0.15:
        habits.append(_SHOWS_LITTLE)
    return tuple(habits)


def _habits_of_content(random: Random, layout: str, rows: dict[str, Any]) -> list[str]:
    """How an index can be kept that only what is read shows."""
    is_plain, is_single = layout in ("full", "swapping"), "+" not in layout
    possible = ["caches anew"]
    if is_plain:
        possible.append("takes what it would write")
    if layout == "full" and rows["full_hit"] == "recompute-token":
        possible.append("rewrites the last token")
    if rows["publishes"] in ("computed", "prompts"):
        possible.append("publishes late")
        possible += ["publishes at the end"] * is_single
    if is_single:
        possible += ["shows early", "regains what nobody wrote to"]
    if not is_plain:
        possible.append("slides at once")
    # Whose duplicates go at the end and after the step, nobody can tell in which order.
    at_end = rows["publishes"] == "finish" and rows["frees"] == "after-step"
    merges = rows["duplicates"] == "first" and rows["publishes"] != "scheduled" and not at_end
    if layout == "full" and merges:
        possible.append("merges quietly")
    habits = [habit for habit in possible if random.random() < 0.35]
    if {"publishes late", "publishes at the end"} & set(habits):
        rows["hits"] = "sound"
    return habits


def _contradictions(design: Design) -> Sequence[Row]:
    """Rows with a value that the design does not have, and whose difference it cannot hide."""
    rows, found = design.rows, []
    found.append(("watermark_blocks", rows["watermark_blocks"] + 1))
    if rows["generation_tokens"]:
        found.append(("generation_tokens", rows["generation_tokens"] + 4))
    else:  # otherwise it holds more slots than these rows ask for
        found.append(("lookahead_tokens", 3 if not rows["lookahead_tokens"] else 0))
        found.append(("reserves", "sequence" if rows["reserves"] == "scheduled" else "scheduled"))
    if rows["never"] == "untold":
        found.append(("never", "told"))
    if rows["full_hit"] == "allowed" and rows.get("hits", "exact") == "exact":
        found.append(("full_hit", "recompute-token"))
    is_content = rows["index"] == "content"
    if not is_content:
        found.append(("publishes", "never"))
    if not is_content and rows["publishes"] == "computed" and rows["retention"] != "while-held":
        found.append(("publishes", "finish"))
    is_exact = rows.get("hits", "exact") == "exact" and not is_content
    if is_exact and rows["publishes"] in ("finish", "prompts"):
        found.append(("publishes", "computed"))
    has_order = rows["eviction"] != "unspecified" and rows["release_order"] != "unspecified"
    if has_order and not is_content:
        found.append(("eviction", "lru" if rows["eviction"] != "lru" else "lifo"))
        other = "tail-first" if rows["release_order"] == "head-first" else "head-first"
        found.append(("release_order", other))
        if "+" in design.layout:
            is_first = rows["group_order"] == "first-to-last"
            found.append(("group_order", "last-to-first" if is_first else "first-to-last"))
    if has_order and is_content and "merges quietly" not in design.habits:
        found.append(("eviction", "lru" if rows["eviction"] != "lru" else "lifo"))
    if rows["retention"] != "exact" and is_exact:
        found.append(("retention", "exact"))
    if rows["retention"] == "exact" and not is_content:
        found.append(("retention", "while-held"))
    finds_all = rows.get("hits", "exact") == "exact"
    if finds_all and rows["retention"] == "exact":
        is_exclusive, num_prior = "held_blocks" in rows, rows.get("prior_sightings", 0)
        found.append(("held_blocks", "shared" if is_exclusive else "exclusive"))
        found.append(("prior_sightings", 0 if num_prior else 1))
    if is_exact and _SHOWS_LITTLE not in design.habits:
        kept = rows["duplicates"] == "kept"
        found.append(("duplicates", "first" if kept else "kept"))
        found.append(("frees", "after-step" if rows["frees"] == "at-once" else "at-once"))
    return found


def contradictions(design: Design) -> Sequence[Row]:
    """Each row and value that is tried against a design: those above, and further ones.

    `Design.contradiction` is drawn from those above alone, so that seeds stay what they are.
    """
    rows, habits = design.rows, set(design.habits)
    found = [*_contradictions(design), ("groups", _with_wider_window(rows["groups"]))]
    if habits & _seen_in_keys(design):
        found.append(("index", "exact"))
    if habits & {"merges duplicates", "merges quietly"}:
        found.append(("tables", "append-only"))
    if "half of a hit" in habits:
        found.append(("hits", "exact"))
    if "cautious" in habits:
        found.append(("admission", "exact"))
    if design.layout in ("full", "swapping"):
        found.append(("null_block", 0 if rows["null_block"] is None else None))
    if rows["frees"] == "after-step":
        found.append(("frees", "at-once"))
    if rows["retention"] == "while-held" and "held_blocks" in rows:  # nobody ever finds anything
        found = [row for row in found if row[0] not in _OF_HITS]
    return [(row, value) for row, value in dict.fromkeys(found) if value != rows.get(row)]


_OF_HITS = {"publishes", "duplicates", "full_hit", "hits", "index"}
"""Rows that only a hit shows."""


def _seen_in_keys(design: Design) -> set[str]:
    """Habits of those that are judged by content, which an exact index does not have."""
    found = {
        "takes what it would write",
        "rewrites the last token",
        "regains what nobody wrote to",
        "merges quietly",
        "slides at once",
    }
    if design.rows["duplicates"] != "kept":
        found.add("caches anew")  # otherwise what is held loses no key
    if design.rows["publishes"] != "scheduled" and _SHOWS_LITTLE not in design.habits:
        found.add("shows early")
    return found


def _with_wider_window(groups: str) -> str:
    """The groups as text, each window four tokens wider."""
    return re.sub(r":(\d+)", lambda found: f":{int(found[1]) + 4}", groups)
