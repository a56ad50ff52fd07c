"""Print the counts of a JUnit file as one plain line: N passed, N failed, N skipped.

Usage: python .ci/counts.py FILE
"""

import sys
from xml.etree import ElementTree as ET


def main() -> int:
    """Add up all suites of the file."""
    suites = ET.parse(sys.argv[1]).getroot().iter("testsuite")  # noqa: S314 - pytest wrote the file just before
    total = dict.fromkeys(("tests", "failures", "errors", "skipped"), 0)
    for suite in suites:
        for name in total:
            total[name] += int(suite.get(name, 0))
    failed = total["failures"] + total["errors"]
    passed = total["tests"] - failed - total["skipped"]
    print(f"{passed} passed, {failed} failed, {total['skipped']} skipped")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
