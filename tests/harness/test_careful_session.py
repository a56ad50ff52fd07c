"""Answers are taken on trust by nobody: lists, ids, and a second instance."""

from __future__ import annotations

import weakref

import pytest

from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.commands import Allocate, Free
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.harness.minimise import execute_in_process, minimise
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.replay import replay, start_session

RULES = Profile.from_mapping({"misuse": "undefined"})


class Pool(CleanPool):
    profile = {"misuse": "undefined"}  # noqa: RUF012 -- as targets write it


def make(cls):
    return lambda num_blocks, caching: cls(num_blocks, enable_caching=caching)


def careful_trace(*commands, num_blocks=4):
    return Trace("it", "pool", RULES, num_blocks, True, commands, options={"careful": True})


def first_careful_failure(cls):
    campaign = PoolCampaign("it", make(cls), RULES)
    for number in range(1, 200, 16):
        trace = campaign.run(number).trace
        if trace is not None:
            return trace
    return None


def test_one_run_in_sixteen_is_careful():
    campaign = PoolCampaign("it", make(Pool), RULES)
    careful = [n for n in range(64) if campaign.setup(n).options.get("careful")]
    assert careful == [1, 17, 33, 49]


class ClearsLater(Pool):
    def allocate(self, n):
        if hasattr(self, "last"):
            self.last.clear()
        self.last = super().allocate(n)
        return self.last


def test_a_list_that_was_answered_must_not_change():
    found = replay(careful_trace(Allocate(2), Allocate(1)), make(ClearsLater)).violation
    assert found.invariant == "I2"
    assert "the list that allocate(2) answered was [0, 1] and is [] now" in found.sentence
    assert found.command_index == 1


def test_what_the_caller_does_to_a_list_changes_nothing():
    class KeepsItsAnswer(Pool):
        def allocate(self, n):
            self.held = super().allocate(n)
            return self.held

        def num_free(self):
            return self.num_blocks - len(getattr(self, "held", ()))

    trace = Trace("it", "pool", RULES, 4, True, (Allocate(2),))
    assert replay(trace, make(KeepsItsAnswer)).violation.invariant in {"I1", "OWN"}


class Truths(Pool):
    def allocate(self, n):
        return [bool(block) if block < 2 else block for block in super().allocate(n)]


def test_a_truth_value_is_no_id():
    found = replay(careful_trace(Allocate(1)), make(Truths)).violation
    assert found.sentence == "allocate(1) answered False, a truth value; an id is an integer"


class EqualsAll:
    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return True

    def __index__(self):
        return self.number

    __hash__ = None


@pytest.mark.parametrize("method", ["allocate", "lookup"])
def test_what_equals_everything_is_found_out(method):
    class Pool2(Pool):
        def allocate(self, n):
            blocks = super().allocate(n)
            return [EqualsAll(block) for block in blocks] if method == "allocate" else blocks

        def lookup(self, block_hash):
            found = super().lookup(block_hash)
            return EqualsAll(found) if found is not None and method == "lookup" else found

    trace = first_careful_failure(Pool2)
    assert "equals everything" in trace.violation.sentence


class Shared(Pool):
    counts: list[int] = []  # noqa: RUF012 -- that is the mistake

    def __init__(self, num_blocks, **options):
        super().__init__(num_blocks, **options)
        self.counts[:] = [0] * num_blocks
        self.ref_counts = self.counts


def test_two_instances_share_nothing():
    trace = first_careful_failure(Shared)
    assert trace.violation.sentence.startswith("two instances share state: ")


class Alone(Pool):
    """Cannot be built a second time beside a living one."""

    alive: weakref.ref | None = None

    def __init__(self, num_blocks, **options):
        if Alone.alive is not None and Alone.alive() is not None:
            raise RuntimeError("one at a time")
        super().__init__(num_blocks, **options)
        Alone.alive = weakref.ref(self)


def test_that_no_second_instance_can_be_built_is_said_and_no_finding():
    run = PoolCampaign("it", make(Alone), RULES).run(1)
    assert run.trace is None
    (remark,) = run.remarks
    assert remark == (
        "building a second instance beside the first raised RuntimeError: what two of them share "
        "was not looked at"
    )


class Tramples(Shared):
    """The second instance raises, and has changed the first by then."""

    built = 0

    def __init__(self, num_blocks, **options):
        super().__init__(num_blocks, **options)
        Tramples.built += 1
        if Tramples.built % 2 == 0:
            self.counts[0] = 7
            raise RuntimeError("one at a time")


def test_an_instance_that_raises_and_changes_the_other_is_found():
    run = PoolCampaign("it", make(Tramples), RULES).run(1)
    assert run.trace.violation.sentence.startswith("two instances share state: ")


@pytest.mark.parametrize("cls", [ClearsLater, Truths, Shared])
def test_a_careful_finding_is_minimised_and_replayed_as_careful(cls):
    trace = first_careful_failure(cls)
    minimal = minimise(trace, execute_in_process(make(cls)))
    assert minimal.options["careful"]
    assert len(minimal.commands) <= 3
    assert replay(minimal, make(cls)).violation == minimal.violation


def test_what_needs_no_care_is_minimised_to_an_ordinary_trace():
    class Leaky(Pool):
        def free(self, block_ids):
            pass

    commands = (Allocate(1), Free((0,)))
    minimal = minimise(careful_trace(*commands), execute_in_process(make(Leaky)))
    assert "careful" not in minimal.options


class Int16:
    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number

    def __eq__(self, other):
        return self.number == other

    def __hash__(self):
        return hash(self.number)


def test_integers_of_another_library_are_taken_and_said():
    class Pool2(Pool):
        def allocate(self, n):
            return [Int16(block) for block in super().allocate(n)]

        def touch(self, block_ids):
            super().touch([int(block) for block in block_ids])

    session = start_session(careful_trace(), make(Pool2))
    assert session.first_look() is None
    assert session.step(Allocate(2)) is None
    (remark,) = session.remarks
    assert remark.endswith("Int16: taken as the integers that operator.index makes of them")
