"""Behind a failing trace legal commands follow, until somebody reads wrong data."""

from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS
from poolproof.bugs.clean_manager import CleanManager, CleanSwappingManager
from poolproof.bugs.manager_oddities import EarlyPublisher
from poolproof.contract.commands import Reset
from poolproof.contract.manager_commands import Step
from poolproof.contract.manager_profile import ManagerProfile
from poolproof.contract.trace import read_trace
from poolproof.harness.continuations import continued, shortened
from poolproof.harness.failure_kind import failure_kind
from poolproof.harness.manager_driver import ManagerCampaign
from poolproof.harness.replay import replay, start_session
from poolproof.harness.single_invariant import ONLY_READS

BUGS = Path(__file__).parents[1] / "bugs"


def unheard(_):
    pass


def golden(specimen_id, folder="golden", suffix=""):
    return read_trace(BUGS / folder / f"{specimen_id}{suffix}.jsonl")


def behind(trace, make, most_work=8_000, announce=unheard, begin=unheard):
    return continued(trace, make, most_work, begin=begin, announce=announce)


def made(specimen_id):
    return MANAGER_SPECIMENS[specimen_id].make


@pytest.mark.parametrize("specimen_id", ["A10", "D12", "B21", "F-swap", "H1", "C9", "B16"])
def test_a_planted_bug_leads_to_a_read_whose_trace_is_made_short(specimen_id):
    trace, make = golden(specimen_id), made(specimen_id)
    done = behind(trace, make)
    assert done.trace.violation.invariant == "DATA"
    short = shortened(trace, done.trace, make, unheard)
    assert len(short.commands) <= len(done.trace.commands)
    assert replay(short, make).violation == short.violation
    options = {key: value for key, value in short.options.items() if key != "only_reads"}
    first = replay(replace(short, options=options), make)
    wanted = failure_kind(trace.violation, trace.commands)
    assert failure_kind(first.violation, first.applied) == wanted


@pytest.mark.parametrize("specimen_id", ["A23", "L25", "A3-manager"])
def test_a_run_as_it_was_found_is_continued_with_forks_swaps_and_drafts(specimen_id):
    found = golden(specimen_id, "found", ".0")
    done = behind(found, made(specimen_id))
    assert (done.trace is None) == (specimen_id == "A3-manager")


def test_the_same_trace_is_always_continued_in_the_same_way():
    first, again = (behind(golden("H1"), made("H1")) for _ in range(2))
    assert first == again
    assert first.num_continuations > 1


def test_all_commands_are_heard_and_none_resets_the_cache():
    heard, begun = [], []
    done = behind(golden("J9-manager"), made("J9-manager"), announce=heard.append,
                  begin=begun.append)  # fmt: skip
    assert done.trace is None
    assert begun == list(range(1, done.num_continuations + 1))
    resets = sum(isinstance(command, Reset) for command in heard)
    assert resets < len(heard) / 4
    assert resets <= done.num_continuations + 4  # those of the trace itself


def test_the_budget_ends_the_search():
    done = behind(golden("L27"), made("L27"), most_work=50)
    assert done.trace is None
    assert 0 < done.num_continuations < 20


def test_a_trace_that_fails_otherwise_in_a_larger_pool_is_not_continued_there():
    trace = golden("L27")
    right = MANAGER_SPECIMENS["L27"].profile

    def make(num_blocks, caching):
        cls = MANAGER_SPECIMENS["L27"].cls if num_blocks == trace.num_blocks else CleanManager
        return cls(num_blocks, 4, enable_caching=caching, rules=right)

    sizes = behind(trace, make).num_continuations
    assert sizes < behind(trace, made("L27")).num_continuations


class BreaksOff(MANAGER_SPECIMENS["L27"].cls):
    """Raises at the third admission."""

    def admit(self, seq_id, *arguments, **named):
        if seq_id > 1:
            raise ZeroDivisionError
        return super().admit(seq_id, *arguments, **named)


def test_what_breaks_off_counts_as_more_work():
    def make(num_blocks, caching):
        return BreaksOff(
            num_blocks, 4, enable_caching=caching, rules=MANAGER_SPECIMENS["L27"].profile
        )

    done = behind(golden("L27"), make)
    assert done.trace is None
    assert not done.unusable
    assert done.num_continuations < behind(golden("L27"), made("L27")).num_continuations


def test_what_cannot_be_read_within_the_trace_ends_the_search():
    class NamesNoBlock(CleanManager):
        def block_table(self, seq_id, *group):
            return [*super().block_table(seq_id, *group)[:-1], 99]

    profile = MANAGER_SPECIMENS["L27"].profile

    def make(num_blocks, caching):
        return NamesNoBlock(num_blocks, 4, enable_caching=caching, rules=profile)

    done = behind(golden("L27"), make)
    assert done.num_continuations == 1
    assert "99, which is no block" in done.unusable


def test_a_target_that_cannot_be_built_again_ends_without_a_verdict():
    def make(num_blocks, caching):
        raise ZeroDivisionError

    done = behind(golden("L27"), make, most_work=20)
    assert (done.trace, done.num_commands) == (None, 0)


def test_a_guess_of_when_keys_are_published_is_not_shown_to_be_a_fault():
    profile = ManagerProfile.from_mapping({**EarlyPublisher.profile, "publishes": "never"})

    def make(num_blocks, caching):
        return EarlyPublisher(num_blocks, 4, enable_caching=caching)

    campaign = ManagerCampaign("early", make, profile, 4)
    traces = (campaign.run(number).trace for number in range(20))
    trace = next(t for t in traces if t is not None and t.violation.invariant == "IDX")
    assert behind(trace, make).trace is not None
    guessed = replace(trace, profile=replace(profile, assumed=("publishes",)))
    assert behind(guessed, make).trace is None


def test_a_session_whose_model_lost_track_defines_nothing_more():
    trace = replace(golden("L27"), options={**golden("L27").options, ONLY_READS: True})
    session = start_session(trace, made("L27"))
    assert session.step(trace.commands[0]) is None
    session.memory._groups = None
    assert session.is_defined(Step())
    assert session.step(Step()) is None
    assert not session.is_defined(Step())
    assert session.end() is None


class SharersNotShown(CleanSwappingManager):
    """Shows one reference to each held block."""

    def ref_count(self, block_id):
        return min(super().ref_count(block_id), 1)


def test_sequences_that_are_swapped_out_come_back():
    heard, profile = [], replace(golden("L27").profile, host_blocks=6)
    trace = replace(golden("L27"), profile=profile)

    def make(num_blocks, caching):
        return SharersNotShown(num_blocks, 4, enable_caching=caching, rules=profile)

    assert behind(trace, make, announce=heard.append).trace is None
    assert {"swap_out", "swap_in", "resume", "fork"} <= {command.verb for command in heard}
