"""Under `prior_sightings` what comes once is not found, and what came often enough has to be."""

from __future__ import annotations

from typing import ClassVar

import pytest

from poolproof.bugs.clean_groups import CleanHybridManager
from poolproof.bugs.clean_manager import CleanManager, CleanSwappingManager
from poolproof.bugs.manager_oddities import EarlyShower
from poolproof.bugs.profile_rows import CountsWhoAsks, ForgetsWhatItTook, TakesWhatComesAgain
from poolproof.contract.commands import Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Finish, LookupPrefix, Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.manager_target import manager_capabilities_of
from poolproof.exploration.recorded_session import RecordedManager
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_facts import required_manager_facts
from poolproof.harness.manager_session import ManagerSession
from poolproof.reference.content_names import ContentNames

PROMPT = TokenChain((1, 2, 3))


def session_of(cls, num_blocks=8, **rows):
    """Blocks of two tokens; the target is told its rows by its class alone."""
    profile = ManagerProfile.from_mapping({"prior_sightings": 1, **rows})
    return ManagerSession(cls(num_blocks, 2), profile, num_blocks, 2)


def computed(seq_id, chain=PROMPT):
    return Admit(seq_id, chain, 0), Step(), Finish(seq_id)


@pytest.mark.parametrize("index", ["content", "exact"])
def test_what_came_once_need_not_be_found(index, run):
    session = session_of(TakesWhatComesAgain, index=index)
    assert run(session, *computed(0), LookupPrefix(PROMPT), *computed(1)) is None


@pytest.mark.parametrize(
    "ask", [LookupPrefix(PROMPT), Admit(1, PROMPT, 0)], ids=["lookup", "admit"]
)
@pytest.mark.parametrize("index", ["content", "exact"])
def test_what_came_once_may_not_be_found(index, ask, run):
    violation = run(session_of(CleanManager, index=index, hits="exact"), *computed(0), ask)
    assert violation.invariant == "IDX"
    if index == "content":
        assert violation.sentence == (
            f"{ask} finds the block at entry 0 of its table, whose content was seen once: with 1 "
            "prior sightings the index had no key of it"
        )


def test_a_filter_that_is_about_right_says_sound(run):
    session = session_of(CleanManager, hits="sound")
    assert run(session, *computed(0), LookupPrefix(PROMPT)) is None


@pytest.mark.parametrize("index", ["content", "exact"])
def test_what_came_often_enough_has_to_be_found(index, run):
    class TakesNothing(TakesWhatComesAgain):
        def _is_taken(self, key):
            return False

    violation = run(
        session_of(TakesNothing, index=index, hits="exact"),
        *computed(0), *computed(1), LookupPrefix(PROMPT),
    )  # fmt: skip
    assert violation.invariant == "I4"


@pytest.mark.parametrize("is_early", [False, True])
def test_what_was_asked_for_twice_is_found_or_not(is_early, run):
    class TakesIt(TakesWhatComesAgain):
        def _is_taken(self, key):
            return is_early or super()._is_taken(key)

    session = session_of(TakesIt, hits="exact")
    commands = LookupPrefix(PROMPT), *computed(0), LookupPrefix(PROMPT), Admit(1, PROMPT, 0)
    assert run(session, *commands) is None


def test_a_request_that_was_refused_has_asked(run):
    session = session_of(CountsWhoAsks, 3, hits="exact")
    others = Admit(0, TokenChain((7, 7, 7, 7)), 0), Step(), Admit(1, PROMPT, 0)
    assert run(session, *others, Finish(0), Admit(1, PROMPT, 0), Step(), Finish(1)) is None
    assert run(session, LookupPrefix(PROMPT), Admit(2, PROMPT, 0)) is None
    assert session.model.sequences[2].num_computed == 2


@pytest.mark.parametrize("forgets", [False, True])
def test_a_reset_may_forget_what_was_seen(forgets, run):
    class Resets(TakesWhatComesAgain):
        def reset(self):
            if forgets:
                self.sightings.clear()
            return super().reset()

    session = session_of(Resets, hits="exact")
    commands = *computed(0), Reset(), *computed(1), LookupPrefix(PROMPT), *computed(2)
    assert run(session, *commands) is None


RIGHT = {
    "comes again": (TakesWhatComesAgain, {}),
    "who asks": (CountsWhoAsks, {}),
    "forgets": (ForgetsWhatItTook, {}),
    "first": (TakesWhatComesAgain, {"duplicates": "first"}),
    "last": (TakesWhatComesAgain, {"duplicates": "last"}),
    "exclusive": (TakesWhatComesAgain, {"held_blocks": "exclusive"}),
    "sorted by keys": (TakesWhatComesAgain, {"eviction": "unhashed-first"}),
    "scheduled": (
        TakesWhatComesAgain, {"publishes": "scheduled", "same_step_hit": "allowed"},
    ),
    "at the end": (TakesWhatComesAgain, {"publishes": "finish", "index": "exact"}),
    "by parent and child": (TakesWhatComesAgain, {"publishes": "finish"}),
    "shown early": (EarlyShower, {"retention": "may-drop"}),
    "while held": (TakesWhatComesAgain, {"retention": "while-held"}),
    "swapping": (CleanSwappingManager, {"host_blocks": 6}),
    "groups": (CleanHybridManager, {"null_block": 0, "groups": "full+sliding:8"}),
}  # fmt: skip


@pytest.mark.some(2)
@pytest.mark.parametrize("name", RIGHT)
def test_designs_that_count_otherwise_are_not_accused(name):
    cls, further = RIGHT[name]

    class Design(cls):
        profile: ClassVar = {"prior_sightings": 1, "hits": "exact", **further}

    profile = ManagerProfile.from_mapping(Design.profile)
    campaign = ManagerCampaign(name, lambda n, on: Design(n, 4, enable_caching=on), profile, 4)
    results = [campaign.run(number) for number in range(100)]
    assert [result.trace for result in results if result.trace is not None] == []
    required = set(required_manager_facts(profile, manager_capabilities_of(Design(8, 4))))
    assert required <= set().union(*(result.facts for result in results))


def test_states_are_told_apart_by_what_was_seen(run):
    profile = ManagerProfile.from_mapping(TakesWhatComesAgain.profile)
    names = ContentNames()

    class Unwritten(TakesWhatComesAgain):
        """Judged by what it shows."""

        def __reduce__(self):
            raise TypeError

    def state_after(*commands):
        session = RecordedManager(Unwritten(4, 2), profile, 4, 2, names)
        assert run(session, *commands) is None
        return session.state()

    other = TokenChain((3, 2, 1))
    short = TokenChain((1,))
    asked = state_after(*computed(0, short), LookupPrefix(PROMPT))
    assert asked != state_after(*computed(0, short), LookupPrefix(other))
    assert asked == state_after(*computed(0, short), LookupPrefix(PROMPT))
