"""The known file: findings that were looked at and accepted, each with a reason and an end.

TOML, one table for each finding:

    [[finding]]
    fingerprint = "f-7d3f09c2"
    link = "https://example.org/issues/12"
    reason = "fixed upstream, not released"
    until = 2026-12-31
    target = "vllm"                    # optional: the entry is for this target alone

After its `until` an entry counts for nothing, and the finding fails the run again.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.json_fields import FieldError, Fields

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["KnownFileError", "KnownFinding", "KnownFindings", "read_known_findings"]

_FIELDS = ("fingerprint", "link", "reason", "until", "target")


class KnownFileError(ValueError):
    """A known file that cannot be used; the message names file, entry and field."""


@dataclass(frozen=True, slots=True)
class KnownFinding:
    """One accepted finding; `until` is the last day on which the entry counts."""

    fingerprint: str
    link: str
    reason: str
    until: dt.date
    target: str | None = None


@dataclass(frozen=True, slots=True)
class KnownFindings:
    """The entries of a known file, judged on the day `today`."""

    entries: tuple[KnownFinding, ...] = ()
    today: dt.date = dt.date.min

    def valid_for(self, target: str) -> tuple[KnownFinding, ...]:
        """The entries that count for this target today."""
        return tuple(entry for entry in self._about(target) if entry.until >= self.today)

    def expired_for(self, target: str) -> tuple[KnownFinding, ...]:
        """The entries for this target whose time is over."""
        return tuple(entry for entry in self._about(target) if entry.until < self.today)

    def _about(self, target: str) -> tuple[KnownFinding, ...]:
        return tuple(entry for entry in self.entries if entry.target in (None, target))


def read_known_findings(path: Path, today: dt.date | None = None) -> KnownFindings:
    """The entries of a known file. Raises KnownFileError."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise KnownFileError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise KnownFileError(f"{path}: byte {error.start} is not UTF-8 text") from error
    except tomllib.TOMLDecodeError as error:
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


def _entry(path: Path, number: int, table: Any) -> KnownFinding:
    what = f"{path}: finding {number}"
    read = Fields(table, what)
    unknown = [name for name in table if name not in _FIELDS]
    if unknown:
        raise FieldError(f"{what}: unknown field {unknown[0]!r}; known are {', '.join(_FIELDS)}")
    fingerprint = read.text("fingerprint")
    if not re.fullmatch(r"f-[0-9a-f]{8}", fingerprint):
        raise FieldError(
            f"{what} field 'fingerprint' must be f- and 8 hexadecimal digits, not {fingerprint!r}"
        )
    return KnownFinding(
        fingerprint,
        read.text("link"),
        read.text("reason"),
        _day(table, what),
        read.optional_text("target"),
    )


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
        earlier = seen.setdefault((entry.fingerprint, entry.target), number)
        if earlier != number:
            raise KnownFileError(
                f"{path}: finding {number} repeats the fingerprint of finding {earlier}, "
                f"{entry.fingerprint}"
            )
