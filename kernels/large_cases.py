"""Draws cases of the sizes that servers run: what tiles, splits and integer widths make likely.

A run has a few of them, one of each kind: a fault that begins at some number of keys, queries,
sequences, heads or elements shows in the kind that has the most of these, and the kinds with the
most are in every run. Lengths stand at the edges of the tiles that a target declares, or of the
usual ones. Where a size is not what a case is about it stays small, because the interpreter takes
5 ms for a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from poolproof.kernels.case import Case
from poolproof.kernels.declaration import QUANTISED_FEATURES, SIGHTS, Declaration
from poolproof.kernels.grammar import Choose, draw_case, with_declared_values
from poolproof.kernels.quantised_cache import SCALES
from poolproof.kernels.quantised_cases import large_rows, wide_rows
from poolproof.kernels.sights import whole_chunk, with_sight

__all__ = [
    "KINDS",
    "SIGHT_KINDS",
    "Draw",
    "draw_at_kind",
    "draw_long_context",
    "draw_wide_cache",
    "quantised_draws",
    "quantised_small_draws",
]

Draw = Callable[[Choose, Declaration], Case]
Sequences = tuple[tuple[int, int], ...]

MOST_KEYS = 2100
MOST_QUERIES = 300
MOST_SEQUENCES = 33
MOST_QUERIES_PER_KV_HEAD = 16
MOST_LATENT_QUERIES = 128
"""Query heads over latent keys, which have one head."""

LONG_CONTEXT = 32_768
USUAL_TILES = (64, 128, 256, 512, 1024)


def _edge(choose: Choose, allowed: Declaration, low: int, high: int) -> int:
    """A length from `low` to `high`, mostly one beside a multiple of a tile."""
    tiles = [tile for tile in allowed.tiles or USUAL_TILES if tile <= high]
    if not tiles or choose(3) == 2:
        return low + choose(high - low + 1)
    tile = tiles[choose(len(tiles))]
    length = tile * (1 + choose(high // tile)) + (1, 0, -1)[choose(3)]
    return min(high, max(low, length))


def _base(choose: Choose, allowed: Declaration, **rows: Any) -> Case:
    """A small case without a window, which would hide what is far away, as a start."""
    case = draw_case(choose, replace(allowed, features=_plain_features(allowed)))
    heads = {"num_kv_heads": 1, "queries_per_kv_head": 1 + (allowed.grouped and choose(2))}
    plain: dict[str, Any] = {"sliding_window": None, "shared_blocks": 0, **heads}
    # Which blocks are whose matters little here; a cache of many small blocks costs time alone.
    size = max(allowed.block_sizes) if choose(2) else case.block_size
    return replace(case, **{**plain, "block_size": size, "head_size": _head(allowed), **rows})


def _plain_features(allowed: Declaration) -> tuple[str, ...]:
    """The features without those of who sees which key, which have kinds of their own."""
    return tuple(feature for feature in allowed.features if feature not in SIGHTS)


def _head(allowed: Declaration) -> int:
    return min(allowed.head_sizes)


def _has(allowed: Declaration, mode: str) -> bool:
    return mode in allowed.modes


def _windowed(choose: Choose, allowed: Declaration, case: Case) -> Case:
    """The case with a window at the edge of a tile, if the target has windows."""
    if "sliding_window" not in allowed.features:
        return case
    most = max(keys for _, keys in case.sequences)
    window = _edge(choose, allowed, min(most, 17), most)
    return replace(case, sliding_window=max(allowed.smallest_window, window), causal=True)


def _long_decode(choose: Choose, allowed: Declaration) -> Case:
    """One sequence of nearly the most keys, and a short one."""
    keys = MOST_KEYS - choose(52)
    one = 1 if _has(allowed, "decode") else 16
    return _base(choose, allowed, sequences=((one, keys), (one, 130 + choose(3))))


def _long_decode_in_a_window(choose: Choose, allowed: Declaration) -> Case:
    one = 1 if _has(allowed, "decode") else 16
    case = _base(choose, allowed, sequences=((one, _edge(choose, allowed, 700, MOST_KEYS)),))
    return _windowed(choose, allowed, case)


def _long_sums(dtype: str, choose: Choose, allowed: Declaration) -> Case:
    """About 2,000 like weights in a half type: a half sum of them is lost."""
    case = _long_decode(choose, allowed)
    dtype = dtype if dtype in allowed.dtypes else case.dtype
    plain: dict[str, Any] = {"alibi": False, "softcap": None, "sinks": False, "cache_dtype": None}
    return replace(case, dtype=dtype, distribution="even", **plain)


def _large_scores(choose: Choose, allowed: Declaration) -> Case:
    """Scores of 300 in the least precise type that keeps them, over some hundred keys."""
    sequences = ((1 if _has(allowed, "decode") else 20, _edge(choose, allowed, 130, 400)),)
    case = _base(choose, allowed, sequences=sequences)
    if not allowed.promises("scores"):
        return case
    halves = [dtype for dtype in allowed.dtypes if dtype != "float32"]
    dtype = halves[choose(len(halves))] if halves else allowed.dtypes[0]
    plain: dict[str, Any] = {"alibi": False, "softcap": None, "sinks": False, "cache_dtype": None}
    return replace(case, dtype=dtype, distribution="high", scale=None, **plain)


def _long_prompt(choose: Choose, allowed: Declaration) -> Case:
    """A whole prompt of nearly the most queries."""
    if not _has(allowed, "prefill"):
        return _long_decode(choose, allowed)
    queries = MOST_QUERIES - choose(20)
    return _base(choose, allowed, sequences=((queries, queries),))


def _long_chunk(choose: Choose, allowed: Declaration) -> Case:
    """A chunk of a prompt behind nearly the most cached keys."""
    if not _has(allowed, "prefill"):
        return _long_decode_in_a_window(choose, allowed)
    queries = _edge(choose, allowed, 80, 130)
    return _base(choose, allowed, sequences=((queries, MOST_KEYS - choose(52)),))


def _chunk_in_a_window(choose: Choose, allowed: Declaration) -> Case:
    if not _has(allowed, "prefill"):
        return _long_decode_in_a_window(choose, allowed)
    queries = _edge(choose, allowed, 80, 200)
    keys = _edge(choose, allowed, queries, 900)
    return _windowed(choose, allowed, _base(choose, allowed, sequences=((queries, keys),)))


def _drafts_in_a_window(choose: Choose, allowed: Declaration) -> Case:
    """Some drafts behind many keys; the first one's window begins a tile before the last one's."""
    if not _has(allowed, "prefill"):
        return _long_decode_in_a_window(choose, allowed)
    # These two are edges of every usual tile, and of such as 96 and 384 as well.
    edges: tuple[int, ...] = (1024, 768)
    if tiles := [tile for tile in allowed.tiles if tile <= MOST_KEYS // 2]:
        edges = tuple(max(tiles) * (1 + choose(MOST_KEYS // 2 // max(tiles))) for _ in edges)
    window = max(allowed.smallest_window, 17 + choose(60))
    counts = (2 + choose(2), 4 + choose(5))
    # Query i of n stands at keys - n + i, and sees its own key and window - 1 before it.
    sequences = tuple(
        (count, edge + window + choose(count - 1))
        for count, edge in zip(counts, edges, strict=True)
    )
    # Every key counts alike: the first draft may lose a single one.
    case = _base(choose, allowed, sequences=sequences, distribution="flat")
    if "sliding_window" not in allowed.features:
        return case
    return replace(case, sliding_window=window, causal=True)


def _prompts(choose: Choose, allowed: Declaration) -> Case:
    """Several prompts whose tiles begin in the middle of the batch."""
    if not _has(allowed, "prefill"):
        return _many_sequences(choose, allowed)
    lengths = [_edge(choose, allowed, 80, 160) for _ in range(2)]
    sequences = [(length, length + choose(2) * choose(60)) for length in lengths]
    if allowed.mixed and _has(allowed, "decode"):
        sequences.insert(choose(3), (1, _edge(choose, allowed, 60, 200)))
    return _base(choose, allowed, sequences=tuple(sequences))


def _many_sequences(choose: Choose, allowed: Declaration) -> Case:
    """As many sequences as a server's smallest batches, one of which asks nothing."""
    count = MOST_SEQUENCES - choose(3)
    return _base(choose, allowed, sequences=_crowd(choose, allowed, count))


def _some_sequences(choose: Choose, allowed: Declaration) -> Case:
    return _base(choose, allowed, sequences=_crowd(choose, allowed, 9 + choose(9)))


def _crowd(choose: Choose, allowed: Declaration, count: int) -> Sequences:
    both = allowed.mixed and set(allowed.modes) == {"decode", "prefill"}
    drawn = []
    for number in range(count):
        keys = 2 + choose(30)
        one = _has(allowed, "decode") and not (both and choose(5) == 4)
        queries = 1 if one else 2 + choose(keys - 1)
        if both and allowed.idle and number and choose(8) == 7:
            queries = 0
        drawn.append((queries, keys))
    if both and allowed.idle:
        # Somebody stands behind the one, nobody behind the other.
        drawn[1 + choose(count - 2)] = drawn[-1] = (0, 20)
    return tuple(drawn)


def _wide_group(choose: Choose, allowed: Declaration) -> Case:
    """The most query heads for one head of the cache, for a decode and a prompt."""
    most = MOST_LATENT_QUERIES if allowed.latent else MOST_QUERIES_PER_KV_HEAD
    return _grouped(choose, allowed, most)


def _odd_group(choose: Choose, allowed: Declaration) -> Case:
    """A group that is no power of two, over several heads of the cache."""
    case = _grouped(choose, allowed, (12, 7, 6, 5)[choose(4)])
    return replace(case, num_kv_heads=6 + choose(3), head_size=_head(allowed))


def _grouped(choose: Choose, allowed: Declaration, group: int) -> Case:
    sequences = []
    if _has(allowed, "decode"):
        sequences.append((1, 20 + choose(20)))
    if _has(allowed, "prefill") and (allowed.mixed or not sequences):
        sequences.append((6 + choose(20), 40))
    group = group if allowed.grouped else 1
    return _base(choose, allowed, sequences=tuple(sequences), queries_per_kv_head=group)


def _large_head(choose: Choose, allowed: Declaration) -> Case:
    """The largest head."""
    return _headed(choose, allowed, max(allowed.head_sizes))


def _some_large_head(choose: Choose, allowed: Declaration) -> Case:
    sizes = [size for size in allowed.head_sizes if size >= 64] or [max(allowed.head_sizes)]
    return _headed(choose, allowed, sizes[choose(len(sizes))])


def _headed(choose: Choose, allowed: Declaration, size: int) -> Case:
    case = _grouped(choose, allowed, 1 + choose(3))
    # Scores that are all alike, or of one key alone, hide what the last elements add to them.
    return replace(case, head_size=size, distribution="plain")


def _whole(kind: Draw) -> Draw:
    """The kind with values as the target has them."""

    def draw(choose: Choose, allowed: Declaration) -> Case:
        return with_declared_values(kind(choose, allowed), allowed)

    return draw


KINDS: tuple[Draw, ...] = tuple(_whole(kind) for kind in (
    _long_decode,
    _long_prompt,
    _many_sequences,
    _wide_group,
    _large_head,
    partial(_long_sums, "bfloat16"),
    _large_scores,
    _long_chunk,
    _prompts,
    _odd_group,
    _some_large_head,
    _long_decode_in_a_window,
    _some_sequences,
    partial(_long_sums, "float16"),
    _chunk_in_a_window,
    _drafts_in_a_window,
))  # fmt: skip
"""Each has the most of something, or the most of it that is odd."""


def quantised_draws(allowed: Declaration) -> list[Draw]:
    """A long decode and a chunk over each quantised cache that a target declares beyond fp8.

    Those of `KINDS` have such caches by chance alone.
    """
    return [
        partial(_with_rows, rows, kind)
        for rows in large_rows(allowed)
        for kind in (_long_decode, _chunk_in_a_window)
    ]


def quantised_small_draws(allowed: Declaration) -> list[Draw]:
    """Two small cases for each of these caches, with the most scales that it may have."""
    finest = max(allowed.scales, key=SCALES.index)
    rows = [row for row in large_rows(allowed) if row["scales"] == finest]
    draws: list[Draw] = [partial(_with_rows, row, draw_case) for row in rows]
    return draws * 2


def _with_rows(rows: dict[str, Any], kind: Draw, choose: Choose, allowed: Declaration) -> Case:
    return with_declared_values(replace(kind(choose, allowed), **rows), allowed)


def _sighted(choose: Choose, allowed: Declaration, sight: str, **rows: Any) -> Case:
    """A large case of who sees which key; `rows` come last."""
    case = replace(_base(choose, allowed), causal=False, alibi=False)
    drawn = with_sight(choose, allowed, case, sight)
    return replace(drawn, **rows)


def _long_decode_in_a_chunk(choose: Choose, allowed: Declaration) -> Case:
    """One query behind nearly the most keys, some hundred of which its chunk has."""
    one = 1 if _has(allowed, "decode") else 16
    keys = MOST_KEYS - choose(52)
    # In the third chunk or a later one: what begins where a chunk was is not seen in the first.
    chunk = _edge(choose, allowed, 200, keys // 3)
    return _chunked(choose, allowed, ((one, keys),), chunk)


def _prompt_over_chunks(choose: Choose, allowed: Declaration) -> Case:
    """Queries on both sides of a chunk's edge."""
    if not _has(allowed, "prefill"):
        return _long_decode_in_a_chunk(choose, allowed)
    queries = _edge(choose, allowed, 120, 260)
    keys = _edge(choose, allowed, queries, 1100)
    return _chunked(choose, allowed, ((queries, keys),), _edge(choose, allowed, 17, queries))


def _chunked(choose: Choose, allowed: Declaration, sequences: Sequences, chunk: int) -> Case:
    case = _sighted(choose, allowed, "chunked", sequences=sequences)
    return replace(case, attention_chunk=whole_chunk(chunk, case.block_size, allowed))


def _window_around(choose: Choose, allowed: Declaration) -> Case:
    """A whole input, as an encoder has it, in a window whose sides differ by some tiles."""
    if not _has(allowed, "prefill"):
        return _sighted(choose, allowed, "window_ahead")
    queries = MOST_QUERIES - choose(20)
    ahead, back = _edge(choose, allowed, 17, 140), _edge(choose, allowed, 17, 140)
    rows = {"window_ahead": ahead, "sliding_window": max(allowed.smallest_window, back)}
    return _sighted(choose, allowed, "window_ahead", sequences=((queries, queries),), **rows)


def _window_far_ahead(choose: Choose, allowed: Declaration) -> Case:
    """A window without an end at its back."""
    if not _has(allowed, "prefill"):
        return _sighted(choose, allowed, "window_ahead")
    queries = _edge(choose, allowed, 130, 260)
    keys = _edge(choose, allowed, queries, 600)
    rows = {"window_ahead": _edge(choose, allowed, 17, queries - 20), "sliding_window": None}
    return _sighted(choose, allowed, "window_ahead", sequences=((queries, keys),), **rows)


def _long_tree(choose: Choose, allowed: Declaration) -> Case:
    """Sixty-four drafts behind 2,000 keys, and a smaller tree in front of them."""
    if not _has(allowed, "prefill"):
        return _sighted(choose, allowed, "tree_mask")
    sequences = ((9 + choose(9), 130 + choose(9)), (64, 2064 + choose(30)))
    return _sighted(choose, allowed, "tree_mask", sequences=sequences)


def _wide_masks(choose: Choose, allowed: Declaration) -> Case:
    """Two masked sequences of other lengths, the longer one last."""
    if not _has(allowed, "prefill"):
        return _sighted(
            choose, allowed, "mask", sequences=((1, _edge(choose, allowed, 700, 1100)),)
        )
    queries = _edge(choose, allowed, 110, 160)
    sequences = ((20 + choose(20), 90 + choose(60)), (queries, _edge(choose, allowed, 700, 1100)))
    return _sighted(choose, allowed, "mask", sequences=sequences)


def _long_cross(choose: Choose, allowed: Declaration) -> Case:
    """Many queries over few keys, and as many over nearly the most, such as those of an image."""
    if not _has(allowed, "prefill"):
        return _long_decode(choose, replace(allowed, features=()))
    many = MOST_QUERIES - choose(20)
    sequences = ((many, _edge(choose, allowed, 70, 200)), (70 + choose(9), MOST_KEYS - choose(52)))
    return _sighted(choose, allowed, "cross", sequences=sequences)


SIGHT_KINDS: dict[str, tuple[Draw, ...]] = {
    sight: tuple(_whole(kind) for kind in kinds)
    for sight, kinds in {
        "chunked": (_long_decode_in_a_chunk, _prompt_over_chunks),
        "window_ahead": (_window_around, _window_far_ahead),
        "mask": (_wide_masks,),
        "tree_mask": (_long_tree,),
        "cross": (_long_cross,),
    }.items()
}
"""Those of each way to see that a target declares; a dense run has one of each."""


def draw_at_kind(number: int) -> Draw:
    """The kind of the large case of this number in a run."""
    return KINDS[number % len(KINDS)]


def draw_long_context(choose: Choose, allowed: Declaration) -> Case:
    """One sequence of more keys than 16 bits count."""
    one = 1 if _has(allowed, "decode") else 16
    case = _base(choose, allowed, sequences=((one, LONG_CONTEXT + choose(64)),))
    return with_declared_values(case, allowed)


def draw_wide_cache(reach: str, feature: str | None, scales: str = "tensor") -> Draw:
    """A small batch whose blocks lie far from each other, with one feature or none.

    A quantised cache has the `scales`.
    """

    def draw(choose: Choose, allowed: Declaration) -> Case:
        # Caches and who sees which key are laid over the case at the end.
        is_late = feature in QUANTISED_FEATURES or feature in SIGHTS
        kept = () if feature is None or is_late else (feature,)
        # In blocks of one slot, int32 tables reach no slot that int32 does not.
        sizes = tuple(size for size in allowed.block_sizes if size > 1) or allowed.block_sizes
        narrowed = replace(allowed, features=kept, block_sizes=sizes, empty_row="undefined")
        case = draw_case(choose, narrowed)
        window = allowed.smallest_window + 4 if feature == "sliding_window" else None
        rows: dict[str, Any] = {
            "reach": reach,
            "num_kv_heads": 1,
            "sliding_window": window,
            "alibi": feature == "alibi",
            "sinks": feature == "sinks",
            "softcap": 5.0 if feature == "softcap" else None,
            "causal": feature != "non_causal",
            **wide_rows(feature, scales),
        }
        # Two sequences of three blocks or so, in both modes if there are two.
        keys = 2 * case.block_size + 1 + choose(case.block_size)
        queries = [1 if mode == "decode" else 3 for mode in allowed.modes]
        queries = queries if allowed.mixed else queries[choose(len(queries)) :][:1]
        sequences = tuple((min(count, keys), keys) for count in queries)
        case = replace(case, sequences=sequences, shared_blocks=0, **rows)
        if feature in SIGHTS:
            case = with_sight(choose, replace(narrowed, features=(feature,)), case, feature)
        return with_declared_values(case, allowed)

    return draw
