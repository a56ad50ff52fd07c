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
    Finish(SETTLED), Finish(SCHEDULED), Finish(ENDED), Fork(SETTLED, NEW), Load(NEW, CHAIN, 1),
    Load(NEW, CHAIN, 2), Loaded(LOADING), Loaded(LEAVING), LookupPrefix(CHAIN), Preempt(SETTLED),
    Preempt(SCHEDULED), Reset(), Resume(PREEMPTED, 0), Schedule(CHUNKED, 1), Schedule(CHUNKED, 2),
    SwapIn(SWAPPED), SwapOut(SETTLED), Truncate(SETTLED, 3), Truncate(SETTLED, 1),
]  # fmt: skip

ILLEGAL = {
    "a number of tokens is not negative": [Resume(PREEMPTED, -1)],
    "a sequence has at least one token": [
        Admit(NEW, CHAIN, -1), Admit(NEW, TokenChain(()), 0), LookupPrefix(TokenChain(()))
    ],
    "a transfer writes some of the tokens, and leaves at least one": [
        Load(NEW, CHAIN, 3), Load(NEW, CHAIN, 0)
    ],
    "allocate is no manager command": [Allocate(1)],
    "drafts are accepted or dropped first": [Step()],
    "drafts are computed beside at least one token": [Draft(SETTLED, (1,))],
    "sequence {} cannot have drafts now": [
        Draft(SCHEDULED, ()), Draft(DRAFTING, (1,)), Draft(CHUNKED, (1,))
    ],
    "sequence {} cannot keep 0 tokens": [Truncate(SETTLED, 0)],
    "sequence {} cannot keep 1 tokens": [Truncate(CHUNKED, 1)],
    "sequence {} cannot keep 4 tokens": [Truncate(SETTLED, 4)],
    "sequence {} does not exist": [
        Accept(NEW, 0), AppendTokens(NEW, (1,)), Draft(NEW, (1,)), Finish(LEAVING), Finish(NEW),
        Fork(NEW, 22), Preempt(NEW), Schedule(NEW, 1), SwapOut(NEW), Truncate(NEW, 1),
    ],
    "sequence {} exists already": [
        Admit(SETTLED, CHAIN, 0), Admit(ENDED, CHAIN, 0), Load(SETTLED, CHAIN, 1),
        Load(ENDED, CHAIN, 1),
    ],
    "sequence 20 exists already": [Fork(SETTLED, ENDED)],
    "sequence {} has 0 tokens that are not scheduled": [
        Schedule(SETTLED, 1), Schedule(SCHEDULED, 1)
    ],
    "sequence {} has 2 tokens that are not scheduled": [
        Schedule(CHUNKED, 3), Schedule(CHUNKED, 0)
    ],
    "sequence {} has ended": [Abort(LEAVING)],
    "sequence {} has no such drafts that were computed": [
        Accept(SETTLED, 0), Accept(DRAFTING, 1), Accept(DRAFTED, 3), Accept(DRAFTED, -1)
    ],
    "sequence {} is not being loaded": [Loaded(SETTLED), Loaded(NEW)],
    "sequence {} is not running": [
        AppendTokens(PREEMPTED, (1,)), Finish(PREEMPTED), Finish(SWAPPED), Finish(LOADING),
        Preempt(PREEMPTED), Preempt(LOADING),
    ],
    "sequence {} is not swapped out": [SwapIn(SETTLED), SwapIn(NEW)],
    "sequence {} waits for a step or for its drafts": [
        Fork(SCHEDULED, NEW), Fork(DRAFTED, NEW), SwapOut(SCHEDULED), Truncate(SCHEDULED, 1)
    ],
    "sequence {} was not preempted": [Resume(SETTLED, 0), Resume(NEW, 0)],
    "the prompt of sequence {} is not computed whole": [Fork(CHUNKED, NEW)],
    "the prompt of sequence {} is not scheduled whole": [AppendTokens(CHUNKED, (1,))],
    "there is nothing to append, or drafts come first": [
        AppendTokens(SETTLED, ()), AppendTokens(DRAFTING, (1,))
    ],
}  # fmt: skip


@pytest.mark.parametrize("command", LEGAL, ids=str)
def test_legal(command):
    assert undefined_for_manager(model_of(), command) is None


@pytest.mark.parametrize(
    ("reason", "command"),
    [(reason, command) for reason, commands in ILLEGAL.items() for command in commands],
    ids=str,
)
def test_illegal_with_a_reason(reason, command):
    told = reason.format(getattr(command, "seq_id", None))
    assert undefined_for_manager(model_of(), command) == told


def test_a_step_waits_for_the_verdict_on_drafts():
    model = model_of()
    model.accept(model.sequences[DRAFTED], [])
    assert undefined_for_manager(model, Step()) is None


@pytest.mark.parametrize("command", [Finish(SCHEDULED), Abort(SCHEDULED), Preempt(SCHEDULED)])
def test_what_others_can_find_already_has_to_be_computed(command):
    assert undefined_for_manager(model_of(publishes="scheduled"), command) == (
        f"sequence {SCHEDULED} has been scheduled and can be found by others"
    )


@pytest.mark.parametrize("command", [Finish(SETTLED), Abort(SETTLED), Preempt(SETTLED)])
def test_what_is_computed_may_end_although_others_can_find_it(command):
    assert undefined_for_manager(model_of(publishes="scheduled"), command) is None


def test_ending_again_is_undefined_where_the_profile_says_so():
    model = model_of(finish_again="undefined")
    assert undefined_for_manager(model, Finish(ENDED)) == f"sequence {ENDED} has ended"
    assert undefined_for_manager(model, Abort(NEW)) == f"sequence {NEW} does not exist"


def test_a_family_swaps_together_or_not_at_all():
    model = model_of()
    model.sequences[SCHEDULED].family = SETTLED
    assert undefined_for_manager(model, SwapOut(SETTLED)) == (
        f"sequence {SCHEDULED} waits for a step or for its drafts"
    )


def test_a_ring_that_is_full_takes_one_token_at_a_time():
    """The second would overwrite what the first still reads."""
    model = model_of(window_blocks="reused", groups="sliding:4")
    model.append(model.sequences[SETTLED], [7])
    model.sequences[SETTLED].num_computed = 4
    assert undefined_for_manager(model, AppendTokens(SETTLED, (7,))) is None
    assert undefined_for_manager(model, AppendTokens(SETTLED, (7, 7))) == (
        "beyond the window, the second token would overwrite what the first reads"
    )


def test_a_ring_takes_several_tokens_until_it_is_full():
    model = model_of(window_blocks="reused", groups="sliding:5")
    assert undefined_for_manager(model, AppendTokens(SETTLED, (7, 7))) is None
    assert undefined_for_manager(model, AppendTokens(SETTLED, (7, 7, 7))) is not None


def test_a_table_that_keeps_what_slides_out_takes_several_tokens():
    model = model_of(groups="sliding:4", null_block=39)
    assert undefined_for_manager(model, AppendTokens(SETTLED, (7, 7, 7))) is None


def test_a_ring_takes_no_drafts():
    """Rejected ones would have overwritten what the ring still has to hold."""
    model = model_of(window_blocks="reused", groups="sliding:4")
    assert undefined_for_manager(model, Draft(SCHEDULED, (1,))) == (
        "rejected drafts would have overwritten what a ring still has to hold"
    )


def test_a_window_that_has_slid_on_cannot_be_cut_back():
    model = model_of(groups="sliding:2", null_block=39)
    model.sequences[SETTLED].tables[0][0] = 39
    assert undefined_for_manager(model, Truncate(SETTLED, 3)) is None
    assert undefined_for_manager(model, Truncate(SETTLED, 1)) == (
        f"what slid out of the window of sequence {SETTLED} would be read again"
    )


@pytest.mark.parametrize("command", [Truncate(SETTLED, 1), Fork(SETTLED, NEW), SwapOut(SETTLED)])
def test_hits_that_the_next_step_writes_have_to_be_waited_for(command):
    model = model_of(same_step_hit="allowed", publishes="scheduled")
    assert undefined_for_manager(model, command) is None
    model.sequences[SCHEDULED].tables[0][1] = model.sequences[SETTLED].tables[0][1]
    assert undefined_for_manager(model, command) == (
        f"sequence {SETTLED} has hits that the next step is going to write"
    )


def test_what_another_may_compute_later_is_not_waited_for():
    model = model_of(same_step_hit="allowed", publishes="scheduled")
    model.sequences[CHUNKED].tables[0][1] = model.sequences[SETTLED].tables[0][1]
    assert undefined_for_manager(model, Truncate(SETTLED, 1)) is None


THREE_AND_ONE = TokenChain((1, 2, 3, 4))
OF_THREE, OF_FOUR = Admit(NEW, CHAIN, 0), Admit(NEW, THREE_AND_ONE, 0)


@pytest.mark.parametrize(
    "command",
    [
        OF_THREE,
        Load(NEW, CHAIN, 1),
        LookupPrefix(CHAIN),
        Schedule(CHUNKED, 1),
    ],
    ids=str,
)
def test_a_sequence_may_fill_its_row(command):
    assert undefined_for_manager(model_of(max_tokens=3), command) is None


@pytest.mark.parametrize(
    "command",
    [
        OF_FOUR,
        Load(NEW, THREE_AND_ONE, 1),
        LookupPrefix(THREE_AND_ONE),
        AppendTokens(SETTLED, (1,)),
        Draft(SCHEDULED, (1,)),
    ],
    ids=str,
)
def test_no_sequence_outgrows_its_row(command):
    """The row of the model's profile; drafts need their places as well."""
    assert undefined_for_manager(model_of(max_tokens=3), command) == (
        "no sequence has more than 3 tokens (max_tokens), and this would be 4"
    )
    assert undefined_for_manager(model_of(max_tokens=4), command) is None


def test_a_row_may_have_one_token():
    model = SequenceModel(4, 2, ManagerProfile.from_mapping({"max_tokens": 1}))
    assert undefined_for_manager(model, Admit(NEW, TokenChain((1,)), 0)) is None
    assert undefined_for_manager(model, Admit(NEW, TokenChain((1, 2)), 0)) is not None
