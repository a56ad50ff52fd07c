"""The row `sampled`: which tokens a step tells the manager, and how sequences go on with them."""

from __future__ import annotations

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import AppendTokens, Truncate
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.manager_legality import as_told, undefined_for_manager
from poolproof.reference.sequence_model import SequenceModel
from poolproof.reference.sequence_state import SequenceState

GROWN = (7, 8, 9)


def model_of(sampled: str = "with-step") -> SequenceModel:
    return SequenceModel(8, 4, ManagerProfile.from_mapping({"sampled": sampled}))


def admitted(
    model: SequenceModel, seq_id: int, num_tokens: int, *, num_scheduled: int
) -> SequenceState:
    sequence = model.new_sequence(seq_id, TokenChain(tuple(range(5, 5 + num_tokens))))
    sequence.num_scheduled = num_scheduled
    model.admit(sequence, 0, [[seq_id]])
    return sequence


def told(model: SequenceModel, token: int | None) -> SequenceState:
    """A sequence that is computed to its end, and the token that a step has told behind it."""
    sequence = admitted(model, 0, 3, num_scheduled=3)
    model.computed(sequence)
    sequence.told = token
    return sequence


@pytest.mark.parametrize(
    ("seq_id", "num_tokens", "num_accepted", "token"),
    [(0, 2, 0, 0), (0, 3, 0, 1), (1, 3, 0, 0), (0, 2, 1, 1), (1, 1, 2, 0)],
)
def test_what_is_sampled_depends_on_the_sequence_and_on_its_length_and_on_nothing_else(
    seq_id: int, num_tokens: int, num_accepted: int, token: int
) -> None:
    """Recorded traces count on these tokens."""
    sequence = admitted(model_of(), seq_id, num_tokens, num_scheduled=0)
    assert SequenceModel.sampled(sequence, num_accepted) == token


def test_a_step_tells_what_follows_each_sequence_that_it_computes_to_its_end() -> None:
    model = model_of()
    for seq_id in (0, 1):
        admitted(model, seq_id, 3, num_scheduled=3)
    assert model.sampled_by_step() == {0: 1, 1: 0}


def test_a_step_tells_what_follows_the_last_chunk_of_a_prompt() -> None:
    model = model_of()
    sequence = admitted(model, 0, 3, num_scheduled=2)
    assert model.sampled_by_step() == {}
    model.computed(sequence)
    sequence.num_scheduled = 1
    assert model.sampled_by_step() == {0: 1}


def test_a_step_tells_nothing_of_a_sequence_that_it_does_not_compute() -> None:
    model = model_of()
    model.computed(admitted(model, 0, 3, num_scheduled=3))
    assert model.sampled_by_step() == {}


def test_a_step_tells_nothing_of_a_sequence_with_drafts() -> None:
    model = model_of()
    model.draft(admitted(model, 0, 3, num_scheduled=3), [1])
    assert model.sampled_by_step() == {}


def test_a_step_tells_nothing_where_tokens_come_with_the_next_append() -> None:
    model = model_of("with-append")
    admitted(model, 0, 3, num_scheduled=3)
    assert model.sampled_by_step() == {}


def test_a_growth_begins_with_the_token_that_was_told() -> None:
    model = model_of()
    told(model, 1)
    assert as_told(model, AppendTokens(0, GROWN)) == AppendTokens(0, (1, 8, 9))


def test_a_growth_by_another_token_than_was_told_is_illegal() -> None:
    model = model_of()
    told(model, 1)
    assert undefined_for_manager(model, AppendTokens(0, (1, 0))) is None
    assert undefined_for_manager(model, AppendTokens(0, (0, 1))) == (
        "token 1 of sequence 0 was sampled, and told by a step"
    )


def test_a_growth_of_which_nothing_was_told_stays_as_it_is() -> None:
    model = model_of()
    told(model, None)
    assert as_told(model, AppendTokens(0, GROWN)) == AppendTokens(0, GROWN)


def test_a_growth_of_an_unknown_sequence_stays_as_it_is() -> None:
    assert as_told(model_of(), AppendTokens(4, GROWN)) == AppendTokens(4, GROWN)


def test_a_command_that_appends_nothing_stays_as_it_is() -> None:
    model = model_of()
    told(model, 1)
    assert as_told(model, Truncate(0, 2)) == Truncate(0, 2)


def test_what_is_cut_goes_on_with_any_token() -> None:
    model = model_of()
    sequence = told(model, 1)
    model.truncate(sequence, 2)
    assert sequence.told is None


def test_what_is_preempted_comes_back_without_the_token_that_was_told() -> None:
    model = model_of()
    sequence = told(model, 1)
    model.preempt(sequence)
    assert sequence.told is None
