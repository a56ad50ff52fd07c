"""The table of vLLM's releases, from what benchmarks/vllm_releases.py wrote."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from figures import read

__all__ = ["vllm_release_findings", "vllm_releases"]

_REPAIRED = "vllm-manager-repaired"
_TARGETS = ("vllm", "vllm-queue", "vllm-index", "vllm-manager", _REPAIRED)
_MOST = 160
"""Characters of a reason; the command says all of it."""


def vllm_releases() -> str:
    """A row for each release: what each target's verdict is."""
    lines = [
        "| release | pool | queue | index | manager | manager, hashes repaired |",
        "|---|---|---|---|---|---|",
    ]
    for version, rows in _newest_first():
        cells = (_cell(rows.get(target)) for target in _TARGETS)
        lines.append(f"| {version} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def vllm_release_findings() -> str:
    """What was found and what was not driven, each with the releases that it is about."""
    lines = []
    for what, releases in _collected():
        lines.append(f"- {', '.join(releases)}: {what}")
    return "\n".join(lines) + "\n"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "not run"
    if row["verdict"] == "refused":
        found = sorted({finding["invariant"] for finding in row["findings"]})
        return f"**refused**: {', '.join(found)}"
    rows = "".join(f", `{name}={value}`" for name, value in row.get("rows", {}).items())
    return row["verdict"] + rows


def _said_of(version: str, target: str, row: Mapping[str, Any]) -> Iterable[str]:
    name = "vllm-manager, hashes repaired," if target == _REPAIRED else target
    for finding in row.get("findings", ()):
        # The blocks and hashes of one trace say nothing of the next release's.
        yield f"{name} is refused under {finding['invariant']}, {finding['severity']}"
    if target == _REPAIRED:
        return  # the rest is that of the manager as it is
    if row["verdict"] in ("not driven", "failed"):
        # The target's name is said already, and its version beside it.
        yield f"{target} is {_shortened(row['why'].replace(f'{target}@{version} ', ''))}"
    for note in row.get("not_driven", ()):
        if "because" in note:
            yield f"{target}: {note}"


def _shortened(why: str) -> str:
    text = why if why.startswith("not driven") else f"not driven: {why}"
    return text if len(text) <= _MOST else f"{text[:_MOST]} ..."


def _collected() -> list[tuple[str, list[str]]]:
    found: dict[str, list[str]] = {}
    for version, rows in _newest_first():
        for target in _TARGETS:
            for what in _said_of(version, target, rows[target]) if target in rows else ():
                releases = found.setdefault(what, [])
                if version not in releases:
                    releases.append(version)
    return list(found.items())


def _newest_first() -> list[tuple[str, Mapping[str, Any]]]:
    releases = (read("vllm_releases") or {"releases": {}})["releases"]
    return sorted(releases.items(), key=lambda each: _in_order(each[0]), reverse=True)


def _in_order(version: str) -> list[int]:
    return [int(part) for part in version.replace("post", "").split(".")]
