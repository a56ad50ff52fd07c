"""Which way kernels run, and the faster interpreter."""

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from poolproof.contract.target import TargetError
from poolproof.kernels.interpreter import (
    check_overflow,
    choose_interpreter,
    is_interpreted,
    patch_language_once,
)


@triton.jit
def scaled_sum(numbers, out, SIZE: tl.constexpr):  # noqa: N803 -- Triton's convention
    tl.store(out, tl.sum(tl.load(numbers + tl.arange(0, SIZE))) * 3)


@triton.jit
def product(one, other, out):
    tl.store(out, tl.load(one) * tl.load(other))


def test_the_variable_decides(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    assert choose_interpreter() == "cuda"
    monkeypatch.setenv("TRITON_INTERPRET", "true")
    assert choose_interpreter() == "cpu"


def test_without_a_variable_the_gpu_decides(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_interpreter() == "cpu"
    assert is_interpreted()
    monkeypatch.delenv("TRITON_INTERPRET")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert choose_interpreter() == "cuda"
    assert choose_interpreter("cpu") == "cpu"


def test_a_gpu_that_is_not_there_cannot_be_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TargetError, match="no CUDA device is visible to torch"):
        choose_interpreter("cuda")


def test_patching_once_changes_no_result_and_leaves_the_language_as_it_was():
    assert patch_language_once()
    before = tl.sum, tl.load
    numbers, out = torch.arange(8.0), torch.zeros(1)
    for _ in range(2):
        scaled_sum[(1,)](numbers, out, SIZE=8)
        assert out.item() == 84
    assert (tl.sum, tl.load) == before


class Unhashable:
    """A global of a user's module whose `__name__` no set can hold."""

    __name__ = ["not", "a", "name"]  # noqa: RUF012 -- that is the point


UNHASHABLE = Unhashable()


def test_a_global_may_have_any_name():
    assert patch_language_once()
    out = torch.zeros(1)
    scaled_sum[(1,)](torch.ones(8), out, SIZE=8)
    assert (out.item(), UNHASHABLE.__name__[0]) == (24, "not")


def test_another_triton_is_left_alone(monkeypatch):
    monkeypatch.delattr(interpreter, "_patch_lang")
    assert not patch_language_once()


def test_an_int32_that_overflows_raises_when_asked_and_wraps_otherwise():
    numbers = [torch.tensor([100_000], dtype=torch.int32) for _ in range(2)]
    out = torch.zeros(1, dtype=torch.int32)
    product[(1,)](*numbers, out)
    assert out.item() == (100_000**2 + 2**31) % 2**32 - 2**31
    check_overflow(True)
    try:
        with pytest.raises(Exception, match="overflow detected"):
            product[(1,)](*numbers, out)
    finally:
        check_overflow(False)
