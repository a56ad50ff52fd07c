"""certify's options, files and exit statuses; the certification itself is faked, but for one."""

import json
import os
from pathlib import Path

import pytest

from poolproof.certification.certificate import Verdict
from poolproof.certification.inference import InferenceOutcome, InferredProfile
from poolproof.certification.options import CertifyOptions
from poolproof.contract.profile import Profile
from poolproof.contract.profile_costs import alternatives
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.report.output_files import OutputError


@pytest.fixture
def faked(monkeypatch, samples):
    """Lets a test say what a certification finds; returns what it was asked."""
    asked = {}

    def certify(load, options, progress):
        asked.update(load=load, options=options)
        progress.begin("stage", 10)
        progress.advance(10)
        progress.end()
        return asked["finds"]

    asked["finds"] = samples.certificate()
    monkeypatch.setattr("poolproof.certification.certify.certify", certify)
    return asked


def test_a_target_that_holds_exits_with_0(poolproof, faked):
    result = poolproof("certify", "reference")
    assert result.exit_code == 0
    assert "verdict       HOLDS" in result.stdout
    assert faked["load"]().name == "reference"


def test_a_violation_exits_with_1(poolproof, faked, samples):
    faked["finds"] = samples.certificate(samples.finding())
    result = poolproof("certify", "reference")
    assert result.exit_code == 1
    assert "next          poolproof show .poolproof/findings/f-7d3f0a11.jsonl" in result.stdout


def test_an_inconclusive_run_exits_with_2(poolproof, faked, samples):
    faked["finds"] = samples.certificate(canaries_missed=("A1",))
    assert poolproof("certify", "reference").exit_code == 2


def test_progress_does_not_mix_with_the_certificate(poolproof, faked):
    result = poolproof("certify", "reference")
    assert result.stderr == "stage ...\n"
    assert result.stdout.startswith("poolproof 0.1.0")


def test_options_reach_the_certification(poolproof, faked):
    poolproof(
        "certify", "impl", "--depth", "deep", "--seed", 5, "--workers", 3, "--in-process",
        "--call-timeout", 2.5, "--memory-limit", 300, "--hardening", "--api", "native",
    )  # fmt: skip
    options = faked["options"]
    assert isinstance(options, CertifyOptions)
    assert (options.depth, options.seed, options.workers) == ("deep", 5, 3)
    assert (options.in_process, options.hardening, options.api) == (True, True, "native")
    assert (options.limits.call_timeout_s, options.limits.memory_mib) == (2.5, 300)


def test_profile_rows_join_the_target_string(poolproof, faked):
    poolproof(
        "certify", "impl[eviction=lru,null_block=0]", "--profile", "eviction=lifo", "--profile",
        "duplicates=first",
    )  # fmt: skip
    target = faked["load"]()
    assert target.name == "impl[eviction=lifo,null_block=0,duplicates=first]"
    assert target.profile.eviction == "lifo"
    assert faked["options"].profile_overrides["duplicates"] == "first"


def test_fail_on_takes_a_list(poolproof, faked, samples):
    faked["finds"] = samples.certificate(samples.finding())
    assert poolproof("certify", "impl", "--fail-on", "crash, order").exit_code == 0
    assert poolproof("certify", "impl", "--fail-on", "wrong-data-of-another").exit_code == 1


def test_a_known_file_lets_a_finding_pass(poolproof, faked, samples):
    faked["finds"] = samples.certificate(samples.finding())
    Path("known.toml").write_text(
        '[[finding]]\nfingerprint = "f-7d3f0a11"\ninvariant = "IDX"\noperation = "lookup"\n'
        'severity = "wrong-data-of-another"\nlink = "x"\nreason = "y"\nuntil = 9999-01-01\n'
    )
    result = poolproof("certify", "impl", "--known", "known.toml")
    assert result.exit_code == 0
    assert "verdict       HOLDS: 0 new, 1 known" in result.stdout


def test_a_search_for_a_baseline_goes_on_whatever_it_meets(poolproof, faked, samples):
    poolproof("certify", "impl", "--keep-going")
    assert samples.finding().kind in faked["options"].accepted
    poolproof("certify", "impl")
    assert samples.finding().kind not in faked["options"].accepted


def test_a_baseline_lets_its_findings_pass(poolproof, faked, samples):
    faked["finds"] = samples.certificate(samples.finding())
    assert poolproof("certify", "impl", "--json", "main.json").exit_code == 1
    assert poolproof("certify", "impl", "--baseline", "main.json").exit_code == 0


def test_all_files_are_written(poolproof, faked, samples):
    faked["finds"] = samples.certificate(samples.finding())
    poolproof(
        "certify", "impl", "--json", "c.json", "--junit", "c.xml", "--md", "c.md", "--report", "out"
    )
    assert json.loads(Path("c.json").read_text())["verdict"] == "refused"
    assert 'failures="1"' in Path("c.xml").read_text()
    assert Path("c.md").read_text().startswith("# REFUSED")
    assert Path("out/certificate.txt").exists()


def test_a_disk_that_fills_up_costs_the_files_and_not_the_certificate(
    poolproof, faked, samples, monkeypatch
):
    def full(path, text):
        raise OutputError(f"cannot write {path}: No space left on device")

    faked["finds"] = samples.certificate(samples.finding())
    monkeypatch.setattr("poolproof.report.output_files.write_file", full)
    result = poolproof("certify", "impl", "--json", "c.json")
    assert result.exit_code == 1
    assert "cannot write c.json: No space left on device" in result.stderr
    assert "REFUSED" in result.stdout


@pytest.mark.parametrize("options", [["--json", "main.json"], ["--report", "."]])
def test_a_run_does_not_write_its_own_baseline(poolproof, faked, samples, options):
    faked["finds"] = samples.certificate(samples.finding())
    name = "main.json" if "main.json" in options else "certificate.json"
    Path(name).write_text(json.dumps(samples.certificate().to_json()))
    result = poolproof("certify", "impl", "--baseline", name, *options)
    assert result.exit_code == 2
    assert f"--baseline {name} would be overwritten" in result.output


def test_the_entries_that_a_run_leaves_accept_its_findings(poolproof, faked, samples):
    form = samples.of_severity(Severity.LOST_HIT, "f-00000002")
    faked["finds"] = samples.certificate(samples.finding(forms=(form,)))
    result = poolproof("certify", "impl", "--report", "out")
    assert "accept        out/known.toml has the entries for --known" in result.stdout
    entries = Path("out/known.toml").read_text()
    assert poolproof("certify", "impl", "--known", "out/known.toml").exit_code == 2
    said = entries.replace('link = ""', 'link = "x"').replace('reason = ""', 'reason = "y"')
    Path("known.toml").write_text(said.replace('until = ""', "until = 9999-01-01"))
    assert poolproof("certify", "impl", "--known", "known.toml").exit_code == 0


@pytest.mark.parametrize("target", [[], [""], [" "]])
@pytest.mark.parametrize("command", ["certify", "fuzz"])
def test_without_a_target_the_known_ones_are_listed(poolproof, faked, command, target):
    result = poolproof(command, *target)
    assert result.exit_code == 2
    assert "path/to/file.py:Class" in result.output
    assert "impl-manager" in result.output
    assert "options" not in faked


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seed", "-1"], "-1 is not in the range x>=0"),
        (["--workers", "0"], "0 is not in the range x>=1"),
        (["--memory-limit", "-5"], "-5 is not in the range 1<=x<=16777216"),
        (["--call-timeout", "0"], "0.0 is not in the range 0<x<=86400"),
        (["--depth", "slow"], "'slow' is not one of"),
        (["--fail-on", "bad"], "unknown severity 'bad'; known are wrong-data-of-another"),
        (["--fail-on", ","], "name at least one of"),
        (["--profile", "eviction"], "'eviction' is not KEY=VALUE"),
        (["--profile", "eviction="], "'eviction=' is not KEY=VALUE"),
        (["--profile", "keys=block,keys=full"], "'keys' is given twice"),
        (["--profile", "patch=fix.diff"], "patch is no row of a profile"),
        (["--known", "none.toml"], "cannot read none.toml: No such file"),
        (["--baseline", "none.json"], "cannot read none.json: No such file"),
        (["--json", "none/c.json"], "cannot write none/c.json: there is no folder none"),
        (["--junit", "."], "cannot write .: it is a folder"),
        (["--md", "pipe"], "cannot write pipe: it is not a regular file"),
        (["--report", "plain/out"], "cannot make folder plain/out"),
    ],
)
def test_what_is_wrong_is_found_before_the_work(poolproof, faked, arguments, message):
    Path("plain").write_text("kept")
    os.mkfifo("pipe")
    result = poolproof("certify", "impl", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert "options" not in faked
    assert Path("plain").read_text() == "kept"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"format": "poolproof-certificate", "version"', "main.json line 1 is not JSON"),
        ("{}", "main.json: not a certificate"),
        ('{"format": "poolproof-certificate", "version": 7}', "certificate version 7 is newer"),
    ],
)
def test_a_damaged_baseline_is_explained(poolproof, faked, text, message):
    Path("main.json").write_text(text)
    result = poolproof("certify", "impl", "--baseline", "main.json")
    assert result.exit_code == 2
    assert message in result.output


def test_a_target_that_cannot_be_run_exits_with_2(poolproof, monkeypatch):
    def certify(load, options, progress):
        raise TargetError("unknown target 'nope'; built in are impl")

    monkeypatch.setattr("poolproof.certification.certify.certify", certify)
    result = poolproof("certify", "nope")
    assert result.exit_code == 2
    assert result.stderr == "poolproof: unknown target 'nope'; built in are impl\n"


def test_a_buggy_pool_is_refused_with_a_trace_that_replays(poolproof, buggy):
    result = poolproof("certify", buggy, "--depth", "quick", "--report", "out")
    assert result.exit_code == 1, result.output
    (trace, *_) = sorted(Path("out").glob("f-*.jsonl"))
    assert poolproof("replay", trace).exit_code == 1


def test_the_depth_may_be_called_level_as_in_the_first_version(poolproof, faked):
    assert poolproof("certify", "reference", "--level", "deep").exit_code == 0
    assert faked["options"].depth == "deep"


def test_an_inferred_profile_is_printed_with_its_costs(poolproof, monkeypatch, samples):
    asked = {}

    def infer(load_with, options, progress):
        asked.update(depth=options.depth, rows=load_with({"duplicates": "first"})().profile)
        changes = [c for c in alternatives(Profile()) if str(c) == "eviction=lifo"]
        return InferredProfile(
            target="reference",
            outcome=InferenceOutcome.FOUND,
            declared=Profile(),
            changes=tuple(changes),
            certificate=samples.certificate(verdict=Verdict.HOLDS),
        )

    monkeypatch.setattr("poolproof.api.infer", infer)
    result = poolproof("certify", "reference", "--infer-profile", "--profile", "recache=forbidden")
    assert result.exit_code == 0
    assert (
        "change        eviction=lifo, another design, checked as strictly: what was"
        in result.stdout
    )
    assert asked["depth"] == "quick"
    assert (asked["rows"].duplicates, asked["rows"].recache) == ("first", "forbidden")


@pytest.mark.parametrize(
    "option", [("--json", "c.json"), ("--hardening",), ("--power",), ("--fail-on", "crash")]
)
def test_what_does_not_go_with_an_inferred_profile_is_refused(poolproof, option):
    result = poolproof("certify", "reference", "--infer-profile", *option)
    assert result.exit_code == 2
    assert f"{option[0]} does not go with --infer-profile; leave it out" in result.stderr


def test_a_kernel_has_no_profile_to_infer(poolproof):
    result = poolproof("certify", "ours-oracle", "--infer-profile", "--api", "kernel")
    assert result.exit_code == 2
    assert "is a kernel and has no profile; leave out --infer-profile" in result.stderr
