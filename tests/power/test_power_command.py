"""`certify --power`: options, exit statuses and files; certification and power run are faked."""

import json
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from poolproof.cli.command_line import main
from poolproof.power.power_report import PowerReport


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        return CliRunner().invoke(main, ["certify", *arguments])

    return invoke


@pytest.fixture
def faked(monkeypatch, samples):
    """Fakes the work; holds what was asked for, and the certificate that is given."""
    asked = {"certificate": samples.certificate()}

    def certify(load, options, progress):
        asked.update(options=options)
        return asked["certificate"]

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
    monkeypatch.setattr("poolproof.power.power_run.power_run", power_run)
    return asked


def test_the_certificate_stands_before_the_power(run, faked):
    result = run("impl", "--power")
    assert result.exit_code == 0, result.output
    assert result.output.index("HOLDS") < result.output.index("power of the checks")


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


def test_a_file_of_any_form_holds_both(run, faked, tmp_path):
    files = {"--json": "c.json", "--junit": "c.xml", "--md": "c.md", "--html": "c.html"}
    run("impl", "--power", *(part for pair in files.items() for part in pair))
    texts = {name: (tmp_path / name).read_text() for name in files.values()}
    both = json.loads(texts["c.json"])
    assert both["certificate"]["verdict"] == "holds"
    assert both["power"]["num_mutants"] == 0
    assert texts["c.md"].startswith("# HOLDS; 0 of 0 mutants refused\n")
    assert "power of the checks, depth quick" in texts["c.html"]
    assert '<testsuite name="pool"' in texts["c.xml"]


def test_the_folder_has_each_on_its_own(run, faked, tmp_path):
    result = run("impl", "--power", "--report", "out")
    assert result.exit_code == 0, result.output
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("certificate.json", "certificate.md", "certificate.html", "certificate.txt", "junit.xml"),
        *("certificate.sarif", "badge.svg"),
        *("power.json", "power.md", "power.html", "power.txt", "power.xml"),
    }
    certificate = json.loads((tmp_path / "out" / "certificate.json").read_text())
    assert certificate["verdict"] == "holds"
    assert json.loads((tmp_path / "out" / "power.json").read_text())["num_mutants"] == 0


def test_a_folder_that_cannot_be_made_is_named_before_the_work(run, faked, tmp_path):
    (tmp_path / "out").write_text("a file is in the way")
    result = run("impl", "--power", "--report", "out")
    assert result.exit_code == 2
    assert "cannot make folder out" in result.output
    assert "options" not in faked


@pytest.mark.parametrize(("findings", "status"), [(True, 1), (False, 2)])
def test_an_unmutated_target_that_does_not_hold_ends_it(run, faked, samples, findings, status):
    refused, inconclusive = (
        samples.certificate(samples.finding()), samples.certificate(canaries_missed=("A1",)),
    )  # fmt: skip
    faked["certificate"] = refused if findings else inconclusive
    result = run("impl", "--power", "--json", "c.json", "--report", "out")
    assert result.exit_code == status
    assert "the unmutated target has to hold first" in result.output
    assert "measured" not in faked
    assert json.loads(Path("c.json").read_text())["power"] is None
    assert not Path("out/power.json").exists()
    assert Path("out/f-7d3f0a11.jsonl").exists() is findings


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
        (["--power", "--md", "no/f.md"], "there is no folder no"),
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
