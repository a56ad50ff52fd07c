"""Faulty kernels: each is caught by every check that it names, and the change really changes."""

import warnings

import pytest

from poolproof.kernels.builtin import paged_target
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.specimens.catalogue import (
    CANARIES,
    SPECIMENS,
    catch,
    examples_until_caught,
)
from poolproof.kernels.specimens.specimen import Change, Specimen


@pytest.mark.parametrize("name", SPECIMENS)
def test_a_faulty_kernel_is_caught(name):
    specimen = SPECIMENS[name]
    with warnings.catch_warnings():
        # Some divide by zero; numpy says so.
        warnings.simplefilter("ignore")
        assert set(catch(specimen)) == set(specimen.checks)


def test_the_correct_kernel_is_caught_by_none_of_these_searches():
    for name in ("dense", "value tail", "read set", "block copy"):
        assert examples_until_caught(paged_target("cpu"), name, most=4) is None


def test_there_are_enough_and_each_names_known_checks():
    assert len(SPECIMENS) >= 26
    assert all(set(specimen.checks) <= set(CHECKS) for specimen in SPECIMENS.values())
    assert set(CANARIES) <= set(SPECIMENS)


def test_a_change_that_does_not_fit_any_more_is_an_error():
    stale = Specimen("Z1", "stale", "", ("dense",), (Change("tile", "no such text", ""),))
    with pytest.raises(ValueError, match=r"specimen Z1: 'no such text' stands 0 times in tile\.py"):
        stale.make()


def test_a_kernel_that_raises_is_caught():
    raising = Specimen(
        "Z2", "raises", "", ("dense",), (Change("attention", "    check_shapes(batch, out)",
                                                '    raise RuntimeError("no")'),),
    )  # fmt: skip
    assert catch(raising) == {"dense": 1}
