"""Reports add up whatever their order; what is known already is not news."""

import dataclasses
import itertools
import pickle

import pytest

from poolproof.fuzz.corpus import distilled
from poolproof.fuzz.merge import CampaignState, merge
from poolproof.fuzz.messages import CorpusTape, MessageError, WorkerReport
from poolproof.fuzz.state_numbers import pack, unpack
from poolproof.fuzz.status import CampaignStatus, CurvePoint, FindingLine


def report(states: list[int], tape: bytes, **more: object) -> WorkerReport:
    kept = CorpusTape(tape, pack(states), 10, "fresh")
    depths = bytes(len(states))
    return WorkerReport("0/0/0", 10, 1, 0.5, pack(states), depths, (kept,), **more)


REPORTS = [
    report([1, 2, 3], b"aa", facts=frozenset({"x"})),
    report([3, 4], b"bb", facts=frozenset({"y"})),
    report([5], b"cc"),
]


def test_the_order_of_reports_does_not_matter():
    known = []
    for order in itertools.permutations(REPORTS):
        state = CampaignState()
        for one in order:
            merge(state, one)
        known.append(
            (state.states, state.facts, state.num_steps, sum(state.num_states_by_depth.values()))
        )
    assert all(one == known[0] for one in known)
    assert known[0] == ({1, 2, 3, 4, 5}, {"x", "y"}, 30, 5)


def test_states_that_are_known_are_no_news():
    state = CampaignState()
    assert set(unpack(merge(state, REPORTS[0]).states)) == {1, 2, 3}
    news = merge(state, REPORTS[1])
    assert unpack(news.states) == (4,)
    assert merge(state, REPORTS[1]).tapes == ()
    assert len(state.corpus) == 2


def test_a_report_of_another_version_is_refused():
    with pytest.raises(MessageError) as refused:
        merge(CampaignState(), dataclasses.replace(REPORTS[0], version=2))
    assert "install the same Poolproof on every machine" in str(refused.value)


def test_messages_can_be_pickled():
    assert pickle.loads(pickle.dumps(REPORTS)) == REPORTS  # noqa: S301 -- our own bytes


def test_distillation_keeps_the_fewest_tapes_that_visit_everything():
    corpus = {
        "a": CorpusTape(b"a", pack([1, 2]), 5, ""),
        "b": CorpusTape(b"b", pack([1, 2, 3, 4]), 9, ""),
        "c": CorpusTape(b"c", pack([4]), 1, ""),
        "d": CorpusTape(b"d", pack([5]), 1, ""),
    }
    assert list(distilled(corpus)) == ["b", "d"]


def test_a_status_survives_the_way_through_json():
    import json

    status = CampaignStatus(
        target="t", level="pool", scope="s", activity="running",
        curve=(CurvePoint(1, 0.5, 2),), num_states_by_depth={3: 4},
        findings=(FindingLine("f-1", "I1", "leak", "lost", 2, 3, 0.1, 5),),
        seeds=("0/0",),
    )  # fmt: skip
    assert CampaignStatus.from_json(json.loads(json.dumps(status.to_json()))) == status
