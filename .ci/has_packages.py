"""Tell whether this interpreter's environment has packages at exact versions.

Usage: PYTHON has_packages.py [--quiet] NAME==VERSION ...

A local part of a version (2.13.0+cpu) is a build of the same release and counts as it.  Nothing
is imported: an engine takes seconds and half a gigabyte for that.
"""

import sys
from importlib import metadata


def problem(pin: str) -> str | None:
    """Say what is wrong with one pin, or nothing."""
    name, _, wanted = pin.partition("==")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return f"{name} is not installed in {sys.prefix}; {pin} is needed"
    if found.partition("+")[0] != wanted:
        return f"{sys.prefix} has {name} {found}; {pin} is needed"
    return None


def main() -> int:
    """Check every pin that was named."""
    pins = [argument for argument in sys.argv[1:] if argument != "--quiet"]
    problems = [found for found in map(problem, pins) if found]
    if "--quiet" not in sys.argv:
        for line in problems:
            print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
