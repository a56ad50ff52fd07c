"""A certification of an index: its stages, its findings, and what a pool's says of its index."""

# Fixtures and fakes come by name; the types of tests are not checked.
# mypy: ignore-errors

from __future__ import annotations

import pytest

from poolproof.bugs.index_bugs import INDEX_BUGS
from poolproof.certification.certificate import StageOutcome, Verdict
from poolproof.certification.certify import certify
from poolproof.certification.driving import described, kinds_of
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.run_kinds import INDEX
from poolproof.certification.verdict import Rules, judge
from poolproof.cli.command_line import main
from poolproof.contract.index_commands import Contains, Get, Insert, Pop
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace, read_trace, write_trace
from poolproof.harness.isolation import InProcess
from poolproof.report.finding_report import drawing_of
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

A, B = b"\1" * 16, b"\2" * 16


def certified(load):
    options = CertifyOptions(depth="quick", in_process=True, workers=1)
    return judge(certify(load, options, SilentProgress()), Rules())


@pytest.mark.some(0)
def test_a_right_index_holds_at_every_stage():
    certificate = certified(lambda: load_target("impl-index"))
    assert certificate.verdict is Verdict.HOLDS, certificate.findings
    assert {stage.level for stage in certificate.stages} == {"index"}
    names = [stage.stage for stage in certificate.stages]
    assert len([name for name in names if "production sizes" in name]) == 1
    assert any(name.startswith("every state") for name in names)
    assert any(name.startswith("every sequence") for name in names)
    assert not certificate.canaries_missed
    assert len(certificate.canaries_caught) >= 4


@pytest.mark.some(0)
@pytest.mark.parametrize(
    "specimen_id",
    ["K1", *(pytest.param(name, marks=pytest.mark.deep) for name in ("K3", "K7", "K12"))],
)
def test_a_planted_bug_is_refused_with_a_short_trace(specimen_id):
    found = INDEX_BUGS[specimen_id]
    target = Target(
        name=specimen_id,
        level="index",
        shape="index",
        profile=found.profile,
        version=None,
        source="bugs/",
        make=found.make,
    )
    certificate = certified(lambda: target)
    assert certificate.verdict is Verdict.REFUSED
    for finding in certificate.findings:
        assert finding.violation.invariant in found.invariants
        assert finding.num_commands <= 4
    stages = {stage.stage: stage.outcome for stage in certificate.stages}
    assert stages["keys and blocks, plain driver"] is StageOutcome.REFUSED


@pytest.mark.parametrize("name", ["impl", "reference"])
def test_a_pool_has_its_index_driven_as_well(name):
    with InProcess(lambda: load_target(name)) as isolation:
        about = described(isolation)
    assert Level.INDEX in about.parts
    assert INDEX in kinds_of(about, CertifyOptions(depth="quick"))


def trace_of(*commands, duplicates="kept"):
    return Trace("x", "index", Profile(duplicates=duplicates), 4, True, commands)


def test_a_trace_comes_back_from_its_file(tmp_path):
    trace = trace_of(Insert(A, 0), Insert((B, 3), 1), Get(2**64 - 1), Pop(A, 0))
    write_trace(trace, tmp_path / "t.jsonl")
    assert read_trace(tmp_path / "t.jsonl").commands == trace.commands


def test_a_drawing_says_which_blocks_each_key_has():
    drawing = drawing_of(trace_of(Insert(A, 0), Insert(A, 1), Insert(B, 1), Pop(A, 0), Get(A)))
    rows = [row.cells() for row in drawing.rows]
    assert rows[3][1:4] == ("insert(b, 1)", "a->0,1 b->1", "2")
    assert rows[4][5] == "gives 0"
    assert rows[5][5] == "gives 1"
    assert [letter for letter, _ in drawing.legend] == ["a", "b"]


def test_a_drawing_follows_the_rule_for_duplicates():
    drawing = drawing_of(trace_of(Insert(A, 0), Insert(A, 1), Contains(A, 0), duplicates="last"))
    assert drawing.rows[2].cells()[2] == "a->1"
    assert drawing.rows[3].cells()[5] == "gives False"


BROKEN = """
class Index:
    def __init__(self):
        self.entries = {}

    def insert(self, key, block_id):
        self.entries.setdefault(key, set()).add(block_id)

    def pop(self, key, block_id):
        return block_id if block_id in self.entries.pop(key, ()) else None

    def get(self, key):
        return min(self.entries.get(key, ()), default=None)
"""


def test_a_finding_is_replayed_shrunk_shown_and_written_as_a_test(runner, folder):
    (folder / "mine.py").write_text(BROKEN)
    write_trace(
        Trace("mine.py:Index", "index", Profile(), 4, True, (Get(A), *trace_of(
            Insert(A, 0), Insert(A, 1), Pop(A, 0)).commands)),
        folder / "t.jsonl",
    )  # fmt: skip
    assert runner.invoke(main, ["replay", "t.jsonl"]).exit_code == 1
    shrunk = runner.invoke(main, ["shrink", "t.jsonl", "--output", "s.jsonl"])
    assert shrunk.exit_code in (0, 1), shrunk.output
    assert len(read_trace(folder / "s.jsonl").commands) == 2
    shown = runner.invoke(main, ["show", "t.jsonl", "--as", "pytest"])
    assert shown.exit_code == 0
    assert "insert" in shown.output


def test_a_skeleton_says_which_method_to_write_first(runner, folder):
    assert runner.invoke(main, ["new", "--index", "mine.py"]).exit_code == 0
    result = runner.invoke(main, ["certify", "mine.py:Index", "--depth", "quick", "--in-process"])
    assert result.exit_code == 1
    assert "write insert(key, block_id)" in result.output


def test_two_skeletons_at_once_are_none(runner, folder):
    result = runner.invoke(main, ["new", "--index", "--manager", "mine.py"])
    assert result.exit_code == 2
    assert "--manager and --index are skeletons; leave one" in result.output


@pytest.mark.some(0)
def test_a_campaign_on_an_index_reaches_all_its_states(runner, folder):
    del folder
    arguments = ["fuzz", "reference-index", "--steps", "40000", "--in-process", "--blocks", "2"]
    result = runner.invoke(main, [*arguments, "--quiet"])
    assert result.exit_code == 0, result.output
    assert "25 of 25 states" in result.output
