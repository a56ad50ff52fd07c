"""Limits, outcomes and messages of the isolation, as values: no process is started here."""

from __future__ import annotations

import resource
import sys
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import pytest

from poolproof.harness.isolation import Died, Failed, Finished, Limits, OutOfMemory, limits
from poolproof.harness.isolation.isolation import _send, _that_have_news
from poolproof.harness.isolation.limits import bound_address_space, memory_in_use_mib
from poolproof.harness.isolation.outcome import Lost, stack_of
from poolproof.harness.isolation.wire import answer, read_answer, request

BEACON = SimpleNamespace(progress=4, last_mark=2)


@pytest.mark.skipif(sys.platform != "linux", reason="less can be limited elsewhere")
def test_limits_are_stated():
    statement = Limits(call_timeout_s=2.5, memory_mib=64).statement
    assert statement == "2.5 s for each call, 64 MiB, 256 processes"


def test_what_cannot_be_limited_is_stated(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(limits, "FINDS_ALL", False)
    assert Limits().statement == (
        "10 s for each call, memory without a limit here, processes that leave their session are "
        "not found here"
    )


def test_a_process_that_has_ended_uses_no_memory():
    assert memory_in_use_mib(2**31 - 1) == 0


def bounds_set(monkeypatch, hard):
    bounds = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (hard, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: bounds.append(limits))
    bound_address_space(1)
    return bounds


def test_the_address_space_is_bounded_well_above_the_limit(monkeypatch):
    ((bound, hard),) = bounds_set(monkeypatch, resource.RLIM_INFINITY)
    assert bound > 256 << 20
    assert hard == resource.RLIM_INFINITY


def test_a_stricter_bound_of_the_system_stays(monkeypatch):
    assert bounds_set(monkeypatch, 1 << 20) == []


def test_the_address_space_is_bounded_on_linux_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    assert bounds_set(monkeypatch, resource.RLIM_INFINITY) == []


def test_a_loss_without_a_kind_has_no_words():
    with pytest.raises(NotImplementedError):
        Lost().sentence("free([3])")


def test_a_signal_without_a_name_is_told_by_its_number():
    assert Died(status=-250).how == "killed by signal 250"
    assert Died(status=3).how == "exited with status 3"


def raised_below():
    raise MemoryError


def caught_stack():
    try:
        raised_below()
    except MemoryError as error:
        return stack_of(error)


def test_the_stack_of_an_exception_reads_like_that_of_a_lost_worker():
    lost = OutOfMemory(mib=1, output_tail=f"words of the target\n{caught_stack()}")
    assert [(path, name) for path, _, name in lost.stack()] == [
        (Path(__file__), "raised_below"),
        (Path(__file__), "caught_stack"),
    ]


def test_compiled_code_is_named_by_its_source_beside_it():
    code = compile("def read():\n    raise MemoryError", "harness/pool_check.py", "exec")
    module = {"__file__": "/site/poolproof/harness/pool_check.cpython-311-x86_64-linux-gnu.so"}
    exec(code, module)  # noqa: S102 -- a function that says it is from there
    with pytest.raises(MemoryError) as caught:
        module["read"]()
    lost = OutOfMemory(mib=1, output_tail=stack_of(caught.value))
    assert lost.stack()[0] == (Path("/site/poolproof/harness/pool_check.py"), 2, "read")


def test_a_stack_ends_where_other_words_begin():
    first, *frames = caught_stack().splitlines()
    lost = Died(status=-6, output_tail="\n".join([first, frames[0], "and more", frames[1]]))
    assert [name for _, _, name in lost.stack()] == ["raised_below"]
    assert Died(status=1, output_tail="nothing but words").stack() == []


class SilentError(Exception):
    def __str__(self):
        raise RuntimeError


def answers(context, argument, beacon):
    if isinstance(argument, type):
        raise argument
    return context + argument


def outcome_of(argument):
    return read_answer(answer(request(answers, argument), 1, BEACON, 64))


def test_a_result_travels():
    assert outcome_of(2) == Finished(3)


def test_memory_that_ran_out_is_told_with_where():
    outcome = outcome_of(MemoryError)
    assert (outcome.mib, outcome.progress, outcome.mark) == (64, 4, 2)
    assert [name for _, _, name in outcome.stack()] == ["answers"]


def test_an_exception_travels_as_its_words():
    outcome = outcome_of(KeyError)
    assert isinstance(outcome, Failed)
    assert (outcome.exception_type, outcome.message) == ("KeyError", "")


def test_an_exception_whose_message_raises_has_another():
    outcome = outcome_of(SilentError)
    assert outcome.exception_type.endswith(".SilentError")
    assert outcome.message == "(its message cannot be shown)"


def test_a_call_to_a_worker_that_died_at_birth_is_dropped():
    line, other = Pipe()
    other.close()
    _send(SimpleNamespace(line=line), b"call")
    line.close()


def test_nobody_waits_for_a_worker_whose_verdict_is_known():
    dead = SimpleNamespace(verdict=Died(status=1))
    busy = SimpleNamespace(verdict=None, line=SimpleNamespace(poll=lambda: False))
    assert _that_have_news(None, [dead, busy]) == [dead]
