"""The watch over vLLM's scheduler and worker with recurrent layers: what it finds, and what not."""

from __future__ import annotations

import pytest

from poolproof.targets import vllm_watch
from poolproof.targets.vllm_hybrid import VllmHybridEngine
from poolproof.targets.vllm_hybrid_parts import HybridParts
from poolproof.targets.vllm_hybrid_setups import HYBRID_SETUPS
from poolproof.watch.settings import WatchSettings

pytestmark = pytest.mark.vllm

SETUPS = {setup.name: setup for setup in HYBRID_SETUPS}
BLOCKS = 24


@pytest.fixture(scope="module")
def parts():
    made = {}

    def of(name):
        if name not in made:
            made[name] = HybridParts(SETUPS[name])
        return made[name]

    return of


class Served:
    """An engine under watch, step by step; `accepted` of the drafts are right."""

    def __init__(self, parts, folder, *, caching=True, mode="log", num_blocks=BLOCKS):
        self.engine = VllmHybridEngine(parts, num_blocks, enable_caching=caching)
        self.drafts = parts.setup.draft_tokens
        settings = WatchSettings(mode, folder, budget=9.0)
        self.watch = vllm_watch.attach(self.engine.scheduler, settings)

    def send(self, number, tokens, most=4):
        self.engine.submit(number, tokens, max_new_tokens=most)

    def step(self, accepted=0):
        plan = self.engine.plan()
        if not plan.parts:
            self.engine._in_flight.popleft()
            return {}
        tokens, drafts = {}, {}
        for part in plan.parts:
            request = self.engine.scheduler.requests[str(part.request_id)]
            if part.first + part.count - part.num_drafts < request.num_tokens:
                continue  # A chunk of a prompt samples nothing.
            right = min(accepted, part.num_drafts)
            offered = request.spec_token_ids if part.num_drafts else []
            tokens[part.request_id] = [*list(offered or [3] * right)[:right], 3]
            drafts[part.request_id] = [3] * self.drafts
        told = {part.request_id: len(tokens.get(part.request_id, ())) for part in plan.parts}
        states = self.engine.states(told)
        self.engine.answer(tokens, drafts)
        return states

    def run(self, accepted=0):
        while self.engine.unfinished():
            self.step(accepted)

    @property
    def found(self):
        return [(one.invariant, one.sentence) for one in self.watch.watcher.findings]


@pytest.fixture
def served(parts, tmp_path):
    made = []

    def of(name, **options):
        made.append(Served(parts(name), tmp_path, **options))
        return made[-1]

    yield of
    for one in made:
        one.watch.watcher.end()


def test_a_prompt_of_one_token_beside_drafts_starts_from_a_strangers_state(served):
    engine = served("gdn+drafts", caching=False, num_blocks=12)
    for number in range(3):
        engine.send(number, [11, 12, 13, 14, 15])
    engine.run()
    engine.send(7, [7, 8, 9] * 2, most=9)
    engine.step()
    engine.step()
    engine.send(8, [5])
    engine.step()
    assert "starts at position 0" in engine.found[0][1]
