"""Kills a campaign with SIGKILL at random instants, again and again, and looks at what is left.

A pool with planted bugs is fuzzed in a process of its own with two workers. It is killed after a
random time and started again on the same folder; now and then a new folder is begun. After each
kill: the folder loads, every finding that was printed is in it, none was printed twice as new, and
no state that was known before is missing.

Usage: python benchmarks/campaign_kills.py [--kills N] [--seed N] [--record]
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from record import add_destination, write_record

from poolproof.cli.fuzz_target import FuzzOptions, fuzz_target
from poolproof.fuzz.coordinator import CampaignBudget
from poolproof.fuzz.folder import FolderError, read_everything
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.isolation import Limits

ROOT = Path(__file__).resolve().parent.parent
TARGET = f"{ROOT}/tests/fuzz/planted.py:ManyBugs"
LONGEST_S = 3.0
KILLS_A_FOLDER = 20
PRINTED = re.compile(r"^(f-[0-9a-f]{8})  ", re.MULTILINE)


@dataclass
class Outcome:
    """What the kills have shown so far."""

    kills: int = 0
    kills_before_the_first_record: int = 0
    folders: int = 0
    findings_printed: int = 0
    findings_lost: int = 0
    findings_printed_twice: int = 0
    states_lost: int = 0
    folders_that_did_not_load: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether nothing was lost and nothing said twice."""
        lost = self.findings_lost + self.findings_printed_twice + self.states_lost
        return not lost and not self.folders_that_did_not_load


def campaign(folder: Path, seed: int, printed: Path) -> None:
    """The campaign, in a forked child; does not return."""
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.stdout = os.fdopen(1, "w", buffering=1)
    os.chdir(folder.parent)
    options = FuzzOptions(folder, (), None, 2, CampaignBudget(seconds=600), False, Limits())
    try:
        fuzz_target(CampaignSettings(TARGET, "pool", 4, seed=seed), options)
    finally:
        os._exit(0)


def kill_once(folder: Path, seed: int, source: random.Random) -> None:
    """Start a campaign and kill it after a random time."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        campaign(folder, seed, folder.parent / "printed")
    time.sleep(source.uniform(0.02, LONGEST_S))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def look(folder: Path, known: set[int], outcome: Outcome) -> set[int]:
    """Hold the folder against what was printed and known; the states that it knows now."""
    outcome.kills += 1
    if not (folder / "campaign.sqlite").exists():
        outcome.kills_before_the_first_record += 1
        return known
    try:
        _, state, findings, _ = read_everything(folder)
    except FolderError as error:
        if "holds no campaign" in str(error) and not known:
            # Killed before the first transaction: an empty database, which the next start fills.
            outcome.kills_before_the_first_record += 1
            return known
        outcome.folders_that_did_not_load += 1
        return known
    path = folder.parent / "printed"
    printed = PRINTED.findall(path.read_text()) if path.exists() else []
    kept = {finding.fingerprint for finding in findings}
    outcome.findings_lost += len(set(printed) - kept)
    outcome.findings_printed_twice += len(printed) - len(set(printed))
    outcome.states_lost += len(known - state.states)
    return state.states


def kill(kills: int, seed: int, kills_a_folder: int = KILLS_A_FOLDER) -> Outcome:
    """So many kills; what they have shown."""
    source = random.Random(seed)
    outcome = Outcome()
    while outcome.kills < kills:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place, "campaign")
            outcome.folders += 1
            known: set[int] = set()
            for _ in range(min(kills_a_folder, kills - outcome.kills)):
                kill_once(folder, outcome.folders, source)
                known = look(folder, known, outcome)
            printed = Path(place, "printed")
            if printed.exists():
                outcome.findings_printed += len(PRINTED.findall(printed.read_text()))
    return outcome


def main() -> int:
    """Kill, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    add_destination(parser, "campaign_kills")
    options = parser.parse_args()
    outcome = kill(options.kills, options.seed)
    for name, number in asdict(outcome).items():
        print(f"  {name.replace('_', ' '):<34}{number:>8,}")
    record = {"seed": options.seed, "longest_s": LONGEST_S, "figures": asdict(outcome)}
    if not write_record(options.json, record):
        return 2
    return 0 if outcome.is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
