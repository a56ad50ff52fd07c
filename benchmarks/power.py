"""How many planted faults `certify --power` refuses in each system, beside its own tests.

Writes benchmarks/results/power.json; systems that cannot be run here keep the row that they have.
docs/power.md is made of it, with the explanations of power_survivors.toml.

vLLM's wheel has no tests; POOLPROOF_VLLM_TESTS names a folder with `tests/` of its source archive.

Usage: python benchmarks/power.py [SYSTEM ...] [--mutants N|all]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from poolproof.contract.trace import write_atomically

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results" / "power.json"
KNOWN = Path(__file__).with_name("power_known.toml")
PYTEST = f"{sys.executable} -m pytest -x -q -p no:cacheprovider"


@dataclass(frozen=True)
class System:
    """One row: a target, what has to be installed or set for it, and its own tests."""

    name: str
    title: str
    target: str
    mutants: str
    modules: str = ""
    needs: tuple[str, ...] = ()
    variable: str = ""
    own_tests: str = ""
    own_shown: str = ""


_VLLM_TESTS = "tests/v1/core/test_prefix_caching.py"
# Its tests of HiSparse need a GPU.
_IN_VLLM = f"{PYTEST} --noconftest -W default -k 'not hisparse' {_VLLM_TESTS}"
SYSTEMS = (
    System(
        "impl",
        "Poolproof's own pool (`impl`)",
        "impl",
        "40",
        own_tests=f"{PYTEST} tests/impl",
        own_shown="pytest tests/impl",
    ),
    System(
        "nano-vllm",
        "nano-vLLM's `BlockManager`",
        "nano-vllm",
        "all",
        needs=("numpy", "xxhash"),
    ),
    System(
        "vllm",
        "vLLM's `block_pool.py` and `kv_cache_utils.py`",
        "vllm",
        "24",
        modules="vllm.v1.core.block_pool,vllm.v1.core.kv_cache_utils",
        needs=("vllm",),
        variable="POOLPROOF_VLLM_TESTS",
        own_tests=shlex.join(["sh", "-c", f'cd "$POOLPROOF_VLLM_TESTS" && exec {_IN_VLLM}']),
        own_shown=f"pytest -k 'not hisparse' {_VLLM_TESTS}",
    ),
)


def why_not_here(system: System) -> str:
    """What a system needs that is not here, or nothing."""
    if system.variable and system.variable not in os.environ:
        return f"{system.variable} is not set"
    missing = [name for name in system.needs if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def measured(system: System, mutants: str | None) -> dict[str, Any] | str:
    """The report of a power run as JSON, or why there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "power.json"
        command = [str(Path(sys.executable).with_name("poolproof")), "certify", system.target]
        command += ["--power", "--mutants", mutants or system.mutants, "--json", str(path)]
        command += ["--known", str(KNOWN)]
        command += ["--power-modules", system.modules] if system.modules else []
        command += ["--own-tests", system.own_tests] if system.own_tests else []
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
        if done.returncode or not path.is_file():
            return done.stdout.strip()[-2000:]
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["power"]
        return found


def row_of(system: System, report: dict[str, Any]) -> dict[str, Any]:
    """What is recorded: counts, and every mutant that somebody lets pass."""
    with_own = "own_tests" in report
    mutants = report.pop("mutants")
    by_operator = Counter(mutant["operator"] for mutant in mutants)
    refused = Counter(mutant["operator"] for mutant in mutants if mutant["refused"])
    passed = [
        mutant
        for mutant in mutants
        if not mutant["refused"] or (with_own and not mutant["own_tests_refuse"])
    ]
    if with_own:
        report["own_tests"]["command"] = system.own_shown
        report["num_refused_by_neither"] = sum(
            not mutant["refused"] and not mutant["own_tests_refuse"] for mutant in mutants
        )
    return {
        "title": system.title,
        **report,
        "operators": {name: [refused[name], by_operator[name]] for name in sorted(by_operator)},
        "passed": passed,
    }


def main() -> int:
    """Measure what can be measured here; the status is 1 when a run could not be carried out."""
    parser = argparse.ArgumentParser(description="Measure the power of the checks.")
    parser.add_argument("systems", nargs="*", choices=[[], *(s.name for s in SYSTEMS)])
    parser.add_argument("--mutants", help="instead of each system's own number")
    asked = parser.parse_args()
    failed = False
    for system in SYSTEMS:
        if asked.systems and system.name not in asked.systems:
            continue
        reason = why_not_here(system)
        if reason:
            print(f"{system.name}: left as it is: {reason}")
            continue
        found = measured(system, asked.mutants)
        if isinstance(found, str):
            print(f"{system.name}: not measured:\n{found}", file=sys.stderr)
            failed = True
            continue
        # Read again: the same may have been started in another environment meanwhile.
        rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
        rows[system.name] = row_of(system, found)
        write_atomically(RESULTS, json.dumps(rows, indent=1) + "\n")
        print(f"{system.name}: {found['num_refused']} of {found['num_mutants']} refused")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
