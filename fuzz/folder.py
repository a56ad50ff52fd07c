"""A campaign's folder: what it knows, on disk, whole at every instant.

It uses SQLite rather than files of our own, because a report must be stored as one: new states,
tapes, failing runs and counters in one transaction, of which a `kill -9` or a power cut leaves all
or nothing (WAL, synchronous=FULL), and because readers may look at any time without a lock. Only
one campaign works on a folder at a time: it holds an advisory lock, which the kernel lifts when its
process ends in any way. Without a folder the same database is held in memory.

Another campaign's folder can be merged into this one: its states, tapes, findings and failing
runs. Nothing is taken twice, so merging the same folder again changes nothing. Steps and seconds
stay those of this campaign: the other one spent its own. The other folder is only read.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from urllib.parse import quote

from poolproof.fuzz.coverage_record import CodeCoverage
from poolproof.fuzz.findings import CampaignFinding, Pending, alike, text_of
from poolproof.fuzz.folder_tables import (
    DATABASE,
    EXAMINATIONS,
    FOLDER_VERSION,
    FORMAT,
    FORMS,
    HARMS,
    SCHEMA,
    UNREADABLE,
    Damage,
    FolderError,
    connected,
    coverage_in,
    explanation,
    findings_in,
    forms_in,
    insert_examination,
    insert_finding,
    insert_form,
    insert_harm,
    load_into,
    pending_in,
    progress_of,
    settings_in,
    status_in,
    tables,
    text_from,
)
from poolproof.fuzz.merge import CampaignState, News, name_of
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus

__all__ = [
    "CampaignFolder",
    "FolderError",
    "merge_folder",
    "read_coverage",
    "read_everything",
    "read_findings",
    "read_forms",
    "read_pending",
    "read_status",
]


_MOST_MISSING = 1 << 30
"""Bytes at the end of a file that was cut short; beyond this its first page is damaged."""


class CampaignFolder:
    """The folder of one campaign, held by this process; a context manager.

    `path` None keeps everything in memory. Raises FolderError, also for settings that are not those
    of the campaign in the folder. Anything else that cannot be read is skipped and noted in
    `damage`.
    """

    def __init__(self, path: Path | None, settings: CampaignSettings) -> None:
        self.path = path
        self.damage = Damage()
        self._lock: int | None = None
        where = ":memory:"
        if path is not None:
            _make_folder(path)
            self._lock = _locked(path)
            where = str(path / DATABASE)
        try:
            with self._explained():
                self._database = connected(where)
                try:
                    self._settle(settings)
                except BaseException:
                    self._database.close()
                    raise
        except BaseException:
            self._unlock()
            raise

    def _settle(self, settings: CampaignSettings) -> None:
        database = self._database
        if not tables(database):
            about = {"format": FORMAT, "version": FOLDER_VERSION, "settings": settings.to_json()}
            with database:
                # One transaction, schema included: a kill leaves an empty database or a whole one.
                database.execute("BEGIN IMMEDIATE")
                for statement in (*SCHEMA.split(";"), FORMS, EXAMINATIONS, HARMS):
                    database.execute(statement)
                for key, value in about.items():
                    self._set(key, value)
            return
        kept = settings_in(database, self.path)
        differs = settings.differs_from(kept)
        if differs is not None:
            raise FolderError(
                f"{self.path} holds another campaign: {differs}; name another --folder"
            )
        with database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(FORMS)
            database.execute(EXAMINATIONS)
            database.execute(HARMS)
            self._set("version", FOLDER_VERSION)

    def load(self) -> CampaignState:
        """What earlier sessions have found."""
        state = CampaignState()
        with self._explained():
            load_into(self._database, state, self.damage)
        return state

    def status(self) -> CampaignStatus | None:
        """The last status that was recorded; None in a new folder."""
        with self._explained():
            return status_in(self._database, self.damage)

    def begin_session(self, stream: str) -> int:
        """Note a session by its random stream; returns its number, from 0."""
        with self._explained(), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            (number,) = database.execute("SELECT COUNT(*) FROM sessions").fetchone()
            database.execute("INSERT INTO sessions VALUES (?, ?)", (number, stream))
        return int(number)

    def record(
        self,
        reports: Iterable[News],
        state: CampaignState,
        status: CampaignStatus,
        pending: Iterable[Pending] = (),
    ) -> None:
        """Add what reports brought: everything or, if the process is killed, nothing of it."""
        with self._explained(), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            for news in reports:  # in their order: one may drop a tape that another brought
                self._add(news)
            database.executemany(
                "INSERT OR IGNORE INTO pending VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (p.name, text_of(p.trace), p.tape, p.steps, p.seconds, p.was_lost)
                    for p in pending
                ],
            )
            self._set("progress", progress_of(state))
            self._set("status", status.to_json())

    def _add(self, news: News) -> None:
        database = self._database
        if news.states:
            database.execute("INSERT INTO states (packed) VALUES (?)", (news.states,))
        database.executemany(
            "INSERT OR IGNORE INTO tapes VALUES (?, ?, ?, ?, ?)",
            [(name_of(t.tape), t.tape, t.states, t.num_steps, t.origin) for t in news.tapes],
        )
        database.executemany("DELETE FROM tapes WHERE name = ?", [(name,) for name in news.dropped])

    def settle_pending(
        self, pending: Pending, finding: CampaignFinding, known: CampaignFinding | None = None
    ) -> bool:
        """Turn the failing run into a finding; return whether it was not known.

        With `known` it is a form of that, or that itself.
        """
        with self._explained(), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            is_new = self._insert(finding, known)
            database.execute("DELETE FROM pending WHERE name = ?", (pending.name,))
            database.execute("DELETE FROM examinations WHERE name = ?", (pending.name,))
        return is_new

    def record_examination(self, pending: Pending) -> None:
        """Store how far a failing run has been minimised, so that it can be resumed."""
        with self._explained(), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            insert_examination(database, pending)

    def add_finding(self, finding: CampaignFinding, known: CampaignFinding | None = None) -> bool:
        """Add a finding, or a form of a known one, from elsewhere; return whether it was new."""
        with self._explained(), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            return self._insert(finding, known)

    def pending(self) -> list[Pending]:
        """Failing runs that no session has minimised yet."""
        with self._explained():
            return pending_in(self._database, self.damage)

    def findings(self) -> list[CampaignFinding]:
        """All findings, in the order in which they were found."""
        with self._explained():
            return findings_in(self._database, self.damage)

    def forms(self) -> dict[str, list[CampaignFinding]]:
        """The other forms in which findings were met, by the finding's fingerprint."""
        with self._explained():
            return forms_in(self._database, self.damage)

    def coverage(self) -> CodeCoverage | None:
        """The code coverage that was measured last."""
        with self._explained():
            return coverage_in(self._database, self.damage)

    def record_coverage(self, coverage: CodeCoverage) -> None:
        """Keep what the corpus runs of the target's code."""
        with self._explained(), self._database as database:
            database.execute("BEGIN IMMEDIATE")
            self._set("coverage", coverage.to_json())

    def _insert(self, finding: CampaignFinding, known: CampaignFinding | None) -> bool:
        insert_harm(self._database, finding)
        if known is None:
            is_damaged = finding.fingerprint in self.damage.failures
            return insert_finding(self._database, finding, instead=is_damaged)
        if finding.fingerprint != known.fingerprint:
            insert_form(self._database, finding, known.fingerprint)
        return False

    def _set(self, key: str, value: object) -> None:
        self._database.execute(
            "INSERT OR REPLACE INTO about VALUES (?, ?)", (key, json.dumps(value))
        )

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, *UNREADABLE) as error:
            told = explanation(self.path, error)
            if "malformed" in told:
                told += (
                    "; what can be read of it is shown by `poolproof show` and taken over by "
                    "`poolproof fuzz ... --folder NEW --merge` of it"
                )
            raise FolderError(told) from error

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def close(self) -> None:
        """Release the folder."""
        self._database.close()
        self._unlock()

    def __enter__(self) -> CampaignFolder:  # noqa: PYI034 -- typing.Self is of Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read_status(
    path: Path, damage: Damage | None = None
) -> tuple[CampaignSettings, CampaignStatus | None]:
    """What a folder holds and its last status, even while a campaign works on it.

    Here and below: what cannot be read is skipped and noted in `damage`. Raises FolderError if
    there is no campaign, or one whose settings cannot be read.
    """
    with _looking_into(path) as database:
        return settings_in(database, path), status_in(database, damage or Damage(of_file=True))


def read_coverage(path: Path, damage: Damage | None = None) -> CodeCoverage | None:
    """The code coverage that was measured last. Raises FolderError."""
    with _looking_into(path) as database:
        return coverage_in(database, damage or Damage(of_file=True))


def read_findings(path: Path, damage: Damage | None = None) -> list[CampaignFinding]:
    """The findings in a folder, in the order in which they were found. Raises FolderError."""
    with _looking_into(path) as database:
        return findings_in(database, damage or Damage(of_file=True))


def read_forms(path: Path, damage: Damage | None = None) -> dict[str, list[CampaignFinding]]:
    """The forms of findings in a folder, as `CampaignFolder.forms` has them. Raises FolderError."""
    with _looking_into(path) as database:
        return forms_in(database, damage or Damage(of_file=True))


def read_pending(path: Path, damage: Damage | None = None) -> list[Pending]:
    """The failing runs in a folder that wait to be minimised. Raises FolderError."""
    with _looking_into(path) as database:
        return pending_in(database, damage or Damage(of_file=True))


def read_everything(
    path: Path, damage: Damage | None = None
) -> tuple[CampaignSettings, CampaignState, list[CampaignFinding], list[Pending]]:
    """All that a folder's campaign knows, except forms of findings. Raises FolderError."""
    state = CampaignState()
    damage = damage or Damage(of_file=True)
    with _looking_into(path) as database:
        load_into(database, state, damage)
        settings = settings_in(database, path)
        return settings, state, findings_in(database, damage), pending_in(database, damage)


@contextlib.contextmanager
def _looking_into(path: Path) -> Iterator[sqlite3.Connection]:
    if not (path / DATABASE).is_file():
        raise FolderError(f"{path} holds no campaign: there is no {DATABASE} in it")
    try:
        with contextlib.ExitStack() as stack:
            try:
                database = stack.enter_context(_opened(path))
                settings_in(database, path)
            except sqlite3.DatabaseError:
                whole = stack.enter_context(_lengthened(path))
                if whole is None:
                    raise
                database = whole
                settings_in(database, path)
            yield database
    except (sqlite3.Error, *UNREADABLE) as error:
        raise FolderError(explanation(path, error)) from error


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, for a reader; SQLite wants to write next to it, if possible."""
    file, log = path / DATABASE, path / f"{DATABASE}-wal"
    with contextlib.ExitStack() as stack:
        if _is_writable(path):
            database = connected(str(file))
        elif log.is_file() and log.stat().st_size:
            # A campaign was killed, and what it recorded last is in the log alone.
            copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="poolproof-")))
            for one in (file, log):
                shutil.copyfile(one, copy / one.name)
            database = connected(str(copy / file.name))
        else:
            # Nobody can write here, so that nothing changes while it is read.
            where = f"file:{quote(str(file.resolve()))}?immutable=1"
            database = sqlite3.connect(where, uri=True, isolation_level=None)
            database.text_factory = text_from
        yield stack.enter_context(contextlib.closing(database))


@contextlib.contextmanager
def _lengthened(path: Path) -> Iterator[sqlite3.Connection | None]:
    """A copy of a truncated file with empty pages at its end; None for any other file.

    SQLite does not read a file that is shorter than its first page says.
    """
    data = (path / DATABASE).read_bytes()
    size = int.from_bytes(data[16:18], "big")
    missing = (1 << 16 if size == 1 else size) * int.from_bytes(data[28:32], "big") - len(data)
    if not 0 < missing < _MOST_MISSING:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="poolproof-") as folder:
        copy = Path(folder, DATABASE)
        copy.write_bytes(data + bytes(missing))
        with contextlib.closing(connected(str(copy))) as database:
            yield database


def _is_writable(path: Path) -> bool:
    """Only a try shows: permissions and read-only file systems answer differently."""
    try:
        with tempfile.TemporaryFile(dir=path):
            return True
    except OSError:
        return False


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FolderError(
            f"cannot make the campaign's folder {path}: {error.strerror}; name another --folder"
        ) from error


def _locked(path: Path) -> int:
    """The descriptor that holds the folder's lock."""
    try:
        lock = os.open(path / "campaign.lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise FolderError(
            f"cannot write in the campaign's folder {path}: {error.strerror}; name another --folder"
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise FolderError(
            f"another campaign works on {path}; wait for it, or name another --folder and merge "
            "the two afterwards with --merge"
        ) from error
    return lock


@dataclass(frozen=True, slots=True)
class Merged:
    """How much of the other folder was new, and what of it could not be read."""

    num_states: int
    num_tapes: int
    num_findings: int
    damage: Damage


def merge_folder(
    own: CampaignFolder, settings: CampaignSettings, status: CampaignStatus, path: Path
) -> Merged:
    """Take everything from the folder at `path`. Raises FolderError."""
    damage = Damage(of_file=True)
    theirs, other, findings, pending = read_everything(path, damage)
    differs = settings.differs_from(theirs)
    if differs is not None:
        raise FolderError(f"{path} cannot be merged: {differs}")
    state = own.load()
    states = other.states - state.states
    tapes = tuple(tape for name, tape in other.corpus.items() if name not in state.corpus)
    state.states |= states
    state.corpus.update({name_of(tape.tape): tape for tape in tapes})
    state.facts |= other.facts
    state.facts_required |= other.facts_required
    num_findings = _merge_findings(own, findings, read_forms(path, damage))
    own.record([News(pack(sorted(states)), tapes)], state, status, pending)
    return Merged(len(states), len(tapes), num_findings, damage)


def _merge_findings(
    own: CampaignFolder, findings: list[CampaignFinding], forms: dict[str, list[CampaignFinding]]
) -> int:
    """Add findings with their forms; return how many show what nothing here did."""
    number = 0
    known = own.findings()
    for finding in findings:
        here = alike(finding, known, own.forms())
        if own.add_finding(finding, here):
            known.append(finding)
            number += 1
        for form in forms.get(finding.fingerprint, ()):
            own.add_finding(form, here or finding)
    return number
