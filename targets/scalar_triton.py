"""Runs a Triton kernel's own source on a CPU, one program after the other, over plain memory.

Where Triton has no device it leaves kernels as Python functions that nothing can run. Kernels that
decide and copy, and compute nothing, need no device: their source is run here with a small `tl` in
which a number is an integer, a pointer an address with a type, and `tl.load` reads memory. Only
scalar programs are run; a kernel over `tl.arange` raises AttributeError, which names what is
missing. Programs of one launch run in order, so races between them are not seen.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

__all__ = ["ScalarKernel", "kernel_source"]

_C_TYPES = {
    "int8": ctypes.c_int8,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "uint64": ctypes.c_uint64,
}


class _Number(int):
    """An integer with Triton's casts. Whoever adds to a number gets one again."""

    def to(self, kind: Any) -> _Number | _Pointer:
        return _Pointer(int(self), kind.of) if isinstance(kind, _PointerType) else self

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, _Pointer) else _Number(int(self) + other)

    def __sub__(self, other: int) -> _Number:
        return _Number(int(self) - other)

    def __mul__(self, other: int) -> _Number:
        return _Number(int(self) * other)

    def __floordiv__(self, other: int) -> _Number:
        """Towards zero, as on a device."""
        quotient = abs(int(self)) // abs(other)
        return _Number(quotient if (self >= 0) == (other >= 0) else -quotient)

    def __rsub__(self, other: int) -> _Number:
        return _Number(other - int(self))

    __radd__ = __add__
    __rmul__ = __mul__


class _Type:
    """A type of `tl`, by its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.c_type = _C_TYPES[name]
        self.size = ctypes.sizeof(self.c_type)


class _PointerType:
    def __init__(self, of: _Type) -> None:
        self.of = of


class _Pointer:
    """An address, and the type of what stands there. Adding to it counts in elements."""

    __slots__ = ("address", "of")

    def __init__(self, address: int, of: _Type) -> None:
        self.address = address
        self.of = of

    def __add__(self, elements: int) -> _Pointer:
        return _Pointer(self.address + elements * self.of.size, self.of)

    __radd__ = __add__

    def to(self, kind: Any) -> _Pointer | _Number:
        if isinstance(kind, _PointerType):
            return _Pointer(self.address, kind.of)
        return _Number(self.address)


class _Language:
    """The part of `tl` that scalar programs use."""

    int8, int32, int64 = _Type("int8"), _Type("int32"), _Type("int64")
    uint8, uint64 = _Type("uint8"), _Type("uint64")
    constexpr = int
    pointer_type = _PointerType

    def __init__(self) -> None:
        self.place = (0, 0, 0)

    def program_id(self, axis: int) -> _Number:
        return _Number(self.place[axis])

    @staticmethod
    def load(pointer: _Pointer) -> _Number:
        return _Number(pointer.of.c_type.from_address(pointer.address).value)

    @staticmethod
    def store(pointer: _Pointer, value: int) -> None:
        pointer.of.c_type.from_address(pointer.address).value = int(value)

    @staticmethod
    def maximum(one: int, other: int) -> _Number:
        return _Number(max(one, other))


def kernel_source(kernel: Any) -> types.FunctionType:
    """The Python function of a kernel, whether or not Triton has wrapped it. Raises TypeError."""
    source = getattr(kernel, "fn", kernel)
    if not isinstance(source, types.FunctionType):
        raise TypeError(f"{kernel!r} is no kernel whose source can be run")
    return source


class ScalarKernel:
    """A kernel that is launched as Triton's are: `kernel[grid](*arguments)`.

    `inner` are the kernels that it calls, by name, which are run in the same way; `stand_ins` are
    functions that take the place of others. Of the third axis of a grid only program 0 is run,
    which must then do the whole of what the axis shares out.
    """

    def __init__(
        self, kernel: Any, inner: Mapping[str, Any], stand_ins: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._language = _Language()
        source = kernel_source(kernel)
        names = {**source.__globals__, "tl": self._language, **stand_ins}
        names |= {name: _bound(kernel_source(one), names) for name, one in inner.items()}
        self._function = _bound(source, names)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """The launch over a grid of one to three axes."""

        def launch(*arguments: Any, **named: Any) -> None:
            plain = [_argument(value) for value in arguments]
            plain_named = {name: _argument(value) for name, value in named.items()}
            for place in _places(grid):
                self._language.place = place
                self._function(*plain, **plain_named)

        return launch


def _bound(source: types.FunctionType, names: dict[str, Any]) -> types.FunctionType:
    """The same function among other names."""
    bound = types.FunctionType(
        source.__code__, names, source.__name__, source.__defaults__, source.__closure__
    )
    bound.__kwdefaults__ = source.__kwdefaults__
    return bound


def _places(grid: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    first, second = (*grid, 1)[:2]
    return ((x, y, 0) for x, y in product(range(first), range(second)))


def _argument(value: Any) -> Any:
    """Tensors are pointers to their memory, integers are numbers."""
    if type(value) is int:
        return _Number(value)
    if hasattr(value, "data_ptr"):
        return _Pointer(value.data_ptr(), _type_of(value.dtype))
    return value


@cache
def _type_of(dtype: Any) -> _Type:
    kind: _Type = getattr(_Language, str(dtype).rpartition(".")[2])
    return kind
