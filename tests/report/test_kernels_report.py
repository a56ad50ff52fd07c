"""The report on a kernel as text and picture; and what is said where torch is missing."""

import datetime as dt
import importlib.util
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from poolproof.certification.baseline import Baseline, BaselineError, read_kernel_baseline
from poolproof.certification.certificate import Verdict
from poolproof.certification.finding import Identity
from poolproof.certification.kernel_certificate import KernelCertificate
from poolproof.certification.known_findings import KnownFinding, KnownFindings
from poolproof.certification.verdict import Rules, judge_kernel, reasons_inconclusive
from poolproof.cli.command_line import main
from poolproof.cli.kernels_command import is_kernel
from poolproof.contract.violation import Severity
from poolproof.kernels.findings import CheckLine, KernelFinding, KernelRun
from poolproof.report.certificate_document import verdict_line
from poolproof.report.certificate_outputs import KernelOutputs
from poolproof.report.forms import Form
from poolproof.report.kernel_document import KERNEL_CERTIFICATE, faulty_document, kernel_document
from poolproof.report.kernels_picture import errors_picture
from poolproof.report.text_form import plain_text


def run(**changes) -> KernelRun:
    about = {
        "target": "mine.py:attend",
        "version": "1.2",
        "device": "cpu",
        "device_name": "x86_64",
        "torch": "2.13.0",
        "triton": "3.7.1",
        "depth": "quick",
        "declaration": {"tail": "any", "features": ["softcap"], "out": True},
        "assumed": ("tail",),
        "lines": (CheckLine(name="dense", sentence="is dense", result="holds", examples=3,
                            compared=3, max_ratio=0.25),),
        "ratios": {"float32": [0.01, 0.25, 0.0], "bfloat16": [5.0]},
        "canaries_caught": ("S1: no softmax",),
    }  # fmt: skip
    return KernelRun(**{**about, **changes})


def judged(rules: Rules | None = None, **changes) -> KernelCertificate:
    made = KernelCertificate.of(run(**changes), "mine.py:attend", version="0.1.0")
    return judge_kernel(made, rules or Rules())


def junit_of(certificate: KernelCertificate) -> str:
    return KERNEL_CERTIFICATE.written(certificate, Form.JUNIT)


def text_of(certificate: KernelCertificate, json_file: str | None = None) -> str:
    return plain_text(kernel_document(certificate, json_file))


FINDING = KernelFinding(
    check="value tail",
    severity=Severity.WRONG_DATA_OF_ANOTHER,
    sentence="NaN <spreads>",
    case={"sequences": [[1, 1]]},
    words="float32, 1/1",
    example=2,
    frames=("mine.py line 3 in attend",),
)


def test_a_report_that_holds():
    text = text_of(judged())
    assert "mine.py:attend, 1.2" in text
    assert "interpreted on the CPU; torch 2.13.0, triton 3.7.1" in text
    assert "dense          3         3          0.25   holds: is dense" in text
    assert "bfloat16: 1 outputs, worst 5.00 of bound" in text
    assert "1 of 1 faulty kernels caught first" in text
    assert text.rstrip().endswith("HOLDS")


def test_a_report_that_refuses_says_how_to_see_it_again():
    refused = judged(findings=(FINDING,))
    text = text_of(refused)
    assert "value tail: wrong data of another request, silent" in text
    assert "smallest case: float32, 1/1" in text
    assert "mine.py line 3 in attend" in text
    assert "--json report.json, then poolproof kernels mine.py:attend --case report.json" in text
    again = "again    poolproof kernels mine.py:attend --case r.json"
    assert again in text_of(refused, "r.json")
    assert refused.verdict is Verdict.REFUSED


def test_a_report_that_says_too_little_is_inconclusive():
    unseen = CheckLine(name="swap", sentence="", result="nothing to compare", note="")
    little = judged(lines=(unseen,), canaries_missed=("S2: scale",), canaries_caught=())
    assert reasons_inconclusive(little) == (
        "canary not caught: S2: scale",
        "swap: nothing to compare",
    )
    assert little.verdict is Verdict.INCONCLUSIVE
    assert "INCONCLUSIVE: canary not caught" in text_of(little)
    assert reasons_inconclusive(judged(lines=())) == ("no check was run",)


def test_without_canaries_the_report_says_so():
    text = text_of(judged(canaries_caught=(), device="cuda"))
    assert "not checked here: faulty kernels run in the interpreter alone" in text


def test_a_large_ratio_is_short():
    line = CheckLine(name="dense", sentence="", result="VIOLATED", max_ratio=123456.7)
    assert "1.2e+05" in text_of(judged(lines=(line,)))


def test_the_picture_is_well_formed_and_marks_what_is_wrong():
    picture = errors_picture(run(target="<mine>"))
    root = ET.fromstring(picture)  # noqa: S314 -- our own text
    assert root.tag.endswith("svg")
    assert "&lt;mine&gt;" in picture
    bars = [bar for bar in root.iter("{http://www.w3.org/2000/svg}rect") if "fill" in bar.attrib]
    assert "#c0392b" in {bar.get("fill") for bar in bars}
    assert picture.count("batches, worst") == 2


def test_a_picture_of_nothing_says_so():
    assert "no output was measured" in errors_picture(run(ratios={}))


def test_the_faulty_kernels_that_are_not_seen_stand_out():
    rows = [
        {"id": "S1", "title": "one", "checks": ["dense"], "examples": {"dense": 4}},
        {"id": "S2", "title": "two", "checks": ["dense", "swap"], "examples": {"swap": 1}},
        {"id": "S3", "title": "three", "checks": ["dense"], "examples": {}},
    ]
    text = plain_text(faulty_document(rows))
    assert "dense 4" in text
    assert "swap 1, NOT by dense" in text
    assert "1 of 3 faulty kernels are seen" in text


@pytest.mark.parametrize(
    "command", [["kernels", "paged"], ["kernels", "--faulty"], ["certify", "paged"]]
)
def test_without_torch_the_command_says_what_to_install(monkeypatch, command):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "torch" else found(name)
    )
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert "pip install 'poolproof[kernels]'" in result.output


def test_certify_refuses_options_that_mean_nothing_for_kernels():
    result = CliRunner().invoke(main, ["certify", "paged", "--hardening", "--layout", "full"])
    assert result.exit_code == 2
    assert "--hardening, --layout: not for kernels" in result.output


def test_kernels_are_listed_with_what_they_need():
    result = CliRunner().invoke(main, ["list"])
    assert result.exit_code == 0
    assert "torch-flex-reused" in result.output


def test_a_finding_has_a_name_that_no_size_or_number_changes():
    other = replace(FINDING, sentence="NaN <spreads>", case={"sequences": [[1, 17]]}, example=9)
    with_numbers = [
        replace(FINDING, sentence=f"{count} of {count} rows change, the first is {first}")
        for count, first in ((1, "nan"), (12, "-0.25"))
    ]
    assert FINDING.fingerprint == other.fingerprint
    assert with_numbers[0].fingerprint == with_numbers[1].fingerprint != FINDING.fingerprint
    windowed = replace(FINDING, case={"sequences": [[1, 1]], "sliding_window": 4})
    assert windowed.fingerprint != FINDING.fingerprint


IDENTITY = Identity(FINDING.fingerprint, FINDING.kind)
BEFORE = Baseline("mine.py:attend", {IDENTITY: frozenset({None})})


def known(fingerprint: str, until: str = "2999-01-01") -> KnownFindings:
    identity = replace(IDENTITY, fingerprint=fingerprint)
    entry = KnownFinding((identity,), "link", "reason", dt.date.fromisoformat(until))
    return KnownFindings((entry,), dt.date(2026, 1, 1))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (Rules(), "REFUSED: 1 new"),
        (Rules(known=known(FINDING.fingerprint)), "HOLDS: 0 new, 1 known"),
        (Rules(baseline=BEFORE), "HOLDS: 0 new, 1 baseline"),
        (Rules(baseline=replace(BEFORE, target="other.py:f")), "REFUSED: 1 new"),
        (Rules(fail_on=(Severity.CRASH,)), "HOLDS: 0 new, 1 below --fail-on"),
        (
            Rules(known=known("f-00000000")),
            "REFUSED: 1 new, 1 in the known file but fixed",
        ),
        (Rules(known=known(FINDING.fingerprint, "2020-01-01")), "REFUSED: 1 new"),
    ],
)
def test_what_is_accepted_does_not_fail_a_run(rules, words):
    assert verdict_line(judged(rules, findings=(FINDING,))) == words


def test_what_has_expired_is_not_put_off_by_the_baseline():
    rules = Rules(known=known(FINDING.fingerprint, "2020-01-01"), baseline=BEFORE)
    made = judged(rules, findings=(FINDING,))
    assert verdict_line(made) == "REFUSED: 1 new"
    assert made.expired_known == (FINDING.fingerprint,)


def test_an_entry_may_name_the_rows_of_the_target():
    entries = known(FINDING.fingerprint)
    (entry,) = entries.entries
    made = KernelCertificate.of(run(findings=(FINDING,)), "mine.py:attend[tail=any]", version="0")
    for target, verdict in (
        ("mine.py:attend[tail=any]", Verdict.HOLDS),
        ("mine.py:attend", Verdict.REFUSED),
    ):
        rules = Rules(known=replace(entries, entries=(replace(entry, target=target),)))
        assert judge_kernel(made, rules).verdict is verdict


def test_one_case_cannot_say_that_something_is_gone():
    made = KernelCertificate.of(run(), "mine.py:attend", version="0", one_case=True)
    assert judge_kernel(made, Rules(known=known("f-00000000"))).fixed_known == ()


def test_the_json_has_the_run_and_how_it_was_judged():
    made = judged(Rules(known=known(FINDING.fingerprint)), findings=(FINDING,)).to_json()
    assert (made["format"], made["version_of_format"]) == ("poolproof-kernels", 1)
    assert (made["verdict"], made["poolproof_version"]) == ("HOLDS", "0.1.0")
    assert made["level"] == "quick"
    assert made["lines"][0]["max_ratio"] == 0.25
    (finding,) = made["findings"]
    assert (finding["fingerprint"], finding["status"]) == (FINDING.fingerprint, "known")
    assert KernelFinding.from_json(finding) == FINDING


def test_a_finding_is_a_failure_in_junit_and_an_accepted_one_is_skipped():
    refused = ET.fromstring(junit_of(judged(findings=(FINDING,))))  # noqa: S314 -- our own text
    assert refused.get("failures") == "1"
    failure = next(refused.iter("failure"))
    assert failure.get("type") == "wrong-data-of-another"
    rules = Rules(known=known(FINDING.fingerprint))
    accepted = junit_of(judged(rules, findings=(FINDING,)))
    assert ET.fromstring(accepted).get("failures") == "0"  # noqa: S314 -- our own text
    assert "known, does not fail the run" in accepted


def test_junit_has_what_was_left_out_and_what_was_missed():
    lines = [
        CheckLine(name="swap", sentence="", result="not applicable"),
        CheckLine(name="dense", sentence="", result="not run"),
    ]
    made = judged(findings=(FINDING,), lines=tuple(lines), canaries_missed=("S2: the scale",))
    root = ET.fromstring(junit_of(made))  # noqa: S314 -- our own text
    assert (root.get("errors"), root.get("skipped")) == ("2", "1")


def test_every_form_is_written_into_a_folder(tmp_path):
    outputs = KernelOutputs(folder=tmp_path / "r", markdown_file=tmp_path / "one.md")
    outputs.check()
    made = judged(Rules(baseline=BEFORE), findings=(FINDING,))
    assert outputs.write(made) == tmp_path / "r" / "report.json"
    names = {"report.json", "report.md", "report.html", "report.txt", "junit.xml", "errors.svg"}
    assert {path.name for path in (tmp_path / "r").iterdir()} == names
    markdown = (tmp_path / "one.md").read_text()
    assert markdown.startswith("# HOLDS: 0 new, 1 baseline")
    assert "NaN \\<spreads\\>" in markdown
    assert read_kernel_baseline(tmp_path / "r" / "report.json") == BEFORE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read"),
        ("{", "is not JSON"),
        ("{}", "is no report on a kernel"),
        ('{"format": "poolproof-kernels", "findings": [{}]}', "a finding cannot be read"),
    ],
)
def test_a_baseline_that_cannot_be_used_says_why(tmp_path, text, words):
    path = tmp_path / "b.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BaselineError, match=words):
        read_kernel_baseline(path)


def test_a_function_in_a_file_is_a_kernel_and_a_class_is_none(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def attend(query): ...\nclass Pool: ...\n")
    assert is_kernel("paged[tail=finite]")
    assert is_kernel(f"{path}:attend[tail=finite]")
    assert not is_kernel(f"{path}:Pool")
    assert not is_kernel("impl")
    assert not is_kernel(f"{tmp_path}/none.py:attend")
