"""Kernels with short vectors, run over plain memory lane by lane."""

from __future__ import annotations

import ctypes

import pytest

from poolproof.targets.lane_triton import LaneKernel

tl = None  # what the kernels below find is put there


class Tensor:
    """Enough of a tensor: memory of 32-bit integers."""

    dtype = "torch.int32"

    def __init__(self, *values):
        self.memory = (ctypes.c_int32 * len(values))(*values)

    def data_ptr(self):
        return ctypes.addressof(self.memory)


def gathered(places, source, into, count, block):
    lanes = tl.program_id(0) * block + tl.arange(0, block)
    mask = lanes < count
    numbers = tl.load(places + lanes, mask=mask, other=0)
    values = tl.load(source + numbers, mask=mask, other=-1)
    grown = tl.maximum(values - 1, 0) + 10
    tl.store(into + numbers, grown, mask=mask & (values >= 0) & (values != 3))


def swapped(memory, block):
    lanes = tl.arange(0, block)
    tl.store(memory + lanes, tl.load(memory + lanes + 1, mask=lanes < block))


def filled(into, count, block):
    lanes = tl.arange(0, block)
    tl.store(into + lanes, 7 + lanes, mask=lanes < count)


def stored_beyond(source, into, block):
    lanes = tl.arange(0, block)
    tl.store(into + lanes, tl.load(source + lanes, mask=lanes < 1), mask=lanes < 2)


def of_the_last(into):
    if tl.program_id(0) == tl.num_programs(0) - 1:
        tl.store(into + tl.program_id(0), tl.where(tl.program_id(0) > 1, 5, 6))


def lanes_between(source, into, block):
    lanes = tl.arange(0, block)
    values = tl.load(source + lanes, mask=lanes < block, other=0)
    tl.load(into + lanes, mask=values != 1)


def test_lanes_are_gathered_and_scattered_where_a_mask_lets_them_through():
    into = Tensor(0, 0, 0, 0)
    LaneKernel(gathered, {})[1,](Tensor(3, 0, 2, 1), Tensor(3, 9, -5, 1), into, 3, 256)
    assert list(into.memory) == [0, 0, 0, 10]


def test_all_of_a_vector_is_loaded_before_any_of_it_is_stored():
    memory = Tensor(1, 2, 3, 4)
    LaneKernel(swapped, {})[1,](memory, 3)
    assert list(memory.memory) == [2, 3, 4, 4]


def test_consecutive_numbers_are_stored_as_far_as_a_mask_goes():
    into = Tensor(0, 0, 0)
    LaneKernel(filled, {})[1,](into, 2, 8, num_warps=1)
    assert list(into.memory) == [7, 8, 0]


def test_a_lane_of_which_nothing_is_known_is_not_stored():
    with pytest.raises(TypeError, match="value is not known"):
        LaneKernel(stored_beyond, {})[1,](Tensor(1, 2), Tensor(0, 0), 2)


def test_a_program_knows_how_many_there_are():
    into = Tensor(0, 0, 0)
    LaneKernel(of_the_last, {})[3,](into)
    assert list(into.memory) == [0, 0, 5]


def test_lanes_between_others_are_not_loaded():
    with pytest.raises(TypeError, match="do not follow one another"):
        LaneKernel(lanes_between, {})[1,](Tensor(1, 2), Tensor(0, 0), 2)
