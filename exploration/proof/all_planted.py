"""All planted bugs, which a run of the proof must catch."""

from __future__ import annotations

from poolproof.exploration.proof.planted import Planted
from poolproof.exploration.proof.planted_in_content import CONTENT_BUGS
from poolproof.exploration.proof.planted_in_pool import POOL_BUGS
from poolproof.exploration.proof.planted_in_queue import QUEUE_BUGS

__all__ = ["PLANTED"]

PLANTED: tuple[Planted, ...] = (*POOL_BUGS, *QUEUE_BUGS, *CONTENT_BUGS)
