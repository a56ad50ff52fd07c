"""Which public bugs a finding is like: those whose own minimal traces read the same.

Every planted public bug has its forms in `bug_forms.json`: what its minimised traces do, and what
they show. A finding is like a bug only if both are the same and the bug can act under the profile
of the finding. Otherwise nothing is said: a wrong hint costs more than none.

The file is written by tests/bugs/make_golden.py, from the traces that it minimises.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.specimen import ManagerSpecimen, Specimen
from poolproof.contract.command_json import command_to_json
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.fuzz.symptom import symptom_of

__all__ = ["FORMS", "form_of", "public_bugs_like"]

FORMS = Path(__file__).with_name("bug_forms.json")

_MOST = 3
"""A form that more bugs share tells nothing about its cause."""

_MANY = 3
"""Counts and lists from here on are alike; below, none, one and two are different operations."""


def public_bugs_like(trace: Trace) -> tuple[Specimen | ManagerSpecimen, ...]:
    """The planted public bugs that a minimised trace is like, in the order of the catalogue."""
    if trace.violation is None or trace.violation.invariant == "CRASH":
        return ()  # there are as many reasons for a crash as there are programs
    form, forms = form_of(trace), _recorded_forms()
    specimens = MANAGER_SPECIMENS if trace.level.has_sequences else SPECIMENS
    alike = tuple(
        specimen
        for specimen in specimens.values()
        if specimen.thread
        and specimen.level == trace.level
        and form in forms.get(specimen.id, ())
        and _acts_under(specimen, trace.profile)
    )
    return alike if len(alike) <= _MOST else ()


def form_of(trace: Trace) -> str:
    """What a trace does and shows, whichever blocks, hashes, sequences and tokens it names."""
    steps = _manager_steps(trace) if trace.level.has_sequences else _pool_steps(trace)
    caching = "" if trace.enable_caching else "caching off | "
    return f"{caching}{'; '.join(steps)} | {symptom_of(trace)}"


def _acts_under(specimen: Specimen | ManagerSpecimen, profile: Profile) -> bool:
    """Whether the bug is one under the profile, which has the rows that it was stated for."""
    if isinstance(specimen, ManagerSpecimen):
        if not isinstance(profile, ManagerProfile) or not specimen.is_bug_under(profile):
            return False
        if [g.kind for g in profile.groups] != [g.kind for g in specimen.profile.groups]:
            return False
    elif not specimen.is_bug_under(profile):
        return False
    stated, usual = specimen.profile.to_json(), type(specimen.profile)().to_json()
    shown = profile.to_json()
    rows = (row for row, value in stated.items() if value != usual[row] and row != "groups")
    return all(_agree(row, stated[row], shown[row]) for row in rows)


def _agree(row: str, stated: Any, shown: Any) -> bool:
    """Which block is the null block, and how large a reserve is, makes no other bug."""
    if row == "null_block":
        return (stated is None) == (shown is None)
    if isinstance(stated, int) and isinstance(shown, int):
        return bool(stated) == bool(shown)
    return bool(stated == shown)


@lru_cache(maxsize=1)
def _recorded_forms() -> Mapping[str, frozenset[str]]:
    recorded = json.loads(FORMS.read_text(encoding="utf-8"))
    return {specimen_id: frozenset(forms) for specimen_id, forms in recorded.items()}


def _pool_steps(trace: Trace) -> Iterator[str]:
    """Each command with its blocks and hashes renamed in the order in which they appear."""
    names: dict[str, int] = {}

    def renamed(kind: str, values: Any) -> str:
        values = values if isinstance(values, list) else [values]
        numbers = [names.setdefault(f"{kind} {json.dumps(v)}", len(names)) for v in values]
        shown = " ".join(map(str, numbers[: _MANY - 1]))
        return shown if len(numbers) < _MANY else f"{shown} .. of many"

    for command in trace.commands:
        record = command_to_json(command)
        words = [record.pop("do")]
        for field, value in sorted(record.items()):
            if field in {"block_ids", "block_id"}:
                words.append(renamed("block", value))
            elif field in {"hashes", "block_hash", "chain"}:
                words.append(renamed("content", value))
            elif isinstance(value, int):
                words.append(str(value) if value < _MANY else "many")
        yield " ".join(words)


def _manager_steps(trace: Trace) -> Iterator[str]:
    """Each command with its sequences renamed, and with what its prompt has beside tokens."""
    names: dict[int, int] = {}
    for command in trace.commands:
        sequences = [getattr(command, f) for f in ("seq_id", "child_id") if hasattr(command, f)]
        words = [command.verb, *(str(names.setdefault(s, len(names))) for s in sequences)]
        chain = getattr(command, "chain", None)
        if isinstance(chain, TokenChain):
            words += ["with an adapter"] if chain.lora else []
            words += ["with a salt"] if chain.salt is not None else []
            words += ["with an image"] if chain.images else []
        yield " ".join(words)
