"""Workers in processes: they learn from each other, and a target that kills one is a finding."""

from pathlib import Path

import pytest

from poolproof.cli.fuzz_target import FuzzOptions, fuzz_target
from poolproof.fuzz.coordinator import CampaignBudget
from poolproof.fuzz.folder import read_findings, read_status
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.isolation import Isolation, Limits

HOSTILE = Path(__file__).parent.parent / "certification" / "hostile_targets.py"

pytestmark = pytest.mark.skipif(not Isolation.is_available, reason="needs fork()")


def fuzz(target: str, folder: Path, steps: int) -> int:
    options = FuzzOptions(
        folder=folder,
        merge=(),
        examples=None,
        workers=2,
        budget=CampaignBudget(steps=steps),
        in_process=False,
        limits=Limits(call_timeout_s=5.0, memory_mib=300),
    )
    return fuzz_target(CampaignSettings(target, None, 0), options)


def test_two_workers_share_what_they_know(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fuzz("impl[misuse=undefined]", tmp_path / "folder", 8_000) in {0, 2}
    status = read_status(tmp_path / "folder")[1]
    assert status.num_workers_lost == 0
    assert status.num_states > 1_000


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("ExitsTheProcess", "ended the process with exit status 7"),
        ("Segfaults", "killed the process with SIGSEGV"),
        ("DiesWhenBuilt", "constructing the target"),
    ],
)
def test_a_target_that_kills_its_worker_is_a_finding(name, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert fuzz(f"{HOSTILE}:{name}", tmp_path / "folder", 20) == 1
    findings = read_findings(tmp_path / "folder")
    assert any(sentence in finding.trace.violation.sentence for finding in findings)
    assert read_status(tmp_path / "folder")[1].num_workers_lost > 0
    assert findings[0].fingerprint in capsys.readouterr().out
