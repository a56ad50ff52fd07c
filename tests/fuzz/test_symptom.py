"""Forms of one bug are one finding; what differs in kind or effect is not."""

from dataclasses import replace

import pytest

from poolproof.contract.commands import Allocate, Evict, Free, Touch
from poolproof.contract.manager_commands import Abort, Finish
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.trace_harm import TraceHarm
from poolproof.contract.violation import Severity, Violation
from poolproof.fuzz.coordinator import CampaignBudget
from poolproof.fuzz.findings import CampaignFinding, Pending, alike, line_of
from poolproof.fuzz.folder import CampaignFolder, merge_folder, read_forms
from poolproof.fuzz.merge import CampaignState
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.status import CampaignStatus, FindingLine
from poolproof.fuzz.symptom import symptom_of

PLANTED = CampaignSettings("tests/fuzz/planted.py:TouchesTwice", "pool", 6)
STATUS = CampaignStatus(target=PLANTED.target, level="pool", scope="", activity="done")
SENTENCE = "block 3 shows a reference count of 2, but has 3 owners (commands #1 and #2)"
COMMANDS = (Allocate(1), Free((0,)))


def trace_of(sentence=SENTENCE, *, commands=COMMANDS, invariant="OWN"):
    violation = Violation(invariant, Severity.LEAK, sentence)
    return Trace(PLANTED.target, "pool", Profile(), 6, True, commands, violation)


def finding_of(name, trace, steps=1):
    return CampaignFinding(name, "OWN", trace, b"", steps, 0.0)


@pytest.mark.parametrize(
    "other",
    [
        "block 12 shows a reference count of -1, but has 0 owners ()",
        "block 3 shows a reference count of 2, but has 3 owners (sequences A, B and C)",
    ],
)
def test_names_and_numbers_do_not_enter_a_symptom(other):
    assert symptom_of(trace_of()) == symptom_of(trace_of(other))


@pytest.mark.parametrize(
    ("one", "several"),
    [
        ("but 1 block is held by nobody", "but 3 blocks are held by nobody"),
        ("block 2 is held by nobody", "blocks 1, 4 and 5 are held by nobody"),
        ("the events leave 1 copy of it", "the events leave 0 copies of it"),
        ("which A still holds", "which A, B and C still holds"),
    ],
)
def test_one_and_several_are_the_same_symptom(one, several):
    assert symptom_of(trace_of(one)) == symptom_of(trace_of(several))


@pytest.mark.parametrize(
    "difference",
    [
        "only the salt differs", "only an image and the cache group differ",
        "the tokens differ from position 40 on (3 against 4), and so does the salt",
        "the one is 13 tokens long and the other 9",
    ],
)  # fmt: skip
def test_what_two_prefixes_differ_in_does_not_enter_a_symptom(difference):
    sentence = "B reads KV that was computed for A; wanted <0>, found <1>, written at command 2"
    assert symptom_of(trace_of(sentence)) == symptom_of(trace_of(f"{sentence}: {difference}"))


def test_a_crash_in_giving_blocks_back_is_the_same_whichever_verb_does_it():
    finished, aborted = (
        trace_of(f"{end.verb}(0) is legal here but raised KeyError: 3", commands=(end(0),))
        for end in (Finish, Abort)
    )
    assert symptom_of(finished) == symptom_of(aborted)


def test_a_command_of_another_sort_is_another_symptom():
    evicts = trace_of(commands=(Allocate(1), Evict((0,))))
    assert symptom_of(evicts) != symptom_of(trace_of())


def test_the_sentence_decides_not_the_way_to_it():
    longer = trace_of(commands=(Allocate(2), Touch((1,)), Free((0, 1))))
    assert symptom_of(longer) == symptom_of(trace_of())


@pytest.mark.parametrize("changes", [{"invariant": "IDX"}, {"severity": Severity.CRASH}])
def test_another_invariant_or_severity_is_another_symptom(changes):
    trace = trace_of()
    other = replace(trace, violation=replace(trace.violation, **changes))
    assert symptom_of(other) != symptom_of(trace)


def test_a_known_form_is_known_whatever_its_sentence():
    known = finding_of("f-1", trace_of())
    form = finding_of("f-2", trace_of("something else"))
    assert alike(form, [known], {}) is None
    assert alike(form, [known], {"f-1": [form]}) is known


def test_a_finding_that_was_mended_hides_nothing():
    known, other = finding_of("f-1", trace_of()), finding_of("f-2", trace_of())
    assert alike(other, [known], {}) is known
    assert alike(other, [known], {}, lambda _: False) is None


def test_forms_are_named_shortest_first():
    long = finding_of("f-2", trace_of(commands=(Allocate(1),) * 5))
    short = finding_of("f-3", trace_of(commands=(Allocate(1),)))
    assert line_of(finding_of("f-1", trace_of()), 1, [long, short]).forms == ("f-3", "f-2")


def test_lines_from_before_there_were_forms_are_read():
    old = {"fingerprint": "f-1", "invariant": "I1", "severity": "leak", "sentence": "lost"}
    numbers = {"num_commands": 2, "steps": 3, "seconds": 0.1, "runs_seen": 5}
    assert FindingLine.from_json({**old, **numbers}).forms == ()


def test_one_bug_is_one_finding_and_its_forms_are_kept(tmp_path, run_campaign):
    with CampaignFolder(tmp_path, PLANTED) as folder:
        status, _, said = run_campaign(PLANTED, folder, CampaignBudget(steps=6_000))
    assert any(line.forms for line in status.findings)
    symptoms = [finding.symptom for finding in said]
    assert len(symptoms) == len(set(symptoms))
    forms = read_forms(tmp_path)
    assert {line.fingerprint: set(line.forms) for line in status.findings if line.forms} == {
        name: {form.fingerprint for form in others} for name, others in forms.items()
    }


def test_a_finding_of_an_earlier_session_that_was_mended_absorbs_nothing(tmp_path, run_campaign):
    with CampaignFolder(tmp_path, PLANTED) as folder:
        _, _, said = run_campaign(PLANTED, folder, CampaignBudget(steps=2_000))
    found = said[0]
    mended = replace(found, fingerprint="f-0", trace=found.trace.with_commands((Allocate(1),)))
    mended = replace(mended, trace=replace(mended.trace, violation=found.trace.violation))
    other = tmp_path / "other"
    with CampaignFolder(other, PLANTED) as folder:
        folder.add_finding(mended)
        pending = Pending(found.trace, found.tape, 7, 0.5)
        folder.record((), CampaignState(), STATUS, [pending])
    with CampaignFolder(other, PLANTED) as folder:
        again = run_campaign(PLANTED, folder, CampaignBudget(steps=1))[2]
    assert found.fingerprint in {finding.fingerprint for finding in again}


def test_merging_makes_forms_of_what_shows_a_known_symptom(tmp_path):
    known, same, form = (finding_of(f"f-{n}", trace_of(), n) for n in (1, 2, 3))
    with CampaignFolder(tmp_path / "theirs", PLANTED) as theirs:
        theirs.record((), CampaignState(), STATUS)
        theirs.add_finding(same)
        theirs.add_finding(form, same)
    with CampaignFolder(tmp_path / "mine", PLANTED) as mine:
        mine.add_finding(known)
        for _ in range(2):
            merged = merge_folder(mine, PLANTED, STATUS, tmp_path / "theirs")
            assert merged.num_findings == 0
        assert [f.fingerprint for f in mine.findings()] == ["f-1"]
        assert [f.fingerprint for f in mine.forms()["f-1"]] == ["f-2", "f-3"]


def test_a_folder_of_version_1_is_taken_up(tmp_path):
    with CampaignFolder(tmp_path, PLANTED) as folder:
        folder.add_finding(finding_of("f-1", trace_of()))
        folder._database.execute("DROP TABLE forms")
        folder._set("version", 1)
    assert read_forms(tmp_path) == {}
    with CampaignFolder(tmp_path, PLANTED) as folder:
        assert folder.forms() == {}
        assert len(folder.findings()) == 1


def test_what_a_finding_leads_to_is_kept_and_merged_and_shown(tmp_path):
    harm = TraceHarm(severity=Severity.BOOKKEEPING, num_continuations=60, num_commands=900)
    known = finding_of("f-1", trace_of())
    with CampaignFolder(tmp_path / "theirs", PLANTED) as theirs:
        theirs.add_finding(replace(known, harm=harm))
    with CampaignFolder(tmp_path / "mine", PLANTED) as mine:
        merge_folder(mine, PLANTED, STATUS, tmp_path / "theirs")
        (found,) = mine.findings()
    assert found.harm == harm
    line = line_of(found, 1)
    assert line.severity == "bookkeeping"
    assert line.leads_to == "nobody read wrong data in 60 continuations (900 commands)"


def test_what_older_campaigns_kept_of_a_harm_is_read(tmp_path):
    kept = (
        '{"severity": "bookkeeping", "sentence": "", "read": "", "num_continuations": 6, '
        '"num_commands": 90, "remark": ""}'
    )
    with CampaignFolder(tmp_path, PLANTED) as folder:
        folder.add_finding(
            replace(finding_of("f-1", trace_of()), harm=TraceHarm(severity=Severity.LEAK))
        )
        folder._database.execute("UPDATE harms SET harm = ?", (kept,))
        (found,) = folder.findings()
    assert found.harm == TraceHarm(
        severity=Severity.BOOKKEEPING, num_continuations=6, num_commands=90
    )


def test_the_trace_that_a_campaign_writes_says_its_harm():
    found = finding_of("f-1", trace_of())
    assert found.whole_trace().harm.severity is Severity.LEAK
    assert not found.whole_trace().harm.was_tried
    read = TraceHarm(severity=Severity.WRONG_DATA_OF_ANOTHER, sentence="A reads B", read="...")
    assert replace(found, harm=read).whole_trace().harm == replace(read, read="")


def test_a_folder_of_version_3_is_taken_up_and_one_that_is_damaged_is_read(tmp_path):
    known = replace(finding_of("f-1", trace_of()), harm=TraceHarm(severity=Severity.BOOKKEEPING))
    with CampaignFolder(tmp_path, PLANTED) as folder:
        folder.add_finding(known)
        folder._database.execute("UPDATE harms SET harm = '{}'")
        (found,) = folder.findings()
        assert found.harm is None
        assert "what f-1 leads to cannot be read" in folder.damage.sentences[0]
        folder._database.execute("DROP TABLE harms")
        folder._set("version", 3)
    with CampaignFolder(tmp_path, PLANTED) as folder:
        (found,) = folder.findings()
    assert (found.fingerprint, found.harm) == ("f-1", None)
