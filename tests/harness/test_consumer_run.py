"""Consumers of KV events: the clean one holds, each planted mistake is seen, oddities are not."""

from __future__ import annotations

import pytest

from poolproof.bugs.consumer_bugs import CONSUMER_BUGS, CONSUMER_ODDITIES
from poolproof.contract.consumer_target import ConsumerProfile, consumer_profile_of
from poolproof.contract.target import TargetError
from poolproof.harness.consumer_run import SITUATIONS, ConsumerStep, check_consumer, play
from poolproof.impl.event_index import EventIndex


def checked(cls, **options):
    return check_consumer(cls, consumer_profile_of(cls), **options)


def test_the_clean_index_holds_and_everything_has_occurred():
    verdict = checked(EventIndex, num_runs=60)
    assert (verdict.holds, verdict.violation, verdict.never) == (True, None, ())
    assert (verdict.num_runs, verdict.num_steps) == (60, 2400)


@pytest.mark.parametrize("bug", CONSUMER_BUGS, ids=lambda bug: bug.consumer.__name__)
def test_each_planted_mistake_is_seen_and_made_small(bug):
    verdict = checked(bug.consumer)
    assert verdict.kind in bug.kinds, verdict.violation
    assert 1 <= len(verdict.steps) <= 6, verdict.steps


@pytest.mark.parametrize("odd", CONSUMER_ODDITIES, ids=lambda odd: odd.__name__)
def test_a_right_consumer_that_looks_wrong_is_not_accused(odd):
    verdict = checked(odd, num_runs=60)
    assert verdict.violation is None, verdict.steps
    assert verdict.holds


def test_the_same_seed_gives_the_same_finding():
    bug = CONSUMER_BUGS[0].consumer
    assert checked(bug, seed=3) == checked(bug, seed=3)


def test_too_few_runs_are_no_pass():
    verdict = checked(EventIndex, num_runs=1, num_steps=3)
    assert not verdict.holds
    assert set(verdict.never) <= set(SITUATIONS)


STEPS = [ConsumerStep("serve", 0, 0, 3), ConsumerStep("evict", 0, 0, 0)]


def broken(**methods):
    return type("Broken", (EventIndex,), methods)


def raising(*_arguments, **_named):
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("cls", "kind", "words"),
    [
        (broken(apply=raising), "crash", "apply() raised RuntimeError for batch 0 of engine a: no"),
        (broken(lookup=raising), "crash", "raised RuntimeError: no"),
        (broken(__init__=raising), "crash", "cannot be built with block_size=2: no"),
        (broken(apply=lambda *_: "all"), "answer", "apply() answered 'all'"),
        (broken(lookup=lambda *_, **__: [1]), "answer", "lookup() answered [1]"),
        (broken(lookup=lambda *_, **__: {"a": "x"}), "answer", "a number of blocks for each"),
        (broken(lookup=lambda *_, **__: {"z": 1}), "answer", "lookup() names engine 'z'"),
    ],
)
def test_what_is_raised_and_answers_that_are_none_are_findings(cls, kind, words):
    found, sentence, _, _ = play(cls, ConsumerProfile(), STEPS)
    assert found == kind
    assert words in sentence


def test_nothing_is_judged_that_nobody_could_know():
    """The eviction is lost, and no later batch has shown the gap."""
    lost = [STEPS[0], ConsumerStep("lose", 0, 1), STEPS[1]]
    assert play(EventIndex, ConsumerProfile(), lost)[0] is None


def test_a_class_that_is_no_consumer_says_what_it_lacks():
    with pytest.raises(TargetError, match=r"Nothing lacks apply\(\), lookup\(\)"):
        consumer_profile_of(type("Nothing", (), {}))
    for profile in ({"medium": "GPU"}, {"media": "GPU"}, {"media": ["TAPE"]}, 3):
        with pytest.raises(TargetError, match="media"):
            consumer_profile_of(broken(profile=profile))
