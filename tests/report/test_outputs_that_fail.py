"""One output that cannot be written costs neither the others nor the verdict."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from poolproof.certification.verdict import Rules, judge
from poolproof.report import output_files
from poolproof.report.certificate_outputs import Outputs

FULL = Path("/dev/full")

needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs a device that is always full")


def poolproof(folder, *arguments, **streams):
    """The command line in a process of its own, in a folder."""
    command = [sys.executable, "-m", "poolproof", *arguments]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, cwd=folder, text=True, check=False, **options)


@pytest.fixture
def refused(samples):
    return judge(samples.certificate(samples.finding()), Rules())


FORMS = ["c.json", "c.xml", "c.md", "out/certificate.json", "out/certificate.md", "out/junit.xml",
         "out/certificate.txt", "out/f-7d3f0a11.jsonl", "out/f-7d3f0a11.txt"]  # fmt: skip


@pytest.mark.parametrize("failing", FORMS)
def test_when_one_file_cannot_be_written_all_others_are(
    refused, folder, monkeypatch, capsys, failing
):
    write = output_files.write_atomically

    def write_unless_full(path, text):
        if path == (folder / failing).resolve():
            raise OSError(28, "No space left on device")
        write(path, text)

    monkeypatch.setattr(output_files, "write_atomically", write_unless_full)
    outputs = Outputs(Path("c.json"), Path("c.xml"), Path("c.md"), Path("out"))
    outputs.check()
    outputs.write(refused)
    error = capsys.readouterr().err
    assert error == f"poolproof: cannot write {failing}: No space left on device\n"
    assert [form for form in FORMS if not (folder / form).exists()] == [failing]


def test_when_the_folder_is_gone_the_files_beside_it_are_written(refused, folder, capsys):
    outputs = Outputs(Path("c.json"), folder=Path("out"))
    outputs.check()
    (folder / "out").rmdir()
    (folder / "out").write_text("in the way")
    assert outputs.write(refused) == {}
    assert json.loads((folder / "c.json").read_text())["target"] == "pool.py:Pool"
    assert "cannot write out/certificate.md" in capsys.readouterr().err


@pytest.fixture
def certified(folder, buggy):
    """Runs `certify` on a pool with a bug."""

    def run(**streams):
        return poolproof(
            folder, "certify", buggy, "--depth", "quick", "--json", "c.json", "--workers", "1",
            **streams,
        )  # fmt: skip

    return run


@needs_full
def test_a_full_standard_output_costs_neither_the_verdict_nor_the_files(certified, folder):
    with FULL.open("w") as full:
        done = certified(stdout=full)
    assert done.returncode == 1
    assert json.loads((folder / "c.json").read_text())["verdict"] == "refused"
    last = done.stderr.splitlines()[-1]
    assert last == (
        "poolproof: cannot write to standard output: No space left on device; "
        "the exit status is the run's all the same"
    )


@needs_full
def test_standard_error_may_be_full_as_well(folder, buggy):
    with FULL.open("w") as full:
        done = poolproof(folder, "show", "nothing.jsonl", stdout=full, stderr=full)
    assert done.returncode == 2


def test_a_reader_that_goes_away_changes_no_exit_status(folder, samples):
    (folder / "t.jsonl").write_text("\n".join(samples.trace().lines()))
    command = f"{sys.executable} -m poolproof show t.jsonl; echo $? >&2"
    shell = subprocess.Popen(
        ["sh", "-c", f"({command}) | true"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    error = shell.communicate()[1]
    assert error == "0\n"


@pytest.mark.deep
def test_streams_that_were_closed_before_the_start_are_no_error(folder, samples):
    (folder / "t.jsonl").write_text("\n".join(samples.trace().lines()))
    command = f"{sys.executable} -m poolproof show t.jsonl"
    for closed in (">&-", "2>&-", ">&- 2>&-", "<&- >&-"):
        done = subprocess.run(["sh", "-c", f"{command} {closed}"], cwd=folder, check=False)
        assert done.returncode == 0
