"""What makes a campaign over a cluster impossible."""

from __future__ import annotations

from poolproof.contract.errors import PoolproofError

__all__ = ["ClusterError"]


class ClusterError(PoolproofError):
    """The cluster cannot be used; the text says why and what to do."""
