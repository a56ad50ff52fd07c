"""Run mypy over an installed copy, and name the files of the tree in what it prints.

Usage: python .ci/check_types.py FOLDER     (an installed copy; `make types` makes one)

The tree itself cannot be checked: there the package poolproof.contract stands in contract/, which
only setuptools knows, and its editable finder works at run time alone.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def in_tree(line: str, copy: str) -> str:
    """Rewrite the path that a message begins with."""
    inside = re.match(rf"{re.escape(copy)}/poolproof/([^:]+)(.*)", line, re.DOTALL)
    if inside is None:
        return line
    path, rest = inside.groups()
    top = path.split("/")[0]
    is_folder = (ROOT / top / "__init__.py").exists() and "/" in path
    return f"{path if is_folder else f'interface/{path}'}{rest}"


def main() -> int:
    """Check the whole package."""
    copy = os.path.relpath(sys.argv[1], ROOT)
    command = [sys.executable, "-m", "mypy", "--no-color-output", "-p", "poolproof"]
    checked = subprocess.run(
        command,
        check=False,
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": copy},
        stdout=subprocess.PIPE,
        text=True,
    )
    for line in checked.stdout.splitlines():
        print(in_tree(line, copy))
    return checked.returncode


if __name__ == "__main__":
    sys.exit(main())
