"""What is known to cost a worker is not tried again; what differs is."""

from dataclasses import replace

from poolproof.certification.lost_candidates import LostCandidates
from poolproof.certification.right_target import right_target
from poolproof.contract.commands import Allocate, Free, Lookup, Touch
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.harness.isolation import Hung
from poolproof.harness.minimise import run_candidate

SETUP = Trace("pool.py:Hangs", "pool", Profile(), 2, True, ())
COMMANDS = (Allocate(1), Touch((0,)), Free((0, 0)), Lookup(bytes(16)))
HUNG = Hung(progress=3, mark=3, output_tail="", seconds=0.5)


def losses_with(commands=COMMANDS, num_reached=3):
    losses = LostCandidates()
    return losses, losses.lost(SETUP, commands, num_reached, HUNG)


def test_a_lost_candidate_is_what_it_had_come_to():
    _, attempt = losses_with()
    assert attempt.commands == COMMANDS[:3]
    assert [item.command.verb for item in attempt.relative] == ["allocate", "touch", "free"]
    assert attempt.violation.severity is Severity.STALL
    assert "free([0, 0]) did not return within 0.5 s" in attempt.violation.sentence


def test_the_same_commands_under_other_names_are_known_to_be_lost():
    losses, attempt = losses_with()
    relative = run_candidate(SETUP, COMMANDS, right_target(SETUP)).relative
    assert losses.foretold(SETUP, relative) == attempt
    assert losses.foretold(SETUP, COMMANDS) == attempt


def test_other_commands_have_to_be_tried():
    losses, _ = losses_with()
    assert losses.foretold(SETUP, (Allocate(2), *COMMANDS[1:])) is None
    assert losses.foretold(SETUP, (*COMMANDS, Lookup(bytes(16)))) is None
    # It was lost at the third, but perhaps only because it was read at the end.
    assert losses.foretold(SETUP, COMMANDS[:3]) is None


def test_another_set_up_has_to_be_tried():
    losses, _ = losses_with()
    assert losses.foretold(replace(SETUP, num_blocks=1), COMMANDS) is None
    assert losses.foretold(replace(SETUP, options={"events_every": 2}), COMMANDS) is None


def test_one_that_was_lost_when_it_was_built_is_known_without_commands():
    losses, attempt = losses_with(commands=(), num_reached=0)
    assert attempt.commands == ()
    assert losses.foretold(SETUP, ()) == attempt
    assert losses.foretold(SETUP, COMMANDS) is None
