"""Oddities that the matrix once saw accused: right managers in states that no test had reached."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from poolproof.bugs.manager_oddities import MANAGER_ODDITIES
from poolproof.certification.exploration import blocks_to_explore
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Accept, Admit, AppendTokens, Draft, Fork, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.harness.replay import replay

(MERGING,) = [cls for cls in MANAGER_ODDITIES if cls.__name__ == "MergingManager"]
ACCEPTED_DRAFT_FILLS_A_DUPLICATE = (
    Admit(0, TokenChain((0,)), 0),
    Step(),
    Fork(0, 1),
    AppendTokens(1, (0, 0)),
    AppendTokens(0, (0, 0, 0)),
    Draft(1, (0,)),
    Step(),
    Accept(1, 1),
)


class MergesWhatIsNotFull(MERGING):
    """Also a table whose block is still being filled names another one after an acceptance."""

    def accept(self, seq_id, num_tokens):
        super().accept(seq_id, num_tokens)
        table = self.sequences[seq_id].table
        if not num_tokens:
            table[-1] = next(block for block in range(4) if block not in table)


def violation_of(cls, commands):
    profile = ManagerProfile.from_mapping(cls.profile)
    setup = Trace("x", "manager", profile, 4, True, commands, options={"block_size": 4})
    return replay(setup, lambda n, caching: cls(n, 4, enable_caching=caching)).violation


def test_a_duplicate_that_accepted_drafts_fill_may_be_merged():
    assert violation_of(MERGING, ACCEPTED_DRAFT_FILLS_A_DUPLICATE) is None


def test_a_block_that_is_not_full_may_not_change_on_acceptance():
    commands = (*ACCEPTED_DRAFT_FILLS_A_DUPLICATE[:-1], Accept(1, 0))
    assert violation_of(MERGING, commands) is None
    assert violation_of(MergesWhatIsNotFull, commands).invariant == "I2"


def test_explored_pools_have_room_for_a_null_block_of_any_number():
    assert blocks_to_explore(ManagerProfile(null_block=5)) == 6
    assert blocks_to_explore(ManagerProfile(null_block=0)) == 4
