"""`make vllm` must notice when installing Poolproof replaces a package of the engine."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / ".ci"

# Stands in for the interpreter of an engine: answers `pip freeze` before and after.
FAKE = """#!{python}
import pathlib, sys
state = pathlib.Path({state!r})
if "freeze" in sys.argv:
    print(pathlib.Path({after!r} if state.exists() else {before!r}).read_text(), end="")
elif "install" in sys.argv:
    state.touch()
"""


def install(tmp_path: Path, before: str, after: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "before").write_text(before)
    (tmp_path / "after").write_text(after)
    fake = tmp_path / "python"
    fake.write_text(
        FAKE.format(
            python=sys.executable,
            state=str(tmp_path / "installed"),
            before=str(tmp_path / "before"),
            after=str(tmp_path / "after"),
        )
    )
    fake.chmod(0o755)
    code = (
        "import runpy, sys\n"
        f"sys.executable = {str(fake)!r}\n"
        "sys.argv = ['install_beside.py', '.']\n"
        f"runpy.run_path({str(SCRIPTS / 'install_beside.py')!r}, run_name='__main__')\n"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_adding_is_fine(tmp_path: Path) -> None:
    done = install(
        tmp_path,
        "rich==13.0.0\n",
        "-e git+ssh://somewhere#egg=poolproof\nrich==13.0.0\nxxhash==3.0.0\n",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 packages unchanged, 1 added" in done.stdout


def test_poolproof_itself_may_be_installed_anew(tmp_path: Path) -> None:
    done = install(tmp_path, "poolproof==0.0.9\n", "poolproof==0.1.0\n")
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("after", "line"),
    [
        ("rich==15.0.0\ntorch==2.13.0\n", "rich==13.0.0 became rich==15.0.0"),
        ("torch==2.13.0\n", "rich==13.0.0 became nothing"),
    ],
)
def test_replacing_fails_and_says_what(tmp_path: Path, after: str, line: str) -> None:
    done = install(tmp_path, "rich==13.0.0\ntorch==2.13.0\n", after)
    assert done.returncode == 1
    assert line in done.stderr
    assert "torch" not in done.stderr


def test_an_exact_version_counts_with_its_local_part(tmp_path: Path) -> None:
    info = tmp_path / "engine-2.13.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: engine\nVersion: 2.13.0+cpu\n")
    code = (
        "import runpy, sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "sys.argv = ['has_packages.py', *sys.argv[1:]]\n"
        f"runpy.run_path({str(SCRIPTS / 'has_packages.py')!r}, run_name='__main__')\n"
    )

    def check(*pins: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-c", code, *pins], capture_output=True, text=True, check=False
        )

    assert check("engine==2.13.0").returncode == 0
    older = check("engine==2.12.0")
    assert older.returncode == 1
    assert "has engine 2.13.0+cpu; engine==2.12.0 is needed" in older.stderr
    missing = check("no-such-engine==1")
    assert missing.returncode == 1
    assert "no-such-engine is not installed" in missing.stderr
