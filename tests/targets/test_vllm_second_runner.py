"""vLLM's second runner with recurrent layers: what is found, and what is not accused."""

from __future__ import annotations

import copy
import importlib
import inspect
import textwrap
import types

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import RunStep, Submit
from poolproof.contract.engine_target import engine_capabilities_of
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_session import EngineSession
from poolproof.targets.vllm_hybrid import vllm_hybrid_layouts
from poolproof.targets.vllm_hybrid_setups import HYBRID_SETUPS
from poolproof.targets.vllm_second_worker import second_runner_chosen

pytestmark = pytest.mark.vllm

SECOND = tuple(setup for setup in HYBRID_SETUPS if setup.is_second_runner)
PADS = "and (scheduled_running_reqs or num_computed_tokens > 0)"
RUNS, FEW_RUNS = 30, 8


@pytest.fixture(scope="module")
def layouts():
    return {layout.name: layout for layout in vllm_hybrid_layouts(SECOND)}


def mended(make):
    """Engines whose scheduler pads no prompt of one token that nothing was computed of."""

    def make_mended(num_blocks, enable_caching):
        engine = make(num_blocks, enable_caching)
        schedule = type(engine.scheduler).schedule
        source = textwrap.dedent(inspect.getsource(schedule))
        assert PADS in source
        names = dict(schedule.__globals__)
        code = source.replace(PADS, "and num_computed_tokens > 0")
        exec(compile(code, "mended", "exec"), names)  # noqa: S102 -- vLLM's own method, mended
        engine.scheduler.schedule = types.MethodType(names["schedule"], engine.scheduler)
        return engine

    return make_mended


def found(layout, make, runs=RUNS):
    """What is found first in so many runs, or None; and what happened in them."""
    campaign = EngineCampaign(layout.name, make, layout.profile, layout.block_size)
    facts = set()
    for number in range(runs):
        run = campaign.run(number)
        facts |= run.facts
        if run.trace is not None:
            return run.trace.violation, facts
    return None, facts


def test_set_ups_tell_which_runner_they_have(layouts):
    engine = layouts["v2-gdn"].make(9, True)
    assert type(engine.worker.runner).__mro__[1].__module__ == "vllm.v1.worker.gpu.model_runner"
    assert engine.scheduler.use_v2_model_runner
    assert {setup.name.startswith("v2-") for setup in SECOND} == {True}


def test_without_drafts_nothing_is_accused_and_everything_shows(layouts):
    layout = layouts["v2-gdn"]
    violation, seen = found(layout, layout.make)
    assert violation is None
    can = engine_capabilities_of(layout.make(9, True))
    assert set(required_engine_facts(layout.profile, can, layout.block_size)) <= seen


@pytest.mark.parametrize("name", ["v2-gdn+async", "v2-mamba2"])
def test_without_drafts_nothing_is_accused(layouts, name):
    violation, _ = found(layouts[name], layouts[name].make, runs=FEW_RUNS)
    assert violation is None


@pytest.mark.parametrize("name", ["v2-gdn+drafts", "v2-mamba2+drafts", "v2-gdn+async+drafts"])
def test_a_prompt_of_one_token_keeps_placeholder_drafts_in_its_state(layouts, name):
    violation, _ = found(layouts[name], layouts[name].make)
    assert violation is not None
    assert violation.invariant == "DATA"
    assert "starts at position 1" in violation.sentence


@pytest.mark.parametrize("name", ["v2-gdn+drafts", "v2-mamba2+async+drafts"])
def test_with_the_condition_mended_drafts_are_right(layouts, name):
    violation, _ = found(layouts[name], mended(layouts[name].make), runs=FEW_RUNS)
    assert violation is None


def test_a_decode_without_drafts_behind_a_short_prompt_starts_too_early(layouts):
    layout = layouts["v2-mamba2+drafts+cut"]
    violation, _ = found(layout, mended(layout.make))
    assert violation is not None
    assert violation.invariant == "DATA"


def test_vllm_refuses_what_its_second_runner_cannot_do(layouts):
    scheduler = layouts["v2-gdn+drafts"].make(9, True).scheduler
    config = copy.copy(scheduler.vllm_config)
    config.speculative_config = copy.copy(config.speculative_config)
    with second_runner_chosen():
        config._validate_v2_model_runner()
        object.__setattr__(config.speculative_config, "method", "medusa")
        with pytest.raises(ValueError, match="does not yet support: speculative method 'medusa'"):
            config._validate_v2_model_runner()


def one_token_beside_another(layout, num_blocks=19):
    session = EngineSession(
        layout.make(num_blocks, False), layout.profile, num_blocks, layout.block_size
    )
    commands = (
        Submit(0, TokenChain((1,)), 4, 0),
        RunStep(1, 0, 1),
        Submit(1, TokenChain((1,)), 4, 0),
        RunStep(1, 0, 1),
        RunStep(1, 0, 1),
    )
    return next(filter(None, map(session.step, commands)), None)


def test_five_commands_show_the_placeholders(layouts):
    violation = one_token_beside_another(layouts["v2-gdn+drafts"])
    assert violation is not None
    assert "wanted that of <1>" in violation.sentence


def second_module(name):
    return importlib.import_module(f"vllm.v1.worker.gpu.{name}")


def no_reset_of_accepted(patch):
    """A slot keeps the accepted count of whoever had it before."""
    states = second_module("model_states.mamba_hybrid").MambaHybridModelState
    known = states.add_request

    def add_request(self, index, new):
        before = int(self.num_accepted_tokens_gpu[index])
        known(self, index, new)
        self.num_accepted_tokens_gpu[index].fill_(before)

    patch.setattr(states, "add_request", add_request)


def seeded_at_zero(patch):
    """A request that hits begins in its first column, wherever its prefix ends."""
    states = second_module("model_states.mamba_hybrid").MambaHybridModelState
    known = states.add_request

    def add_request(self, index, new):
        known(self, index, new)
        if self._align_mode:
            self._mamba_state_idx_gpu[index].fill_(min(0, new.num_computed_tokens - 1))

    patch.setattr(states, "add_request", add_request)


def nothing_moves(patch):
    """The running state stays where it was, past the end of a block."""
    states = importlib.import_module("vllm.v1.worker.mamba_utils").MambaSpecDecodeGPUContext
    patch.setattr(states, "run_fused_precopy", lambda *_given, **_named: None)


def nothing_is_saved(patch):
    """The state at the end of a block that drafts have passed is not copied into it."""
    states = importlib.import_module("vllm.v1.worker.mamba_utils").MambaSpecDecodeGPUContext
    patch.setattr(states, "run_fused_postprocess_align", lambda *_given, **_named: None)


def blocks_are_written_anew(patch):
    """Blocks that are added to a table stand at its beginning."""
    tables = second_module("block_table").BlockTables
    known = tables.append_block_ids

    def append(self, index, blocks, overwrite):
        del overwrite
        known(self, index, blocks, overwrite=True)

    patch.setattr(tables, "append_block_ids", append)


def rejected_count_as_computed(patch):
    """Refused drafts stay counted."""
    runner = second_module("model_runner")
    known = runner.post_update

    def post_update(*given):
        given[6].zero_()
        known(*given)

    patch.setattr(runner, "post_update", post_update)


FAULTS = (
    (no_reset_of_accepted, "v2-mamba2+drafts"),
    (seeded_at_zero, "v2-gdn"),
    (nothing_moves, "v2-gdn"),
    (nothing_is_saved, "v2-gdn+drafts"),
    (blocks_are_written_anew, "v2-mamba2"),
    (rejected_count_as_computed, "v2-gdn+async+drafts"),
)


@pytest.mark.parametrize(("plant", "name"), FAULTS, ids=[plant.__name__ for plant, _ in FAULTS])
def test_a_planted_fault_is_found(layouts, monkeypatch, plant, name):
    plant(monkeypatch)
    violation, _ = found(layouts[name], mended(layouts[name].make))
    assert violation is not None
    assert violation.invariant in {"DATA", "PLAN"}


def test_states_may_be_moved_twice(layouts, monkeypatch):
    """Whoever copies the running state a second time does nothing new."""
    context = importlib.import_module("vllm.v1.worker.mamba_utils").MambaSpecDecodeGPUContext
    known = context.run_fused_precopy

    def twice(self, *given):
        known(self, *given)
        known(self, *given)

    monkeypatch.setattr(context, "run_fused_precopy", twice)
    violation, _ = found(layouts["v2-gdn"], layouts["v2-gdn"].make, runs=FEW_RUNS)
    assert violation is None


def test_slots_may_be_handed_out_in_another_order(layouts, monkeypatch):
    """Which slot a request has decides nothing."""
    states = second_module("states").RequestState
    known = states.remove_request

    def remove_request(self, name):
        slot = known(self, name)
        self.free_indices.reverse()
        return slot

    monkeypatch.setattr(states, "remove_request", remove_request)
    violation, _ = found(layouts["v2-mamba2"], layouts["v2-mamba2"].make, runs=FEW_RUNS)
    assert violation is None
