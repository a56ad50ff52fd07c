"""All faulty kernels by id, those that every certification has to catch first, and the search."""

from __future__ import annotations

import random
from dataclasses import replace

from poolproof.kernels.checks.catalogue import CHECKS
from poolproof.kernels.declaration import Declaration
from poolproof.kernels.grammar import draw_case
from poolproof.kernels.specimens.indexing_faults import INDEXING_FAULTS
from poolproof.kernels.specimens.mask_faults import MASK_FAULTS
from poolproof.kernels.specimens.softmax_faults import SOFTMAX_FAULTS
from poolproof.kernels.specimens.specimen import Specimen
from poolproof.kernels.specimens.storage_faults import STORAGE_FAULTS
from poolproof.kernels.target import KernelTarget

__all__ = ["CANARIES", "SPECIMENS", "Caught", "catch", "examples_until_caught"]

SPECIMENS: dict[str, Specimen] = {
    specimen.id: specimen
    for specimen in (*SOFTMAX_FAULTS, *INDEXING_FAULTS, *MASK_FAULTS, *STORAGE_FAULTS)
}

CANARIES = ("S1", "S7", "X3", "M1", "M3", "M7", "X9", "C5")
"""One fault of each kind; a certification that misses one of them says nothing."""

Caught = dict[str, int]
"""For each check that was asked, how many examples it took; a check that saw nothing is missing."""


def examples_until_caught(
    target: KernelTarget, check_name: str, seed: int = 0, most: int = 150
) -> int | None:
    """How many examples a check needs to see that something is wrong, None if it never does.

    A kernel that raises is seen as well.
    """
    check, draw = CHECKS[check_name], random.Random(seed)
    # A kernel that reads one entry too far finds the null block there, and not other memory.
    for number in range(1, most + 1):
        case = draw_case(draw.randrange, target.declaration)
        case = replace(case, spare_entries=max(1, case.spare_entries))
        try:
            wrong = check.run(target, case).wrong
        except Exception as error:  # noqa: BLE001 -- the kernel is faulty: whatever it raises is seen
            wrong = repr(error)
        if wrong is not None:
            return number
    return None


def catch(specimen: Specimen, seed: int = 0) -> Caught:
    """Which of its checks see a faulty kernel."""
    target = specimen.make()
    counts = {name: examples_until_caught(target, name, seed) for name in specimen.checks}
    return {name: count for name, count in counts.items() if count is not None}


def strict() -> Declaration:
    """What our own kernels promise: everything."""
    return Declaration(out=True)
