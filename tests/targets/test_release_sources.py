"""A release's sources come from the index that pip uses: here a folder, so without a network."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import tarfile
import zipfile

import pytest

from poolproof.contract.target import TargetError
from poolproof.targets.release_sources import (
    _files,
    _pip_settings,
    _version_of_wheel,
    fetch_release,
    releases_of,
)

FILES = {
    "pkg/core/pool.py": b"one = 1\n",
    "pkg/core/notes.txt": b"no code\n",
    "pkg/words.py": b"two = 2\n",
    "pkg/kernels.py": b"three = 3\n",
    "LICENSE": b"free\n",
}
WANTED = ("pkg/core/", "pkg/words.py", "pkg/no_such_file.py")


def sdist(files=FILES, folder="pkg-1.0"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo(f"{folder}/pkg/core/link.py")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    return packed.getvalue()


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Lets a test write the page of a package; the engines go into a folder of the test."""
    folder = tmp_path / "simple" / "pkg"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "simple").as_uri())
    monkeypatch.setenv("POOLPROOF_ENGINES", str(tmp_path / "engines"))

    def publish(content, digest=None, versions=("1.0",), suffix=".tar.gz"):
        digest = digest or hashlib.sha256(content).hexdigest()
        names = [f"pkg-{version}{suffix}" for version in versions]
        for name in names:
            (folder / name).write_bytes(content)
        links = [f'<a href="{name}#sha256={digest}">{name}</a>' for name in names]
        text = "".join(links) + '<a href="pkg-1.0-py3-none-any.whl">a wheel</a>'
        (folder / "index.html").write_text(f"<html>{text}</html>", encoding="utf-8")

    return publish


def test_the_wanted_files_are_kept(index, tmp_path):
    index(sdist())
    place, is_new = fetch_release("pkg", "1.0", WANTED)
    assert (place, is_new) == (tmp_path / "engines" / "pkg-1.0", True)
    kept = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert kept == {".complete", "LICENSE", "pkg/core/pool.py", "pkg/words.py"}
    assert (place / "pkg/core/pool.py").read_bytes() == b"one = 1\n"
    assert list((tmp_path / "engines").iterdir()) == [place]


def wheel_of(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def test_a_release_without_sources_is_taken_from_a_wheel(index, tmp_path):
    files = {
        "pkg/core/pool.py": b"one = 1\n",
        "pkg/kernels.py": b"three = 3\n",
        "pkg-1.0.data/platlib/pkg/words.py": b"two = 2\n",
        "pkg-1.0.dist-info/licenses/LICENSE": b"free\n",
        "pkg/core/../../outside.py": b"none of ours\n",
    }
    index(wheel_of(files), suffix="-py3-none-any.whl")
    place, is_new = fetch_release("pkg", "1.0", WANTED, wheel=True)
    assert is_new
    kept = {path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()}
    assert kept == {".complete", "LICENSE", "pkg/core/pool.py", "pkg/words.py"}
    assert not (tmp_path / "outside.py").exists()


def test_where_no_wheel_is_for_this_machine_that_is_said(index):
    index(wheel_of({}), suffix="-py3-none-nowhere.whl", versions=("2.0",))
    with pytest.raises(TargetError, match=r"there is no wheel for .* of pkg 2\.0 on"):
        fetch_release("pkg", "2.0", WANTED, wheel=True)


def test_what_is_no_wheel_is_named(index):
    index(b"not an archive", suffix="-py3-none-any.whl")
    with pytest.raises(TargetError, match=r"pkg 1\.0 could not be fetched"):
        fetch_release("pkg", "1.0", WANTED, wheel=True)


@pytest.mark.parametrize(
    ("system", "name", "version"),
    [
        ("linux", "pkg-1.0-cp312-cp312-manylinux_2_34_{machine}.whl", "1.0"),
        ("linux", "pkg-1.0-cp310-abi3-macosx_13_0_{machine}.whl", None),
        ("darwin", "pkg-1.0-cp310-abi3-macosx_13_0_{machine}.whl", "1.0"),
        ("linux", "pkg-1.0-cp312-cp312-manylinux_2_34_other.whl", None),
        ("linux", "pkg-1.0-py3-none-any.whl", "1.0"),
        ("linux", "other-1.0-py3-none-any.whl", None),
        ("linux", "pkg-1.0.tar.gz", None),
    ],
)
def test_a_wheel_is_for_a_machine_and_for_any_python(monkeypatch, system, name, version):
    monkeypatch.setattr("sys.platform", system)
    assert _version_of_wheel("pkg", name.format(machine=platform.machine())) == version


def test_what_is_there_is_not_fetched_again_unless_more_is_wanted(index):
    index(sdist())
    fetch_release("pkg", "1.0", WANTED)
    assert fetch_release("pkg", "1.0", WANTED)[1] is False
    assert fetch_release("pkg", "1.0", ("pkg/words.py",))[1] is True


def test_a_file_with_another_hash_is_refused(index, tmp_path):
    index(sdist(), digest="0" * 64)
    with pytest.raises(
        TargetError, match=r"pkg-1\.0\.tar\.gz has the SHA-256 .*, and the index says 000"
    ):
        fetch_release("pkg", "1.0", WANTED)
    assert not list((tmp_path / "engines").iterdir())


def test_a_version_that_is_not_there_names_those_that_are(index):
    index(sdist(), versions=("1.0", "1.10", "1.9"))
    with pytest.raises(
        TargetError, match=r"no sources of pkg 2\.0 .*newest there are 1\.0, 1\.9, 1\.10"
    ):
        fetch_release("pkg", "2.0", WANTED)


def test_a_release_without_any_of_the_files_is_named(index):
    index(sdist({"other.py": b""}))
    with pytest.raises(TargetError, match="has none of the files that are run"):
        fetch_release("pkg", "1.0", WANTED)


def test_what_is_no_archive_is_named(index):
    index(b"not an archive")
    with pytest.raises(TargetError, match=r"pkg 1\.0 could not be fetched"):
        fetch_release("pkg", "1.0", WANTED)


def test_an_index_that_cannot_be_read_is_named(index, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_INDEX_URL", f"{(tmp_path / 'nowhere').as_uri()}")
    with pytest.raises(TargetError, match=r"could not be looked up: .*set pip's index-url"):
        fetch_release("pkg", "1.0", WANTED)


def test_without_a_setting_it_is_the_index_of_pip_itself(index, monkeypatch):
    monkeypatch.delenv("PIP_INDEX_URL")
    # What this machine is configured with is none of this test's business.
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert _pip_settings()["index-url"].startswith("https://")


def test_without_pip_that_is_said(index, monkeypatch):
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(TargetError, match=r"pip cannot be run: .*install pip there"):
        fetch_release("pkg", "1.0", WANTED)


def test_releases_are_in_order_and_candidates_are_none(index):
    index(sdist(), versions=("1.10", "1.9.post1", "1.9", "2.0rc1", "1.9.1"))
    assert releases_of("pkg") == ["1.9", "1.9.post1", "1.9.1", "1.10"]


def test_an_index_may_answer_json(tmp_path, monkeypatch):
    from poolproof.targets import release_sources

    page = {
        "files": [
            {"filename": "pkg-1.0.tar.gz", "url": "../f/pkg-1.0.tar.gz", "hashes": {"sha256": "ab"}}
        ]
    }

    class Answer(io.BytesIO):
        class headers:  # noqa: N801 -- as an answer has it
            @staticmethod
            def get_content_type():
                return "application/vnd.pypi.simple.v1+json"

    monkeypatch.setattr(release_sources, "_open", lambda *_: Answer(json.dumps(page).encode()))
    (file,) = _files("https://index.example/simple/pkg/", {})
    assert (file.url, file.sha256) == ("https://index.example/simple/f/pkg-1.0.tar.gz", "ab")
