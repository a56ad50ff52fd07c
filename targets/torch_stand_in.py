"""The few operations of PyTorch that engines' bookkeeping uses, on lists of integers.

Some engines keep free slots, rows of a request table and keys of a radix tree in tensors on the
CPU. `torch_stand_in()` is a module for their `import torch`: slices are views and assignments write
through them, as there. Every other name of it is blank. Only integers, one dimension, and tables of
rows are known; what is not raises an error, and never answers something else than PyTorch does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any

from poolproof.contract.adapter_fault import HandedOver
from poolproof.targets.engine_sources import BlankModule

__all__ = ["StandInTensor", "torch_stand_in"]


class StandInTensor(HandedOver):
    """One dimension, or a single number; `where` says which places of the storage it shows."""

    device = "cpu"
    is_cpu = True
    is_cuda = False
    __slots__ = ("_is_number", "_storage", "_where")

    def __init__(
        self, storage: list[int], where: Sequence[int] | None = None, *, is_number: bool = False
    ) -> None:
        self._storage = storage
        self._where: Sequence[int] = range(len(storage)) if where is None else where
        self._is_number = is_number

    def __len__(self) -> int:
        if self._is_number:
            raise TypeError("len() of a 0-d tensor")
        return len(self._where)

    def __iter__(self) -> Iterator[StandInTensor]:
        return (self[place] for place in range(len(self)))

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self._is_number else (len(self._where),)

    def size(self, dim: int) -> int:
        return self.shape[dim]

    def numel(self) -> int:
        return len(self._where)

    def item(self) -> int:
        (place,) = self._where
        return self._storage[place]

    def tolist(self) -> Any:
        return self.item() if self._is_number else [self._storage[place] for place in self._where]

    def __int__(self) -> int:
        return self.item()

    def __bool__(self) -> bool:
        return bool(self.item())

    def __getitem__(self, key: Any) -> StandInTensor:
        if isinstance(key, slice):
            return StandInTensor(self._storage, self._where[key])
        if isinstance(key, StandInTensor):
            return StandInTensor([self._storage[self._where[place]] for place in key.tolist()])
        return StandInTensor(self._storage, (self._where[key],), is_number=True)

    def __setitem__(self, key: Any, value: Any) -> None:
        places = key.tolist() if isinstance(key, StandInTensor) else key
        if isinstance(places, list):
            StandInTensor(self._storage, [self._where[place] for place in places]).fill_(value)
        else:
            self[places].fill_(value)

    def fill_(self, value: Any) -> StandInTensor:
        if isinstance(value, StandInTensor | list):
            values = value.tolist() if isinstance(value, StandInTensor) else value
            values = [values] if isinstance(values, int) else values
            if len(values) != len(self._where):
                raise RuntimeError(f"{len(values)} values cannot fill {len(self._where)} places")
        else:
            values = [int(value)] * len(self._where)
        for place, new in zip(self._where, values):
            self._storage[place] = new
        return self

    def copy_(self, source: StandInTensor, **_options: Any) -> StandInTensor:
        return self.fill_(source)

    def clone(self) -> StandInTensor:
        return StandInTensor(
            [self._storage[place] for place in self._where], is_number=self._is_number
        )

    def to(self, *_arguments: Any, **_options: Any) -> StandInTensor:
        return self

    cpu = cuda = detach = flatten = contiguous = pin_memory = to

    def unsqueeze(self, dim: int) -> Any:
        if dim == 0 and self._is_number:
            return StandInTensor(self._storage, self._where)
        if dim != 1:
            raise NotImplementedError(f"unsqueeze({dim})")
        return StandInRows(self.tolist())

    def _with(self, other: Any, operation: Callable[[int, int], int]) -> StandInTensor:
        mine = [self._storage[place] for place in self._where]
        theirs = other.tolist() if isinstance(other, StandInTensor) else other
        if isinstance(theirs, list):
            if len(theirs) != len(mine):
                raise RuntimeError(f"{len(mine)} and {len(theirs)} values do not match")
            return StandInTensor([operation(a, b) for a, b in zip(mine, theirs)])
        return StandInTensor([operation(a, theirs) for a in mine], is_number=self._is_number)

    def __add__(self, other: Any) -> StandInTensor:
        return self._with(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> StandInTensor:
        return self._with(other, lambda a, b: a - b)

    def __mul__(self, other: Any) -> StandInTensor:
        return self._with(other, lambda a, b: a * b)

    def __mod__(self, other: Any) -> StandInTensor:
        return self._with(other, lambda a, b: a % b)

    def __floordiv__(self, other: Any) -> StandInTensor:
        return self._with(other, lambda a, b: a // b)

    def __eq__(self, other: object) -> StandInTensor:  # type: ignore[override]  # as tensors compare
        return self._with(other, lambda a, b: a == b)

    def __ne__(self, other: object) -> StandInTensor:  # type: ignore[override]  # as tensors compare
        return self._with(other, lambda a, b: a != b)

    __hash__ = object.__hash__


class StandInRows(HandedOver):
    """A column, which is added to a row: what is in each place of the product."""

    def __init__(self, column: list[int]) -> None:
        self._column = column

    def __add__(self, row: StandInTensor) -> StandInTensor:
        return StandInTensor([first + second for first in self._column for second in row.tolist()])


class StandInTable(HandedOver):
    """Two dimensions: rows of one width, which begin with zeros."""

    device = "cpu"

    def __init__(self, num_rows: int, width: int) -> None:
        self.shape = (num_rows, width)
        self._rows: dict[int, StandInTensor] = {}

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> StandInTensor:
        if isinstance(key, tuple):
            number, places = key
            if isinstance(number, StandInTensor) and number.shape:
                pairs = zip(number.tolist(), places.tolist())
                return StandInTensor([self._row(row)[place].item() for row, place in pairs])
            return self._row(int(number))[places]
        return self._row(int(key))

    def __setitem__(self, key: Any, value: Any) -> None:
        number, places = key if isinstance(key, tuple) else (key, slice(None))
        if isinstance(number, StandInTensor) and number.shape:
            for row, place, new in zip(number.tolist(), places.tolist(), value.tolist()):
                self._row(row)[place] = new
        else:
            self._row(int(number))[places] = value

    def _row(self, number: int) -> StandInTensor:
        if not 0 <= number < self.shape[0]:
            raise IndexError(f"row {number} of {self.shape[0]}")
        if number not in self._rows:
            self._rows[number] = StandInTensor([0] * self.shape[1])
        return self._rows[number]


def _arange(
    first: int, end: int | None = None, *, out: StandInTensor | None = None, **_: Any
) -> StandInTensor:
    numbers = list(range(first) if end is None else range(first, end))
    return StandInTensor(numbers) if out is None else out.copy_(StandInTensor(numbers))


def _zeros(*shape: Any, **_: Any) -> StandInTensor | StandInTable | None:
    """Of more than two dimensions are the tensors of KV itself, which nobody looks into."""
    sizes = tuple(shape[0]) if isinstance(shape[0], tuple | list) else shape
    if len(sizes) > 2:
        return None
    return StandInTensor([0] * sizes[0]) if len(sizes) == 1 else StandInTable(*sizes)


def _tensor(data: Iterable[Any], **_: Any) -> StandInTensor:
    return StandInTensor([int(number) for number in data])


def _cat(parts: Iterable[StandInTensor], *_: Any, **__: Any) -> StandInTensor:
    return StandInTensor([number for part in parts for number in part.tolist()])


def _nonzero(tensor: StandInTensor, **_: Any) -> StandInTensor:
    return StandInTensor([place for place, number in enumerate(tensor.tolist()) if number])


def _all(tensor: StandInTensor) -> bool:
    return all(tensor.tolist())


def torch_stand_in() -> ModuleType:
    """A module that engines import as `torch`."""
    module = BlankModule("torch")
    vars(module).update(
        Tensor=StandInTensor, arange=_arange, zeros=_zeros, empty=_zeros, tensor=_tensor, cat=_cat,
        concat=_cat, nonzero=_nonzero, all=_all,
        zeros_like=lambda table, **_: _zeros(*table.shape),
    )  # fmt: skip
    return module
