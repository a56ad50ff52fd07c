"""Generated request traces: seeded, in the format, and distributed as stated."""

from itertools import islice, pairwise

import pytest

from poolproof.harness.request_generator import RequestMix, generate_requests, write_requests
from poolproof.harness.request_trace import TOKENS_PER_ID, read_requests


def first(count, seed=1, **rows):
    return list(islice(generate_requests(seed, RequestMix(**rows)), count))


def test_the_same_seed_gives_the_same_requests():
    assert first(50) == first(50)
    assert first(50) != first(50, seed=2)


def test_what_is_written_is_a_request_trace(tmp_path):
    requests = first(50)
    write_requests(tmp_path / "requests.jsonl", requests)
    assert read_requests(tmp_path / "requests.jsonl") == requests


def test_an_id_always_stands_behind_the_same_prefix():
    parents = {}
    for request in first(300):
        for parent, own in zip((None, *request.hash_ids), request.hash_ids, strict=False):
            assert parents.setdefault(own, parent) == parent


def test_a_retry_repeats_the_request_before_it():
    requests = first(300, retry_probability=0.2)
    pairs = list(pairwise(requests))
    repeated = [one for one, two in pairs if one.hash_ids == two.hash_ids]
    assert 30 < len(repeated) < 90
    assert all(b.timestamp_ms >= a.timestamp_ms for a, b in pairs)


def test_without_retries_a_partial_id_is_never_shared():
    requests = first(300, retry_probability=0.0)
    partial = [r.hash_ids[-1] for r in requests if r.input_length % TOKENS_PER_ID]
    assert len(set(partial)) == len(partial)


def test_without_conversations_only_system_prompts_are_shared():
    alone = {"continue_probability": 0.0, "retry_probability": 0.0, "max_system_blocks": 0}
    requests = first(100, **alone)
    ids = [own for request in requests for own in request.hash_ids]
    assert len(set(ids)) == len(ids)


def test_conversations_share_more_than_system_prompts():
    def distinct_share(probability):
        ids = [i for r in first(300, continue_probability=probability) for i in r.hash_ids]
        return len(set(ids)) / len(ids)

    assert distinct_share(0.9) < distinct_share(0.0) / 1.5


def test_popular_system_prompts_are_used_more():
    requests = first(2000, continue_probability=0.0, max_system_blocks=1, num_system_prompts=8)
    uses = {}
    for request in requests:
        uses[request.hash_ids[0]] = uses.get(request.hash_ids[0], 0) + 1
    shared = sorted((count for count in uses.values() if count > 1), reverse=True)
    assert shared[0] > 2 * shared[-1]


def test_prompts_stay_near_the_longest_allowed():
    requests = first(500, max_input_length=4000, continue_probability=0.9)
    assert max(request.input_length for request in requests) < 4000 + 4000
    assert any(request.input_length > 2000 for request in requests)


def test_arrivals_do_not_go_back():
    times = [request.timestamp_ms for request in first(100)]
    assert times == sorted(times)
    assert times[-1] > 0


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ({"continue_probability": 1.5}, "continue_probability must be from 0 to 1, not 1.5"),
        ({"retry_probability": -1}, "retry_probability must be from 0 to 1, not -1"),
        ({"num_system_prompts": 0}, "there must be a system prompt"),
        ({"mean_user_length": 0}, "at least 1 token"),
        ({"mean_gap_ms": 0}, "mean_gap_ms must be above 0, not 0"),
    ],
)
def test_numbers_that_make_no_distribution_are_refused(rows, complaint):
    with pytest.raises(ValueError) as caught:
        RequestMix(**rows)
    assert complaint in str(caught.value)


def test_agents_open_branches_on_a_common_history():
    branching = {"retry_probability": 0.0, "max_system_blocks": 0, "mean_tool_length": 700}

    def branches(**rows):
        children = {}
        for request in first(300, **branching, **rows):
            whole = request.hash_ids[: request.input_length // TOKENS_PER_ID]
            for parent, own in pairwise(whole):
                children.setdefault(parent, set()).add(own)
        return sum(len(own) > 1 for own in children.values())

    assert branches(agent_probability=1.0, branch_probability=0.6) > 5
    assert branches(agent_probability=0.0) == 0
