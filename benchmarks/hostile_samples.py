"""What `hostile_inputs.py` runs: per kind valid samples, mutations of them, and hostile families.

Everything is drawn from the generator that is handed in, so that an input has a number for ever.
"""

from __future__ import annotations

import contextlib
import json
import random
import shlex
import sqlite3
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from poolproof.certification.certificate import Certificate, StageOutcome, StageResult
from poolproof.certification.finding import Finding as CertifiedFinding
from poolproof.contract.commands import Allocate, Cache, Evict, Free, Lookup, Reset, Touch
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.contract.violation import Severity, Violation
from poolproof.fuzz.findings import CampaignFinding, Pending
from poolproof.fuzz.folder import CampaignFolder
from poolproof.fuzz.folder_tables import DATABASE
from poolproof.fuzz.merge import CampaignState, News
from poolproof.fuzz.messages import CorpusTape
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.state_numbers import pack
from poolproof.fuzz.status import CampaignStatus, CurvePoint

__all__ = ["KINDS", "Input"]


@dataclass(frozen=True, slots=True)
class Input:
    """A command line on a hostile input: the statuses that it may have, and what it must write.

    `outputs` are asked of runs that end with status 0 or 1.
    """

    name: str
    arguments: tuple[str, ...]
    statuses: frozenset[int]
    outputs: tuple[str, ...] = ()


ANY = frozenset({0, 1, 2})
_HASH, _OTHER = b"\x41" * 16, b"\x42" * 16
_COMMANDS = (
    Allocate(2), Cache((0, 1), (_HASH, _OTHER)), Lookup(_HASH), Free((0, 1)), Touch((0,)),
    Evict((1,)), Free((0,)), Allocate(3), Free((0, 1)), Reset(),
)  # fmt: skip

_STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**64, 10**400, -(10**400), 1e308, float("nan"), float("inf"), "",
    "x" * 100_000, "\ud83d", "\x1b[2J\x1b[31m", "\x00", "\u202e", "../../etc/passwd", "impl", "=",
    [], [[]], {}, {"a": {}}, [None] * 1000, [[[[[[[[1]]]]]]]], {"do": "allocate"}, "f-00000000",
)  # fmt: skip
_TEXTS = (
    "", "\n", "{", "[", "null", "0", '"', "\x00" * 64, "[" * 2_000 + "]" * 2_000, "9" * 5_000,
    '{"a":' * 2_000 + "1" + "}" * 2_000, "\ufeff{}", "x" * 1_000_000, "[[finding]]\n" * 3_000,
    "a = [" * 2_000 + "]" * 2_000, f"a = {'9' * 5_000}", "{}\n" * 2_000, "\r\n\r\n", "NaN", "1e999",
)  # fmt: skip


def _trace(target: str = "impl", **changes: Any) -> Trace:
    violation = Violation("IDX", Severity.LOST_HIT, "lookup answered None", (1,), 2, ("p.py:3 f",))
    values: dict[str, Any] = {
        "target": target, "level": "pool", "profile": Profile(), "num_blocks": 4,
        "enable_caching": True, "commands": _COMMANDS, "violation": violation,
        "fingerprint": "f-0123abcd", "options": {"block_size": 1},
    }  # fmt: skip
    return Trace(**{**values, **changes})


# --- mutations ------------------------------------------------------------------------------


def _places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to everything in a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    found = [at] if at else []
    if isinstance(value, dict | list):
        for key, item in inside if isinstance(value, dict) else enumerate(value):
            found += _places(item, (*at, key)) if isinstance(item, dict | list) else [(*at, key)]
    return found


def _changed(rng: random.Random, value: Any) -> Any:
    """One place of a JSON value gets a strange one, goes, or is doubled."""
    copy = json.loads(json.dumps(value))
    place = rng.choice(_places(copy) or [()])
    if not place:
        return rng.choice(_STRANGE)
    holder = copy
    for key in place[:-1]:
        holder = holder[key]
    way = rng.randrange(5)
    if way == 0:
        del holder[place[-1]]
    elif way == 1 and isinstance(holder, dict):
        holder[rng.choice(["", "x" * 5_000, "\ud83d", "violation", "do"])] = holder[place[-1]]
    else:
        holder[place[-1]] = rng.choice(_STRANGE)
    return copy


def _damaged(rng: random.Random, data: bytes) -> bytes:
    """Bytes that are cut, flipped, moved, doubled or drowned."""
    way = rng.randrange(6)
    at = rng.randrange(len(data)) if data else 0
    end = min(len(data), at + rng.randrange(1, 200))
    if way == 0:
        return data[:at]
    if way == 1:
        return data[:at] + bytes(rng.randrange(256) for _ in range(end - at)) + data[end:]
    if way == 2:
        return data[:at] + data[end:]
    if way == 3:
        return data[:end] + data[at:]
    if way == 4:
        return data[:at] + b"\xff\xfe\xed\xa0\x80" + data[at:]
    flipped = bytearray(data)
    for _ in range(rng.randrange(1, 20)):
        flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
    return bytes(flipped)


def _write(
    rng: random.Random,
    number: int,
    path: Path,
    lines: list[Any],
    joined: Callable[[list[Any]], str],
) -> str:
    """A hostile form of a text file, and the name of the way in which it is."""
    ways = ["changed", "damaged", "text", "changed twice", "unchanged", "no file"]
    way = ways[number % len(ways)]
    if way == "text":
        path.write_text(_TEXTS[number // len(ways) % len(_TEXTS)], encoding="utf-8")
    elif way == "damaged":
        path.write_bytes(_damaged(rng, joined(lines).encode()))
    elif way == "unchanged":
        path.write_text(joined(lines), encoding="utf-8")
    elif way == "no file":
        if number % 2:
            path.mkdir()
    else:
        for _ in range(1 + (way == "changed twice")):
            at = rng.randrange(len(lines))
            lines = [*lines[:at], _changed(rng, lines[at]), *lines[at + 1 :]]
        path.write_text(joined(lines), encoding="utf-8", errors="surrogatepass")
    return way


def _as_lines(values: list[Any]) -> str:
    return "".join(f"{json.dumps(value)}\n" for value in values)


# --- the kinds ------------------------------------------------------------------------------


def trace(rng: random.Random, number: int, folder: Path) -> Input:
    """Trace files, for all commands that take one."""
    records = [json.loads(line) for line in _trace().lines()]
    way = _write(rng, number, folder / "t.jsonl", records, _as_lines)
    arguments, outputs = rng.choice([
        (("replay", "t.jsonl", "--call-timeout", "5"), ()),
        (("replay", "t.jsonl", "--in-process"), ()),
        (("shrink", "t.jsonl", "-o", "s.jsonl"), ()),
        (("show", "t.jsonl"), ()),
        (("show", "t.jsonl", "--as", "html", "-o", "o.html"), ("o.html",)),
        (("show", "t.jsonl", "--as", "pytest", "-o", "test_o.py"), ("test_o.py",)),
        (("show", "t.jsonl", "--as", "python"), ()),
    ])  # fmt: skip
    return Input(f"{way}, {arguments[0]}", arguments, ANY, outputs)


_UNBUILDABLE = """
class Pool:
    def __init__(self, num_blocks, *, enable_caching=True): raise ZeroDivisionError("\\ud83d\\x1b")
    def allocate(self, n): return []
    def free(self, ids): pass
    def touch(self, ids): pass
    def cache(self, ids, hashes): pass
    def lookup(self, h): return None
    def num_free(self): return 0
"""
_FORMS = ("c.json", "c.xml", "c.md", "out/certificate.txt", "out/junit.xml")


def _certified(folder: Path, *arguments: str) -> tuple[str, ...]:
    """A certification that is refused after a second."""
    (folder / "pool.py").write_text(_UNBUILDABLE)
    return (
        "certify", "pool.py:Pool", "--depth", "quick", "--in-process", "--json", "c.json",
        "--junit", "c.xml", "--md", "c.md", "--report", "out", *arguments,
    )  # fmt: skip


def known(rng: random.Random, number: int, folder: Path) -> Input:
    """Known files."""
    entries = [
        {"fingerprint": f"f-{n:08x}", "link": "https://example.org/1", "reason": "r",
         "until": "2099-12-31"} for n in range(3)
    ]  # fmt: skip

    def toml(values: list[Any]) -> str:
        tables = []
        for value in values:
            rows = value.items() if isinstance(value, dict) else [("value", value)]
            text = (f"{json.dumps(str(key))} = {json.dumps(item)}" for key, item in rows)
            tables.append("[[finding]]\n" + "\n".join(text))
        return "\n\n".join(tables) + "\n"

    way = _write(rng, number, folder / "k.toml", entries, toml)
    # What it accepts is not what this target shows.
    arguments = _certified(folder, "--known", "k.toml")
    return Input(way, arguments, frozenset({1, 2}), _FORMS)


def _certificate() -> dict[str, Any]:
    found = _trace()
    assert found.violation is not None
    finding = CertifiedFinding(
        fingerprint="f-0123abcd", violation=found.violation, trace=found, stages=("plain driver",),
        first_seen_steps=3,
    )  # fmt: skip
    stage = StageResult(level="pool", stage="plain driver", outcome=StageOutcome.REFUSED, steps=7)
    return Certificate(
        poolproof_version="0.1.0", contract_version=1, target="impl", target_version=None,
        source="pool.py", profile=Profile(), depth="quick", seed=0, workers=1, limits=("10 s",),
        python="3.11", platform="Linux", stages=(stage,), findings=(finding,),
        canaries_caught=("A1",),
    ).to_json()  # fmt: skip


def baseline(rng: random.Random, number: int, folder: Path) -> Input:
    """Certificates as baselines."""
    way = _write(
        rng, number, folder / "b.json", [_certificate()], lambda values: json.dumps(values[0])
    )
    arguments = _certified(folder, "--baseline", "b.json")
    return Input(way, arguments, frozenset({1, 2}), _FORMS)


def workload(rng: random.Random, number: int, folder: Path) -> Input:
    """Request traces."""
    requests = [
        {"timestamp": 5 * n, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, 3 + n]}
        for n in range(4)
    ]
    way = _write(rng, number, folder / "r.jsonl", requests, _as_lines)
    arguments = (
        "workload", "r.jsonl", "--target", "impl", "--blocks", "2000", "--json", "w.json",
        "--block-size", "512",
    )  # fmt: skip
    return Input(way, arguments, ANY, ("w.json",))


_CAMPAIGN = CampaignSettings("pool.py:Pool", "pool", 3)
_STALE = """
from poolproof.impl.block_pool import BlockPool

class Pool(BlockPool):
    def evict(self, ids): pass
"""
_TABLES = {
    "findings": ("fingerprint", "kind", "trace", "tape", "steps", "seconds"),
    "forms": ("fingerprint", "finding", "kind", "trace", "tape", "steps", "seconds"),
    "pending": ("name", "trace", "tape", "steps", "seconds", "was_lost"),
    "examinations": ("name", "trace", "progress"),
    "tapes": ("name", "tape", "states", "num_steps", "origin"),
    "states": ("packed",),
    "sessions": ("stream",),
}
_CELLS: tuple[Any, ...] = (
    None, "", "x" * 100_000, "\ud83d", "\x1b[2J\x1b]0;owned\x07", "../../etc/passwd", -1, 2**62,
    1e308, b"", b"\xff\xfe", b"\x00" * 17, "f-00000000", "[" * 2_000, "9" * 5_000, "{}",
    '{"a": NaN}',
)  # fmt: skip


def _filled(path: Path, settings: CampaignSettings) -> None:
    """A folder with something in every table, as a campaign leaves it."""
    found = _trace("pool.py:Pool", num_blocks=3, commands=_COMMANDS[:3], options={})
    finding = CampaignFinding("f-0123abcd", "IDX", found, b"tape", 40, 0.5)
    form = replace(
        finding, fingerprint="f-89abcdef", trace=replace(found, fingerprint="f-89abcdef")
    )
    waiting = Pending(replace(found, fingerprint=None), b"other", 70, 0.9)
    state = CampaignState(num_steps=900, num_runs=9, worker_seconds=1.0)
    state.num_failing_runs_of["IDX"] = 2
    tapes = tuple(CorpusTape(bytes([n]) * 9, pack([n, n + 1]), 9, "fresh") for n in range(4))
    status = CampaignStatus(
        target=settings.target, level="pool", scope="3 blocks", activity="done", seconds=1.0,
        num_steps=900, num_runs=9, num_states=5, num_possible=1_026, corpus_size=4, stability=1.0,
        curve=(CurvePoint(100, 0.1, 2), CurvePoint(900, 1.0, 5)), num_states_by_depth={0: 1, 3: 4},
        runs_of_strategy={"fresh": 9}, seeds=("0/0",),
    )  # fmt: skip
    with CampaignFolder(path, settings) as held:
        held.begin_session("0/0")
        held.record([News(pack(range(5)), tapes)], state, status, [waiting])
        held.add_finding(finding)
        held.add_finding(form, finding)
        held.record_examination(waiting)


def _change_campaign(rng: random.Random, file: Path, way: str) -> None:
    """Damage one thing, and leave everything else as it is."""
    database = sqlite3.connect(file)
    # Both halves of a pair of surrogates do not go into SQLite; bytes that are no text do.
    cell = rng.choice(_CELLS)
    cell = cell.encode("utf-8", "surrogatepass") if cell == "\ud83d" else cell
    with database:
        if way in {"a value", "damaged text"}:
            rows = database.execute("SELECT key, value FROM about ORDER BY key").fetchall()
            key, value = rng.choice(rows)
            text = json.dumps(_changed(rng, [json.loads(value)]))[1:-1]
            if way == "damaged text":
                text = _damaged(rng, value.encode()).decode("utf-8", errors="replace")
            database.execute("UPDATE about SET value = ? WHERE key = ?", (text, key))
        elif way == "a cell":
            table = rng.choice(sorted(_TABLES))
            column = rng.choice(_TABLES[table])
            with contextlib.suppress(sqlite3.IntegrityError):
                database.execute(f"UPDATE {table} SET {column} = ?", (cell,))  # noqa: S608 -- names of ours
        elif way == "a trace":
            table = rng.choice(["findings", "forms", "pending", "examinations"])
            (text,) = database.execute(f"SELECT trace FROM {table}").fetchone()  # noqa: S608 -- names of ours
            lines = [json.loads(line) for line in text.splitlines()]
            at = rng.randrange(len(lines))
            lines[at] = _changed(rng, lines[at])
            changed = _as_lines(lines).encode("utf-8", "surrogatepass")
            if rng.random() < 0.4:
                changed = _damaged(rng, changed)
            shown = changed.decode("utf-8", errors="replace")
            database.execute(f"UPDATE {table} SET trace = ?", (shown,))  # noqa: S608 -- names of ours
        elif way == "no table":
            database.execute(f"DROP TABLE {rng.choice(sorted(_TABLES))}")
        elif way == "no rows":
            table = rng.choice([*sorted(_TABLES), "about"])
            database.execute(f"DELETE FROM {table}")  # noqa: S608 -- names of ours
    database.close()


def campaign(rng: random.Random, number: int, folder: Path) -> Input:
    """Folders of campaigns: most are damaged in one place, and the rest of them can be used."""
    (folder / "pool.py").write_text(_STALE)
    path = folder / "campaign"
    _filled(path, _CAMPAIGN)
    file = path / DATABASE
    ways = (
        "a cell", "a trace", "a value", "neighbours", "bytes of a page", "damaged text", "no table",
        "cut short", "no rows", "bytes", "unchanged", "gone",
    )  # fmt: skip
    way = ways[number % len(ways)]
    if way == "bytes":
        file.write_bytes(_damaged(rng, file.read_bytes()))
    elif way == "bytes of a page":
        data = bytearray(file.read_bytes())
        # The first page says what tables there are.
        at = rng.randrange(4_096, len(data) - 64)
        data[at : at + 64] = bytes(rng.randrange(256) for _ in range(64))
        file.write_bytes(data)
    elif way == "cut short":
        data = file.read_bytes()
        file.write_bytes(data[: rng.randrange(4_096, len(data))])
    elif way == "neighbours":
        _put_beside(rng, path)
    elif way == "gone":
        _make_way_for(rng, file)
    elif way != "unchanged":
        _change_campaign(rng, file, way)
    fuzz = ("fuzz", "pool.py:Pool", "--blocks", "3", "--steps", "300", "--workers", "1", "--time",
            "5", "--call-timeout", "2", "--quiet", "--folder")  # fmt: skip
    arguments, outputs = rng.choice([
        (("show", "campaign"), ()),
        (("show", "campaign", "--as", "html", "-o", "o.html"), ("o.html",)),
        ((*fuzz, "campaign", "--report", "o.html"), ("o.html",)),
        ((*fuzz, "new", "--merge", "campaign"), ()),
    ])  # fmt: skip
    # Its target is broken, and something of that is left in each folder but in few.
    return Input(f"{way}, {arguments[0]}", arguments, frozenset({1, 2}), outputs)


def _put_beside(rng: random.Random, path: Path) -> None:
    """What is of no campaign, in its folder."""
    way = rng.randrange(5)
    if way == 0:
        (path / "campaign.lock").unlink()
        (path / "campaign.lock").symlink_to("nowhere/at/all")
    elif way == 1:
        (path / f"{DATABASE}-wal").write_bytes(bytes(rng.randrange(256) for _ in range(5_000)))
    elif way == 2:
        (path / f"{DATABASE}-shm").mkdir()
    elif way == 3:
        (path / "\x1b[2J\n.jsonl").write_text("x")
    else:
        (path / DATABASE).rename(path / "elsewhere")
        (path / DATABASE).symlink_to("elsewhere")


def _make_way_for(rng: random.Random, file: Path) -> None:
    """No database, or something else under its name."""
    way = rng.randrange(4)
    file.unlink()
    if way == 0:
        file.mkdir()
    elif way == 1:
        file.symlink_to(file.name)
    elif way == 2:
        file.write_text(rng.choice(_TEXTS))


_PROGRAM = """
import json, os, random, signal, subprocess, sys, time
rng = random.Random(SEED)
HOW = "THE-WAY"
HELLO = {"protocol": 1, "name": "hostile", "level": "pool", "profile": {},
         "verbs": ["allocate", "touch", "free", "cache", "lookup"], "observers": ["free_order"]}
STRANGE = [None, -1, 10**400, float("nan"), "", "\\ud83d\\x1b[2J", "x" * 100_000, [], {}, True]

EVIL = (b"\\x1b]0;owned\\x07\\x1b[2J\\x00\\xff\\xfe\\xed\\xa0\\x80 <script>alert(1)</script> ]]> & "
        b"\\xe2\\x80\\xae \\x9b31m \\r | a | `b`\\n")

def changed(value):
    if isinstance(value, dict) and value and rng.random() < 0.8:
        key = rng.choice(list(value))
        return {**value, key: changed(value[key])}
    if isinstance(value, list) and value and rng.random() < 0.5:
        at = rng.randrange(len(value))
        return value[:at] + [changed(value[at])] + value[at + 1:]
    return rng.choice(STRANGE)

def say(message):
    text = json.dumps(message)
    if HOW == "cut" and rng.random() < 0.3:
        text = text[:rng.randrange(len(text))]
    if HOW == "noise" and rng.random() < 0.3:
        os.write(1, bytes(rng.randrange(256) for _ in range(100)) + b"\\n")
    if HOW == "evil noise": os.write(1, EVIL)
    if HOW == "long" and rng.random() < 0.3:
        text += " " * 3_000_000
    sys.stdout.write(text + "\\n")
    sys.stdout.flush()

for line in sys.stdin:
    asked = json.loads(line)
    answer = {"seq": asked["seq"]}
    if asked["do"] == "start":
        answer.update(HELLO)
        if HOW == "daemon":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                             start_new_session=True)
    elif asked["do"] == "run":
        free = list(range(asked["num_blocks"]))
        answer.update(state={"num_free": len(free), "free_order": free})
    if "commands" in asked:
        answer["answers"] = [] if HOW == "none" else [
            {"result": [0], "num_free": 1, "free_order": [1]} for _ in asked["commands"]]
    late = asked["do"] != "start"
    if HOW == "changed" and rng.random() < 0.4: answer = changed(answer)
    if late and HOW == "exits": sys.exit(3)
    if late and HOW == "evil last words": os.write(2, EVIL * 9); sys.exit(3)
    if late and HOW == "evil errors": answer["answers"] = [
        {"error": EVIL.decode("latin-1")} for _ in asked.get("commands", ())]
    while late and HOW == "talks without end": os.write(1, b"x" * 65536)
    while late and HOW == "writes lines without end": os.write(1, b"x\\n" * 32768)
    while late and HOW == "complains without end": os.write(2, b"x" * 65536)
    if late and HOW == "slow": time.sleep(0.4); answer["answers"] = []
    if late and HOW == "dies": os.kill(os.getpid(), signal.SIGSEGV)
    if late and HOW == "forks" and os.fork() and rng.random() < 0.5: os._exit(0)
    if late and HOW == "kills": os.kill(os.getppid(), signal.SIGKILL)
    if late and HOW == "stops": sys.stdout.close(); time.sleep(60)
    if late and HOW == "hangs": time.sleep(600)
    if late and HOW == "ignores": signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)
    say(answer)
    if asked["do"] == "stop": break
"""
_WAYS_OF_PROGRAMS = (
    "changed", "cut", "noise", "long", "daemon", "none", "exits", "dies", "forks", "kills", "stops",
    "hangs", "ignores", "evil noise", "evil last words", "evil errors", "talks without end",
    "writes lines without end", "complains without end", "slow",
)  # fmt: skip


def program(rng: random.Random, number: int, folder: Path) -> Input:
    """Programs behind `cmd:`."""
    way = _WAYS_OF_PROGRAMS[number % len(_WAYS_OF_PROGRAMS)]
    text = _PROGRAM.replace("SEED", str(rng.randrange(1 << 30))).replace("THE-WAY", way)
    (folder / "program.py").write_text(text)
    target = f"cmd:{shlex.quote(sys.executable)} program.py"
    trace = _trace(target, violation=None, fingerprint=None)
    (folder / "t.jsonl").write_text("\n".join(trace.lines()))
    smoke = ("protocol", "smoke", target, "--timeout", "2")
    replay = ("replay", "t.jsonl", "--call-timeout", "2")
    # A program that kills who started it kills the command itself where nothing is between them.
    chosen = rng.choice([smoke, replay]) if way != "kills" else replay
    if number // len(_WAYS_OF_PROGRAMS) % 4 == 3:
        return Input(f"{way}, certify", _certification(target), ANY, _FORMS)
    return Input(f"{way}, {chosen[0]}", chosen, ANY)


_TARGET = """
import ctypes, os, signal, subprocess, sys, threading, time
from poolproof.impl.block_pool import BlockPool

class Liar:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = None
    def __repr__(self): return "x" * 50_000_000
    def __index__(self): raise KeyboardInterrupt
    def __iter__(self): raise SystemExit(5)
    def __len__(self): return -1

class Endless(list):
    def __repr__(self):
        while True: pass

class Evil(Exception):
    def __str__(self): raise RuntimeError("no")

def daemon():
    child = os.fork()
    if not child:
        os.setsid()
        if os.fork(): os._exit(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os.waitpid(child, 0)

def act():
    WHAT

class Pool(BlockPool):
    def METHOD(self, *arguments, **named):
        act()
        return ANSWER
"""
_ACTS = (
    "pass", "os.fork()", "daemon()", "os._exit(9)", "os.kill(os.getppid(), signal.SIGKILL)",
    "os.kill(0, signal.SIGKILL)", "ctypes.string_at(0)", "time.sleep(600)", "sys.exit(3)",
    "raise Evil()", "raise ValueError('\\ud83d\\x1b[2J' * 100_000)", "raise KeyboardInterrupt",
    "sys.stdout.close(); sys.stderr.close()", "os.close(1); os.close(2)", "os.chdir('/')",
    "subprocess.Popen(['sleep', '600'], start_new_session=True)", "print('y' * 10_000_000)",
    "threading.Thread(target=time.sleep, args=(600,)).start()", "sys.setrecursionlimit(20)",
    "[0] * (1 << 40)", "signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.alarm(1)",
    "os.dup2(os.open(os.devnull, os.O_RDWR), 3)", "[os.close(n) for n in range(3, 20)]",
    "[os.fork() for _ in range(12)]", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "globals().clear()", "sys.modules.clear()", "os.kill(os.getpid(), signal.SIGSTOP)",
    "raise MemoryError", "raise StopIteration", "raise GeneratorExit", "raise RecursionError",
    "exec('while True: print(0)')", "exec('while True: sys.stderr.write(str(9) * 99_999)')",
    "os.write(2, b'\\x1b]0;owned\\x07\\x00\\xff\\xed\\xa0\\x80' * 999); os._exit(7)",
    "sys.stderr.write('z' * 100_000_000)", "daemon(); os.kill(os.getppid(), signal.SIGKILL)",
    "os.kill(os.getppid(), signal.SIGSTOP)", "os.killpg(os.getpgid(os.getppid()), signal.SIGKILL)",
)  # fmt: skip
_ANSWERS = (
    "Liar()", "Endless([1])", "[Liar()] * 3", "'x' * 50_000_000", "10 ** 5000", "None", "type",
    "float('nan')", "super().METHOD(*arguments, **named)", "(x for x in [1])", "lambda: 0",
    "b'\\x00' * 9",
)  # fmt: skip
_METHODS = (
    "allocate",
    "free",
    "touch",
    "lookup",
    "cache",
    "num_free",
    "evict",
    "reset",
    "__init__",
)


def _certification(target: str) -> tuple[str, ...]:
    return (
        "certify", target, "--depth", "quick", "--workers", "2", "--json", "c.json", "--junit",
        "c.xml", "--md", "c.md", "--report", "out", "--memory-limit", "512", "--call-timeout", "2",
    )  # fmt: skip


def target(rng: random.Random, number: int, folder: Path) -> Input:
    """Classes in Python."""
    act = _ACTS[number % len(_ACTS)]
    answer = "super().METHOD(*arguments, **named)" if act != "pass" else rng.choice(_ANSWERS)
    method = rng.choice(_METHODS)
    text = _TARGET.replace("WHAT", act).replace("ANSWER", answer).replace("METHOD", method)
    (folder / "pool.py").write_text(text)
    trace = _trace("pool.py:Pool", violation=None, fingerprint=None)
    (folder / "t.jsonl").write_text("\n".join(trace.lines()))
    name = f"{method}: {act}; {answer}"
    # So that each act comes to be certified, and not always the same.
    if (number + number // len(_ACTS)) % 8 != 7:
        chosen = rng.choice(["replay", "shrink"])
        return Input(f"{chosen} {name}", (chosen, "t.jsonl", "--call-timeout", "2"), ANY)
    return Input(f"certify {name}", _certification("pool.py:Pool"), ANY, _FORMS)


KINDS: dict[str, Callable[[random.Random, int, Path], Input]] = {
    "trace": trace,
    "known": known,
    "baseline": baseline,
    "workload": workload,
    "campaign": campaign,
    "program": program,
    "target": target,
}
