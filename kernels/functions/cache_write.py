"""A function that writes new keys and values into their slots of a paged cache, as a target.

    write(key, value, key_cache, value_cache, slot_mapping[, key_scale=, value_scale=])

`key` and `value` are (num_tokens, num_kv_heads, head_size), the caches (num_blocks, block_size,
num_kv_heads, head_size) with any strides, and `slot_mapping` (num_tokens,) holds
`block * block_size + place in the block`, or a negative number for padding. No slot occurs twice.
The scales are passed where the declaration has fp8 or int8 among its `casts`. A function that
declares `scales: measured` gets caches of scales in their place and fills them itself:

    write(key, value, key_cache, value_cache, slot_mapping, key_scales=, value_scales=)

They are (num_blocks, block_size, num_kv_heads) in float32, with any strides. What is returned is
ignored.

The answer is exact. A token is stored as it is; in a cache of a half type rounded to nearest; in an
fp8 or int8 cache divided by the scale, cut to the type's range and rounded to nearest, where
multiplying by the inverse of the scale in float32 is right as well. In int8 a number halfway
between two may become either, and the lowest may be -128 or -127. Under measured scales the number
read back, stored number times stored scale, is within `allowed_error` of the token. Every other
byte of every tensor stays.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
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
from poolproof.kernels.functions.declaration import CASTS, FunctionDeclaration
from poolproof.kernels.functions.memory import (
    bits,
    changed_bytes,
    far_place,
    make_caches,
    unlawful_stores,
)
from poolproof.kernels.functions.stored_forms import (
    FP8_TYPES,
    SCALED_TYPES,
    allowed_error,
    stored_forms,
)
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.interpreter import check_overflow
from poolproof.kernels.kind import Kind
from poolproof.kernels.layouts import (
    REACHES,
    caches_over,
    little_memory_left,
    reserved,
    restrided,
)
from poolproof.kernels.read_sets import recorded

__all__ = ["CACHE_WRITE", "Write", "WriteCase", "build_write"]

SCALES = (0.3, 0.7)
"""Not powers of two, so that a lost or doubled scale cannot hide."""

_SCALE_CACHES = ("key_scales", "value_scales")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteCase(FunctionCase):
    """`slots` are those of a small cache; with a `reach` its blocks stand in a large one.

    `extra_rows` of the keys and values are behind the last slot. `views` are the tensors that are
    slices of one projection. `beyond` says that scaled numbers go beyond the range of their type;
    `scales`, whether the function is given them or measures its own.
    """

    slots: tuple[int, ...] = ()
    cache_dtype: str | None = None
    block_size: int = 4
    num_blocks: int = 4
    layout: str = "slots-heads"
    value_layout: str | None = None
    views: tuple[str, ...] = ()
    slot_type: str = "int64"
    extra_rows: int = 0
    beyond: bool = False
    scales: str = "given"
    reach: str = "small"

    def wrong(self) -> str | None:
        """What of the case cannot be, None if it can."""
        written = [slot for slot in self.slots if slot >= 0]
        if len(set(written)) < len(written):
            return "a slot occurs twice"
        if any(slot >= self.num_blocks * self.block_size for slot in written):
            return "a slot is beyond the last block"
        if self.reach not in REACHES:
            return f"reach must be one of {', '.join(REACHES)}"
        if self.scales not in {"given", "measured"}:
            return "scales must be one of given, measured"
        if self.is_measured and self.cache_dtype not in SCALED_TYPES:
            return f"a cache under measured scales must be one of {', '.join(SCALED_TYPES)}"
        return None

    @property
    def is_measured(self) -> bool:
        """Whether the function measures the scale of each token and head."""
        return self.scales == "measured"

    def words(self) -> str:
        """One line for a person."""
        slots = " ".join(map(str, self.slots[:8])) or "none"
        if len(self.slots) > 8:
            slots += f" and {len(self.slots) - 8} more"
        text = (
            f"{self.dtype}, {self.num_kv_heads} heads, head size {self.head_size}, block size "
            f"{self.block_size}, slots {slots} in {self.slot_type}"
        )
        text += f", cache {self.cache_dtype}" if self.cache_dtype else ""
        text += ", measured scales" if self.is_measured else ""
        text += f", {self.extra_rows} rows more" if self.extra_rows else ""
        text += f", sliced {' and '.join(self.views)}" if self.views else ""
        return text + place_words(self)


@dataclass(frozen=True, slots=True)
class Write:
    """The tensors of one call, and the scales: 1 where the cache takes tokens as they are.

    `measured` are the caches of scales that the function fills, by the names of its arguments.
    """

    key: Tensor
    value: Tensor
    key_cache: Tensor
    value_cache: Tensor
    slots: Tensor
    scales: tuple[float, float]
    measured: Mapping[str, Tensor]

    def named(self) -> dict[str, Tensor]:
        """The tensors by name."""
        return {"key": self.key, "value": self.value, "slot_mapping": self.slots, **self.written()}

    def written(self) -> dict[str, Tensor]:
        """Those that are written, by name."""
        return {"key_cache": self.key_cache, "value_cache": self.value_cache, **self.measured}

    def part(self, rows: Tensor) -> Write:
        """The same caches, and some of the tokens in some order."""
        return replace(self, key=self.key[rows], value=self.value[rows], slots=self.slots[rows])

    def places(self) -> Iterator[tuple[int, int, int]]:
        """Token, block and place in the block of what is not padding."""
        size = self.key_cache.shape[1]
        for token, slot in enumerate(self.slots.tolist()):
            if slot >= 0:
                yield token, slot // size, slot % size


def build_write(case: WriteCase, device: str = "cpu") -> Write:
    """The tensors of a case. Rows of padding and behind the last slot hold NaN."""
    draw = torch.Generator().manual_seed(case.seed)
    dtype = getattr(torch, case.dtype)
    cache_dtype = getattr(torch, case.cache_dtype or case.dtype)
    shape = (case.num_blocks, case.block_size, case.num_kv_heads, case.head_size)
    layouts = case.layout, case.value_layout or case.layout
    caches = make_caches(shape, cache_dtype, layouts, reach=case.reach, draw=draw, device=device)
    rows = [_tokens(case, draw, cache_dtype).to(dtype).to(device) for _ in "kv"]
    key, value = _sliced(case, *rows)
    far = [
        far_place(slot // case.block_size, caches[0], case.reach) * case.block_size
        + slot % case.block_size
        if slot >= 0
        else slot
        for slot in case.slots
    ]
    slots = torch.tensor(far, dtype=getattr(torch, case.slot_type), device=device)
    measured = _scale_caches(case, caches[0].shape[0], draw, device) if case.is_measured else {}
    is_given = case.cache_dtype in SCALED_TYPES and not case.is_measured
    return Write(key, value, *caches, slots, SCALES if is_given else (1.0, 1.0), measured)


def _tokens(case: WriteCase, draw: torch.Generator, cache_dtype: torch.dtype) -> Tensor:
    """Keys or values, (num_rows, num_kv_heads, head_size), in float32."""
    count = len(case.slots) + case.extra_rows
    padding = torch.tensor([slot < 0 for slot in case.slots] + [True] * case.extra_rows)
    new = torch.randn(count, case.num_kv_heads, case.head_size, generator=draw)
    if case.is_measured:
        new = _uneven(new, draw)
    elif case.cache_dtype in FP8_TYPES:
        new = new * (torch.finfo(cache_dtype).max * (0.5 if case.beyond else 0.01))
    elif case.cache_dtype == "int8":
        new = new * (127.0 * (0.5 if case.beyond else 0.06))
    elif case.cache_dtype is None:
        odd = new.flatten()[::7]
        odd.copy_(torch.tensor([-0.0, float("inf"), 1e-40, 0.1])[torch.arange(len(odd)) % 4])
    new[padding.nonzero().flatten()] = float("nan")
    return new


def _uneven(new: Tensor, draw: torch.Generator) -> Tensor:
    """Heads of all sizes, some of them zeros; one element, often the last, is the largest."""
    *heads, size = new.shape
    places = torch.randint(size + size // 4, heads, generator=draw).clamp(max=size - 1)[..., None]
    new = new.scatter(-1, places, 8 * new.gather(-1, places).sign())
    powers = torch.randint(-9, 9, heads, generator=draw)
    zeros = torch.randint(6, heads, generator=draw) == 0
    return new * torch.where(zeros, torch.tensor(0.0), torch.exp2(powers.float()))[..., None]


def _scale_caches(
    case: WriteCase, num_blocks: int, draw: torch.Generator, device: str
) -> dict[str, Tensor]:
    """Random bits in the layouts of the caches, so with all of their strides."""
    shape = (num_blocks, case.block_size, case.num_kv_heads, 1)
    layouts = case.layout, case.value_layout or case.layout
    kind = torch.float32
    if case.reach == REACHES[0]:
        made = make_caches(shape, kind, layouts, reach=case.reach, draw=draw, device=device)
    else:
        made = caches_over(shape, kind, layouts, reserved)
    return {name: one[..., 0] for name, one in zip(_SCALE_CACHES, made, strict=True)}


def _sliced(case: WriteCase, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values as slices of one projection, with a query before them and NaN around."""
    rows, heads, size = key.shape
    width = 4 * heads * size
    strides = (width, size, 1)
    slices = [
        restrided(tensor, strides, place * heads * size, rows * width)
        if name in case.views
        else tensor
        for name, place, tensor in (("key", 2, key), ("value", 3, value))
    ]
    return slices[0], slices[1]


def _call(target: FunctionTarget, write: Write) -> None:
    keywords: dict[str, Any] = {}
    if write.measured:
        keywords = dict(write.measured)
    elif not {"fp8", "int8"}.isdisjoint(target.declaration.casts):
        keywords = {"key_scale": write.scales[0], "value_scale": write.scales[1]}
    target(write.key, write.value, write.key_cache, write.value_cache, write.slots, **keywords)


def _written(target: FunctionTarget, case: WriteCase) -> Outcome:
    write = build_write(case, target.device)
    _call(target, write)
    return Outcome(max(1, len(case.slots)), _missing(write))


def _missing(write: Write) -> str | None:
    """A sentence for the first slot that does not hold its token."""
    places = list(write.places())
    if not places:
        return None
    at = tuple(torch.tensor(part) for part in zip(*places, strict=True))
    for name in ("key", "value"):
        wrong = _not_read(write, name, at) if write.measured else _not_stored(write, name, at)
        if wrong is not None:
            return wrong
    return None


def _not_stored(write: Write, name: str, at: tuple[Tensor, ...]) -> str | None:
    """Of the keys or values of these tokens, blocks and offsets the first without a right form."""
    tokens, blocks, offsets = at
    cache, numbers = write.written()[f"{name}_cache"], write.named()[name]
    scale = write.scales[name == "value"]
    found = bits(cache[blocks, offsets])
    forms = [bits(form) for form in stored_forms(numbers[tokens], cache.dtype, scale)]
    bad = torch.stack([found != form for form in forms]).all(0).nonzero()
    if not len(bad):
        return None
    was, wanted = (float(form.view(cache.dtype)[tuple(bad[0])]) for form in (found, forms[0]))
    return _first_of(name, bad, at, f"is {was:.9g} and should be {wanted:.9g}")


def _not_read(write: Write, name: str, at: tuple[Tensor, ...]) -> str | None:
    """The first that reads, times its scale, as another number than its token has."""
    tokens, blocks, offsets = at
    cache, wanted = write.written()[f"{name}_cache"], write.named()[name][tokens].double()
    held = cache[blocks, offsets].double()
    scales = write.measured[f"{name}_scales"][blocks, offsets].double()[..., None].expand_as(held)
    read, most = held * scales, allowed_error(wanted, cache.dtype)
    # Written so that NaN is wrong.
    bad = (~((read - wanted).abs() <= most)).nonzero()
    if not len(bad):
        return None
    was, scale, number, error = (float(one[tuple(bad[0])]) for one in (held, scales, wanted, most))
    sentence = f"reads as {was:.9g} times {scale:.9g} and should be {number:.9g} within {error:.2g}"
    return _first_of(name, bad, at, sentence)


def _first_of(name: str, bad: Tensor, at: tuple[Tensor, ...], sentence: str) -> str:
    number, head, element = bad[0].tolist()
    _, blocks, offsets = at
    return (
        f"{name}_cache block {int(blocks[number])} slot {int(offsets[number])}, head {head}, "
        f"element {element} {sentence}; {len(set(bad[:, 0].tolist()))} of {len(blocks)} tokens are "
        "not there"
    )


def _write_set(target: FunctionTarget, case: WriteCase) -> Outcome:
    """Everything but the slots keeps its bits, between the blocks and in padding as well."""
    write, expected = build_write(case, target.device), build_write(case, target.device)
    _call(target, write)
    pairs = {name: (cache, write.written()[name]) for name, cache in expected.written().items()}
    # First all of them: keys and values may share their memory.
    for before, now in pairs.values():
        for _, block, offset in expected.places():
            before[block, offset] = now[block, offset]
    for name, (before, now) in pairs.items():
        differing = (bits(before) != bits(now)).nonzero()
        if len(differing):
            block, slot = differing[0, :2].tolist()
            return Outcome(1, f"changes {name} block {block} slot {slot}, which no token has")
        count = changed_bytes(before, now)
        if count:
            return Outcome(1, f"changes {count} bytes between the blocks of {name}")
    return Outcome(1)


def _sources(target: FunctionTarget, case: WriteCase) -> Outcome:
    write, before = build_write(case, target.device), build_write(case, target.device)
    _call(target, write)
    for name in ("key", "value", "slot_mapping"):
        if changed_bytes(before.named()[name], write.named()[name]):
            return Outcome(1, f"{name} was changed by the call")
    return Outcome(1)


def _related(
    target: FunctionTarget, case: WriteCase, parts: list[list[int]], words: str
) -> Outcome:
    """Calls with parts of the tokens give the caches that one call with all of them gives."""
    whole, apart = build_write(case, target.device), build_write(case, target.device)
    _call(target, whole)
    for part in parts:
        _call(target, apart.part(torch.tensor(part, dtype=torch.long)))
    others = apart.written()
    for name, cache in whole.written().items():
        if changed_bytes(cache, others[name]):
            return Outcome(1, f"{words} gives another {name}")
    return Outcome(1)


def _order(target: FunctionTarget, case: WriteCase) -> Outcome:
    if len(case.slots) < 2:
        return Outcome(0)
    order = list(range(len(case.slots)))
    random.Random(case.seed).shuffle(order)
    return _related(target, case, [order], "the same tokens in another order")


def _padding(target: FunctionTarget, case: WriteCase) -> Outcome:
    kept = [token for token, slot in enumerate(case.slots) if slot >= 0]
    if len(kept) == len(case.slots) or not kept:
        return Outcome(0)
    return _related(target, case, [kept], "the same tokens without padding")


def _halves(target: FunctionTarget, case: WriteCase) -> Outcome:
    count = len(case.slots)
    if count < 2:
        return Outcome(0)
    cut = 1 + case.seed % (count - 1)
    parts = [list(range(cut)), list(range(cut, count))]
    return _related(target, case, parts, "the same tokens in two calls")


def _again(target: FunctionTarget, case: WriteCase) -> Outcome:
    every = list(range(len(case.slots)))
    return _related(target, case, [every, every], "the same call twice") if every else Outcome(0)


def _stores(target: FunctionTarget, case: WriteCase) -> Outcome:
    write = build_write(case, target.device)
    with recorded(write.named()) as accesses:
        _call(target, write)
    slots = {name: [cache[block, offset] for _, block, offset in write.places()]
             for name, cache in write.written().items()}  # fmt: skip
    return Outcome(1, unlawful_stores(accesses, write.named(), slots))


def _wide(target: FunctionTarget, case: WriteCase) -> Outcome:
    write = build_write(case, target.device)
    if is_watched(target):
        check_overflow(checked=True)
    try:
        with little_memory_left(ROOM_MIB):
            _call(target, write)
    finally:
        if is_watched(target):
            check_overflow(checked=False)
    wrong = _missing(write)
    return Outcome(1, wrong and f"in a cache of more than {case.reach}: {wrong}")


def _draw(choose: Choose, allowed: FunctionDeclaration, most: int = 12) -> WriteCase:
    """A small case that the target supports."""
    block_size = pick(choose, allowed.block_sizes)
    seed = choose(1 << 20)
    cache_dtype, dtype = _types(choose, allowed)
    count = choose(most) + (not (allowed.empty == "nothing" and choose(12) == 0))
    num_blocks = -(-max(1, count) // block_size) + 1 + choose(4)
    total = num_blocks * block_size
    slots = sample(seed, total, count)
    if choose(3) == 0:
        first = choose(total - count + 1)
        slots = list(range(first, first + count))
    layout = pick(choose, allowed.layouts)
    apart = allowed.layouts_apart and choose(3) == 2
    return WriteCase(
        slots=tuple(_padded(choose, allowed, slots)),
        seed=seed,
        dtype=dtype,
        cache_dtype=cache_dtype,
        num_kv_heads=1 + choose(4),
        head_size=pick(choose, allowed.head_sizes),
        block_size=block_size,
        num_blocks=num_blocks,
        layout=layout,
        value_layout=pick(choose, allowed.layouts) if apart else None,
        views=tuple(view for view in allowed.views if choose(3) == 2),
        slot_type=pick(choose, allowed.slot_types),
        extra_rows=choose(4) if allowed.extra_rows == "ignored" and choose(4) == 3 else 0,
        beyond=allowed.scales == "given" and allowed.beyond_range == "cut" and choose(2) == 1,
        scales=allowed.scales,
    )


def _types(choose: Choose, allowed: FunctionDeclaration) -> tuple[str | None, str]:
    """The type of the cache, None where it is that of the tokens, and that."""
    if allowed.scales == "measured":
        cast = pick(choose, [cast for cast in allowed.casts if cast != "half"])
    else:
        cast = pick(choose, [None, *allowed.casts] if choose(3) == 2 else [None])
    dtype = pick(choose, allowed.dtypes)
    halves = [kind for kind in ("float16", "bfloat16") if kind != dtype and kind in allowed.dtypes]
    if cast == "fp8":
        return pick(choose, allowed.fp8_types), dtype
    if cast == "int8":
        return "int8", dtype
    if cast == "half" and dtype == "float32" and halves:
        return pick(choose, halves), dtype
    return None, dtype


def _padded(choose: Choose, allowed: FunctionDeclaration, slots: list[int]) -> list[int]:
    """Padding among the tokens, at the end, as for a captured graph, or everywhere."""
    if allowed.padding == "absent" or not slots or choose(2) == 0:
        return slots
    numbers = (-1,) if allowed.padding == "minus-one" else (-1, -1, -2, -17)
    how = choose(8)
    if how == 7:
        return [pick(choose, numbers) for _ in slots]
    if how >= 4:
        end = choose(len(slots)) + 1
        return slots[:end] + [pick(choose, numbers) for _ in slots[end:]]
    return [pick(choose, numbers) if choose(4) == 3 else slot for slot in slots]


def _large(tokens: int, heads: int, choose: Choose, allowed: FunctionDeclaration) -> WriteCase:
    """About so many tokens, in blocks of any size, or so many heads."""
    case = _draw(choose, allowed)
    count = max(1, tokens - choose(3))
    num_blocks = -(-count // case.block_size) + 2
    slots = sample(case.seed, num_blocks * case.block_size, count)
    sizes = {"head_size": min(allowed.head_sizes)} if tokens > 100 else {}
    return replace(
        case, slots=tuple(_padded(choose, allowed, slots)), num_blocks=num_blocks,
        num_kv_heads=heads or case.num_kv_heads, **sizes,
    )  # fmt: skip


def _many_blocks(choose: Choose, allowed: FunctionDeclaration) -> WriteCase:
    """More blocks than 15 bits count, in a cache that is small enough to look at whole."""
    case = _draw(choose, allowed)
    size = min(allowed.block_sizes)
    count = 33_000 if size == 1 else 300
    slots = [slot for slot in sample(case.seed, count * size, 20) if slot >= 0]
    return replace(
        case, slots=(count * size - 1, *(slot for slot in slots if slot < count * size - 1)),
        num_blocks=count, block_size=size, head_size=min(allowed.head_sizes), num_kv_heads=1,
    )  # fmt: skip


def _largest_head(choose: Choose, allowed: FunctionDeclaration) -> WriteCase:
    case = _draw(choose, allowed)
    return replace(case, head_size=max(allowed.head_sizes))


_LARGE: tuple[Draw, ...] = (
    partial(_large, 2100, 1),
    partial(_large, 40, 17),
    _largest_head,
    partial(_large, 300, 0),
    _many_blocks,
    partial(_large, 1030, 2),
)


def _wide_draws(allowed: FunctionDeclaration) -> tuple[Draw, ...]:
    def draw_at(reach: str, layout: str) -> Draw:
        def draw(choose: Choose, declared: FunctionDeclaration) -> WriteCase:
            case = _draw(choose, declared)
            slots = sample(case.seed, case.num_blocks * case.block_size, 1)
            kept = tuple(slot for slot in case.slots if slot >= 0) or tuple(slots)
            # The far end of the cache is where odd blocks stand.
            far = case.block_size if case.num_blocks > 1 else 0
            kept = kept if far in kept else (*kept, far)
            # An int32 holds no slot beyond 2^31.
            wide = "int64" if reach == REACHES[3] else case.slot_type
            return replace(
                case, slots=kept, reach=reach, layout=layout, value_layout=None, num_kv_heads=1,
                head_size=min(declared.head_sizes), slot_type=wide, extra_rows=0,
            )  # fmt: skip

        return draw

    reaches = [reach for reach in reaches_of(allowed)
               if reach != REACHES[3] or "int64" in allowed.slot_types]  # fmt: skip
    return tuple(draw_at(reach, layout) for reach in reaches for layout in allowed.layouts)


def _smaller(case: WriteCase, declared: FunctionDeclaration) -> Iterator[WriteCase]:
    for slots in shorter(case.slots):
        yield replace(case, slots=slots)
    lowest = {slot: number for number, slot in enumerate(sorted(s for s in case.slots if s >= 0))}
    renumbered = tuple(lowest.get(slot, -1) for slot in case.slots)
    if renumbered != case.slots and case.reach == REACHES[0]:
        yield replace(case, slots=renumbered)
    plain: dict[str, Any] = {
        "layout": declared.layouts[0], "value_layout": None, "views": (), "extra_rows": 0,
        "cache_dtype": case.cache_dtype if case.is_measured else None, "beyond": False,
        "num_kv_heads": 1, "dtype": declared.dtypes[0],
        "slot_type": declared.slot_types[0], "seed": 0,
    }  # fmt: skip
    sizes = {"head_size": declared.head_sizes, "block_size": declared.block_sizes}
    forms = smaller_values(case, plain, sizes)
    top = max((slot for slot in case.slots if slot >= 0), default=0)
    needed = top // case.block_size + 1
    if needed < case.num_blocks and case.reach == REACHES[0]:
        yield replace(case, num_blocks=needed)
    for form in forms:
        is_cast = form.cache_dtype in {"float16", "bfloat16"} and form.dtype != "float32"
        is_narrow = form.reach == REACHES[3] and form.slot_type == "int32"
        if form.wrong() is None and not is_cast and not is_narrow:
            yield form


def _precision(case: WriteCase) -> str:
    if case.cache_dtype is None:
        return case.dtype
    scales = " under measured scales" if case.is_measured else ""
    return f"{case.dtype}, cache {case.cache_dtype}{scales}"


def _not_covered(target: FunctionTarget) -> list[str]:
    declared = target.declaration
    lines = ["two tokens for one slot, which no engine asks for"]
    if declared.scales == "measured":
        lines.append("scales of groups within a head, and zero points")
        absent = [cast for cast in CASTS if cast not in {"half", *declared.casts}]
    else:
        lines.append("given scales per head or token")
        absent = [cast for cast in CASTS if cast not in declared.casts]
    if absent:
        lines.append(f"not declared, so not driven: caches in {', '.join(absent)}")
    return lines


def _check(name: str, sentence: str, run: Any, **more: Any) -> Check:
    severity = more.pop("severity", Severity.WRONG_DATA_OF_ANOTHER)
    return Check(name=name, sentence=sentence, severity=severity, run=run, **more)


_CHECKS = (
    _check("written slots", "each token's keys and values stand in its slot, to the bit",
           _written, severity=Severity.WRONG_DATA_OF_ONES_OWN),
    _check("write set", "every other slot, and all between the blocks, keeps its bits", _write_set),
    _check("sources", "keys, values and slots are not written", _sources),
    _check("token order", "the order of the tokens does not matter", _order),
    _check("padding", "padding among the tokens does not matter", _padding,
           applies=lambda target: target.declaration.padding != "absent"),
    _check("halves", "two calls with half of the tokens each are one with all", _halves),
    _check("twice", "the same call again changes nothing", _again),
    _check("stores", "nothing but the slots is stored to, whatever is stored", _stores,
           applies=is_watched),
    _check("64-bit slots", "blocks of a cache that 32 bits do not count are written right", _wide,
           applies=lambda t: t.device == "cpu" and t.declaration.cache_reads == "in-place",
           draws=_wide_draws),
)  # fmt: skip

CACHE_WRITE = Kind(
    name="cache-write",
    checks={check.name: check for check in _CHECKS},
    read_case=WriteCase.from_json,
    in_order=order_of("written slots", _draw, _LARGE),
    smaller=_smaller,
    work=lambda case: 1 + len(case.slots) // 8,
    precision=_precision,
    why_not=why_not,
    not_covered=_not_covered,
)
