"""`make engine-sources` takes the wheels that were looked at, and nothing else."""

import hashlib
import runpy
import sys
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / ".ci" / "engines.py"


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """The script with one engine of our own, whose wheel lies in its folder."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = wheels / "toy-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("toy/books.py", "toy/kernel.so", "toy/deep/more.py", "toy-1.0.dist-info/L"):
            archive.writestr(name, name)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    script = runpy.run_path(str(SCRIPT))

    def run(*members: str, sha256: str = digest) -> Path:
        engine = script["Engine"]("toy==1.0", wheel.name, sha256, members)
        monkeypatch.setitem(script["main"].__globals__, "ENGINES", (engine,))
        monkeypatch.setattr(sys, "argv", ["engines.py", str(tmp_path)])
        script["main"]()
        return tmp_path / "toy-1.0"

    return run


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_only_the_named_sources_are_unpacked(prepare):
    assert files(prepare("toy/books.py")) == [".complete", "toy/books.py"]


def test_a_folder_stands_for_its_sources_and_a_licence_for_itself(prepare):
    found = files(prepare("toy/", "toy-1.0.dist-info/"))
    assert found == [".complete", "toy-1.0.dist-info/L", "toy/books.py", "toy/deep/more.py"]


def test_a_complete_folder_is_left_as_it_is(prepare, tmp_path, capsys):
    prepare("toy/books.py")
    (tmp_path / "wheels" / "toy-1.0-py3-none-any.whl").unlink()
    prepare("toy/books.py")
    assert "toy-1.0 is complete" in capsys.readouterr().out


def test_a_wheel_with_another_hash_is_refused(prepare, tmp_path):
    with pytest.raises(SystemExit, match="it is not the file that was looked at"):
        prepare("toy/books.py", sha256="0" * 64)
    assert not (tmp_path / "toy-1.0").exists()


def test_a_wheel_without_the_wanted_file_is_refused(prepare, tmp_path):
    with pytest.raises(SystemExit, match=r"has no toy/missing\.py"):
        prepare("toy/missing.py")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wheels"]


def test_without_a_network_the_file_to_bring_is_named(prepare, tmp_path, monkeypatch):
    (tmp_path / "wheels" / "toy-1.0-py3-none-any.whl").unlink()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(SystemExit) as caught:
        prepare("toy/books.py")
    assert "toy==1.0 could not be fetched: " in str(caught.value)
    assert f"put toy-1.0-py3-none-any.whl into {tmp_path / 'wheels'}" in str(caught.value)
