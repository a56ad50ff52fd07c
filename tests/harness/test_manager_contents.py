"""What is read decides: habits that leave every read right pass, their neighbours do not.

The right habits are oddities (`bugs/manager_oddities.py`), which campaigns may not accuse.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from poolproof.bugs.clean_groups import CleanHybridManager
from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.clean_pool import CleanPool
from poolproof.bugs.manager_oddities import (
    EarlyShower,
    LatePublisher,
    QuietMerger,
    RegainingManager,
    RewritingManager,
    StepEndSlider,
)
from poolproof.contract.commands import Reset
from poolproof.contract.content import TokenChain
from poolproof.contract.level import Level
from poolproof.contract.manager_commands import (
    Abort,
    Admit,
    Finish,
    LookupPrefix,
    Preempt,
    Step,
    Truncate,
)
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity
from poolproof.exploration.recorded_session import RecordedManager
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.reference.content_names import ContentNames

PROMPT = TokenChain((1, 2, 3, 4))
LONGER = TokenChain((1, 2, 3, 4, 5))
WINDOW = {"null_block": 0, "groups": [{"kind": "sliding", "window": 4}]}


def session_of(cls, num_blocks=6, **rows):
    profile = ManagerProfile.from_mapping({**cls.profile, **rows})
    return ManagerSession(cls(num_blocks, 2, rules=profile), profile, num_blocks, 2)


def run(session, *commands):
    """The first violation, or None; every command has to be legal."""
    for command in commands:
        assert session.is_defined(command), command
        violation = session.step(command)
        if violation is not None:
            assert command is commands[-1], (command, violation)
            return violation
    return None


def refused(cls, **rows):
    """The violations that a campaign finds in 60 runs."""
    profile = ManagerProfile.from_mapping({**cls.profile, **rows})
    campaign = ManagerCampaign(
        "odd", lambda n, on: cls(n, 4, enable_caching=on, rules=profile), profile, 4
    )
    traces = [campaign.run(number).trace for number in range(60)]
    return [trace.violation for trace in traces if trace is not None]


TWICE = (Admit(0, PROMPT, 0), Step(), Admit(1, PROMPT, 0), Step())


def test_a_target_that_says_nothing_is_judged_by_content_and_a_full_profile_exactly():
    assert ManagerProfile.from_mapping({}).by_content
    assert "index" in ManagerProfile.from_mapping({}).assumed
    assert not ManagerProfile.from_mapping({"index": "exact"}).by_content
    assert not ManagerProfile().by_content


def test_a_trace_from_before_the_row_was_judged_exactly():
    header = Trace("t", Level.MANAGER, ManagerProfile(), 3, True, ()).lines()[0]
    assert '"index": "exact", ' in header
    old = Trace.from_lines([header.replace('"index": "exact", ', "")])
    assert not old.profile.by_content


def test_a_shared_block_may_be_written_with_what_it_holds():
    session = session_of(RewritingManager)
    assert run(session, *TWICE) is None
    assert session.target.block_table(0) == session.target.block_table(1)
    assert run(session_of(RewritingManager), *TWICE[:2], Finish(0), *TWICE[2:]) is None


def test_the_exact_index_does_not_let_a_held_block_be_shared_like_that():
    assert run(session_of(RewritingManager, index="exact"), *TWICE[:3]) is not None


def test_a_shared_block_may_not_be_written_with_anything_else():
    class Confused(RewritingManager):
        """Takes the last block of whoever has one, whatever it holds."""

        def _find(self, sequence, entry):
            found = super()._find(sequence, entry)
            others = [s.table[entry] for s in self.sequences.values() if len(s.table) > entry]
            return others[0] if found is None and entry and others else found

    other = Admit(1, TokenChain((1, 2, 3, 9)), 0)
    violation = run(session_of(Confused), *TWICE[:2], other)
    assert violation.severity is Severity.WRONG_DATA_OF_ANOTHER
    assert refused(Confused)


def test_a_block_that_nobody_wrote_to_may_regain_its_content():
    full = TokenChain((7, 8, 9, 10, 11, 12))
    taken = (Admit(0, PROMPT, 0), Step(), Finish(0), Admit(1, full, 0), Abort(1))
    session = session_of(RegainingManager, num_blocks=3)
    assert run(session, *taken, Admit(2, LONGER, 0), Step()) is None
    assert session.model.sequences[2].num_computed == 5
    assert "a prefix was found in the cache" in session.facts


def test_a_hit_may_take_a_free_block_that_regained_its_content_and_needs_one_more_then():
    full, short, longer = (TokenChain((0,) * count) for count in (2, 1, 3))
    regained = (Admit(0, full, 0), Step(), Finish(0), Admit(1, short, 0), Finish(1))
    twice = (Admit(2, short, 0), Admit(3, full, 0), Finish(2), Step())
    session = session_of(RegainingManager, num_blocks=2)
    assert run(session, *regained, *twice, Admit(4, longer, 0)) is None
    assert session.calls.answer == "later"


def test_a_block_that_was_written_to_may_not():
    class Forgetful(RegainingManager):
        def _written(self, sequence):
            """The old key counts as right for ever."""

    full = TokenChain((7, 8, 9, 10, 11, 12))
    taken = (Admit(0, PROMPT, 0), Step(), Finish(0), Admit(1, full, 0), Step(), Abort(1))
    violation = run(session_of(Forgetful, num_blocks=3), *taken, Admit(2, LONGER, 0))
    assert (violation.invariant, violation.severity) == ("DATA", Severity.WRONG_DATA_OF_ANOTHER)
    assert refused(Forgetful)


def test_who_publishes_late_finds_less_than_it_could_and_that_is_no_wrong_data():
    late = (Admit(0, PROMPT, 0), Step(), Admit(1, LONGER, 0))
    assert run(session_of(LatePublisher), *late) is None
    rows = {**LatePublisher.profile}
    rows.pop("hits")
    stranger = type("Stranger", (LatePublisher,), {"profile": rows})
    violation = run(session_of(stranger), *late)
    assert violation.severity is Severity.BOOKKEEPING
    assert "the index says less than it could" in violation.sentence
    assert {found.severity for found in refused(stranger)} == {Severity.BOOKKEEPING}
    assert run(session_of(stranger, hits="exact"), *late).severity is Severity.LOST_HIT


def test_who_publishes_what_was_never_computed_lets_others_read_it():
    class Blind(LatePublisher):
        def _release(self, sequence):
            sequence.num_computed = len(sequence.tokens)
            super()._release(sequence)

    violation = run(session_of(Blind), Admit(0, PROMPT, 0), Abort(0), Admit(1, LONGER, 0))
    assert violation.invariant == "DATA"
    assert refused(Blind)


def test_a_block_of_nobody_that_holds_nothing_may_not_be_shown_as_cached():
    class Eager(CleanManager):
        def is_cached(self, block_id):
            return True

    violation = session_of(Eager).step(Admit(0, PROMPT, 0))
    assert violation.invariant == "IDX"
    assert run(session_of(EarlyShower), Admit(0, PROMPT, 0), Step(), Finish(0)) is None


def test_what_a_reset_took_away_may_not_be_found_although_it_is_still_there():
    class Remembers(CleanManager):
        def reset(self):
            return not self.sequences

    commands = (Admit(0, PROMPT, 0), Step(), Finish(0), Reset())
    assert run(session_of(Remembers), *commands).invariant == "IDX"
    blind = type("Blind", (Remembers,), {"is_cached": None})
    assert run(session_of(blind), *commands, Admit(1, LONGER, 0)).invariant == "DATA"


GROWS = (Admit(0, TokenChain((1, 2, 3, 4, 5, 6, 7)), 0), Step())


def test_a_window_may_slide_at_the_end_of_a_step():
    session = session_of(StepEndSlider, num_blocks=8, groups=[{"kind": "sliding", "window": 4}])
    assert run(session, *GROWS) is None
    assert session.target.block_table(0)[:2] == [0, 0]
    assert session.model.sequences[0].tables == [session.target.block_table(0)]
    assert "a block slid out of the window" in session.facts


class SlidesAsItPublishes(StepEndSlider):
    """Duplicates are merged, too, so that a table is looked at before the step is over."""

    profile: ClassVar = {**StepEndSlider.profile, "tables": "merged", "duplicates": "first"}


def test_a_window_may_slide_where_duplicates_are_merged_at_the_same_time():
    rows = {"groups": [{"kind": "sliding", "window": 4}]}
    session = session_of(SlidesAsItPublishes, num_blocks=8, **rows)
    assert run(session, *GROWS) is None
    assert session.target.block_table(0)[:2] == [0, 0]
    assert "a duplicate was merged" not in session.facts
    assert refused(SlidesAsItPublishes) == []

    class TooFar(SlidesAsItPublishes):
        def _first_kept(self, sequence):
            return super()._first_kept(sequence) + 1

    assert run(session_of(TooFar, num_blocks=8, **rows), *GROWS) is not None


def test_a_window_may_not_slide_over_what_is_still_read():
    class TooFar(StepEndSlider):
        def _first_kept(self, sequence):
            return super()._first_kept(sequence) + 1

    rows = {"groups": [{"kind": "sliding", "window": 4}]}
    violation = run(session_of(TooFar, num_blocks=8, **rows), *GROWS)
    assert violation.invariant == "I2"
    assert violation.severity is not Severity.BOOKKEEPING
    assert refused(TooFar)


def test_duplicates_may_be_merged_by_what_they_hold():
    both = (Admit(0, PROMPT, 0), Admit(1, PROMPT, 0), Step())
    session = session_of(QuietMerger)
    assert run(session, *both) is None
    assert session.target.block_table(0) == session.target.block_table(1)
    assert run(session_of(QuietMerger, tables="append-only"), *both).invariant == "I2"


@pytest.mark.parametrize("is_replayed", [False, True])
def test_a_merge_is_followed_where_the_whole_state_is_not_compared(is_replayed):
    profile = ManagerProfile.from_mapping(QuietMerger.profile)
    target = QuietMerger(8, 2, rules=profile)
    session = ManagerSession(target, profile, 8, 2, check_every=100)
    if is_replayed:
        session = RecordedManager(target, profile, 8, 2, ContentNames())
        session.replaying = True
    both = Admit(0, PROMPT, 0), Admit(1, PROMPT, 0), Step()
    assert run(session, *both, Truncate(1, 1)) is None
    assert session.diagnose() is None


def test_blocks_that_hold_something_else_may_not_be_merged():
    class SameTokens(QuietMerger):
        """Takes blocks for duplicates whose own tokens are equal, whatever came before them."""

        def _block_key(self, sequence, entry):
            first = entry * self.block_size
            return repr(sequence.tokens[first : first + self.block_size]).encode()

    parents = (Admit(0, PROMPT, 0), Admit(1, TokenChain((9, 9, 3, 4)), 0), Step())
    violation = run(session_of(SameTokens), *parents)
    assert violation.severity is Severity.WRONG_DATA_OF_ANOTHER
    assert refused(SameTokens)


@pytest.mark.parametrize("num_tokens", [5, 6])
def test_a_lookup_may_tell_of_what_is_held_and_of_no_more(num_tokens):
    class Tells(CleanManager):
        def lookup_prefix(self, tokens, *, extra_keys=None):
            return 4 if num_tokens == 5 else 2 * (len(tokens) // 2)

    session = session_of(Tells)
    run(session, Admit(0, PROMPT, 0), Step(), Preempt(0))
    other = TokenChain((1, 2, 3, 4, 5, 6, 7)[: num_tokens + (num_tokens == 6)])
    violation = session.step(LookupPrefix(other))
    assert (violation and violation.invariant) == (None if num_tokens == 5 else "IDX")


# What was not seen leaves the order of the free queue unknown, and what was seen does not.


TWO = (Admit(0, PROMPT, 0), Admit(1, PROMPT, 0), Step(), Finish(0), Finish(1))
OTHERS = (Admit(0, PROMPT, 0), Admit(1, TokenChain((7, 8, 9)), 0), Step(), Finish(0), Finish(1))


@pytest.mark.parametrize(("commands", "is_known"), [(TWO, False), (OTHERS, True)])
def test_duplicates_that_go_at_the_end_go_in_any_order(commands, is_known):
    session = session_of(QuietMerger, num_blocks=8, publishes="finish")
    assert run(session, *commands) is None
    assert session.model.pool.ordered == is_known


def test_who_says_that_nothing_is_merged_has_an_order_at_the_end():
    rows = {"publishes": "finish", "duplicates": "first", "tables": "append-only"}
    session = session_of(CleanManager, num_blocks=8, **rows)
    assert run(session, *TWO) is None
    assert session.model.pool.ordered


SLIDES = TokenChain((1, 2, 3, 4, 5, 6, 7))
SLIDES_TOO = TokenChain((9, 8, 7, 6, 5, 4, 3))


@pytest.mark.parametrize(
    ("frees", "commands", "is_known"),
    [
        ("at-once", (Admit(0, SLIDES, 0), Step()), True),
        ("at-once", (Admit(0, SLIDES, 0), Admit(1, SLIDES_TOO, 0), Step()), False),
        ("after-step", (Admit(0, SLIDES, 0), Admit(1, PROMPT, 0), Finish(1), Step()), False),
    ],
    ids=["alone", "two at once", "one that slides and one that leaves"],
)
def test_windows_that_slide_in_one_step_slide_in_any_order(frees, commands, is_known):
    groups = [{"kind": "sliding", "window": 4}]
    session = session_of(StepEndSlider, num_blocks=12, groups=groups, frees=frees)
    assert run(session, *commands) is None
    assert session.model.pool.ordered == is_known


class TakesTheSame(CleanManager):
    """Takes the free block that holds what it is going to write, and writes it again."""

    def _take_hits(self, sequence, hits):
        super()._take_hits(sequence, hits)
        block = self._find(sequence, len(hits))
        if block is not None and len(hits) < self._num_entries(sequence):
            self._touch([block])
            sequence.table.append(block)


@pytest.mark.parametrize(("eviction", "is_known"), [("lru", True), ("unhashed-first", False)])
def test_a_free_block_that_is_taken_as_it_is_may_have_lost_its_key(eviction, is_known):
    session = session_of(TakesTheSame, eviction=eviction, hits="exact")
    again = (Admit(0, PROMPT, 0), Step(), Finish(0), Admit(1, PROMPT, 0))
    assert run(session, *again) is None
    assert len(session.model.pool.doubtful) == (not is_known)
    assert run(session, Abort(1)) is None
    assert session.model.pool.ordered == is_known


@pytest.mark.parametrize(
    ("rows", "is_known"),
    [
        ({"hits": "exact", "eviction": "unhashed-first"}, True),
        ({"eviction": "unhashed-first"}, False),
        ({"hits": "sound", "eviction": "unhashed-lifo"}, False),
        ({"hits": "sound", "eviction": "lru"}, True),
        ({"hits": "sound", "eviction": "unhashed-first", "index": "exact"}, True),
    ],
)
def test_an_order_by_keys_is_known_where_the_keys_are(rows, is_known):
    assert session_of(CleanManager, **rows).model.pool.ordered == is_known


def test_blocks_from_the_head_of_the_queue_are_new_in_whichever_entries_they_stand():
    class LastFirst(CleanPool):
        def allocate(self, n):
            return super().allocate(n)[::-1]

    class FindsNothing(CleanManager):
        pool_class = LastFirst

        def _hits(self, sequence):
            return []

    session = session_of(FindsNothing, num_blocks=2, hits="sound")
    twice = (Admit(0, PROMPT, 0), Step(), Finish(0), Admit(1, PROMPT, 0))
    assert run(session, *twice) is None
    assert not any(session.model.pool.keys.values())


def test_a_refusal_counts_what_a_hit_inside_a_block_would_need():
    rows = {"watermark_blocks": 1, "lookahead_tokens": 1}
    session = session_of(RewritingManager, num_blocks=4, **rows)
    block, other = TokenChain((1, 2)), TokenChain((7, 8))
    cached = (Admit(0, block, 0), Step(), Abort(0), Admit(1, other, 0))
    assert run(session, *cached, Admit(2, block, 1)) is None
    assert session.calls.answer == "later"


def asked_after(num_blocks):
    """The memory in which 9 tokens were computed in two groups and others after them; who asks."""
    session = session_of(
        CleanHybridManager, num_blocks, null_block=0, groups="full+sliding:4", index="content"
    )
    computed, other = TokenChain(tuple(range(9))), TokenChain((20, 21, 22, 23))
    assert (
        run(session, Admit(0, computed, 0), Step(), Finish(0), Admit(1, other, 0), Step()) is None
    )
    return session.memory, session.model.new_sequence(2, TokenChain(tuple(range(11))))


LENGTHS = range(1, 12)


# With 12 blocks the others' stand where the end of what was computed stood.
@pytest.mark.parametrize(("num_blocks", "longest"), [(12, 4), (14, 8), (16, 9)])
@pytest.mark.parametrize("order", [LENGTHS, LENGTHS[::-1], (11, 3, 9, 4, 10, 5)])
def test_a_search_finds_each_length_as_if_it_alone_were_asked_for(num_blocks, longest, order):
    memory, asked = asked_after(num_blocks)
    search = memory.search(asked)
    assert [search.holds(length) for length in order] == [length <= longest for length in order]
    assert memory.holds_hit(asked, longest)
    assert not memory.holds_hit(asked, longest + 1)


def test_a_search_looks_at_the_memory_once_for_all_lengths(monkeypatch):
    memory, asked = asked_after(16)
    looks, look = [], memory.holders_in
    monkeypatch.setattr(memory, "holders_in", lambda *place: looks.append(place) or look(*place))
    search = memory.search(asked)
    for length in LENGTHS:
        search.holds(length)
    assert len(looks) == len(set(looks)) == 2 * 2
