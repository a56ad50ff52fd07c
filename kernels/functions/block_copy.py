"""Functions that copy whole blocks, as targets: within one cache, and between two.

    copy(key_cache, value_cache, block_mapping)
    swap(source, destination, block_mapping)

The caches are (num_blocks, block_size, num_kv_heads, head_size) with any strides; those of a swap
differ in the number of blocks and in layout. `block_mapping` is (num_pairs, 2): sources and
destinations. No block is destination twice. In a copy a block may be source and destination: with
`overlap: at-once` each source counts as it was before the call, with `in-order` one pair after
another is copied, and with `absent` there is no such list. What is returned is ignored.

The answer is exact, and every byte that is no destination stays, those of the sources as well.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from poolproof.contract.violation import Severity
from poolproof.kernels.checks.accesses import ROOM_MIB
from poolproof.kernels.checks.check import Check, Outcome
from poolproof.kernels.functions.cases import (
    Choose,
    Draw,
    FunctionCase,
    is_watched,
    order_of,
    pick,
    place_words,
    reaches_of,
    sample,
    shorter,
    smaller_values,
    why_not,
)
from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.functions.memory import (
    bits,
    changed_bytes,
    far_place,
    make_caches,
    random_bits,
    unlawful_stores,
)
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.interpreter import check_overflow
from poolproof.kernels.kind import Kind
from poolproof.kernels.layouts import REACHES, little_memory_left
from poolproof.kernels.read_sets import recorded

__all__ = ["BLOCK_COPY", "BLOCK_SWAP", "Copy", "CopyCase", "build_copy"]

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyCase(FunctionCase):
    """`pairs` are blocks of a small cache; with a `reach` they stand in a large one.

    `away` None: within one cache, whose keys and values have the layouts. Else between a cache of
    `num_blocks` and one of `away` blocks in `value_layout`.
    """

    pairs: Pairs = ()
    block_size: int = 4
    num_blocks: int = 4
    away: int | None = None
    layout: str = "slots-heads"
    value_layout: str | None = None
    pair_type: str = "int64"
    reach: str = "small"

    def wrong(self) -> str | None:
        """What of the case cannot be, None if it can."""
        ends = (self.num_blocks, self.num_blocks if self.away is None else self.away)
        if any(not 0 <= block < end for pair in self.pairs
               for block, end in zip(pair, ends, strict=True)):  # fmt: skip
            return "a pair names a block that is not there"
        if len({there for _, there in self.pairs}) < len(self.pairs):
            return "a block is destination twice"
        if self.reach not in REACHES:
            return f"reach must be one of {', '.join(REACHES)}"
        return None

    @property
    def overlaps(self) -> bool:
        """Whether a block is the source of one pair and the destination of another."""
        moved = [pair for pair in self.pairs if pair[0] != pair[1]]
        return self.away is None and bool({s for s, _ in moved} & {d for _, d in moved})

    def words(self) -> str:
        """One line for a person."""
        pairs = " ".join(f"{here}>{there}" for here, there in self.pairs[:8]) or "none"
        if len(self.pairs) > 8:
            pairs += f" and {len(self.pairs) - 8} more"
        text = (
            f"{self.dtype}, {self.num_kv_heads} heads, head size {self.head_size}, "
            f"{self.num_blocks} blocks of {self.block_size}, pairs {pairs} in {self.pair_type}"
        )
        return text + place_words(self)


@dataclass(frozen=True, slots=True)
class Copy:
    """The tensors of one call: keys and values, or source and destination."""

    first: Tensor
    second: Tensor
    mapping: Tensor
    names: tuple[str, str]

    def named(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {self.names[0]: self.first, self.names[1]: self.second,
                "block_mapping": self.mapping}  # fmt: skip

    def copies(self) -> list[tuple[str, Tensor, Tensor]]:
        """What is copied to what, with the name of the destination."""
        if self.names[0] == "source":
            return [("destination", self.first, self.second)]
        return [(self.names[0], self.first, self.first), (self.names[1], self.second, self.second)]


def build_copy(case: CopyCase, device: str = "cpu") -> Copy:
    """The tensors of a case; every pattern of bits stands in the blocks."""
    draw = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, case.dtype)
    block = (case.block_size, case.num_kv_heads, case.head_size)

    def made(count: int, layouts: tuple[str, str]) -> tuple[Tensor, Tensor]:
        return make_caches(
            (count, *block), dtype, layouts, reach=case.reach, draw=draw, device=device
        )

    other = case.value_layout or case.layout
    if case.away is None:
        first, second = made(case.num_blocks, (case.layout, other))
        ends, names = (first, first), ("key_cache", "value_cache")
    else:
        # Two layouts, so that two interleaved caches do not share their memory.
        first = made(case.num_blocks, (case.layout, "slots-heads"))[0]
        second = made(case.away, (other, "slots-heads"))[0]
        ends, names = (first, second), ("source", "destination")
    pairs = [
        [far_place(number, cache, case.reach) for number, cache in zip(pair, ends, strict=True)]
        for pair in case.pairs
    ]
    mapping = torch.tensor(pairs, dtype=getattr(torch, case.pair_type), device=device)
    copy = Copy(first, second, mapping.reshape(-1, 2), names)
    if case.reach != REACHES[0]:
        for _, source, _ in copy.copies():
            for here, _ in pairs:
                source[here] = random_bits(block, dtype, draw)
    return copy


def _call(target: FunctionTarget, copy: Copy) -> None:
    target(copy.first, copy.second, copy.mapping)


def _expected(target: FunctionTarget, copy: Copy) -> dict[str, list[Tensor]]:
    """What each destination must hold, in the order of the pairs; before the call."""
    in_order = target.kind.name == "block-copy" and target.declaration.overlap == "in-order"
    expected: dict[str, list[Tensor]] = {}
    for name, source, _ in copy.copies():
        held: dict[int, Tensor] = {}
        for here, there in copy.mapping.tolist():
            whole = held.get(here) if in_order else None
            held[there] = source[here].clone() if whole is None else whole
        expected[name] = [held[there] for _, there in copy.mapping.tolist()]
    return expected


def _copied(target: FunctionTarget, case: CopyCase) -> Outcome:
    copy = build_copy(case, target.device)
    expected = _expected(target, copy)
    _call(target, copy)
    return Outcome(max(1, len(case.pairs)), _missing(copy, expected))


def _missing(copy: Copy, expected: dict[str, list[Tensor]]) -> str | None:
    for name, _, destination in copy.copies():
        for (here, there), block in zip(copy.mapping.tolist(), expected[name], strict=True):
            differing = (bits(destination[there]) != bits(block)).nonzero()
            if len(differing):
                slot = int(differing[0, 0])
                return (
                    f"{name} block {there} slot {slot} is not what block {here} held; "
                    f"{len(differing)} of {block.numel()} elements differ"
                )
    return None


def _write_set(target: FunctionTarget, case: CopyCase) -> Outcome:
    copy, before = build_copy(case, target.device), build_copy(case, target.device)
    _call(target, copy)
    for (name, _, new), (_, _, old) in zip(copy.copies(), before.copies(), strict=True):
        for _, there in copy.mapping.tolist():
            old[there] = new[there]
        differing = (bits(old) != bits(new)).nonzero()
        if len(differing):
            block, slot = differing[0, :2].tolist()
            return Outcome(1, f"changes {name} block {block} slot {slot}, no destination")
    return Outcome(1, _changed(before, copy, "changes {count} bytes between the blocks of {name}"))


def _changed(before: Copy, now: Copy, words: str) -> str | None:
    for name, tensor in now.named().items():
        count = changed_bytes(before.named()[name], tensor)
        if count:
            return words.format(count=count, name=name)
    return None


def _related(target: FunctionTarget, case: CopyCase, parts: list[list[int]], words: str) -> Outcome:
    """Calls with parts of the pairs give the caches that one call with all of them gives."""
    whole, apart = build_copy(case, target.device), build_copy(case, target.device)
    _call(target, whole)
    for part in parts:
        _call(target, replace(apart, mapping=apart.mapping[torch.tensor(part, dtype=torch.long)]))
    return Outcome(1, _changed(apart, whole, words + " gives another {name}"))


def _order(target: FunctionTarget, case: CopyCase) -> Outcome:
    # A swap never overlaps, and has no such row.
    sequential = case.overlaps and target.declaration.overlap == "in-order"
    if len(case.pairs) < 2 or sequential:
        return Outcome(0)
    order = list(range(len(case.pairs)))
    random.Random(case.seed).shuffle(order)
    return _related(target, case, [order], "the same pairs in another order")


def _halves(target: FunctionTarget, case: CopyCase) -> Outcome:
    at_once = case.overlaps and target.declaration.overlap == "at-once"
    if len(case.pairs) < 2 or at_once:
        return Outcome(0)
    cut = 1 + case.seed % (len(case.pairs) - 1)
    parts = [list(range(cut)), list(range(cut, len(case.pairs)))]
    return _related(target, case, parts, "the same pairs in two calls")


def _there_and_back(target: FunctionTarget, case: CopyCase) -> Outcome:
    """What was swapped out and comes in again is what it was."""
    sources = [here for here, _ in case.pairs]
    if not sources or len(set(sources)) < len(sources):
        return Outcome(0)
    copy, before = build_copy(case, target.device), build_copy(case, target.device)
    _call(target, copy)
    for here in sources:
        copy.first[here] = 0
    target(copy.second, copy.first, copy.mapping.flip(1))
    count = changed_bytes(before.first, copy.first)
    wrong = f"{count} bytes differ after blocks were swapped out and in again" if count else None
    return Outcome(1, wrong)


def _stores(target: FunctionTarget, case: CopyCase) -> Outcome:
    copy = build_copy(case, target.device)
    with recorded(copy.named()) as accesses:
        _call(target, copy)
    allowed = {name: [destination[there] for _, there in copy.mapping.tolist()]
               for name, _, destination in copy.copies()}  # fmt: skip
    return Outcome(1, unlawful_stores(accesses, copy.named(), allowed))


def _wide(target: FunctionTarget, case: CopyCase) -> Outcome:
    copy = build_copy(case, target.device)
    expected = _expected(target, copy)
    if is_watched(target):
        check_overflow(checked=True)
    try:
        with little_memory_left(ROOM_MIB):
            _call(target, copy)
    finally:
        if is_watched(target):
            check_overflow(checked=False)
    wrong = _missing(copy, expected)
    return Outcome(1, wrong and f"in a cache of more than {case.reach}: {wrong}")


def _draw(swap: bool, choose: Choose, allowed: FunctionDeclaration) -> CopyCase:
    """A small case that the target supports: apart, in a chain, in a circle, to itself."""
    seed, num_blocks = choose(1 << 20), 2 + choose(10)
    away = 2 + choose(12) if swap else None
    pairs = _pairs(choose, allowed, seed, num_blocks, away)
    layout = pick(choose, allowed.layouts)
    apart = allowed.layouts_apart and choose(3) == 2
    return CopyCase(
        pairs=pairs,
        seed=seed,
        dtype=pick(choose, allowed.dtypes),
        num_kv_heads=1 + choose(4),
        head_size=pick(choose, allowed.head_sizes),
        block_size=pick(choose, allowed.block_sizes),
        num_blocks=num_blocks,
        away=away,
        layout=layout,
        value_layout=pick(choose, allowed.layouts) if apart else None,
        pair_type=pick(choose, allowed.pair_types),
    )


def _pairs(
    choose: Choose, allowed: FunctionDeclaration, seed: int, num_blocks: int, away: int | None
) -> Pairs:
    if allowed.empty == "nothing" and choose(12) == 11:
        return ()
    most = num_blocks if away is None else away
    blocks = sample(seed, most, most)
    if away is not None:
        count = 1 + choose(most)
        return tuple((choose(num_blocks), there) for there in blocks[:count])
    shape = choose(4) if allowed.overlap != "absent" else 3
    if shape == 0:
        # A chain: each block is the destination of the one before.
        return tuple(pairwise(blocks))
    if shape == 1:
        return tuple(zip(blocks, blocks[1:] + blocks[:1], strict=True))
    if shape == 2:
        return tuple((choose(num_blocks), there) for there in blocks[: 1 + choose(most)])
    half = 1 + choose(most // 2)
    sources = blocks[half:] or blocks[:1]
    return tuple((pick(choose, sources), there) for there in blocks[:half])


def _many_pairs(swap: bool, choose: Choose, allowed: FunctionDeclaration) -> CopyCase:
    """Some hundred pairs; blocks are copied from where an earlier or a later pair copies to."""
    case = _draw(swap, choose, allowed)
    count = 300 - choose(30)
    blocks = sample(case.seed, 2 * count, 2 * count)
    overlaps = 0 if swap or allowed.overlap == "absent" else choose(3)
    sources = (blocks[count:], blocks[count // 2 :], blocks[-(count // 2) :] + blocks)[overlaps]
    return replace(
        case, pairs=tuple(zip(sources, blocks[:count], strict=False)), num_blocks=2 * count,
        away=2 * count + 7 if swap else None, num_kv_heads=1, head_size=min(allowed.head_sizes),
    )  # fmt: skip


def _large_block(swap: bool, choose: Choose, allowed: FunctionDeclaration) -> CopyCase:
    """The largest block, of many heads."""
    case = _draw(swap, choose, allowed)
    return replace(case, block_size=max(allowed.block_sizes), num_kv_heads=17)


def _many_blocks(swap: bool, choose: Choose, allowed: FunctionDeclaration) -> CopyCase:
    """More blocks than 15 bits count, in a cache that is small enough to look at whole."""
    case, count = _draw(swap, choose, allowed), 33_000
    pairs = ((count - 1, 1), (2, count - 2))
    return replace(
        case, pairs=pairs, num_blocks=count, away=count if swap else None, num_kv_heads=1,
        block_size=min(allowed.block_sizes), head_size=min(allowed.head_sizes),
    )  # fmt: skip


def _largest_head(swap: bool, choose: Choose, allowed: FunctionDeclaration) -> CopyCase:
    return replace(_draw(swap, choose, allowed), head_size=max(allowed.head_sizes))


def _wide_draws(swap: bool, allowed: FunctionDeclaration) -> tuple[Draw, ...]:
    def draw_at(reach: str, layout: str) -> Draw:
        def draw(choose: Choose, declared: FunctionDeclaration) -> CopyCase:
            case = _draw(swap, choose, declared)
            # From the near end to the far one and back; odd blocks stand at the far end.
            pairs = ((0, 1), (3, 2))
            return replace(
                case, pairs=pairs, num_blocks=4, away=4 if swap else None, reach=reach,
                layout=layout, value_layout=None, num_kv_heads=1,
                head_size=min(declared.head_sizes),
            )  # fmt: skip

        return draw

    return tuple(draw_at(reach, layout) for reach in reaches_of(allowed)
                 for layout in allowed.layouts)  # fmt: skip


def _smaller(case: CopyCase, declared: FunctionDeclaration) -> Iterator[CopyCase]:
    for pairs in shorter(case.pairs):
        yield replace(case, pairs=pairs)
    if case.reach == REACHES[0] and case.away is None:
        used = sorted({block for pair in case.pairs for block in pair})
        number = {block: place for place, block in enumerate(used)}
        pairs = tuple((number[here], number[there]) for here, there in case.pairs)
        if pairs != case.pairs or len(used) < case.num_blocks:
            yield replace(case, pairs=pairs, num_blocks=max(1, len(used)))
    plain: dict[str, Any] = {
        "layout": declared.layouts[0], "value_layout": None, "num_kv_heads": 1,
        "dtype": declared.dtypes[0], "pair_type": declared.pair_types[0], "seed": 0,
    }  # fmt: skip
    sizes = {"head_size": declared.head_sizes, "block_size": declared.block_sizes}
    yield from smaller_values(case, plain, sizes)


def _not_covered(_: FunctionTarget) -> list[str]:
    return ["a block that is destination twice", "copies between devices"]


def _checks(swap: bool) -> tuple[Check, ...]:
    more: dict[str, Any] = {"severity": Severity.WRONG_DATA_OF_ANOTHER}
    found = [
        Check(name="copied blocks", run=_copied, **more,
              sentence="each destination holds its source as the contract states, to the bit"),
        Check(name="write set", run=_write_set, **more,
              sentence="nothing but destinations changes: no source, no pair, nothing between"),
        Check(name="halves", run=_halves, **more,
              sentence="two calls with half of the pairs each are one with all"),
        Check(name="pair order", run=_order, **more,
              sentence="the order of the pairs does not matter where none waits for another"),
        Check(name="stores", run=_stores, applies=is_watched, **more,
              sentence="nothing but destinations is stored to, whatever is stored"),
        Check(name="64-bit blocks", run=_wide, draws=partial(_wide_draws, swap), **more,
              applies=lambda t: t.device == "cpu" and t.declaration.cache_reads == "in-place",
              sentence="blocks of a cache that 32 bits do not count are copied right"),
    ]  # fmt: skip
    if swap:
        back = "blocks swapped out and in again are what they were"
        found.insert(4, Check(name="there and back", run=_there_and_back, sentence=back, **more))
    return tuple(found)


def _kind(name: str, swap: bool) -> Kind:
    large: tuple[Draw, ...] = tuple(
        partial(draw, swap) for draw in (_many_pairs, _large_block, _many_blocks, _largest_head)
    )
    return Kind(
        name=name,
        checks={check.name: check for check in _checks(swap)},
        read_case=CopyCase.from_json,
        in_order=order_of("copied blocks", partial(_draw, swap), large),
        smaller=_smaller,
        work=lambda case: 1 + len(case.pairs) // 4,
        precision=lambda case: str(case.dtype),
        why_not=why_not,
        not_covered=_not_covered,
    )


BLOCK_COPY = _kind("block-copy", swap=False)
BLOCK_SWAP = _kind("block-swap", swap=True)
