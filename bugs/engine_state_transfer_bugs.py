"""Bugs of engines that keep recurrent states on the host: which state, when, and under which key.

A state stands for one prefix, so half a hit is none: of attention a longer or a shorter part may be
loaded, of a state only the one at the very end. And a state is written over while its request runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from poolproof.bugs.clean_states import SeparateLoadsEngine
from poolproof.bugs.engine_specimen import (
    HYBRID,
    HYBRID_DRAFTS,
    HYBRID_TOLD,
    EngineSection,
)
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.violation import Severity
from poolproof.impl.engine import Engine, EngineStep, LiveRequest
from poolproof.impl.offloading import host_key

__all__ = ["ENGINE_STATE_TRANSFER_BUGS"]

ENGINE_STATE_TRANSFER_BUGS = EngineSection()

ANOTHER, OWN = Severity.WRONG_DATA_OF_ANOTHER, Severity.WRONG_DATA_OF_ONES_OWN
FEW = replace(HYBRID, policy="priority", max_running=2)


def plant(*names: str, places: int = 16, **more: Any) -> Any:
    """A specimen that needs host memory, and a group of states."""
    more.setdefault("is_bug_under", _has_states)
    return ENGINE_STATE_TRANSFER_BUGS.plant(*names, host_places=places, **more)


def _has_states(profile: EngineProfile) -> bool:
    return profile.has_states


def _tells_drafts(profile: EngineProfile) -> bool:
    return profile.has_states and profile.state_moves == "told" and profile.draft_tokens > 0


# Which state a hit on the host brings.


@plant(
    "S181", "what the host has of attention counts as a hit, whatever it has of states",
    thread="LMCache#2845", also=("LMCache#2863", "LMCache#4247"), invariants=("DATA",),
    severity=ANOTHER, profile=HYBRID,
)  # fmt: skip
class AttentionIsEnough(Engine):
    """The request starts from whatever the block of its state held before."""

    def _has_states(self, block_hash: bytes) -> bool:  # noqa: ARG002 - nobody asks
        return True

    def _bring(self, request: LiveRequest, entries: Sequence[tuple[int, int]], after: int) -> None:
        assert self.offloader is not None
        known = [
            (group, entry)
            for group, entry in entries
            if self.offloader.num_found([host_key(group, request.block_hashes[entry])])
        ]
        super()._bring(request, known, after)


@plant(
    "S182", "a prompt that ends with a block is found whole, and its last token is computed again",
    thread="vllm#44599", also=("vllm#51094",), invariants=("DATA",), severity=ANOTHER,
    profile=HYBRID,
)  # fmt: skip
class LoadsTheStateOfTheEnd(Engine):
    """Of attention a block less is taken, and the state is that behind all of it."""

    def _bring(self, request: LiveRequest, entries: Sequence[tuple[int, int]], after: int) -> None:
        assert self.offloader is not None
        blocks, keys = self._on_host(request, entries)
        for place, (group, entry) in enumerate(entries):
            last = request.num_tokens // self.offloader.block_size - 1
            if entry + 1 == last and any(group == state.index for state in self._state_groups):
                behind = host_key(group, request.block_hashes[last])
                if self.offloader.num_found([behind]):
                    keys[place] = behind
        self._loading[self.offloader.load(blocks, keys, after)] = request


# When a state is stored, and under which key.


@plant(
    "S183", "a state is stored with the plan of the step that leaves it",
    thread="vllm#45704", also=("vllm#46278",), invariants=("DATA",), severity=ANOTHER, profile=FEW,
)  # fmt: skip
class StoresStatesTooEarly(Engine):
    """Of attention blocks are stored once they are computed. States are thought to stand still."""

    def _add(self, step: EngineStep, request: LiveRequest, count: int, num_drafts: int) -> None:
        super()._add(step, request, count, num_drafts)
        if self.offloader is not None:
            planned = min(request.num_computed_tokens - num_drafts, request.num_tokens)
            first, end = request.num_offered, planned // self.offloader.block_size
            states = [(g.index, e) for e in range(first, end) for g in self._state_groups]
            self.offloader.store(*self._on_host(request, states))


@plant(
    "S184", "states are found in a copy of the table that only grows",
    thread="vllm#51358", also=("vllm#53084", "LMCache#5004", "1Cat-vLLM#249"),
    invariants=("DATA", "CRASH", "LEAK"), severity=ANOTHER, profile=FEW,
)  # fmt: skip
class StatesOfAnOldTable(Engine):
    """The block of a state that was let go is another's by now, and is stored under its key."""

    def __init__(self, num_blocks: int, block_size: int, **arguments: Any) -> None:
        super().__init__(num_blocks, block_size, **arguments)
        self._known: dict[int, dict[int, list[int]]] = {}

    def _on_host(
        self, request: LiveRequest, entries: Iterable[tuple[int, int]]
    ) -> tuple[list[int], list[bytes]]:
        listed = list(entries)
        known = self._known.setdefault(request.number, {})
        tables = self.manager.get_block_ids(request.request_id)
        for group in self._state_groups:
            mine = known.setdefault(group.index, [])
            mine += tables[group.index][len(mine) :]
        wanted = [(g, e, known.get(g, tables[g])[e]) for g, e in listed]
        held = [(g, e, block) for g, e, block in wanted if block]
        keys = [host_key(g, request.block_hashes[e]) for g, e, _ in held]
        return [block for _, _, block in held], keys


@plant(
    "S185", "where right drafts pass the end of a block, the state from before them is stored",
    thread="sglang#37817", also=("sglang#34780",), invariants=("DATA",), severity=ANOTHER,
    profile=HYBRID_DRAFTS, is_bug_under=_tells_drafts,
)  # fmt: skip
class StoresUnderALongerKey(Engine):
    """The key counts the drafts, and the state does not."""

    def _on_host(
        self, request: LiveRequest, entries: Iterable[tuple[int, int]]
    ) -> tuple[list[int], list[bytes]]:
        blocks, keys = super()._on_host(request, entries)
        for group, places in zip(self._state_groups, request.states.places, strict=True):
            ends = {block: end for end, block in places.items() if end % group.block_size == 0}
            for place, block in enumerate(blocks):
                before = [end for end in places if end < ends.get(block, 0)]
                blocks[place] = places[max(before)] if before else block
        return blocks, keys


# When a state that is loaded may be used.


@plant(
    "S186", "a request goes on when attention is loaded, and its state is still on its way",
    thread="sglang#36743", also=("sglang#36738",), invariants=("DATA",), severity=ANOTHER,
    profile=HYBRID_TOLD,
)  # fmt: skip
class GoesOnBeforeTheState(SeparateLoadsEngine):
    """It starts from what the block held, and what comes later is written over the next state."""

    def _bring(self, request: LiveRequest, entries: Sequence[tuple[int, int]], after: int) -> None:
        super()._bring(request, entries, after)
        *_, state = [number for number, mine in self._loading.items() if mine is request]
        del self._loading[state]


@plant(
    "S187", "a load of states that has failed counts as done, where that of attention was",
    thread="sglang#30986", also=("sglang#30233",), invariants=("DATA",), severity=ANOTHER,
    profile=HYBRID,
)  # fmt: skip
class GoesOnWithoutTheState(SeparateLoadsEngine):
    """The request starts from the state of whoever had the block before."""

    def _has_come(self, ended: list[bool]) -> bool:
        return any(ended)
