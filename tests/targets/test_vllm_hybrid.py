"""vLLM's scheduler and worker with recurrent layers: what is found, and what is not accused."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
import textwrap
import types
from pathlib import Path

import pytest

from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import RunStep, Submit
from poolproof.contract.engine_target import engine_capabilities_of
from poolproof.harness.engine_driver import EngineCampaign
from poolproof.harness.engine_facts import required_engine_facts
from poolproof.harness.engine_session import EngineSession
from poolproof.targets.vllm_hybrid import vllm_hybrid_layouts
from poolproof.targets.vllm_hybrid_setups import HYBRID_SETUPS
from poolproof.targets.vllm_hybrid_worker import drafts_decide

pytestmark = pytest.mark.vllm

ONE_DRAFT = "gdn+draft+drop+chunks"
DRIVEN = ("gdn", ONE_DRAFT, "mamba2+drafts")
PADS = "and (scheduled_running_reqs or num_computed_tokens > 0)"
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def layouts():
    setups = tuple(setup for setup in HYBRID_SETUPS if setup.name in DRIVEN)
    return {layout.name: layout for layout in vllm_hybrid_layouts(setups)}


def one_token_beside_another(layout, make=None, num_blocks=7):
    """What comes of it, where the pool has no block left that nobody has used: five commands."""
    engine = (make or layout.make)(num_blocks, False)
    session = EngineSession(engine, layout.profile, num_blocks, layout.block_size)
    commands = (
        Submit(0, TokenChain((2,)), 1, 0),
        Submit(1, TokenChain((1,)), 3, 0),
        RunStep(1, 0, 1),
        Submit(2, TokenChain((1,)), 1, 0),
        RunStep(1, 0, 1),
    )
    return next(filter(None, map(session.step, commands)), None)


def test_a_prompt_of_one_token_starts_from_a_strangers_state(layouts):
    found = one_token_beside_another(layouts[ONE_DRAFT])
    assert found is not None
    assert found.invariant == "DATA"
    assert "starts at position 0" in found.sentence
    assert "left in step" in found.sentence


def test_with_the_condition_mended_it_starts_from_zero(layouts):
    layout = layouts[ONE_DRAFT]

    def mended(num_blocks, enable_caching):
        engine = layout.make(num_blocks, enable_caching)
        schedule = type(engine.scheduler).schedule
        source = textwrap.dedent(inspect.getsource(schedule))
        assert PADS in source
        names = dict(schedule.__globals__)
        code = source.replace(PADS, "and num_computed_tokens > 0")
        exec(compile(code, "mended", "exec"), names)  # noqa: S102 -- vLLM's own method, mended
        engine.scheduler.schedule = types.MethodType(names["schedule"], engine.scheduler)
        return engine

    assert one_token_beside_another(layout, mended) is None


def test_mamba2_keeps_placeholder_drafts_in_the_state(layouts):
    layout = layouts["mamba2+drafts"]
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    found = [run.trace.violation for run in map(campaign.run, range(16)) if run.trace is not None]
    assert any("starts at position 1" in violation.sentence for violation in found)


PLAYED = """
import json, sys
from poolproof.contract.content import TokenChain
from poolproof.contract.engine_commands import RunStep, Submit
from poolproof.harness.engine_session import EngineSession
from poolproof.targets.load import load_target

step = RunStep(1, 0, 0)

def of(token, length):
    return TokenChain((token,) * length)

causes = {
    # B is preempted, and ends on a chunk of two tokens when it comes back.
    "recomputed": (12, [Submit(0, of(1, 7), 3, 0), Submit(1, of(1, 3), 5, 0)] + 6 * [step]),
    # C and D find a block each: two tokens are left of C's prompt, and one of D's, which is padded.
    "behind-a-chunk": (
        19,
        [Submit(0, of(1, 7), 1, 0), Submit(1, of(2, 7), 1, 0)] + 3 * [step]
        + [Submit(2, of(1, 6), 3, 0), Submit(3, of(2, 5), 3, 0)] + 2 * [step],
    ),
}
target = load_target(f"vllm-hybrid[patch={sys.argv[1]}]")
layout = next(each for each in target.layouts if each.name == "mamba2+drafts")
found = {}
for cause, (num_blocks, commands) in causes.items():
    engine = layout.make(num_blocks, True)
    session = EngineSession(engine, layout.profile, num_blocks, layout.block_size)
    violation = next(filter(None, map(session.step, commands)), None)
    found[cause] = violation and f"{violation.invariant}: {violation.sentence}"
print(json.dumps(found))
"""
"""The causes of Mamba2's rows; with a patch, and so in a process of its own."""


def played_with(diff):
    """What each of them comes to."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PLAYED, str(DOCS / diff)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_behind_the_prompt_of_one_token_mamba2_takes_chunks_for_drafts_and_ends_for_chunks():
    found = played_with("findings/upstream/vllm-hybrid-one-token-prompt/fix.diff")
    recomputed, behind = found["recomputed"], found["behind-a-chunk"]
    assert recomputed.startswith("DATA: step 6: request B starts at position 6 ")
    assert recomputed.endswith("wanted that of <1 1 1 1 1 1>, found that of <1 1 1 1 1>")
    assert behind.startswith("DATA: step 5: request D starts at position 5 ")
    assert behind.endswith("wanted that of <2 2 2 2 2>, found that of <2 2 2 2 2 -2 -3>")


def test_with_rows_counted_by_what_they_compute_mamba2_does_neither():
    found = played_with("repairs/decode-rows.diff")
    assert found == {"recomputed": None, "behind-a-chunk": None}


def test_without_drafts_nothing_is_accused_and_everything_shows(layouts):
    layout = layouts["gdn"]
    campaign = EngineCampaign(layout.name, layout.make, layout.profile, layout.block_size)
    results = [campaign.run(number) for number in range(30)]
    assert [run.trace for run in results if run.trace is not None] == []
    seen = set().union(*(run.facts for run in results))
    can = engine_capabilities_of(layout.make(9, True))
    assert set(required_engine_facts(layout.profile, can, layout.block_size)) <= seen


def test_the_running_state_moves_into_the_block_that_a_step_ends_in(layouts):
    engine = layouts["gdn"].make(19, True)
    engine.submit(0, [1, 2, 1, 2], max_new_tokens=4)
    first = engine.plan().parts[0]
    (temporal, window) = engine.states({0: 1})[0]
    assert (temporal.parts, temporal.starts) == (("temporal",), None)
    assert temporal.leaves == window.leaves == ((4, (first.blocks[1][0], 0)),)
    engine.answer({0: [1]}, {})
    second = engine.plan().parts[0]
    (temporal, _) = engine.states({0: 1})[0]
    (copy,) = temporal.before
    assert (copy.source, copy.into) == (first.blocks[1][0], second.blocks[1][1])
    assert temporal.starts == (copy.into, 0)


class Runner:
    """The line of a runner's `execute_model` that says whether a step is speculative."""

    speculative_config = None

    def up_to_0_31(self, scheduler_output):
        drafts = scheduler_output.scheduled_spec_decode_tokens.copy()
        num_tokens = len(drafts)
        use_spec_decode = len(scheduler_output.scheduled_spec_decode_tokens) > 0
        return use_spec_decode, num_tokens

    def since_0_32(self, scheduler_output):
        drafts = scheduler_output.scheduled_spec_decode_tokens.copy()
        num_tokens = len(drafts)
        use_spec_decode = self.speculative_config is not None
        return use_spec_decode, num_tokens

    def without_it(self, scheduler_output):
        return len(scheduler_output.scheduled_spec_decode_tokens)


@pytest.mark.parametrize(
    ("execute_model", "by_drafts"),
    [(Runner.up_to_0_31, True), (Runner.since_0_32, False), (Runner.without_it, False)],
)
def test_what_makes_a_step_speculative_is_read_off_the_runner(execute_model, by_drafts):
    assert drafts_decide(execute_model) is by_drafts
