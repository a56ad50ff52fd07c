"""The exhaustive check on tapes against the one by sessions; the program is in this process."""

import json
from itertools import product
from random import Random

import pytest

from poolproof.bugs.catalogue import SPECIMENS
from poolproof.bugs.clean_pool import CleanPool
from poolproof.contract.profile import Profile
from poolproof.contract.target import capabilities_of
from poolproof.exploration.breadth_first import reachable
from poolproof.exploration.exhaustive_run import check_part, parts_of, scope_under
from poolproof.exploration.orbit_space import OrbitSpace
from poolproof.exploration.representative import of_orbit
from poolproof.exploration.scope import Scope
from poolproof.exploration.tape_check import TapeCheck, suits_tapes
from poolproof.exploration.watch import Watch
from poolproof.stateful_tests.profile_pairs import all_pairs
from poolproof.targets.command_messages import answers_in, hello_in, run_text, start_text
from poolproof.targets.command_target import CommandTapes
from poolproof.targets.serve import TargetServer
from poolproof.targets.target import Target

DEAF = Watch(lambda _: None, lambda _: None)
ROWS = {
    "eviction": ("lru", "lifo", "unhashed-first", "unhashed-lifo"),
    "duplicates": ("kept", "first", "last"),
    "recache": ("replace", "forbidden"),
}
PAIRS = [Profile(**rows) for rows in all_pairs(ROWS)]
PRODUCT = [Profile(**dict(zip(ROWS, values, strict=True))) for values in product(*ROWS.values())]
PROFILES = [one if one in PAIRS else pytest.param(one, marks=pytest.mark.deep) for one in PRODUCT]
PROFILES += [
    Profile(null_block=0, null_in_lists="ignored"),
    Profile(null_block=2, misuse="ignores"),
    Profile(misuse="undefined"),
]  # fmt: skip
# One in six, and the others in deep runs.
POOL_SPECIMENS = [
    pytest.param(specimen, id=specimen.id, marks=[pytest.mark.deep] if number % 6 else [])
    for number, specimen in enumerate(s for s in SPECIMENS.values() if s.level == "pool")
]


class HereSession:
    """What a program in another process would answer, without the process."""

    def __init__(self, make, profile):
        target = Target("here", "pool", "native", profile, None, "", make)
        self._server = TargetServer(target)
        self.hello = hello_in(self._answer(start_text(1)))

    def begin(self, num_blocks, enable_caching, commands):
        message = self._answer(run_text(2, num_blocks, enable_caching, "state", commands))
        return message["state"], answers_in(message, len(commands))

    def close(self):
        """Nothing to end."""

    def _answer(self, line):
        return json.loads(json.dumps(self._server.answer(json.loads(line))))


def tapes_of(make, profile):
    session = HereSession(make, profile)
    return CommandTapes(session.hello, session)


def clean(profile):
    return lambda num_blocks, enable_caching=True: CleanPool(
        num_blocks, enable_caching=enable_caching, rules=profile
    )


def named(profile):
    return "-".join(str(value) for value in profile.to_json().values())


@pytest.mark.some(10)
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("profile", PROFILES, ids=named)
def test_a_right_pool_passes_in_every_state(profile, wide):
    tapes = tapes_of(clean(profile), profile)
    scope = scope_under(Scope(2, 2, 2), profile, tapes.can)
    blocks = [b for b in range(3) if b != profile.null_block][: scope.num_blocks]
    check = TapeCheck(tapes, profile, scope, wide=wide)
    space = OrbitSpace(scope)
    for orbit in reachable(space):
        assert check.passes(of_orbit(space, orbit, blocks, Random(0)))
    assert check.num_commands > 100


@pytest.mark.parametrize("specimen", POOL_SPECIMENS)
def test_a_planted_bug_fails_in_the_same_parts_as_by_sessions(specimen):
    profile = specimen.profile
    tapes = tapes_of(specimen.make, profile)
    if not suits_tapes(profile, tapes.can):
        assert profile.events != "none" or profile.eviction == "unspecified"
        return
    scope = scope_under(Scope(2, 2, 2), profile, tapes.can)
    num_blocks = scope.num_blocks + (profile.null_block is not None)
    for part in parts_of(reachable(OrbitSpace(scope)), scope, num_blocks, 0, wide=True):
        by_tapes, by_sessions = (
            check_part(
                specimen.id,
                make=specimen.make,
                profile=profile,
                can=capabilities_of(specimen.make(4, True)),
                part=part,
                watch=DEAF,
                mark=lambda _: None,
                tapes=given,
            )
            for given in (tapes, None)
        )
        assert by_tapes.failures == by_sessions.failures
        assert by_tapes.num_failing == by_sessions.num_failing


def test_as_many_commands_are_compared_as_by_sessions():
    profile = Profile()
    tapes = tapes_of(clean(profile), profile)
    scope = scope_under(Scope(2, 2, 2), profile, tapes.can)
    (part,) = parts_of(reachable(OrbitSpace(scope)), scope, 2, 0, wide=True)
    counts = {
        check_part(
            "clean",
            make=clean(profile),
            profile=profile,
            can=tapes.can,
            part=part,
            watch=DEAF,
            mark=lambda _: None,
            tapes=given,
        ).num_commands
        for given in (tapes, None)
    }
    assert len(counts) == 1


def test_events_are_left_to_sessions():
    can = tapes_of(clean(Profile()), Profile()).can
    assert suits_tapes(Profile(), can)
    assert not suits_tapes(Profile(events="per-copy"), can)
