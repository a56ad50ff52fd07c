"""Faulty kernels: each is caught by every check that it names, and the change really changes."""

import warnings

import pytest

from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.faulty_kernels import (
    CANARIES,
    FAULTY_KERNELS,
    Change,
    FaultyKernel,
    catch,
    examples_until_caught,
)
from poolproof.kernels.functions.catalogue import FUNCTION_KINDS
from poolproof.kernels.target import paged_target


@pytest.mark.some(230)
@pytest.mark.parametrize("name", FAULTY_KERNELS)
def test_a_faulty_kernel_is_caught(name):
    faulty = FAULTY_KERNELS[name]
    with warnings.catch_warnings():
        # Some divide by zero; numpy says so.
        warnings.simplefilter("ignore")
        assert set(catch(faulty)) == set(faulty.checks)


def test_the_correct_kernel_is_caught_by_none_of_these_searches():
    for name in ("dense", "value tail", "read set", "block copy"):
        assert examples_until_caught(paged_target("cpu"), name, most=4) is None


def test_there_are_enough_and_each_names_known_checks():
    assert len(FAULTY_KERNELS) >= 26
    known = set(CHECKS).union(*(kind.checks for kind in FUNCTION_KINDS.values()))
    assert all(set(faulty.checks) <= known for faulty in FAULTY_KERNELS.values())
    assert set(CANARIES) <= set(FAULTY_KERNELS)


def test_a_change_that_does_not_fit_any_more_is_an_error():
    stale = FaultyKernel("Z1", "stale", "", ("dense",), (Change("tile", "no such text", ""),))
    with pytest.raises(
        ValueError, match=r"faulty kernel Z1: 'no such text' stands 0 times in tile\.py"
    ):
        stale.make()


def test_a_kernel_that_raises_is_caught():
    raising = FaultyKernel(
        "Z2", "raises", "", ("dense",), (Change("attention", "    check_shapes(batch, out, lse)",
                                                '    raise RuntimeError("no")'),),
    )  # fmt: skip
    assert catch(raising) == {"dense": 1}
