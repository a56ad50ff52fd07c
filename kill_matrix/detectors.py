"""All columns of the kill matrix, in the order in which they are shown.

A further detector joins by one line in `DETECTORS`.
"""

from __future__ import annotations

from poolproof.kill_matrix.certify_stages import CERTIFY, EXHAUSTIVE
from poolproof.kill_matrix.detector import Detector
from poolproof.kill_matrix.drivers import CAMPAIGN, HYPOTHESIS, INVARIANTS, PLAIN
from poolproof.kill_matrix.models import PROOF, SYMBOLIC
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
