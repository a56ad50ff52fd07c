"""A page to walk through: states of a small scope and the moves between them, or a failure's path.

One file that asks for nothing: its content security policy lets it run our script and no other,
and load nothing at all. What a target says travels as JSON in which no character can end an
element, and the script writes it as text.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from poolproof import __version__
from poolproof.certification.explore_target import TargetExploration
from poolproof.certification.finding import Finding
from poolproof.contract.outside import printable
from poolproof.exploration.breadth_first import Space, reachable
from poolproof.exploration.graph import described
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.scope import ALL_VERBS
from poolproof.exploration.state_space import StateSpace
from poolproof.report.document import StepRow
from poolproof.report.finding_report import drawing_of
from poolproof.report.step_drawing import steps_of

__all__ = ["failures_page", "space_page"]

SCRIPT = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
STYLE = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")

Rows = list[tuple[str, list[str]]]
"""Labels, each with its boxes: the free queue head first, held blocks, the index."""


@dataclass(frozen=True, slots=True)
class PageState:
    """A state with its moves: verb, the state's number, and that state in one line.

    `actual` is what a target showed in place of `rows`: rows of its own, or a sentence.
    """

    rows: Rows
    moves: list[tuple[str, int, str]] = field(default_factory=list)
    note: str = ""
    actual: Rows | str = ""
    is_broken: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """States to walk through, numbered as they stand; `at_end`: begin at the end of the path."""

    name: str
    about: str
    states: list[PageState]
    at_end: bool = False


def space_page(space: Space) -> str:
    """Every state of a small space. Its size is checked before (`graph.check_size`)."""
    scope = space.scope
    numbers = {state: number for number, state in enumerate(reachable(space))}
    states = []
    for state in numbers:
        moves = [
            (ALL_VERBS[verb], numbers[after], described(space, after))
            for verb, after in sorted(set(space.successors(state)[0]))
        ]
        size = space.size(state)
        note = f"stands for {size:,} states" if size > 1 else ""
        states.append(PageState(_rows(space, state), moves, note))
    about = (
        f"{len(states):,} states, numbered by their distance from the fresh pool. {scope.rules}."
    )
    if space.has_symmetry:
        about += (
            " A state stands for all that differ only in the names of blocks and hashes, so blocks"
            " have no numbers here and a move may rename hashes. With --no-symmetry each state is"
            " shown by itself."
        )
    title = f"States of a pool: {scope}"
    return _page(title, "", [], [Walk("states", about, states)])


def failures_page(found: TargetExploration) -> str:
    """The path to each failure of a target, or that there is none; what was reached on top."""
    reached = [
        (stage.level, f"{stage.stage}: {stage.outcome.value}. {stage.note}")
        for stage in found.stages
    ]
    if found.interrupted:
        verdict = f"Interrupted: {found.interrupted}"
    elif found.findings:
        number = len(found.findings)
        verdict = "1 failure" if number == 1 else f"{number} failures"
    else:
        verdict = "Nothing broke in any state that was reached"
    about = [("target", f"{found.target}, {found.source}"), *reached]
    walks = [_walk(finding) for finding in found.findings]
    return _page(f"Exploration of {found.target}", verdict, about, walks)


def _walk(finding: Finding) -> Walk:
    """A line of states that ends where the target broke."""
    trace = finding.whole_trace()
    name = f"{finding.fingerprint} {finding.violation.invariant}"
    about = f"{finding.violation.sentence}. Replay: poolproof replay {finding.fingerprint}"
    drawing = drawing_of(trace)
    if drawing.legend:
        names = ", ".join(f"{letter} = {meaning}" for letter, meaning in drawing.legend)
        about += f". {names}"
    steps = steps_of(trace, drawing)
    if steps is None:
        about += ". Its steps are not drawn on a page of this size; poolproof show draws them."
        return Walk(name, about, [])
    states = []
    for number, step in enumerate(steps.steps):
        following = steps.steps[number + 1 : number + 2]
        moves = [(after.title, number + 1, after.note) for after in following]
        actual = step.actual if isinstance(step.actual, str) else _texts(step.actual)
        states.append(PageState(_texts(step.rows), moves, step.note, actual, step.is_broken))
    return Walk(name, about, states, at_end=True)


def _texts(rows: Iterable[StepRow]) -> Rows:
    return [(row.label, [item.text for item in row.items]) for row in rows]


def _rows(space: Space, state: bytes) -> Rows:
    """A state of the specification. Blocks have numbers where the space tells them apart."""
    index: dict[str, list[str]] = {}
    queue, held = [], []
    if isinstance(space, OrbitSpace):
        free, live = space.split(state)
        for label in free:
            queue.append(_hash(label))
            index.setdefault(_hash(label), []).append("free")
        for count, label in map(space.parts, live):
            held.append(f"x{count} {_hash(label)}")
            index.setdefault(_hash(label), []).append("held")
    else:
        assert isinstance(space, StateSpace)
        blocks, order = space.split(state)
        queue = [f"{block}: {_hash(blocks[block][1])}" for block in order]
        for block, (count, label) in enumerate(blocks):
            held += [f"{block}: x{count} {_hash(label)}"] * bool(count)
            index.setdefault(_hash(label), []).append(str(block))
    known = [f"{key} -> {', '.join(index[key])}" for key in sorted(index) if key != _NO_HASH]
    return [("free queue", queue), ("held", held), ("index", known)]


_NO_HASH = "-"


def _hash(label: int) -> str:
    return f"{_NO_HASH}abcde"[label]


def _page(title: str, verdict: str, about: Sequence[tuple[str, str]], walks: list[Walk]) -> str:
    policy = (
        f"default-src 'none'; script-src '{_digest(SCRIPT)}'; style-src '{_digest(STYLE)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    facts = "".join(f"<dt>{_escaped(label)}</dt><dd>{_escaped(text)}</dd>" for label, text in about)
    return "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{_escaped(title)}</title>",
        f"<style>{STYLE}</style>",
        "</head>",
        "<body>",
        "<main>",
        f"<h1>{_escaped(title)}</h1>",
        *([f'<p class="verdict">{_escaped(verdict)}.</p>'] if verdict else []),
        *([f"<dl>{facts}</dl>"] if facts else []),
        '<div id="walk"></div>' if walks else "",
        "<noscript><p>This page needs JavaScript to walk from state to state.</p></noscript>",
        f'<p class="dim">Poolproof {_escaped(__version__)}</p>',
        "</main>",
        f'<script type="application/json" id="walks">{_as_json(walks)}</script>',
        f"<script>{SCRIPT}</script>",
        "</body>",
        "</html>",
        "",
    ])  # fmt: skip


def _as_json(walks: list[Walk]) -> str:
    """The walks as JSON without a character that HTML or JavaScript would take for its own."""
    value: list[dict[str, Any]] = [
        {
            "name": walk.name,
            "about": walk.about,
            "atEnd": walk.at_end,
            "states": [
                {
                    "rows": state.rows,
                    "moves": state.moves,
                    "note": state.note,
                    "actual": state.actual,
                    "broken": state.is_broken,
                }
                for state in walk.states
            ],
        }
        for walk in walks
    ]
    text = json.dumps(_shown(value), separators=(",", ":"))  # ASCII alone
    return re.sub(r"[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _shown(value: Any) -> Any:
    """The same value with every text made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple):
        return [_shown(item) for item in value]
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    return value


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _escaped(text: str) -> str:
    return html.escape(printable(text), quote=True)
