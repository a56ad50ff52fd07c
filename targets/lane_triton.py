"""Runs Triton kernels that compute with short vectors, over memory as `scalar_triton.py` does.

A vector has lanes. Those that a mask lets through have a value of their own; of those behind them
only `other` is known, or nothing, and then nobody may store them. Masks are comparisons of
consecutive numbers (`tl.arange`), which let the first lanes through, and what is computed from such
vectors. All of a vector is loaded before any of it is stored. What a kernel uses beyond that raises
AttributeError or TypeError.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice, repeat
from typing import Any

from poolproof.targets.scalar_triton import KernelNumber, Language, Pointer, ScalarKernel

__all__ = ["LaneKernel"]

_UNKNOWN = object()
"""What stands in a lane of which nothing is known."""


class _First:
    """A mask that lets the first lanes through."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count

    def __and__(self, other: Any) -> Any:
        if isinstance(other, _First):
            return _First(min(self.count, other.count))
        if isinstance(other, _Lanes):
            return _Lanes(list(islice(other.values(), self.count)), rest=False)
        return self if other else _First(0)

    __rand__ = __and__

    def flags(self) -> Iterator[Any]:
        """Which lanes it lets through; all that are not told are left out."""
        return repeat(True, self.count)


class _Run:
    """Numbers that follow one another, as many as there are lanes."""

    __slots__ = ("count", "first")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = count

    def __add__(self, number: int) -> _Run:
        return _Run(self.first + number, self.count)

    __radd__ = __add__

    def __lt__(self, end: int) -> _First:
        return _First(min(max(end - self.first, 0), self.count))

    def values(self) -> Iterator[int]:
        return iter(range(self.first, self.first + self.count))


class _Lanes:
    """The values of the first lanes, and `rest` in all others; None where that is not known."""

    __slots__ = ("known", "rest")

    def __init__(self, known: list[Any], rest: Any = None) -> None:
        self.known = known
        self.rest = rest

    def values(self) -> Iterator[Any]:
        yield from self.known
        if self.rest is not None:
            yield from repeat(self.rest)

    def flags(self) -> Iterator[Any]:
        """As a mask. Raises TypeError where lanes behind the known ones might be let through."""
        if self.rest is None or self.rest:
            raise TypeError("a mask lets lanes through whose number is not known")
        return iter(self.known)

    def _each(self, of: Callable[[Any, Any], Any], other: Any, *, swapped: bool = False) -> _Lanes:
        theirs = other if isinstance(other, (_Lanes, _Run)) else _Lanes([], other)
        rest = theirs.rest if isinstance(theirs, _Lanes) else None
        pairs = zip(self.values(), theirs.values())
        length = max(len(self.known), len(theirs.known) if isinstance(theirs, _Lanes) else 0)
        computed = [of(b, a) if swapped else of(a, b) for a, b in islice(pairs, length)]
        if self.rest is None or rest is None:
            return _Lanes(computed)
        return _Lanes(computed, of(rest, self.rest) if swapped else of(self.rest, rest))

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Pointer) else self._each(operator.add, other)

    def __radd__(self, other: Any) -> _Lanes:
        return self._each(operator.add, other, swapped=True)

    def __sub__(self, other: Any) -> _Lanes:
        return self._each(operator.sub, other)

    def __floordiv__(self, other: Any) -> _Lanes:
        return self._each(lambda a, b: KernelNumber(a) // b, other)

    def __and__(self, other: Any) -> Any:
        if isinstance(other, _First):
            return other & self
        return self._each(operator.and_, other)

    def __ge__(self, other: Any) -> _Lanes:
        return self._each(operator.ge, other)

    def __ne__(self, other: object) -> _Lanes:  # type: ignore[override]  # a vector of answers
        return self._each(operator.ne, other)

    __hash__ = None  # type: ignore[assignment]  # what has no equality of its own has no hash

    def at_least(self, floor: int) -> _Lanes:
        return self._each(max, floor)


class _Elements:
    """One element of memory for each lane: those at these numbers behind a pointer."""

    __slots__ = ("numbers", "start")

    def __init__(self, start: Pointer, numbers: _Run | _Lanes) -> None:
        self.start = start
        self.numbers = numbers

    def __add__(self, elements: int) -> _Elements:
        return _Elements(self.start + elements, self.numbers)

    def let_through(self, mask: Any, values: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """The element of each lane that a mask lets through, with its value if it has one."""
        kind, address = self.start.of, self.start.address
        flags = repeat(True) if mask is None else mask.flags()
        lanes = zip(self.numbers.values(), flags, chain(values, repeat(_UNKNOWN)))
        for number, is_let, value in lanes:
            if is_let:
                yield kind.c_type.from_address(address + number * kind.size), value


class _LanePointer(Pointer):
    """A pointer to which a vector can be added."""

    def __add__(self, elements: Any) -> Any:
        if isinstance(elements, (_Run, _Lanes)):
            return _Elements(self, elements)
        return super().__add__(elements)

    __radd__ = __add__


class _LaneLanguage(Language):
    """The part of `tl` that programs with short vectors use."""

    range = range
    pointer = _LanePointer

    @staticmethod
    def arange(first: int, end: int) -> Any:
        return _Run(first, end - first)

    @staticmethod
    def cast(value: Any, kind: Any) -> Any:
        return _LanePointer(int(value), kind.of)

    @staticmethod
    def multiple_of(value: Any, _of: int) -> Any:
        return value

    @staticmethod
    def where(condition: int, one: Any, other: Any) -> Any:
        return one if condition else other

    @staticmethod
    def maximum(one: Any, other: int) -> Any:
        return one.at_least(other) if isinstance(one, _Lanes) else KernelNumber(max(one, other))

    @staticmethod
    def load(pointer: Any, mask: Any = None, other: Any = None) -> Any:
        if not isinstance(pointer, _Elements):
            return Language.load(pointer)
        if not (mask is None or isinstance(mask, _First)):
            raise TypeError("lanes are loaded that do not follow one another")
        loaded = [element.value for element, _ in pointer.let_through(mask, ())]
        return _Lanes(loaded, other)

    def store(self, pointer: Any, value: Any, mask: Any = None) -> None:
        """One element, or one a lane. Raises TypeError where a lane's value is not known."""
        if not isinstance(pointer, _Elements):
            super().store(pointer, value)
            return
        values = value.values() if hasattr(value, "values") else repeat(value)
        for element, one in pointer.let_through(mask, values):
            if one is _UNKNOWN:
                raise TypeError("a lane is stored whose value is not known")
            element.value = int(one)


class LaneKernel(ScalarKernel):
    """A kernel with short vectors, launched as Triton's are: `kernel[grid](*arguments)`.

    `inner` are the kernels that it calls, by name.
    """

    def __init__(self, kernel: Any, inner: Mapping[str, Any]) -> None:
        super().__init__(kernel, inner, {}, move=_no_move, language=_LaneLanguage)


def _no_move(_source: int, _target: int, _size: int) -> None:
    raise AssertionError("vectors are stored lane by lane")
