"""Print the lower bounds of the core's dependencies as a constraints file for pip.

Usage: python .ci/oldest.py > constraints.txt

pyproject.toml promises that old releases are enough, so that an engine's own are never replaced.
A run of the tests against exactly these keeps the promise true.
"""

import re
import sys
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    """Print one constraint a line."""
    for requirement in tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["dependencies"]:
        bound = re.match(r"([\w-]+)>=([\d.]+)", requirement)
        if bound is None:
            sys.exit(f"{PYPROJECT.name}: {requirement!r} has no lower bound")
        print(f"{bound[1]}=={bound[2]}")


if __name__ == "__main__":
    main()
