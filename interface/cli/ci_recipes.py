"""The files for CI that `poolproof new --ci` writes: for each system, filled in for a project.

They are the files of `fuzz/recipes/`; docs/ci.md explains them. A project that lists its targets in
`[tool.poolproof]` is certified as it says there. What pip installs is pinned: the same commit of a
project gets the same verdict.
"""

from __future__ import annotations

import json
import re
import shlex
from importlib.resources import files
from pathlib import Path

from poolproof.contract.errors import OptionError
from poolproof.contract.outside import shown
from poolproof.report.output_files import OutputError, check_folder, write_file

__all__ = ["RECIPES", "SYSTEMS", "recipe", "require_pinned", "write_recipes"]

RECIPES = ("poolproof-gate.yml", "poolproof-campaign.yml")

SYSTEMS = {
    "github": RECIPES,
    "gitlab": ("poolproof.gitlab-ci.yml",),
    "buildkite": ("poolproof.buildkite.yml",),
    "pre-commit": ("poolproof.pre-commit-config.yaml",),
}
"""The files of each system."""

_PINS = (
    r"[\w.-]+(\[[\w,.\s-]*\])?\s*===?\s*[^\s*,;]+",
    r"([\w.-]+(\[[\w,.\s-]*\])?\s*@\s*)?git\+\S+@([0-9a-f]{7,64}|v?\d[\w.+-]*)(#\S*)?",
    r"([\w.-]+(\[[\w,.\s-]*\])?\s*@\s*)?(https|file)://\S+\.(whl|zip|tar\.gz)(#\S*)?",
    r"\S+\.(whl|tar\.gz)",
)
"""What pip installs again as it is: a version, a commit or a tag that is one, an archive."""


def require_pinned(source: str) -> str:
    """The requirement as it is. Raises OptionError for one that means another release tomorrow."""
    if any(re.fullmatch(pin, source.strip()) for pin in _PINS):
        return source.strip()
    raise OptionError(
        f"--source {shown(source)} is not pinned, so the same commit could get another verdict "
        "tomorrow; write 'poolproof==VERSION' or 'poolproof @ git+https://...@COMMIT'"
    )


def recipe(
    name: str,
    target: str | None = None,
    source: str | None = None,
    *,
    campaign_target: str | None = None,
) -> str:
    """The text of a file for CI, with the target to certify and what pip installs filled in.

    An empty target stands for what `[tool.poolproof]` lists, at the depth that it says. A campaign
    has one target, which `campaign_target` then names.
    """
    text = (files("poolproof.fuzz") / "recipes" / name).read_text("utf-8")
    values = {
        "TARGET": target,
        "CAMPAIGN_TARGET": campaign_target or target,
        "POOLPROOF": source,
    }
    if target == "":
        values["DEPTH"] = ""
    for key, value in values.items():
        if value is not None:
            text = _with_value(text, key, value)
    return text


def _with_value(text: str, key: str, value: str) -> str:
    """The text with another value of a key, or where a line ends in `# KEY`, of that line."""
    # A text in JSON is one in YAML, whatever brackets and colons it has.
    quoted = json.dumps(value)
    text = re.sub(
        rf"^( *){key}: .*$", lambda found: f"{found[1]}{key}: {quoted}", text, flags=re.MULTILINE
    )
    marked = re.compile(rf"^( *(?:- )?[\w_]+:) .*?  # {key}$", re.MULTILINE)
    command = f"poolproof certify {shlex.quote(value)} --depth quick"
    whole = json.dumps(command if value else "poolproof certify")
    filled = whole if key == "TARGET" else f"[{quoted}]"
    return marked.sub(lambda found: f"{found[1]} {filled}  # {key}", text)


def write_recipes(
    folder: Path,
    target: str | None = None,
    names: tuple[str, ...] = RECIPES,
    source: str | None = None,
    *,
    campaign_target: str | None = None,
    force: bool = False,
) -> list[Path]:
    """Write all files of a system or none; returns their paths. Raises OutputError."""
    paths = [folder / name for name in names]
    for path in paths:
        if not force and (path.exists() or path.is_symlink()):
            raise OutputError(
                f"{path} exists already and is left as it is; move it away, or overwrite it with "
                "--force"
            )
    check_folder(folder)
    for path in paths:
        write_file(path, recipe(path.name, target, source, campaign_target=campaign_target))
    return paths
