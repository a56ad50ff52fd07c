"""Correct oddities: no check refuses one; all checks in turn: benchmarks/kernel_examples.py."""

import pytest

from poolproof.contract.depth import Depth
from poolproof.kernels import check_run
from poolproof.kernels.check_run import certify_check
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.odd_kernels import ODD_KERNELS, odd_kernel

MOST_TELLING = ("dense", "isolation", "64-bit offsets")


@pytest.mark.parametrize("name", ODD_KERNELS)
def test_what_is_odd_and_right_is_not_refused(name, monkeypatch):
    monkeypatch.setattr(check_run, "TIMES_WITHOUT_INTERPRETER", 1)
    target = odd_kernel(name)
    for check in MOST_TELLING:
        result = certify_check(target, check, Depth.QUICK, 0, lambda case: None)
        assert result.finding is None, result.finding.sentence
        assert result.line.compared > 0


def test_there_are_at_least_fifteen():
    assert len(ODD_KERNELS) >= 15
    assert set(MOST_TELLING) <= set(CHECKS)
