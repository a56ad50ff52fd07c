"""Drives a prefill and a decode instance of vLLM with its NIXL connectors, as one engine.

The decode instance is given what the output of the prefill instance says of its blocks. It reads
them, or it registers its own with the prefill instance, which writes into them.

Three things take as long as the run wants, beside the passing on of a request: a read or a write,
each of which takes what it finds in the blocks when it leaves them; a registration; and a lease of
which nobody sends heartbeats any more: when it ends the time of its blocks is up.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from poolproof.contract.engine_plan import EnginePlan, Transfer
from poolproof.targets.installed_vllm import engine_module, part_of
from poolproof.targets.target import EngineLayout, Target
from poolproof.targets.vllm_engine_parts import SchedulerParts
from poolproof.targets.vllm_instances import (
    InstancePair,
    Moves,
    Sizes,
    installed_pair,
    pair_layouts,
)
from poolproof.targets.vllm_nixl_setups import NIXL_NOTES, NIXL_SETUPS, NixlSetup

__all__ = ["NixlPair", "installed_vllm_nixl", "vllm_nixl_layouts"]

_WORKER = "poolproof.targets.vllm_nixl_worker"

_TO_PREFILL = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""What vLLM's example proxies send to the prefill instance."""


class NixlPair(InstancePair):
    """Two instances, and what NIXL has begun between them."""

    def __init__(
        self, setup: NixlSetup, parts: tuple[SchedulerParts, SchedulerParts], sizes: Sizes
    ) -> None:
        make_worker = part_of(engine_module(_WORKER), "nixl_worker_of")
        super().__init__(parts, sizes, make_worker)
        workers = self.prefill.worker, self.decode.worker
        self._agents = tuple(worker.nixl_wrapper for worker in workers)
        for worker, peer in (workers, workers[::-1]):
            worker.nixl_wrapper.peer = peer.nixl_wrapper
            worker.meet(peer)
        self._proxy_is_late = setup.proxy_is_late
        self._loads: list[tuple[Any, Any, tuple[int, ...]]] = []
        self._leases: set[str] = set()
        self._registering: set[str] = set()
        self._not_planned_yet: set[str] = set()

    def _when_asked(self, request_id: int) -> Mapping[str, Any]:
        del request_id
        return _TO_PREFILL

    def _when_prefilled(self, request_id: int, params: Mapping[str, Any]) -> None:
        self._hand_over(request_id, params)

    def _when_passed_on(self, request_id: int) -> None:
        self._not_planned_yet.add(str(request_id))

    def _plan_of_decode(self) -> EnginePlan:
        self._agents[1].heartbeats.clear()
        plan = super()._plan_of_decode()
        self._not_planned_yet.clear()
        return plan

    def _begun(self) -> Moves:
        yield from self._begin_loads()
        for agent in self._agents:
            moves, agent.moves = agent.moves, []
            yield from (self._begin_move(agent, move) for move in moves)
            letters, agent.letters = agent.letters, []
            yield from (self._begin_letter(agent, letter) for letter in letters)
        yield from self._begin_leases()

    def _begin_move(self, agent: Any, move: Any) -> Transfer:
        """What is moved has left its blocks first; then it comes into those of the other side."""
        places = self._new_places(len(move.sources))

        def left(is_done: bool) -> None:
            if is_done:
                self._loads.append((agent, move, places))
            else:
                agent.end(move, is_done=False)

        return self._transfer(left, tuple(map(self.prefill.told, move.sources)), places)

    def _begin_loads(self) -> Moves:
        def begin(agent: Any, move: Any, places: tuple[int, ...]) -> Transfer:
            def came(is_done: bool) -> None:
                agent.end(move, is_done=is_done)

            blocks = tuple(map(self.decode.told, move.targets))
            return self._transfer(came, blocks, places, is_load=True)

        loads, self._loads = self._loads, []
        return [begin(*one) for one in loads]

    def _begin_letter(self, agent: Any, letter: Any) -> Transfer:
        """NIXL loses no notification that it has sent."""
        self._registering.add(letter.registers)

        def end(_: bool) -> None:
            self._registering.discard(letter.registers)
            agent.deliver(letter)

        return self._transfer(end)

    def _begin_leases(self) -> Moves:
        """Those that run out: as long as heartbeats come in time a lease does not end."""

        def begin(request_id: str) -> Transfer:
            def end(_: bool) -> None:
                self._leases.discard(request_id)
                self.prefill.worker.end_lease(request_id)

            self._leases.add(request_id)
            return self._transfer(end)

        leases = self.prefill.worker.leases()
        return [begin(one) for one in leases if one not in self._leases and self._runs_out(one)]

    def _runs_out(self, request_id: str) -> bool:
        asked = self._asked.get(int(request_id))
        if asked is not None and "proxy" in asked.at:
            return self._proxy_is_late
        waiting = self._agents[1].heartbeats | self._not_planned_yet | self._registering
        return request_id not in waiting and not self.prefill.worker.heard_of(request_id)


def vllm_nixl_layouts() -> list[EngineLayout]:
    """The set-ups. Raises TargetError where vLLM is not installed, or has other parts."""
    return pair_layouts(NIXL_SETUPS, NixlPair)


def installed_vllm_nixl(name: str, declared: Mapping[str, Any]) -> Target:
    """Both instances. Raises TargetError where vLLM cannot be imported, or for rows."""
    return installed_pair(name, declared, vllm_nixl_layouts(), NIXL_NOTES)
