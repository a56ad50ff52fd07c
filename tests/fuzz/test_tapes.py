"""Tapes: recorded as they are answered, replayed to the same run, changed without breaking."""

import random

import pytest

from poolproof.fuzz.black_box import open_black_box, read_black_box
from poolproof.fuzz.level_runs import run_tape, runs_of
from poolproof.fuzz.recorded_choices import RecordedChoices, answers_of, new_cells, tape_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.subject import subject_of
from poolproof.fuzz.worker import mutated
from poolproof.harness.choices import TapeChoices
from poolproof.targets.load import load_target

LEVELS = [
    CampaignSettings("impl", "pool", 5),
    CampaignSettings("impl", "queue", 4),
    CampaignSettings("impl-manager", "manager", 6, layout="full"),
]


def test_what_is_recorded_is_read_again_by_the_tape_choices_of_the_harness():
    choices = RecordedChoices(new_cells(), random.Random(3), (7, 9))
    bounds = [5, 100, 2, 65_536, 31]
    answers = [choices.below(bound) for bound in bounds]
    again = TapeChoices(choices.tape())
    assert [again.below(bound) for bound in bounds] == answers
    assert answers[:2] == [2, 9]


def test_choices_without_a_source_are_over_with_their_tape():
    choices = RecordedChoices(new_cells(), None, (1,))
    assert not choices.is_over()
    assert [choices.below(8), choices.below(8)] == [1, 0]
    assert choices.is_over()


@pytest.mark.parametrize("settings", LEVELS, ids=lambda s: s.level)
def test_a_guided_or_random_run_is_replayed_by_its_tape(settings):
    target = load_target(settings.target)
    source = random.Random(5)
    runs = runs_of(subject_of(target, settings), set(), source)
    given = runs.opening(guided=runs.has_guide)
    choices = RecordedChoices(new_cells(), source, given)
    visits = runs.visits(set())
    first = []
    run = runs.run(choices, visits, first.append, max_steps=150, guided=runs.has_guide)
    assert run.trace is None
    second = []
    again, states = run_tape(target, settings, choices.tape(), second.append)
    assert second == first
    assert again.num_steps == run.num_steps
    assert states == visits.numbers()


@pytest.mark.parametrize("settings", LEVELS, ids=lambda s: s.level)
def test_any_bytes_are_a_tape(settings):
    target = load_target(settings.target)
    source = random.Random(8)
    for _ in range(5):
        run, _ = run_tape(target, settings, source.randbytes(301), lambda _: None)
        assert run.trace is None


def test_changed_tapes_stay_tapes():
    source = random.Random(0)
    tape, other = tuple(range(50)), tuple(range(100, 130))
    for _ in range(200):
        changed = mutated(tape, other, source)
        assert answers_of(tape_of(changed)) == changed


def test_the_black_box_holds_the_tape_in_progress(tmp_path):
    path = tmp_path / "box"
    assert read_black_box(path) == b""
    choices = RecordedChoices(open_black_box(path), random.Random(0))
    choices.below(10)
    choices.record(3)
    assert read_black_box(path) == choices.tape()
    assert answers_of(choices.tape())[1] == 3
