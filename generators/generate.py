"""Fill the generated blocks of README.md and docs/*.md: what a command can write is not typed.

A block lies between `<!-- generated: NAME -->` and `<!-- end of NAME -->`. Figures come from
benchmarks/results/*.json, sentences from planted bugs that are found again, tables from the code.

Usage: python generators/generate.py            write what has changed (`make pages`)
       python generators/generate.py --check    write nothing, exit with 1 if a block is out of date
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from api_tables import public_errors, public_functions, public_types
from bug_tables import (
    detectors_worth,
    kill_matrix,
    lone_detectors,
    oddities_seen,
    shared_threads,
    specimens_caught,
    unstated_threads,
)
from campaign_tables import (
    campaign_curve,
    campaign_duplicates,
    campaign_figures,
    campaign_kills,
    compiled_drivers,
)
from command_tables import command_line
from composed_tables import composed_contradicted, composed_managers
from drop_in_tables import drop_in_speed, drop_in_tests
from engine_tables import (
    engine_guidance,
    engine_traces,
    odd_engines,
    planted_engines,
    planted_engines_told,
    soaked_engines,
    soaked_hicache,
    soaked_hybrids,
    soaked_lmcache,
    soaked_sglang,
)
from exploration_tables import (
    exploration_costs,
    exploration_in_bulk,
    exploration_side_by_side,
    manager_workloads,
    shortest_bugs,
)
from figures import FigureError, figures, trace_lengths
from inferred_tables import inferred_bugs
from kernel_tables import faulty_kernels, kernel_figures, kernel_findings, kernel_targets
from limit_tables import limits, never_tried
from mutation_tables import equivalent_mutants, mutation_scores
from performance_tables import side_by_side
from power_tables import power_by_operator, power_survivors, power_systems
from proof_tables import contracts, needed_invariants, planted_steps, proof_speed, proved_models
from protocol_tables import (
    protocol_commands,
    protocol_exhaustive,
    protocol_messages,
    protocol_speed,
    protocol_state,
)
from ray_tables import ray_at_scale, ray_costs
from recording_tables import audited_schedulers, recording_cost
from sentences import sentences
from soak_tables import soak, soak_memory, soak_steps
from specimen_profile_tables import specimen_profiles
from state_tables import (
    STATE_CAUSES,
    hybrid_releases,
    judged_repairs,
    state_cause,
    state_cause_in_vllm,
)
from structure_tables import before_and_after, lines_of_folders, structure
from survival_tables import (
    oddities_at_depths,
    specimens_at_depths,
    survival,
    survival_summary,
)
from tables import (
    depth_seconds,
    depths,
    facts,
    glossary,
    lessons,
    severities,
    statements,
)
from verdict_tables import explained_findings, verdicts
from vllm_tables import vllm_release_findings, vllm_releases
from watch_tables import (
    live_hybrids,
    live_scenarios,
    live_server,
    watch_cost,
    watch_victims,
    watched_schedulers,
)

from poolproof.contract.trace import write_atomically

ROOT = Path(__file__).resolve().parent.parent
BLOCKS: dict[str, Callable[[], str]] = {
    "before and after": before_and_after,
    "campaign curve": campaign_curve,
    "campaign duplicates": campaign_duplicates,
    "campaign figures": campaign_figures,
    "campaign kills": campaign_kills,
    "command line": command_line,
    "compiled drivers": compiled_drivers,
    "composed contradicted": composed_contradicted,
    "composed managers": composed_managers,
    "contracts": contracts,
    "detectors worth": detectors_worth,
    "exploration costs": exploration_costs,
    "exploration in bulk": exploration_in_bulk,
    "exploration side by side": exploration_side_by_side,
    "equivalent mutants": equivalent_mutants,
    "explained findings": explained_findings,
    "facts": facts,
    "glossary": glossary,
    "audited schedulers": audited_schedulers,
    "live hybrids": live_hybrids,
    "live scenarios": live_scenarios,
    "live server": live_server,
    "watch cost": watch_cost,
    "watch victims": watch_victims,
    "watched schedulers": watched_schedulers,
    "recording cost": recording_cost,
    "faulty kernels": faulty_kernels,
    "figures": figures,
    "kill matrix": kill_matrix,
    "hybrid releases": hybrid_releases,
    "inferred bugs": inferred_bugs,
    "judged repairs": judged_repairs,
    "kernel figures": kernel_figures,
    "kernel findings": kernel_findings,
    "kernel targets": kernel_targets,
    "lessons": lessons,
    "depth seconds": depth_seconds,
    "depths": depths,
    "limits": limits,
    "lines of folders": lines_of_folders,
    "lone detectors": lone_detectors,
    "manager workloads": manager_workloads,
    "mutation scores": mutation_scores,
    "needed invariants": needed_invariants,
    "never tried": never_tried,
    "oddities at depths": oddities_at_depths,
    "oddities seen": oddities_seen,
    "drop in speed": drop_in_speed,
    "drop in tests": drop_in_tests,
    "side by side": side_by_side,
    "engine guidance": engine_guidance,
    "engine traces": engine_traces,
    "planted engines": planted_engines,
    "planted engines told": planted_engines_told,
    "odd engines": odd_engines,
    "planted steps": planted_steps,
    "power by operator": power_by_operator,
    "power survivors": power_survivors,
    "power systems": power_systems,
    "proof speed": proof_speed,
    "protocol commands": protocol_commands,
    "protocol exhaustive": protocol_exhaustive,
    "protocol messages": protocol_messages,
    "protocol speed": protocol_speed,
    "protocol state": protocol_state,
    "proved models": proved_models,
    "public errors": public_errors,
    "public functions": public_functions,
    "public types": public_types,
    "ray at scale": ray_at_scale,
    "ray costs": ray_costs,
    "sentences": sentences,
    "severities": severities,
    "shared threads": shared_threads,
    "shortest bugs": shortest_bugs,
    "soak": soak,
    "soaked engines": soaked_engines,
    "soaked hicache": soaked_hicache,
    "soaked hybrids": soaked_hybrids,
    "soaked lmcache": soaked_lmcache,
    "soaked sglang": soaked_sglang,
    "soak memory": soak_memory,
    "soak steps": soak_steps,
    "specimen profiles": specimen_profiles,
    "specimens at depths": specimens_at_depths,
    "specimens caught": specimens_caught,
    "statements": statements,
    "structure": structure,
    "survival": survival,
    "survival summary": survival_summary,
    "trace lengths": trace_lengths,
    "unstated threads": unstated_threads,
    "verdicts": verdicts,
    "vllm release findings": vllm_release_findings,
    "vllm releases": vllm_releases,
    "cause in vllm": state_cause_in_vllm,
    **{f"cause {name}": partial(state_cause, name) for name in STATE_CAUSES},
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
        print(f"{where}: {'out of date; run make pages' if checking else 'written'}")
    return int(checking and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
