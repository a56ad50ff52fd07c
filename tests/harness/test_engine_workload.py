"""The grammar of the engine level: an engine comes to rest, and what its requests may be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from poolproof.contract.engine_plan import EnginePlan, Transfer, plan_from
from poolproof.contract.engine_profile import EngineProfile
from poolproof.harness.choices import SeededChoices
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.engine_workload import EngineWorkload
from poolproof.reference.native_engine import NativePlainEngine
from poolproof.targets.impl_engine import impl_engine_layouts
from poolproof.targets.target import EngineLayout


@pytest.mark.parametrize("layout", impl_engine_layouts(), ids=lambda layout: layout.name)
def test_an_engine_comes_to_rest_however_many_steps_are_in_flight(
    layout: EngineLayout,
) -> None:
    num_blocks = 12 + layout.profile.num_state_blocks
    session = EngineSession(
        layout.make(num_blocks, True), layout.profile, num_blocks, layout.block_size
    )
    workload = EngineWorkload(SeededChoices(3), session.model, session.can)
    for _ in range(60):
        assert session.step(workload.next()) is None
    for _ in range(2_000):
        command = workload.drain()
        if command is None:
            break
        assert session.step(command) is None
    assert session.nobody_holds()


class StoresForEver(NativePlainEngine):
    """With each step a block goes to the only place of its host, whoever is there."""

    num_stores = 0

    def plan(self) -> EnginePlan:  # type: ignore[override]  # of the same meaning
        self.num_stores += 1
        store = Transfer(self.num_stores, is_load=False, waits=False, blocks=(0,), places=(0,))
        return replace(plan_from(super().plan()), transfers=(store,))

    def arrived(self, transfer_id: int, is_done: bool) -> None:
        """Whatever it is, the next one goes there as well."""


def test_an_engine_that_stores_for_ever_is_left_alone_at_last() -> None:
    profile = EngineProfile()
    session = EngineSession(StoresForEver(8, 4, profile=profile), profile, 8, 4)
    workload = EngineWorkload(SeededChoices(3), session.model, session.can)
    num_commands = 0
    while (command := workload.drain()) is not None:
        num_commands += 1
        assert num_commands < 1_000
        session.step(command)
    assert not session.model.transfers
