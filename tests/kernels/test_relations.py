"""Relations ask a target only for what it declares."""

import pytest

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
