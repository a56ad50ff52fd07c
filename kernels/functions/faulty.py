"""All faulty functions, those that a certification must catch first, and the search."""

from __future__ import annotations

from poolproof.contract.depth import Depth
from poolproof.kernels.check_run import certify_check
from poolproof.kernels.fault_family import FaultOfFamily
from poolproof.kernels.functions.faulty_storage import STORAGE_FAMILIES
from poolproof.kernels.functions.torch_merge import MERGE_FAMILIES
from poolproof.kernels.kind import Certifiable

__all__ = ["FUNCTION_CANARIES", "FUNCTION_FAMILIES", "FUNCTION_FAULTS", "catch_function"]

FUNCTION_FAMILIES = (*STORAGE_FAMILIES, *MERGE_FAMILIES)

FUNCTION_FAULTS: dict[str, FaultOfFamily] = {
    fault.id: fault for family in FUNCTION_FAMILIES for fault in family.faults()
}

FUNCTION_CANARIES: dict[str, tuple[str, ...]] = {
    "cache-write": ("FQ1", "FT2", "FI4", "FS1", "FN1", "FC1", "FG3"),
    "block-copy": ("BC1", "BS1", "BI1", "BN1"),
    "block-swap": ("SW1", "SN1", "SF1"),
    "merge": ("GB1", "GW1", "GE4", "GL1", "GP2"),
}
"""By kind; a certification that misses one of them says nothing."""


def catch_function(target: Certifiable, checks: tuple[str, ...], seed: int = 0) -> dict[str, int]:
    """Which of the checks see a faulty function in a quick run, and in which example."""
    seen = {}
    for name in checks:
        found = certify_check(target, name, Depth.QUICK, seed, lambda _: None).finding
        if found is not None:
            seen[name] = found.example
    return seen
