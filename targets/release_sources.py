"""Fetches the sources of a release from the package index that pip is configured with.

A source distribution is a tar file of 5 to 50 MB, of which the few files are kept that an adapter
runs; wheels of engines mostly have hundreds of megabytes of kernels, and only a distribution that
has no sources on the index is taken from one. `pip download` would build sources to learn their
metadata, so only pip's settings are asked for (index, further indexes, certificates), and the file
is read from the index as pip would read it: the simple API, as JSON or as HTML, with the hash that
it states. Nothing of a release is built, installed or run here.
"""

from __future__ import annotations

import base64
import hashlib
import html.parser
import json
import os
import platform
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.target import TargetError
from poolproof.targets.engine_sources import fetch_folder

__all__ = ["fetch_release", "in_order", "releases_of"]

_COMPLETE = ".complete"
_SECONDS = 60.0
_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"


def fetch_release(
    package: str,
    version: str,
    wanted: Sequence[str],
    into: Path | None = None,
    *,
    wheel: bool = False,
) -> tuple[Path, bool]:
    """The folder `PACKAGE-VERSION` with the wanted files, and whether it had to be fetched.

    Args:
        package: its name on the index, which is also that of its folder in the distribution.
        version: as the index writes it.
        wanted: files of the distribution, and folders, which end in a slash and give their Python
            files; what a release does not have is left out.
        into: the folder that gets it; else that of all engines.
        wheel: whether to take a wheel for this machine, for any version of Python, in place of the
            sources.

    Raises TargetError where the index cannot be read or has no such file.
    """
    folder = into or fetch_folder()
    place = folder / f"{package}-{version}"
    wants = "\n".join(wanted)
    if (place / _COMPLETE).is_file() and (place / _COMPLETE).read_text("utf-8") == wants:
        return place, False
    pip = _pip_settings()
    found = _distributions(package, pip, wheel=wheel)
    if version not in found:
        near = ", ".join(sorted(found, key=in_order)[-5:]) or "none"
        what = f"is no wheel for {sys.platform} {platform.machine()}" if wheel else "are no sources"
        raise TargetError(
            f"there {what} of {package} {version} on {' or '.join(_indexes(pip))}; the "
            f"newest there are {near}"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".fetching-") as scratch:
            archive = Path(scratch) / ("wheel.whl" if wheel else "sdist.tar.gz")
            files = Path(scratch) / "files"
            files.mkdir()
            _download(found[version], archive, pip)
            if not _unpack(archive, files, wanted):
                raise TargetError(f"{found[version].name} has none of the files that are run")
            (files / _COMPLETE).write_text(wants, encoding="utf-8")
            shutil.rmtree(place, ignore_errors=True)
            files.rename(place)
    except (OSError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise TargetError(
            f"{package} {version} could not be fetched to {folder}: {error}"
        ) from error
    return place, True


def releases_of(package: str) -> list[str]:
    """The versions whose sources the index has, oldest first. Raises TargetError."""
    found = _distributions(package, _pip_settings())
    return sorted((version for version in found if _is_release(version)), key=in_order)


@dataclass(frozen=True)
class _File:
    name: str
    url: str
    sha256: str | None


def _pip_settings() -> Mapping[str, str]:
    """What pip is configured with, by the name of the option, with the index of its own.

    Raises TargetError where there is no pip to ask.
    """
    settings: dict[str, str] = {}
    # Later ones win: settings of all commands, of a command, of the environment.
    order = ("global", "install", "download", ":env:")
    lines = [line.partition("=") for line in _pip("config", "list").splitlines() if "=" in line]
    for section in order:
        for key, _, value in lines:
            where, _, option = key.rpartition(".")
            if where == section:
                settings[option] = value.strip().strip("'\"")
    if not settings.get("index-url"):
        # Its default stands in its help alone.
        default = re.search(r"\(default:? (https?://[^\s)]+)\)", _pip("download", "--help"))
        if default is None:
            raise TargetError(
                "pip does not say from which index it takes packages; set PIP_INDEX_URL to one"
            )
        settings["index-url"] = default[1]
    return settings


def _pip(*arguments: str) -> str:
    """What pip prints. Raises TargetError where there is no pip."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    wide = {**os.environ, "COLUMNS": "1000"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=wide)
    if done.returncode:
        raise TargetError(
            f"the package index is the one that pip uses, and pip cannot be run: {sys.executable} "
            "-m pip; install pip there"
        )
    return done.stdout


def _indexes(pip: Mapping[str, str]) -> list[str]:
    further = pip.get("extra-index-url", "").replace("\\n", " ").split()
    return [index.rstrip("/") for index in (pip["index-url"], *further)]


def _distributions(
    package: str, pip: Mapping[str, str], *, wheel: bool = False
) -> dict[str, _File]:
    """The sources, or wheels, of all indexes by version; the first index that has one wins."""
    version_in = _version_of_wheel if wheel else _version_of_sources
    found: dict[str, _File] = {}
    errors = []
    for index in _indexes(pip):
        address = f"{index}/{package}/"
        try:
            for file in _files(address, pip):
                version = version_in(package, file.name)
                if version is not None:
                    found.setdefault(version, file)
        except (OSError, ValueError) as error:
            errors.append(f"{_without_password(address)}: {error}")
    if not found and errors:
        raise TargetError(
            f"the sources of {package} could not be looked up: {'; '.join(errors)}; set pip's "
            "index-url to an index that can be reached"
        )
    return found


def _version_of_sources(package: str, name: str) -> str | None:
    prefix, suffix = f"{package}-", ".tar.gz"
    is_one = name.startswith(prefix) and name.endswith(suffix)
    return name[len(prefix) : -len(suffix)] if is_one else None


_SYSTEMS = {"linux": "manylinux", "darwin": "macosx"}


def _version_of_wheel(package: str, name: str) -> str | None:
    """The version of a wheel that this machine can run, whichever Python it was built for."""
    words = name.removesuffix(".whl").split("-")
    if not name.endswith(".whl") or len(words) != 5 or words[0] != package:
        return None
    system = _SYSTEMS.get(sys.platform, sys.platform)
    here = words[4].startswith(system) and words[4].endswith(platform.machine())
    return words[1] if here or words[4] == "any" else None


def _files(address: str, pip: Mapping[str, str]) -> list[_File]:
    with _open(address, pip) as answer:
        text = answer.read().decode("utf-8", "replace")
        kind = answer.headers.get_content_type()
    if kind.endswith("json"):
        return [
            _File(
                each["filename"],
                urllib.parse.urljoin(address, each["url"]),
                each.get("hashes", {}).get("sha256"),
            )
            for each in json.loads(text)["files"]
        ]
    links = _Links()
    links.feed(text)
    found = []
    for link in links.found:
        url, _, fragment = urllib.parse.urljoin(address, link).partition("#")
        digest = fragment.removeprefix("sha256=") if fragment.startswith("sha256=") else None
        name = urllib.parse.unquote(url.rpartition("/")[2])
        found.append(_File(name, url, digest))
    return found


class _Links(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.found.append(href)


def _open(address: str, pip: Mapping[str, str]) -> Any:
    """The answer of an address; a name and password in it are sent as pip sends them."""
    parts = urllib.parse.urlsplit(address)
    headers = {"Accept": _ACCEPT}
    if parts.username is not None:
        pair = (
            f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        )
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        address = _without_password(address)
    if parts.scheme == "file" and address.endswith("/"):
        address += "index.html"  # as pip reads a folder
    certificates = pip.get("cert") or os.environ.get("REQUESTS_CA_BUNDLE") or None
    context = ssl.create_default_context(cafile=certificates)
    request = urllib.request.Request(address, headers=headers)  # noqa: S310 -- the user's own index
    return urllib.request.urlopen(request, timeout=_SECONDS, context=context)  # noqa: S310 -- the same


def _without_password(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _download(file: _File, to: Path, pip: Mapping[str, str]) -> None:
    digest = hashlib.sha256()
    with _open(file.url, pip) as answer, to.open("wb") as written:
        while part := answer.read(1 << 20):
            digest.update(part)
            written.write(part)
    if file.sha256 is not None and digest.hexdigest() != file.sha256:
        raise TargetError(
            f"{file.name} has the SHA-256 {digest.hexdigest()}, and the index says {file.sha256}; "
            "fetch it again"
        )


def _unpack(archive: Path, files: Path, wanted: Sequence[str]) -> int:
    """Write the wanted members, without the folder that holds all; how many there were."""
    folders = tuple(name for name in wanted if name.endswith("/"))
    count = 0
    for name, content in _members(archive, wanted, folders):
        place = files / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        count += name != "LICENSE" or name in wanted
    return count


def _members(
    archive: Path, wanted: Sequence[str], folders: tuple[str, ...]
) -> Iterator[tuple[str, bytes]]:
    """The wanted plain files of the archive and its licence, by their names below its package."""

    def is_wanted(name: str) -> bool:
        # A member that leads out of its folder is none of ours.
        is_code = name in wanted or (name.startswith(folders) and name.endswith(".py"))
        return ".." not in name and (is_code or name == "LICENSE")

    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                name = _IN_A_WHEEL.sub("", entry.filename)
                if not entry.is_dir() and is_wanted(name):
                    yield name, wheel.read(entry)
        return
    with tarfile.open(archive, "r:gz") as members:
        for member in members:
            name = member.name.partition("/")[2]
            content = members.extractfile(member) if member.isfile() and is_wanted(name) else None
            if content is not None:
                yield name, content.read()


_IN_A_WHEEL = re.compile(r"^[^/]+\.(data/(platlib|purelib)|dist-info(/licenses)?)/")
"""Folders of a wheel whose contents stand beside its packages, or name its licence."""


def _is_release(version: str) -> bool:
    """Whether it is no release candidate and no development version."""
    parts = version.split(".")
    return all(part.isdigit() or part.startswith("post") for part in parts)


def in_order(version: str) -> list[int]:
    """The numbers of a version, which compare as releases follow each other."""
    parts = version.replace("post", "").split(".")
    return [int(part) if part.isdigit() else -1 for part in parts]
