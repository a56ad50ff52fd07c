"""How many planted faults `certify --power` refuses in each system, beside its own tests.

Systems that cannot be run here keep the row that they have.
docs/power.md is made of what is recorded, with the explanations of power_survivors.toml.

vLLM's wheel has no tests; POOLPROOF_VLLM_TESTS names a folder with `tests/` of its source archive.

With --results FOLDER each verdict is kept there, and an interrupted run goes on from it.

Usage: python benchmarks/power.py [SYSTEM ...] [--mutants N|all] [--workers N] [--results FOLDER]
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

from record import add_destination, write_record

ROOT = Path(__file__).resolve().parent.parent
KNOWN = Path(__file__).with_name("power_known.toml")
PYTEST = f"{sys.executable} -m pytest -x -q -p no:cacheprovider"


@dataclass(frozen=True)
class System:
    """One row: a target, what has to be installed or set for it, and its own tests.

    `also` judges what the target lets pass; the own tests run on `own_mutants`. With `of_size` the
    mutants are those that are right in small. Of `layouts` alone there are runs; of all, where none
    are named.
    """

    name: str
    title: str
    target: str
    mutants: str
    modules: str = ""
    also: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    variable: str = ""
    own_tests: str = ""
    own_shown: str = ""
    own_mutants: str = "all"
    depth: str = "quick"
    of_size: bool = False
    layouts: tuple[str, ...] = ()


_VLLM_TESTS = "tests/v1/core/test_prefix_caching.py tests/v1/core/test_kv_cache_utils.py"
# What is left out: tests of HiSparse, which need a GPU; tests with a fixture of its conftest.py,
# which imports more than is installed; and tests that fetch a model's configuration.
_NOT_HERE = (
    "hisparse",
    "test_mla_with_incompatible_swa_uses_one_full_allocation_group",
    "test_no_warning_when_draft_group_is_identified",
    "test_non_mtp_eagle_hybrid_still_warns",
    "test_qwen3_5_mtp_draft_group_annotated_on_hybrid_path",
    "test_unidentifiable_draft_with_mamba_warns",
    "test_unidentifiable_draft_without_mamba_does_not_warn",
    "test_auto_fit_max_model_len",
    "test_auto_fit_max_model_len_not_triggered",
    "test_auto_fit_max_model_len_reserves_null_block",
    "test_auto_fit_max_model_len_respects_num_gpu_blocks_override",
    "test_auto_fit_max_model_len_with_hybrid",
    "test_check_enough_kv_cache_memory_reserves_null_block",
    "test_check_enough_kv_cache_memory_respects_num_gpu_blocks_override",
    "test_dcp_replicated_kpool_tail_keeps_block_interior_layout",
    "test_dcp_target_allocates_replicated_draft_independently",
    "test_estimate_max_model_len",
    "test_full_attention_merge_preserves_replicated_cache_geometry",
    "test_get_kv_cache_config_one_worker",
    "test_get_kv_cache_configs_attention_free",
    "test_get_kv_cache_configs_multiple_workers",
    "test_get_kv_cache_configs_pp_sharding",
    "test_get_max_concurrency_for_kv_cache_config",
    "test_hma_not_disabled_when_kv_events_enabled",
    "test_kv_cache_reserves_null_block_for_max_model_len",
    "test_kv_tp_replicas",
    "test_multi_run_layer_compact_strides_place_hoisted_heads",
    "test_packed_groups_glm5_like_hybrid",
    "test_sparse_mla_preserves_physical_row_addressing",
    "test_uniform_type_spec_block_table_width_matches_layer_spec",
)
_IN_VLLM = f"{PYTEST} --noconftest -W default -k 'not ({' or '.join(_NOT_HERE)})' {_VLLM_TESTS}"
_MANAGER_MODULES = ",".join(
    f"vllm.v1.core.{name}"
    for name in ("kv_cache_manager", "kv_cache_coordinator", "single_type_kv_cache_manager")
)
SYSTEMS = (
    System(
        "impl",
        "Poolproof's own pool (`impl`)",
        "impl",
        "all",
        # Under each value of each row, and without events beside each value of `duplicates`: only
        # then several blocks are cached at once.
        also=(
            "impl[events=none]",
            "impl[eviction=lifo,duplicates=first,events=per-hash]",
            "impl[eviction=unhashed-first,null_block=0,null_in_lists=ignored,recache=forbidden]",
            "impl[duplicates=last,misuse=ignores,null_block=0]",
            "impl[events=per-hash,misuse=ignores]",
            "impl[duplicates=first,events=none,keys=block,misuse=ignores]",
            "impl[duplicates=last,events=none,keys=block,misuse=undefined]",
            "impl[null_block=0,null_in_lists=ignored,misuse=undefined]",
        ),
        own_tests=f"{PYTEST} tests/impl",
        own_shown="pytest tests/impl",
        own_mutants="40",
    ),
    System(
        "impl-sizes",
        "The same pool, mutants that are right in small",
        "impl",
        "100",
        also=("impl[events=none]",),
        depth="standard",
        of_size=True,
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
        "320",
        modules="vllm.v1.core.block_pool,vllm.v1.core.kv_cache_utils",
        needs=("vllm",),
        variable="POOLPROOF_VLLM_TESTS",
        own_tests=shlex.join(["sh", "-c", f'cd "$POOLPROOF_VLLM_TESTS" && exec {_IN_VLLM}']),
        own_shown=f"pytest {_VLLM_TESTS}",
        own_mutants="24",
    ),
    System(
        "impl-engine",
        "Poolproof's own scheduler and its host memory (`impl-engine`), in four set-ups",
        "impl-engine",
        "60",
        layouts=("priority", "chunks", "async+drafts", "async+offloading"),
    ),
    System(
        "vllm-manager",
        "vLLM's `KVCacheManager`, its coordinators and its managers of one type",
        "vllm-manager",
        "220",
        modules=_MANAGER_MODULES,
        needs=("vllm",),
    ),
)


def why_not_here(system: System) -> str:
    """What a system needs that is not here, or nothing."""
    if system.variable and system.variable not in os.environ:
        return f"{system.variable} is not set"
    missing = [name for name in system.needs if importlib.util.find_spec(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def measured(system: System, asked: argparse.Namespace) -> dict[str, Any] | str:
    """The report of a power run as JSON, or why there is none."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "power.json"
        command = [str(Path(sys.executable).with_name("poolproof")), "certify", system.target]
        command += ["--power", "--mutants", asked.mutants or system.mutants, "--json", str(path)]
        command += ["--depth", system.depth] + ["--power-sizes"] * system.of_size
        # Where other work keeps the processors busy, ten seconds pass without a command.
        command += ["--known", str(KNOWN), "--call-timeout", "60"]
        command += [word for name in system.layouts for word in ("--layout", name)]
        command += ["--power-modules", system.modules] if system.modules else []
        command += [word for name in system.also for word in ("--power-also", name)]
        if system.own_tests:
            command += ["--own-tests", system.own_tests, "--own-mutants", system.own_mutants]
        if asked.results is not None:
            kept = asked.results.resolve() / f"{system.name}.jsonl"
            command += ["--power-results", str(kept)]
        command += ["--workers", str(asked.workers)] if asked.workers else []
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
    # A stage says at its end which depth it belongs to; cheaper ones come first.
    depths = Counter(mutant["stage"].split(", ")[-1] for mutant in mutants if mutant["refused"])
    passed = [
        mutant
        for mutant in mutants
        if not mutant["refused"] or mutant.get("own_tests_refuse") is False
    ]
    if with_own:
        report["own_tests"]["command"] = system.own_shown
        report["num_refused_by_neither"] = sum(
            not mutant["refused"] and mutant.get("own_tests_refuse") is False for mutant in mutants
        )
    return {
        "title": system.title,
        **report,
        "refused_at": dict(sorted(depths.items())),
        "operators": {name: [refused[name], by_operator[name]] for name in sorted(by_operator)},
        "passed": passed,
    }


def main() -> int:
    """Measure what can be measured here; the status is 1 when a run could not be carried out."""
    parser = argparse.ArgumentParser(description="Measure the power of the checks.")
    parser.add_argument("systems", nargs="*", choices=[[], *(s.name for s in SYSTEMS)])
    parser.add_argument("--mutants", help="instead of each system's own number")
    parser.add_argument("--workers", type=int, help="processes; one a processor by default")
    parser.add_argument("--results", type=Path, help="keep verdicts in this folder")
    add_destination(parser, "power")
    asked = parser.parse_args()
    failed = False
    for system in SYSTEMS:
        if asked.systems and system.name not in asked.systems:
            continue
        reason = why_not_here(system)
        if reason:
            print(f"{system.name}: left as it is: {reason}")
            continue
        found = measured(system, asked)
        if isinstance(found, str):
            print(f"{system.name}: not measured:\n{found}", file=sys.stderr)
            failed = True
            continue
        # Read again: the same may have been started in another environment meanwhile.
        path = asked.json
        rows = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        rows[system.name] = row_of(system, found)
        failed |= not write_record(path, rows, indent=1)
        print(f"{system.name}: {found['num_refused']} of {found['num_mutants']} refused")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
