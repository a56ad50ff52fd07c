"""All checks of the kernel level, in the order of the report."""

from __future__ import annotations

from poolproof.kernels.checks.accesses import ACCESS_CHECKS
from poolproof.kernels.checks.check import Check
from poolproof.kernels.checks.dense import DENSE_CHECKS
from poolproof.kernels.checks.permuted_elements import ELEMENT_CHECKS
from poolproof.kernels.checks.related import RELATION_CHECKS
from poolproof.kernels.checks.serving import MANAGER_CHECKS, SERVING_CHECKS
from poolproof.kernels.checks.split_keys import SPLIT_CHECKS
from poolproof.kernels.checks.storage import STORAGE_CHECKS

__all__ = ["CHECKS"]

CHECKS: dict[str, Check] = {
    check.name: check
    for check in (
        *DENSE_CHECKS,
        *RELATION_CHECKS,
        *SPLIT_CHECKS,
        *ELEMENT_CHECKS,
        *ACCESS_CHECKS,
        *STORAGE_CHECKS,
        *SERVING_CHECKS,
        *MANAGER_CHECKS,
    )
}
