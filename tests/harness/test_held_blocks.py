"""Under `held_blocks: exclusive` a cached block has one user at a time; what is free is found."""

from __future__ import annotations

from typing import ClassVar

import pytest

from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.manager_oddities import QuietMerger
from poolproof.bugs.profile_rows import CopiesForItsForks, LeavesOutWhatIsHeld, OneUserABlock
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import (
    Admit,
    AppendTokens,
    Finish,
    Fork,
    LookupPrefix,
    Preempt,
    Resume,
    Step,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import (
    COMPUTED_BESIDE,
    SAME_STEP_HIT,
    required_manager_facts,
)
from poolproof.harness.manager_production import MANY_REFERENCES, SCRIPTS
from poolproof.harness.manager_session import ManagerSession

PROMPT = TokenChain((1, 2, 3))
EXCLUSIVE = {"held_blocks": "exclusive"}


def session_of(cls, num_blocks=8, **rows):
    """Blocks of two tokens; the target is told its rows by its class alone."""
    profile = ManagerProfile.from_mapping({**EXCLUSIVE, **rows})
    return ManagerSession(cls(num_blocks, 2), profile, num_blocks, 2)


@pytest.mark.parametrize("index", ["content", "exact"])
def test_a_held_block_is_given_to_nobody_else(index, run):
    violation = run(
        session_of(CleanManager, index=index), Admit(0, PROMPT, 0), Step(), Admit(1, PROMPT, 0)
    )
    assert violation.invariant == "I2"
    assert "held blocks are exclusive" in violation.sentence


@pytest.mark.parametrize("index", ["content", "exact"])
def test_what_is_held_is_computed_again(index, run):
    session = session_of(OneUserABlock, index=index)
    assert run(session, Admit(0, PROMPT, 0), Step(), Admit(1, PROMPT, 0), Step()) is None
    assert COMPUTED_BESIDE in session.facts
    assert "a prefix was found in the cache" not in session.facts


@pytest.mark.parametrize("index", ["content", "exact"])
def test_what_was_given_back_has_to_be_found(index, run):
    class FindsNothing(OneUserABlock):
        def _is_usable(self, block):
            return False

    violation = run(
        session_of(FindsNothing, index=index),
        Admit(0, PROMPT, 0), Step(), Finish(0), Admit(1, PROMPT, 0),
    )  # fmt: skip
    assert violation.invariant == "I4"


def test_a_second_carrier_that_is_free_has_to_be_found(run):
    class FirstCarrierOnly(OneUserABlock):
        def _find(self, sequence, entry):
            block = self.pool.lookup(self._key(sequence, entry))
            return None if block is None or self.pool.ref_count(block) else block

    violation = run(
        session_of(FirstCarrierOnly, hits="exact"),
        *(Admit(number, PROMPT, 0) for number in range(2)), Step(), Finish(1), Admit(2, PROMPT, 0),
    )  # fmt: skip
    assert violation.invariant == "I4"


@pytest.mark.parametrize("index", ["content", "exact"])
@pytest.mark.parametrize("tells_all", [False, True])
def test_a_lookup_may_count_what_is_held(index, tells_all, run):
    class Tells(OneUserABlock):
        looking = False

        def _is_usable(self, block):
            return (self.looking and tells_all) or super()._is_usable(block)

        def lookup_prefix(self, tokens, *, extra_keys=None):
            self.looking = True
            return super().lookup_prefix(tokens, extra_keys=extra_keys)

    session = session_of(Tells, index=index)
    assert run(session, Admit(0, PROMPT, 0), Step(), LookupPrefix(PROMPT)) is None


def test_a_lookup_may_not_count_what_is_not_there(run):
    class TellsTooMuch(OneUserABlock):
        def lookup_prefix(self, tokens, *, extra_keys=None):
            return 2

    violation = run(session_of(TellsTooMuch, index="exact"), LookupPrefix(PROMPT))
    assert violation.invariant == "IDX"


@pytest.mark.parametrize(
    ("rows", "invariant"), [({}, "I2"), ({"tables": "merged", "index": "exact"}, "IDX")]
)
def test_a_table_may_not_come_to_name_a_block_that_somebody_holds(rows, invariant, run):
    both = [Admit(number, PROMPT, 0) for number in range(2)]
    shared = session_of(QuietMerger, duplicates="first", **{**rows, "held_blocks": "shared"})
    assert run(shared, *both, Step()) is None
    exclusive = session_of(QuietMerger, duplicates="first", **rows)
    assert run(exclusive, *both, Step()).invariant == invariant


@pytest.mark.parametrize("index", ["content", "exact"])
def test_what_is_held_may_be_shown_as_found_by_nobody(index, run):
    session = session_of(LeavesOutWhatIsHeld, index=index, duplicates="kept")
    assert run(session, Admit(0, PROMPT, 0), Step(), Finish(0), Admit(1, PROMPT, 0)) is None


def test_what_is_given_back_after_the_step_may_be_had_before(run):
    class HasItBefore(OneUserABlock):
        profile: ClassVar = {**EXCLUSIVE, "frees": "after-step"}

        def _is_usable(self, block):
            leaving = sum(block in blocks for blocks in self.leaving)
            return self.pool.ref_count(block) == leaving

    session = session_of(HasItBefore, frees="after-step")
    prompts = Admit(0, PROMPT, 0), Step(), Finish(0), Admit(1, PROMPT, 0), Step()
    assert run(session, *prompts) is None
    assert "a block was shared with a running sequence" in session.facts


@pytest.mark.parametrize("cls", [OneUserABlock, CopiesForItsForks])
def test_a_fork_is_no_hit_and_may_share_or_copy(cls, run):
    session = session_of(cls)
    assert run(session, Admit(0, PROMPT, 0), Step(), Fork(0, 1), Step(), Finish(0)) is None


def test_a_fork_that_copies_everything_may_wait_for_room(run):
    session = session_of(CopiesForItsForks, 3)
    assert run(session, Admit(0, PROMPT, 0), Step(), Fork(0, 1)) is None
    assert 1 not in session.model.sequences
    shared = session_of(CopiesForItsForks, 3, held_blocks="shared")
    assert run(shared, Admit(0, PROMPT, 0), Step(), Fork(0, 1)).invariant == "ADM"


def test_nobody_has_to_share_and_somebody_has_to_compute_again():
    can = manager_capabilities_of(OneUserABlock(8, 2))
    exclusive = ManagerProfile(held_blocks="exclusive", same_step_hit="allowed")
    required = required_manager_facts(exclusive, can)
    assert COMPUTED_BESIDE in required
    assert "a free cached block was revived" in required
    assert not {"a block was shared with a running sequence", SAME_STEP_HIT} & {*required}
    assert COMPUTED_BESIDE not in required_manager_facts(ManagerProfile(), can)
    facts = SCRIPTS["many references"].facts
    assert facts(ManagerProfile(), can) == (MANY_REFERENCES,)
    assert facts(exclusive, can) == ()


def test_nobody_finds_what_is_forgotten_with_its_only_holder():
    can = manager_capabilities_of(OneUserABlock(8, 2))
    found = "a prefix was found in the cache"
    rows = {**EXCLUSIVE, "retention": "while-held"}
    assert found not in required_manager_facts(ManagerProfile.from_mapping(rows), can)
    for row in rows.items():
        assert found in required_manager_facts(ManagerProfile.from_mapping(dict([row])), can)


@pytest.mark.parametrize("held_blocks", ["shared", "exclusive"])
@pytest.mark.parametrize("publishes", ["computed", "prompts", "finish"])
def test_runs_find_a_prefix_where_the_profile_has_hits_and_nowhere_else(publishes, held_blocks):
    # The parent of a fork publishes at its end what the child still holds.
    rows = {"retention": "while-held", "publishes": publishes, "held_blocks": held_blocks}
    profile = ManagerProfile.from_mapping(rows)
    campaign = ManagerCampaign(
        "held", lambda n, on: CleanManager(n, 4, enable_caching=on, rules=profile), profile, 4
    )
    found = any("a prefix was found in the cache" in campaign.run(n).facts for n in range(100))
    assert found is profile.has_hits


@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_whose_key_is_the_first_is_open_where_the_index_leaves_out_what_is_held(duplicates):
    class LeavesOut(LeavesOutWhatIsHeld):
        profile: ClassVar = {**EXCLUSIVE, "duplicates": duplicates}

    profile = ManagerProfile.from_mapping(LeavesOut.profile)
    campaign = ManagerCampaign(
        "leaves out", lambda n, on: LeavesOut(n, 4, enable_caching=on), profile, 4
    )
    assert [found for n in range(120) if (found := campaign.run(n).trace)] == []


def test_a_resumed_sequence_that_finds_a_copy_of_what_is_held_needs_room_behind_it(run):
    class CachesCopies(CopiesForItsForks):
        def fork(self, seq_id, child_id):
            copies = super().fork(seq_id, child_id)
            if copies != "later":
                self.sequences[child_id].num_published = 0
            return copies

    session = session_of(CachesCopies, 3)
    commands = (
        Admit(0, TokenChain((0, 0)), 0), Step(), Fork(0, 1), AppendTokens(1, (0,)), Step(),
        Preempt(1), Admit(2, TokenChain((0,)), 0), Resume(1, 1),
    )  # fmt: skip
    assert run(session, *commands) is None
    assert session.model.sequences[1].place == "nowhere"
