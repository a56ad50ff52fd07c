"""What stands in a campaign's database, and how it is read: the tables behind `folder.py`."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from poolproof.fuzz.coverage_record import CodeCoverage
from poolproof.fuzz.findings import Examination, Finding, Pending
from poolproof.fuzz.merge import CampaignState
from poolproof.fuzz.messages import CorpusTape, StrategyCount
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import unpack
from poolproof.fuzz.status import CampaignStatus
from poolproof.fuzz.traces_as_text import text_of, trace_of

__all__ = [
    "DATABASE",
    "EXAMINATIONS",
    "FOLDER_VERSION",
    "FORMAT",
    "FORMS",
    "SCHEMA",
    "FolderError",
    "connected",
    "coverage_in",
    "explanation",
    "findings_in",
    "forms_in",
    "insert_examination",
    "insert_finding",
    "insert_form",
    "load_into",
    "pending_in",
    "progress_of",
    "settings_in",
    "status_in",
    "tables",
]

FORMAT = "poolproof-campaign"
FOLDER_VERSION = 3
"""1 had no forms of findings, 2 did not keep how far minimising has come."""
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


class FolderError(Exception):
    """A folder that cannot be used, or used any longer; the message says why and what to do."""


def connected(where: str) -> sqlite3.Connection:
    """A connection whose commits are on disk when they return."""
    # Transactions begin and end where this file says so, not where the module guesses.
    database = sqlite3.connect(where, isolation_level=None, timeout=30.0)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
    except BaseException:
        # Python 3.13 warns of a connection that nobody closed.
        database.close()
        raise
    return database


def tables(database: sqlite3.Connection) -> int:
    """How many tables there are: none in a new database."""
    return int(database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()[0])


def settings_in(database: sqlite3.Connection, path: Path | None) -> CampaignSettings:
    """The settings, once format and version are known to be ours."""
    about = {}
    if tables(database):
        about = dict(database.execute("SELECT key, value FROM about"))
    if json.loads(about.get("format", "null")) != FORMAT:
        raise FolderError(f"{path} holds no campaign: its {DATABASE} was not written by Poolproof")
    version = json.loads(about["version"])
    if version > FOLDER_VERSION:
        raise FolderError(
            f"{path} has campaign version {version}, this Poolproof reads up to {FOLDER_VERSION}; "
            "upgrade Poolproof to go on with it"
        )
    return CampaignSettings.from_json(json.loads(about["settings"]))


def status_in(database: sqlite3.Connection) -> CampaignStatus | None:
    """The last status that was recorded."""
    row = database.execute("SELECT value FROM about WHERE key = 'status'").fetchone()
    return None if row is None else CampaignStatus.from_json(json.loads(row[0]))


def coverage_in(database: sqlite3.Connection) -> CodeCoverage | None:
    """The last code coverage that was measured."""
    row = database.execute("SELECT value FROM about WHERE key = 'coverage'").fetchone()
    return None if row is None else CodeCoverage.from_json(json.loads(row[0]))


def findings_in(database: sqlite3.Connection) -> list[Finding]:
    """All findings, in the order in which they were found."""
    rows = database.execute(
        "SELECT fingerprint, kind, trace, tape, steps, seconds FROM findings "
        "ORDER BY steps, fingerprint"
    ).fetchall()
    return [Finding(row[0], row[1], trace_of(row[2]), *row[3:]) for row in rows]


def insert_finding(database: sqlite3.Connection, finding: Finding) -> bool:
    """Add a finding; whether its fingerprint was not there."""
    cursor = database.execute(
        "INSERT OR IGNORE INTO findings VALUES (?, ?, ?, ?, ?, ?)", _row(finding)
    )
    return cursor.rowcount == 1


def _row(finding: Finding, *of: str) -> tuple[object, ...]:
    text = text_of(finding.trace)
    values = (finding.kind, text, finding.tape, finding.steps, finding.seconds)
    return (finding.fingerprint, *of, *values)


def forms_in(database: sqlite3.Connection) -> dict[str, list[Finding]]:
    """Further forms of findings, by the fingerprint of the finding."""
    if not _has_table(database, "forms"):
        return {}
    forms: dict[str, list[Finding]] = {}
    for row in database.execute(
        "SELECT finding, fingerprint, kind, trace, tape, steps, seconds FROM forms "
        "ORDER BY steps, fingerprint"
    ):
        form = Finding(row[1], row[2], trace_of(row[3]), *row[4:])
        forms.setdefault(row[0], []).append(form)
    return forms


def insert_form(database: sqlite3.Connection, finding: Finding, of: str) -> None:
    """Add a form of a finding, unless it is there."""
    database.execute("INSERT OR IGNORE INTO forms VALUES (?, ?, ?, ?, ?, ?, ?)", _row(finding, of))


def pending_in(database: sqlite3.Connection) -> list[Pending]:
    """Failing runs that wait to be minimised, with how far that has come."""
    begun = {}
    if _has_table(database, "examinations"):
        begun = {
            name: Examination.from_json(trace_of(trace), json.loads(progress))
            for name, trace, progress in database.execute(
                "SELECT name, trace, progress FROM examinations"
            )
        }
    rows = database.execute(
        "SELECT name, trace, tape, steps, seconds, was_lost FROM pending ORDER BY steps, name"
    ).fetchall()
    return [
        Pending(trace_of(trace), tape, steps, seconds, bool(was_lost), begun.get(name))
        for name, trace, tape, steps, seconds, was_lost in rows
    ]


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


def load_into(database: sqlite3.Connection, state: CampaignState) -> None:
    """Add all that the database knows to an empty state."""
    for (packed,) in database.execute("SELECT packed FROM states"):
        state.states.update(unpack(packed))
    for row in database.execute(
        "SELECT name, tape, states, num_steps, origin FROM tapes ORDER BY rowid"
    ):
        state.corpus[row[0]] = CorpusTape(*row[1:])
    row = database.execute("SELECT value FROM about WHERE key = 'progress'").fetchone()
    if row is None:
        return
    progress = json.loads(row[0])
    state.num_steps = progress["num_steps"]
    state.num_runs = progress["num_runs"]
    state.worker_seconds = progress["worker_seconds"]
    state.num_states_by_depth.update({int(k): v for k, v in progress["depths"].items()})
    state.num_failing_runs_of.update(progress["failing"])
    state.facts.update(progress["facts"])
    state.facts_required.update(progress["facts_required"])
    for name, counts in progress["strategies"].items():
        state.strategies[name] = StrategyCount(*counts)
    state.num_stable, state.num_unstable = progress["repeated"]


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
    return f"{where}: the campaign's database cannot be used: {text}"
