"""The collector waits for the end of a run, and only where it was on."""

import gc
import weakref

import pytest

from poolproof.harness.garbage import collected_afterwards


class Cycle:
    def __init__(self):
        self.me = self


def test_cycles_of_a_run_are_gone_after_it():
    with collected_afterwards():
        left = weakref.ref(Cycle())
        assert not gc.isenabled()
        assert left() is not None
    assert gc.isenabled()
    assert left() is None


def test_the_collector_is_on_again_after_an_error():
    with pytest.raises(KeyError), collected_afterwards():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with collected_afterwards():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
