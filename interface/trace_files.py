"""Where traces of findings lie, and how the commands that take a TRACE find them.

A TRACE is a path, or a fingerprint of which the last certification in this folder left a trace; a
campaign leaves one under `p-...` of a failing run that is not minimised yet.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from poolproof.contract.target import TargetError
from poolproof.contract.trace import Trace, TraceError, read_trace
from poolproof.finding import Finding
from poolproof.finding_report import finding_report, plain_text
from poolproof.harness.manager_block_sizes import other_block_sizes
from poolproof.output_files import write_if_possible
from poolproof.targets.load import load_target
from poolproof.targets.target import Make, Target

__all__ = ["DEFAULT_FOLDER", "find_trace", "load_target_of", "maker_for", "write_findings"]

DEFAULT_FOLDER = Path(".poolproof", "findings")


def find_trace(text: str) -> tuple[Path, Trace]:
    """The trace that the user named, and its file. Raises TraceError."""
    if not text.strip():
        raise TraceError(
            "TRACE is empty (is a variable unset?); give a trace file or the fingerprint "
            "of a finding"
        )
    path = Path(text)
    if re.fullmatch(r"[fp]-[0-9a-f]{1,8}", text) and not path.exists():
        path = _by_fingerprint(text)
    return path, read_trace(path)


def _by_fingerprint(text: str) -> Path:
    found = sorted(DEFAULT_FOLDER.glob(f"{text}*.jsonl"))
    if not found:
        raise TraceError(
            f"no trace {text} in {DEFAULT_FOLDER}; give the path of a trace file, such as one "
            "that `poolproof certify --report DIR` wrote"
        )
    if len(found) > 1:
        raise TraceError(
            f"{text} fits {len(found)} traces: {', '.join(path.stem for path in found)}; "
            "give more digits"
        )
    return found[0]


def load_target_of(trace: Trace, instead: str | None = None) -> Target:
    """The target that the trace was made with, or the one named `instead`. Raises TargetError."""
    api = trace.options.get("api")
    target = load_target(instead or trace.target, api=None if instead else api)
    if target.level != trace.level:
        part = target.part_at(trace.level)
        if part is not None:
            return part
        raise TargetError(
            f"the trace is of level {trace.level}, but {target.name} is a {target.level} target; "
            f"name another with --target"
        )
    return target


def maker_for(trace: Trace, target: Target) -> Make:
    """How to build the target for this trace: with token chains where it was made with them.

    Raises TargetError where the target takes none.
    """
    if trace.level == "manager":
        return _layout_of(trace, target)
    speaks_chains = any(hasattr(command, "chain") for command in trace.commands)
    if not speaks_chains and trace.options.get("block_size", 1) == 1:
        return target.make
    if target.make_chained is None:
        raise TargetError(
            f"the trace speaks token chains, which {target.name} does not take; "
            "name another target with --target"
        )
    return target.make_chained


def _layout_of(trace: Trace, target: Target) -> Make:
    """The layout of the trace's name, or the only one there is. Raises TargetError."""
    name = str(trace.options.get("layout", ""))
    only = target.layouts[0].name if len(target.layouts) == 1 else name
    known = any(layout.name == name for layout in target.layouts)
    layout = target.layout(name if known else only)
    block_size = trace.options["block_size"]
    others = other_block_sizes(layout.profile, layout.block_size) if layout.make_of else ()
    if block_size not in (layout.block_size, *others):
        raise TargetError(
            f"the trace has {block_size} tokens a block, layout {layout.name} of {target.name} "
            f"{layout.block_size}; name another target with --target"
        )
    return layout.make_with(block_size)


def write_findings(folder: Path, findings: Sequence[Finding]) -> dict[str, str]:
    """Write trace and report of each form of the findings into a folder; paths by fingerprint.

    What cannot be written is named on standard error.
    """
    written: dict[str, str] = {}
    alone = [form for finding in findings for form in finding.forms]
    for finding in (*findings, *alone):
        path = folder / f"{finding.fingerprint}.jsonl"
        with suppress(OSError):  # then no file can be written, which is said of each
            folder.mkdir(parents=True, exist_ok=True)
        if write_if_possible(path, "\n".join(finding.whole_trace().lines()) + "\n"):
            written[finding.fingerprint] = str(path)
        report = plain_text(finding_report(finding, str(path)))
        write_if_possible(path.with_suffix(".txt"), report)
    return written
