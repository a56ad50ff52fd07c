"""Which targets can be given whole tapes: those that leave nothing open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.contract.profile import Profile
from poolproof.contract.tapes import is_predictable
from poolproof.contract.target import Capabilities, capabilities_of
from poolproof.reference.native_pool import NativeDictPool

CAN = capabilities_of(NativeDictPool(1))


def test_a_pool_whose_profile_decides_everything_is_predictable():
    assert is_predictable(Profile(), CAN)


@pytest.mark.parametrize("rows", [{"eviction": "unspecified"}, {"retention": "may-drop"}])
def test_a_profile_that_leaves_a_choice_is_not(rows):
    assert not is_predictable(Profile(**rows), CAN)


@pytest.mark.parametrize(
    "can",
    [
        Capabilities("queue", CAN.verbs, CAN.observers),
        replace(CAN, verbs=CAN.verbs | {"acquire"}),
        replace(CAN, verbs=CAN.verbs - {"touch"}),
        replace(CAN, verbs=CAN.verbs - {"lookup"}),
    ],
)
def test_other_verbs_than_those_of_a_plain_pool_are_not(can):
    assert not is_predictable(Profile(), can)
