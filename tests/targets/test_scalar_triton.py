"""A kernel's own source, run over plain memory by a small stand-in for Triton's language."""

from __future__ import annotations

import ctypes

import pytest

from poolproof.targets.scalar_triton import ScalarKernel

tl = None  # what the kernel below finds is put there


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


def test_a_kernel_reads_and_writes_memory_program_by_program():
    source, into = Tensor(1, 2, -3, 4), Tensor(0, 0, 0, 0)
    kernel = ScalarKernel(every_second, {}, {"doubled": lambda value: value * 2})
    kernel[4,](source, into, 2, shift=10)
    assert list(into.memory) == [11, 0, 7, 0]


def test_division_is_towards_zero_as_on_a_device():
    source, into = Tensor(-1), Tensor(9)
    ScalarKernel(every_second, {}, {"doubled": lambda value: value})[1, 1, 16](source, into, 2)
    assert list(into.memory) == [0]


def test_what_is_no_kernel_is_refused():
    with pytest.raises(TypeError, match="no kernel"):
        ScalarKernel(3, {}, {})
