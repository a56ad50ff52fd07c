"""Fill the generated blocks of README.md and docs/*.md: what a command can say is not typed.

A block stands between `<!-- generated: NAME -->` and `<!-- end of NAME -->`. Figures come from
benchmarks/results/*.json, sentences from planted bugs that are found anew, tables from the code.

Usage: python docs/generate.py            write what has changed
       python docs/generate.py --check    write nothing, exit with 1 if a block is out of date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from figures import FigureError, figures, trace_lengths
from sentences import sentences
from tables import facts, levels, severities, statements

from poolproof.contract.trace import write_atomically

ROOT = Path(__file__).resolve().parent.parent
BLOCKS: dict[str, Callable[[], str]] = {
    "facts": facts,
    "figures": figures,
    "levels": levels,
    "sentences": sentences,
    "severities": severities,
    "statements": statements,
    "trace lengths": trace_lengths,
}
BLOCK = re.compile(
    r"(<!-- generated: (?P<name>[\w ]+) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL
)


def filled(text: str, where: str) -> str:
    """The text with its blocks made anew. Raises FigureError for a block that nobody makes."""
    opened = re.findall(r"<!-- generated: ([\w ]+) -->", text)
    closed = [match["name"] for match in BLOCK.finditer(text)]
    if opened != closed:
        missing = sorted(set(opened) - set(closed))
        raise FigureError(f"{where}: block {', '.join(missing)} has no <!-- end of ... -->")
    for name in opened:
        if name not in BLOCKS:
            raise FigureError(f"{where}: no block {name!r}; known are {', '.join(BLOCKS)}")
    return BLOCK.sub(lambda match: f"{match[1]}{BLOCKS[match['name']]()}{match[3]}", text)


def main() -> int:
    """Compare every page with what it should say; write it, or say that it is out of date."""
    checking = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not checking:
        print((__doc__ or "").partition("Usage:")[2].strip(), file=sys.stderr)
        return 2
    changed = []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        where = page.relative_to(ROOT).as_posix()
        text = page.read_text(encoding="utf-8")
        try:
            new = filled(text, where)
        except FigureError as error:
            print(error, file=sys.stderr)
            return 2
        if new != text:
            changed.append(where)
            if not checking:
                write_atomically(page, new)
    for where in changed:
        print(f"{where}: {'out of date; run python docs/generate.py' if checking else 'written'}")
    return int(checking and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
