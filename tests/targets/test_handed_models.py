"""What a runner of another release asks of the model that our worker hands it."""

import pytest

from poolproof.contract.adapter_fault import adapters_fault
from poolproof.targets.vllm_left_out import HandedModel


def test_what_a_runner_misses_of_its_model_is_no_finding():
    with pytest.raises(AttributeError) as raised:
        HandedModel(known=1).get_mamba_state_copy_func()
    assert adapters_fault(raised.value) is not None
