"""The pages of the manual, where they are at hand: in the wheel, or in docs/ of a checkout."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

__all__ = ["manual_section", "slug"]


def manual_section(place: str) -> str | None:
    """The text of a section, `page#section`, or of a page up to its first section.

    None where there is no such section, or no manual.
    """
    name, _, anchor = place.partition("#")
    text = _page(name)
    if text is None:
        return None
    lines = text.splitlines()
    first = next((at for at, line in enumerate(lines) if _is_heading(line, anchor)), None)
    if first is None:
        return None
    depth = len(lines[first]) - len(lines[first].lstrip("#"))
    rest = lines[first + 1 :]
    end = next(
        (
            at
            for at, line in enumerate(rest)
            if _depth(line) and (not anchor or _depth(line) <= depth)
        ),
        len(rest),
    )
    return re.sub(r"<!--.*?-->\n?", "", "\n".join([lines[first], *rest[:end]]).strip() + "\n")


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def _page(name: str) -> str | None:
    root = files("poolproof")
    packed = root / "manual" / name
    if packed.is_file():
        return packed.read_text(encoding="utf-8")
    beside = Path(str(root)).parent / "docs" / name
    return beside.read_text(encoding="utf-8") if beside.is_file() else None


def _depth(line: str) -> int:
    """How deep a heading is; 0 for any other line."""
    return len(line) - len(line.lstrip("#")) if re.match(r"#+ ", line) else 0


def _is_heading(line: str, anchor: str) -> bool:
    if not _depth(line):
        return False
    return not anchor or slug(line.lstrip("# ")) == anchor
