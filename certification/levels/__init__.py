"""The levels that a certification drives: one object for each, under its name.

A new level is a file here. `certified_level.py` says what it must provide.
"""

from __future__ import annotations

from collections.abc import Mapping

from poolproof.certification.levels.certified_level import CertifiedLevel
from poolproof.certification.levels.engine import CertifiedEngine
from poolproof.certification.levels.index import CertifiedIndex
from poolproof.certification.levels.manager import CertifiedManager
from poolproof.certification.levels.pool import CertifiedPool
from poolproof.certification.levels.queue import CertifiedQueue
from poolproof.contract.level import Level

__all__ = ["LEVELS"]

LEVELS: Mapping[Level, CertifiedLevel] = {
    Level.QUEUE: CertifiedQueue(),
    Level.INDEX: CertifiedIndex(),
    Level.POOL: CertifiedPool(),
    Level.MANAGER: CertifiedManager(),
    Level.ENGINE: CertifiedEngine(),
}
