"""Commands to be pasted into a shell: each on one line, however long its file names are.

A table or a padding cuts what is in it to the width of the output, so such a line stands in
neither, and whatever prints it (`plain_text`, `terminal.show`) must not crop.
"""

from __future__ import annotations

from rich.text import Text

from poolproof.contract.outside import printable

__all__ = ["shell_line"]


def shell_line(label: str, command: str, label_width: int, indent: int = 0) -> Text:
    """A label, and from column `indent + label_width + 2` on the command, never wrapped."""
    line = Text(" " * indent, no_wrap=True, overflow="ignore")
    line.append(label.ljust(label_width), style="dim")
    return line.append(f"  {printable(command)}")
