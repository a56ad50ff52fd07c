"""What makes a campaign over a cluster impossible."""

from __future__ import annotations

__all__ = ["ClusterError"]


class ClusterError(Exception):
    """The cluster cannot be used; the text says why and what to do."""
