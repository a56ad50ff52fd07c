"""The page of verdicts: a row for each system, and each finding with its trace and explanation.

What was found is read from what benchmarks/verdicts.py recorded, and what is said of it from
benchmarks/verdict_systems.toml; nothing is certified here.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from figures import FigureError, read

from poolproof.contract.trace import TraceError, read_trace
from poolproof.contract.violation import Severity
from poolproof.report.wording import severity_words

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["explained_findings", "verdicts"]

ROOT = Path(__file__).resolve().parent.parent
_NOT_DRIVEN = "not driven"
_WORDS = {
    "holds": "holds",
    "refused": "**refused**",
    "inconclusive": "inconclusive",
    _NOT_DRIVEN: _NOT_DRIVEN,
}


def verdicts() -> str:
    """A row for each system that was certified, or that its adapter does not drive."""
    title_of = _titles()
    lines = [
        "| system | document | verdict | checked steps | findings |",
        "|---|---|---|---:|---|",
    ]
    for row in _systems().values():
        steps = sum(stage["steps"] for stage in row["stages"])
        found = "<br>".join(
            f"[{finding['name']}](#{_anchor(title_of(row, finding))})"
            for finding in row["findings"]
        )
        if row["verdict"] == _NOT_DRIVEN:
            found = f"because {row['why']}"
        document = row["document"] or "-"
        lines.append(
            f"| {row['system']}<br>`{row['target']}` | {document} | {_WORDS[row['verdict']]} "
            f"| {steps:,} | {found or '-'} |"
        )
    return "\n".join(lines) + "\n"


def explained_findings() -> str:
    """A section for each system: what it was held to, and its findings in full."""
    sections, title_of, entry_of = [], _titles(), _entries()
    for system_id, row in _systems().items():
        lines = [f"### {row['system']}", "", row["remark"], ""]
        if row["verdict"] == _NOT_DRIVEN:
            sections.append("\n".join([*lines, f"Not driven, because {row['why']}."]))
            continue
        lines.append(_what_was_run(row))
        lines += [f"Not run: {entry['what']}, because {entry['why']}." for entry in row["not_run"]]
        for sentence in row["unexplained"]:
            lines += ["", f"Not explained yet: {sentence}"]
        for finding in row["findings"]:
            entry = entry_of.get((system_id, finding["name"]))
            if entry is None:
                raise FigureError(
                    f"{system_id}: nothing is said of {finding['name']!r}; run "
                    f"benchmarks/verdicts.py {system_id} --record again"
                )
            lines += ["", *_finding(title_of(row, finding), finding, entry)]
        sections.append("\n".join(lines))
    return "\n\n".join(sections) + "\n"


def _what_was_run(row: Mapping[str, Any]) -> str:
    version = f", {row['version']}" if row["version"] else ""
    stages = "; ".join(
        f"{stage['stage']} {stage['steps']:,} steps, {stage['outcome']}" for stage in row["stages"]
    )
    return (
        f"`poolproof certify '{row['target']}' --depth {row['level']}` on {row['python']}, "
        f"{row['source']}{version}: {stages}."
    )


def _finding(title: str, finding: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    """One finding: sentence, trace, explanation, threads, folders with scripts."""
    try:
        trace = read_trace(ROOT / finding["trace"])
    except TraceError as error:
        raise FigureError(f"{error}; run benchmarks/verdicts.py --record again") from error
    threads = ", ".join(entry["threads"]) or "none known"
    folders = [f"[{name}](findings/upstream/{name}/README.md)" for name in entry["upstream"]]
    scripts = f"Script{'s' * (len(folders) > 1)} without Poolproof: {', '.join(folders)}"
    commands = [f"{number}. {command}" for number, command in enumerate(trace.commands, start=1)]
    name = Path(finding["trace"]).name
    severity = severity_words(Severity(finding["severity"]))
    return [
        f"#### {title}",
        "",
        f"{finding['invariant']}, {severity}: {finding['sentence']}",
        "",
        f"```text\n{trace.num_blocks} blocks of {trace.options['block_size']} tokens",
        *commands,
        "```",
        "",
        entry["explanation"],
        "",
        f"Upstream: {threads}. Trace: [{name}](findings/{name}). {scripts}.",
    ]


def _titles() -> Callable[[Mapping[str, Any], Mapping[str, Any]], str]:
    """The heading of a row's finding: its name, and the system's where several have that name."""
    rows = _systems().values()
    named = Counter(finding["name"] for row in rows for finding in row["findings"])

    def title_of(row: Mapping[str, Any], finding: Mapping[str, Any]) -> str:
        name: str = finding["name"]
        return name if named[name] == 1 else f"{name}: {row['system'].replace('`', '')}"

    return title_of


def _entries() -> dict[tuple[str, str], Mapping[str, Any]]:
    """What is said of each finding, by the system's id and the finding's name."""
    told = tomllib.loads((ROOT / "benchmarks" / "verdict_systems.toml").read_text("utf-8"))
    return {
        (system["id"], entry["name"]): entry
        for system in told["system"]
        for entry in system.get("finding", ())
    }


def _anchor(title: str) -> str:
    """The anchor that a heading gets."""
    kept = (letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def _systems() -> dict[str, Any]:
    result = read("verdicts")
    if result is None:
        raise FigureError("there are no verdicts; run benchmarks/verdicts.py --record")
    systems: dict[str, Any] = result["systems"]
    return systems
