"""Tapes as Hypothesis's examples and back."""

import hypothesis
import pytest
from hypothesis import database, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from poolproof.fuzz.coordinator import CampaignBudget
from poolproof.fuzz.example_database import export_tapes, import_tapes, key_of, tape_test
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.recorded_choices import tape_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.targets.load import load_target

pytestmark = pytest.mark.skipif(
    not hasattr(database, "choices_to_bytes"),
    reason=f"Hypothesis {hypothesis.__version__} does not tell how it keeps examples",
)

PLANTED = CampaignSettings("tests/fuzz/planted.py:TouchesTwice", "pool", 4)


def test_tapes_come_back_as_they_were_written(tmp_path):
    tapes = {b"\0\1\0\2", b"abc"}
    assert export_tapes(tmp_path, b"key", tapes) == 2
    assert set(import_tapes(tmp_path, b"key")) == tapes
    assert list(import_tapes(tmp_path, b"other")) == []


def test_integers_that_another_test_drew_are_answers(tmp_path):
    saved = database.choices_to_bytes((3, True, 70_000, "text"))
    DirectoryBasedExampleDatabase(tmp_path).save(b"key", saved)
    assert list(import_tapes(tmp_path, b"key")) == [tape_of([3, 1, 70_000 - 65_536])]


def test_a_finding_of_a_campaign_fails_at_once_in_hypothesis(tmp_path, run_campaign):
    with CampaignFolder(None, PLANTED) as folder:
        run_campaign(PLANTED, folder, CampaignBudget(steps=600))
        tapes = [finding.tape for finding in folder.findings()]
    export_tapes(tmp_path, key_of(PLANTED), tapes)
    test = tape_test(load_target(PLANTED.target), PLANTED)
    only_replay = settings(
        database=DirectoryBasedExampleDatabase(tmp_path),
        phases=[hypothesis.Phase.reuse],
        deadline=None,
    )
    with pytest.raises(AssertionError):
        only_replay(test)()
