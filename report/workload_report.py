"""The report on serving requests: a table of the targets side by side, and the same as JSON.

For pools it also says whether they had equally many hits, and if not, which rows of their profiles
explain it. Managers serve sequences and have a separate table.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from poolproof.contract.level import Level
from poolproof.contract.outside import printable
from poolproof.harness.pool_session import SMALL_POOL
from poolproof.harness.request_workload import RequestWorkload, WorkloadResult
from poolproof.harness.sequence_workload import SequenceWorkload, SequenceWorkloadResult
from poolproof.report.wording import harm_words

__all__ = ["sequence_json", "sequence_report", "workload_json", "workload_report"]


_POLICY_ROWS = ("eviction", "duplicates", "null_block", "retention")
"""The rows of a profile that decide what is still cached when a request comes."""

_SETTINGS = ("num_blocks", "block_size", "concurrent", "finish", "check_every", "full_every")


def workload_report(workload: RequestWorkload, results: Sequence[WorkloadResult]) -> RenderableType:
    """The table, what was checked, how the hit rates compare, and the violations."""
    num = len(workload.requests)
    head = (
        f"{num:,} request{'s' if num != 1 else ''}, "
        f"{workload.num_blocks:,} blocks of {workload.block_size} tokens, "
        f"{workload.concurrent} live at most, ended {workload.finish}; prompts only"
    )
    parts: list[RenderableType] = [Text(head), _table(results), Text(_checks(workload, results))]
    compared = compare_hit_rates(results)
    if compared:
        parts.append(Text(compared))
    skipped = max(result.counts.num_skipped for result in results)
    if skipped:
        parts.append(Text(f"left out, larger than the whole pool: {skipped:,} of the requests"))
    parts += [Text(_violation(result)) for result in results if result.violation is not None]
    return Group(*parts)


def workload_json(file: Path, workload: RequestWorkload, results: Sequence[WorkloadResult]) -> str:
    """The figures as the text of a JSON file."""
    settings = {name: getattr(workload, name) for name in _SETTINGS}
    record = {
        "format": "poolproof-workload",
        "version": 1,
        "file": file.name,
        "requests": len(workload.requests),
        **settings,
        "hit_rates": compare_hit_rates(results),
        "targets": [_result_json(result) for result in results],
    }
    return json.dumps(record, indent=2) + "\n"


def compare_hit_rates(results: Sequence[WorkloadResult]) -> str:
    """One or two sentences on whether the targets had equally many hits; empty for one target."""
    whole = [result for result in results if result.violation is None]
    if len(whole) < 2:
        return ""
    first = whole[0]
    others = [result for result in whole[1:] if _found(result) != _found(first)]
    if not others:
        return "hit rates: equal"
    return "\n".join(_why_different(first, other) for other in others)


def _found(result: WorkloadResult) -> tuple[int, int]:
    return (result.counts.blocks_hit, result.counts.blocks)


def _why_different(first: WorkloadResult, other: WorkloadResult) -> str:
    mine, theirs = first.profile.to_json(), other.profile.to_json()
    rows = [row for row in _POLICY_ROWS if mine[row] != theirs[row]]
    names = f"{first.name} and {other.name}"
    if not rows:
        return (
            f"hit rates: {names} differ although their profiles evict alike: one of them loses "
            "hits or keeps too much; run it with --check every"
        )
    why = ", ".join(f"{row} {mine[row]} against {theirs[row]}" for row in rows)
    return f"hit rates: {names} differ by policy: {why}"


def _table(results: Sequence[WorkloadResult]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for result in results:
        table.add_column(
            Text(printable(result.name)), justify="right", overflow="fold", max_width=30
        )
    rows = [_column(result) for result in results]
    for label in rows[0]:
        table.add_row(label, *(row[label] for row in rows))
    return table


def _column(result: WorkloadResult) -> dict[str, str]:
    counts = result.counts
    return {
        "requests served": f"{counts.num_requests - counts.num_skipped:,}",
        "  ended early, pool too full": f"{counts.num_ended_early:,}",
        "hit rate, blocks": f"{100 * result.block_hit_rate:.2f} %",
        "hit rate, tokens": f"{100 * result.token_hit_rate:.2f} %",
        "blocks touched": f"{counts.blocks_hit:,}",
        "blocks allocated": f"{counts.blocks_allocated:,}",
        "cached blocks evicted": "unknown" if result.evictions is None else f"{result.evictions:,}",
        "blocks held at most": f"{counts.peak_held:,} of {result.capacity:,}",
        "blocks/s of process time": f"{result.blocks_per_s:,.0f}",
        "blocks/s of wall time": f"{result.blocks_per_wall_s:,.0f}",
        "time in the pool": f"{counts.wall_s:.1f} s",
        "steps judged": f"{result.num_steps:,}" if result.check_every else "none",
        "result": "holds" if result.violation is None else f"{result.violation.invariant} broken",
    }


def _checks(workload: RequestWorkload, results: Sequence[WorkloadResult]) -> str:
    if workload.check_every is None:
        text = "checks: off; only that nothing raised and that every block came back"
        if any(result.evictions is None for result in results):
            text += "\nevictions: unknown where a pool shows no hashes or merges duplicates"
        return text
    rate = workload.check_every
    which = "each step" if rate == 1 else f"each step of 1 request in {rate:,}"
    whole = (
        "the whole pool after each of them"
        if workload.num_blocks <= SMALL_POOL
        else f"the whole pool before 1 request in {workload.full_every:,} and at the end"
    )
    return f"checks: every answer; the state after {which}; {whole}; times include them"


def _violation(result: WorkloadResult) -> str:
    violation = result.violation
    assert violation is not None
    name = printable(result.name)
    harm = harm_words(violation.severity, violation.invariant, Level.POOL)
    lines = [
        f"{name}: {violation.invariant}, {harm}, at request {result.counts.num_requests:,}",
        f"  {printable(violation.sentence)}",
    ]
    if violation.frames:
        lines.append(f"  code  {' <- '.join(violation.frames)}")
    if result.trace is None:
        lines.append("  no trace without checks; run it again with --check every")
    return "\n".join(lines)


def _result_json(result: WorkloadResult) -> dict[str, Any]:
    violation = result.violation
    return {
        "target": result.name,
        "profile": result.profile.to_json(),
        "capacity_blocks": result.capacity,
        **asdict(result.counts),
        "blocks_allocated": result.counts.blocks_allocated,
        "block_hit_rate": result.block_hit_rate,
        "token_hit_rate": result.token_hit_rate,
        "evictions": result.evictions,
        "blocks_per_s": result.blocks_per_s,
        "blocks_per_wall_s": result.blocks_per_wall_s,
        "steps_judged": result.num_steps,
        "violation": violation
        and {
            "invariant": violation.invariant,
            "severity": violation.severity.value,
            "sentence": violation.sentence,
        },
    }


_SEQUENCE_SETTINGS = ("num_blocks", "block_size", "concurrent", "tokens_per_id", "check_every")


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
    columns = [_sequence_column(result) for result in results]
    for label in columns[0]:
        table.add_row(label, *(column[label] for column in columns))
    violations = [
        Text(_sequence_violation(result)) for result in results if result.violation is not None
    ]
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
        **{name: getattr(workload, name) for name in _SEQUENCE_SETTINGS},
        "targets": [_sequence_result_json(result) for result in results],
    }
    return json.dumps(record, indent=2) + "\n"


def _sequence_column(result: SequenceWorkloadResult) -> dict[str, str]:
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


def _sequence_violation(result: SequenceWorkloadResult) -> str:
    violation = result.violation
    assert violation is not None
    name = printable(result.name)
    harm = harm_words(violation.severity, violation.invariant, Level.MANAGER)
    lines = [
        f"{name}: {violation.invariant}, {harm}, at command {result.num_commands:,}",
        f"  {printable(violation.sentence)}",
    ]
    if violation.frames:
        lines.append(f"  code  {' <- '.join(violation.frames)}")
    return "\n".join(lines)


def _sequence_result_json(result: SequenceWorkloadResult) -> dict[str, Any]:
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
