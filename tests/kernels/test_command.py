"""`poolproof kernels`: what it prints and writes, and its exit status."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from poolproof.cli.command_line import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LEAKY = f"{EXAMPLES}/attention_kernel.py:leaky_attention"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str):
    return CliRunner().invoke(main, ["kernels", *arguments])


def test_a_refused_kernel_with_report_picture_and_case(folder):
    result = run(LEAKY, "--depth", "quick", "--json", "r.json", "--picture", "r.svg")
    assert result.exit_code == 1, result.output
    assert "value tail: wrong data of another request, silent" in result.stdout
    [again] = [line for line in result.stdout.splitlines() if line.startswith("again ")]
    assert again == f"again    poolproof kernels {LEAKY} --case r.json"
    assert "REFUSED: " in result.stdout
    assert json.loads((folder / "r.json").read_text())["verdict"] == "REFUSED"
    assert (folder / "r.svg").read_text().startswith("<svg")
    repeated = run(LEAKY, "--case", "r.json", "--in-process")
    assert repeated.exit_code == 1
    # Blocks of another size give its products other last bits.
    promises = "tail=finite-values,block_size=close"
    accepted = run(f"{LEAKY}[{promises}]", "--case", "r.json", "--in-process")
    assert accepted.exit_code == 0, accepted.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "unknown kernel 'nothing'"),
        (["gather[tail=maybe]"], "must be one of any, finite-values, finite, not 'maybe'"),
        (["gather", "--json", "no/such/r.json"], "there is no folder no/such"),
        (["gather", "--case", "none.json"], "cannot read none.json"),
        (["gather", "--device", "cuda"], "no CUDA device is visible to torch"),
    ],
)
def test_what_cannot_be_carried_out_is_said_in_a_line(folder, arguments, words):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert words in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "case.json is not JSON"),
        ("[]", "is neither a report"),
        ('{"findings": []}', "holds no finding"),
        ('{"sequences": [[1]]}', "a case needs sequences"),
    ],
)
def test_a_case_file_that_cannot_be_used_says_why(folder, text, words):
    (folder / "case.json").write_text(text)
    result = run("gather", "--case", "case.json")
    assert result.exit_code == 2
    assert words in result.stderr


def test_the_faulty_kernels_are_listed_with_the_checks_that_see_them(folder, monkeypatch):
    from poolproof.kernels import faulty_kernels

    kept = {name: faulty_kernels.FAULTY_KERNELS[name] for name in ("S1", "C5")}
    monkeypatch.setattr(faulty_kernels, "FAULTY_KERNELS", kept)
    result = run("--faulty", "--json", "faulty.json")
    assert result.exit_code == 0, result.output
    assert "2 of 2 faulty kernels are seen" in result.stdout
    assert {row["id"] for row in json.loads((folder / "faulty.json").read_text())["faulty"]} == {
        "S1", "C5",
    }  # fmt: skip
