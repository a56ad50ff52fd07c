"""An inferred profile in words: each row with its cost, what to paste, the sentence at the end."""

import pytest

from poolproof.certification.certificate import Verdict
from poolproof.certification.inference import InferenceOutcome, InferredProfile
from poolproof.contract.profile import Profile
from poolproof.contract.profile_costs import alternatives
from poolproof.report.inferred_profile import inferred_document
from poolproof.report.text_form import plain_text

DECLARED = Profile.from_mapping({"null_block": 0})


def words(**known):
    found = InferredProfile(target="pool.py:Pool", declared=DECLARED, **known)
    return " ".join(plain_text(inferred_document(found)).split())


@pytest.fixture
def holding(samples):
    return samples.certificate(verdict=Verdict.HOLDS)


def changes(*names):
    known = {str(change): change for change in alternatives(DECLARED)}
    return tuple(known[name] for name in names)


def test_each_changed_row_stands_beside_its_cost(holding):
    text = words(
        outcome=InferenceOutcome.FOUND,
        changes=changes("eviction=lifo", "duplicates=first"),
        certificate=holding,
    )
    assert (
        "eviction=lifo, another design, checked as strictly: what was freed last is reused first"
        in text
    )
    assert 'paste profile = {"null_block": 0, "eviction": "lifo", "duplicates": "first"}' in text
    assert "HOLDS at quick with these rows" in text


def test_what_a_silenced_check_hides_is_drawn_and_nothing_is_proposed(holding, samples):
    hidden = samples.finding().trace
    text = words(
        outcome=InferenceOutcome.SILENCED,
        changes=changes("misuse=undefined"),
        certificate=holding,
        explained={"misuse": hidden},
    )
    assert "misuse=undefined, silences a check: misuse is never tried" in text
    assert f"without it {hidden.violation.invariant}, {hidden.violation.sentence}" in text
    assert 'if so profile = {"null_block": 0, "misuse": "undefined"}' in text
    assert "UNDECIDED: nothing else fails at quick where misuse=undefined silences" in text
    assert "paste" not in text


def test_a_target_that_holds_needs_nothing(holding):
    text = words(outcome=InferenceOutcome.HOLDS_AS_DECLARED, certificate=holding)
    assert "HOLDS at quick under its own profile; no row has to change" in text
    assert "paste" not in text


def test_what_no_row_explains_is_drawn(samples):
    text = words(
        outcome=InferenceOutcome.NO_ROWS, unexplained=samples.finding().trace, num_failures=1
    )
    assert "REFUSED: no row explains this" in text
    assert samples.finding().violation.sentence in text
    assert "1 failure in 0 replays, 0 profiles" in text


def test_an_inconclusive_confirmation_is_said(samples):
    unsure = samples.certificate(canaries_missed=("A1",), verdict=Verdict.INCONCLUSIVE)
    text = words(
        outcome=InferenceOutcome.FOUND, changes=changes("eviction=lifo"), certificate=unsure
    )
    assert "INCONCLUSIVE: nothing fails at quick with these rows, but" in text
    assert "A1" in text


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (InferenceOutcome.BUDGET, "not every set of rows was tried, the budget ended: so it is"),
        (InferenceOutcome.LOST, "rows could not be tried, since the target was lost: so it is"),
    ],
)
def test_what_was_not_tried_is_not_called_impossible(outcome, sentence):
    assert f"INCONCLUSIVE: {sentence}" in words(outcome=outcome, why="so it is")
