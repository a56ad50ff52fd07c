"""A kernel's own source, run over plain memory by a small stand-in for Triton's language."""

from __future__ import annotations

import ctypes

import pytest

from poolproof.targets.scalar_triton import ScalarKernel

tl = None  # what the kernels below find is put there


class Tensor:
    """Enough of a tensor: memory of 32-bit integers."""

    dtype = "torch.int32"

    def __init__(self, *values):
        self.memory = (ctypes.c_int32 * len(values))(*values)

    def data_ptr(self):
        return ctypes.addressof(self.memory)


def doubled(value):
    raise AssertionError("its stand-in is called")


def every_second(source, into, size, shift=0):
    place = tl.program_id(0)
    if place % 2:
        return
    value = tl.load(source + place).to(tl.int64)
    tl.store(into + place, doubled(value) // size + shift)


def copied(sources, targets, size, block, shift=0):
    place = tl.program_id(0)
    source, target = tl.load(sources + place), tl.load(targets + place)
    offsets = tl.arange(0, block)
    for first in range(0, size, block):
        mask = (first + offsets) < size
        there = (source + first + offsets).to(tl.pointer_type(tl.uint8))
        here = (target + first + offsets).to(tl.pointer_type(tl.uint8))
        tl.store(here, tl.load(there, mask=mask), mask=mask)


def copied_by_words(sources, targets, size, block):
    words = size // 4
    offsets = tl.arange(0, block)
    mask = offsets < words
    tl.store(targets + offsets, tl.load(sources + offsets, mask=mask), mask=mask)


def added(source, into, count):
    offsets = tl.arange(0, count)
    tl.store(into + offsets, tl.load(source) + 1)


class Moves:
    """Carries out what is moved, and notes it."""

    def __init__(self):
        self.sizes = []

    def __call__(self, source, target, num_bytes):
        ctypes.memmove(target, source, num_bytes)
        self.sizes.append(num_bytes)


def scalar(kernel, stand_ins=None, move=None):
    return ScalarKernel(kernel, {}, stand_ins or {}, move=move or Moves())


def test_a_kernel_reads_and_writes_memory_program_by_program():
    source, into = Tensor(1, 2, -3, 4), Tensor(0, 0, 0, 0)
    kernel = scalar(every_second, {"doubled": lambda value: value * 2})
    kernel[4,](source, into, 2, shift=10)
    assert list(into.memory) == [11, 0, 7, 0]


def test_division_is_towards_zero_as_on_a_device():
    source, into = Tensor(-1), Tensor(9)
    scalar(every_second, {"doubled": lambda value: value})[1, 1, 16](source, into, 2)
    assert list(into.memory) == [0]


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match="no kernel"):
        scalar(3)


class Addresses(Tensor):
    dtype = "torch.int64"

    def __init__(self, tensor):
        self.memory = (ctypes.c_int64 * 1)(tensor.data_ptr())


def test_a_copy_moves_each_tile_of_what_its_mask_lets_through():
    source, into, moves = Tensor(1, 2, 3, 4), Tensor(0, 0, 0, 0), Moves()
    scalar(copied, move=moves)[1,](Addresses(source), Addresses(into), 12, 8)
    assert (list(into.memory), moves.sizes) == ([1, 2, 3, 0], [8, 4])


def test_a_copy_by_words_moves_no_more_than_its_vector_holds():
    source, into, moves = Tensor(1, 2, 3, 4), Tensor(0, 0, 0, 0), Moves()
    scalar(copied_by_words, move=moves)[1,](source, into, 16, 2)
    assert (list(into.memory), moves.sizes) == ([1, 2, 0, 0], [8])


def test_a_mask_that_lets_nothing_through_moves_nothing():
    source, into, moves = Tensor(1), Tensor(0), Moves()
    scalar(copied_by_words, move=moves)[1,](source, into, 3, 2)
    assert (list(into.memory), moves.sizes) == ([0], [])


def test_what_was_computed_cannot_be_stored_as_a_vector():
    source, into = Tensor(1), Tensor(0, 0)
    with pytest.raises(TypeError, match="only what was loaded can be stored in 8 bytes"):
        scalar(added)[1,](source, into, 2)
