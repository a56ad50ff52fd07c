"""Programs that are not there, do not introduce themselves, or misbehave while they are driven."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.contract.commands import Allocate
from poolproof.contract.profile import Profile
from poolproof.contract.tapes import TapeLostError
from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace
from poolproof.contract.violation import ViolationError
from poolproof.harness.isolation import Hung
from poolproof.harness.lost_run import as_violation
from poolproof.targets.command_messages import ProtocolError, read_line
from poolproof.targets.command_process import (
    CommandProcess,
    CommandSession,
    ProcessEndedError,
    words_of,
)
from poolproof.targets.load import load_target

PROGRAM = Path(__file__).with_name("hostile_program.py")


def target_of(how):
    return f"cmd:{shlex.join([sys.executable, str(PROGRAM), how])}"


def what_is_wrong_at_start(how):
    with pytest.raises(TargetError) as caught:
        load_target(target_of(how))
    return str(caught.value)


def what_is_wrong_with_a_command(how):
    pool = load_target(target_of(how)).make(4, True)
    with pytest.raises(ViolationError) as caught:
        pool.allocate(1)
    return caught.value.violation.sentence


def test_a_program_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TargetError, match=r"there is no program \./missing"):
        load_target("cmd:./missing")


def test_a_program_in_this_folder_wants_its_folder_named():
    with pytest.raises(TargetError, match=r"a program in this folder is cmd:\./no_such_program_"):
        load_target("cmd:no_such_program_anywhere")


def test_a_file_that_cannot_be_executed_is_named(tmp_path):
    program = tmp_path / "pool.c"
    program.write_text("int main;")
    with pytest.raises(TargetError, match="is not executable; build it, or make it executable"):
        load_target(f"cmd:{shlex.quote(str(program))}")


def test_a_folder_is_no_program(tmp_path):
    with pytest.raises(TargetError, match="is a folder"):
        load_target(f"cmd:{shlex.quote(str(tmp_path))}")


def test_no_program_at_all():
    with pytest.raises(TargetError, match="names no program"):
        load_target("cmd:")


def test_a_quote_that_does_not_end():
    with pytest.raises(TargetError, match="cannot be split into words: No closing quotation"):
        words_of("./pool 'a")


def test_a_program_needs_no_api():
    with pytest.raises(TargetError, match="leave out --api native"):
        load_target(target_of("fine"), api="native")


def test_another_version_of_the_protocol():
    assert "speaks version 4 of the protocol, this Poolproof speaks versions 1" in (
        what_is_wrong_at_start("other-version")
    )


def test_text_between_the_answers():
    wrong = what_is_wrong_at_start("chatty")
    assert "'loading weights ...'" in wrong
    assert "everything else to standard error" in wrong


def test_a_program_that_ends_at_once():
    wrong = what_is_wrong_at_start("ends-at-once")
    assert "it ended with exit status 1; its last words: no such device" in wrong


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        (
            "manager",
            "a manager that speaks version 1 of the protocol; managers have been in it since",
        ),
        ("unknown-verb", 'its "verbs" name defragment; known are'),
        ("no-free", 'its "verbs" lack free, which a pool needs'),
        ("unknown-row", "unknown profile key 'colour'"),
        ("no-name", 'lacks the text "name"'),
    ],
)
def test_an_introduction_of_something_else(how, wrong):
    assert wrong in what_is_wrong_at_start(how)


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        ("exits", "it ended with exit status 3; its last words: giving up"),
        ("signal", "it was killed by SIGSEGV"),
        ("garbage", "is not JSON (32 bytes, beginning with 'Segmentation fault (core dumped)')"),
        ("megabyte", "is not JSON (1,048,576 bytes, beginning with 'xxx"),
        ("out-of-order", "it answered message 4, which it has not been sent, instead of message 3"),
        ("late", "it answered message 2 again, or too late, instead of message 3"),
        ("too-few", "it gave 0 answers to 1 commands"),
        ("no-object", "its answer to message 3 is no JSON object but '[3]'"),
        ("error", "the program says that it failed: assertion failed: refs > 0"),
        ("skips-verb", "the program skips this command (no such verb yet)"),
        ("short-list", '"ref_counts" has 1 entries for 4 blocks'),
    ],
)
def test_a_program_that_misbehaves_is_a_finding_in_one_line(how, wrong):
    sentence = what_is_wrong_with_a_command(how)
    assert wrong in sentence
    assert "\n" not in sentence


LONGEST_SENTENCE = 700


@pytest.mark.parametrize("how", ["long-verb", "long-row", "long-level"])
def test_a_megabyte_in_an_introduction_is_told_in_one_short_line(how):
    wrong = what_is_wrong_at_start(how)
    assert "two" in wrong
    assert "\n" not in wrong
    assert len(wrong) < LONGEST_SENTENCE + len(str(PROGRAM)) + len(sys.executable)


def test_a_name_of_a_megabyte_is_cut_short():
    version = load_target(target_of("long-name")).version
    assert version.startswith("two lines two lines")
    assert len(version) < LONGEST_SENTENCE


@pytest.mark.parametrize("how", ["long-error", "long-skip"])
def test_a_megabyte_in_an_answer_is_told_in_one_short_line(how):
    sentence = what_is_wrong_with_a_command(how)
    assert "two lines two lines" in sentence
    assert "\n" not in sentence
    assert len(sentence) < LONGEST_SENTENCE


def test_a_refusal_of_a_megabyte_is_a_refusal():
    pool = load_target(target_of("long-refusal")).make(4, True)
    with pytest.raises(ValueError, match="two lines two lines") as caught:
        pool.allocate(1)
    assert len(str(caught.value)) < LONGEST_SENTENCE


@pytest.mark.parametrize("how", ["noisy", "slow"])
def test_talk_on_standard_error_and_slow_answers_are_no_finding(how):
    pool = load_target(target_of(how)).make(4, True)
    for _ in range(3):
        with pytest.raises(ValueError, match="never"):
            pool.allocate(1)


def test_an_answer_that_comes_twice():
    target = load_target(target_of("twice"))
    with pytest.raises(ViolationError) as caught:
        target.make(4, True).allocate(1)
    assert "it answered message 2 again, or too late" in caught.value.violation.sentence


def test_a_line_without_an_end(monkeypatch):
    monkeypatch.setattr("poolproof.targets.command_process.LONGEST_LINE_BYTES", 1 << 21)
    assert "bytes without the end of a line" in what_is_wrong_with_a_command("endless")


def test_a_program_that_hangs_is_given_up_after_the_time_limit():
    session = CommandSession(words_of(target_of("hangs").removeprefix("cmd:")), timeout_s=0.5)
    session.hello(timeout_s=60)
    session.begin(4, True)
    with pytest.raises(ViolationError, match="did not answer within the time limit"):
        session.go_on(['{"do":"allocate","count":1}'])


def test_the_frames_that_wait_for_a_program_are_not_taken_for_its_own():
    from poolproof.targets import command_process

    place = f'  File "{command_process.__file__}", line 100 in exchange'
    tail = f"Stack (most recent call first):\n{place}"
    trace = Trace("cmd:./pool", "pool", Profile(), 2, True, (Allocate(1),))
    violation = as_violation(trace, Hung(seconds=2, output_tail=tail))
    assert violation.sentence == "allocate(1) did not return within 2 s"
    assert violation.frames == ()


def test_a_program_that_does_not_introduce_itself_is_given_up():
    session = CommandSession(["sleep", "600"])
    with pytest.raises(ProcessEndedError, match="did not answer within the time limit"):
        session.hello(timeout_s=0.2)


def test_a_program_that_eats_memory_is_ended():
    # A worker's own bound is given to the program as a bound of what it uses.
    script = f"""if True:
        import resource
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, hard))
        from poolproof.contract.violation import ViolationError
        from poolproof.targets.load import load_target
        pool = load_target({target_of("eats-memory")!r}).make(4, True)
        try:
            pool.allocate(1)
        except ViolationError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "it used more than 1,024 MiB" in done.stdout, done.stderr


def test_a_state_that_lacks_a_part():
    target = load_target(target_of("no-order"))
    with pytest.raises(ViolationError, match='lacks "free_order"'):
        target.make(4, True)


def test_a_run_that_is_skipped_is_no_finding():
    target = load_target(target_of("skips"))
    target.make(4, True)
    with pytest.raises(TargetError, match=r"caching off: it skips this run: caching is always on"):
        target.make(4, False)


def test_after_a_death_the_next_instance_has_a_program_of_its_own():
    target = load_target(target_of("exits"))
    pool = target.make(4, True)
    with pytest.raises(ViolationError):
        pool.allocate(1)
    assert target.make(5, True).num_free() == 5


def test_a_tape_that_is_not_answered_is_lost():
    target = load_target(target_of("signal"))
    with pytest.raises(TapeLostError, match="killed by SIGSEGV"):
        target.tapes.play(4, True, [Allocate(1)])


def test_a_line_that_is_nested_without_end():
    with pytest.raises(ProtocolError, match=r"nested too deeply|is not JSON"):
        read_line(b"[" * 100_000, 1)


@pytest.mark.parametrize("answers", [True, False])
def test_what_a_program_complains_of_does_not_fill_the_disk(answers):
    script = "while read line; do head -c 8388608 /dev/zero >&2; " + (
        "echo {}; done" if answers else "exec sleep 600; done"
    )
    process = CommandProcess(["sh", "-c", script])
    # The process's own is closed with it.
    errors = os.dup(process._errors.fileno())
    try:
        if answers:
            assert process.exchange("{}") == b"{}"
        else:
            with pytest.raises(ProcessEndedError, match="did not answer within"):
                process.exchange("{}", timeout_s=1.0)
        assert os.fstat(errors).st_size <= 1 << 20
    finally:
        os.close(errors)
        process.close()
