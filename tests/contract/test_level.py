"""A level owns what differs from level to level: every room has one entry for each of them."""

import pytest

from poolproof.certification.levels import LEVELS
from poolproof.certification.right_target import RIGHT_AT
from poolproof.certification.run_kinds import STEPS_A_RUN
from poolproof.contract.errors import OptionError
from poolproof.contract.level import Level
from poolproof.contract.profile import Profile
from poolproof.contract.trace import Trace
from poolproof.fuzz.level_runs import RUNS_AT
from poolproof.fuzz.settings import CampaignSettings
from poolproof.harness.minimising_passes import PASSES_AT
from poolproof.harness.replay import SESSIONS
from poolproof.harness.single_invariant import STATED_AT
from poolproof.report.level_views import VIEWS
from poolproof.report.wording import SET_UP_AT
from poolproof.targets.native_target import NATIVE_AT
from poolproof.targets.paired import METHODS_AT

ROOMS = {
    "certification": LEVELS,
    "fuzz": RUNS_AT,
    "harness": SESSIONS,
    "invariants alone": STATED_AT,
    "minimising": PASSES_AT,
    "native targets": NATIVE_AT,
    "pairs": METHODS_AT,
    "report": VIEWS,
    "set-up in words": SET_UP_AT,
    "specification": RIGHT_AT,
    "steps": STEPS_A_RUN,
}


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_knows_every_level(room):
    assert list(ROOMS[room]) == list(Level)


@pytest.mark.parametrize("level", Level)
def test_what_a_room_has_of_a_level_says_which_it_is(level):
    assert LEVELS[level].level is level


def test_a_level_is_written_as_its_name():
    assert [f"{level}" for level in Level] == ["queue", "index", "pool", "manager", "engine"]
    assert Level.INDEX.with_article == "an index"
    assert Level.POOL.with_article == "a pool"


def test_a_queue_has_no_rows():
    profile = Profile(eviction="lifo")
    assert Level.QUEUE.judged_by(profile) == Profile()
    assert Level.POOL.judged_by(profile) == profile


def test_the_name_of_a_level_stands_for_it():
    assert Trace("impl", "pool", Profile(), 4, True, ()).level is Level.POOL
    assert CampaignSettings("impl", "queue", 4).level is Level.QUEUE
    with pytest.raises(OptionError, match="level must be one of queue, index, pool, manager"):
        CampaignSettings("impl", "kernel", 4)


SMALL_AND_LARGE = ("has_small_scopes", "has_production_sizes")


@pytest.mark.parametrize(
    ("level", "traits"),
    [
        (Level.QUEUE, {"is_part", "is_built_of_blocks", *SMALL_AND_LARGE}),
        (Level.INDEX, {"is_part", "has_hashes", *SMALL_AND_LARGE}),
        (Level.POOL, {"has_hashes", "has_misuse", "is_built_of_blocks", *SMALL_AND_LARGE}),
        (
            Level.MANAGER,
            {
                "has_sequences", "has_layouts", "has_reads", "is_built_of_blocks",
                *SMALL_AND_LARGE,
            },
        ),
        (Level.ENGINE, {"has_layouts", "has_reads", "is_built_of_blocks"}),
    ],
)  # fmt: skip
def test_what_a_level_has(level, traits):
    every = {name for name in vars(Level) if name.startswith(("is_", "has_"))}
    assert {name for name in every if getattr(level, name)} == traits


def test_a_level_stands_in_a_sentence():
    assert Level.INDEX.with_article == "an index"
    assert Level.POOL.with_article == "a pool"
