"""Build the manual as a site that works from a folder: no server, no network.

The pages stay where GitHub and the wheel read them. They are staged in build/site-pages with
whatever they link to, so that a link means the same in the tree and on the site: a script, a trace
or a folder that is linked gets a page of its own. MkDocs then builds build/site, and a dead link
fails.

Usage: python docs/site/build.py [FOLDER]      FOLDER is build/site by default
"""

from __future__ import annotations

import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import poolproof

__all__ = ["build", "main", "stage", "staged_text"]

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
FIRST_PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
PICTURES = {".svg", ".png"}
LANGUAGES = {".py": "python", ".jsonl": "json", ".json": "json", ".toml": "toml", ".sh": "bash"}
LINK = re.compile(r"(?<=\]\()([^)\s]+)(?=\))")
# Python-Markdown wants four spaces where GitHub takes the two or three below a list's mark.
INDENTED = re.compile(r"^ {2,}(?=\S)")
CODE_IN_A_CELL = re.compile(r"`[^`]*`")
COMMENT = re.compile(r"^<!--.*-->$")


class DeadLinkError(Exception):
    """A page links to what is not there, or lies outside the tree."""


def stage(folder: Path) -> list[str]:
    """Write the pages, and all that they lead to, to a folder; give their names.

    Raises DeadLinkError for a link to a file that does not exist.
    """
    waiting = [
        *FIRST_PAGES,
        *(f"docs/{page.name}" for page in sorted((ROOT / "docs").glob("*.md"))),
    ]
    seen = set(waiting)
    for name in waiting:  # grows as pages are read
        for found in _stage_one(name, folder):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    shutil.copytree(HERE / "assets", folder / "assets")
    return waiting


def _stage_one(name: str, folder: Path) -> Iterator[str]:
    """Write one file, or the page that shows it, and yield the files that it links to."""
    source, target = ROOT / name, folder / staged_name(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix in PICTURES:
        shutil.copyfile(source, target)
    elif source.suffix == ".md":
        text = source.read_text(encoding="utf-8")
        target.write_text(staged_text(text, name), encoding="utf-8")
        yield from _linked(text, name)
    elif source.is_dir():
        inside = [one for one in sorted(source.iterdir()) if one.is_file() and one.name[0] != "."]
        # MkDocs takes a README for the page of its folder, so it becomes a part of that page.
        readme = next((one.read_text("utf-8") for one in inside if one.name == "README.md"), "")
        inside = [one for one in inside if one.name != "README.md"]
        lines = [f"- [{one.name}]({staged_name(f'x/{one.name}')[2:]})" for one in inside]
        body = staged_text(readme, f"{name}/README.md") + "\n" + "\n".join(lines)
        target.write_text(_shown(name, body), encoding="utf-8")
        yield from (f"{name}/{one.name}" for one in inside)
        yield from _linked(readme, f"{name}/README.md")
    else:
        code = source.read_text(encoding="utf-8")
        language = LANGUAGES.get(source.suffix, "text")
        target.write_text(_shown(name, f"`````{language}\n{code}`````"), encoding="utf-8")


def _shown(name: str, body: str) -> str:
    """The page of a file that is no page; a search is for the manual and leaves it out."""
    return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n{body}\n"


def staged_name(name: str) -> str:
    """Where a file of the tree stands among the staged pages."""
    path = Path(name)
    if path.suffix in PICTURES or path.suffix == ".md":
        return name
    return f"{name}/index.md" if (ROOT / name).is_dir() else f"{name}.md"


def staged_text(text: str, name: str) -> str:
    """A page as MkDocs takes it; what stands in blocks of code is left as it is."""
    lines, fenced = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        if fenced or line.startswith("```"):
            lines.append(line)
        elif COMMENT.match(line):
            lines.append("")
        else:
            new = INDENTED.sub(lambda spaces: spaces[0] + "  ", line)
            if line.startswith("|"):
                # GitHub wants a bar escaped in code as well; Python-Markdown shows the mark.
                new = CODE_IN_A_CELL.sub(lambda code: code[0].replace("\\|", "|"), new)
            lines.append(LINK.sub(lambda link: _staged_link(link[0], name), new))
    return "\n".join(lines) + "\n"


def _staged_link(link: str, name: str) -> str:
    target = _target(link, name)
    if target is None:
        return link
    anchor = link.partition("#")[2]
    relative = posixpath.relpath(staged_name(target), posixpath.dirname(name) or ".")
    return f"{relative}#{anchor}" if anchor else relative


def _linked(text: str, name: str) -> Iterator[str]:
    without_code = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for match in LINK.finditer(without_code):
        target = _target(match[0], name)
        if target is not None:
            yield target


def _target(link: str, name: str) -> str | None:
    """The file of the tree that a page links to; None for itself and for the network."""
    path = link.partition("#")[0]
    if not path or "://" in link or link.startswith("mailto:"):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(name), path))
    if target.startswith("..") or not (ROOT / target).exists():
        raise DeadLinkError(f"{name} links to {link}, and there is no {target}")
    return target


def build(site: Path) -> int:
    """Stage the pages and build the site; give MkDocs's exit status."""
    pages = ROOT / "build" / "site-pages"
    shutil.rmtree(pages, ignore_errors=True)
    stage(pages)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--clean"]
    command += ["--config-file", str(HERE / "mkdocs.yml"), "--site-dir", str(site.resolve())]
    surroundings = {**os.environ, "POOLPROOF_EDITION": f"Poolproof {poolproof.__version__}"}
    return subprocess.run(command, check=False, cwd=ROOT, env=surroundings).returncode


def main() -> int:
    """Build, and say where the first page is."""
    site = Path(sys.argv[1]) if sys.argv[1:] else ROOT / "build" / "site"
    try:
        status = build(site)
    except DeadLinkError as dead:
        print(dead, file=sys.stderr)
        return 1
    if status == 0:
        print(f"open {site / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
