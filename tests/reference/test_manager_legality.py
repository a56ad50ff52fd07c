"""Which manager commands are legal when: one state, many commands."""

import pytest

from poolproof.contract.commands import Allocate, Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Abort,
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Fork,
    Load,
    Loaded,
    LookupPrefix,
    Preempt,
    Resume,
    Schedule,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.reference.manager_legality import undefined_for_manager
from poolproof.reference.sequence_model import SequenceModel

CHAIN = TokenChain((1, 2, 3))
SETTLED, SCHEDULED, CHUNKED, DRAFTING, DRAFTED, PREEMPTED, SWAPPED, LOADING, LEAVING = range(9)
ENDED, NEW = 20, 21


def model_of(**rows):
    model = SequenceModel(40, 2, ManagerProfile.from_mapping({"host_blocks": 8, **rows}))
    for seq_id in range(9):
        sequence = model.new_sequence(seq_id, CHAIN)
        model.admit(sequence, 0, [[2 * seq_id, 2 * seq_id + 1]])
        sequence.num_computed = 3
    states = model.sequences
    states[SCHEDULED].num_computed, states[SCHEDULED].num_scheduled = 2, 1
    states[CHUNKED].num_computed = 1
    states[DRAFTING].num_computed, states[DRAFTING].num_scheduled = 2, 1
    model.draft(states[DRAFTING], [7])
    model.draft(states[DRAFTED], [7, 8])
    states[DRAFTED].drafts_computed = True
    model.preempt(states[PREEMPTED])
    states[SWAPPED].place = "host"
    states[LOADING].num_computed, states[LOADING].loading = 0, 2
    states[LEAVING].num_computed, states[LEAVING].loading = 0, 2
    model.end(states[LEAVING])
    model.ended_ids.add(ENDED)
    return model


LEGAL = [
    Abort(SETTLED), Abort(SCHEDULED), Abort(PREEMPTED), Abort(SWAPPED), Abort(LOADING), Abort(NEW),
    Accept(DRAFTED, 0), Accept(DRAFTED, 2), Admit(NEW, CHAIN, 0), Admit(NEW, CHAIN, 2),
    AppendTokens(SETTLED, (1,)), AppendTokens(SCHEDULED, (1, 2)), Draft(SCHEDULED, (1,)),
    Finish(SETTLED), Finish(SCHEDULED), Finish(ENDED), Fork(SETTLED, NEW), Load(NEW, CHAIN, 2),
    Loaded(LOADING), Loaded(LEAVING), LookupPrefix(CHAIN), Preempt(SETTLED), Preempt(SCHEDULED),
    Reset(), Resume(PREEMPTED, 0), Schedule(CHUNKED, 2), SwapIn(SWAPPED), SwapOut(SETTLED),
    Truncate(SETTLED, 3), Truncate(SETTLED, 1),
]  # fmt: skip

ILLEGAL = [
    Abort(LEAVING), Accept(SETTLED, 0), Accept(DRAFTING, 1), Accept(DRAFTED, 3),
    Accept(DRAFTED, -1), Accept(NEW, 0), Admit(SETTLED, CHAIN, 0), Admit(ENDED, CHAIN, 0),
    Admit(NEW, CHAIN, -1), Admit(NEW, TokenChain(()), 0), Allocate(1), AppendTokens(SETTLED, ()),
    AppendTokens(NEW, (1,)),
    AppendTokens(CHUNKED, (1,)), AppendTokens(DRAFTING, (1,)), AppendTokens(PREEMPTED, (1,)),
    Draft(SETTLED, (1,)), Draft(SCHEDULED, ()), Draft(DRAFTING, (1,)), Draft(NEW, (1,)),
    Finish(PREEMPTED), Finish(SWAPPED), Finish(LOADING), Finish(LEAVING), Fork(SCHEDULED, NEW),
    Fork(SETTLED, ENDED), Fork(CHUNKED, NEW), Load(NEW, CHAIN, 3), Load(NEW, CHAIN, 0),
    Load(SETTLED, CHAIN, 1), Loaded(SETTLED), Loaded(NEW), LookupPrefix(TokenChain(())),
    Preempt(PREEMPTED), Preempt(LOADING), Resume(SETTLED, 0), Resume(NEW, 0), Resume(PREEMPTED, -1),
    Schedule(CHUNKED, 3), Schedule(CHUNKED, 0), Schedule(SETTLED, 1), Schedule(NEW, 1), Step(),
    SwapIn(SETTLED), SwapIn(NEW), SwapOut(SCHEDULED), SwapOut(NEW), Truncate(SETTLED, 0),
    Truncate(SETTLED, 4), Truncate(CHUNKED, 1), Truncate(SCHEDULED, 1),
]  # fmt: skip


@pytest.mark.parametrize("command", LEGAL, ids=str)
def test_legal(command):
    assert undefined_for_manager(model_of(), command) is None


@pytest.mark.parametrize("command", ILLEGAL, ids=str)
def test_illegal_with_a_reason(command):
    assert undefined_for_manager(model_of(), command)


def test_a_step_waits_for_the_verdict_on_drafts():
    model = model_of()
    model.accept(model.sequences[DRAFTED], [])
    assert undefined_for_manager(model, Step()) is None


@pytest.mark.parametrize("command", [Finish(SCHEDULED), Abort(SCHEDULED), Preempt(SCHEDULED)])
def test_what_others_can_find_already_has_to_be_computed(command):
    assert undefined_for_manager(model_of(publishes="scheduled"), command)


@pytest.mark.parametrize("command", [Finish(ENDED), Abort(NEW)])
def test_ending_again_is_undefined_where_the_profile_says_so(command):
    assert undefined_for_manager(model_of(finish_again="undefined"), command)


def test_a_family_swaps_together_or_not_at_all():
    model = model_of()
    model.sequences[SCHEDULED].family = SETTLED
    assert undefined_for_manager(model, SwapOut(SETTLED))


@pytest.mark.parametrize(("count", "legal"), [(1, True), (2, False)])
def test_a_ring_that_is_full_takes_one_token_at_a_time(count, legal):
    """The second would overwrite what the first still reads."""
    model = model_of(window_blocks="reused", groups="sliding:4")
    grown = AppendTokens(SETTLED, (7,) * count)
    model.append(model.sequences[SETTLED], [7])
    model.sequences[SETTLED].num_computed = 4
    assert (undefined_for_manager(model, grown) is None) == legal


def test_a_table_that_keeps_what_slides_out_takes_several_tokens():
    model = model_of(groups="sliding:4", null_block=39)
    assert undefined_for_manager(model, AppendTokens(SETTLED, (7, 7, 7))) is None
