"""A manager's finding says wrong data only with the read that shows it."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.bugs.clean_manager import CleanManager
from poolproof.bugs.manager_oddities import EarlyShower, RewritingManager
from poolproof.certification.certificate import Verdict
from poolproof.certification.consequence import (
    Consequence,
    ReadSearch,
    consequence_of,
    fears_wrong_data,
    search_read,
)
from poolproof.certification.finding import Finding, Identity
from poolproof.certification.finding_collector import FindingCollector
from poolproof.certification.isolated_trace import serving
from poolproof.certification.json_fields import FieldError
from poolproof.certification.known_findings import entries_for, read_known_findings
from poolproof.certification.verdict import Rules, failing, judge
from poolproof.contract.content import TokenChain
from poolproof.contract.level import Level
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace, read_trace, write_trace
from poolproof.contract.violation import Severity, ViolationError
from poolproof.harness.continuations import Continued
from poolproof.harness.failure_kind import FailureKind
from poolproof.harness.isolation import Finished, Hung, Limits
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.replay import replay
from poolproof.invariants.catalogue import STATEMENTS, WITHOUT_A_READ
from poolproof.report.certificate_document import CERTIFICATE
from poolproof.report.certificate_outputs import Outputs as CertificateOutputs
from poolproof.report.finding_report import finding_report, trace_report
from poolproof.report.forms import Form
from poolproof.report.text_form import plain_text
from poolproof.report.wording import harm_words
from poolproof.targets.hash_book import HashBook
from poolproof.targets.manager_target import manager_target
from poolproof.targets.target import ManagerLayout

GOLDEN = Path(__file__).parents[1] / "bugs" / "golden"
ANOTHER, BOOKKEEPING = Severity.WRONG_DATA_OF_ANOTHER, Severity.BOOKKEEPING


class Beacon:
    def bump(self, _command=None):
        pass

    def mark(self, _number):
        pass


def golden(specimen_id):
    trace = read_trace(GOLDEN / f"{specimen_id}.jsonl")
    return replace(trace, options={**trace.options, "layout": "planted"})


def target_of(make, profile, block_size=4):
    layout = ManagerLayout("planted", profile, make, block_size)
    return manager_target("planted", "native-manager", [layout], source="bugs/")


def collected(trace, make, *, instead=None):
    """The findings of a collector that is given a failing trace; `instead` answers for a job."""
    target = target_of(make, trace.profile, trace.options["block_size"])

    def run(job, argument):
        if instead is not None and job is search_read:
            return instead
        return Finished(job(target, argument, Beacon()))

    collector = FindingCollector(run, lambda trace, _: trace, 200, {})
    collector.add("a stage", trace)
    return collector.findings


@pytest.fixture(scope="module")
def stale():
    """The finding of a manager that finds images by their tokens, which a lookup shows first."""
    specimen = MANAGER_SPECIMENS["C9"]
    (found,) = collected(golden("C9"), specimen.make)
    return found


@pytest.fixture(scope="module")
def unread():
    """The finding of one whose evicted blocks keep a hash that nobody finds."""
    (found,) = collected(golden("D6-manager"), MANAGER_SPECIMENS["D6-manager"].make)
    return found


def test_a_planted_bug_of_the_index_leads_to_the_read_that_shows_it(stale):
    assert stale.violation.invariant == "IDX"
    read = stale.consequence.read
    assert read.invariant == "DATA"
    assert stale.severity is read.severity is ANOTHER
    assert "that was computed for A" in read.sentence
    assert stale.num_commands <= len(stale.consequence.trace.commands) <= 6


def test_the_trace_up_to_the_read_shows_it_again_and_meets_the_finding_first(stale):
    make, trace = MANAGER_SPECIMENS["C9"].make, stale.consequence.trace
    assert replay(trace, make).violation == trace.violation
    options = {key: value for key, value in trace.options.items() if key != "only_reads"}
    first = replay(replace(trace, options=options), make).violation
    assert first.invariant == "IDX"


def test_the_read_of_a_larger_pool_is_found_where_the_minimal_one_has_no_room(stale):
    assert stale.trace.num_blocks == 1
    assert stale.consequence.trace.num_blocks > 1


def test_a_table_that_lost_its_blocks_leads_to_a_read_beyond_it():
    (found,) = collected(golden("B16"), MANAGER_SPECIMENS["B16"].make)
    assert found.violation.invariant == "ATOM"
    read, trace = found.consequence.read, found.consequence.trace
    assert "A reads up to position 3 beyond its table" in read.sentence
    assert read.command_index == len(trace.commands) - 1
    assert found.severity is Severity.WRONG_DATA_OF_ONES_OWN


def test_a_difference_that_no_read_shows_is_bookkeeping_and_says_how_much_was_tried(unread):
    assert unread.violation.severity is ANOTHER
    assert unread.severity is BOOKKEEPING
    assert unread.consequence.read is None
    assert unread.consequence.num_commands > 100
    text = " ".join(plain_text(finding_report(unread)).split())
    assert "IDX bookkeeping that no read shows" in text
    assert "wrong data of another request is feared and not shown: nobody read any in" in text


def test_the_report_says_what_the_finding_leads_to_and_where_its_trace_is(stale):
    text = plain_text(finding_report(stale, "out/f-1.jsonl"))
    assert f"leads to   {stale.consequence.read.sentence[:40]}" in text
    assert "admit A" in text.partition("  by  ")[2]
    assert f"poolproof show out/r{stale.fingerprint[1:]}.jsonl" in text


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("oddity", "rows"),
    [(RewritingManager, {"index": "exact"}), (EarlyShower, {"index": "exact"})],
)
def test_a_right_manager_under_a_profile_that_contradicts_it_is_never_said_to_read_wrongly(
    oddity, rows
):
    profile = ManagerProfile.from_mapping({**oddity.profile, **rows})

    def make(num_blocks, caching):
        return oddity(num_blocks, 4, enable_caching=caching)

    campaign = ManagerCampaign("planted", make, profile, 4, options={"layout": "planted"})
    traces = (campaign.run(number).trace for number in range(60))
    trace = next(t for t in traces if t is not None and fears_wrong_data(t))
    (found,) = collected(trace, make)
    assert found.consequence.read is None
    assert found.severity is BOOKKEEPING


def test_a_read_is_its_own_demonstration():
    specimen = MANAGER_SPECIMENS["C4"]
    (found,) = collected(golden("C4"), specimen.make)
    assert found.violation.invariant == "DATA"
    assert found.consequence is None
    assert found.severity is found.violation.severity


def test_what_fears_no_wrong_data_is_not_continued():
    assert not fears_wrong_data(golden("A7"))
    (found,) = collected(golden("A7"), MANAGER_SPECIMENS["A7"].make)
    assert (found.consequence, found.severity) == (None, Severity.LEAK)


class HangsOnceStale(MANAGER_SPECIMENS["C9"].cls):
    """Hangs at the second admission, which the trace of the finding does not have."""

    def admit(self, seq_id, *arguments, **named):
        if seq_id:
            time.sleep(60)
        return super().admit(seq_id, *arguments, **named)


def test_a_hang_behind_the_trace_ends_the_search_and_is_told():
    trace = golden("C9")

    def make(num_blocks, caching):
        return HangsOnceStale(num_blocks, 4, enable_caching=caching, rules=trace.profile)

    task = ReadSearch(trace, trace, is_further_form=False)
    limits = Limits(call_timeout_s=1)
    with serving(
        lambda: target_of(make, trace.profile), search_read, limits, in_process=False
    ) as call:
        found = consequence_of(task, call(task))
    assert found.severity is BOOKKEEPING
    assert found.read is None
    assert "continuation 2 did not return within 1 s" in found.remark


def test_the_finding_of_a_target_that_hangs_behind_its_trace_is_kept():
    lost = Hung(seconds=10, mark=3)
    (found,) = collected(golden("C9"), MANAGER_SPECIMENS["C9"].make, instead=lost)
    assert found.consequence.num_continuations == 2
    assert "continuation 3 did not return within 10 s" in plain_text(finding_report(found), 200)


def test_an_answer_with_which_nobody_can_go_on_is_as_bad_as_a_crash():
    trace = golden("C9")
    task = ReadSearch(trace, trace, is_further_form=False)
    found = consequence_of(task, Finished(Continued(unusable="A holds 9, which is no block")))
    assert found.severity is Severity.CRASH
    assert "no run can go on behind it: A holds 9" in found.remark


class NamesNoBlock(CleanManager):
    """A table ends in a block that the pool does not have."""

    def block_table(self, seq_id, *group):
        table = super().block_table(seq_id, *group)
        return [*table[:-1], 99] if len(table) > 1 else table


def test_a_table_that_names_no_block_cannot_be_continued():
    profile = ManagerProfile()

    def make(num_blocks, caching):
        return NamesNoBlock(num_blocks, 4, enable_caching=caching, rules=profile)

    campaign = ManagerCampaign("planted", make, profile, 4, options={"layout": "planted"})
    trace = next(t for t in (campaign.run(n).trace for n in range(60)) if t is not None)
    (found,) = collected(trace, make)
    assert found.severity is Severity.CRASH
    assert "99, which is no block" in found.consequence.remark


def test_a_further_form_of_a_bug_is_given_less_and_a_long_run_is_not_continued():
    trace = golden("C9")
    long = replace(trace, commands=trace.commands * 100)
    first, further = (ReadSearch(trace, long, is_further_form=form) for form in (False, True))
    assert further.most_work * 4 == first.most_work
    assert first.starts == (trace,)
    assert ReadSearch(trace, golden("D1-manager"), is_further_form=False).starts[1:]


def test_a_finding_under_a_name_that_no_invariant_has_keeps_a_severity():
    trace = golden("C9")
    trace = replace(trace, violation=replace(trace.violation, invariant="OURS"))
    task = ReadSearch(trace, trace, is_further_form=False)
    assert consequence_of(task, Finished(Continued())).severity is BOOKKEEPING


def test_all_outputs_tell_of_the_read_and_its_trace_is_written(samples, stale, tmp_path):
    judged = judge(samples.certificate(stale), Rules())
    read = stale.consequence.read.sentence
    junit = CERTIFICATE.written(judged, Form.JUNIT)
    assert f"(leads to {read})" in junit.replace("&lt;", "<").replace("&gt;", ">")
    for form in (Form.TEXT, Form.MARKDOWN, Form.HTML):
        assert "leads to" in CERTIFICATE.written(judged, form)
    CertificateOutputs(folder=tmp_path / "out").write(judged)
    written = read_trace(tmp_path / "out" / f"r{stale.fingerprint[1:]}.jsonl")
    assert written.violation.sentence == read


def test_the_file_of_a_finding_tells_its_harm_without_a_run(tmp_path, stale, unread):
    told = _told_by_file(tmp_path / "t.jsonl", stale)
    assert f"{stale.fingerprint} IDX wrong data of another request, silent" in told
    assert f"leads to DATA at load: {stale.consequence.read.sentence}" in told
    assert f"by the trace r{stale.fingerprint[1:]}, which lies beside this one" in told
    told = _told_by_file(tmp_path / "t.jsonl", unread)
    assert "bookkeeping that no read shows" in told
    assert "is feared and not shown: nobody read any in" in told


def _told_by_file(path, finding):
    """The report of a trace file, in one line."""
    write_trace(finding.whole_trace(), path)
    return " ".join(plain_text(trace_report(read_trace(path))).split())


@pytest.mark.parametrize("name", ["stale", "unread"])
def test_a_consequence_is_read_back_from_json(name, request):
    found = request.getfixturevalue(name)
    again = Finding.from_json(found.to_json())
    assert again.consequence == found.consequence
    assert again.severity is found.severity
    assert again.identity == found.identity


def test_a_finding_without_the_field_is_read_as_one_that_nobody_continued(stale):
    older = {key: value for key, value in stale.to_json().items() if key != "consequence"}
    assert Finding.from_json(older).consequence is None


def test_a_damaged_consequence_is_named(stale):
    record = stale.consequence.to_json()
    with pytest.raises(FieldError, match="f-1: its consequence field 'severity' must be one of"):
        Consequence.from_json({**record, "severity": "bad"}, "f-1")
    with pytest.raises(FieldError, match="f-1: the trace of its consequence has no violation"):
        Consequence.from_json({**record, "trace": record["trace"][:-1]}, "f-1")
    with pytest.raises(FieldError, match="f-1: the trace of its consequence is not a trace"):
        Consequence.from_json({**record, "trace": [{}]}, "f-1")


def test_fail_on_goes_by_what_was_shown(samples, stale, unread):
    rules = Rules(fail_on=(ANOTHER,))
    assert failing(judge(samples.certificate(unread), rules)) == ()
    assert judge(samples.certificate(unread), Rules()).verdict is Verdict.REFUSED
    both = judge(samples.certificate(unread, stale), rules)
    assert [found.fingerprint for found in failing(both)] == [stale.fingerprint]
    assert both.findings[0].fingerprint == stale.fingerprint


def test_an_entry_accepts_what_was_shown_and_nothing_worse(tmp_path, unread):
    path = tmp_path / "known.toml"
    text = entries_for([unread])
    assert 'shown = "bookkeeping"' in text
    for empty, filled in (
        ('link = ""', 'link = "x"'), ('reason = ""', 'reason = "y"'),
        ('until = ""', "until = 2999-01-01"),
    ):  # fmt: skip
        text = text.replace(empty, filled)
    path.write_text(text)
    (entry,) = read_known_findings(path).entries
    assert entry.accepts(unread.identity)
    assert not entry.accepts(replace(unread.identity, shown=ANOTHER))


def test_an_older_entry_accepts_what_turned_out_no_worse():
    kind = FailureKind("IDX", ANOTHER, "admit")
    older = Identity("f-00000001", kind)
    assert older.covers(Identity("f-00000001", kind, BOOKKEEPING))
    assert older.covers(Identity("f-00000001", kind, ANOTHER))
    assert not Identity("f-00000001", kind, BOOKKEEPING).covers(older)
    assert not older.covers(Identity("f-00000002", kind, BOOKKEEPING))


def test_each_invariant_that_fears_wrong_data_has_a_severity_without_a_read():
    assert set(WITHOUT_A_READ) <= set(STATEMENTS)
    feared = {
        trace.violation.invariant
        for path in GOLDEN.glob("*.jsonl")
        if (trace := read_trace(path)).level.has_sequences and fears_wrong_data(trace)
    }
    assert feared <= set(WITHOUT_A_READ)
    assert not {Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN} & set(
        WITHOUT_A_READ.values()
    )


@pytest.mark.deep
@pytest.mark.parametrize("specimen_id", sorted(MANAGER_SPECIMENS))
def test_a_planted_bug_that_fears_wrong_data_leads_to_a_read_but_for_seven(specimen_id):
    trace = golden(specimen_id)
    if not fears_wrong_data(trace):
        pytest.skip("nothing is feared, or it is a read")
    found = read_trace(GOLDEN.with_name("found") / f"{specimen_id}.0.jsonl")
    task = ReadSearch(trace, found, is_further_form=False)
    target = target_of(
        MANAGER_SPECIMENS[specimen_id].make, trace.profile, trace.options["block_size"]
    )
    shown = search_read(target, task, Beacon()).trace
    assert (shown is None) == (specimen_id in UNREAD)


UNREAD = {
    "A3-manager": "a counter says more than is free; who relies on it gets an exception",
    "B29": "slots for what comes ahead are missing, and the shadow memory writes none",
    "D6-manager": "the block keeps a hash that nobody finds",
    "J9-manager": "the same after a reset",
    "J10-manager": "the KV is of older weights, which the shadow memory does not tell apart",
    "L27": "a number is shown wrongly, and nothing reads it",
    "L29": "the copy that is hit holds what it should",
}


def test_a_trace_of_only_reads_is_a_trace_file_as_others(tmp_path, stale):
    trace = stale.consequence.trace
    again = Trace.from_lines(trace.lines())
    assert again == trace


def test_two_contents_with_one_hash_are_feared_in_a_pool_which_reads_nothing():
    book = HashBook()
    book.learn_chain(TokenChain((1,)), [b"same"], 1)
    with pytest.raises(ViolationError) as met:
        book.learn_chain(TokenChain((2,)), [b"same"], 1)
    pool = Trace("t", Level.POOL, Profile(), 1, True, (), met.value.violation)
    assert met.value.violation.invariant == "DATA"
    assert fears_wrong_data(pool)
    assert harm_words(pool.violation.severity, "DATA", pool.level).endswith(", feared")
    assert harm_words(pool.violation.severity, "DATA", Level.MANAGER).endswith(", silent")
