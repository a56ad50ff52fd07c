"""What serving requests with managers says: a table of the targets side by side, and its JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from poolproof.contract.outside import printable
from poolproof.harness.sequence_workload import SequenceWorkload, SequenceWorkloadResult
from poolproof.report.wording import severity_words

__all__ = ["sequence_json", "sequence_report"]

_SETTINGS = ("num_blocks", "block_size", "concurrent", "tokens_per_id", "check_every")


def sequence_report(
    workload: SequenceWorkload, results: Sequence[SequenceWorkloadResult]
) -> RenderableType:
    """The table, what was checked, and the violations."""
    num = len(workload.requests)
    head = (
        f"{num:,} request{'s' if num != 1 else ''}, {workload.num_blocks:,} blocks of "
        f"{workload.block_size} tokens, {workload.concurrent} running at most; prompts and outputs,"
        f" {workload.tokens_per_id} tokens for each 512 of the trace"
    )
    rate = workload.check_every
    checks = (
        "checks: every answer, every read of a forward pass; all tables, counters and orders "
        + ("after each command" if rate == 1 else f"after 1 command in {rate:,}")
        + "; times include them"
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for result in results:
        name = Text(printable(result.name))
        table.add_column(name, justify="right", overflow="fold", max_width=30)
    columns = [_column(result) for result in results]
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    violations = [Text(_violation(result)) for result in results if result.violation is not None]
    return Group(Text(head), table, Text(checks), *violations)


def sequence_json(
    file: Path, workload: SequenceWorkload, results: Sequence[SequenceWorkloadResult]
) -> str:
    """The figures as the text of a JSON file."""
    record = {
        "format": "poolproof-workload",
        "version": 1,
        "level": "manager",
        "file": file.name,
        "requests": len(workload.requests),
        **{name: getattr(workload, name) for name in _SETTINGS},
        "targets": [_result_json(result) for result in results],
    }
    return json.dumps(record, indent=2) + "\n"


def _column(result: SequenceWorkloadResult) -> dict[str, str]:
    counts = result.counts
    rate = result.num_commands / result.seconds if result.seconds else 0.0
    return {
        "requests finished": f"{counts.num_finished:,}",
        "  too long for the pool": f"{counts.num_too_long:,}",
        "preemptions": f"{counts.num_preempted:,}",
        "steps": f"{counts.num_steps:,}",
        "prompt tokens": f"{counts.prompt_tokens:,}",
        "  found cached": f"{100 * result.token_hit_rate:.2f} %",
        "output tokens": f"{counts.output_tokens:,}",
        "commands judged": f"{result.num_commands:,}",
        "commands/s": f"{rate:,.0f}",
        "result": "holds" if result.violation is None else f"{result.violation.invariant} broken",
    }


def _violation(result: SequenceWorkloadResult) -> str:
    violation = result.violation
    assert violation is not None
    name, harm = printable(result.name), severity_words(violation.severity)
    lines = [
        f"{name}: {violation.invariant}, {harm}, at command {result.num_commands:,}",
        f"  {printable(violation.sentence)}",
    ]
    if violation.frames:
        lines.append(f"  code  {' <- '.join(violation.frames)}")
    return "\n".join(lines)


def _result_json(result: SequenceWorkloadResult) -> dict[str, Any]:
    violation = result.violation
    return {
        "target": result.name,
        "profile": result.profile.to_json(),
        **asdict(result.counts),
        "token_hit_rate": result.token_hit_rate,
        "commands_judged": result.num_commands,
        "seconds": result.seconds,
        "violation": violation
        and {
            "invariant": violation.invariant,
            "severity": violation.severity.value,
            "sentence": violation.sentence,
        },
    }
