"""A trace as a pytest file that replays it on its target through Poolproof.

Everything that comes from the trace enters the file as a quoted literal or a comment, so that a
trace from a stranger cannot smuggle in code.
"""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path

from poolproof.contract.outside import printable
from poolproof.contract.trace import Trace
from poolproof.report.wording import harm_of_trace, set_up_of

__all__ = ["comment", "regression_test", "test_name"]

_TEST = """\
{comment}

{imports}
TRACE = [
{lines}
]
{folder}

def {name}({arguments}) -> None:
{enter}    outcome = poolproof.replay(poolproof.Trace.from_lines(TRACE), in_process=True)
    assert outcome.num_left_out == 0, "some commands no longer mean anything on this target"
    assert outcome.violation is None, outcome.violation.sentence
"""

_MOVING_IMPORTS = "from pathlib import Path\n\nimport poolproof\nimport pytest\n"


def regression_test(trace: Trace, written_to: Path | None = None) -> str:
    """The text of the test file: it fails while the violation shows.

    A target that is a file is named from the current folder. A test that knows where it is
    `written_to` goes there first, wherever pytest is started.
    """
    lines = "\n".join(f"    {line!r}," for line in trace.lines())
    moves, folder = False, ""
    if written_to is not None and _is_file(trace.target):
        moves = True
        back = os.path.relpath(Path.cwd(), written_to.resolve().parent)
        folder = f"FOLDER = Path(__file__).parent / {back!r}  # the target is named from there\n"
    return _TEST.format(
        comment=comment(trace),
        imports=_MOVING_IMPORTS if moves else "import poolproof\n",
        lines=lines,
        folder=folder,
        name=test_name(trace),
        arguments="monkeypatch: pytest.MonkeyPatch" if moves else "",
        enter="    monkeypatch.chdir(FOLDER)\n" if moves else "",
    )


def _is_file(target: str) -> bool:
    """Whether a target is a file or a program, and so looked for from the current folder."""
    return target.startswith("cmd:") or ".py:" in target or "/" in target


def test_name(trace: Trace) -> str:
    """A function's name made of the invariant and the fingerprint."""
    invariant = trace.violation.invariant if trace.violation else "trace"
    words = f"{invariant} {trace.fingerprint or ''}".lower()
    return "test_" + "_".join(re.findall(r"[a-z0-9]+", words))


def comment(trace: Trace) -> str:
    """What the trace shows, as comment lines."""
    words = [f"{printable(trace.target)}, {set_up_of(trace)}."]
    if trace.violation is not None:
        violation = trace.violation
        words.insert(0, f"{violation.invariant}, {harm_of_trace(trace)}.")
        words.append(f"After command {violation.command_index + 1}: {violation.sentence}")
    text = printable(" ".join(" ".join(words).split()))
    return "\n".join(f"# {line}" for line in textwrap.wrap(text, 96))
