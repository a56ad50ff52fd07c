"""The tables of a campaign's database and how they are read; used by `folder.py`.

Dataclasses of plain values are checked to hold what their fields say: JSON often has the right
shape but the wrong types, and a count that is text, a share that is NaN or a number with a thousand
digits would otherwise cause errors only where it is drawn.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
import types
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from poolproof.contract.errors import PoolproofError
from poolproof.contract.outside import cut, printable, said_by
from poolproof.contract.trace import TraceError
from poolproof.contract.trace_harm import TraceHarm
from poolproof.fuzz.coverage_record import CodeCoverage
from poolproof.fuzz.findings import (
    CampaignFinding,
    Examination,
    Pending,
    text_of,
    trace_of,
)
from poolproof.fuzz.merge import CampaignState, name_of
from poolproof.fuzz.messages import CorpusTape, StrategyCount
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import unpack
from poolproof.fuzz.status import CampaignStatus

__all__ = [
    "DATABASE",
    "EXAMINATIONS",
    "FOLDER_VERSION",
    "FORMAT",
    "FORMS",
    "HARMS",
    "SCHEMA",
    "UNREADABLE",
    "Damage",
    "FolderError",
    "checked",
    "connected",
    "coverage_in",
    "explanation",
    "findings_in",
    "forms_in",
    "insert_examination",
    "insert_finding",
    "insert_form",
    "insert_harm",
    "load_into",
    "pending_in",
    "progress_of",
    "settings_in",
    "status_in",
    "tables",
]


AnyValue = TypeVar("AnyValue")

_MOST = 1 << 63


def checked(value: AnyValue, lowest: int = 0) -> AnyValue:
    """The dataclass as it is, with no number below `lowest`.

    Raises TypeError that names the first field that does not fit.
    """
    hints = get_type_hints(type(value))
    for field in fields(value):  # type: ignore[arg-type] # is one
        if not _fits(getattr(value, field.name), hints[field.name], lowest):
            raise TypeError(f"{field.name} has a value that it cannot have")
    return value


def _fits(value: Any, hint: Any, lowest: int) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if origin in {Union, types.UnionType}:
        return any(_fits(value, one, lowest) for one in inner)
    if origin is tuple and inner[-1] is Ellipsis:
        return isinstance(value, tuple) and all(_fits(item, inner[0], lowest) for item in value)
    if origin is tuple:
        return (
            isinstance(value, tuple)
            and len(value) == len(inner)
            and all(_fits(item, one, lowest) for item, one in zip(value, inner, strict=True))
        )
    if origin is Counter:
        return isinstance(value, Counter) and all(
            _fits(key, inner[0], lowest) and _fits(item, int, lowest) for key, item in value.items()
        )
    if origin is not None and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            _fits(key, inner[0], lowest) and _fits(item, inner[1], lowest)
            for key, item in value.items()
        )
    if hint is type(None):
        return value is None
    if origin in {set, frozenset}:
        return isinstance(value, origin) and all(_fits(item, inner[0], lowest) for item in value)
    if hint is Any or not isinstance(hint, type):
        return True
    if is_dataclass(hint):
        return isinstance(value, hint) and checked(value, lowest) is value
    if hint is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and lowest <= value < _MOST and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and lowest <= value < _MOST
    return isinstance(value, hint)


FORMAT = "poolproof-campaign"
FOLDER_VERSION = 4
"""1 had no forms of findings, 2 did not keep how far minimising has come, 3 not what findings lead
to."""
DATABASE = "campaign.sqlite"

SCHEMA = """
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE sessions (number INTEGER PRIMARY KEY, stream TEXT NOT NULL);
CREATE TABLE states (number INTEGER PRIMARY KEY, packed BLOB NOT NULL);
CREATE TABLE tapes (name TEXT PRIMARY KEY, tape BLOB NOT NULL, states BLOB NOT NULL,
    num_steps INTEGER NOT NULL, origin TEXT NOT NULL);
CREATE TABLE pending (name TEXT PRIMARY KEY, trace TEXT NOT NULL, tape BLOB NOT NULL,
    steps INTEGER NOT NULL, seconds REAL NOT NULL, was_lost INTEGER NOT NULL);
CREATE TABLE findings (fingerprint TEXT PRIMARY KEY, kind TEXT NOT NULL, trace TEXT NOT NULL,
    tape BLOB NOT NULL, steps INTEGER NOT NULL, seconds REAL NOT NULL);
"""

FORMS = """
CREATE TABLE IF NOT EXISTS forms (fingerprint TEXT PRIMARY KEY, finding TEXT NOT NULL,
    kind TEXT NOT NULL, trace TEXT NOT NULL, tape BLOB NOT NULL, steps INTEGER NOT NULL,
    seconds REAL NOT NULL)
"""
"""What a folder of version 1 lacks."""

EXAMINATIONS = """
CREATE TABLE IF NOT EXISTS examinations (name TEXT PRIMARY KEY, trace TEXT NOT NULL,
    progress TEXT NOT NULL)
"""
"""What a folder of version 2 lacks."""

HARMS = """
CREATE TABLE IF NOT EXISTS harms (fingerprint TEXT PRIMARY KEY, harm TEXT NOT NULL)
"""
"""What a folder of version 3 lacks."""


UNREADABLE = (
    ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, TraceError,
)  # fmt: skip
"""What reading a row raises whose values are not those that were written."""


class FolderError(PoolproofError):
    """A folder that cannot be used, or used any longer; the message says why and what to do."""


class Damage:
    """What in a folder cannot be read, in words; everything else is still read.

    With `of_file`, pages of the file may be damaged as well, so that a table ends too early: for
    readers only, since nothing can be written to such a file. `failures` names what was broken and
    can no longer be read: it counts as broken.
    """

    def __init__(self, *, of_file: bool = False) -> None:
        self._of_file = of_file
        self._sentences: dict[str, None] = {}
        self.failures: set[str] = set()

    @property
    def sentences(self) -> tuple[str, ...]:
        """Each thing once, in the order in which it was met."""
        return tuple(self._sentences)

    def note(self, what: str, error: Exception) -> None:
        """Note that something cannot be read."""
        why = said_by(error, 200).replace("\n", " ")
        self._sentences[f"{what} cannot be read: {why or type(error).__name__}"] = None

    @contextlib.contextmanager
    def passed_over(self, what: str, failure: str = "") -> Iterator[None]:
        """Confine to the block whatever is wrong with a row; `failure` names its subject."""
        try:
            yield
        except UNREADABLE as error:
            self.note(f"{what} {failure}".strip(), error)
            if failure:
                self.failures.add(failure)

    def rows(
        self, database: sqlite3.Connection, columns: str, table: str, *, of_failures: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """The rows of a table that can be read, in the order in which they were inserted."""
        try:
            cursor = database.execute(f"SELECT {columns} FROM {table}")  # noqa: S608 -- of our own
            while (row := cursor.fetchone()) is not None:
                yield row
        except sqlite3.DatabaseError as error:
            is_locked = isinstance(error, sqlite3.OperationalError) and "no such" not in str(error)
            if not self._of_file or is_locked:
                raise
            self.note(f"the rest of the table {table}", error)
            if of_failures:
                self.failures.add(f"the rest of the table {table}")


def _shown_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        return "without a name"
    return cut(name, 40).replace("\n", " ")


def connected(where: str) -> sqlite3.Connection:
    """A connection whose commits are on disk when they return."""
    # Transactions begin and end where this file says so, not where the module guesses.
    database = sqlite3.connect(where, isolation_level=None, timeout=30.0)
    database.text_factory = text_from
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
    except BaseException:
        # Python 3.13 warns of a connection that nobody closed.
        database.close()
        raise
    return database


def text_from(data: bytes) -> str:
    """Text of a database, even if damaged: a value that is not UTF-8 must not hide the others."""
    return data.decode("utf-8", errors="surrogateescape")


def tables(database: sqlite3.Connection) -> int:
    """The number of tables: none in a new database."""
    return int(database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])


def settings_in(database: sqlite3.Connection, path: Path | None) -> CampaignSettings:
    """The settings, once format and version are known to be ours."""
    about = {}
    if tables(database):
        about = dict(database.execute("SELECT key, value FROM about"))
    try:
        return _settings_of(about, path)
    except UNREADABLE as error:
        raise FolderError(
            f"{path}: which campaign it holds cannot be read any more ({said_by(error, 200)}); "
            "nothing was changed, name another --folder"
        ) from error


def _settings_of(about: dict[str, str], path: Path | None) -> CampaignSettings:
    if json.loads(about.get("format", "null")) != FORMAT:
        raise FolderError(f"{path} holds no campaign: its {DATABASE} was not written by Poolproof")
    version = json.loads(about["version"])
    if version > FOLDER_VERSION:
        raise FolderError(
            f"{path} has campaign version {version}, this Poolproof reads up to {FOLDER_VERSION}; "
            "upgrade Poolproof to go on with it"
        )
    return checked(CampaignSettings.from_json(json.loads(about["settings"])))


def status_in(database: sqlite3.Connection, damage: Damage) -> CampaignStatus | None:
    """The last status that was recorded."""
    with damage.passed_over("the status"):
        for (value,) in _about(database, damage, "status"):
            return checked(CampaignStatus.from_json(json.loads(value)))
    return None


def coverage_in(database: sqlite3.Connection, damage: Damage) -> CodeCoverage | None:
    """The last code coverage that was measured."""
    with damage.passed_over("the code coverage"):
        for (value,) in _about(database, damage, "coverage"):
            # A branch that leaves its function has a negative line.
            return checked(CodeCoverage.from_json(json.loads(value)), lowest=-(1 << 32))
    return None


def _about(database: sqlite3.Connection, damage: Damage, key: str) -> Iterator[tuple[Any, ...]]:
    return damage.rows(database, "value", f"about WHERE key = '{key}'")


def findings_in(database: sqlite3.Connection, damage: Damage) -> list[CampaignFinding]:
    """All findings, in the order in which they were found."""
    columns = "fingerprint, kind, trace, tape, steps, seconds"
    found, harms = [], _harms_in(database, damage)
    for row in damage.rows(database, columns, "findings", of_failures=True):
        with damage.passed_over("the finding", _shown_name(row[0])):
            found.append(replace(_finding_of(row), harm=harms.get(row[0])))
    return sorted(found, key=_when_found)


def _harms_in(database: sqlite3.Connection, damage: Damage) -> dict[str, TraceHarm]:
    """What findings and their forms lead to, by fingerprint."""
    harms: dict[str, TraceHarm] = {}
    if _has_table(database, "harms"):
        for fingerprint, value in damage.rows(database, "fingerprint, harm", "harms"):
            with damage.passed_over(f"what {_shown_name(fingerprint)} leads to"):
                harm = TraceHarm.from_json(json.loads(_text(value)))
                if harm.read:
                    trace_of(harm.read)
                harms[fingerprint] = harm
    return harms


def insert_harm(database: sqlite3.Connection, finding: CampaignFinding) -> None:
    """Keep what a finding leads to, if anybody has looked."""
    if finding.harm is not None:
        row = (finding.fingerprint, json.dumps(finding.harm.to_json()))
        database.execute("INSERT OR REPLACE INTO harms VALUES (?, ?)", row)


def _finding_of(row: tuple[Any, ...]) -> CampaignFinding:
    """The finding of a row. Raises what `UNREADABLE` has."""
    fingerprint, kind, trace, *plain = row
    finding = CampaignFinding(fingerprint, _text(kind), trace_of(_text(trace)), *_plain(*plain))
    # A trace may do without a name; one that has it has the finding's.
    if finding.trace.violation is None or finding.trace.fingerprint not in (None, "", fingerprint):
        raise ValueError("its trace is another one")
    return finding


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("there is no text where some must be")
    return value


def _plain(tape: object, steps: object, seconds: object) -> tuple[bytes, int, float]:
    """The tape of a failing run, and when it was found. Raises TypeError."""
    if not isinstance(tape, bytes) or not isinstance(steps, int) or steps < 0:
        raise TypeError("its tape or its steps are none")
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise TypeError("its seconds are none")
    return tape, steps, seconds


def _when_found(finding: CampaignFinding) -> tuple[int, str]:
    return finding.steps, finding.fingerprint


def insert_finding(
    database: sqlite3.Connection, finding: CampaignFinding, *, instead: bool = False
) -> bool:
    """Add a finding, `instead` of a damaged one; return whether its fingerprint was new."""
    if instead:
        database.execute("DELETE FROM findings WHERE fingerprint = ?", (finding.fingerprint,))
    cursor = database.execute(
        "INSERT OR IGNORE INTO findings VALUES (?, ?, ?, ?, ?, ?)", _row(finding)
    )
    return cursor.rowcount == 1


def _row(finding: CampaignFinding, *of: str) -> tuple[object, ...]:
    text = text_of(finding.trace)
    values = (finding.kind, text, finding.tape, finding.steps, finding.seconds)
    return (finding.fingerprint, *of, *values)


def forms_in(database: sqlite3.Connection, damage: Damage) -> dict[str, list[CampaignFinding]]:
    """Further forms of findings, by the fingerprint of the finding."""
    if not _has_table(database, "forms"):
        return {}
    columns = "finding, fingerprint, kind, trace, tape, steps, seconds"
    forms: dict[str, list[CampaignFinding]] = {}
    harms = _harms_in(database, damage)
    for row in damage.rows(database, columns, "forms", of_failures=True):
        with damage.passed_over("the form", _shown_name(row[1])):
            form = replace(_finding_of(row[1:]), harm=harms.get(row[1]))
            forms.setdefault(row[0], []).append(form)
    return {finding: sorted(of_it, key=_when_found) for finding, of_it in forms.items()}


def insert_form(database: sqlite3.Connection, finding: CampaignFinding, of: str) -> None:
    """Add a form of a finding, unless it is there."""
    database.execute("INSERT OR IGNORE INTO forms VALUES (?, ?, ?, ?, ?, ?, ?)", _row(finding, of))


def pending_in(database: sqlite3.Connection, damage: Damage) -> list[Pending]:
    """Failing runs that wait to be minimised, with how far that has come."""
    begun = {}
    if _has_table(database, "examinations"):
        for name, trace, progress in damage.rows(database, "name, trace, progress", "examinations"):
            with damage.passed_over(f"how far {_shown_name(name)} was minimised"):
                examination = Examination.from_json(trace_of(_text(trace)), json.loads(progress))
                checked(examination.progress.cursor)
                begun[name] = examination
    columns = "name, trace, tape, steps, seconds, was_lost"
    waiting = []
    for row in damage.rows(database, columns, "pending", of_failures=True):
        with damage.passed_over("the failing run", _shown_name(row[0])):
            name, trace, *plain, was_lost = row
            pending = Pending(trace_of(_text(trace)), *_plain(*plain), bool(was_lost))
            if pending.trace.violation is None or pending.name != name:
                raise ValueError("its trace is another one")
            waiting.append(replace(pending, examination=begun.get(name)))
    return sorted(waiting, key=lambda pending: (pending.steps, pending.name))


def insert_examination(database: sqlite3.Connection, pending: Pending) -> None:
    """Keep how far the examination of a failing run has come."""
    examination = pending.begun
    database.execute(
        "INSERT OR REPLACE INTO examinations VALUES (?, ?, ?)",
        (pending.name, text_of(examination.trace), json.dumps(examination.to_json())),
    )


def _has_table(database: sqlite3.Connection, name: str) -> bool:
    found = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (name,))
    return found.fetchone() is not None


def load_into(database: sqlite3.Connection, state: CampaignState, damage: Damage) -> None:
    """Add all that the database knows to an empty state."""
    for (packed,) in damage.rows(database, "packed", "states"):
        with damage.passed_over("a row of states"):
            state.states.update(unpack(packed))
    columns = "name, tape, states, num_steps, origin"
    for name, *rest in damage.rows(database, columns, "tapes"):
        with damage.passed_over(f"the tape {_shown_name(name)}"):
            tape = checked(CorpusTape(*rest))
            unpack(tape.states)
            if name_of(tape.tape) != name:
                raise ValueError("it is another one")
            state.corpus[name] = tape
    with damage.passed_over("what was counted"):
        for (value,) in _about(database, damage, "progress"):
            _count_into(state, json.loads(value))


def _count_into(state: CampaignState, progress: Any) -> None:
    """Add counters that `progress_of` wrote: all of them, or none if some cannot be read."""
    stable, unstable = progress["repeated"]
    read = CampaignState(
        num_steps=progress["num_steps"],
        num_runs=progress["num_runs"],
        worker_seconds=progress["worker_seconds"],
        num_states_by_depth=Counter({int(k): v for k, v in progress["depths"].items()}),
        num_failing_runs_of=Counter(progress["failing"]),
        facts=set(progress["facts"]),
        facts_required=set(progress["facts_required"]),
        strategies={n: StrategyCount(*counts) for n, counts in progress["strategies"].items()},
        num_stable=stable,
        num_unstable=unstable,
    )
    checked(read)
    read.states, read.corpus = state.states, state.corpus
    vars(state).update(vars(read))


def progress_of(state: CampaignState) -> dict[str, object]:
    """The counters of a state as JSON values, which `load_into` reads."""
    return {
        "num_steps": state.num_steps,
        "num_runs": state.num_runs,
        "worker_seconds": state.worker_seconds,
        "depths": dict(state.num_states_by_depth),
        "failing": dict(state.num_failing_runs_of),
        "facts": sorted(state.facts),
        "facts_required": sorted(state.facts_required),
        "strategies": {
            name: [count.num_runs, count.num_steps, count.num_new_states]
            for name, count in state.strategies.items()
        },
        "repeated": [state.num_stable, state.num_unstable],
    }


def explanation(path: Path | None, error: Exception) -> str:
    """What is wrong with the folder, what of it is kept, and what to do."""
    where = path or "the campaign's memory"
    text = str(error)
    if "disk is full" in text:
        return (
            f"{where}: no space is left on the disk; what was recorded until now is kept, make "
            "room and start the same command again"
        )
    if "readonly" in text or "read-only" in text:
        return f"{where} cannot be written; what it holds is kept, name another --folder"
    if "unable to open" in text:
        # SQLite writes its log beside the database, also for a reader.
        return (
            f"{where}: the campaign's database cannot be opened where nothing may be written; "
            "copy the folder to a place where something may"
        )
    return f"{where}: the campaign's database cannot be used: {printable(text)}"
