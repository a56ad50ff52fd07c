"""The exhaustive stages of a certification: what they reach, what they refuse, what they leave."""

from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.certification.certificate import StageOutcome
from poolproof.certification.certify import not_covered, not_run
from poolproof.certification.depths import BUDGETS, Bounds, Budget, Sequences
from poolproof.certification.description import describe
from poolproof.certification.driving import Driving
from poolproof.certification.exploration import Exploring, stage_of
from poolproof.certification.levels.pool import reason_not_explored
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.run_kinds import POOL, QUEUE, manager_kind
from poolproof.contract.profile import Profile
from poolproof.harness.isolation import InProcess, Isolation, Limits
from poolproof.reference.native_pool import NativeDictPool
from poolproof.targets.load import load_target
from poolproof.targets.target import Target

BUDGET = Budget(
    pool_chunks=0,
    chain_chunks=0,
    queue_chunks=0,
    shortest_states=2_000,
    scopes=(Bounds(2, unreduced=True), Bounds(2, wide=True), Bounds(3)),
    sequences=(Sequences(7, 1, 1, 1), Sequences(2)),
    queue_blocks=3,
)
EMPTY = Budget(pool_chunks=0, chain_chunks=0, queue_chunks=0, shortest_states=0)
PAIRS = (
    "28/28 orbits (90 states), every action, calls for two blocks, misuse; 2 hashes, "
    "references up to 2"
)
OPTIONS = CertifyOptions(depth="quick", workers=1, in_process=True)


def about_of(isolation):
    (outcome,) = isolation.map(describe, [None])
    return outcome.value


def explored(isolation, left_out=(), budget=BUDGET):
    with isolation:
        about = about_of(isolation)
        driving = Driving(isolation, about, OPTIONS, SilentProgress())
        exploring = Exploring(isolation, about, driving.collector, SilentProgress(), 0)
        exploring.explore(budget, left_out)
        return exploring.stages, driving.collector.findings


def specimen_target(name):
    specimen = SPECIMENS[name]

    def make(num_blocks, enable_caching):
        return specimen.make(num_blocks, enable_caching)

    return Target(name, specimen.level, "native", specimen.profile, None, "here", make)


@pytest.mark.some(0)
def test_a_good_pool_is_reached_in_every_state_and_the_notes_say_which():
    stages, findings = explored(InProcess(lambda: load_target("impl")))
    assert findings == ()
    assert all(stage.outcome is StageOutcome.HOLDS for stage in stages)
    assert [(stage.level, stage.stage, stage.note) for stage in stages] == [
        ("queue", "every state, 3 blocks",
         "16/16 orders of the queue, each built in two ways, every operation, every link"),
        ("queue", "every sequence, 2 commands",
         "up to 2 commands on 3 blocks; counts up to 3, lists up to 2"),
        ("pool", "every state, 2 blocks",
         "90/90 states, every action; 2 hashes, references up to 2"),
        ("pool", "every orbit, 2 blocks, pairs", PAIRS),
        ("pool", "every orbit, 3 blocks",
         "108/108 orbits (1,026 states), every action; 2 hashes, references up to 2"),
        ("pool", "every sequence, 7 commands",
         "up to 7 commands on 3 blocks; counts up to 1, lists up to 1, 1 hash"),
        ("pool", "every sequence, 2 commands",
         "up to 2 commands on 3 blocks; counts up to 3, lists up to 2, 2 hashes"),
    ]  # fmt: skip
    assert all(stage.steps and stage.runs for stage in stages)


@pytest.mark.some(0)
def test_levels_that_lost_a_worker_are_left_out():
    stages, _ = explored(InProcess(lambda: load_target("impl")), {POOL})
    assert {stage.level for stage in stages} == {"queue"}
    stages, _ = explored(InProcess(lambda: load_target("impl")), {QUEUE})
    assert {stage.level for stage in stages} == {"pool"}


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("name", "stage", "commands"),
    [
        ("D1", "every state, 2 blocks", 3),
        ("A1", "every orbit, 2 blocks, pairs", 3),
        ("E7", "every sequence, 7 commands", 5),
        ("Q3", "every state, 3 blocks", 2),
    ],
)
def test_a_bug_is_found_where_it_first_shows_with_the_fewest_commands(name, stage, commands):
    stages, findings = explored(InProcess(lambda: specimen_target(name)))
    assert stages[-1].outcome is StageOutcome.REFUSED
    assert stages[-1].stage == stage
    assert findings[0].stages == (stage,)
    assert min(finding.num_commands for finding in findings) == commands
    if stage.startswith(("every state", "every orbit")):
        assert stages[-1].note.endswith("stopped at the first that fail")


@pytest.mark.parametrize("depth", BUDGETS)
def test_every_level_builds_a_pool_of_one_block(depth):
    # A pool that refuses to be so small passed when two blocks were the fewest.
    def at_least_two(num_blocks, enable_caching):
        if num_blocks < 2:
            raise ValueError("a pool needs two blocks")
        return NativeDictPool(num_blocks, enable_caching=enable_caching)

    def load():
        return Target("two", "pool", "native", Profile(), None, "here", at_least_two)

    budget = replace(EMPTY, scopes=BUDGETS[depth].scopes[-1:])
    stages, findings = explored(InProcess(load), budget=budget)
    assert [stage.stage for stage in stages] == ["every orbit, 1 block, pairs"]
    assert stages[0].outcome is StageOutcome.REFUSED
    assert "with 1 block " in findings[0].violation.sentence


def test_a_queue_is_explored_by_exhausting_its_sequences_where_that_ends():
    budget = Budget(0, 0, 0, 100, sequences=(Sequences(9),), queue_blocks=2)
    stages, _ = explored(InProcess(lambda: load_target("impl-queue")), budget=budget)
    assert stages[1].note.startswith("any length on 3 blocks")


@pytest.mark.some(0)
def test_the_null_block_comes_on_top():
    for null, blocks in ((0, 4), (5, 6)):
        target = f"impl[null_block={null},null_in_lists=ignored]"
        stages, findings = explored(InProcess(lambda name=target: load_target(name)))
        assert findings == ()
        assert f"on {blocks} blocks" in stages[-1].note
        scopes = [stage for stage in stages if "orbit" in stage.stage]
        assert len(scopes) == (2 if null == 0 else 0)


@pytest.mark.some(0)
def test_a_pool_that_may_drop_has_sequences_only():
    load = lambda: load_target("reference[retention=may-drop]")  # noqa: E731 -- one expression
    # Its states depend on how they came about, so that long sequences are many: seven commands
    # take twenty seconds.
    budget = replace(BUDGET, sequences=(Sequences(4, 1, 1, 1), Sequences(2)))
    stages, _ = explored(InProcess(load), budget=budget)
    assert [stage.stage for stage in stages if stage.level == "pool"] == [
        "every sequence, 4 commands",
        "every sequence, 2 commands",
    ]
    with InProcess(load) as isolation:
        about = about_of(isolation)
    assert "vanish at any time" in reason_not_explored(about, BUDGET.scopes)
    assert ("every state", reason_not_explored(about, BUDGET.scopes)) in not_run(about, OPTIONS)
    assert not any("visited state by state" in text for text in not_covered(about, OPTIONS, ()))


def test_a_certificate_says_up_to_which_size_states_were_visited():
    with InProcess(lambda: load_target("impl")) as isolation:
        about = about_of(isolation)
    (sentence,) = [text for text in not_covered(about, OPTIONS, ()) if "state by state" in text]
    assert sentence.startswith("pools of more than 4 blocks")
    assert stage_of(Bounds(8)) == "every orbit, 8 blocks"


HANGS = '''
from time import sleep
from poolproof.bugs.clean_pool import CleanPool


class Pool(CleanPool):
    """Evicting a second time never comes back."""

    profile = {}
    evictions = 0

    def evict(self, block_ids):
        super().evict(block_ids)
        while EVICT and self.ref_counts[block_ids[0]] == 2:
            sleep(0.01)

    def free(self, block_ids):
        super().free(block_ids)
        while FREE and len(block_ids) == 1:
            sleep(0.01)
'''


def hanging(folder: Path, *, evict: bool, free: bool) -> Isolation:
    (folder / "hangs.py").write_text(HANGS.replace("EVICT", str(evict)).replace("FREE", str(free)))
    # Each attempt to make a trace shorter may hang as well, and costs the limit.
    limits = Limits(call_timeout_s=0.5, memory_mib=300)
    return Isolation(lambda: load_target("hangs.py:Pool"), limits, workers=1)


@pytest.mark.deep
def test_a_worker_that_is_lost_in_a_state_is_a_finding_with_its_commands(folder):
    stages, findings = explored(hanging(folder, evict=True, free=False))
    assert stages[-1].outcome is StageOutcome.REFUSED
    assert stages[-1].stage == "every state, 2 blocks"
    (finding,) = findings
    assert finding.trace.commands[-1].verb == "evict"
    assert "did not return" in finding.violation.sentence


def test_a_worker_that_is_lost_in_a_sequence_is_a_finding_with_its_commands(folder):
    budget = Budget(0, 0, 0, 100, sequences=(Sequences(2),))
    stages, findings = explored(hanging(folder, evict=False, free=True), budget=budget)
    assert stages[-1].outcome is StageOutcome.REFUSED
    assert "a sequence of commands" in stages[-1].note
    (finding,) = findings
    assert [command.verb for command in finding.trace.commands] == ["allocate", "free"]
    assert "did not return" in finding.violation.sentence


def test_layouts_of_a_manager_share_the_states_down_to_a_sixteenth():
    budget = Budget(0, 0, 0, 100, workload_states=1_600)
    assert budget.states_of_layout(1) == 1_600
    assert budget.states_of_layout(10) == 160
    assert budget.states_of_layout(40) == 100
    assert budget.states_of_layout(0) == 1_600


@pytest.mark.parametrize(
    ("num_layouts", "chunks"), [(1, 12), (3, 4), (4, 3), (12, 3), (13, 2), (18, 2), (40, 1)]
)
def test_layouts_of_a_manager_share_the_runs_of_a_dozen(num_layouts, chunks):
    kind = manager_kind("full")
    assert Budget(0, 0, 0, 100, manager_chunks=12).chunks_of_layout(kind, num_layouts) == chunks


@pytest.mark.parametrize(("num_layouts", "share"), [(1, 1), (12, 1), (13, 2), (18, 2), (25, 3)])
def test_machines_of_more_than_a_dozen_layouts_share_their_examples(num_layouts, share):
    assert Budget.machine_share(num_layouts) == share
