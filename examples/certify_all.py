"""Certifies the example allocators in other languages, and sees their planted bugs refused.

Usage: python examples/certify_all.py [--depth DEPTH]      after `make examples`

A program whose compiler or interpreter is not here is said to be skipped. Exit status: 0 when each
of the others holds and its variant with the bug is refused, otherwise 1.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "build" / "examples"

PROGRAMS = {
    "c": (str(BUILT / "lru_pool_c"), "touch-keeps-queued"),
    "rust": (str(BUILT / "rust" / "release" / "lru-pool"), "drop-all-copies"),
    "javascript": (f"node {ROOT / 'examples' / 'javascript' / 'lru_pool.mjs'}", "two-loops"),
}
"""For each language the program, and the bug that it can be told to have."""


def available() -> dict[str, tuple[str, str]]:
    """The programs that can be run here."""
    return {
        language: (program, bug)
        for language, (program, bug) in PROGRAMS.items()
        if shutil.which(program.split(maxsplit=1)[0])
    }


def certify(program: str, arguments: list[str]) -> int:
    """The exit status of a certification; its certificate is shown."""
    command = [sys.executable, "-m", "poolproof", "certify", f"cmd:{program}", *arguments]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """Certify each program twice, without its bug and with it."""
    arguments = sys.argv[1:] or ["--depth", "quick"]
    here = available()
    wrong = []
    for language, (program, bug) in PROGRAMS.items():
        if language not in here:
            print(f"skipped {language}: there is no {program.split()[0]}")
            continue
        if certify(program, arguments) != 0:
            wrong.append(f"{language} does not hold")
        if certify(f"{program} --bug {bug}", arguments) != 1:
            wrong.append(f"{language} with the bug {bug} is not refused")
    for sentence in wrong:
        print(f"*** {sentence}", file=sys.stderr)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
