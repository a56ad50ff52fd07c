"""The minimal trace of each specimen is as short as it was, is the same, and tells its bug."""

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.contract.trace import read_trace
from poolproof.harness.replay import replay
from poolproof.harness.weak_hashes import WEAK_HASHES, with_full_hashes

EVERYWHERE = {**SPECIMENS, **MANAGER_SPECIMENS}
AGAIN = "; if that is meant: .venv/bin/python tests/bugs/make_golden.py "


def stored_trace(golden, found):
    path = golden.path_of(found.id)
    assert path.exists(), f"{found.id} has no golden trace{AGAIN}{found.id}"
    return read_trace(path)


def make_clean(golden, found):
    """The class that the specimen changes, under the specimen's profile."""
    base = golden.clean_base(found)
    if found.level == "queue":
        return lambda num_blocks, _caching: base(num_blocks)
    sizes = (found.block_size,) if found.level == "manager" else ()
    return lambda num_blocks, caching: base(
        num_blocks, *sizes, enable_caching=caching, rules=found.profile
    )


@pytest.mark.parametrize("found", EVERYWHERE.values(), ids=EVERYWHERE)
def test_it_still_fails_as_it_says(golden, found):
    trace = stored_trace(golden, found)
    again = replay(trace, found.make)
    assert again.violation is not None
    assert again.violation.invariant == trace.violation.invariant
    assert again.violation.invariant in found.invariants
    assert again.num_left_out == 0
    assert again.applied == trace.commands


@pytest.mark.parametrize("found", EVERYWHERE.values(), ids=EVERYWHERE)
def test_what_was_changed_to_plant_the_bug_holds_on_it(golden, found):
    trace = stored_trace(golden, found)
    if WEAK_HASHES in trace.options:
        trace = with_full_hashes(trace)
    assert replay(trace, make_clean(golden, found)).violation is None


# One in six, and the others in deep runs: most take longer to minimise than to replay.
@pytest.mark.some(5)
@pytest.mark.parametrize(
    "found",
    [
        pytest.param(found, id=name, marks=[pytest.mark.deep] if number % 6 else [])
        for number, (name, found) in enumerate(EVERYWHERE.items())
    ],
)
def test_minimising_gives_it_again(golden, found):
    stored, made = stored_trace(golden, found), golden.minimal(found)
    what = golden.difference(stored, made)
    length = len(made.commands)
    assert length <= len(stored.commands), f"{found.id} became {what}{AGAIN}{found.id}"
    assert what is None, f"the minimal trace of {found.id} changed: {what}{AGAIN}{found.id}"


def test_no_trace_is_kept_of_a_specimen_that_is_gone(golden):
    assert {path.stem for path in golden.GOLDEN.glob("*.jsonl")} == set(EVERYWHERE)


def test_a_longer_and_another_trace_are_told_apart(golden):
    stored = read_trace(golden.path_of("A7"))
    longer = stored.with_commands((*stored.commands, *stored.commands))
    other = stored.with_commands(stored.commands[::-1])
    assert golden.difference(stored, stored) is None
    assert golden.difference(stored, longer).startswith("longer")
    assert golden.difference(longer, stored).startswith("shorter")
    assert golden.difference(stored, other).startswith("another one")


def test_an_unknown_specimen_is_answered_with_the_known_ones(golden, capsys):
    assert golden.main(["A999"]) == 2
    assert "'A999'" in capsys.readouterr().err


def test_writing_again_what_is_the_same_changes_nothing(golden, capsys):
    before = golden.path_of("A7").read_bytes()
    assert golden.main(["A7"]) == 0
    assert golden.path_of("A7").read_bytes() == before
    assert "0 of 1 traces written" in capsys.readouterr().out
