"""Every workload of a manager: from the command line, in a certification, and what it refuses."""

from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import manager_specimen
from poolproof.certification import exploration as certify_exploration
from poolproof.certification.certificate import StageOutcome
from poolproof.certification.depths import Budget
from poolproof.certification.description import describe
from poolproof.certification.driving import Driving
from poolproof.certification.exploration import Exploring, blocks_to_explore
from poolproof.certification.options import CertifyOptions
from poolproof.certification.progress import SilentProgress
from poolproof.certification.run_kinds import manager_kind
from poolproof.contract.manager_profile import CacheGroup, ManagerProfile
from poolproof.harness.isolation import InProcess, Isolation, Limits
from poolproof.targets.load import load_target

HOSTILE = f"{Path(__file__).with_name('hostile_managers.py')}"
BUDGET = Budget(0, 0, 0, shortest_states=1_000, workload_states=60)
OPTIONS = CertifyOptions(depth="quick", workers=1, in_process=True)


def explored(name, isolation=None, left_out=(), layouts=None, budget=BUDGET):
    with isolation or InProcess(lambda: load_target(name)) as here:
        (outcome,) = here.map(describe, [None])
        driving = Driving(here, outcome.value, OPTIONS, SilentProgress())
        exploring = Exploring(here, outcome.value, driving.collector, SilentProgress(), 0)
        exploring.explore(budget, left_out, layouts)
        return exploring.stages, driving.collector.findings


def test_the_command_says_what_was_reached(poolproof):
    result = poolproof("explore", "impl-nano", "--commands", 2, "--in-process")
    assert result.exit_code == 0
    assert "full, every workload: holds" in result.stdout
    assert "every verb: up to 2 commands" in result.stdout
    assert "2 sequences at once, 3 blocks of 4 tokens" in result.stdout
    assert "commands compared" in result.stdout


@pytest.mark.some(0)
def test_the_command_shows_a_bug_with_its_shortest_trace(poolproof):
    target = f"{HOSTILE}:KeepsStaleKeys"
    result = poolproof("explore", target, "--blocks", 2, "--in-process")
    assert result.exit_code == 1
    assert "every workload: refused" in result.stdout
    assert "no shorter trace fails in this way" in " ".join(result.stdout.split())


def test_an_interruption_says_which_workloads_were_covered(poolproof, monkeypatch):
    explore = Exploring.explore_layouts

    def interrupted(self, kinds, **bounds):
        explore(self, kinds[:1], **bounds)
        raise KeyboardInterrupt

    monkeypatch.setattr(Exploring, "explore_layouts", interrupted)
    result = poolproof("explore", "impl-vllm-v0", "--commands", 1, "--in-process")
    assert result.exit_code == 2
    assert "every verb: up to 1 commands" in result.stdout
    assert "truncated   interrupted" in result.stdout


def test_an_interruption_in_the_states_of_a_pool_says_how_many_passed(poolproof, monkeypatch):
    def interrupted(self, *_):
        self.so_far = "every orbit, 2 blocks: 7 of 28 pass, the rest not tried"
        raise KeyboardInterrupt

    monkeypatch.setattr(certify_exploration.Exploring, "explore_scope", interrupted)
    result = poolproof("explore", "impl", "--blocks", 2, "--in-process")
    assert result.exit_code == 2
    assert "interrupted: every orbit, 2 blocks: 7 of 28 pass" in result.stdout


def test_a_bound_on_states_is_said_to_have_cut_the_search():
    stages, findings = explored("impl-nano")
    assert not findings
    (stage,) = stages
    assert stage.outcome is StageOutcome.HOLDS
    assert "truncated there" in stage.note
    assert stage.steps > stage.runs > BUDGET.workload_states


def test_layouts_that_lost_a_worker_or_are_not_asked_for_are_left_out():
    stages, _ = explored(
        "impl-vllm-v0",
        left_out={manager_kind("full")},
        layouts=[manager_kind("full"), manager_kind("sliding")],
    )
    assert [stage.stage for stage in stages] == ["sliding, every workload"]


@pytest.mark.some(0)
def test_a_worker_that_is_lost_is_a_finding_with_its_commands():
    target = f"{HOSTILE}:Dies"
    isolation = Isolation(lambda: load_target(target), Limits(call_timeout_s=5), workers=1)
    stages, findings = explored(target, isolation)
    assert stages[0].outcome is StageOutcome.REFUSED
    assert "ended the process with exit status 7" in stages[0].note
    # To abort what there is not ends in finish() as well.
    forms = [form for finding in findings for form in finding.each_form]
    assert {form.trace.commands[-1].verb for form in forms} <= {"abort", "finish"}
    assert max(form.num_commands for form in forms) <= 2


@pytest.mark.parametrize(
    ("profile", "blocks"),
    [
        (ManagerProfile(), 3),
        (ManagerProfile(null_block=0), 4),
        (ManagerProfile(groups=(CacheGroup(), CacheGroup("sliding", window=8))), 6),
        (ManagerProfile(watermark_blocks=2, proof_blocks=1), 6),
    ],
)
def test_each_group_has_three_blocks_beside_what_stays_free(profile, blocks):
    assert blocks_to_explore(profile) == blocks
    assert blocks_to_explore(profile, 1) < blocks


@pytest.mark.some(0)
def test_a_finding_with_other_keys_is_compared_with_what_such_prompts_show():
    specimen = manager_specimen("C4")
    stages, findings = explored_specimen(specimen)
    assert stages[0].outcome is StageOutcome.REFUSED
    (finding,) = findings
    assert [command.verb for command in finding.trace.commands] == ["admit", "step", "admit"]
    assert finding.shortest_known.startswith("breadth-first to length 3: none shorter")


def explored_specimen(specimen):
    target = load_target("impl-nano")
    (layout,) = target.layouts
    layout = replace(
        layout, profile=specimen.profile, make=specimen.make, block_size=specimen.block_size
    )
    planted = replace(
        target, name=specimen.id, layouts=(layout,), profile=specimen.profile, make=specimen.make
    )
    budget = replace(BUDGET, workload_states=600)
    return explored(specimen.id, InProcess(lambda: planted), budget=budget)
