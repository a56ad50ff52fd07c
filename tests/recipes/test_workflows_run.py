"""The workflows, step by step, in temporary checkouts: what they run is run, with small budgets."""

import pytest

GATE, CAMPAIGN = "poolproof-gate.yml", "poolproof-campaign.yml"
RIGHT, WRONG = "simple_pool.py:Pool", "stale_index.py:Pool"

pytestmark = pytest.mark.deep


def test_the_gate_passes_what_is_right_and_keeps_its_certificate(repository):
    passed = repository.run(GATE, RIGHT, "push", DEPTH="quick")
    assert passed.failed_steps == [], passed.log
    assert "HOLDS" in passed.summary
    assert "poolproof-report/junit.xml" in passed.artifacts["poolproof-report"]
    assert repository.service.cache_keys == ["poolproof-baseline-sha-0"]


def test_the_gate_fails_a_pull_request_for_what_the_main_branch_did_not_show(repository):
    refused = repository.run(GATE, WRONG, "pull_request", DEPTH="quick")
    assert refused.failed_steps == ["Certify"], refused.log
    assert "REFUSED" in refused.summary
    traces = [name for name in refused.artifacts["poolproof-report"] if name.endswith(".jsonl")]
    assert traces
    assert repository.service.cache_keys == []
    on_main = repository.run(GATE, WRONG, "push", DEPTH="quick")
    assert on_main.failed_steps == ["Certify"], on_main.log
    passed = repository.run(GATE, WRONG, "pull_request", DEPTH="quick")
    assert passed.failed_steps == [], passed.log
    assert repository.service.cache_keys == ["poolproof-baseline-sha-1"]


def test_a_gate_without_a_target_leaves_all_to_the_project(repository):
    table = f'[tool.poolproof]\ntargets = ["{RIGHT}", "{WRONG}"]\ndepth = "quick"\n'
    refused = repository.run(GATE, "", "push", project=table)
    assert refused.failed_steps == ["Certify"], refused.log
    assert "HOLDS" in refused.summary
    assert "REFUSED" in refused.summary
    assert (
        "poolproof-report/1-simple_pool-py-pool/certificate.json"
        in (refused.artifacts["poolproof-report"])
    )


def test_the_second_night_goes_on_where_the_first_ended(repository):
    first = repository.run(CAMPAIGN, RIGHT, "schedule", CAMPAIGN_SECONDS="3")
    assert first.failed_steps == [], first.log
    assert first.artifacts["poolproof-campaign"] == ["poolproof-campaign.html"]
    second = repository.run(CAMPAIGN, RIGHT, "schedule", CAMPAIGN_SECONDS="3")
    assert second.failed_steps == [], second.log
    assert "seeds 0/0, 0/1" in " ".join(second.summary.split()), second.summary
    assert len(repository.service.cache_keys) == 2


def test_a_finding_fails_this_night_and_the_next_and_its_trace_is_kept(repository):
    found = repository.run(CAMPAIGN, WRONG, "schedule", CAMPAIGN_SECONDS="3")
    assert found.failed_steps == ["Campaign"], found.log
    kept = found.artifacts["poolproof-campaign"]
    # On a slow machine three seconds may not be enough to minimise it.
    kinds = (".poolproof/findings/f-", ".poolproof/findings/p-")
    assert any(name.startswith(kinds) for name in kept)
    assert "f-" in found.summary or "p-" in found.summary
    assert "nothing was broken" not in found.summary
    again = repository.run(CAMPAIGN, WRONG, "schedule", CAMPAIGN_SECONDS="3")
    assert again.failed_steps == ["Campaign"]
    assert "known " in again.log or "waiting " in again.log


def test_a_target_that_is_not_there_fails_in_one_line_and_leaves_nothing(repository):
    missing = repository.run(GATE, "nowhere.py:Pool", "push", DEPTH="quick")
    assert missing.failed_steps == ["Certify"]
    assert "nowhere.py" in missing.log
    assert "Traceback" not in missing.log
    assert missing.artifacts == {}
    assert repository.service.cache_keys == []
