"""Runs a Triton kernel's own source on a CPU, one program after the other, over plain memory.

Where Triton has no device it leaves kernels as Python functions that nothing can run. Kernels that
decide and copy, and compute nothing, need no device: their source is run here with a small `tl` in
which a number is an integer, a pointer an address with a type, and `tl.load` reads memory. Of
vectors there are only numbers that follow one another (`tl.arange`): what is loaded at addresses of
that kind can only be stored again, as one move of memory. Whatever else a kernel uses raises
AttributeError or TypeError, which name it. Programs of one launch run in order, so races between
them are not seen.
"""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

__all__ = ["KernelNumber", "Language", "Pointer", "ScalarKernel", "kernel_source"]

Move = Callable[[int, int, int], None]

_LAUNCH_OPTIONS = ("num_warps", "num_stages")
"""How a device shares out a program, which its source is not told."""

_C_TYPES: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "int32": ctypes.c_int32,
    "int64": ctypes.c_int64,
    "uint8": ctypes.c_uint8,
    "uint64": ctypes.c_uint64,
}


class KernelNumber(int):
    """An integer with Triton's casts. Whoever adds to a number gets one again."""

    def to(self, kind: Any) -> KernelNumber | Pointer:
        return Pointer(int(self), kind.of) if isinstance(kind, _PointerType) else self

    def __add__(self, other: Any) -> Any:
        return KernelNumber(int(self) + other) if isinstance(other, int) else NotImplemented

    def __sub__(self, other: int) -> KernelNumber:
        return KernelNumber(int(self) - other)

    def __mul__(self, other: int) -> KernelNumber:
        return KernelNumber(int(self) * other)

    def __floordiv__(self, other: int) -> KernelNumber:
        """Towards zero, as on a device."""
        quotient = abs(int(self)) // abs(other)
        return KernelNumber(quotient if (self >= 0) == (other >= 0) else -quotient)

    def __rsub__(self, other: int) -> KernelNumber:
        return KernelNumber(other - int(self))

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


class _Span:
    """Numbers that follow one another: so many from the first one on."""

    __slots__ = ("count", "first")

    def __init__(self, first: int, count: int) -> None:
        self.first = first
        self.count = count

    def __add__(self, number: int) -> _Span:
        return _Span(self.first + number, self.count)

    def __lt__(self, end: int) -> int:
        """A mask, which is how many of them it lets through: they are the first ones."""
        return min(max(end - self.first, 0), self.count)

    def to(self, kind: _PointerType) -> _Addresses:
        """Addresses of bytes. Raises TypeError for those of anything longer."""
        if kind.of.size != 1:
            raise TypeError(f"consecutive addresses are of bytes, and not of {kind.of.name}")
        return _Addresses(Pointer(self.first, kind.of), self.count)

    __radd__ = __add__


class _Addresses:
    """As many elements as stand from a pointer on."""

    __slots__ = ("count", "start")

    def __init__(self, start: Pointer, count: int) -> None:
        self.start = start
        self.count = count

    def __add__(self, elements: int) -> _Addresses:
        return _Addresses(self.start + elements, self.count)

    def num_bytes(self, mask: int | None) -> int:
        return (self.count if mask is None else min(mask, self.count)) * self.start.of.size


class _Memory:
    """What was loaded from so many bytes, and is still there."""

    __slots__ = ("address", "num_bytes")

    def __init__(self, address: int, num_bytes: int) -> None:
        self.address = address
        self.num_bytes = num_bytes


class Pointer:
    """An address, and the type of what stands there. Adding to it counts in elements."""

    __slots__ = ("address", "of")

    def __init__(self, address: int, of: _Type) -> None:
        self.address = address
        self.of = of

    def __add__(self, elements: Any) -> Any:
        if isinstance(elements, _Span):
            return _Addresses(self + elements.first, elements.count)
        return type(self)(self.address + elements * self.of.size, self.of)

    __radd__ = __add__

    def __sub__(self, elements: int) -> Pointer:
        return type(self)(self.address - elements * self.of.size, self.of)

    def to(self, kind: Any) -> Pointer | KernelNumber:
        if isinstance(kind, _PointerType):
            return Pointer(self.address, kind.of)
        return KernelNumber(self.address)


class Language:
    """The part of `tl` that scalar programs use; `move` takes source, target and size."""

    int8, int32, int64 = _Type("int8"), _Type("int32"), _Type("int64")
    uint8, uint64 = _Type("uint8"), _Type("uint64")
    constexpr = int
    pointer_type = _PointerType
    pointer = Pointer

    def __init__(self, move: Move) -> None:
        self.place = (0, 0, 0)
        self.grid: tuple[int, ...] = (1, 1, 1)
        self._move = move

    def program_id(self, axis: int) -> KernelNumber:
        return KernelNumber(self.place[axis])

    def num_programs(self, axis: int) -> KernelNumber:
        return KernelNumber(self.grid[axis])

    @staticmethod
    def arange(first: int, end: int) -> _Span:
        return _Span(first, end - first)

    @staticmethod
    def load(pointer: Any, mask: int | None = None) -> Any:
        if isinstance(pointer, _Addresses):
            return _Memory(pointer.start.address, pointer.num_bytes(mask))
        return KernelNumber(pointer.of.c_type.from_address(pointer.address).value)

    def store(self, pointer: Any, value: Any, mask: int | None = None) -> None:
        """One element, or what was loaded. Raises TypeError where a vector is stored otherwise."""
        if not isinstance(pointer, _Addresses):
            pointer.of.c_type.from_address(pointer.address).value = int(value)
            return
        num_bytes = pointer.num_bytes(mask)
        if not isinstance(value, _Memory) or value.num_bytes != num_bytes:
            raise TypeError(f"only what was loaded can be stored in {num_bytes} bytes, all of it")
        if num_bytes:
            self._move(value.address, pointer.start.address, num_bytes)

    @staticmethod
    def maximum(one: int, other: int) -> KernelNumber:
        return KernelNumber(max(one, other))


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
    which must then do the whole of what the axis shares out. `move` carries out its copies: from
    which address, to which, how many bytes. `language` is the part of `tl` that the kernel may use.
    """

    def __init__(
        self,
        kernel: Any,
        inner: Mapping[str, Any],
        stand_ins: Mapping[str, Callable[..., Any]],
        *,
        move: Move,
        language: type[Language] = Language,
    ) -> None:
        self._language = language(move)
        source = kernel_source(kernel)
        names = {**source.__globals__, "tl": self._language, **stand_ins}
        names |= {name: _bound(kernel_source(one), names) for name, one in inner.items()}
        self._function = _bound(source, names)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        """The launch over a grid of one to three axes."""

        def launch(*arguments: Any, **named: Any) -> None:
            pointer = self._language.pointer
            plain = [_argument(value, pointer) for value in arguments]
            plain_named = {
                name: _argument(value, pointer)
                for name, value in named.items()
                if name not in _LAUNCH_OPTIONS
            }
            self._language.grid = (*grid, 1, 1)
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


def _argument(value: Any, pointer: type[Pointer]) -> Any:
    """Tensors are pointers to their memory, integers are numbers."""
    if type(value) is int:
        return KernelNumber(value)
    if hasattr(value, "data_ptr"):
        return pointer(value.data_ptr(), _type_of(value.dtype))
    return value


@cache
def _type_of(dtype: Any) -> _Type:
    return _Type(str(dtype).rpartition(".")[2])
