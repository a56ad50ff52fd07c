"""A certification: lines, findings, smaller cases, promises that are not made, lost children."""

import os
from pathlib import Path

import pytest

from poolproof.certification.progress import SilentProgress
from poolproof.contract.target import TargetError
from poolproof.contract.violation import Severity
from poolproof.kernels import certification
from poolproof.kernels.catalogue import BUILT_INS
from poolproof.kernels.certification import KernelJob, certify_kernel
from poolproof.kernels.findings import KernelRun
from poolproof.kernels.load import load_kernel

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LEAKY = f"{EXAMPLES}/attention_kernel.py:leaky_attention"
RIGHT = f"{EXAMPLES}/attention_kernel.py:attention"


def certify(target: str, **options) -> KernelRun:
    job = KernelJob(target=target, depth="quick", **options)
    return certify_kernel(job, SilentProgress(), in_process=True)


def line_of(report: KernelRun, name: str):
    return next(line for line in report.lines if line.name == name)


@pytest.fixture(scope="module")
def leaky() -> KernelRun:
    return certify(LEAKY)


def test_a_usual_mistake_is_found_with_a_small_case(leaky):
    (finding,) = leaky.findings
    assert (finding.check, finding.severity) == ("value tail", Severity.WRONG_DATA_OF_ANOTHER)
    assert "NaN in value slots behind the last token" in finding.sentence
    assert finding.case["sequences"] == [[1, 1]]


def test_its_case_alone_shows_it_again(leaky):
    again = certify(LEAKY, case=leaky.findings[0].case)
    assert [finding.check for finding in again.findings] == ["value tail"]


def test_a_check_that_does_not_exist_is_named():
    with pytest.raises(TargetError, match="unknown check 'dance'; known are dense"):
        certify("gather", checks=("dance",))


def test_a_promise_that_is_not_made_cannot_be_broken():
    report = certify(LEAKY, overrides={"tail": "finite-values"})
    assert (report.findings, report.reasons_inconclusive) == ((), ())
    line = line_of(report, "value tail")
    assert (line.result, line.note) == ("not promised", "tail: finite-values")
    assert line_of(report, "key tail").result == "holds"


def test_what_cannot_be_done_is_not_run_and_says_why():
    report = certify(RIGHT)
    assert (report.findings, report.reasons_inconclusive) == ((), ())
    assert line_of(report, "read set").note == (
        "only Triton kernels in the interpreter can be watched"
    )
    assert line_of(report, "output rows").note == "no output tensor can be handed in"
    assert line_of(report, "swap").note == "the target is attention alone"
    assert line_of(report, "behind the window").result == "not applicable"
    assert any("not declared, so not driven: sliding_window" in text for text in report.not_covered)
    assert len(report.canaries_caught) == 8


def test_the_same_seed_gives_the_same_report(leaky):
    again = certify(LEAKY)
    assert again.findings == leaky.findings
    assert again.ratios == leaky.ratios


def written(folder: Path, body: str) -> str:
    path = folder / "mine.py"
    path.write_text("import os, time, torch\n" + body, encoding="utf-8")
    return f"{path}:attend"


ARGUMENTS = "query, *rest, **options"


@pytest.mark.parametrize(
    ("body", "words", "severity"),
    [
        ("return None", "returned a NoneType, not a tensor", Severity.CRASH),
        ("return query[:0]", "returned shape (0, ", Severity.CRASH),
        ("return query.double()", "returned torch.float64", Severity.CRASH),
        ("raise IndexError('no')", "raised IndexError: no", Severity.CRASH),
        ("return torch.zeros_like(query)", "and should be", Severity.WRONG_DATA_OF_ONES_OWN),
        ("query.zero_(); return query", "query was changed", Severity.WRONG_DATA_OF_ANOTHER),
    ],
)
def test_what_a_target_does_wrong_is_a_finding(tmp_path, body, words, severity):
    target = written(tmp_path, f"def attend({ARGUMENTS}):\n    {body}\n")
    found = certify(target).findings
    assert any(words in finding.sentence for finding in found)
    assert severity in {finding.severity for finding in found}


def test_a_target_that_answers_by_chance_is_not_repeatable(tmp_path):
    body = (
        "calls = [0]\n"
        f"def attend({ARGUMENTS}):\n"
        "    calls[0] += 1\n    return query * (calls[0] % 7)\n"
    )
    sentences = " ".join(finding.sentence for finding in certify(written(tmp_path, body)).findings)
    assert "with once more" in sentences


def test_a_target_that_ends_its_process_is_a_crash_with_its_case(tmp_path):
    body = (
        f"def attend({ARGUMENTS}):\n"
        "    if options['sliding_window'] is not None: os.kill(os.getpid(), 11)\n"
        "    return query\n"
        "attend.declaration = {'dtypes': ['float32']}\n"
    )
    checks = ("dense", "behind the window", "repeat")
    report = certify_kernel(
        KernelJob(target=written(tmp_path, body), depth="quick", checks=checks), SilentProgress()
    )
    crashes = [finding for finding in report.findings if finding.severity is Severity.CRASH]
    assert crashes
    assert crashes[0].sentence == "the process ended with SIGSEGV"
    assert crashes[0].case["sliding_window"] is not None
    assert len(crashes[0].case["sequences"]) == 1, "made smaller, each form in a child"
    assert (crashes[0].case["distribution"], crashes[0].case["seed"]) == ("plain", 0)
    assert "mine.py line 3 in attend" in crashes[0].frames[0]


def test_a_target_that_hangs_is_a_stall(tmp_path, monkeypatch):
    monkeypatch.setattr(certification, "MOST_CRASHES", 1)
    body = f"def attend({ARGUMENTS}):\n    time.sleep(600)\n"
    report = certify_kernel(
        KernelJob(target=written(tmp_path, body), depth="quick", case_timeout_s=6), SilentProgress()
    )
    assert {finding.severity for finding in report.findings} == {Severity.STALL}
    assert report.lines[-1].name == "the checks that are left"
    assert "the checks that are left: not run" in report.reasons_inconclusive


def test_children_report_what_this_process_would():
    job = KernelJob(target=RIGHT, depth="quick", workers=2)
    one, other = (certify_kernel(job, SilentProgress(), in_process=here) for here in (False, True))
    assert (one.lines, one.ratios) == (other.lines, other.ratios)


def test_what_a_child_cannot_load_is_said_in_a_line():
    with pytest.raises(TargetError, match="unknown kernel 'gathre'"):
        certify_kernel(KernelJob(target="gathre", workers=2), SilentProgress())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pagde", "unknown kernel 'pagde'; did you mean paged?"),
        ("missing.py:attend", "there is no Python file missing.py"),
        ("no.such.module:attend", "no.such.module cannot be imported: ModuleNotFoundError"),
        (f"{EXAMPLES}/attention_kernel.py:nothing", "has no function nothing; it has attention"),
    ],
)
def test_a_target_that_cannot_be_loaded_says_why(text, words):
    with pytest.raises(TargetError) as error:
        load_kernel(text, "cpu")
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("declaration", "words"),
    [
        ({"tale": "any"}, "unknown key 'tale'"),
        ({"tail": "some"}, "'tail' in a declaration must be one of any, finite-values, finite"),
        ({"dtypes": "float32"}, "'dtypes' in a declaration must be a list"),
        ({"dtypes": ["int8"]}, "'dtypes' in a declaration may hold float32"),
        ({"block_sizes": [0]}, "'block_sizes' in a declaration must hold sizes, not 0"),
        ({"modes": []}, "'modes' in a declaration must not be empty"),
        ({"out": 1}, "'out' in a declaration must be True or False"),
        ({"smallest_window": 0}, "'smallest_window' in a declaration must be a length, not 0"),
        ({"tiles": [1 << 20]}, "'tiles' in a declaration must hold sizes"),
        ({"views": ["key"]}, "'views' in a declaration may hold query, out, table"),
        ([], "declaration must be a mapping"),
    ],
)
def test_a_declaration_that_cannot_be_read_says_why(tmp_path, declaration, words):
    body = f"def attend({ARGUMENTS}): ...\nattend.declaration = {declaration!r}\n"
    with pytest.raises(TargetError) as error:
        load_kernel(written(tmp_path, body), "cpu")
    assert words in str(error.value)


def test_rows_of_a_declaration_can_be_replaced():
    target = load_kernel("gather", "cpu", {"dtypes": "float32+float16", "out": "no",
                                           "features": "none", "block_sizes": 8})  # fmt: skip
    declared = target.declaration
    assert (declared.dtypes, declared.out) == (("float32", "float16"), False)
    assert (declared.features, declared.block_sizes) == ((), (8,))
    assert load_kernel("gather", "cpu", {"smallest_window": "2"}).declaration.smallest_window == 2
    with pytest.raises(TargetError, match="unknown key 'nonsense'"):
        load_kernel("gather", "cpu", {"nonsense": 1})


def test_a_peer_that_is_not_installed_says_what_it_needs():
    missing = [name for name, row in BUILT_INS.items() if row.missing]
    for name in missing:
        with pytest.raises(TargetError, match="which is not installed here"):
            load_kernel(name, "cpu")


def test_a_module_with_triton_kernels_is_watched(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from poolproof.kernels.paged.decode import decode_splits\n"
        "from poolproof.kernels.paged.attention import paged_attention as attend\n"
    )
    assert load_kernel(f"{path}:attend", "cpu").uses_triton
    assert os.environ["TRITON_INTERPRET"] == "1"


def test_an_exception_of_our_own_is_not_blamed_on_the_target(monkeypatch):
    from dataclasses import replace

    from poolproof.kernels.checks.catalogue import CHECKS

    def broken(target, case):
        raise KeyError("ours")

    monkeypatch.setitem(CHECKS, "repeat", replace(CHECKS["repeat"], run=broken))
    with pytest.raises(RuntimeError, match="KeyError: 'ours'"):
        certify("gather", checks=("repeat",))
