"""The plainest correct engine: first come, first served, nothing shared, nobody preempted.

A request gets blocks for all that it will ever have before it begins, and gives them back when it
has ended and no step in flight names it any more. A recurrent state stands in the block of its
last position, and is written over; since nobody can write it back, drafts are not tried then. It is
there to follow a trace when the trace's own engine cannot be asked, and to be read: every method of
the contract in a few lines.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from poolproof.contract.content import Image, TokenChain
from poolproof.contract.engine_commands import STOP_TOKEN
from poolproof.contract.engine_profile import EngineProfile

__all__ = ["NativePlainEngine"]


@dataclass(slots=True)
class _Request:
    number: int
    tokens: list[int]
    limit: int
    adapter: tuple[str, str] | None
    images: tuple[Image, ...]
    num_computed: int = 0
    is_in_flight: bool = False
    tables: list[list[int]] = field(default_factory=list)
    drafts: list[int] = field(default_factory=list)
    has_ended: bool = False


class NativePlainEngine:
    """An engine of `num_blocks` blocks under the limits of a profile."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 4,
        *,
        enable_caching: bool = True,
        profile: EngineProfile | None = None,
    ) -> None:
        del enable_caching  # nothing is ever shared
        self.profile = profile or EngineProfile()
        self._sizes = [group.block_size or block_size for group in self.profile.groups]
        self._tells_states = self.profile.has_states and self.profile.state_moves == "told"
        self._free = [block for block in range(num_blocks) if block != self.profile.null_block]
        self._waiting: deque[_Request] = deque()
        self._running: list[_Request] = []
        self._in_flight: deque[list[tuple[_Request, int, bool]]] = deque()
        self._encoded: list[str] = []

    def submit(
        self,
        request_id: int,
        tokens: list[int],
        *,
        max_new_tokens: int,
        priority: int = 0,
        extra_keys: Any = None,
    ) -> None:
        """A request waits for its turn."""
        del priority  # all wait in one line, and share nothing
        limit = len(tokens) + max_new_tokens
        chain = TokenChain.from_extra_keys(tokens, extra_keys)
        self._waiting.append(_Request(request_id, list(tokens), limit, chain.lora, chain.images))

    def cancel(self, request_id: int) -> None:
        """A request ends; its blocks stay while a step in flight names them."""
        for request in [*self._waiting, *self._running]:
            if request.number == request_id:
                request.has_ended = True
        self._let_go()

    def plan(self) -> dict[str, Any]:
        """Admit who fits; then as many tokens of each as the limits allow, in order."""
        self._admit()
        left, encodes = self.profile.max_batch_tokens, list[Image]()
        parts, step = [], []
        for request in self._running:
            # One step at a time for each: what it samples decides what comes next.
            if request.has_ended or request.is_in_flight or not left:
                continue
            line = len(request.tokens) + len(request.drafts)
            count = min(left, line - request.num_computed)
            samples = request.num_computed + count == line
            if not samples:
                request.drafts = []
                count = min(count, len(request.tokens) - request.num_computed)
                samples = request.num_computed + count == len(request.tokens)
            fits = self._until_image(request, count, encodes)
            if fits < count:
                request.drafts, count, samples = [], fits, False
            if not count:
                continue
            parts.append(
                {
                    "request": request.number,
                    "first": request.num_computed,
                    "count": count,
                    "drafts": len(request.drafts),
                    "blocks": [list(table) for table in request.tables],
                    **({"states": self._states(request, count)} if self._tells_states else {}),
                }
            )
            request.is_in_flight = True
            left -= count
            step.append((request, count - len(request.drafts), samples))
        self._in_flight.append(step)
        plan: dict[str, Any] = {"compute": parts}
        if self.profile.encoder_cache_tokens:
            # What a step encodes is forgotten by the next one.
            plan["forgets"] = self._encoded
            plan["encodes"] = self._encoded = [image.identifier for image in encodes]
        return plan

    def _states(self, request: _Request, count: int) -> list[dict[str, Any]]:
        """Where the states of a request start, and the last one that the step leaves."""
        first, end = request.num_computed, request.num_computed + count
        return [
            {
                "group": group,
                "starts": table[(first - 1) // size] if first else None,
                "leaves": [(end, table[(end - 1) // size])],
            }
            for group, (table, size) in enumerate(zip(request.tables, self._sizes))
            if self.profile.groups[group].is_state
        ]

    def _until_image(self, request: _Request, count: int, encodes: list[Image]) -> int:
        """How many of `count` positions come before an image that this step cannot encode too.

        An image that is computed in two chunks is encoded twice.
        """
        profile = self.profile
        if not profile.encoder_cache_tokens:
            return count
        limits = (profile.encoder_cache_tokens, profile.max_encoder_tokens)
        most = min(filter(None, limits))
        first = request.num_computed
        for image in request.images:
            if image.offset + image.length <= first or image.offset >= first + count:
                continue
            if any(known.identifier == image.identifier for known in encodes):
                continue
            if sum(known.length for known in encodes) + image.length > most:
                return max(0, image.offset - first)
            encodes.append(image)
        return count

    def answer(
        self, tokens: dict[int, list[int]], drafts: dict[int, list[int]], /
    ) -> list[tuple[int, list[int], bool]]:
        """Give users what was sampled, up to the stop token and the limit."""
        outputs = []
        for request, num_known, samples in self._in_flight.popleft():
            request.is_in_flight = False
            request.num_computed += num_known
            if not samples or request.has_ended:
                continue
            got = tokens[request.number]
            request.num_computed += len(got) - 1  # the drafts that were right
            due = got[: request.limit - len(request.tokens)]
            due = due[: due.index(STOP_TOKEN) + 1] if STOP_TOKEN in due else due
            request.tokens += due
            request.has_ended = due[-1] == STOP_TOKEN or len(request.tokens) == request.limit
            request.drafts = [] if self.profile.has_states else drafts.get(request.number, [])
            outputs.append((request.number, list(due), request.has_ended))
        self._let_go()
        return outputs

    def num_free(self) -> int:
        """How many blocks nobody holds."""
        return len(self._free)

    def unfinished(self) -> list[int]:
        """The requests that have not ended, or whose blocks are still named."""
        return [request.number for request in [*self._waiting, *self._running]]

    def _admit(self) -> None:
        ahead = self.profile.draft_tokens + self.profile.spare_tokens
        while self._waiting and len(self._running) < self.profile.max_running:
            request = self._waiting[0]
            adapters = {r.adapter for r in (*self._running, request)} - {None}
            if 0 < self.profile.max_adapters < len(adapters):
                return
            counts = [-(-(request.limit + ahead) // size) for size in self._sizes]
            if sum(counts) > len(self._free):
                return
            self._running.append(self._waiting.popleft())
            for count in counts:
                request.tables.append(self._free[:count])
                del self._free[:count]

    def _let_go(self) -> None:
        for request in [r for r in self._running if r.has_ended and not r.is_in_flight]:
            self._running.remove(request)
            for table in request.tables:
                self._free += table
        self._waiting = deque(r for r in self._waiting if not r.has_ended)
