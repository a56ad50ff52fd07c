"""The known file: findings that were examined and accepted, each with a reason and an end date.

TOML, one table for each finding, and one for each further form in which the same bug was met:

    [[finding]]
    fingerprint = "f-7d3f09c2"
    invariant = "MISUSE"
    severity = "crash"
    operation = "free"
    misuse = "block not held: raised another error"    # where it is misuse
    link = "https://example.org/issues/12"
    reason = "fixed upstream, not released"
    until = 2026-12-31
    target = "vllm"                    # optional: the entry is for this target alone

    [[finding.forms]]
    fingerprint = "f-0a11c52e"
    ...

An entry counts for a finding that agrees with it in all of this: a worse finding is new, even if it
has the same name. After its `until` an entry no longer counts, and the finding fails the run again.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.certification.finding import Finding, Identity
from poolproof.certification.json_fields import FieldError, Fields
from poolproof.contract.misuse import MisuseFailure
from poolproof.contract.violation import Severity
from poolproof.harness.failure_kind import FailureKind

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from poolproof.contract.errors import PoolproofError

__all__ = [
    "ENTRIES_FILE",
    "KnownFileError",
    "KnownFinding",
    "KnownFindings",
    "entries_for",
    "read_known_findings",
]

ENTRIES_FILE = "known.toml"
"""Beside the traces of a run: the entries that would accept what failed it."""

_OF_A_FORM = ("fingerprint", "invariant", "severity", "operation", "misuse", "shown")
_OF_AN_ENTRY = (*_OF_A_FORM, "link", "reason", "until", "target", "forms")
_MUST_AGREE = ("invariant", "severity", "operation")


class KnownFileError(PoolproofError, ValueError):
    """A known file that cannot be used; the message names file, entry and field."""


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """One accepted bug, in each form in which it was; `until` is the last day of the entry."""

    accepted: tuple[Identity, ...]
    link: str
    reason: str
    until: dt.date
    target: str | None = None

    def accepts(self, identity: Identity) -> bool:
        """Whether one of its forms is this one, and was shown to be no better."""
        return any(accepted.covers(identity) for accepted in self.accepted)

    @property
    def fingerprint(self) -> str:
        """The name of the finding, without its further forms."""
        return self.accepted[0].fingerprint


@dataclass(frozen=True, slots=True)
class KnownFindings:
    """The entries of a known file, judged on the day `today`."""

    entries: tuple[KnownFinding, ...] = ()
    today: dt.date = dt.date.min

    def valid_for(self, target: str) -> tuple[KnownFinding, ...]:
        """The entries that count for this target today."""
        return tuple(entry for entry in self.live if entry.target in (None, target))

    def expired_for(self, target: str) -> tuple[KnownFinding, ...]:
        """The entries for this target whose time is over."""
        expired = (entry for entry in self.entries if entry.until < self.today)
        return tuple(entry for entry in expired if entry.target in (None, target))

    @property
    def live(self) -> tuple[KnownFinding, ...]:
        """The entries whose time is not over."""
        return tuple(entry for entry in self.entries if entry.until >= self.today)


def read_known_findings(path: Path, today: dt.date | None = None) -> KnownFindings:
    """The entries of a known file. Raises KnownFileError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KnownFileError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise KnownFileError(f"{path}: byte {error.start} is not UTF-8 text") from error
    except (ValueError, RecursionError) as error:  # also what nests too deep, or has 5,000 digits
        raise KnownFileError(f"{path} is not TOML: {error}") from error
    tables = document.pop("finding", [])
    if document:
        raise KnownFileError(
            f"{path}: unknown key {next(iter(document))!r}; "
            "a known file holds [[finding]] tables and nothing else"
        )
    if not isinstance(tables, list):
        raise KnownFileError(f"{path}: write [[finding]] with two brackets, one table an entry")
    try:
        entries = tuple(_entry(path, number, table) for number, table in enumerate(tables, 1))
    except FieldError as error:
        raise KnownFileError(str(error)) from error
    _refuse_repeats(path, entries)
    return KnownFindings(entries, today or dt.datetime.now(tz=dt.timezone.utc).date())


def entries_for(findings: Iterable[Finding]) -> str:
    """The text of a known file that accepts these findings, once the user has said why.

    `link`, `reason` and `until` are left empty, which no known file may.
    """
    head = "# Give each entry a link, a reason and a last day, and it may be used with --known.\n"
    return head + "".join(f"\n{_as_toml(finding)}" for finding in findings)


def _as_toml(finding: Finding) -> str:
    lines = [f"# {_in_one_line(finding.violation.sentence)}", "[[finding]]"]
    lines += _identity_lines(finding.identity)
    lines += ['link = ""', 'reason = ""', 'until = ""']
    lines.append(f"target = {_quoted(finding.trace.target)}")
    for form in finding.forms:
        lines += ["", f"# {_in_one_line(form.violation.sentence)}", "[[finding.forms]]"]
        lines += _identity_lines(form.identity)
    return "\n".join(lines) + "\n"


def _identity_lines(identity: Identity) -> Iterator[str]:
    kind = identity.kind
    yield f"fingerprint = {_quoted(identity.fingerprint)}"
    yield f"invariant = {_quoted(kind.invariant)}"
    yield f"severity = {_quoted(kind.severity.value)}"
    yield f"operation = {_quoted(kind.operation)}"
    if kind.misuse is not None:
        yield f"misuse = {_quoted(str(kind.misuse))}"
    if identity.shown is not None:
        yield f"shown = {_quoted(identity.shown.value)}"


def _quoted(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON."""
    return json.dumps(text).replace("\x7f", "\\u007f")


def _in_one_line(text: str) -> str:
    words = "".join(c if c.isprintable() else " " for c in text)
    return words if len(words) <= 200 else f"{words[:197]}..."


def _entry(path: Path, number: int, table: Any) -> KnownFinding:
    what = f"{path}: finding {number}"
    read = Fields(table, what)
    _refuse_unknown(table, what, _OF_AN_ENTRY)
    accepted = [_identity(table, what)]
    for place, form in enumerate(read.items("forms") if read.has("forms") else (), 1):
        of_form = f"{what} form {place}"
        Fields(form, of_form)
        _refuse_unknown(form, of_form, _OF_A_FORM)
        accepted.append(_identity(form, of_form))
    link, reason = (_said(read, what, name) for name in ("link", "reason"))
    target = read.optional_text("target")
    return KnownFinding(tuple(accepted), link, reason, _day(table, what), target)


def _refuse_unknown(table: Mapping[str, Any], what: str, known: tuple[str, ...]) -> None:
    unknown = [name for name in table if name not in known]
    if unknown:
        raise FieldError(f"{what}: unknown field {unknown[0]!r}; known are {', '.join(known)}")


def _identity(table: Mapping[str, Any], what: str) -> Identity:
    read = Fields(table, what)
    fingerprint = read.text("fingerprint")
    if not re.fullmatch(r"f-[0-9a-f]{8}", fingerprint):
        raise FieldError(
            f"{what} field 'fingerprint' must be f- and 8 hexadecimal digits, not {fingerprint!r}"
        )
    lacking = [name for name in _MUST_AGREE if not read.has(name)]
    if lacking:
        raise FieldError(
            f"{what} ({fingerprint}) lacks {', '.join(lacking)}: by its fingerprint alone it would "
            "accept something worse as well. Certify without --known, and take the whole entry "
            f"from {ENTRIES_FILE} beside the traces that this leaves"
        )
    invariant = read.text("invariant")
    misuse = _misuse(read, what)
    if invariant == "MISUSE" and misuse is None:
        raise FieldError(
            f"{what} ({fingerprint}) lacks the field 'misuse': which misuse is accepted, such as "
            '"block not held: raised another error"'
        )
    kind = FailureKind(invariant, read.one_of("severity", Severity), read.text("operation"), misuse)
    shown = read.one_of("shown", Severity) if read.has("shown") else None
    return Identity(fingerprint, kind, shown)


def _misuse(read: Fields, what: str) -> MisuseFailure | None:
    text = read.optional_text("misuse")
    if text is None:
        return None
    try:
        return MisuseFailure.parse(text)
    except ValueError as error:
        raise FieldError(
            f"{what} field 'misuse' must be what was wrong and what came of it, such as "
            f'"block not held: accepted", not {text!r}'
        ) from error


def _said(read: Fields, what: str, name: str) -> str:
    text = read.text(name)
    if not text.strip():
        raise FieldError(f"{what} field {name!r} is empty; say what it is")
    return text


def _day(table: Any, what: str) -> dt.date:
    """TOML has dates of its own; a date in quotes is taken as well."""
    if "until" not in table:
        raise FieldError(f"{what} lacks the field 'until'")
    value = table["until"]
    if isinstance(value, dt.datetime):
        return value.date()
    if isinstance(value, dt.date):
        return value
    try:
        return dt.date.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise FieldError(
            f"{what} field 'until' must be a date such as 2026-12-31, not {value!r}"
        ) from error


def _refuse_repeats(path: Path, entries: tuple[KnownFinding, ...]) -> None:
    seen: dict[tuple[str, str | None], int] = {}
    for number, entry in enumerate(entries, start=1):
        names = [identity.fingerprint for identity in entry.accepted]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise KnownFileError(f"{path}: finding {number} repeats its fingerprint {twice}")
        for identity in entry.accepted:
            earlier = seen.setdefault((identity.fingerprint, entry.target), number)
            if earlier != number:
                raise KnownFileError(
                    f"{path}: finding {number} repeats the fingerprint of finding {earlier}, "
                    f"{identity.fingerprint}"
                )
