"""A campaign in one process: what it reaches, keeps, says, and takes up again."""

import itertools
from dataclasses import replace

import pytest

from poolproof.exploration.scope import Scope
from poolproof.fuzz.coordinator import CampaignBudget
from poolproof.fuzz.folder import (
    CampaignFolder,
    FolderError,
    merge_folder,
    read_findings,
    read_status,
)
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.workers import InProcessWorkers

SMALL = CampaignSettings("impl", "pool", 4)
PLANTED = CampaignSettings("tests/fuzz/planted.py:TouchesTwice", "pool", 6)


def test_a_small_scope_is_reached_completely(run_campaign):
    with CampaignFolder(None, SMALL) as folder:
        status, _, said = run_campaign(SMALL, folder, CampaignBudget(steps=12_000))
    assert status.num_states == Scope(4).num_orbits
    assert status.corpus_size > 0
    assert said == []


def test_the_same_seed_gives_the_same_campaign(run_campaign):
    def told(status):
        return (status.num_steps, status.num_runs, status.num_states, status.corpus_size)

    outcomes = []
    for seed in (1, 1, 2):
        settings = replace(SMALL, seed=seed)
        with CampaignFolder(None, settings) as folder:
            outcomes.append(told(run_campaign(settings, folder, CampaignBudget(steps=3_000))[0]))
    assert outcomes[0] == outcomes[1] != outcomes[2]


def test_workers_that_join_late_are_counted(run_campaign, monkeypatch):
    numbers = itertools.count(1)
    monkeypatch.setattr(InProcessWorkers, "num_workers", property(lambda _: next(numbers)))
    with CampaignFolder(None, SMALL) as folder:
        _, shown, _ = run_campaign(SMALL, folder, CampaignBudget(steps=1_000))
    assert shown[0].num_workers < shown[-1].num_workers


def test_a_quiet_campaign_ends(run_campaign):
    settings = CampaignSettings("impl", "queue", 2)
    with CampaignFolder(None, settings) as folder:
        status, _, _ = run_campaign(settings, folder, CampaignBudget(quiet_steps=10_000))
    assert status.num_states == 5
    assert status.steps_since_new >= 10_000


def test_a_session_goes_on_where_the_last_one_ended(tmp_path, run_campaign):
    with CampaignFolder(tmp_path, SMALL) as folder:
        first, _, _ = run_campaign(SMALL, folder, CampaignBudget(steps=2_000))
    assert read_status(tmp_path)[1] == first
    with CampaignFolder(tmp_path, SMALL) as folder:
        second, shown, _ = run_campaign(SMALL, folder, CampaignBudget(steps=2_000))
    assert shown[0].num_states >= first.num_states
    assert second.num_steps >= first.num_steps + 2_000
    assert second.seeds == ("0/0", "0/1")


def test_a_finding_is_said_once_over_all_sessions(tmp_path, run_campaign):
    said = []
    for _ in range(2):
        with CampaignFolder(tmp_path, PLANTED) as folder:
            said += run_campaign(PLANTED, folder, CampaignBudget(steps=2_000))[2]
    names = [finding.fingerprint for finding in said]
    assert names
    assert len(names) == len(set(names))
    assert {finding.fingerprint for finding in read_findings(tmp_path)} == set(names)
    assert all(len(finding.trace.commands) <= 5 for finding in said)


def test_a_failing_run_that_was_not_minimised_in_time_is_taken_up(tmp_path, run_campaign):
    with CampaignFolder(tmp_path, PLANTED) as folder:
        run_campaign(PLANTED, folder, CampaignBudget(steps=300))
        first = folder.findings()[0]
    other = tmp_path / "other"
    with CampaignFolder(other, PLANTED) as folder:
        from poolproof.fuzz.findings import Pending
        from poolproof.fuzz.merge import CampaignState

        status = read_status(tmp_path)[1]
        left = Pending(first.trace, first.tape, 7, 0.5)
        folder.record((), CampaignState(), status, [left])
    with CampaignFolder(other, PLANTED) as folder:
        _, _, said = run_campaign(PLANTED, folder, CampaignBudget(steps=1))
        assert folder.pending() == []
    assert said[0].fingerprint == first.fingerprint
    assert said[0].steps == 7


def test_merging_twice_changes_nothing(tmp_path, run_campaign):
    for name, seed in (("a", 1), ("b", 2)):
        settings = replace(PLANTED, seed=seed)
        with CampaignFolder(tmp_path / name, settings) as folder:
            run_campaign(settings, folder, CampaignBudget(steps=1_500))
    with CampaignFolder(tmp_path / "a", PLANTED) as folder:
        status = folder.status()
        first = merge_folder(folder, PLANTED, status, tmp_path / "b")
        again = merge_folder(folder, PLANTED, status, tmp_path / "b")
        states = folder.load().states
    assert first.num_states > 0
    assert (again.num_states, again.num_tapes, again.num_findings) == (0, 0, 0)
    with CampaignFolder(tmp_path / "b", PLANTED) as folder:
        assert folder.load().states <= states


def test_a_folder_of_another_campaign_is_refused(tmp_path):
    CampaignFolder(tmp_path, SMALL).close()
    with pytest.raises(FolderError) as refused:
        CampaignFolder(tmp_path, replace(SMALL, num_blocks=5))
    assert "num_blocks is 4 there and 5 here" in str(refused.value)


def test_two_campaigns_on_one_folder_are_refused(tmp_path):
    with CampaignFolder(tmp_path, SMALL), pytest.raises(FolderError) as refused:
        CampaignFolder(tmp_path, SMALL)
    assert "another campaign works on" in str(refused.value)


def test_a_folder_of_a_newer_version_is_refused(tmp_path):
    with CampaignFolder(tmp_path, SMALL) as folder:
        folder._set("version", 99)
    for look in (lambda: CampaignFolder(tmp_path, SMALL), lambda: read_status(tmp_path)):
        with pytest.raises(FolderError) as refused:
            look()
        assert "has campaign version 99, this Poolproof reads up to 4" in str(refused.value)


def test_what_is_no_campaign_is_named(tmp_path):
    with pytest.raises(FolderError) as refused:
        read_status(tmp_path)
    assert "holds no campaign" in str(refused.value)
    (tmp_path / "campaign.sqlite").write_text("something else entirely, and long enough" * 40)
    with pytest.raises(FolderError):
        CampaignFolder(tmp_path, SMALL)


def test_a_full_disk_keeps_what_was_recorded(tmp_path, run_campaign):
    with CampaignFolder(tmp_path, SMALL) as folder:
        first, _, _ = run_campaign(SMALL, folder, CampaignBudget(steps=500))
        pages = folder._database.execute("PRAGMA page_count").fetchone()[0]
        folder._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(FolderError) as refused:
            run_campaign(SMALL, folder, CampaignBudget(steps=60_000))
    assert "no space is left on the disk" in str(refused.value)
    assert read_status(tmp_path)[1].num_states >= first.num_states


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError) as refused:
        CampaignFolder(tmp_path / "file" / "below", SMALL)
    assert "cannot make the campaign's folder" in str(refused.value)
