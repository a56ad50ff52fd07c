"""What the cases of functions beside attention have in common: JSON, examples, smaller forms."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from poolproof.contract.depth import Depth
from poolproof.kernels.case import CaseError, check_rows
from poolproof.kernels.checks.check import Check
from poolproof.kernels.functions.declaration import FunctionDeclaration
from poolproof.kernels.functions.target import FunctionTarget
from poolproof.kernels.layouts import LAYOUTS, REACHES

__all__ = [
    "Choose",
    "Draw",
    "FunctionCase",
    "is_watched",
    "order_of",
    "pick",
    "place_words",
    "reaches_of",
    "sample",
    "shorter",
    "smaller_values",
    "why_not",
]

Choose = Callable[[int], int]
Draw = Callable[[Choose, FunctionDeclaration], Any]
Item = TypeVar("Item")
Case = TypeVar("Case", bound="FunctionCase")

NUM_EXAMPLES = {Depth.QUICK: (320, 40), Depth.STANDARD: (1600, 200), Depth.DEEP: (20_000, 2000)}
"""Small examples of the main check and large ones; each other check has a fourth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionCase:
    """The rows that all have; `kind` is that of the declaration."""

    seed: int = 0
    dtype: str = "float32"
    num_kv_heads: int = 1
    head_size: int = 16

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {key: [list(item) if isinstance(item, tuple) else item for item in value]
                 if isinstance(value, tuple) else value
                 for key, value in asdict(self).items()}  # fmt: skip

    @classmethod
    def from_json(cls: type[Case], value: Any) -> Case:  # noqa: PYI019 -- Self is of Python 3.11
        """What `to_json` wrote. Raises CaseError."""
        check_rows(cls, value)
        try:
            rows = {key: _frozen(item) for key, item in value.items()}
            case = cls(**rows)
            wrong = case.wrong()
        except (TypeError, ValueError, AttributeError) as error:
            raise CaseError(f"the case cannot be read: {error}") from error
        if wrong:
            raise CaseError(f"in a case {wrong}")
        return case

    def wrong(self) -> str | None:
        """What of the case cannot be, None if it can."""
        return None


def _frozen(item: Any) -> Any:
    return tuple(map(_frozen, item)) if isinstance(item, list) else item


def pick(choose: Choose, items: Sequence[Item]) -> Item:
    """One of them."""
    return items[choose(len(items))]


def order_of(main: str, draw: Draw, large: Sequence[Draw]) -> Callable[..., list[Draw]]:
    """What draws each example of a check: small cases, with large ones of every kind among them."""

    def in_order(check: Check, target: FunctionTarget, depth: Depth, choose: Choose) -> list[Draw]:
        if check.draws is not None:
            return list(check.draws(target.declaration))
        few, many = NUM_EXAMPLES[depth]
        if check.name != main:
            few, many = few // 4, many // 4
        if is_watched(target):
            # The interpreter takes milliseconds for each row.
            few, many = few // 8, max(2, many // 10)
        first = 0 if check.name == main else choose(len(large))
        drawn = [large[(first + number) % len(large)] for number in range(many)]
        order = [draw] * few
        for number, one in enumerate(drawn):
            order.insert((number + 1) * few // (many + 1) + number, one)
        return order

    return in_order


def is_watched(target: FunctionTarget) -> bool:
    """Whether its loads and stores can be seen."""
    return target.uses_triton and target.device == "cpu"


def reaches_of(declared: FunctionDeclaration) -> tuple[str, ...]:
    """How large a cache may be, small ones left out."""
    fewer = ("any", "fewer-slots", "fewer-elements").index(declared.cache_size)
    return REACHES[1 : 4 - fewer]


def why_not(check: Check, target: FunctionTarget) -> str:
    """Why a check does not apply."""
    if check.name.startswith("64-bit"):
        return f"cache_reads: {target.declaration.cache_reads}"
    if check.name == "stores":
        return "only Triton kernels in the interpreter can be watched"
    return "not declared"


def place_words(case: Any) -> str:
    """Where a cache stands, in words."""
    text = "" if case.layout == LAYOUTS[0] else f", layout {case.layout}"
    text += "" if case.value_layout in {None, case.layout} else f", values {case.value_layout}"
    return text + ("" if case.reach == REACHES[0] else f", a cache of more than {case.reach}")


def shorter(items: tuple[Item, ...]) -> Iterator[tuple[Item, ...]]:
    """Parts of a list: halves, then all but one."""
    count = len(items)
    if count > 3:
        yield items[: count // 2]
        yield items[count // 2 :]
        yield items[: count - count // 8 - 1]
    if count > 1:
        for index in range(min(count, 12)):
            yield items[:index] + items[index + 1 :]
        yield items[:-1]


def smaller_values(case: Any, plain: dict[str, Any], sizes: dict[str, Any]) -> Iterator[Any]:
    """The case with one row plain, or with one of the smaller sizes that are declared."""
    for name, value in plain.items():
        if getattr(case, name) != value:
            yield replace(case, **{name: value})
    for name, allowed in sizes.items():
        for size in sorted(allowed):
            if size < getattr(case, name):
                yield replace(case, **{name: size})


def sample(seed: int, most: int, count: int) -> list[int]:
    """So many different numbers below `most`, in random order."""
    return random.Random(seed).sample(range(most), count)
