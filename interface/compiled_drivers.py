"""Whether the drivers of this installation are compiled (POOLPROOF_COMPILE in setup.py)."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec

__all__ = ["drivers_are_compiled"]


def drivers_are_compiled() -> bool:
    """Whether steps go through compiled code; the sources are the same."""
    spec = find_spec("poolproof.harness.pool_check")
    return spec is not None and str(spec.origin).endswith(tuple(EXTENSION_SUFFIXES))
