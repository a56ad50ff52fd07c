"""The actor of one worker: passes bytes to the process next to it and back, without reading them.

There are two processes because the target runs in forked children, and a process with Ray in it
must not fork (`companion.py`). When it ends, the campaign's work on its machine ends.
"""

from __future__ import annotations

from poolproof.fuzz.cluster.companion import Companion

__all__ = ["Relay"]


class Relay:
    """An actor's class. An exception means that the worker is of no further use."""

    def __init__(self, setup: tuple[int, bytes]) -> None:
        self._host = Companion("poolproof.fuzz.cluster.host")
        self._host.line.send(setup)

    def begin(self) -> bytes:
        """What the host says once it has loaded the target: Hosting or Refusal, pickled."""
        answer: bytes = self._host.line.recv_bytes()
        return answer

    def work(self, order: bytes) -> bytes:
        """Have an order carried out: HostAnswer, pickled."""
        self._host.line.send_bytes(order)
        answer: bytes = self._host.line.recv_bytes()
        return answer
