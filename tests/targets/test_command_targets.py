"""Programs as targets: what they show, tapes, several instances, and the queue level."""

import random
import shlex
import sys

import pytest

from poolproof.certification.isolated_trace import load_target_of
from poolproof.contract.commands import Allocate, Cache, Free, Lookup, Touch
from poolproof.contract.profile import Profile
from poolproof.contract.tapes import TapeDivergedError
from poolproof.contract.target import capabilities_of
from poolproof.contract.trace import Trace, write_trace
from poolproof.harness.pool_check import FullCheck
from poolproof.harness.pool_session import PoolSession
from poolproof.harness.queue_driver import QueueCampaign
from poolproof.harness.random_driver import PoolCampaign
from poolproof.harness.replay import replay
from poolproof.harness.tape_driver import TapedCampaign, taped
from poolproof.reference.dict_pool import DictPool
from poolproof.targets.command_messages import command_text
from poolproof.targets.command_process import CommandSession, LiveAnswers
from poolproof.targets.command_target import CommandPool
from poolproof.targets.load import load_target

SERVE = f"cmd:{shlex.quote(sys.executable)} -m poolproof.targets.serve"
KEYS = (b"\x01" * 16, b"\x02" * 16)


@pytest.fixture(scope="module")
def impl():
    return load_target(f"{SERVE} impl")


@pytest.fixture(scope="module")
def quiet():
    """A pool without events, whose every answer is known beforehand."""
    return load_target(f"{SERVE} 'impl[events=none,keys=block]'")


def test_a_program_says_what_it_is(impl):
    assert (impl.level, impl.shape, impl.version) == ("pool", "command", "impl")
    assert impl.profile.events == "per-copy"
    assert capabilities_of(impl.make(4, True)).sees("take_events")


def test_a_program_says_how_long_its_hashes_are():
    target = load_target(f"{SERVE} 'impl[hash_bytes=32,events=none,keys=block]'")
    assert target.profile.hash_bytes == 32
    campaign = PoolCampaign(target.name, target.make, target.profile)
    run = taped(campaign, target.tapes).run(3)
    assert run.trace is None
    assert run.extent.get("bytes of a hash") == (32, 32)


def test_rows_of_the_profile_can_be_set_beside_a_program():
    target = load_target(f"{SERVE} reference[misuse=undefined]")
    assert target.profile.misuse == "undefined"
    assert target.name.endswith("reference[misuse=undefined]")


def test_an_instance_shows_what_the_pool_behind_it_shows(quiet):
    pool = quiet.make(3, True)
    assert pool.allocate(2) == [0, 1]
    pool.cache([0, 1], list(KEYS))
    pool.free([1])
    assert (pool.num_free(), pool.free_order()) == (2, [2, 1])
    assert [pool.ref_count(block) for block in range(3)] == [1, 0, 0]
    assert pool.block_hash(1) == KEYS[1]
    assert pool.free_neighbours(1) == (2, None)
    assert pool.free_neighbours(0) is None
    assert pool.lookup(KEYS[1]) == 1


def test_a_refusal_is_a_value_error_and_changes_nothing(quiet):
    pool = quiet.make(2, True)
    with pytest.raises(ValueError, match="3"):
        pool.allocate(3)
    assert pool.free_order() == [0, 1]


def test_a_hash_that_no_command_has_named_is_asked_for(quiet):
    assert quiet.make(2, True).lookup(KEYS[0]) is None


def test_a_large_pool_is_asked_and_not_shown(quiet):
    pool = quiet.make(1000, True)
    assert pool.allocate(1) == [0]
    assert pool.ref_count(0) == 1
    assert pool.num_free() == len(pool.free_order()) == 999
    assert pool.free_neighbours(1) == (None, 2)
    assert pool.block_hash(0) is None


def asked(num_blocks):
    """A large pool, and the lines that its program is sent from now on."""
    lines = []
    session = CommandSession(
        [sys.executable, "-m", "poolproof.targets.serve", "impl[events=none,keys=block]"],
        heard=lambda way, line: lines.append(line) if way == "sent" else None,
    )
    hello = session.hello()
    session.begin(num_blocks, True)
    lines.clear()
    return CommandPool(hello, num_blocks, LiveAnswers(session), None), lines


def test_what_will_be_read_of_a_large_pool_is_asked_at_once():
    pool, lines = asked(100)
    pool.poolproof_read_ahead([0, 1], [0, 99], [KEYS[0]])
    assert len(lines) == 1
    assert [pool.ref_count(0), pool.ref_count(1), pool.block_hash(1)] == [0, 0, None]
    assert (pool.free_neighbours(99), pool.lookup(KEYS[0])) == ((98, None), None)
    assert len(lines) == 1


def test_what_was_read_ahead_is_read_once_and_only_before_the_next_command():
    pool, lines = asked(100)
    pool.poolproof_read_ahead([0], [], [])
    assert (pool.ref_count(0), pool.ref_count(0)) == (0, 0)
    assert len(lines) == 2
    pool.poolproof_read_ahead([0], [], [])
    pool.allocate(1)
    assert pool.ref_count(0) == 1


def test_a_large_pool_is_checked_in_few_exchanges(quiet):
    pool, lines = asked(1000)
    session = PoolSession(pool, quiet.profile, 1000)
    assert session.step(Allocate(500)) is None
    # 500 blocks with count, hash and links, and as many links at the queue's ends.
    assert len(lines) < 20


def test_all_of_a_large_pool_is_read_in_few_exchanges(quiet):
    pool, lines = asked(1000)
    check = FullCheck(pool, capabilities_of(pool), DictPool(1000, quiet.profile), [*KEYS])
    assert check.passes()
    # 1,000 counts, hashes and links each, 256 in an exchange.
    assert len(lines) < 20


def test_a_large_pool_holds_step_by_step(quiet):
    session = PoolSession(quiet.make(100, True), quiet.profile, 100)
    for command in (Allocate(90), Cache((0, 1), KEYS), Free((1, 5)), Lookup(KEYS[1]), Touch((1,))):
        assert session.step(command) is None


def test_events_arrive(impl):
    pool = impl.make(2, True)
    pool.cache(pool.allocate(1), [KEYS[0]])
    assert [event["type"] for event in pool.take_events()] == ["stored"]
    assert pool.take_events() == []


def test_an_instance_is_gone_once_the_next_one_is_made(quiet):
    first = quiet.make(2, True)
    quiet.make(2, True)
    with pytest.raises(RuntimeError, match="has gone"):
        first.allocate(1)


def test_after_a_violation_the_next_instance_has_a_program_of_its_own(quiet):
    session = quiet.tapes._session
    driven = PoolSession(quiet.make(3, True), Profile(eviction="lifo"), 3)
    assert driven.step(Allocate(2)) is None
    before = session._process.pid
    assert driven.step(Free((0, 1))).invariant == "ORD"
    assert session._process is None
    assert quiet.make(3, True).num_free() == 3
    assert session._process.pid != before


def test_a_right_program_holds_on_tapes_and_command_by_command(quiet):
    campaign = PoolCampaign(quiet.name, quiet.make, quiet.profile)
    on_tapes = taped(campaign, quiet.tapes)
    assert isinstance(on_tapes, TapedCampaign)
    for number in range(3):
        one_by_one, at_once = campaign.run(number), on_tapes.run(number)
        assert one_by_one.trace is at_once.trace is None
        assert (one_by_one.num_steps, one_by_one.facts) == (at_once.num_steps, at_once.facts)


def test_a_played_tape_gives_its_answers_to_no_other_commands(quiet):
    played = quiet.tapes.play(3, True, [Allocate(1), Free((0,))])
    pool = played.instance()
    assert pool.allocate(1) == [0]
    with pytest.raises(TapeDivergedError):
        pool.touch([0])


def test_a_lookup_of_a_known_hash_is_not_asked_again(quiet):
    commands = [Allocate(1), Cache((0,), KEYS[:1]), Lookup(KEYS[0]), Lookup(KEYS[1])]
    played = quiet.tapes.play(3, True, commands)
    assert len(played.answers) == 3
    pool = played.instance()
    pool.cache(pool.allocate(1), [KEYS[0]])
    assert (pool.lookup(KEYS[0]), pool.lookup(KEYS[1])) == (0, None)


def test_a_wrong_program_fails_on_a_tape_as_it_does_command_by_command():
    target = load_target(f"{SERVE} 'impl[events=none,keys=block,eviction=lifo]'")
    # It says that it is something else than it is.
    profile = Profile.from_mapping({**target.profile.to_json(), "eviction": "lru"})
    campaign = PoolCampaign(target.name, target.make, profile)
    at_once, one_by_one = taped(campaign, target.tapes).run(1), campaign.run(1)
    assert at_once.trace is not None
    assert at_once.trace == one_by_one.trace


def test_what_cannot_be_predicted_goes_command_by_command(quiet):
    free = Profile.from_mapping({"eviction": "unspecified"})
    campaign = PoolCampaign(quiet.name, quiet.make, free)
    assert taped(campaign, quiet.tapes) is campaign


def test_a_queue_is_driven():
    target = load_target(f"{SERVE} impl-queue")
    assert target.level == "queue"
    assert QueueCampaign(target.name, target.make).run(0).trace is None


def test_a_trace_of_a_program_is_replayed_on_it(quiet, tmp_path):
    trace = Trace(quiet.name, "pool", quiet.profile, 2, True, (Allocate(1), Free((0,))))
    write_trace(trace, tmp_path / "trace.jsonl")
    outcome = replay(trace, load_target_of(trace).make)
    assert (outcome.violation, outcome.num_left_out) == (None, 0)


def test_commands_are_written_as_in_trace_files():
    import json

    from poolproof.contract.command_json import command_to_json

    source = random.Random(0)
    for command in (
        Allocate(-1),
        Touch((1, 1)),
        Free(()),
        Cache((1, 2), (source.randbytes(16), source.randbytes(16))),
        Lookup(source.randbytes(16)),
    ):
        assert json.loads(command_text(command)) == command_to_json(command)
