"""What windows, rings, early keys and swaps make illegal, and what a swap may not do."""

from poolproof.bugs.clean_groups import CleanHybridManager, CleanRingManager, CleanWindowManager
from poolproof.bugs.clean_manager import CleanManager, CleanSwappingManager
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Admit,
    AppendTokens,
    Draft,
    Fork,
    Load,
    Loaded,
    Step,
    SwapIn,
    SwapOut,
    Truncate,
)
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.harness.manager_session import ManagerSession
from poolproof.reference.manager_legality import undefined_for_manager

SLIDING = CacheGroup("sliding", window=4)


def session_of(cls, num_blocks=8, **rows):
    profile = ManagerProfile(**rows)
    target = cls(num_blocks, 4, rules=profile)
    return ManagerSession(target, profile, num_blocks, 4)


def play(session, *commands):
    """Commands that are legal and right."""
    for command in commands:
        assert undefined_for_manager(session.model, command) is None
        assert session.step(command) is None, command


def chain(*tokens):
    return TokenChain(tokens)


def test_a_cut_back_into_what_slid_out_of_a_window_is_illegal():
    session = session_of(CleanWindowManager, null_block=0, groups=(SLIDING,))
    play(session, Admit(0, chain(*range(12)), 0), Step(), AppendTokens(0, (1,)), Step())
    assert "slid out of the window" in undefined_for_manager(session.model, Truncate(0, 8))
    assert undefined_for_manager(session.model, Truncate(0, 12)) is None


def test_a_cut_that_a_ring_has_overwritten_is_illegal_and_so_are_drafts():
    session = session_of(
        CleanRingManager, publishes="never", window_blocks="reused", groups=(SLIDING,)
    )
    play(session, Admit(0, chain(*range(9)), 0))
    assert "a ring" in undefined_for_manager(session.model, Draft(0, (1,)))
    play(session, Step())
    assert "slid out of the window" in undefined_for_manager(session.model, Truncate(0, 7))
    assert undefined_for_manager(session.model, Truncate(0, 9)) is None


def test_a_sequence_whose_hits_are_not_written_yet_can_be_neither_forked_nor_moved():
    rows = {"publishes": "scheduled", "same_step_hit": "allowed", "host_blocks": 4}
    session = session_of(CleanSwappingManager, **rows)
    play(session, Admit(0, chain(*range(5)), 0), Load(1, chain(*range(6)), 1), Loaded(1))
    assert "hits that the next step is going to write" in undefined_for_manager(
        session.model, SwapOut(1)
    )
    play(session, Step(), SwapOut(1))


def test_a_cut_in_two_groups_may_need_a_copy_in_each():
    session = session_of(
        CleanHybridManager, null_block=0, num_blocks=6, groups=(CacheGroup(), SLIDING)
    )
    play(session, Admit(0, chain(*range(6)), 0), Step(), Fork(0, 1))
    assert session.model.num_cut(session.model.sequences[1], 5) == 2
    assert session.model.num_cut(session.model.sequences[1], 4) == 0
    play(session, Truncate(1, 5))
    assert session.calls.refused  # one block is free, and two would have to be copied


def test_the_blocks_of_a_ring_that_a_growth_writes_are_counted_once_each():
    rows = {"publishes": "never", "window_blocks": "reused", "groups": (SLIDING,)}
    session = session_of(CleanRingManager, **rows)
    play(session, Admit(0, chain(*range(9)), 0), Step(), Fork(0, 1))
    assert session.model.num_copied_on_write(session.model.sequences[0], 8) == 1
    play(session, AppendTokens(0, (1,)), Step(), AppendTokens(1, (7,)), Step())


def test_a_swap_into_a_block_that_somebody_holds_is_found():
    class AlwaysTheFirst(CleanSwappingManager):
        def _moved_table(self, sequence, target, moved):
            super()._moved_table(sequence, target, moved)
            return [0]

    session = session_of(AlwaysTheFirst, host_blocks=4)
    play(session, Admit(0, chain(1), 0), Admit(1, chain(2), 0), Step(), SwapOut(0))
    found = session.step(SwapOut(1))
    assert found.invariant == "I2"
    assert found.sentence == "B was given block 0, which A still holds: both write to it"


def test_what_comes_back_from_the_host_can_be_found_at_once():
    session = session_of(CleanSwappingManager, host_blocks=4)
    play(session, Admit(0, chain(1, 2, 3, 4, 5), 0), Step(), SwapOut(0), SwapIn(0))
    assert len(session.model.pool.carriers) == 1


def test_an_entry_before_the_window_is_null_or_carries_its_key():
    class Foreign(CleanWindowManager):
        def _take_hits(self, sequence, hits):
            super()._take_hits(sequence, hits)
            if hits:
                sequence.table[0] = self.pool.num_blocks - 1

    session = session_of(Foreign, null_block=0, groups=(SLIDING,))
    play(session, Admit(0, chain(*range(9)), 0), Step())
    found = session.step(Admit(1, chain(*range(9)), 0))
    assert found.invariant in {"IDX", "I2", "DATA"}


def test_blocks_that_wait_for_tokens_may_be_swapped():
    session = session_of(CleanSwappingManager, host_blocks=8, lookahead_tokens=4)
    play(session, Admit(0, chain(1), 0), Step(), SwapOut(0), SwapIn(0), AppendTokens(0, (2,)))


def test_a_refused_prompt_is_asked_for_again():
    from poolproof.harness.choices import SeededChoices
    from poolproof.harness.manager_workload import ManagerWorkload

    session = session_of(CleanManager, num_blocks=1)
    workload = ManagerWorkload(SeededChoices("again"), session.model, session.can)
    asked = [workload.admit() for _ in range(20)]
    assert len({command.seq_id for command in asked}) < len(asked)
