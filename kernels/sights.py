"""Who sees which key in ways that a target has to declare: cases of them, drawn and made smaller.

`chunked`: within a chunk of positions. `window_ahead`: a window that looks back and ahead, of
queries that are not causal. `tree_mask`, `mask`: by a mask. `cross`: more queries than keys. Each
is laid over a case of the ordinary grammar, so that it meets all types, layouts and lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from poolproof.kernels.case import Case, contradiction
from poolproof.kernels.declaration import SIGHTS, Declaration

__all__ = [
    "declared_sights",
    "is_sight_supported",
    "sights_of",
    "smaller_sights",
    "whole_chunk",
    "with_sight",
]

Choose = Callable[[int], int]

MOST_DRAFTS = 16
MOST_CROSSING_QUERIES = 40

LARGE = 100
"""Keys from which on a case is first made smaller as a whole."""


def declared_sights(declared: Declaration) -> tuple[str, ...]:
    """Those that a target has."""
    return tuple(sight for sight in SIGHTS if sight in declared.features)


def with_sight(choose: Choose, allowed: Declaration, case: Case, sight: str) -> Case:
    """The case with one of them in the place of its window, if it had one."""
    plain: dict[str, Any] = {"sliding_window": None, "causal": False, "alibi": False}
    if sight == "chunked":
        chunk = _near_blocks(choose, case.block_size)
        return replace(
            case, sliding_window=None, causal=True,
            attention_chunk=whole_chunk(chunk, case.block_size, allowed),
        )  # fmt: skip
    if sight == "window_ahead":
        # As far ahead as anything is every third time, and back as well.
        near = choose((6, 24)[choose(2)])
        ahead = near if choose(3) < 2 else max(keys for _, keys in case.sequences)
        back = allowed.smallest_window + choose(24) if choose(3) < 2 else None
        return replace(case, **{**plain, "window_ahead": ahead, "sliding_window": back})
    if sight == "cross":
        return _crossed(choose, allowed, replace(case, **plain))
    kind = "tree"
    if sight == "mask":
        kind = "any" if allowed.empty_row in {"zeros", "untouched"} else "seen"
        if "cross" in allowed.features and choose(4) == 3:
            case = _crossed(choose, allowed, case)
    elif "prefill" in allowed.modes:
        sequences = tuple(_drafts(choose, allowed, *pair) for pair in case.sequences)
        case = _within_modes(replace(case, sequences=sequences), allowed) or case
    views = case.views + (("mask",) if "mask" in allowed.views and choose(3) == 2 else ())
    return replace(case, **{**plain, "mask": kind, "views": views})


def whole_chunk(chunk: int, block_size: int, allowed: Declaration) -> int:
    """The chunk, or where the target asks for it the next one of whole blocks."""
    return chunk if allowed.promises("chunks") else -(-chunk // block_size) * block_size


def sights_of(case: Case) -> set[str]:
    """Those that a target must have for the case."""
    needed = set()
    if case.attention_chunk is not None:
        needed.add("chunked")
    if case.window_ahead is not None:
        needed.add("window_ahead")
    if case.mask is not None:
        needed.add("tree_mask" if case.mask == "tree" else "mask")
    if any(queries > keys > 0 for queries, keys in case.sequences):
        needed.add("cross")
    return needed


def is_sight_supported(case: Case, declared: Declaration) -> bool:
    """Whether who sees which key fits together in a case, and the target has it."""
    needed = sights_of(case)
    if contradiction(case) is not None or not needed <= set(declared.features):
        return False
    if not case.causal and not needed and not {"non_causal", "cross"} & set(declared.features):
        return False
    chunk = case.attention_chunk
    return chunk is None or chunk == whole_chunk(chunk, case.block_size, declared)


def smaller_sights(case: Case) -> Iterator[Case]:
    """Cases that see less unusually, the boldest first; not all of them fit a declaration."""
    if case.causal and case.attention_chunk is None:
        return
    pairs = tuple(
        (min(queries, keys) if keys else queries, keys) for queries, keys in case.sequences
    )
    plain: dict[str, Any] = {"attention_chunk": None, "window_ahead": None, "mask": None}
    if sum(keys for _, keys in case.sequences) > LARGE:
        # A mask changes as a whole with its sizes, so all of them at once are halved first.
        halves = tuple((-(-queries // 2), -(-keys // 2)) for queries, keys in case.sequences)
        yield replace(case, sequences=halves)
        yield replace(
            case, sequences=tuple((queries, min(queries, keys)) for queries, keys in pairs)
        )
    if sights_of(case):
        yield replace(case, **plain, sequences=pairs, causal=True, sliding_window=None)
        yield replace(case, **plain, sliding_window=None)
    if case.mask == "any":
        yield replace(case, mask="seen")
    if case.window_ahead is not None and case.sliding_window is not None:
        yield replace(case, sliding_window=None)
    for name in ("attention_chunk", "window_ahead"):
        value = getattr(case, name)
        if value:
            yield replace(case, **{name: value // 2})
            yield replace(case, **{name: value - 1})
    if case.attention_chunk is not None and case.attention_chunk > case.block_size:
        yield replace(case, attention_chunk=case.attention_chunk - case.block_size)
    for index, (queries, keys) in enumerate(case.sequences):
        # The usual smaller forms of a sequence have no more queries than keys.
        for fewer in sorted({1, keys // 2, keys - 1}) if queries > keys else ():
            if 0 < fewer < keys:
                yield _with_pair(case, index, (queries, fewer))


def _with_pair(case: Case, index: int, pair: tuple[int, int]) -> Case:
    sequences = (*case.sequences[:index], pair, *case.sequences[index + 1 :])
    return replace(case, sequences=sequences)


def _drafts(choose: Choose, allowed: Declaration, queries: int, keys: int) -> tuple[int, int]:
    """A sequence whose queries are a tree of drafts, or a decode as it was."""
    if not queries or not keys or (queries == 1 and allowed.mixed):
        return queries, keys
    return min(keys, 2 + choose(MOST_DRAFTS)), keys


def _near_blocks(choose: Choose, block_size: int) -> int:
    """A chunk, every second time one beside a multiple of the block size, or such a multiple."""
    if choose(2):
        return 1 + choose(24)
    return max(1, block_size * (1 + choose(max(1, 24 // block_size))) - 1 + choose(3))


def _crossed(choose: Choose, allowed: Declaration, case: Case) -> Case:
    """The case with more queries than keys in a sequence or several, where the modes have it."""
    if "prefill" not in allowed.modes:
        return replace(case, causal=False)
    sequences = [
        (2 + choose(MOST_CROSSING_QUERIES), 1 + choose(keys)) if keys and choose(4) else pair
        for pair in case.sequences
        for keys in pair[1:]
    ]
    queries = 3 + choose(MOST_CROSSING_QUERIES)
    sequences[choose(len(sequences))] = queries, 1 + choose(queries - 1)
    changed = replace(case, sequences=tuple(sequences), shared_blocks=0, causal=False)
    kept = _within_modes(changed, allowed)
    return kept or replace(changed, sequences=(max(sequences, key=_surplus),))


def _surplus(pair: tuple[int, int]) -> int:
    return pair[0] - pair[1] if pair[1] else -1


def _within_modes(case: Case, allowed: Declaration) -> Case | None:
    """The case, or None if its sequences are of modes that the target has not, or has not mixed."""
    modes = _modes(case.sequences)
    return case if modes <= set(allowed.modes) and (allowed.mixed or len(modes) < 2) else None


def _modes(sequences: Sequence[tuple[int, int]]) -> set[str]:
    return {"decode" if queries == 1 else "prefill" for queries, _ in sequences if queries}
