"""What becomes of a call, one hostile target at a time."""

import ctypes
import itertools
import mmap
import os
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from poolproof.harness.isolation import (
    Died,
    Failed,
    Finished,
    Hung,
    Isolation,
    Limits,
    OutOfMemory,
    beacon,
    importer,
)
from poolproof.harness.isolation.child_process import MOST_OUTPUT_BYTES, open_output

pytestmark = pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")

HASTY = Limits(call_timeout_s=0.5)
PATIENT = Limits(call_timeout_s=60, memory_mib=50)


def outcome_of(job, argument=None, limits=PATIENT):
    with Isolation(dict, limits) as isolation:
        (outcome,) = isolation.map(job, [argument])
    return outcome


def double(context, argument, beacon):
    return argument * 2


def test_a_result_comes_back():
    assert outcome_of(double, 21) == Finished(42)


def work_of_ours(context, argument, beacon):
    with beacon.bumping():
        time.sleep(1.2)


def test_work_of_ours_may_take_longer_than_a_call_of_the_target():
    assert outcome_of(work_of_ours, limits=HASTY) == Finished(None)


def loop_in_python(context, argument, beacon):
    beacon.bump()
    beacon.mark(17)
    while True:
        pass


def test_a_loop_in_python_is_hung():
    outcome = outcome_of(loop_in_python, limits=HASTY)
    assert isinstance(outcome, Hung)
    assert outcome.sentence("free([3])") == "free([3]) did not return within 0.5 s"


def test_a_lost_worker_leaves_its_progress_its_mark_and_its_stack():
    outcome = outcome_of(loop_in_python, limits=HASTY)
    assert outcome.progress == 2
    assert outcome.mark == 17
    assert [name for _, _, name in outcome.stack()] == ["loop_in_python"]


def loop_in_c(context, argument, beacon):
    sum(itertools.count())


def test_a_loop_in_c_is_hung_and_shows_who_called_it():
    outcome = outcome_of(loop_in_c, limits=HASTY)
    assert isinstance(outcome, Hung)
    assert [name for _, _, name in outcome.stack()] == ["loop_in_c"]


def deaf_loop(context, argument, beacon):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def test_a_loop_that_ignores_signals_is_hung():
    assert isinstance(outcome_of(deaf_loop, limits=HASTY), Hung)


def test_the_beacon_is_no_part_of_the_stack_of_a_job():
    here = Path(beacon.__file__)
    tail = f"""Stack (most recent call first):
  File "{here}", line ??? in bump
  File "engine.py", line 7 in free
  File "{here.with_name("wire.py")}", line 45 in answer
  File "command_line.py", line 9 in main
"""
    assert Hung(seconds=1.0, output_tail=tail).stack() == [(Path("engine.py"), 7, "free")]


def leave_at_once(context, argument, beacon):
    os.write(1, b"last words\n")
    os._exit(3)


def test_an_exit_of_the_process_is_a_death_with_its_last_words():
    outcome = outcome_of(leave_at_once)
    assert outcome == Died(status=3, output_tail="last words\n")
    assert outcome.how == "exited with status 3"
    assert outcome.sentence("touch([1])") == "touch([1]) ended the process with exit status 3"


def leave(context, argument, beacon):
    sys.exit(argument)


@pytest.mark.parametrize(("code", "status"), [(4, 4), (None, 0), ("no more", 1)])
def test_sys_exit_is_a_death_with_the_status_of_a_python_process(code, status):
    outcome = outcome_of(leave, code)
    assert isinstance(outcome, Died)
    assert outcome.status == status


def interrupt(context, argument, beacon):
    raise KeyboardInterrupt


def test_a_target_that_raises_keyboard_interrupt_dies_with_a_traceback():
    outcome = outcome_of(interrupt)
    assert isinstance(outcome, Died)
    assert outcome.status == 1
    assert "in interrupt" in outcome.output_tail


def read_address_zero(context, argument, beacon):
    ctypes.string_at(0)


def test_a_segmentation_fault_is_named_and_shows_its_stack():
    outcome = outcome_of(read_address_zero)
    assert isinstance(outcome, Died)
    assert outcome.how == "killed by SIGSEGV"
    assert outcome.sentence("allocate(2)") == "allocate(2) killed the process with SIGSEGV"
    assert [name for _, _, name in outcome.stack()] == ["string_at", "read_address_zero"]


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


def eat_memory(context, argument, beacon):
    node = SimpleNamespace(next=None)
    node.next = node
    walked = []
    while True:
        beacon.bump()
        walked.append(bytes(1000))
        node = node.next


@needs_proc
def test_a_walk_that_never_ends_and_collects_is_out_of_memory():
    outcome = outcome_of(eat_memory)
    assert isinstance(outcome, OutOfMemory)
    assert outcome.sentence("touch([1])") == "touch([1]) used more than 50 MiB"
    assert [name for _, _, name in outcome.stack()] == ["eat_memory"]


def eat_much_at_once(context, argument, beacon):
    return len(bytearray(1 << 40))


@needs_proc
def test_one_allocation_far_above_the_limit_is_out_of_memory():
    outcome = outcome_of(eat_much_at_once)
    assert isinstance(outcome, OutOfMemory)
    assert [name for _, _, name in outcome.stack()] == ["eat_much_at_once"]


def reserve_memory(context, argument, beacon):
    with mmap.mmap(-1, argument << 20):
        return argument


@needs_proc
def test_what_grows_faster_than_anybody_can_look_is_stopped_by_the_kernel():
    assert outcome_of(reserve_memory, 100) == Finished(100)
    assert outcome_of(reserve_memory, 1000).exception_type == "OSError"


def hold_what_the_import_left(context, argument, beacon):
    time.sleep(0.2)
    return sum(map(len, context))


def an_import_of_80_mib():
    return [bytes([1]) * (1 << 20) for _ in range(80)]


@needs_proc
def test_memory_of_the_import_does_not_count():
    with Isolation(an_import_of_80_mib, PATIENT) as isolation:
        (outcome,) = isolation.map(hold_what_the_import_left, [None])
    assert outcome == Finished(80 << 20)


def raise_an_error(context, argument, beacon):
    raise LookupError("our own bug")


def test_an_exception_of_the_job_is_a_failure_with_its_traceback():
    outcome = outcome_of(raise_an_error)
    assert isinstance(outcome, Failed)
    assert (outcome.exception_type, outcome.message) == ("LookupError", "our own bug")
    assert "in raise_an_error" in outcome.traceback


def answer_a_lambda(context, argument, beacon):
    return lambda: None


def test_a_result_that_cannot_be_pickled_is_a_failure():
    assert isinstance(outcome_of(answer_a_lambda), Failed)


def answer_a_foreign_object(context, argument, beacon):
    module = type(sys)("engine_that_only_the_worker_has")
    module.Block = type("Block", (), {"__module__": module.__name__})
    sys.modules[module.__name__] = module
    return module.Block()


def test_a_result_does_not_make_the_caller_import_the_target():
    outcome = outcome_of(answer_a_foreign_object)
    assert isinstance(outcome, Failed)
    assert "engine_that_only_the_worker_has.Block" in outcome.message


def die_in_the_middle_of_the_answer(context, argument, beacon):
    class Mean:
        def __reduce__(self):
            os._exit(7)

    return Mean()


def test_an_answer_that_is_not_whole_is_a_death():
    assert outcome_of(die_in_the_middle_of_the_answer) == Died(status=7)


def print_garbage(context, argument, beacon):
    print("garbage " * 1000)
    print("more of it", file=sys.stderr)
    os.write(1, b"\xff\xfe")
    return argument


def test_what_a_target_prints_stays_out_of_our_output(capfd):
    assert outcome_of(print_garbage, 5) == Finished(5)
    assert capfd.readouterr() == ("", "")


def print_much(context, argument, beacon):
    for _ in range(5):
        os.write(1, bytes(MOST_OUTPUT_BYTES))
    while True:
        pass


def test_a_target_that_prints_much_fills_no_disk(monkeypatch):
    kept = []

    def open_and_keep():
        output = open_output()
        kept.append(os.dup(output.fileno()))
        return output

    monkeypatch.setattr(importer, "open_output", open_and_keep)
    outcome_of(print_much, limits=HASTY)
    assert len(kept) == 2
    for descriptor in kept:
        assert os.fstat(descriptor).st_size <= MOST_OUTPUT_BYTES
        os.close(descriptor)


def read_standard_input(context, argument, beacon):
    return sys.stdin.read(), os.read(0, 10)


def test_a_target_that_reads_standard_input_finds_it_empty():
    assert outcome_of(read_standard_input) == Finished(("", b""))


def print_without_end(context, argument, beacon):
    beacon.bump()
    while True:
        os.write(1, b"all is well " * 4096)


def test_who_prints_without_end_is_ended_with_its_stack():
    with Isolation(lambda: None, Limits(call_timeout_s=0.3)) as isolation:
        (outcome,) = isolation.map(print_without_end, [None])
    assert isinstance(outcome, Hung)
    assert outcome.stack()[0][2] == "print_without_end"


def test_a_server_can_shorten_the_time_limit_and_not_lengthen_it():
    with Isolation(dict, HASTY) as isolation:
        for wanted_s, expected_s in ((0.3, 0.3), (60.0, 0.5)):
            with isolation.serve(loop_in_python, call_timeout_s=wanted_s) as call:
                outcome = call(None)
            assert isinstance(outcome, Hung)
            assert outcome.seconds == expected_s
