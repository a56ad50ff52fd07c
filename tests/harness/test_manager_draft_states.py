"""The harness plays the worker that moves states behind drafts, and content decides.

Managers here are the specification's, whose blocks for drafts move along with a step, right ones
and wrong ones; those of our own are in bugs/draft_state_bugs.py.
"""

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Accept,
    Admit,
    AppendTokens,
    Draft,
    Finish,
    Preempt,
    Resume,
    Step,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import END_AMONG_DRAFTS, required_manager_facts
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.replay import replay
from poolproof.reference.native_manager import NativeSequenceManager

NUM_BLOCKS = 40
PROMPT = (1, 1, 1, 1, 1, 1)


class StepEndManager(NativeSequenceManager):
    """A step leaves one state beside those behind drafts; two blocks are for these."""

    profile = {  # noqa: RUF012 -- what a target shows of itself
        "null_block": 0, "groups": "full+state", "states": "step-end", "index": "exact",
        "state_blocks": 2, "lookahead_tokens": 2, "eviction": "unspecified",
    }  # fmt: skip

    def __init__(self, num_blocks, block_size, *, enable_caching=True):
        rows = ManagerProfile.from_mapping(type(self).profile)
        super().__init__(num_blocks, block_size, enable_caching=enable_caching, profile=rows)


def session_of(*commands, cls=StepEndManager):
    """Blocks of 4 tokens, two of them for states behind drafts."""
    profile = ManagerProfile.from_mapping(cls.profile)
    session = ManagerSession(cls(NUM_BLOCKS, 4), profile, NUM_BLOCKS, 4)
    for command in commands:
        assert session.is_defined(command), command
        assert session.step(command) is None, command
    return session


def drafted(accepted, prompt=PROMPT):
    return Admit(0, TokenChain(prompt), 0), Draft(0, (2, 2)), Step(), Accept(0, accepted)


def states_of(session):
    """What stands in each entry of the table of states, by how many tokens it has."""
    sequence = session.model.sequences[0]
    wanted = dict(zip(sequence.contents[1], range(1, 100), strict=False))
    slots = session.memory.device.slots
    return [wanted.get(slots[block][0]) if block else 0 for block in sequence.tables[1]]


def test_a_step_leaves_a_state_behind_each_draft():
    session = session_of(*drafted(0)[:3])
    assert states_of(session) == [0, 6, 7, 8]


def test_the_end_of_a_block_comes_into_its_own_entry_once_its_draft_was_right():
    assert states_of(session_of(*drafted(1))) == [0, 6, 7, None]
    session = session_of(*drafted(2))
    assert states_of(session) == [0, 8, 7, 8]
    assert END_AMONG_DRAFTS in session.facts


def test_what_is_known_is_copied_with_the_step():
    session = session_of(*drafted(0, (1,) * 8)[:3])
    assert states_of(session) == [0, 8, 8, 9, 10]
    assert END_AMONG_DRAFTS not in session.facts


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_the_next_step_starts_behind_the_last_right_draft(accepted):
    session = session_of(*drafted(accepted))
    sequence = session.model.sequences[0]
    block = sequence.tables[1][(1, 2, 1)[accepted]]
    session.memory.device.slots[block][0] = sequence.contents[1][0]
    assert session.step(AppendTokens(0, (3,))) is None
    violation = session.step(Step())
    assert violation.invariant == "DATA"
    assert f"position {5 + accepted} (group 1, block {block}" in violation.sentence


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_what_refused_drafts_have_left_is_read_by_nobody(accepted):
    session = session_of(*drafted(accepted))
    sequence = session.model.sequences[0]
    for entry in {1, 2, 3} - {(1, 2, 1)[accepted]}:
        session.memory.device.slots[sequence.tables[1][entry]][0] = sequence.contents[1][0]
    for command in (AppendTokens(0, (3,)), Step(), Finish(0)):
        assert session.step(command) is None


def test_a_sequence_that_comes_back_starts_from_its_hit_again():
    session = session_of(*drafted(1), Preempt(0), Resume(0, 0), Step(), AppendTokens(0, (3,)))
    assert session.step(Step()) is None
    assert states_of(session)[1] == 8


class SharesItsBlocks(StepEndManager):
    """Of two sequences the second one has the last block of the first one, too."""

    def block_table(self, seq_id, group=0):
        table = super().block_table(seq_id, group)
        if group and seq_id:
            table[-1] = super().block_table(0, group)[-1]
        return table


def test_two_sequences_may_not_leave_their_states_in_one_block():
    session = session_of(*drafted(0)[:1], cls=SharesItsBlocks)
    assert session.step(Admit(1, TokenChain((5,)), 0)).invariant == "I2"


def test_a_pass_means_that_drafts_have_reached_the_end_of_a_block():
    can = manager_capabilities_of(StepEndManager(8, 4))
    rows = StepEndManager.profile
    assert END_AMONG_DRAFTS in required_manager_facts(ManagerProfile.from_mapping(rows), can)
    without = ManagerProfile.from_mapping({**rows, "state_blocks": 0})
    assert END_AMONG_DRAFTS not in required_manager_facts(without, can)
    attention = ManagerProfile.from_mapping({**rows, "groups": "full"})
    assert END_AMONG_DRAFTS not in required_manager_facts(attention, can)


class TheRunningStateMoves(StepEndManager):
    """The block that the next step starts from moves along, and the null block stands there."""

    def _fill_states(self, sequence, group, table, free):
        column = len(table) - 3
        super()._fill_states(sequence, group, table, free)
        if sequence.tables[group] and column < len(table) - 3 and table[column]:
            free.insert(0, table[-1])
            table[-1], table[column] = table[column], 0


class GivesBackTooMuch(StepEndManager):
    """After refused drafts all blocks behind the last right one go back."""

    num_kept = 0

    def accept(self, seq_id, num_tokens, /, *, sampled=None):
        super().accept(seq_id, num_tokens, sampled=sampled)
        sequence = self._model.sequences[seq_id]
        attention, states = sequence.tables
        end = -(-sequence.num_computed // 4) + self.num_kept
        self._model.follow(sequence, [attention, states[:end]])


class GivesBackAtOnce(GivesBackTooMuch):
    """What refused drafts had goes back, and is taken again; blocks for the next ones stay."""

    num_kept = 2


class TakesThemAnew(StepEndManager):
    """Blocks for drafts are other ones at each step: the state to start from stood in one."""

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.in_use = set()

    def _take(self, sequence, first_new):
        before = sequence.tables
        copies = super()._take(sequence, first_new)
        pool = self._model.pool
        fresh = [block for block in pool.free if not pool.keys[block]][:2]
        if sequence.tables == before and len(fresh) == 2 and sequence.seq_id not in self.in_use:
            attention, states = sequence.tables
            self._model.follow(sequence, [attention, [*states[:-2], *fresh]])
        return copies


class TakesEmptyOnesAnew(TakesThemAnew):
    """Only where the last step tried no drafts, so that nothing stands in them."""

    def step(self, batch, /, *, sampled=()):
        for seq_id, _ in batch:
            self.in_use.discard(seq_id)
            if self._model.sequences[seq_id].num_drafts:
                self.in_use.add(seq_id)
        super().step(batch, sampled=sampled)


def native(cls):
    return lambda num_blocks, caching: cls(num_blocks, 4, enable_caching=caching)


def campaign_of(cls):
    return ManagerCampaign(cls.__name__, native(cls), ManagerProfile.from_mapping(cls.profile), 4)


@pytest.mark.parametrize(
    ("cls", "invariants"),
    [
        (TheRunningStateMoves, {"I2", "DATA"}),
        (GivesBackTooMuch, {"ADM"}),
        (TakesThemAnew, {"DATA"}),
    ],
)
def test_a_manager_that_loses_a_state_is_refused(cls, invariants):
    campaign = campaign_of(cls)
    found = (campaign.run(number).trace for number in range(200))
    trace = next(trace for trace in found if trace is not None)
    assert trace.violation.invariant in invariants, trace.violation
    assert replay(trace, native(StepEndManager)).violation is None


@pytest.mark.parametrize("cls", [StepEndManager, GivesBackAtOnce, TakesEmptyOnesAnew])
def test_correct_managers_with_habits_of_their_own_are_not_accused(cls):
    campaign = campaign_of(cls)
    results = [campaign.run(number) for number in range(60)]
    assert [result.trace for result in results if result.trace is not None] == []
    assert any(END_AMONG_DRAFTS in result.facts for result in results)
