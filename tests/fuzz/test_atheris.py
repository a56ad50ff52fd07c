"""Workers whose tapes libFuzzer makes: with a stand-in for Atheris, and with the real one."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.certification.fuzz_examiner import TargetExaminer
from poolproof.cli.fuzz_target import atheris_workers, check_atheris
from poolproof.contract.target import TargetError
from poolproof.fuzz.atheris_driver import STRATEGY
from poolproof.fuzz.coordinator import Campaign, CampaignBudget
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.merge import name_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.isolation import Isolation, Limits
from poolproof.targets.load import load_target

HERE = Path(__file__).parent
SETTINGS = CampaignSettings("impl", "pool", 4)


@pytest.fixture(name="atheris")
def atheris_(monkeypatch):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("atheris", HERE / "fake_atheris.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "atheris", module)
    return module


class SeesOnly(TargetExaminer):
    """Names the culprit of a loss and leaves its trace: minimising hangs takes a minute."""

    def examined(self, so_far, seconds):
        return replace(so_far, is_done=True)


def campaign(settings, path, budget, *, seconds=20.0, examiner=TargetExaminer):
    """One session with one worker: its last status, and what was said."""
    said = []
    limits = Limits(call_timeout_s=seconds)
    with (
        Isolation(lambda: load_target(settings.target), limits) as isolation,
        CampaignFolder(path, settings) as folder,
    ):
        workers = atheris_workers(isolation, 1, path)
        try:
            status = Campaign(
                settings,
                workers,
                folder,
                examiner(isolation, settings),
                budget=budget,
                scope="test",
                num_possible=None,
                show=lambda _: None,
                say=said.append,
            ).run()
        finally:
            workers.close()
    return status, said


def test_a_campaign_takes_its_tapes_from_libfuzzer(tmp_path, atheris):
    status, said = campaign(SETTINGS, tmp_path, CampaignBudget(steps=3_000))
    assert said == []
    assert set(status.runs_of_strategy) == {STRATEGY}
    assert status.num_steps >= 3_000
    assert status.corpus_size > 0


def test_the_steps_of_the_budget_are_kept_to_a_run(tmp_path, atheris):
    status, _ = campaign(SETTINGS, tmp_path, CampaignBudget(steps=500))
    assert 500 <= status.num_steps <= 500 + 1_000


def test_the_corpus_is_shared_both_ways(tmp_path, atheris):
    campaign(SETTINGS, tmp_path, CampaignBudget(steps=2_000))
    files = {path.name for path in (tmp_path / "libfuzzer" / "corpus").iterdir()}
    assert any(name.startswith("made-") for name in files)
    with CampaignFolder(tmp_path, SETTINGS) as folder:
        kept = [tape.tape for tape in folder.load().corpus.values()]
    assert kept
    campaign(SETTINGS, tmp_path, CampaignBudget(steps=200))
    files = {path.name for path in (tmp_path / "libfuzzer" / "corpus").iterdir()}
    assert {name_of(tape) for tape in kept} <= files


def test_a_violation_is_a_finding_that_is_minimised(tmp_path, atheris):
    settings = CampaignSettings(f"{HERE}/planted.py:TouchesTwice", "pool", 4)
    _, said = campaign(settings, tmp_path, CampaignBudget(steps=4_000))
    assert said
    assert all(len(finding.trace.commands) <= 5 for finding in said)


@pytest.mark.parametrize(
    ("end", "how"),
    [
        ("os._exit(3)", "exit status 3"),
        pytest.param("time.sleep(600)", "did not return", marks=pytest.mark.deep),
    ],
)
def test_a_target_that_costs_the_process_is_a_finding(tmp_path, atheris, monkeypatch, end, how):
    # One hang is enough: each costs the time limit, and once more when it is run again.
    monkeypatch.setattr("poolproof.fuzz.coordinator.MOST_LOSSES", 1)
    path = tmp_path / "ends.py"
    path.write_text(
        "import os, time\n"
        "from poolproof.impl.block_pool import BlockPool\n"
        "class Ends(BlockPool):\n"
        "    def free(self, block_ids):\n"
        f"        {end}\n"
    )
    settings = CampaignSettings(f"{path}:Ends", "pool", 4)
    budget = CampaignBudget(steps=500)
    status, said = campaign(settings, tmp_path / "c", budget, seconds=2.0, examiner=SeesOnly)
    assert status.num_workers_lost > 0
    assert any(how in finding.trace.violation.sentence for finding in said)


def test_what_is_wrong_in_the_driver_is_raised_where_it_is_heard(tmp_path, atheris):
    atheris.Setup = None
    with pytest.raises(RuntimeError) as raised:
        campaign(SETTINGS, tmp_path, CampaignBudget(steps=100))
    assert "TypeError" in str(raised.value)


def test_atheris_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "atheris", None)
    with pytest.raises(TargetError) as refused:
        check_atheris()
    assert "pip install 'poolproof[atheris]'" in str(refused.value)


def test_libfuzzer_gets_no_process_of_ours(atheris):
    with pytest.raises(TargetError) as refused:
        check_atheris(in_process=True)
    assert "leave out --in-process" in str(refused.value)


@pytest.mark.atheris
def test_the_real_libfuzzer_finds_a_planted_bug(tmp_path):
    pytest.importorskip("atheris", reason="Atheris is not installed: make test-atheris")
    settings = CampaignSettings(f"{HERE}/planted.py:TouchesTwice", "pool", 4)
    status, said = campaign(settings, tmp_path, CampaignBudget(steps=10_000))
    assert set(status.runs_of_strategy) == {STRATEGY}
    assert said


@pytest.mark.atheris
def test_the_real_libfuzzer_sees_the_branches_of_the_target(tmp_path):
    pytest.importorskip("atheris", reason="Atheris is not installed: make test-atheris")
    campaign(SETTINGS, tmp_path, CampaignBudget(steps=10_000))
    assert len(list((tmp_path / "libfuzzer" / "corpus").iterdir())) > 10
