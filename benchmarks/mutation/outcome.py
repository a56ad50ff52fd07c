"""What the trials of run.py came to; docs/mutation.md is made of what is recorded.

Counts only mutants of the files as they stand now, and keeps a digest of each file: the page says
which of them have changed since. What is recorded of folders and files not asked for stays.

Exit status 1 when a mutant got through that tests/mutation/equivalent.toml does not explain, when
one was not tried, or when a test catches one that is listed there as equivalent.

Usage: python benchmarks/mutation/outcome.py [--folder impl ...] [--file free_queue ...] [--record]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from equivalents import Equivalent, read_list
from mutants import Mutant, mutants_of
from recorded import FOLDERS, beside_others, digest_of, mutated_paths, standing

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "benchmarks"))

from record import RECORDED, add_destination, write_record  # noqa: E402 - a script of the folder above

__all__ = [
    "FOLDERS",
    "ROOT",
    "VERDICTS",
    "add_destination",
    "change_of",
    "known_verdicts",
    "write_outcome",
]

VERDICTS = ROOT / "build" / "mutation" / "verdicts.jsonl"
COUNTS = ("mutants", "killed", "timeout", "equivalent", "survivors", "untried")


def known_verdicts() -> dict[str, str]:
    """What the trials found, the last word on each mutant."""
    if not VERDICTS.exists():
        return {}
    rows = map(json.loads, VERDICTS.read_text(encoding="utf-8").splitlines())
    return {row["name"]: row["verdict"] for row in rows}


def write_outcome(
    destination: Path,
    folders: Sequence[str] = FOLDERS,
    names: Collection[str] | None = None,
) -> int:
    """Write the result; 1 if something got through without a reason, 2 if it cannot be written.

    Of the other folders what was recorded stays; where files have `names`, that of the others too.
    """
    known = known_verdicts()
    listed = {change_of(entry): entry.reason for entry in read_list()}
    files: dict[str, Counter[str]] = {}
    survivors: list[dict[str, str]] = []
    caught: dict[tuple[str, ...], bool] = {}
    for path in (path for folder in folders for path in mutated_paths(ROOT, folder, names)):
        counts = files.setdefault(path, Counter())
        for mutant in mutants_of(ROOT, path):
            verdict = known.get(mutant.name, "untried")
            change = change_of(mutant)
            if verdict in {"survived", "unreached"}:
                verdict = "equivalent" if change in listed else "survivors"
            if verdict == "survivors":
                survivors.append(dict(zip(("file", "function", "before", "after"), change)))
            if change in listed and verdict in {"killed", "timeout"}:
                caught.setdefault(change, True)
            elif change in listed:
                caught[change] = False
            counts["mutants"] += 1
            counts[verdict] += 1
    value = {
        "tool": f"mutmut {version('mutmut')}",
        "files": {
            path: {"digest": digest_of(ROOT / path)} | {key: counts[key] for key in COUNTS}
            for path, counts in files.items()
        },
        "survivors": survivors,
    }
    known = RECORDED / "mutation.json"
    recorded = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else None
    covered = folders if names is None else ()
    whole = beside_others(value, covered, standing(recorded, ROOT)) if recorded else value
    if not write_record(destination, whole, indent=1):
        return 2
    return told(value, [change for change, killed in caught.items() if killed])


def told(value: dict[str, Any], wrong: list[tuple[str, ...]]) -> int:
    """Print what has to be done; the exit status."""
    for one in value["survivors"]:
        print(f"got through: {one['file']} {one['function']}: {one['before']}  =>  {one['after']}")
    for file, function, before, after in wrong:
        print(f"listed as equivalent, and killed: {file} {function}: {before}  =>  {after}")
    total = Counter[str]()
    for counts in value["files"].values():
        total.update({key: counts[key] for key in COUNTS})
    print(", ".join(f"{total[key]} {key}" for key in COUNTS))
    return int(bool(wrong or total["survivors"] or total["untried"]))


def change_of(one: Mutant | Equivalent) -> tuple[str, str, str, str]:
    """What names a change in the list: the file, the function and the lines."""
    path = one.path if isinstance(one, Mutant) else one.file
    return path, one.function, one.before, one.after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", nargs="+", choices=FOLDERS, default=list(FOLDERS))
    parser.add_argument("--file", nargs="+", help="only these files: free_queue ...")
    add_destination(parser, "mutation")
    arguments = parser.parse_args()
    sys.exit(write_outcome(arguments.json, arguments.folder, arguments.file))
