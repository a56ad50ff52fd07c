"""Campaigns on engines: what counts as a new state, and that a mistake is found."""

from __future__ import annotations

from typing import Any

from poolproof.bugs.engine_catalogue import ENGINE_SPECIMENS
from poolproof.bugs.engine_specimen import BLOCK_SIZE, EngineSpecimen
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import Submit
from poolproof.contract.engine_plan import EnginePlan, PlannedPart
from poolproof.contract.engine_profile import EngineProfile
from poolproof.contract.level import Level
from poolproof.fuzz.engine_runs import EngineRuns, engine_state
from poolproof.fuzz.messages import WorkerOrder
from poolproof.fuzz.recorded_choices import new_cells
from poolproof.fuzz.settings import CampaignSettings
from poolproof.fuzz.worker import CampaignWorker
from poolproof.harness.isolation import Beacon
from poolproof.reference.engine_model import EngineModel


def model_of(*requests: Submit) -> EngineModel:
    model = EngineModel(8, 4, EngineProfile(steps_in_flight=2))
    for request in requests:
        model.submit(request)
    return model


class Planted:
    """A specimen as a target with one set-up."""

    level, block_size = Level.ENGINE, BLOCK_SIZE

    def __init__(self, found: EngineSpecimen) -> None:
        self.name, self.profile, self.make = found.id, found.profile, found.make

    def layout(self, _name: str) -> Any:
        return self

    def part_at(self, _level: Level) -> Any:
        return self


def submit(number: int, *tokens: int, priority: int = 0) -> Submit:
    return Submit(number, TokenChain(tokens), 4, priority)


def test_tokens_numbers_and_equal_requests_do_not_make_a_state() -> None:
    one = engine_state(model_of(submit(0, 1, 1)))
    assert one == engine_state(model_of(submit(5, 2, 1)))
    assert one == engine_state(model_of(submit(0, 1, 1), submit(1, 1, 2)))


def test_where_tokens_end_in_a_block_and_who_is_urgent_make_a_state() -> None:
    models = [
        model_of(),
        model_of(submit(0, 1)),
        model_of(submit(0, 1, 1, 1)),
        model_of(submit(0, 1, 1, 1, 1)),
        model_of(submit(0, 1, 1, 1, 1, 1)),
        model_of(submit(0, 1, priority=1)),
    ]
    assert len(set(map(engine_state, models))) == len(models)


def test_steps_in_flight_and_preemption_make_a_state() -> None:
    model = model_of(submit(0, 1, 1))
    seen = {engine_state(model)}
    part = PlannedPart(0, 0, 2, 0, ((0,),))
    for plan in (EnginePlan((part,)), EnginePlan(preempted=(0,))):
        model.planned(plan)
        seen.add(engine_state(model))
    assert len(seen) == 3


def test_runs_of_engines_are_drawn_anew() -> None:
    assert not EngineRuns.has_mutations
    found = ENGINE_SPECIMENS["S12"]
    settings = CampaignSettings("S12", Level.ENGINE, 8, layout="planted")
    order = WorkerOrder(settings, "S12", 300, max_seconds=60, begins=True)
    worker = CampaignWorker(Planted(found), order, new_cells())
    report = worker.work(order, Beacon(memoryview(bytearray(64)).cast("Q")))
    assert set(report.strategies) == {"fresh"}
    assert report.failures
