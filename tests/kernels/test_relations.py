"""Relations ask a target only for what it declares."""

import pytest

from poolproof.contract.violation import Severity
from poolproof.kernels.case import Case
from poolproof.kernels.check_run import run_case
from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.torch_attention import TorchAttention

CASE = Case(sequences=((1, 9), (3, 12)), num_kv_heads=2)


class TakesHeadsInSlots(TorchAttention):
    """It raises for a cache whose heads do not stand side by side in a slot."""

    def __call__(self, query, key_cache, *tensors, **options):
        if key_cache.stride(1) < key_cache.stride(2):
            raise ValueError("heads stand before slots")
        return super().__call__(query, key_cache, *tensors, **options)


@pytest.mark.parametrize(
    ("layouts", "compared"),
    [(("slots-heads", "cross-layer"), 1), (("slots-heads", "heads-slots", "cross-layer"), None)],
)
def test_another_layout_is_one_that_is_declared(layouts, compared):
    outcome = run_case(TakesHeadsInSlots().target("t", layouts=layouts), CHECKS["strides"], CASE)[0]
    if compared is None:
        assert "heads stand before slots" in outcome.wrong
    else:
        assert (outcome.wrong, outcome.compared) == (None, compared)


@pytest.mark.parametrize("layouts", [("slots-heads",), ("slots-heads", "interleaved")])
def test_who_takes_no_other_layout_is_not_asked_for_one(layouts):
    assert not CHECKS["strides"].applies(TorchAttention().target("t", layouts=layouts))


class SumsWholeBlocks(TorchAttention):
    """Its output has an error that depends on the size of a block."""

    def __init__(self, error: float) -> None:
        self._error = error

    def __call__(self, query, key_cache, *tensors, **options):
        output = super().__call__(query, key_cache, *tensors, **options)
        return output.mul_(1 + self._error * key_cache.shape[1])


@pytest.mark.parametrize(
    ("error", "severity"), [(2**-23, Severity.OTHER_BITS), (2**-8, Severity.WRONG_DATA_OF_ONES_OWN)]
)
def test_other_bits_are_wrong_data_only_beyond_the_bound(error, severity):
    check = CHECKS["block size"]
    outcome = run_case(SumsWholeBlocks(error).target("t", block_sizes=(4, 2)), check, CASE)[0]
    assert "with blocks of 2 instead of 4" in outcome.wrong
    assert check.severity_of(outcome) is severity


def test_a_batch_whose_own_output_is_wrong_has_no_right_bits():
    class WrongInLargeBlocks(TorchAttention):
        def __call__(self, query, key_cache, *tensors, **options):
            output = super().__call__(query, key_cache, *tensors, **options)
            return output.mul_(2 if key_cache.shape[1] == 4 else 1)

    check = CHECKS["block size"]
    outcome = run_case(WrongInLargeBlocks().target("t", block_sizes=(4, 2)), check, CASE)[0]
    assert check.severity_of(outcome) is Severity.WRONG_DATA_OF_ONES_OWN


def test_a_strangers_memory_that_changes_a_bit_is_wrong_data_of_another():
    class Counts(TorchAttention):
        def __call__(self, query, key_cache, *tensors, **options):
            output = super().__call__(query, key_cache, *tensors, **options)
            return output.mul_(1 + 2**-22 * float(key_cache.isnan().any()))

    case = Case(sequences=((1, 9), (1, 12)))
    outcome = run_case(Counts().target("t"), CHECKS["isolation"], case)[0]
    assert CHECKS["isolation"].severity_of(outcome) is Severity.WRONG_DATA_OF_ANOTHER
