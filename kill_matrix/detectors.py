"""All columns of the kill matrix, in the order in which they are shown.

A further detector joins by one line in `DETECTORS`.
"""

from __future__ import annotations

from poolproof.kill_matrix.campaign import CAMPAIGN
from poolproof.kill_matrix.certify_depths import CERTIFY
from poolproof.kill_matrix.detector import Detector
from poolproof.kill_matrix.drivers import HYPOTHESIS, PLAIN
from poolproof.kill_matrix.exhaustive import EXHAUSTIVE
from poolproof.kill_matrix.models import PROOF, SYMBOLIC
from poolproof.kill_matrix.single_invariant import INVARIANTS
from poolproof.kill_matrix.unit import UNIT

__all__ = ["DETECTORS", "INVARIANT_NAMES"]

DETECTORS: dict[str, Detector] = {
    detector.name: detector
    for detector in (
        UNIT,
        HYPOTHESIS,
        PLAIN,
        CAMPAIGN,
        EXHAUSTIVE,
        PROOF,
        SYMBOLIC,
        *CERTIFY,
        *INVARIANTS,
    )
}

INVARIANT_NAMES = tuple(detector.name for detector in INVARIANTS)
"""The columns in which one invariant is checked alone."""
