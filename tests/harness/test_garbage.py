"""The collector waits for the end of a run, and only where it was on."""

import gc
import weakref

import pytest

from poolproof.harness.garbage import collected_afterwards, rarely_collected


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


def test_an_import_is_looked_through_more_rarely_and_only_while_it_runs():
    before = gc.get_threshold()
    with rarely_collected():
        assert gc.get_threshold()[0] > before[0]
    assert gc.get_threshold() == before


def test_what_an_import_sets_for_the_collector_stays_set():
    before = gc.get_threshold()
    try:
        with rarely_collected():
            gc.set_threshold(123, 4, 5)
        assert gc.get_threshold() == (123, 4, 5)
        gc.set_threshold(0)
        with rarely_collected():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
