"""What pip can be told to install this very Poolproof again, elsewhere: for files that CI runs.

pip notes where a package came from (PEP 610): a repository and its commit, a folder, an archive.
Where it says nothing, the package came from an index by its version.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["installed_source"]

_PUBLIC = ("https://", "http://", "ssh://", "git://")


def installed_source() -> str | None:
    """The requirement, pinned; None where nobody else could install from there."""
    text = metadata.distribution("poolproof").read_text("direct_url.json")
    if text is None:
        return f"poolproof=={metadata.version('poolproof')}"
    return source_of(json.loads(text))


def source_of(origin: Mapping[str, Any]) -> str | None:
    """The requirement for what pip noted; None where it is a place of this machine alone."""
    url = str(origin.get("url", ""))
    pinned = origin.get("vcs_info")
    if isinstance(pinned, Mapping) and url.startswith(_PUBLIC):
        return f"poolproof @ {pinned['vcs']}+{url}@{pinned['commit_id']}"
    if "archive_info" in origin:
        return f"poolproof @ {url}" if url.startswith(_PUBLIC) else None
    if "dir_info" in origin:
        return _of_checkout(Path(unquote(urlsplit(url).path)))
    return None


def _of_checkout(folder: Path) -> str | None:
    """A folder is a checkout of a public repository, at a commit, or nothing for others."""
    url, commit = _git(folder, "remote", "get-url", "origin"), _git(folder, "rev-parse", "HEAD")
    if url is not None and url.startswith("git@") and ":" in url:
        host, _, path = url.removeprefix("git@").partition(":")
        url = f"ssh://git@{host}/{path}"
    if url is None or commit is None or not url.startswith(_PUBLIC):
        return None
    return f"poolproof @ git+{url}@{commit}"


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(  # noqa: S603 - the words are ours
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - as the user's shell finds it
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip() or None
