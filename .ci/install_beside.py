"""Install Poolproof into this interpreter's environment, and fail if anything there was replaced.

Usage: PYTHON install_beside.py [--editable] REQUIREMENT

The environment belongs to an engine whose packages were chosen to fit together.  Adding packages
is fine; a line of `pip freeze` that changed or vanished means that somebody's engine would no
longer be the one that they run.
"""

import subprocess
import sys

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]


def installed() -> set[str]:
    """List what is installed, Poolproof itself left out: it may be installed anew."""
    frozen = subprocess.run([*PIP, "freeze", "--all"], check=True, capture_output=True, text=True)
    return {
        line
        for line in frozen.stdout.splitlines()
        # An editable install is listed by its folder, under a comment that gives its name.
        if line and not line.startswith(("#", "-e ")) and not line.lower().startswith("poolproof")
    }


def main() -> int:
    """Compare the environment before and after the installation."""
    before = installed()
    subprocess.run([*PIP, "install", "--quiet", *sys.argv[1:]], check=True)
    after = installed()
    lost = sorted(before - after)
    added = sorted(after - before)
    if lost:
        print(f"The installation replaced or removed packages in {sys.prefix}:", file=sys.stderr)
        for line in lost:
            name = line.partition("==")[0]
            now = next((new for new in added if new.partition("==")[0] == name), "nothing")
            print(f"  {line} became {now}", file=sys.stderr)
        print("Widen the range in pyproject.toml that asked for this.", file=sys.stderr)
        return 1
    print(f"{sys.prefix}: {len(before)} packages unchanged, {len(added)} added")
    return 0


if __name__ == "__main__":
    sys.exit(main())
