"""Workers that disagree about what is new, report late or twice: the coordinator comes to the same.

Counters add up and are therefore left out where a report is merged twice.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from poolproof.fuzz.merge import CampaignState, merge
from poolproof.fuzz.messages import CorpusTape, WorkerReport
from poolproof.fuzz.state_numbers import pack, unpack

STATES = st.frozensets(st.integers(0, 12), max_size=6)


@st.composite
def reports(draw):
    """Reports as workers make them: each new state is visited by one of the tapes."""
    made = []
    for number in range(draw(st.integers(1, 4))):
        known = draw(STATES)
        tapes, new = [], []
        for visited in draw(st.lists(STATES, max_size=3)):
            fresh = sorted(visited - known - set(new))
            new += fresh
            if fresh:
                tape = bytes([number, len(tapes)])
                tapes.append(CorpusTape(tape, pack(sorted(visited)), 10, "fresh"))
        # What it knew came from others, so that somebody reports it.
        before = CorpusTape(bytes([number, 99]), pack(sorted(known)), 10, "fresh")
        states = [*sorted(known), *new]
        facts = frozenset({f"fact {number % 2}"})
        made.append(
            WorkerReport(
                f"0/0/{number}", 10, 1, 0.5, pack(states), bytes(len(states)),
                (before, *tapes), facts=facts, num_failing_runs_of={"I1": number},
            )
        )  # fmt: skip
    return made


def merged(these):
    state = CampaignState()
    for report in these:
        merge(state, report)
    return state


def known_of(state):
    return state.states, state.facts, sum(state.num_states_by_depth.values())


@given(reports(), st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter(made, source):
    shuffled = list(made)
    source.shuffle(shuffled)
    first, second = merged(made), merged(shuffled)
    assert known_of(first) == known_of(second)
    assert (first.num_steps, first.num_failing_runs_of) == (
        second.num_steps,
        second.num_failing_runs_of,
    )


@given(reports())
def test_a_report_that_is_merged_again_brings_no_news(made):
    state = merged(made)
    before = known_of(state), dict(state.corpus)
    for report in made:
        news = merge(state, report)
        assert (news.states, news.tapes) == (b"", ())
    assert (known_of(state), state.corpus) == before


@given(reports(), st.randoms(use_true_random=False))
def test_whatever_the_order_the_corpus_visits_all_that_is_known(made, source):
    shuffled = list(made)
    source.shuffle(shuffled)
    state = merged(shuffled)
    visited = {number for tape in state.corpus.values() for number in unpack(tape.states)}
    assert visited == state.states


@given(reports(), st.integers(0, 4))
def test_two_coordinators_that_merge_each_a_part_know_together_what_one_knows(made, cut):
    both = merged(made[:cut]).states | merged(made[cut:]).states
    assert both == merged(made).states
