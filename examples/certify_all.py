"""Certifies the example allocators in other languages, and sees their planted bugs refused.

    make examples
    python examples/certify_all.py [NAME ...] [--depth DEPTH]

A program whose compiler or interpreter is not here is said to be skipped. Exit status: 0 when each
of the others holds and its variant with the bug is refused, otherwise 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "examples"

PROGRAMS = {
    "c": (str(BUILT / "lru_pool_c"), "touch-keeps-queued"),
    "rust": (str(BUILT / "rust" / "release" / "lru-pool"), "drop-all-copies"),
    "manager in C++": (str(BUILT / "lru_manager_cpp"), "parent-left-out"),
    "manager in Rust": (str(BUILT / "rust" / "release" / "lru-manager"), "keep-old-names"),
    "engine in C++": (str(BUILT / "fcfs_engine_cpp"), "resumes-where-it-was"),
    "engine in Rust": (str(BUILT / "rust" / "release" / "fcfs-engine"), "preempts-the-first"),
    "embedded": (str(ROOT / "build" / "embedded" / "embedded_pool"), "frees-backwards"),
    "embedded manager": (str(ROOT / "build" / "embedded" / "embedded_manager"), "no-extra-keys"),
    "javascript": (f"node {ROOT / 'examples' / 'javascript' / 'lru_pool.mjs'}", "two-loops"),
}
"""For each example the program, and the bug that it can be told to have."""


def available() -> dict[str, tuple[str, str]]:
    """The programs that can be run here."""
    return {
        language: (program, bug)
        for language, (program, bug) in PROGRAMS.items()
        if shutil.which(program.split(maxsplit=1)[0])
    }


def certify(program: str, arguments: list[str]) -> tuple[int, str]:
    """The exit status of a certification, and what it printed."""
    command = [sys.executable, "-m", "poolproof", "certify", f"cmd:{program}", *arguments]
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.returncode, done.stdout


def main() -> int:
    """Certify each program twice, without its bug and with it; as many at once as there are cores.

    A program and its driver wait for each other most of the time.
    """
    parser = ArgumentParser(description="Certify the example allocators in other languages.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--depth", default="quick")
    asked = parser.parse_args()
    if unknown := sorted(set(asked.names) - PROGRAMS.keys()):
        parser.error(f"{unknown[0]} is none of {', '.join(PROGRAMS)}")
    wanted = asked.names or list(PROGRAMS)
    arguments = ["--depth", asked.depth]
    here = {name: run for name, run in available().items() if name in wanted}
    for language in sorted(set(wanted) - here.keys()):
        print(f"skipped {language}: there is no {PROGRAMS[language][0].split()[0]}")
    wrong = []
    with ThreadPoolExecutor(os.cpu_count()) as at_once:
        runs = {
            language: (
                at_once.submit(certify, program, arguments),
                at_once.submit(certify, f"{program} --bug {bug}", arguments),
            )
            for language, (program, bug) in here.items()
        }
        for language, (right, planted) in runs.items():
            for run in (right, planted):
                print(run.result()[1], flush=True)
            if right.result()[0] != 0:
                wrong.append(f"{language} does not hold")
            if planted.result()[0] != 1:
                wrong.append(f"{language} with the bug {here[language][1]} is not refused")
    for sentence in wrong:
        print(f"*** {sentence}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
