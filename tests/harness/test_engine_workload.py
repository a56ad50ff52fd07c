"""The grammar of the engine level: an engine comes to rest, and what its requests may be."""

from __future__ import annotations

import pytest

from poolproof.harness.choices import SeededChoices
from poolproof.harness.engine_session import EngineSession
from poolproof.harness.engine_workload import EngineWorkload
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
