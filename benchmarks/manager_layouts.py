"""How much the managers of vLLM V1's shape were driven in each layout, and what was found.

Each layout is driven by the plain driver's runs until it has had at least 10,000 steps (forward
passes), 1,000 prefixes found in the step that computes them and 100 resumed sequences; layouts with
recurrent states, where nobody may start from a state of the same step, without the second.

Usage: python benchmarks/manager_layouts.py [--target vllm-manager] [--steps N] [--layout NAME]
       [--record]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any

from record import add_destination, write_record

from poolproof.contract.commands import Command
from poolproof.contract.content import TokenChain
from poolproof.contract.manager_commands import Admit, Resume, Step
from poolproof.contract.violation import Violation
from poolproof.harness.choices import SeededChoices
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.manager_session import ManagerSession
from poolproof.harness.manager_workload import ManagerWorkload
from poolproof.reference.recurrent_states import has_state
from poolproof.targets.load import load_target
from poolproof.targets.target import ManagerLayout

SAME_STEP = "a prefix was found in the step that computes it"
MOST_RUNS = 20_000


def drive(
    campaign: ManagerCampaign, layout: ManagerLayout, number: int, counts: Counter[str]
) -> Any:
    """One run, counted; the violation that it shows, or None.

    Every second run is in a roomier pool than a campaign's and admits more, so that more prefixes
    are found while they are being computed.
    """
    setup = campaign.setup(number)
    roomy = number % 2 == 1
    num_blocks = setup.num_blocks + 12 * len(layout.profile.groups) * roomy
    assert layout.make is not None
    session = ManagerSession(
        layout.make(num_blocks, setup.enable_caching),
        layout.profile,
        num_blocks,
        layout.block_size,
        enable_caching=setup.enable_caching,
    )
    choices = SeededChoices(str(setup.options["seed"]))
    workload = ManagerWorkload(choices, session.model, session.can, 2)
    if roomy:
        workload.set_weights({"admit": 40, "lookup_prefix": 0, "reset": 0})
    else:
        workload.bias()
    last: Command | None = None
    for place in range(220):
        twin = _twin(last, session, workload) if roomy and place < 120 else None
        command = twin or (workload.next() if place < 120 else workload.drain())
        if command is None:
            break
        last = None if twin else command
        violation = apply(session, command, counts)
        if violation is not None:
            return violation
    return None


def _twin(last: Command | None, session: ManagerSession, workload: ManagerWorkload) -> Admit | None:
    """Somebody else with the same prompt and a token more, right behind who was just admitted."""
    if not isinstance(last, Admit) or session.calls.refused or workload.below(2):
        return None
    chain = last.chain
    workload.next_id += 1
    longer = TokenChain((*chain.tokens, 0), chain.lora, chain.salt, chain.images)
    return Admit(workload.next_id - 1, longer, 0)


def apply(session: ManagerSession, command: Command, counts: Counter[str]) -> Violation | None:
    """One command, and what it was."""
    session.facts.discard(SAME_STEP)
    violation = session.step(command)
    counts["commands"] += 1
    counts["steps"] += isinstance(command, Step)
    granted = not session.calls.refused
    counts["resumes"] += isinstance(command, Resume) and granted
    counts["admissions"] += isinstance(command, Admit) and granted
    counts["refusals"] += session.calls.refused
    counts["hits"] += isinstance(command, Admit | Resume) and granted and _has_hit(session, command)
    counts["same_step_hits"] += SAME_STEP in session.facts
    return violation


def _has_hit(session: ManagerSession, command: Admit | Resume) -> bool:
    sequence = session.model.sequences.get(command.seq_id)
    return sequence is not None and sequence.num_computed > 0


def measure(target: str, layout: ManagerLayout, steps: int) -> dict[str, Any]:
    """One row of the table."""
    if layout.make is None:
        return {"layout": layout.name, "not_run": layout.why_not}
    campaign = ManagerCampaign(target, layout.make, layout.profile, layout.block_size, seed=1)
    least = {"steps": steps, "resumes": steps // 100, "same_step_hits": steps // 10}
    if has_state(layout.profile.groups):
        del least["same_step_hits"]
    counts: Counter[str] = Counter()
    findings = []
    for number in range(MOST_RUNS):
        if all(counts[name] >= count for name, count in least.items()):
            break
        violation = drive(campaign, layout, number, counts)
        if violation is not None:
            findings.append({"run": number, "sentence": violation.sentence})
    names = ("commands", "steps", "admissions", "hits", "same_step_hits", "resumes", "refusals")
    return {
        "layout": layout.name,
        **{name: counts[name] for name in names},
        "findings": findings,
        "reached": all(counts[name] >= count for name, count in least.items()),
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="vllm-manager")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--layout", default="")
    add_destination(parser, "manager_layouts")
    arguments = parser.parse_args()
    target = load_target(arguments.target)
    rows = []
    for layout in target.layouts:
        if arguments.layout in {"", layout.name}:
            rows.append(measure(arguments.target, layout, arguments.steps))
            print(json.dumps(rows[-1]), flush=True)
    report = {"target": arguments.target, "version": target.version, "source": target.source}
    if not write_record(arguments.json, {**report, "layouts": rows}, indent=1):
        return 2
    run = [row for row in rows if "not_run" not in row]
    return 0 if all(row["reached"] and not row["findings"] for row in run) else 1


if __name__ == "__main__":
    sys.exit(main())
