"""The golden traces: for each specimen its minimal trace, as the minimiser made it once.

    python tests/bugs/make_golden.py [ID ...]

writes them anew, all or those of the specimens named, and says which became longer or shorter. The
tests compare: a trace that became longer is a minimiser that became worse, until shown otherwise.

What is minimised is kept as well, in `found/`: for a few seeds a failing run of the plain driver as
it was found, so that a change of the grammar changes nothing here. It is searched for only where it
is missing or fails no more.

What all the minimal traces do and show is written into `certification/bug_forms.json`, by which a
finding is told to be like a public bug.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.bugs.specimen import ManagerSpecimen, Specimen
from poolproof.certification.depths import BUDGETS
from poolproof.certification.finding_collector import FORMS, form_of
from poolproof.certification.levels import LEVELS
from poolproof.certification.levels.certified_level import MOST_BLOCKS_TO_SEARCH, Wanted
from poolproof.contract.trace import Trace, read_trace, write_atomically, write_trace
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.index_driver import IndexCampaign
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.replay import replay

GOLDEN = Path(__file__).resolve().with_name("golden")
FOUND = GOLDEN.with_name("found")
EVERYWHERE: dict[str, Specimen | ManagerSpecimen] = {**SPECIMENS, **MANAGER_SPECIMENS}
SEEDS = range(3)
MOST_RUNS = 600
FAILURES_TO_CHOOSE_FROM = 3
SEARCHED_STATES = BUDGETS["quick"].shortest_states


def campaign_of(found: Any, seed: int = 0, only: str | None = None) -> Any:
    """The plain driver against a specimen of any level."""
    if found.level == "index":
        return IndexCampaign(found.id, found.make, found.profile, only=only)
    if found.level == "queue":
        return QueueCampaign(found.id, found.make, seed=seed, only=only)
    if found.level == "pool":
        return PoolCampaign(found.id, found.make, found.profile, seed=seed, only=only)
    options = {"weak_hashes": found.weak_hashes} if found.weak_hashes else {}
    return ManagerCampaign(
        found.id, found.make, found.profile, found.block_size, seed=seed, options=options, only=only
    )


def search(found: Any, seed: int) -> Trace:
    """The shortest of the first runs that fail under a seed."""
    campaign = campaign_of(found, seed)
    results = (campaign.run(number) for number in range(MOST_RUNS))
    traces = (result.trace or result.collision for result in results)
    failures = list(islice((t for t in traces if t is not None), FAILURES_TO_CHOOSE_FROM))
    assert failures, f"{found.id} survived {MOST_RUNS} runs under seed {seed}"
    shortest: Trace = min(failures, key=lambda trace: len(trace.commands))
    return shortest


def found_path(specimen_id: str, seed: int = 0) -> Path:
    """Where a failing run is kept as it was found."""
    return FOUND / f"{specimen_id}.{seed}.jsonl"


def keep_found(found: Any, seed: int) -> None:
    """See that a run is kept that fails; search for one if there is none."""
    path = found_path(found.id, seed)
    if path.exists():
        again = replay(read_trace(path), found.make)
        if again.violation is not None and not again.num_left_out:
            return
    write_trace(_without_frames(search(found, seed)), path)


def minimal(found: Any, seed: int = 0) -> Trace:
    """What the minimiser makes of a run that is kept."""
    trace = read_trace(found_path(found.id, seed))
    return _without_frames(minimise(trace, execute_in_process(found.make)))


def shortest(found: Any, trace: Trace) -> Trace:
    """The first of the shortest traces that fail in this way, as a certification looks for it."""
    assert trace.violation is not None
    kind = failure_kind(trace.violation, trace.commands)
    level = LEVELS[trace.level]
    wanted = Wanted(
        len(trace.commands),
        SEARCHED_STATES // level.share_of_states,
        math.inf,
        lambda violation, commands: failure_kind(violation, commands) == kind,
    )
    result = level.shortest(trace, found.make, wanted)
    if result.commands is None or result.violation is None:
        return trace
    return replace(trace, commands=result.commands, violation=result.violation)


def forms_of(found: Any) -> list[str]:
    """What the minimal traces of a specimen do and show: those of all seeds, and the shortest."""
    forms = {}
    for seed in SEEDS:
        trace = minimal(found, seed)
        if form_of(trace) not in forms:
            forms[form_of(trace)] = trace
            why_not = LEVELS[trace.level].why_not_searched(trace)
            if why_not is None and trace.num_blocks <= MOST_BLOCKS_TO_SEARCH:
                shorter = shortest(found, trace)
                forms.setdefault(form_of(shorter), shorter)
    return sorted(forms)


def write_forms(names: Sequence[str]) -> bool:
    """Write anew how public bugs read (certification/bug_forms.json); whether anything changed."""
    before = FORMS.read_text(encoding="utf-8") if FORMS.exists() else "{}"
    known = {n: forms for n, forms in json.loads(before).items() if n in EVERYWHERE}
    for name in names or EVERYWHERE:
        if EVERYWHERE[name].thread:
            known[name] = forms_of(EVERYWHERE[name])
    text = json.dumps(dict(sorted(known.items())), indent=1) + "\n"
    if text != before:
        write_atomically(FORMS, text)
    return text != before


def _without_frames(trace: Trace) -> Trace:
    """Frames name lines of files, which move."""
    assert trace.violation is not None
    return replace(trace, violation=replace(trace.violation, frames=()))


def path_of(specimen_id: str) -> Path:
    """Where a specimen's golden trace is kept."""
    return GOLDEN / f"{specimen_id}.jsonl"


def difference(stored: Trace, made: Trace) -> str | None:
    """What became of a minimal trace, in a few words; None where it is the same."""
    before, now = len(stored.commands), len(made.commands)
    if now != before:
        return f"{'longer' if now > before else 'shorter'}: {before} -> {now} commands"
    if (stored.commands, stored.num_blocks) != (made.commands, made.num_blocks):
        return f"another one of {now} commands"
    if stored.violation != made.violation:
        return "the same commands, another finding"
    return None


def clean_base(found: Any) -> Any:
    """The class without the bug: the nearest ancestor that is planted nowhere."""
    return next(
        cls for cls in found.cls.__mro__[1:] if not cls.__module__.split(".")[-1].endswith("_bugs")
    )


def main(names: Sequence[str]) -> int:
    """Write the traces and tell what changed."""
    unknown = [name for name in names if name not in EVERYWHERE]
    if unknown:
        print(f"no specimen {unknown[0]!r}; known are {', '.join(EVERYWHERE)}", file=sys.stderr)
        return 2
    GOLDEN.mkdir(exist_ok=True)
    FOUND.mkdir(exist_ok=True)
    changes = {}
    for name in names or EVERYWHERE:
        for seed in SEEDS:
            keep_found(EVERYWHERE[name], seed)
        made = minimal(EVERYWHERE[name])
        path = path_of(name)
        what = difference(read_trace(path), made) if path.exists() else "new"
        if what is not None:
            changes[name] = what
            write_trace(made, path)
            print(f"{name}: {what}", flush=True)
    for path in (*GOLDEN.glob("*.jsonl"), *FOUND.glob("*.jsonl")):
        if path.name.split(".")[0] not in EVERYWHERE:
            print(f"{path.name}: no such specimen any more, deleted")
            path.unlink()
    if write_forms(names):
        print(f"{FORMS.name}: how public bugs read has changed")
    longer = [name for name, what in changes.items() if what.startswith("longer")]
    print(f"{len(changes)} of {len(names or EVERYWHERE)} traces written"
          + (f"; LONGER: {', '.join(longer)}" if longer else ""))  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
