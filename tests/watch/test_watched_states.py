"""The watch over vLLM's scheduler and worker with recurrent layers: what it finds, and what not."""

from __future__ import annotations

import inspect
import random
from types import SimpleNamespace

import pytest

from poolproof.targets import vllm_watch, vllm_watch_states, vllm_watch_worker
from poolproof.targets.installed_vllm import engine_module
from poolproof.targets.vllm_hybrid import VllmHybridEngine
from poolproof.targets.vllm_hybrid_parts import HybridParts
from poolproof.targets.vllm_hybrid_setups import HYBRID_SETUPS
from poolproof.watch import live_states, watcher
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


def calls_of(*modules):
    """Every function and method of modules that run beside the engine."""
    for module in modules:
        for name, found in vars(module).items():
            if getattr(found, "__module__", None) != module.__name__:
                continue
            if inspect.isfunction(found):
                yield module, name
            elif inspect.isclass(found):
                for method, code in vars(found).items():
                    if inspect.isfunction(code) and not method.startswith("__"):
                        yield found, method


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Nothing is left to be called when pytest ends."""
    monkeypatch.setattr(watcher.atexit, "register", lambda call: None)


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


def test_a_worker_out_of_reach_is_said_and_only_hits_are_judged(served, monkeypatch):
    monkeypatch.setattr(vllm_watch, "listen", lambda listener: False)
    engine = served("gdn+drafts", caching=False, num_blocks=12)
    for number in range(3):
        engine.send(number, [11, 12, 13, 14, 15])
    engine.run()
    assert engine.watch.watcher.status()["left_out"] == [
        "recurrent states behind drafts (the worker is out of reach): only hits are judged"
    ]
    assert engine.found == []


def wrong_key(engine):
    """Two prompts are served; then the key of the first one's state finds that of the second."""
    first = list(range(11, 20))
    engine.send(0, first)
    engine.run()
    pool = engine.engine.scheduler.kv_cache_manager.block_pool
    group_of = engine_module("vllm.v1.core.kv_cache_utils").get_group_id
    before = {block.block_id for block in pool.blocks if block.block_hash is not None}
    engine.send(1, [7] * 9, most=1)
    engine.run()
    (other,) = [
        block
        for block in pool.blocks
        if block.block_hash is not None
        and block.block_id not in before
        and group_of(block.block_hash) == 1
    ]
    find = pool.get_cached_block
    pool.get_cached_block = lambda key, groups: (
        find(key, groups) and ([other] if list(groups) == [1] else find(key, groups))
    )
    engine.send(2, first)
    engine.step()
    return other.block_id


@pytest.mark.parametrize("name", ["gdn", "gdn+async", "mamba2", "gdn+drafts"])
@pytest.mark.parametrize("is_reached", [True, False])
def test_a_key_that_names_another_prefixs_state_is_found(served, monkeypatch, name, is_reached):
    if not is_reached:
        monkeypatch.setattr(vllm_watch, "listen", lambda listener: False)
    engine = served(name)
    block = wrong_key(engine)
    ((invariant, sentence),) = engine.found
    assert invariant == "DATA"
    assert f"starts at position 8 (group 1, block {block}" in sentence
    assert "from the state after 8 tokens that request r-" in sentence
    assert sentence.endswith("; it is not that of its own prefix")


def test_quarantine_takes_the_key_of_a_wrong_state_away(served):
    engine = served("gdn", mode="quarantine")
    block = wrong_key(engine)
    pool = engine.engine.scheduler.kv_cache_manager.block_pool
    assert pool.blocks[block].block_hash is None
    assert engine.engine.unfinished() == []


def busy_minute(parts, folder=None):
    """Every plan, what the worker did with states and what users were given, and the watch."""
    engine = VllmHybridEngine(parts, 16, enable_caching=True)
    watch = None
    if folder is not None:
        watch = vllm_watch.attach(engine.scheduler, WatchSettings("log", folder, budget=9.0))
    choose, given, number = random.Random(3), [], 0
    for step in range(45):
        if len(engine.scheduler.requests) < 4 and step < 32:
            tokens = [choose.randrange(1, 3) for _ in range(choose.randint(2, 14))]
            engine.submit(number, tokens, max_new_tokens=choose.randint(1, 9))
            number += 1
        plan = engine.plan()
        if not plan.parts:
            engine._in_flight.popleft()
            continue
        tokens = {part.request_id: [choose.randrange(1, 3)] for part in plan.parts}
        states = engine.states(dict.fromkeys(tokens, 1))
        drafts = {request_id: [1] * parts.setup.draft_tokens for request_id in tokens}
        given.append((plan, states, engine.answer(tokens, drafts)))
    return given, watch


@pytest.fixture(scope="module")
def alone(parts):
    return {name: busy_minute(parts(name))[0] for name in ("gdn", "gdn+drafts")}


@pytest.mark.parametrize("name", ["gdn", "gdn+drafts"])
def test_the_engine_does_what_it_does_alone(parts, alone, tmp_path, name):
    given, watch = busy_minute(parts(name), tmp_path)
    watch.watcher.end()
    assert given == alone[name]
    assert (watch.watcher.is_on, watch.watcher._state) == (False, "ended")
    assert watch.watcher.counts.checked_reads > 50
    assert not watch.watcher.violations
    assert watch.watcher.status()["groups"][1]["kind"] == "state"


# The taps are what stands between the engine and the watch: their failing would be the engine's.
NOT_GUARDED = {
    "_around_update", "_around_preprocess", "_around_metadata", "_put", "_guarded", "_listening",
}  # fmt: skip
CALLS = [
    (owner, name)
    for owner, name in calls_of(vllm_watch_worker, vllm_watch_states, live_states)
    if name not in NOT_GUARDED
]


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0].__name__}.{call[1]}")
def test_an_exception_in_any_call_changes_nothing(parts, alone, tmp_path, monkeypatch, call):
    owner, name = call
    original, number = getattr(owner, name), [0]

    def fail(*arguments, **named):
        number[0] += 1
        if number[0] > 3:
            raise ZeroDivisionError(name)
        return original(*arguments, **named)

    is_static = isinstance(inspect.getattr_static(owner, name), staticmethod)
    monkeypatch.setattr(owner, name, staticmethod(fail) if is_static else fail)
    given, watch = busy_minute(parts("gdn+drafts"), tmp_path)
    assert given == alone["gdn+drafts"]
    if watch is not None:
        watch.watcher.end()


def test_the_last_watch_gives_the_workers_calls_back(served):
    for listener in list(vllm_watch_worker._LISTENERS):
        vllm_watch_worker.stop_listening(listener)  # of other tests
    runner = engine_module("vllm.v1.worker.gpu_model_runner").GPUModelRunner
    before = runner._update_states
    one, other = served("gdn"), served("gdn")
    assert runner._update_states is not before
    for watched in (one, other):
        assert runner._update_states is not before
        watched.watch.watcher.switch_off(ZeroDivisionError("of the watch"))
    assert runner._update_states is before


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mamba_cache_mode": "all"}, "cache mode all"),
        ({"num_prefill_checkpoint_blocks": 1}, "checkpoints inside a prompt's chunk"),
    ],
)
def test_what_cannot_be_told_of_states_is_left_out_and_named(fields, why):
    class MambaSpec(SimpleNamespace):
        pass

    spec = MambaSpec(block_size=4, mamba_cache_mode="align", num_speculative_blocks=0)
    vars(spec).update(fields)
    config = SimpleNamespace(kv_cache_groups=[SimpleNamespace(kv_cache_spec=spec)])
    groups, left_out = [None], ["group 0 (MambaSpec)"]
    assert vllm_watch_states.add_recurrent_groups(config, groups, [{}], left_out) is None
    assert (groups, left_out) == ([None], [f"group 0 (MambaSpec, {why})"])
