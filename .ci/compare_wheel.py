"""Hold a wheel against the tree: every tracked file of a package folder is in it, nothing else is.

Usage: python .ci/compare_wheel.py WHEEL

setup.py computes what goes into the wheel; this does not use that computation, and errs on the
other side: every top-level folder is expected in the wheel unless it is named below, so a folder
without an __init__.py, or a kind of data file that nobody thought of, is reported.
"""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_INSTALLED = {"tests", "benchmarks", "examples", "docs", "generators", ".ci", ".github"}


def tree() -> dict[str, Path]:
    """Map the name that each file should have in the wheel to the file."""
    # Files not yet added count too, so that the comparison means something before a commit; in a
    # fresh clone there are none.
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    expected: dict[str, Path] = {}
    for name in listed.stdout.decode().split("\0"):
        folder, _, rest = name.partition("/")
        path = ROOT / name
        if folder == "docs" and path.suffix == ".md" and "/" not in rest:
            # The manual, for `poolproof explain`.
            expected[f"poolproof/manual/{rest}"] = path
            continue
        if not rest or folder in NOT_INSTALLED or not path.is_file():
            continue
        expected[f"poolproof/{rest if folder == 'interface' else name}"] = path
    return expected


def main() -> int:
    """Compare names, then contents."""
    expected = tree()
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        packed = {
            info.filename: wheel.read(info)
            for info in wheel.infolist()
            if ".dist-info/" not in info.filename
        }
    problems = [
        f"in the tree, not in the wheel: {path.relative_to(ROOT)}"
        for name, path in sorted(expected.items())
        if name not in packed
    ]
    problems += [
        f"in the wheel, not in the tree: {name}" for name in sorted(set(packed) - set(expected))
    ]
    problems += [
        f"not the same in the wheel: {path.relative_to(ROOT)}"
        for name, path in sorted(expected.items())
        if name in packed and path.read_bytes() != packed[name]
    ]
    for line in problems:
        print(line, file=sys.stderr)
    if not problems:
        print(f"{Path(sys.argv[1]).name}: all {len(expected)} files of the packages, no others")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
