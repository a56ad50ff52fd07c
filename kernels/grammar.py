"""Draws a case from choices: one grammar, backed by Hypothesis or a seeded generator.

`choose(n)` gives an integer from 0 to n-1; choices that shrink well come first. Everything stays
within what the target declares. Sizes are small: most faults of tiling, masking or indexing show at
a few dozen keys, and a case of that size runs in milliseconds. What shows only at the sizes of a
server is drawn by `large_cases.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from poolproof.kernels.case import DISTRIBUTIONS, Case
from poolproof.kernels.declaration import SIGHTS, Declaration
from poolproof.kernels.quantised_cases import draw_quantisation, with_declared_quantisation
from poolproof.kernels.sights import declared_sights, with_sight

__all__ = ["Choose", "draw_case", "draw_sighted_case", "draw_values", "with_declared_values"]

Choose = Callable[[int], int]
Item = TypeVar("Item")

_MOST_KEYS = 44
_USUAL_HEAD_SIZE = 64


def draw_case(choose: Choose, allowed: Declaration) -> Case:
    """A case that the target supports."""

    def pick(items: Sequence[Item]) -> Item:
        return items[choose(len(items))]

    def maybe(feature: str, one_in: int) -> bool:
        return feature in allowed.features and choose(one_in) == one_in - 1

    block_size = pick(allowed.block_sizes)
    modes = ("decode", "prefill", "mixed") if allowed.mixed else ("decode", "prefill")
    offered = [mode for mode in modes if mode == "mixed" or mode in allowed.modes]
    if set(allowed.modes) != {"decode", "prefill"}:
        offered = [mode for mode in offered if mode != "mixed"]
    mode = pick(offered)
    causal = not maybe("non_causal", 8)
    shortest = allowed.smallest_window
    window = shortest + choose(24) if causal and maybe("sliding_window", 3) else None
    dtype = pick(allowed.dtypes)
    has_alibi = causal and maybe("alibi", 4)
    values = draw_values(choose, allowed, dtype)
    is_far = values["distribution"] == "far"
    softcap = pick((5.0, 20.0)) if not is_far and maybe("softcap", 4) else None
    sequences = _sequences(choose, mode, block_size, allowed)
    shared = 0
    if len(sequences) > 1 and choose(3) == 2:
        shared = min(kv for _, kv in sequences) // block_size
        shared = choose(shared + 1) if shared else 0
    case = Case(
        sequences=sequences,
        seed=choose(1 << 20),
        dtype=dtype,
        cache_dtype=("float8_e4m3fn", "float8_e5m2")[choose(2)] if maybe("fp8", 6) else None,
        num_kv_heads=1 + choose(2),
        queries_per_kv_head=1 + choose(4) if allowed.grouped else 1,
        head_size=pick(_usual_head_sizes(allowed) if choose(8) < 7 else allowed.head_sizes),
        block_size=block_size,
        shared_blocks=shared,
        spare_blocks=1 + choose(3),
        spare_entries=choose(3),
        causal=causal,
        sliding_window=window,
        softcap=softcap,
        alibi=has_alibi,
        # Slopes count from the query's position here and from the last key's in some kernels, which
        # is the same for a softmax and another for a sink; no model has both.
        sinks=not has_alibi and maybe("sinks", 4),
        **values,
        **_strides(choose, allowed),
    )
    case = replace(case, **draw_quantisation(choose, allowed))
    sights = declared_sights(allowed)
    if sights and choose(2):
        case = with_sight(choose, allowed, case, pick(sights))
    return with_declared_values(case, allowed)


def draw_sighted_case(sight: str, choose: Choose, allowed: Declaration) -> Case:
    """A case of one of the `SIGHTS`, which the target declares."""
    features = tuple(feature for feature in allowed.features if feature not in SIGHTS)
    case = draw_case(choose, replace(allowed, features=features))
    return with_declared_values(with_sight(choose, allowed, case, sight), allowed)


def with_declared_values(case: Case, allowed: Declaration) -> Case:
    """The case with values and a cache as the target has them."""
    size = allowed.value_size(case.head_size)
    if allowed.latent and size is not None:
        # What the values have is what the keys have: one layout, one head.
        heads = case.num_heads
        case = replace(
            case, value_size=size, latent=True, value_layout=None, num_kv_heads=1,
            queries_per_kv_head=heads if allowed.grouped else 1,
        )  # fmt: skip
    else:
        case = replace(case, value_size=size, latent=False)
    return with_declared_quantisation(case, allowed)


def draw_values(choose: Choose, allowed: Declaration, dtype: str) -> dict[str, Any]:
    """What decides how large scores are: the rows `distribution` and `scale` of a case."""
    # In a half type scores of 300 and more have no bits left for what distinguishes them.
    fine = dtype == "float32" or allowed.promises("scores")
    distribution = DISTRIBUTIONS[choose(4)]
    if fine and choose(8) == 7:
        distribution = ("high", "far")[choose(2)]
    scale = None
    if allowed.promises("scale") and choose(4) == 3:
        scale = (0.3, 1.0, 0.05)[choose(3)]
    return {"distribution": distribution, "scale": scale}


def _strides(choose: Choose, allowed: Declaration) -> dict[str, Any]:
    """Where the numbers stand: the rows `layout`, `value_layout` and `views` of a case."""
    layout = allowed.layouts[choose(len(allowed.layouts))]
    apart = allowed.layouts_apart and len(allowed.layouts) > 1 and choose(4) == 3
    other = allowed.layouts[choose(len(allowed.layouts))] if apart else layout
    # Whether a mask is a slice is drawn where there is one.
    views = tuple(view for view in allowed.views if view != "mask" and choose(6) == 5)
    return {
        "layout": layout,
        "value_layout": None if other == layout else other,
        "views": views,
    }


def _usual_head_sizes(allowed: Declaration) -> tuple[int, ...]:
    """Those that are cheap, if there are any."""
    usual = tuple(size for size in allowed.head_sizes if size <= _USUAL_HEAD_SIZE)
    return usual or (min(allowed.head_sizes),)


def _sequences(
    choose: Choose, mode: str, block_size: int, allowed: Declaration
) -> tuple[tuple[int, int], ...]:
    has_empty = allowed.empty_row in {"zeros", "untouched"}
    drawn: list[tuple[int, int]] = []
    for _ in range(1 + choose(3)):
        keys = _kv_length(choose, block_size)
        single = mode == "decode" or (mode == "mixed" and choose(2) == 0)
        # The whole prompt at once, or a chunk behind what is cached.
        queries = 1 if single else (keys if choose(2) == 0 else 1 + choose(keys))
        if has_empty and choose(10) == 9:
            # A padding row of a captured graph: a query without keys (vllm#57094).
            queries, keys = 1, 0
        elif mode == "mixed" and allowed.idle and drawn and choose(10) == 9:
            # A request that waits for its turn, its keys in the cache.
            queries = 0
        drawn.append((queries, keys))
    return tuple(drawn)


def _kv_length(choose: Choose, block_size: int) -> int:
    """Mostly at a block's edge, where faults of masks are."""
    # Large blocks need longer sequences, or there is never a second one.
    most = max(_MOST_KEYS, 2 * block_size + 8)
    if choose(2):
        return 1 + choose(most)
    blocks = 1 + choose(most // block_size)
    return max(1, blocks * block_size - 1 + choose(3))
