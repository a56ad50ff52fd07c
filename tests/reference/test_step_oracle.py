"""The oracle that watches an engine from outside: what it accuses, and what it must not."""

from __future__ import annotations

import pytest

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.manager_profile import FULL, CacheGroup
from poolproof.contract.prefix_words import Prefix
from poolproof.contract.state_use import PARTS, StateUse
from poolproof.contract.step_record import ComputedTokens, StepRecord
from poolproof.reference.content_names import ContentNames
from poolproof.reference.step_oracle import StepOracle, WrongRead


def tokens(name, chain, first, *blocks, replaced=True):
    """Everything of the chain from `first` on is computed, through one table."""
    if not isinstance(chain, TokenChain):
        chain = TokenChain(tuple(chain))
    return ComputedTokens(name, chain, first, len(chain.tokens) - first, (blocks,), replaced)


def oracle(*groups, block_size=2):
    chosen = groups or FULL
    return StepOracle(8, chosen, [block_size] * len(chosen))


def test_computing_and_growing_is_right():
    watch = oracle()
    assert watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),))) == []
    assert watch.record(StepRecord(2, (tokens("a", [1, 2, 3, 4], 3, replaced=False),))) == []
    assert watch.record(StepRecord(3, (tokens("a", [1, 2, 3, 4, 5], 4, 3, replaced=False),))) == []
    assert (watch.counts.steps, watch.counts.computed_tokens) == (3, 5)


def test_a_hit_on_the_same_prefix_is_right_also_within_one_step():
    watch = oracle()
    first = tokens("a", [1, 2, 3], 0, 1, 2)
    second = tokens("b", [1, 2, 4], 2, 1, 3)
    assert watch.record(StepRecord(1, (first, second))) == []
    assert watch.record(StepRecord(2, (tokens("c", [1, 2, 4], 2, 1, 4),))) == []
    assert watch.counts.admissions_with_hits == 2
    assert watch.counts.same_step_hits == 1


def test_reading_another_prefix_names_reader_writer_and_both_prefixes():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    (found,) = watch.record(StepRecord(2, (tokens("b", [9, 2, 3], 2, 1, 3),)))
    assert (found.reader, found.writer, found.written_in) == ("b", "a", 1)
    assert (found.position, found.block, found.slot) == (0, 1, 0)
    assert (found.wanted, found.found) == (Prefix((9,)), Prefix((1,)))
    assert found.sentence() == (
        "step 2: request b reads at position 0 (group 0, block 1, slot 0) KV that was computed for "
        "request a in step 1; wanted that of <9>, found that of <1>"
    )


def test_reading_what_nobody_computed_says_so():
    (found,) = oracle().record(StepRecord(1, (tokens("a", [1, 2, 3], 2, 1, 2),)))
    assert found.writer is None
    assert "KV that nobody has computed; wanted that of <1>" in found.sentence()


def test_what_has_no_known_writer_counts_as_computed_by_nobody():
    read = WrongRead(1, "a", 0, 0, 1, 0, Prefix((1,)), Prefix((2,)), None, None)
    assert "KV that nobody has computed; wanted that of <1>" in read.sentence()


def test_a_long_prefix_is_shortened():
    watch = oracle(CacheGroup("sliding", 0, 3))
    (found,) = watch.record(StepRecord(1, (tokens("a", [1] * 14, 13, *[1] * 7),)))
    assert "... (12 tokens) ..." not in found.sentence()
    assert found.position == 11
    watch = oracle(CacheGroup("sliding", 0, 2))
    (found,) = watch.record(StepRecord(1, (tokens("a", [1] * 15, 14, *[1] * 8),)))
    assert "<1 1 1 1 ... (14 tokens) ... 1 1 1 1>" in found.sentence()


def test_the_same_tokens_under_another_salt_are_another_prefix():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", TokenChain((1, 2, 3), None, "x"), 0, 1, 2),)))
    (found,) = watch.record(StepRecord(2, (tokens("b", [1, 2, 3], 2, 1, 3),)))
    assert found.sentence().endswith(
        "in step 1; wanted that of <1>, found that of <1, salt x>: only the salt differs"
    )


def test_what_somebody_goes_on_reading_is_told_once():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    assert len(watch.record(StepRecord(2, (tokens("b", [9, 2, 3], 2, 1, 3),)))) == 1
    assert watch.record(StepRecord(3, (tokens("b", [9, 2, 3, 4], 3, replaced=False),))) == []


def test_behind_a_window_anything_may_stand():
    watch = oracle(CacheGroup("sliding", 0, 2))
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3, 4], 0, 1, 2),)))
    watch.record(StepRecord(2, (tokens("b", [9, 9], 0, 1),)))
    assert watch.record(StepRecord(3, (tokens("a", [1, 2, 3, 4, 5], 4, 3, replaced=False),))) == []


def test_copies_come_before_the_writes_of_a_step():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    part = tokens("b", [1, 2, 3, 7], 3, 1, 5)
    assert watch.record(StepRecord(2, (part,), copies=((2, 5),))) == []


def stored(watch):
    """Block 1 has the first two tokens of request a; place 70 keeps them, block 1 others."""
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),), stores=((1, 70),)))
    watch.record(StepRecord(2, (tokens("b", [7, 8], 0, 1),), ended=("a",)))
    return watch


def test_what_a_step_computes_is_stored_and_comes_back_into_any_block():
    part = tokens("c", [1, 2, 4], 2, 5, 6)
    assert stored(oracle()).record(StepRecord(3, (part,), loads=((5, 70),))) == []


def test_what_is_stored_is_another_prefix_for_whoever_loads_it_wrongly():
    part = tokens("c", [7, 8, 9], 2, 5, 6)
    (found,) = stored(oracle()).record(StepRecord(3, (part,), loads=((5, 70),)))
    assert (found.block, found.writer, found.written_in) == (5, "a", 1)
    assert (found.wanted, found.found) == (Prefix((7,)), Prefix((1,)))


def test_a_block_that_is_loaded_from_an_unwritten_place_holds_nothing():
    part = tokens("c", [7, 8, 9], 2, 1, 6)
    assert stored(oracle()).record(StepRecord(3, (part,))) == []
    (found,) = stored(oracle()).record(StepRecord(3, (part,), loads=((1, 71),)))
    assert (found.block, found.found) == (1, None)


def test_what_is_void_comes_back_from_no_place():
    watch = stored(oracle())
    watch.void()
    part = tokens("c", [1, 2, 4], 2, 5, 6)
    (found,) = watch.record(StepRecord(3, (part,), loads=((5, 70),)))
    assert (found.block, found.found) == (5, None)


def test_what_is_void_is_read_from_no_block():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    watch.void()
    (found,) = watch.record(StepRecord(2, (tokens("b", [1, 2, 4], 2, 1, 3),)))
    assert (found.block, found.found) == (1, None)


def test_rejected_drafts_are_void():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 5, 5], 0, 1, 2),)))
    assert watch.record(StepRecord(2, (tokens("a", [1, 2, 3], 1, replaced=False),))) == []
    assert watch.record(StepRecord(3, (tokens("b", [1, 2, 3, 4], 2, 1, 3),))) == []


def test_who_comes_back_is_counted_as_resumed():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    watch.record(StepRecord(2, (), ended=("a",)))
    assert watch.record(StepRecord(3, (tokens("a", [1, 2, 3], 2, 1, 4),))) == []
    assert (watch.counts.resumes, watch.counts.admissions) == (1, 2)


def test_a_table_that_ends_too_early_or_leads_nowhere_is_named():
    with pytest.raises(ValueError, match=r"request a has no block in group 0 for position 2"):
        oracle().record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1),)))
    with pytest.raises(ValueError, match=r"request a has no block in group 0 for position 0"):
        oracle().record(StepRecord(1, (tokens("a", [1], 0, 8),)))
    with pytest.raises(ValueError, match=r"request a has no block in group 0 for position 0"):
        oracle().record(StepRecord(1, (tokens("a", [1, 2, 3], 2, 8, 1),)))


@pytest.mark.parametrize("entry", [-1, 8])
def test_a_table_that_leads_outside_the_pool_is_shown(entry):
    with pytest.raises(ValueError) as caught:
        oracle().record(StepRecord(1, (tokens("a", [1], 0, entry),)))
    assert str(caught.value) == (
        f"request a has no block in group 0 for position 0: its table is [{entry}] of 8 blocks"
    )


def test_block_0_is_a_block_like_any_other():
    assert oracle().record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 0, 1),))) == []


def test_behind_a_window_a_table_may_lead_nowhere():
    watch = oracle(CacheGroup("sliding", 0, 2))
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3, 4], 0, 1, 2),)))
    part = ComputedTokens("a", TokenChain((1, 2, 3, 4, 5)), 4, 1, ((99, 2, 3),), replaced=True)
    assert watch.record(StepRecord(2, (part,))) == []


def two_groups(name, chain, first, one, other, *, replaced=True):
    return ComputedTokens(
        name, TokenChain(tuple(chain)), first, len(chain) - first, (one, other), replaced
    )


def test_every_group_is_read_through_its_own_table():
    watch = oracle(CacheGroup(), CacheGroup("chunked", 0, 4))
    assert watch.record(StepRecord(1, (two_groups("a", [1, 2, 3], 0, (1, 2), (3, 4)),))) == []
    found = watch.record(StepRecord(2, (two_groups("b", [1, 2, 4], 2, (1, 5), (1, 6)),)))
    assert [(wrong.step, wrong.group, wrong.block) for wrong in found] == [(2, 1, 1)]


def test_a_group_for_which_no_further_blocks_are_told_keeps_its_table():
    watch = oracle(CacheGroup(), CacheGroup("sliding", 0, 2))
    watch.record(StepRecord(1, (two_groups("a", [1, 2, 3], 0, (1, 2), (3, 4)),)))
    part = ComputedTokens("a", TokenChain((1, 2, 3, 4)), 3, 1, ((),), replaced=False)
    assert watch.record(StepRecord(2, (part,))) == []


def test_groups_and_block_sizes_belong_together():
    with pytest.raises(ValueError, match="zip"):
        StepOracle(8, FULL, [2, 2])


def test_every_reader_of_a_step_is_told():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    wrong, right = tokens("b", [9, 2, 3], 2, 1, 3), tokens("c", [1, 2, 3], 2, 1, 4)
    assert [found.reader for found in watch.record(StepRecord(2, (wrong, right)))] == ["b"]


def test_who_has_ended_begins_anew_under_the_same_name():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    watch.record(StepRecord(2, (), ended=("a", "never seen")))
    assert watch.record(StepRecord(3, (tokens("a", [7, 8], 0, 5, replaced=False),))) == []
    assert watch.counts.admissions == 2


def test_a_replaced_table_replaces_what_was_known():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3], 0, 1, 2),)))
    watch.record(StepRecord(2, (tokens("b", [7, 8], 0, 1),)))
    assert watch.record(StepRecord(3, (tokens("a", [1, 2, 3], 0, 3, 4),))) == []
    assert watch.record(StepRecord(4, (tokens("a", [1, 2, 3], 0, 5, 6),))) == []
    assert (watch.counts.resumes, watch.counts.admissions) == (2, 4)


def test_one_token_taken_as_it_stood_is_a_hit():
    watch = oracle(block_size=1)
    watch.record(StepRecord(1, (tokens("a", [1, 2], 0, 1, 2),)))
    assert watch.record(StepRecord(2, (tokens("b", [1, 3], 1, 1, 3),))) == []
    assert watch.counts.admissions_with_hits == 1


def test_what_one_computes_itself_is_no_hit_of_the_same_step():
    watch = oracle()
    watch.record(StepRecord(1, (tokens("a", [1, 2, 3, 4, 5], 0, 1, 2, 3),)))
    assert watch.record(StepRecord(2, (tokens("b", [1, 2, 3, 4, 6], 4, 1, 2, 1),))) != []
    assert watch.counts.same_step_hits == 0


def test_tokens_that_all_change_are_those_of_their_group():
    watch = oracle(*FULL, *FULL)
    watch.record(StepRecord(1, (two_groups("a", [1, 2], 0, (1,), (2,)),)))
    part = two_groups("a", [3, 4], 0, (), (), replaced=False)
    assert watch.record(StepRecord(2, (part,))) == []
    assert watch.record(StepRecord(3, (two_groups("b", [3, 4, 5], 2, (1, 3), (2, 4)),))) == []


def test_tokens_that_all_change_have_the_setting_of_the_chain():
    watch = oracle()
    salted = TokenChain((1, 2), None, "x")
    watch.record(StepRecord(1, (tokens("a", salted, 0, 1),)))
    grown = TokenChain((3, 4), None, "x")
    assert watch.record(StepRecord(2, (tokens("a", grown, 0, replaced=False),))) == []
    behind = TokenChain((3, 4, 5), None, "x")
    assert watch.record(StepRecord(3, (tokens("b", behind, 2, 1, 2),))) == []


def test_images_count_from_their_place_in_tokens_that_follow():
    watch = oracle()
    shown = (Image("p", 1, 2),)
    first, grown = (TokenChain((1, 1, 1)[:end], images=shown) for end in (2, 3))
    watch.record(StepRecord(1, (tokens("a", first, 0, 1),)))
    watch.record(StepRecord(2, (tokens("a", grown, 2, 2, replaced=False),)))
    behind = TokenChain((1, 1, 1, 1), images=shown)
    assert watch.record(StepRecord(3, (tokens("b", behind, 3, 1, 2),))) == []


@pytest.mark.parametrize(("count", "shown"), [(12, "<1 1 1 1 1"), (13, "<1 1 1 1 ... (13 tokens)")])
def test_twelve_tokens_are_shown_whole(count, shown):
    watch = oracle(CacheGroup("sliding", 0, 2), block_size=1)
    part = tokens("a", [1] * (count + 1), count, *[3] * count, 4)
    (found,) = watch.record(StepRecord(1, (part,)))
    assert shown in found.sentence()


def test_a_kind_of_group_that_nobody_knows_is_not_watched():
    with pytest.raises(ValueError, match="groups of kind 'ring' are not watched"):
        oracle(CacheGroup("ring"))


def test_it_says_which_prefixes_a_request_was_computed_for():
    watch = oracle(CacheGroup(), CacheGroup())
    assert watch.computed_of("a") == ()
    part = ComputedTokens("a", TokenChain((1, 2, 3)), 0, 3, ((1, 2), (3, 4)), True)
    watch.record(StepRecord(1, (part,)))
    first, second = watch.computed_of("a")
    assert (len(first), len(second)) == (3, 3)
    assert watch.held(1) == first[:2]
    watch.record(StepRecord(2, (), ended=("a",)))
    assert watch.computed_of("a") == ()


def test_oracles_that_share_names_hold_the_same_where_the_same_was_computed():
    names = ContentNames()
    one, two = (StepOracle(8, FULL, [2], names) for _ in range(2))
    two.record(StepRecord(1, (tokens("b", [7, 7], 0, 2),)))
    for watch in (one, two):
        watch.record(StepRecord(2, (tokens("a", [1, 2], 0, 1),), stores=((1, 70),)))
    assert one.held(1) == two.held(1)
    assert one.kept() == two.kept() == {70: one.held(1)}


def test_what_a_block_of_states_holds_is_told_with_its_slots():
    watch = StepOracle(4, [CacheGroup("state")], [2])
    use = StateUse(0, None, ((2, (1, 0)),), parts=PARTS)
    part = ComputedTokens("a", TokenChain((1, 2)), 0, 2, ((),), True, states=(use,))
    watch.record(StepRecord(1, (part,), stores=((1, 70), (2, 71))))
    after = watch.computed_of("a")[0][-1]
    told = tuple((part, 0, after) for part in sorted(PARTS))
    assert watch.held(1)[2:] == told
    assert watch.held(2)[2:] == ()
    assert {place: held[2:] for place, held in watch.kept().items()} == {70: told, 71: ()}
    watch.void()
    assert watch.held(1)[2:] == ("no state",)
