"""Without any one of the checks a bug is missed, or caught later: none is there for nothing.

Each check is switched off by itself and the recorded first runs of the specimens that its invariant
names are run again, in sessions that go on as far as the reference can follow. `COVERED` lists the
checks without which every bug known here is still caught by the same command, and why they stay.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from poolproof.bugs.catalogue import MANAGER_SPECIMENS, SPECIMENS
from poolproof.contract.trace import read_trace
from poolproof.contract.violation import ViolationError
from poolproof.harness import (
    every_invariant,
    manager_admissions,
    manager_cache,
    manager_calls,
    manager_endings,
    manager_growth,
    manager_memory,
    manager_session,
    manager_tables,
    pool_judges,
    pool_session,
    queue_session,
    single_invariant,
)
from poolproof.harness.event_mirror import EventMirror
from poolproof.harness.replay import replay
from poolproof.invariants import (
    catalogue,
    free_iff_unheld,
    index_answers,
    misuse,
    ownership,
)

EVERYWHERE = {**SPECIMENS, **MANAGER_SPECIMENS}
RECORD = json.loads(Path(__file__).with_name("first_checks.json").read_text("utf-8"))
OFF = "switched off"
TWO_READS = "two reads of the unchanged"


def says_nothing(*_arguments, **_options):
    """Stands for a check that finds nothing."""


def by_finding(module, name):
    """A check that ends in a predicate: what it finds does not count."""

    def switch_off(patch):
        judge = getattr(module, name)

        def judged(*given, **named):
            found = judge(*given, **named)
            return found and replace(found, invariant=OFF)

        patch.setattr(module, name, judged)

    return switch_off


def by_part(owner, name, instead=says_nothing):
    """A check that is a function which may answer None: it does."""
    return lambda patch: patch.setattr(owner, name, instead)


def predicate_off(invariant):
    """The predicate over states of an invariant, for pools and for queues."""
    return lambda patch: patch.setitem(catalogue.STATE_INVARIANTS, invariant, says_nothing)


CHECKS = {
    **{
        (invariant, predicate.__name__): predicate_off(invariant)
        for invariant, predicate in catalogue.STATE_INVARIANTS.items()
    },
    ("I1", "own counts"): by_part(free_iff_unheld, "_own_counts_disagree"),
    ("OWN", "reference counts"): by_part(ownership, "_reference_counts"),
    ("OWN", "walk without repeats"): by_part(ownership, "_walk_without_repeats"),
    ("OWN", "counter"): by_part(ownership, "_counter"),
    ("OWN", "host counter"): by_part(manager_session, "host_counter_matches"),
    ("IDX", "lookups of a state"): by_part(index_answers, "_lookups"),
    ("IDX", "hashes of a state"): by_part(index_answers, "_hashes"),
    ("IDX", "answer of lookup"): by_part(pool_judges.LookupJudge, "judge_lookup"),
    ("I2", "blocks handed out"): by_part(pool_judges, "hands_out_free_blocks"),
    ("ORD", "head handed out"): by_part(pool_judges, "allocated_from_head"),
    ("ORD", "answer of pop"): by_part(queue_session, "popped_from_head"),
    ("ADM", "refused what fits"): by_finding(pool_judges, "refuses_only_what_does_not_fit"),
    ("ADM", "accepted too much"): by_finding(pool_judges, "allocates_only_what_fits"),
    ("ATOM", "changed by refusal"): by_finding(pool_session, "unchanged_by_refusal"),
    ("ATOM", "changed by refusal, managers"): by_finding(manager_session, "unchanged_by_refusal"),
    ("MISUSE", "changed by misuse"): by_finding(pool_session, "unchanged_by_misuse"),
    ("MISUSE", "did not raise"): by_finding(misuse, "_did_not_raise"),
    ("MISUSE", "did not ignore"): by_finding(misuse, "_did_not_ignore"),
    ("MISUSE", "raised another type"): by_finding(misuse, "_raised_wrong_type"),
    ("EVT", "mirror"): by_part(EventMirror, "differs_from"),
    ("LEAK", "all free at the end"): by_part(pool_session, "all_free_at_end"),
    ("I2", "new blocks were held"): by_finding(manager_tables, "new_entries_were_free"),
    ("I2", "table changed"): by_finding(manager_tables, "table_stays"),
    ("I2", "swapped in where held"): by_finding(manager_endings, "new_entries_were_free"),
    ("IDX", "hit without key"): by_finding(manager_tables, "hit_carries_key"),
    ("IDX", "too many cached"): by_finding(manager_admissions, "reports_no_more_than_indexed"),
    ("I4", "too few cached"): by_finding(manager_admissions, "reports_all_that_is_cached"),
    ("I4", "is_cached"): by_finding(manager_cache, "computed_block_is_cached"),
    ("IDX", "is_cached"): by_finding(manager_cache, "cached_block_is_computed"),
    ("ADM", "table too short"): by_finding(manager_tables, "covers_its_tokens"),
    ("ADM", "table too long"): by_finding(manager_tables, "holds_no_more_than_needed"),
    ("ORD", "new blocks from the head"): by_finding(manager_tables, "entries_from_head"),
    ("ADM", "admission put off"): by_finding(manager_admissions, "put_off_only_if_full"),
    ("ADM", "growth put off"): by_finding(manager_growth, "put_off_only_if_full"),
    ("ADM", "swap put off"): by_finding(manager_endings, "put_off_only_if_full"),
    ("ADM", "never"): by_finding(manager_admissions, "never_only_if_too_large"),
    ("ADM", "waits for ever"): by_finding(manager_admissions, "waits_only_if_it_can_fit"),
    ("ADM", "watermark"): by_finding(manager_admissions, "keeps_watermark"),
    ("DATA", "reads"): by_part(manager_memory.ManagerMemory, "read"),
    ("DATA", "hits"): by_part(manager_memory.ManagerMemory, "judge_hit"),
    ("DATA", "copies"): by_finding(manager_memory, "copies_what_was_written"),
    ("CRASH", "calls, pools"): by_finding(pool_judges, "crash"),
    ("CRASH", "calls, managers"): by_finding(manager_calls, "crash"),
    ("CRASH", "calls, queues"): by_finding(queue_session, "crash"),
}

COVERED = {
    ("I4", "cached_free_blocks_revivable"): "IDX and I1 see the same; it comes before IDX to say "
    "that nobody evicted what cannot be hit",
    ("I1", "own counts"): "a count that is not the number of owners is OWN's; this half needs no "
    "ledger, and is what a reader checks by eye",
    ("OWN", "walk without repeats"): "a repeat makes the walk longer than the counter; it comes "
    "first to say which block will be handed out twice",
    ("IDX", "answer of lookup"): "all known keys are looked up after every command in pools of up "
    "to 64 blocks; in larger ones the answer is all that there is",
    ("LEAK", "all free at the end"): "the counter at the end is the counter after each command; "
    "where managers are checked at one command in many, the end is the first to see it",
    ("DATA", "hits"): "a hit on another prefix's block is no hit in the index either; this names "
    "whose KV would be read, and needs no index",
    ("DATA", "copies"): "the copy is read, by the same command, at the latest when its block is "
    "computed on; this names the order that was wrong",
}


def report(_invariants, violation):
    """In place of the one of all invariants: passes over what is switched off."""
    if violation is not None and violation.invariant != OFF:
        raise ViolationError(violation)


@pytest.fixture
def patch(monkeypatch):
    """Sessions that go on after what is switched off, as those of one invariant do."""
    monkeypatch.setattr(every_invariant.EveryInvariant, "report", report)
    following = single_invariant.SinglePoolSession.pool_class
    monkeypatch.setattr(pool_session.PoolSession, "pool_class", following)
    model = single_invariant.SingleManagerSession.model_class
    monkeypatch.setattr(manager_session.ManagerSession, "model_class", model)
    return monkeypatch


def outcome(golden, name, row):
    """Which command showed the bug in a recorded run, or None."""
    try:
        again = replay(read_trace(golden.found_path(name, row["seed"])), EVERYWHERE[name].make)
    except (AssertionError, LookupError, TypeError, ValueError):
        return None  # the reference was led where it cannot go
    if again.violation is None or again.violation.invariant == OFF:
        return None
    return None if TWO_READS in again.violation.sentence else len(again.applied)


def missed_or_late(golden, invariant):
    """A specimen that the invariant names first and that is missed now, or caught later."""
    for name, rows in RECORD.items():
        for row in rows:
            if row["invariant"] == invariant:
                commands = outcome(golden, name, row)
                if commands is None or commands > row["commands"]:
                    return name
    return None


@pytest.mark.some(13)
@pytest.mark.parametrize("check", CHECKS, ids=" - ".join)
def test_without_the_check_some_bug_is_missed_or_caught_later(check, golden, patch):
    CHECKS[check](patch)
    missed = missed_or_late(golden, check[0])
    assert (missed is None) == (check in COVERED), missed
