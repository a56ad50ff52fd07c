"""`certify --power`: options, exit statuses and files; certification and power run are faked."""

import json
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from poolproof.cli.command_line import main
from poolproof.power.power_report import PowerReport
from poolproof.report.document import Document, Paragraph


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        return CliRunner().invoke(main, ["certify", *arguments])

    return invoke


@pytest.fixture
def faked(monkeypatch):
    """Fakes the work; holds what was asked for, and the certificate's exit status."""
    asked = {"exit_status": 0}

    class Verdict:
        exit_status = property(lambda _: asked["exit_status"])

    class Certificate:
        verdict = Verdict()

        def to_json(self):
            return {"verdict": "a"}

    def certify(load, options, progress):
        asked.update(options=options)
        return Certificate()

    class Run:
        def measure(self, progress):
            asked.update(measured=True)
            return PowerReport(
                target="impl", target_version=None, depth="quick", seed=0, modules=(),
                num_candidates=0, num_equivalent=0, mutants=(), stages=(), own=None, seconds=1.0,
            )  # fmt: skip

    @contextmanager
    def power_run(load, options, power, progress):
        asked.update(power=power)
        yield Run()

    monkeypatch.setattr("poolproof.power.power_run.certify", certify)
    monkeypatch.setattr("poolproof.power.power_run.judge", lambda found, rules: found)
    cert = Document("", "", (Paragraph("CERT"),))
    monkeypatch.setattr("poolproof.power.power_run.certificate_document", lambda found: cert)
    monkeypatch.setattr("poolproof.power.power_run.power_run", power_run)
    return asked


def test_the_certificate_stands_before_the_power(run, faked):
    result = run("impl", "--power")
    assert result.exit_code == 0, result.output
    assert result.output.index("CERT") < result.output.index("power of the checks")


def test_options_reach_the_power_run(run, faked):
    run("impl", "--power", "--mutants", "all", "--power-modules", "a.b, c", "--own-tests", "t -x")
    power = faked["power"]
    assert power.most_mutants is None
    assert power.modules == ("a.b", "c")
    assert power.own_tests == "t -x"
    assert (power.also, power.own_mutants, power.results) == ((), None, None)


def test_other_judges_and_files_reach_the_power_run(run, faked):
    run(
        "impl", "--power", "--power-also", "a.py:A", "--power-also", "a.py:B",
        "--power-results", "verdicts.jsonl", "--own-tests", "t", "--own-mutants", "4",
    )  # fmt: skip
    power = faked["power"]
    assert power.also == ("a.py:A", "a.py:B")
    assert power.own_mutants == 4
    assert str(power.results) == "verdicts.jsonl"


def test_the_depth_is_quick_unless_it_is_given(run, faked):
    run("impl", "--power")
    assert faked["options"].depth == "quick"
    run("impl", "--power", "--depth", "standard")
    assert faked["options"].depth == "standard"


def test_json_holds_both(run, faked, tmp_path):
    run("impl", "--power", "--json", "both.json")
    both = json.loads((tmp_path / "both.json").read_text())
    assert both["certificate"] == {"verdict": "a"}
    assert both["power"]["num_mutants"] == 0


@pytest.mark.parametrize("status", [1, 2])
def test_an_unmutated_target_that_does_not_hold_ends_it(run, faked, status):
    faked["exit_status"] = status
    result = run("impl", "--power")
    assert result.exit_code == status
    assert "the unmutated target has to hold first" in result.output
    assert "measured" not in faked


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--own-tests", "pytest"], "--own-tests belongs to --power"),
        (["--power-modules", "a"], "--power-modules belongs to --power"),
        (["--mutants", "3"], "--mutants belongs to --power"),
        (["--power-also", "a.py:A"], "--power-also belongs to --power"),
        (["--power-results", "f"], "--power-results belongs to --power"),
        (["--own-mutants", "3"], "--own-mutants belongs to --own-tests"),
        (["--power", "--own-mutants", "3"], "--own-mutants belongs to --own-tests"),
        (["--power", "--power-also", "cmd:./pool"], "is a program, whose source cannot be read"),
        (["--power", "--power-results", "no/f"], "there is no folder no"),
        (["--power", "--mutants", "0"], "'0' is neither a number from 1 on nor 'all'"),
        (["--power", "--mutants", "few"], "'few' is neither a number from 1 on nor 'all'"),
        (["--power", "--power-modules", ","], "name at least one module"),
        (["--power", "--in-process"], "--in-process does not go with --power"),
        (["--power", "--hardening"], "--hardening does not go with --power"),
        (["--power", "--md", "f.md"], "--md does not go with --power"),
    ],
)
def test_options_that_do_not_fit_are_refused(run, arguments, said):
    result = run("impl", *arguments)
    assert result.exit_code == 2
    assert said in result.output


def test_a_program_has_no_source_to_change(run):
    result = run("cmd:./pool", "--power")
    assert result.exit_code == 2
    assert "is a program, whose source cannot be read" in result.output


def test_a_kernel_has_no_power_run(run):
    result = run("paged", "--power")
    assert result.exit_code == 2
    assert "--power" in result.output
