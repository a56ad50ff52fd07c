"""A level owns what differs from level to level: every room has one entry for each of them."""

import ast
from pathlib import Path

import pytest

from poolproof.certification.levels import LEVELS
from poolproof.certification.right_target import RIGHT_AT
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
}

ROOT = Path(__file__).resolve().parents[2]
LOWEST = {Level.QUEUE, Level.INDEX}

# Tables that say nothing of some levels: file and name, those levels, and why.
PARTIAL = {
    ("certification/depths.py", "chunks"): (
        {*LOWEST, Level.POOL},
        "only managers and engines have layouts, which share chunks",
    ),
    ("certification/depths.py", "of_level"): ({*LOWEST, Level.POOL}, "these share theirs"),
    ("certification/explore_target.py", "_EXPLORED"): (
        {Level.MANAGER, Level.ENGINE},
        "those are explored by workloads and set-ups, each with options of its own",
    ),
    ("certification/hits.py", "_METERS"): (LOWEST, "a queue and an index find no prefixes"),
    ("certification/hits.py", "_UNITS"): (LOWEST, "the same"),
    ("certification/run_kinds.py", "_STAGES"): (
        {Level.MANAGER, Level.ENGINE},
        "their stages are named after the layout",
    ),
    ("certification/watching.py", "WATCHES"): (
        {*LOWEST, Level.POOL},
        "the specification draws all that there is to see of them",
    ),
    ("contract/level.py", "_PROFILES"): ({*LOWEST, Level.POOL}, "they share one class"),
    ("contract/trace.py", "_ROWS_BEFORE"): (
        {*LOWEST, Level.POOL, Level.ENGINE},
        "only managers have a row whose default has changed",
    ),
    ("interface/cli/protocol_conversations.py", "_CONVERSATIONS"): (
        {Level.INDEX},
        "no program speaks an index",
    ),
    ("kill_matrix/drivers.py", "_USABLE_BLOCKS"): ({Level.INDEX}, "no planted bug is in an index"),
    ("kill_matrix/unit.py", "_BOOKS"): ({Level.INDEX}, "the same"),
    ("kill_matrix/unit.py", "_USABLE_BLOCKS"): ({Level.INDEX}, "the same"),
    ("targets/command_target.py", "_SPOKEN"): ({Level.INDEX}, "no program speaks an index"),
    ("targets/serve.py", "servers"): ({*LOWEST, Level.POOL}, "one server answers for these"),
    ("targets/target.py", "parts"): (
        {Level.POOL, Level.MANAGER, Level.ENGINE},
        "only queues and indexes are parts of a pool",
    ),
}


def tables_by_level():
    """Each table in the product that is keyed by level: its file, its name, and the levels."""
    for path in sorted(ROOT.glob("*/**/*.py")):
        place = path.relative_to(ROOT)
        if place.parts[0] in {"tests", "benchmarks", "build"} or place.parts[0].startswith("."):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Assign | ast.AnnAssign):
                continue
            if isinstance(node.value, ast.Dict) and node.value.keys:
                keys = [ast.unparse(key) if key else "" for key in node.value.keys]
                if all(key.startswith("Level.") for key in keys):
                    name = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                    levels = {Level[key.removeprefix("Level.")] for key in keys}
                    yield place.as_posix(), ast.unparse(name), levels


def test_a_table_that_leaves_levels_out_says_why():
    found = {(place, name): set(Level) - levels for place, name, levels in tables_by_level()}
    assert len(found) > 20
    assert {where: left_out for where, left_out in found.items() if left_out} == {
        where: left_out for where, (left_out, _why) in PARTIAL.items()
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


@pytest.mark.parametrize(
    ("level", "traits"),
    [
        (Level.QUEUE, {"is_part", "is_built_of_blocks", "has_small_scopes"}),
        (Level.INDEX, {"is_part", "has_hashes", "has_small_scopes"}),
        (Level.POOL, {"has_hashes", "has_misuse", "is_built_of_blocks", "has_small_scopes"}),
        (
            Level.MANAGER,
            {
                "has_sequences", "has_layouts", "has_reads", "is_built_of_blocks",
                "has_small_scopes",
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
