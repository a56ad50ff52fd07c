"""SIGTERM and SIGHUP end a run as Ctrl-C does, in the process that runs it and nowhere else."""

import os
import signal
import threading

import pytest

from poolproof.harness.ending_signals import Ended, ending_signals_raise, signals_wait

pytestmark = pytest.mark.usefixtures("heeded_signals")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_is_raised_by_its_name(name):
    before = signal.getsignal(getattr(signal, name))
    with pytest.raises(KeyboardInterrupt) as ended, ending_signals_raise():
        signal.raise_signal(getattr(signal, name))
    assert isinstance(ended.value, Ended)
    assert str(ended.value) == name
    assert signal.getsignal(getattr(signal, name)) == before


def test_an_interruption_stays_one():
    with pytest.raises(KeyboardInterrupt) as ended, ending_signals_raise():
        signal.raise_signal(signal.SIGINT)
    assert not isinstance(ended.value, Ended)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_what_must_not_be_left_half_done_is_done_first(name):
    done = []

    def work():
        with signals_wait():
            with signals_wait():
                signal.raise_signal(getattr(signal, name))
                done.append("inner")
            done.append("outer")
        done.append("never")

    with pytest.raises(KeyboardInterrupt), ending_signals_raise():
        work()
    assert done == ["inner", "outer"]


def test_without_a_signal_nothing_is_raised():
    with ending_signals_raise(), signals_wait():
        pass


def test_a_signal_that_is_ignored_stays_ignored():
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_signals_raise():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_another_thread_changes_nothing():
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def look():
        with ending_signals_raise():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork()")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_ends_as_usual():
    with ending_signals_raise():
        pid = os.fork()
        if pid == 0:
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                os._exit(3)
        _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGTERM
