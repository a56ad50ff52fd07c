"""What `poolproof prove` prints and writes: what was proved, by which solvers, and the checks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from poolproof.exploration.proof.all_models import MODELS
from poolproof.exploration.proof.proof_run import FailedStep, ProofRun
from poolproof.exploration.proof.step_table import StepTable

__all__ = ["bug_report", "proof_json", "proof_report"]


def proof_report(run: ProofRun) -> RenderableType:
    """The conditions by model, the checks of the proof itself, each failure with its step."""
    table = _table("what is proved, for every size", "conditions", "Z3", _second(run))
    for name, model in MODELS.items():
        table.add_row(model.title, *_counts(run, name))
    table.add_row("all", *_counts(run, None))
    parts: list[RenderableType] = [table, Text("")]
    parts += [Text(line) for line in _checks(run)]
    for failed in run.failed:
        parts += [Text(""), *_failure(failed)]
    for found, opinion in run.disagreements:
        parts.append(Text(f"cvc5 does not confirm {found.condition}: {opinion.answer}"))
    parts += [Text(f"the proof is empty in a place: {sentence}") for sentence in run.vacuous]
    return Group(*parts, Text(""), Text(_verdict(run), style="bold"))


def bug_report(run: ProofRun) -> RenderableType:
    """Every planted bug, what it breaks, and the step that shows it."""
    table = _table("bug", "what is wrong", "action", "breaks", "thread")
    for bug in run.bugs:
        broken = ", ".join(bug.broken) if bug.counterexample else "NOT CAUGHT"
        action = f"{bug.model}: {bug.action}"
        table.add_row(bug.name, bug.sentence, action, broken, bug.thread or "-")
    parts: list[RenderableType] = [Text(""), table]
    for bug in run.bugs:
        if bug.counterexample is not None:
            parts += [Text(""), Text(f"{bug.name}: {bug.sentence}"), _step(bug.counterexample)]
    return Group(*parts)


def proof_json(run: ProofRun) -> str:
    """Everything as JSON, one object."""
    answers: list[str | None] = [opinion.answer for opinion in run.opinions]
    answers += [None] * (len(run.discharges) - len(answers))
    conditions = [
        {
            "model": found.condition.model,
            "step": found.condition.step,
            "condition": found.condition.name,
            "verdict": found.verdict,
            "reason": found.reason,
            "z3_s": round(found.duration_s, 6),
            "second_solver": answer,
        }
        for found, answer in zip(run.discharges, answers, strict=True)
    ]
    value = {
        "format": "poolproof-proof",
        "version": 1,
        "solvers": _versions(run),
        "exit_status": run.exit_status,
        "conditions": conditions,
        "planted": [asdict(bug) for bug in run.bugs],
        "vacuity": [asdict(checks.vacuity) for checks in run.checks],
        "bridge": asdict(run.bridge),
    }
    return json.dumps(value, indent=1) + "\n"


def _versions(run: ProofRun) -> dict[str, str]:
    names = {"z3": "z3-solver"} | ({"cvc5": "cvc5"} if run.opinions else {})
    return {name: metadata.version(package) for name, package in names.items()}


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def _second(run: ProofRun) -> str:
    return "cvc5, from SMT-LIB" if run.opinions else "second solver"


def _counts(run: ProofRun, model: str | None) -> Iterator[str]:
    mine = [
        (number, found)
        for number, found in enumerate(run.discharges)
        if model in (None, found.condition.model)
    ]
    proved = sum(found.verdict == "proved" for _, found in mine)
    took_s = sum(found.duration_s for _, found in mine)
    yield f"{len(mine)}"
    yield f"{proved} proved, {took_s:.2f} s"
    if not run.opinions:
        yield "not asked"
        return
    opinions = [run.opinions[number] for number, _ in mine]
    confirmed = sum(opinion.answer == "unsat" for opinion in opinions)
    yield f"{confirmed} confirmed, {sum(opinion.duration_s for opinion in opinions):.2f} s"


def _checks(run: ProofRun) -> Iterator[str]:
    caught = sum(bug.counterexample is not None for bug in run.bugs)
    yield f"planted bugs     {caught} of {len(run.bugs)} caught"
    reports = [checks.vacuity for checks in run.checks]
    actions = sum(report.num_actions for report in reports)
    idle = sum(len(report.never_enabled) for report in reports)
    needs = [need for report in reports for need in report.needs]
    needed = sum(need.is_needed for need in needs)
    yield f"actions          {actions - idle} of {actions} can happen under the invariants"
    yield f"invariants       {needed} of {len(needs)} are needed"
    bridge = run.bridge
    if bridge.difference:
        yield f"bridge           DIFFERS: {bridge.difference}"
    else:
        yield (
            f"bridge           {bridge.num_pool_steps:,} steps of the pool as the specification, "
            f"{bridge.num_queue_steps:,} of the queue as the linked list"
        )
    if not run.opinions:
        yield "second solver    not asked; `pip install cvc5` makes one available"


def _failure(failed: FailedStep) -> Iterator[RenderableType]:
    found = failed.discharge
    if failed.counterexample is not None:
        yield Text(f"REFUTED {found.condition}", style="bold")
        yield _step(failed.counterexample)
    elif found.verdict == "refuted":
        yield Text(f"REFUTED {found.condition}; no example with up to 3 blocks", style="bold")
    else:
        yield Text(f"NOT DECIDED {found.condition}: Z3 says unknown ({found.reason}); a longer "
                   "--timeout-s may help", style="bold")  # fmt: skip


def _step(step: StepTable) -> RenderableType:
    table = _table("", "before", "after")
    for what, before, after in step.rows:
        table.add_row(what, before, after, style="" if before != after else "dim")
    broken = f"does not hold after it: {', '.join(step.broken)}"
    return Group(Text(f"a state and a step: {step.step}"), table, Text(broken))


def _verdict(run: ProofRun) -> str:
    if run.exit_status == 0:
        return f"PROVED: {len(run.discharges)} conditions, for any number of blocks and references"
    return "REFUTED" if run.exit_status == 1 else "INCONCLUSIVE"
