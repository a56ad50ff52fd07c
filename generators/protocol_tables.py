"""The tables of docs/protocol.md and docs/any-language.md.

Messages are read from the published schema, figures from what benchmarks/protocol_speed.py wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figures import read

__all__ = ["protocol_commands", "protocol_exhaustive", "protocol_messages", "protocol_speed",
           "protocol_state"]  # fmt: skip

_SCHEMA = Path(__file__).resolve().parent.parent / "contract" / "schemas" / "protocol.schema.json"
_ANSWERS = {"start": "hello", "run": "ran", "continue": "continued", "stop": "stopped"}
_LANGUAGES = {"c": "C", "rust": "Rust", "javascript": "JavaScript", "python": "Python, served"}


def _definitions() -> dict[str, Any]:
    definitions: dict[str, Any] = json.loads(_SCHEMA.read_text(encoding="utf-8"))["$defs"]
    return definitions


def protocol_messages() -> str:
    """Each request with its keys and those of its answer."""
    definitions = _definitions()
    lines = ["| request | says | answer |", "|---|---|---|"]
    for name, answer in _ANSWERS.items():
        keys = ", ".join(f"`{key}`" for key in definitions[name]["properties"])
        lines.append(
            f"| {keys}; `do` is `{name}` | {definitions[name]['description']} | "
            f"{_keys_of_answer(definitions, definitions[answer])} |"
        )
    return "\n".join(lines) + "\n"


def _keys_of_answer(definitions: dict[str, Any], answer: dict[str, Any]) -> str:
    forms = []
    for form in answer.get("oneOf", [answer]):
        found = definitions[form["$ref"].rpartition("/")[2]] if "$ref" in form else form
        required = found["required"]
        optional = [key for key in found["properties"] if key not in required]
        also = f", and perhaps {', '.join(f'`{key}`' for key in optional)}" if optional else ""
        forms.append(", ".join(f"`{key}`" for key in required) + also)
    return "; or ".join(forms)


def protocol_commands() -> str:
    """Each form of a command: what it is called, its arguments, what it answers."""
    definitions = _definitions()
    lines = ["| `do` | arguments | meaning of the arguments and the result |", "|---|---|---|"]
    for reference in definitions["command"]["oneOf"]:
        form = definitions[reference["$ref"].rpartition("/")[2]]
        verb = form["properties"]["do"]
        names = ", ".join(f"`{name}`" for name in verb.get("enum", [verb.get("const")]))
        arguments = ", ".join(f"`{key}`" for key in form["properties"] if key != "do") or "none"
        lines.append(f"| {names} | {arguments} | {form['description']} |")
    return "\n".join(lines) + "\n"


def protocol_state() -> str:
    """Each part of the state and of an answer."""
    definitions = _definitions()
    lines = ["| key | what it says |", "|---|---|"]
    for where in ("answer", "changes"):
        for key, part in definitions[where]["properties"].items():
            lines.append(f"| `{key}` | {part['description']} |")
    return "\n".join(lines) + "\n"


def protocol_speed() -> str:
    """What tapes and single commands cost for each example."""
    result = read("protocol") or {"programs": {}}
    columns = (
        "program", "operations/s on tapes of 200", "by processor time", "to in process",
        "checked steps/s", "one command alone, ms",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---|---:|---:|---:|---:|---:|"]
    for language, found in result["programs"].items():
        tapes = found["tapes, operations/s"]
        lines.append(
            f"| {_LANGUAGES[language]} | {tapes['undisturbed']:,.0f} | "
            f"{tapes['by processor time']:,.0f} | {found['ratio to in process']:.1f} | "
            f"{found['checked steps/s']['undisturbed']:,.0f} | "
            f"{found['one command, ms']['undisturbed']:.2f} |"
        )
    lines += ["", *_machine(result)]
    return "\n".join(lines) + "\n"


def protocol_exhaustive() -> str:
    """What it takes to certify every orbit."""
    result = read("protocol") or {"exhaustive": {}}
    lines = ["| program | all orbits | seconds | of CPU time |", "|---|---|---:|---:|"]
    for language, found in result["exhaustive"].items():
        reached = "reached and passed" if found["all_orbits"] else "not reached"
        lines.append(
            f"| {_LANGUAGES[language]} | {reached} | {found['seconds']} | {found['cpu_seconds']} |"
        )
    lines += ["", *_machine(result)]
    return "\n".join(lines) + "\n"


def _machine(result: dict[str, Any]) -> Iterator[str]:
    if "processors" in result:
        yield (
            f"Measured on {result['processors']} processors at a load of "
            f"{result['load_average']:.1f} to {result['load_average_at_end']:.1f}, "
            "by `benchmarks/protocol_speed.py`."
        )
