"""Depths by their names, and which runs belong to each."""

import pytest

from poolproof.contract.depth import Depth
from poolproof.contract.errors import OptionError


def test_a_depth_is_found_by_its_name_and_by_itself():
    assert Depth.named("quick") is Depth.QUICK
    assert Depth.named(Depth.DEEP) is Depth.DEEP


@pytest.mark.parametrize("name", ["fast", None, 3])
def test_what_is_no_depth_is_named_with_what_is(name):
    with pytest.raises(OptionError, match="depth must be one of quick, standard, deep, not "):
        Depth.named(name)


def test_a_depth_includes_those_before_it():
    assert Depth.QUICK.up_to_here == (Depth.QUICK,)
    assert Depth.DEEP.up_to_here == tuple(Depth)
