"""A campaign's folder of which something cannot be read: the rest of it is, and counts."""

import json
import sqlite3
from dataclasses import replace

import pytest

from poolproof.contract.commands import Allocate, Free
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.fuzz.findings import CampaignFinding, Pending
from poolproof.fuzz.folder import (
    CampaignFolder,
    FolderError,
    merge_folder,
    read_everything,
    read_findings,
)
from poolproof.fuzz.folder_tables import DATABASE, checked
from poolproof.fuzz.merge import CampaignState, News
from poolproof.fuzz.messages import CorpusTape
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus, CurvePoint
from poolproof.report.campaign_document import campaign_document
from poolproof.report.campaign_record import read_record
from poolproof.report.text_form import plain_text

SETTINGS = CampaignSettings("impl", "pool", 3)
LEAK = Violation("OWN", Severity.LEAK, "block 1 has no owner")
TRACE = Trace("impl", "pool", Profile(), 3, True, (Allocate(1), Free((0,))), LEAK)
STATUS = CampaignStatus(
    target="impl", level="pool", scope="3 blocks", activity="done",
    curve=(CurvePoint(1, 0.1, 1),), num_states_by_depth={0: 1}, seeds=("0/0",),
)  # fmt: skip


def finding(name):
    return CampaignFinding(name, "OWN", replace(TRACE, fingerprint=name), b"tape", 40, 0.5)


@pytest.fixture
def campaign(tmp_path):
    """A folder with two findings, a failing run, and a corpus of two tapes."""
    path = tmp_path / "campaign"
    tapes = tuple(CorpusTape(bytes([n]), pack([n]), 9, "fresh") for n in range(2))
    with CampaignFolder(path, SETTINGS) as folder:
        state = CampaignState(num_steps=900, num_runs=9)
        pending = Pending(TRACE, b"tape", 70, 0.9)
        folder.record([News(pack([0, 1]), tapes)], state, STATUS, [pending])
        folder.add_finding(finding("f-00000001"))
        folder.add_finding(finding("f-00000002"))
    return path


def change(path, statement, *values):
    database = sqlite3.connect(path / DATABASE)
    with database:
        database.execute(statement, values)
    database.close()


OF_THE_FIRST = [
    "UPDATE findings SET trace = '{' WHERE fingerprint = 'f-00000001'",
    "UPDATE findings SET trace = 7 WHERE fingerprint = 'f-00000001'",
    "UPDATE findings SET steps = 'many' WHERE fingerprint = 'f-00000001'",
    "UPDATE findings SET seconds = 9e999 WHERE fingerprint = 'f-00000001'",
    "UPDATE findings SET tape = 'text' WHERE fingerprint = 'f-00000001'",
    (
        "UPDATE findings SET trace = (SELECT trace FROM findings WHERE fingerprint = 'f-00000002')"
        " WHERE fingerprint = 'f-00000001'"
    ),
]


@pytest.mark.parametrize("statement", OF_THE_FIRST)
def test_one_damaged_finding_hides_no_other(campaign, statement):
    change(campaign, statement)
    record = read_record(campaign)
    assert [line.fingerprint for line in record.findings] == ["f-00000002"]
    (sentence,) = record.damage
    assert sentence.startswith("the finding f-00000001 cannot be read: ")
    assert "damaged    the finding f-00000001" in plain_text(campaign_document(record))


def test_a_finding_that_cannot_be_read_counts_as_broken(campaign):
    change(campaign, "DELETE FROM pending")
    change(campaign, "DELETE FROM findings WHERE fingerprint = 'f-00000002'")
    assert read_record(campaign).exit_status == 1
    change(campaign, OF_THE_FIRST[0])
    record = read_record(campaign)
    assert (record.findings, record.waiting) == ((), ())
    assert record.exit_status == 1


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE about SET value = 'x' WHERE key = 'progress'", "what was counted"),
        ("UPDATE about SET value = '[]' WHERE key = 'status'", "the status"),
        ("UPDATE tapes SET states = x'00' WHERE num_steps = 9", "the tape "),
        ("UPDATE states SET packed = x'00'", "a row of states"),
        ("UPDATE pending SET name = 'other'", "the failing run other"),
        ("UPDATE pending SET name = NULL", "the failing run without a name"),
    ],
)
def test_a_campaign_goes_on_with_what_can_be_read(campaign, statement, what):
    change(campaign, statement)
    with CampaignFolder(campaign, SETTINGS) as folder:
        folder.load()
        folder.status()
        folder.pending()
        assert [found.fingerprint for found in folder.findings()] == ["f-00000001", "f-00000002"]
        assert folder.damage.sentences
        assert all(sentence.startswith(what) for sentence in folder.damage.sentences)


def test_a_damaged_finding_that_is_found_again_is_replaced(campaign):
    change(campaign, OF_THE_FIRST[0])
    with CampaignFolder(campaign, SETTINGS) as folder:
        assert len(folder.findings()) == 1
        assert folder.add_finding(finding("f-00000001"))
    assert len(read_findings(campaign)) == 2


def test_a_status_of_other_types_is_not_shown(campaign):
    for wrong in ('"many"', "1e400", "-1", "NaN", str(10**40), "[" * 3_000):
        with CampaignFolder(campaign, SETTINGS) as folder:
            folder._set("status", STATUS.to_json())
        change(
            campaign,
            "UPDATE about SET value = replace(value, '\"num_steps\": 0', ?) WHERE key = 'status'",
            f'"num_steps": {wrong}',
        )
        record = read_record(campaign)
        assert record.status is None
        assert len(record.findings) == 2


def test_a_file_that_was_cut_short_is_read_as_far_as_it_goes(campaign):
    # So large that what stands behind it is on pages of its own.
    with CampaignFolder(campaign, SETTINGS) as folder:
        tape = CorpusTape(bytes(200_000), pack([5]), 9, "fresh")
        folder.record([News(pack([5]), (tape,))], CampaignState(), STATUS)
    file = campaign / DATABASE
    file.write_bytes(file.read_bytes()[:-100_000])
    assert len(read_findings(campaign)) == 2
    record = read_record(campaign)
    assert len(record.findings) == 2
    with pytest.raises(FolderError) as refused, CampaignFolder(campaign, SETTINGS) as folder:
        folder.load()
    assert "taken over by `poolproof fuzz ... --folder NEW --merge`" in str(refused.value)
    with CampaignFolder(campaign.parent / "new", SETTINGS) as folder:
        merged = merge_folder(folder, SETTINGS, STATUS, campaign)
        assert merged.num_findings == 1  # the two have one symptom
        assert merged.damage.sentences == (
            "the rest of the table tapes cannot be read: database disk image is malformed",
        )
        assert len(folder.pending()) == 1


def test_what_a_folder_is_about_has_to_be_readable(campaign):
    for value in ("[]", "{", '"x"', json.dumps({**SETTINGS.to_json(), "num_blocks": "x"})):
        change(campaign, "UPDATE about SET value = ? WHERE key = 'settings'", value)
        with pytest.raises(FolderError) as refused:
            read_everything(campaign)
        assert "which campaign it holds cannot be read any more" in str(refused.value)


def test_plain_fields_are_checked_by_what_they_say():
    assert checked(STATUS) is STATUS
    for changes in (
        {"num_steps": True}, {"seconds": float("inf")}, {"num_possible": "x"}, {"seeds": (1,)},
        {"curve": (None,)}, {"num_states_by_depth": {0: -1}}, {"scope": None},
    ):  # fmt: skip
        (name,) = changes
        with pytest.raises(TypeError, match=name):
            checked(replace(STATUS, **changes))
